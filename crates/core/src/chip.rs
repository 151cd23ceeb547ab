//! The chip catalog: peaks, bandwidth and sizes, each number with its source.

use crate::{DType, nearest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A number and where it was seen: letters of [`Catalog::sources`], or `given` for a user's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct Figure {
    /// The number.
    pub value: f64,
    /// The letters of its sources.
    pub source: String,
}

/// A figure as it stands in TOML: `[989.4, "SA"]`, or a bare number in a user's own file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Sourced(f64, String),
    Bare(f64),
}

impl From<Written> for Figure {
    fn from(written: Written) -> Figure {
        match written {
            Written::Sourced(value, source) => Figure { value, source },
            Written::Bare(value) => Figure { value, source: "given".into() },
        }
    }
}

/// What a chip is made of many times over: SM, CU, core.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Units {
    /// Its name.
    pub kind: String,
    /// How many.
    pub count: Figure,
}

/// Memory behind the caches.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[allow(missing_docs)]
pub struct Memory {
    #[serde(rename = "type")]
    pub kind: String,
    pub gb: Option<Figure>,
    pub gbs: Option<Figure>,
}

/// A rate somebody measured, kept apart from the datasheet's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attainable {
    /// Element type, or `bandwidth`.
    pub what: String,
    /// Matrix throughput, for an element type.
    pub tflops: Option<f64>,
    /// GB/s, for bandwidth.
    pub gbs: Option<f64>,
    /// Software, shape, date, source.
    pub how: String,
}

/// Which share of the datasheet's rates a library's products reach, the median over many of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reached {
    /// Name of the peak.
    pub peak: String,
    /// By alignment.
    pub aligned: Vec<ReachedAligned>,
    /// Microseconds of the shortest of them all: smaller products take no less.
    pub least_us: f64,
    /// Software, number of shapes, date, source.
    pub how: String,
}

/// What products of one alignment reach.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReachedAligned {
    /// The power of two, 16 at most, that the bytes of every row of every operand are a multiple of.
    pub bytes: u64,
    /// Share of the peak, for products bound by arithmetic.
    pub compute: f64,
    /// Share of the bandwidth, for products bound by memory.
    pub memory: f64,
}

/// A machine's peaks per element type, its bandwidth and sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)]
pub struct Chip {
    pub id: String,
    pub name: String,
    /// Further names, those a driver or a trace gives among them.
    #[serde(default)]
    pub aliases: Vec<String>,
    #[serde(default)]
    pub vendor: String,
    #[serde(default)]
    pub arch: String,
    #[serde(default)]
    pub kind: String,
    /// Dense TFLOP/s per element type.
    #[serde(default)]
    pub peaks: BTreeMap<String, Figure>,
    #[serde(default)]
    pub memory: Memory,
    pub units: Option<Units>,
    pub clock_mhz: Option<Figure>,
    pub l2_mb: Option<Figure>,
    pub llc_mb: Option<Figure>,
    pub shared_kb_per_unit: Option<Figure>,
    pub registers_kb_per_unit: Option<Figure>,
    pub tdp_w: Option<Figure>,
    pub matrix_flop_per_clock_and_unit: Option<Figure>,
    #[serde(default)]
    pub attainable: Vec<Attainable>,
    #[serde(default)]
    pub reached: Vec<Reached>,
}

impl Chip {
    /// The names of peaks, in the order they are printed.
    pub const PEAKS: [&str; 8] = ["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4"];

