//! How alike two workloads are where few products are equal: two differences at once leave none, and
//! still each of them alone brings the sides nearer.

use gemwright_core::{Operands, Workload};
use std::collections::HashMap;
use std::hash::Hash;

/// 0 to 1: what both sides share of element types, of widths, of lengths and of whole sizes.
pub fn likeness(workloads: [&Workload; 2]) -> f64 {
    let sizes = |workload: &Workload| -> Vec<([u64; 3], [u64; 4], u8, u64)> {
        let of = |call: &gemwright_core::Call| match &call.operands {
            Operands::Attention(x) => {
                let at = |view: &gemwright_core::View, d: usize| view.size[d] as u64;
                ([at(&x.q, 1), at(&x.k, 1), at(&x.q, 3)], [at(&x.q, 0), at(&x.q, 2), at(&x.k, 2), 0])
            }
            _ => call.product().map_or_else(Default::default, |p| ([p.n, p.k, 0], [p.batch, p.m, 0, 0])),
        };
        let calls = workload.calls().iter();
        calls.map(|call| (of(call), call)).map(|((w, l), c)| (w, l, c.dtype() as u8, c.count)).collect()
    };
    let [a, b] = workloads.map(sizes);
    let parts = [
        shared(&a, &b, |c| c.0, |c| c.3),
        shared(&a, &b, |c| c.1, |c| c.3),
        shared(&a, &b, |c| c.2, |c| c.3),
        shared(&a, &b, |c| (c.0, c.1), |c| c.3),
    ];
    parts.iter().sum::<f64>() / parts.len() as f64
}

/// The part of both that is in both, by a property.
fn shared<T, K: Hash + Eq>(a: &[T], b: &[T], key: impl Fn(&T) -> K, count: impl Fn(&T) -> u64) -> f64 {
    let mut counts: HashMap<K, [u64; 2]> = HashMap::new();
    for (side, all) in [a, b].into_iter().enumerate() {
        for item in all {
            counts.entry(key(item)).or_default()[side] += count(item);
        }
    }
    let (both, all) = counts.values().fold((0u64, 0u64), |(both, all), [a, b]| (both + 2 * a.min(b), all + a + b));
    if all == 0 { 0.0 } else { both as f64 / all as f64 }
}
