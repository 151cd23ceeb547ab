//! This machine as a chip: what Linux says of its CPU. Bandwidth is not written down anywhere, so it stays unknown.

use crate::error::Error;
use gemwright_core::{Chip, Figure, Memory, Units};
use std::collections::BTreeMap;

/// FLOP per clock and core that the best instruction set on board can do, per element type.
/// Two fused multiply-adds of a full vector a clock; AMX as Intel gives it.
fn flops_per_clock(flags: &[&str]) -> Vec<(&'static str, f64)> {
    let has = |flag: &str| flags.contains(&flag);
    let mut rates = Vec::new();
    let f32_rate = match () {
        () if has("avx512f") => 64.0,
        () if has("avx2") && has("fma") => 32.0,
        () => return rates,
    };
    rates.push(("fp64", f32_rate / 2.0));
    rates.push(("fp32", f32_rate));
    match () {
        () if has("amx_bf16") => rates.push(("bf16", 1024.0)),
        () if has("avx512_bf16") => rates.push(("bf16", 2.0 * f32_rate)),
        () => {}
    }
    if has("amx_int8") {
        rates.push(("int8", 2048.0));
    }
    rates
}

fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    let line = cpuinfo.lines().find(|line| line.split(':').next().map(str::trim) == Some(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn cache_mb(level: &str) -> Option<f64> {
    (0..8).find_map(|index| {
        let at = |name: &str| {
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok()
        };
        let kind = at("type")?;
        if at("level")?.trim() != level || kind.trim() == "Instruction" {
            return None;
        }
        at("size")?.trim().strip_suffix('K')?.parse::<f64>().ok().map(|kb| kb / 1024.0)
    })
}

/// Reads this machine.
pub fn read() -> Result<Chip, Error> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo")
        .map_err(|e| Error::Missing(format!("`host` needs Linux's /proc/cpuinfo: {e}")))?;
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Ok(chip(&cpuinfo, &meminfo))
}

fn chip(cpuinfo: &str, meminfo: &str) -> Chip {
    let figure = |value: f64, source: &str| Some(Figure { value, source: source.into() });
    let processors = cpuinfo.lines().filter(|l| l.starts_with("processor")).count().max(1);
    let siblings: f64 = field(cpuinfo, "siblings").and_then(|x| x.parse().ok()).unwrap_or(1.0);
    let cores: f64 = field(cpuinfo, "cpu cores").and_then(|x| x.parse().ok()).unwrap_or(siblings);
    let units = (processors as f64 * cores / siblings.max(1.0)).max(1.0).round();
    let mhz: Option<f64> = field(cpuinfo, "cpu MHz").and_then(|x| x.parse().ok());
    let flags: Vec<&str> = field(cpuinfo, "flags").unwrap_or("").split_whitespace().collect();
    let mut peaks = BTreeMap::new();
    if let Some(mhz) = mhz {
        for (name, rate) in flops_per_clock(&flags) {
            let source = "derived: cores x FLOP per clock x the clock in /proc/cpuinfo".to_string();
            peaks.insert(name.to_string(), Figure { value: units * rate * mhz * 1e6 / 1e12, source });
        }
    }
    let kb: Option<f64> =
        field(meminfo, "MemTotal").and_then(|x| x.split_whitespace().next()).and_then(|x| x.parse().ok());
    Chip {
        id: "host".into(),
        name: field(cpuinfo, "model name").unwrap_or("this machine").into(),
        aliases: Vec::new(),
        vendor: field(cpuinfo, "vendor_id").unwrap_or("").into(),
        arch: "cpu".into(),
        kind: "cpu".into(),
        peaks,
        memory: Memory {
            kind: String::new(),
            gb: kb.and_then(|kb| figure(kb * 1024.0 / 1e9, "/proc/meminfo")),
            gbs: None,
        },
        units: Some(Units { kind: "core".into(), count: Figure { value: units, source: "/proc/cpuinfo".into() } }),
        clock_mhz: mhz.and_then(|mhz| figure(mhz, "/proc/cpuinfo")),
        l2_mb: cache_mb("2").and_then(|mb| figure(mb, "/sys")),
        llc_mb: cache_mb("3").and_then(|mb| figure(mb, "/sys")),
        shared_kb_per_unit: None,
        registers_kb_per_unit: None,
        tdp_w: None,
        matrix_flop_per_clock_and_unit: None,
        attainable: Vec::new(),
        reached: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_follow_from_cores_clock_and_flags() {
        let cpuinfo = "processor\t: 0\nmodel name\t: X\ncpu MHz\t\t: 2000.000\nsiblings\t: 4\ncpu cores\t: 2\n\
                       flags\t\t: avx2 fma avx512f amx_bf16\nprocessor\t: 1\nprocessor\t: 2\nprocessor\t: 3\n";
        let chip = chip(cpuinfo, "MemTotal:       1000000 kB\n");
        assert_eq!(chip.units.unwrap().count.value, 2.0);
        assert_eq!(chip.peaks["fp32"].value, 0.256);
        assert_eq!(chip.peaks["bf16"].value, 4.096);
        assert_eq!(chip.memory.gb.unwrap().value, 1.024);
        assert!(chip.memory.gbs.is_none());
    }

    #[test]
    fn an_empty_cpuinfo_has_no_peaks() {
        assert!(chip("", "").peaks.is_empty());
    }
}
