//! Kernels for a few rows of x: how weights are streamed, and which one a product gets.

use crate::Product;
use crate::decode_direct::DirectChoice;
use crate::decode_ring::RingChoice;
use crate::kernel_cost::KernelChip;
use std::fmt;

/// Where both kinds are predicted to be as fast, rings were faster.
const CLOSE: f64 = 1.02;

/// How weights are streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecodeChoice {
    /// Straight into registers.
    Direct(DirectChoice),
    /// Through rings in shared memory.
    Ring(RingChoice),
}

impl DecodeChoice {
    /// Rows of x at most.
    pub const ROWS: u64 = 32;

    #[allow(missing_docs)]
    pub fn all() -> impl Iterator<Item = DecodeChoice> {
        DirectChoice::all().map(DecodeChoice::Direct).chain(RingChoice::all().map(DecodeChoice::Ring))
    }

    /// What it will take, where a multiprocessor runs so many blocks at once and an element of the weight has so many bytes.
    pub fn seconds(&self, product: &Product, weight_bytes: u64, blocks: u64, chip: &KernelChip) -> f64 {
        match self {
            DecodeChoice::Direct(choice) => CLOSE * choice.seconds(product, blocks, chip),
            DecodeChoice::Ring(choice) => choice.seconds(product, weight_bytes, chip),
        }
    }

    /// Rounds in which every block has something to work on.
    pub fn waves(&self, product: &Product, weight_bytes: u64, blocks: u64, chip: &KernelChip) -> f64 {
        match self {
            DecodeChoice::Direct(choice) => choice.waves(product, blocks, chip),
            DecodeChoice::Ring(choice) => choice.waves(product, weight_bytes, chip),
        }
    }

    /// What is lost where the last round leaves some without work, of rows that begin anywhere: by 13 kernels on each of five
    /// products.
    pub fn unevenness(&self, product: &Product, blocks: u64, chip: &KernelChip) -> f64 {
        let DecodeChoice::Ring(choice) = self else { return 1.0 };
        let sets = chip.units * u64::from(choice.warps / choice.share);
        let even = product.n as f64 / (RingChoice::rows(2) * sets.max(1)) as f64;
        (self.waves(product, 2, blocks, chip) / even.max(1e-9)).powf(0.25)
    }

    /// From a name such as `decode-16x8a4s2`.
    pub fn named(name: &str) -> Option<DecodeChoice> {
        DecodeChoice::all().find(|choice| choice.to_string() == name)
    }
}

impl fmt::Display for DecodeChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeChoice::Direct(choice) => choice.fmt(f),
            DecodeChoice::Ring(choice) => choice.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for choice in DecodeChoice::all() {
            assert_eq!(DecodeChoice::named(&choice.to_string()), Some(choice));
        }
        assert_eq!(DecodeChoice::named("decode-16x8a3"), None);
        assert_eq!(DecodeChoice::named("ring-8x3c256"), None);
    }

    /// Times of an H200 in microseconds.
    #[test]
    fn predictions_are_near_what_was_measured() {
        let chip = KernelChip::hopper(132);
        for (name, blocks, (m, n, k), us) in [
            ("decode-16x8a4", 2, (1, 4096, 4096), 10.73),
            ("decode-16x4a4", 5, (1, 8192, 1024), 5.99),
            ("decode-32x4a4p", 3, (1, 22_016, 4096), 44.38),
            ("ring-8x4c256", 1, (1, 4096, 4096), 9.99),
            ("ring-8x8c256", 1, (8, 4096, 4096), 10.14),
            ("ring-8x4c512", 1, (8, 22_016, 4096), 43.81),
        ] {
            let product = Product { batch: 1, m, n, k };
            let seconds = DecodeChoice::named(name).unwrap().seconds(&product, 2, blocks, &chip);
            assert!((seconds * 1e6 / us - 1.0).abs() < 0.08, "{name}: {seconds:e} for {us}");
        }
    }

    /// Of both kinds the better one is picked where they differ most.
    #[test]
    fn long_rows_go_through_rings_and_short_ones_do_not() {
        let chip = KernelChip::hopper(132);
        let best = |name: &str, blocks: u64, (n, k): (u64, u64)| {
            DecodeChoice::named(name).unwrap().seconds(&Product { batch: 1, m: 8, n, k }, 2, blocks, &chip)
        };
        assert!(best("ring-8x8c256", 1, (4096, 4096)) < best("decode-16x8a4", 2, (4096, 4096)));
        assert!(best("ring-8x8c256", 1, (32_768, 512)) > best("decode-16x4a4", 5, (32_768, 512)));
    }
}
