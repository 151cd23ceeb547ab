//! What this machine is called in tables.

/// The CPU's name as Linux has it.
pub fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    named.map_or_else(|| "unknown".into(), |(_, name)| name.trim().to_string())
}
