//! Where the groups of a product end, for those who measure and check: rows dealt out evenly, by chance, or badly.

use crate::problem::{Groups, Problem};
use gemwright_cuda::{CudaError, Device, Memory, Stream};
use std::sync::Arc;

/// How rows go to groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routing {
    /// As many to each.
    Even,
    /// Each to any of them.
    Random,
    /// Many to a few, none to some, and some to nobody.
    Uneven,
}

/// splitmix64.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

impl Routing {
    /// Where each of so many groups ends.
    pub fn ends(self, rows: u64, groups: u64) -> Vec<i32> {
        let mut counts = vec![0u64; groups as usize];
        match self {
            Routing::Even => {
                for (count, g) in counts.iter_mut().zip(0..groups) {
                    *count = rows * (g + 1) / groups - rows * g / groups;
                }
            }
            Routing::Random => (0..rows).for_each(|row| counts[(mix(row) % groups) as usize] += 1),
            Routing::Uneven => {
                for row in 0..rows - rows / 7 {
                    let any = mix(row) % groups;
                    counts[if any % 3 == 1 { 0 } else { any } as usize] += 1;
                }
            }
        }
        let mut end = 0;
        counts
            .into_iter()
            .map(|count| {
                end += count;
                end as i32
            })
            .collect()
    }
}

/// The ends on a device, and here; `None` where a problem has no groups.
pub(super) fn group_ends(
    problem: &Problem,
    routing: Routing,
    device: &Arc<Device>,
    stream: &Stream,
) -> Result<Option<(Memory, Vec<i32>)>, CudaError> {
    let (rows, groups) = match problem.groups {
        Groups::None => return Ok(None),
        Groups::Rows(groups) => (problem.product.m, groups),
        Groups::K(groups) => (problem.product.k, groups),
    };
    let ends = routing.ends(rows, groups);
    let bytes: Vec<u8> = ends.iter().flat_map(|end| end.to_ne_bytes()).collect();
    let memory = Memory::new(device, bytes.len().max(4))?;
    memory.write(0, &bytes, stream)?;
    Ok(Some((memory, ends)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_dealt_out() {
        assert_eq!(Routing::Even.ends(10, 4), [2, 5, 7, 10]);
        let random = Routing::Random.ends(1000, 8);
        assert_eq!(random[7], 1000);
        assert!(random.windows(2).all(|two| two[1] - two[0] > 80));
        let uneven = Routing::Uneven.ends(700, 9);
        assert!(uneven[8] == 600 && uneven[0] > 200 && uneven[1] == uneven[0]);
    }
}
