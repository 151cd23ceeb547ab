//! The caches of this machine, which decide the sizes of blocks.

use std::sync::OnceLock;

/// Bytes of data one core sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Caches {
    pub l1: usize,
    pub l2: usize,
    /// Of all cores together.
    pub l3: usize,
}

impl Caches {
    /// What a machine has that tells nothing.
    const USUAL: Caches = Caches { l1: 32 << 10, l2: 1 << 20, l3: 8 << 20 };

    /// Read once, from the system's own description.
    pub fn of_this_machine() -> Caches {
        static FOUND: OnceLock<Caches> = OnceLock::new();
        *FOUND.get_or_init(read)
    }
}

#[cfg(target_os = "linux")]
fn read() -> Caches {
    let mut found = Caches::USUAL;
    for index in 0..8 {
        let text = |name: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
            std::fs::read_to_string(path).map(|text| text.trim().to_string()).unwrap_or_default()
        };
        if text("type") == "Instruction" {
            continue;
        }
        let (level, size) = (text("level"), text("size"));
        let (number, unit) = size.split_at(size.len().saturating_sub(1));
        let factor = match unit {
            "K" => 1 << 10,
            "M" => 1 << 20,
            _ => continue,
        };
        let Some(bytes) = number.parse::<usize>().ok().filter(|n| *n > 0).map(|n| n * factor) else { continue };
        match level.as_str() {
            "1" => found.l1 = bytes,
            "2" => found.l2 = bytes,
            "3" => found.l3 = bytes,
            _ => {}
        }
    }
    found
}

#[cfg(not(target_os = "linux"))]
fn read() -> Caches {
    Caches::USUAL
}