    /// The name of the peak that `dtype` multiplies at. f32 is true f32: PyTorch does not use TF32 unless asked.
    pub fn peak_name(dtype: DType) -> &'static str {
        match dtype {
            DType::F64 | DType::C128 => "fp64",
            DType::F32 | DType::C64 | DType::Bool => "fp32",
            DType::F16 => "fp16",
            DType::Bf16 => "bf16",
            DType::F8E4m3 | DType::F8E5m2 => "fp8",
            DType::I4 | DType::I8 | DType::I32 => "int8",
        }
    }

    /// FLOP/s at which `dtype` multiplies, if known.
    pub fn peak(&self, dtype: DType) -> Option<f64> {
        self.peaks.get(Chip::peak_name(dtype)).map(|figure| figure.value * 1e12)
    }

    /// Bytes per second, if known.
    pub fn bandwidth(&self) -> Option<f64> {
        self.memory.gbs.as_ref().map(|figure| figure.value * 1e9)
    }

    /// FLOPs per byte from which `dtype` is bound by arithmetic.
    pub fn ridge(&self, dtype: DType) -> Option<f64> {
        Some(self.peak(dtype)? / self.bandwidth()?)
    }

    fn check(&self) -> Result<(), ChipError> {
        let bad = |field: &str, why: &str| {
            Err(ChipError::Figure { chip: self.id.clone(), field: field.into(), why: why.into() })
        };
        for (name, figure) in &self.peaks {
            if !Chip::PEAKS.contains(&name.as_str()) {
                return bad(name, &format!("is no peak; known are {}", Chip::PEAKS.join(", ")));
            }
            if !(figure.value.is_finite() && figure.value > 0.0) {
                return bad(name, "must be a positive number of TFLOP/s");
            }
        }
        for reached in &self.reached {
            if reached.aligned.iter().flat_map(|a| [a.compute, a.memory]).any(|share| !(share > 0.0 && share <= 1.0)) {
                return bad("reached", "must have shares above 0 and up to 1");
            }
            if !(reached.least_us >= 0.0 && reached.least_us.is_finite()) {
                return bad("reached.least_us", "must be a number of microseconds");
            }
        }
        if self.units.as_ref().is_some_and(|u| !(1.0..=1e9).contains(&u.count.value)) {
            return bad("units.count", "must be a number from 1 to 1e9");
        }
        match &self.memory.gbs {
            Some(figure) if !(figure.value.is_finite() && figure.value > 0.0) => {
                bad("memory.gbs", "must be a positive number of GB/s")
            }
            _ => Ok(()),
        }
    }
}

/// What can be wrong with a chip's name or file.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum ChipError {
    #[error("unknown chip `{name}`{}", nearest.as_ref().map_or(String::new(), |n| format!("; nearest: `{n}`")))]
    Unknown { name: String, nearest: Option<String> },
    #[error("chip `{chip}`: `{field}` {why}")]
    Figure { chip: String, field: String, why: String },
    #[error("{0}")]
    Toml(#[from] toml::de::Error),
    #[error("the file describes no [[chip]]")]
    Empty,
}

/// All known chips and the sources their numbers come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalog {
    /// Letter -> what it stands for.
    #[serde(default)]
    pub sources: BTreeMap<String, String>,
    /// The chips, in the order of the file.
    #[serde(rename = "chip", default)]
    pub chips: Vec<Chip>,
}

impl Catalog {
    /// The catalog that comes with the program.
    ///
    /// # Panics
    /// Never: a test reads the same file.
    pub fn builtin() -> Catalog {
        Catalog::parse(include_str!("../../../data/chips.toml")).expect("the chip catalog is well-formed")
    }

    /// Reads a catalog, or a user's own file of one or more chips.
    pub fn parse(text: &str) -> Result<Catalog, ChipError> {
        let catalog: Catalog = toml::from_str(text)?;
        if catalog.chips.is_empty() {
            return Err(ChipError::Empty);
        }
        catalog.chips.iter().try_for_each(Chip::check)?;
        Ok(catalog)
    }

    /// The chip of that id, name or alias, whatever the case.
    pub fn find(&self, name: &str) -> Result<&Chip, ChipError> {
        let is = |other: &str| other.eq_ignore_ascii_case(name);
        self.chips.iter().find(|c| is(&c.id) || is(&c.name) || c.aliases.iter().any(|a| is(a))).ok_or_else(|| {
            ChipError::Unknown {
                name: name.into(),
                nearest: nearest(name, self.chips.iter().map(|c| c.id.as_str())).map(str::to_string),
            }
        })
    }

