//! Rows that belong to one group after the other: which of them a tile has. What `kernels/groups.cuh` does, for the tests
//! and for whoever wants to know.

/// Groups of a product at most.
pub const MOST_GROUPS: u64 = 512;
/// Of shared memory: rows and tiles before each group.
pub(crate) const GROUPS_BYTES: u32 = 2 * (MOST_GROUPS as u32 + 1) * 4;

/// What a tile has: rows `first..end` of a group from tile `across` on, by tile `weights` of its weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Share {
    pub group: usize,
    pub first: i32,
    pub end: i32,
    pub across: i32,
    pub weights: i32,
}

/// Rows and tiles before each group.
#[derive(Debug, Clone)]
pub struct Groups {
    rows: Vec<i32>,
    before: Vec<i32>,
    tile_rows: i32,
}

impl Groups {
    /// Of groups that end at these rows, in tiles of `tile_rows` rows by one of `weight_tiles` parts of the weights.
    pub fn new(ends: &[i32], all_rows: i32, tile_rows: i32, weight_tiles: i32) -> Groups {
        let (mut rows, mut before) = (vec![0], vec![0]);
        for end in ends {
            let (first, end) = (rows[rows.len() - 1], (*end).min(all_rows).max(0));
            let tiles = (end - first + tile_rows - 1).max(0) / tile_rows * weight_tiles;
            before.push(before[before.len() - 1] + tiles);
            rows.push(end);
        }
        Groups { rows, before, tile_rows }
    }

    /// Tiles of all.
    pub fn tiles(&self) -> i32 {
        self.before[self.before.len() - 1]
    }

    /// What a tile has.
    pub fn of(&self, tile: i32) -> Share {
        let (mut low, mut high) = (0, self.before.len() - 1);
        while high - low > 1 {
            let middle = usize::midpoint(low, high);
            if self.before[middle] <= tile { low = middle } else { high = middle }
        }
        let (first, end) = (self.rows[low], self.rows[low + 1]);
        let down = (end - first + self.tile_rows - 1) / self.tile_rows;
        let tile = tile - self.before[low];
        Share { group: low, first, end, across: tile % down, weights: tile / down }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_row_is_multiplied_once_by_all_of_its_weights() {
        for ends in [vec![5], vec![0, 0, 17, 17, 40], vec![3, 64, 65, 129, 130, 130], vec![0], vec![8; 300]] {
            let (all, tile_rows, weight_tiles) = (ends[ends.len() - 1], 16, 3);
            let groups = Groups::new(&ends, all, tile_rows, weight_tiles);
            let mut seen = HashSet::new();
            for tile in 0..groups.tiles() {
                let share = groups.of(tile);
                let from = share.first + share.across * tile_rows;
                assert!(from < share.end && share.weights < weight_tiles);
                for row in from..share.end.min(from + tile_rows) {
                    let owner = ends.iter().position(|end| row < *end).unwrap();
                    assert_eq!(owner, share.group);
                    assert!(seen.insert((row, share.weights)));
                }
            }
            assert_eq!(seen.len() as i32, all * weight_tiles);
        }
    }

    /// What is no end ends nothing behind the last row.
    #[test]
    fn ends_that_are_none_stay_inside() {
        let groups = Groups::new(&[9, 4, 100, -3], 20, 8, 2);
        for tile in 0..groups.tiles() {
            let share = groups.of(tile);
            assert!(share.first + share.across * 8 < share.end && share.end <= 20);
        }
    }
}