    /// The GPU a driver calls by this name; else the only one with as many units and as much memory.
    pub fn recognise(&self, name: &str, units: Option<i64>, memory: Option<i64>) -> Option<&Chip> {
        if let Ok(chip) = self.find(name.trim()) {
            return Some(chip);
        }
        let (units, bytes) = (units? as f64, memory? as f64);
        // Datasheets mean one gigabyte or the other, and a driver keeps some for itself.
        let near = |gb: f64| [1e9, 1024.0 * 1024.0 * 1024.0].iter().any(|unit| (bytes / unit / gb - 1.0).abs() < 0.06);
        let fits = |chip: &&Chip| {
            chip.units.as_ref().is_some_and(|u| u.count.value == units)
                && chip.memory.gb.as_ref().is_some_and(|gb| near(gb.value))
        };
        let mut fitting = self.chips.iter().filter(fits);
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// The sources behind a figure's letters, in words; what is no list of known letters, as it stands.
    pub fn explain(&self, figure: &Figure) -> String {
        if let Some(words) = self.sources.get(&figure.source) {
            return words.clone();
        }
        let letters = figure.source.chars().map(|c| self.sources.get(&c.to_string()).cloned());
        let words: Option<Vec<String>> = letters.collect();
        words.map_or_else(|| figure.source.clone(), |words| words.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_the_catalog_has_a_known_source() {
        let catalog = Catalog::builtin();
        assert!(catalog.chips.len() >= 50);
        for chip in &catalog.chips {
            let sizes = [&chip.l2_mb, &chip.llc_mb, &chip.shared_kb_per_unit, &chip.registers_kb_per_unit];
            let others = [&chip.clock_mhz, &chip.tdp_w, &chip.memory.gb, &chip.memory.gbs];
            let rate = [&chip.matrix_flop_per_clock_and_unit];
            let all = sizes.into_iter().chain(others).chain(rate).flatten();
            let units = chip.units.iter().map(|u| &u.count);
            for figure in chip.peaks.values().chain(all).chain(units) {
                let known = catalog.sources.contains_key(&figure.source)
                    || figure.source.chars().all(|c| catalog.sources.contains_key(&c.to_string()));
                assert!(known, "{}: source `{}`", chip.id, figure.source);
            }
        }
    }

    #[test]
    fn names_are_unique() {
        let catalog = Catalog::builtin();
        let mut seen = std::collections::HashSet::new();
        for chip in &catalog.chips {
            let names = chip.aliases.iter().chain([&chip.id]).map(|n| n.to_lowercase());
            for name in names {
                assert!(seen.insert(name.clone()), "{name} stands twice");
            }
        }
    }

    #[test]
    fn mi300x_ridge() {
        let catalog = Catalog::builtin();
        let ridge = catalog.find("AMD Instinct MI300X").unwrap().ridge(DType::Bf16).unwrap();
        assert_eq!(format!("{ridge:.1}"), "246.7");
    }

    #[test]
    fn a_users_chip_needs_no_source_and_a_wrong_one_is_named() {
        let own = Catalog::parse("[[chip]]\nid='x'\nname='X'\npeaks={bf16=2}\nmemory={gbs=4}\n").unwrap();
        assert_eq!(own.find("X").unwrap().ridge(DType::Bf16), Some(500.0));
        let error = Catalog::parse("[[chip]]\nid='x'\nname='X'\npeaks={bf17=2}\n").unwrap_err();
        assert!(error.to_string().contains("bf17"), "{error}");
        assert!(matches!(Catalog::parse(""), Err(ChipError::Empty)));
        let none = "[[chip]]\nid='x'\nname='X'\nunits={kind='SM',count=0}\n";
        assert!(Catalog::parse(none).unwrap_err().to_string().contains("units.count"));
        let own = Figure { value: 1.0, source: "/proc/cpuinfo".into() };
        assert_eq!(Catalog::builtin().explain(&own), "/proc/cpuinfo");
        let unknown = Catalog::builtin().find("h20o").unwrap_err().to_string();
        assert!(unknown.contains("h20"), "{unknown}");
    }
}
