//! Which tiles a cluster computes: what `kernels/walk.cuh` does, for the tests and for whoever wants to know.

/// Where a tile is, counted in tiles (down M in clusters).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Place {
    pub m: i32,
    pub n: i32,
    pub batch: i32,
}

/// The order in which tiles of a product are numbered: bands of `group` tiles down M, or `along` N.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Order {
    pub tiles_m: i32,
    pub tiles_n: i32,
    pub group: i32,
    pub along: bool,
}

impl Order {
    /// Where a tile is.
    pub fn at(&self, tile: i32) -> Place {
        let (batch, tile) = (tile / (self.tiles_m * self.tiles_n), tile % (self.tiles_m * self.tiles_n));
        let Order { tiles_m, tiles_n, group, along } = *self;
        let (wide, far) = if along { (tiles_n, tiles_m) } else { (tiles_m, tiles_n) };
        let band = tile / (group * far);
        let first = band * group;
        let rows = group.min(wide - first);
        let r = tile - band * group * far;
        let (x, y) = (first + r % rows, r / rows);
        if along { Place { m: y, n: x, batch } } else { Place { m: x, n: y, batch } }
    }
}

/// Blocks of K `from..to` of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Piece {
    pub tile: i32,
    pub from: i32,
    pub to: i32,
}

/// The pieces of one cluster: whole tiles in turns, then its share of those that are cut along K, backwards.
#[derive(Debug, Clone)]
pub struct Walk {
    tile: i32,
    step: i32,
    whole: i32,
    blocks: i32,
    from: i32,
    to: i32,
}

impl Walk {
    /// Of cluster `me` of `clusters`.
    pub fn new(me: i32, clusters: i32, whole: i32, shared: i32, blocks: i32) -> Walk {
        let total = i64::from(shared) * i64::from(blocks);
        let [from, to] = [me, me + 1].map(|cluster| Walk::share(cluster, clusters, total));
        Walk { tile: me, step: clusters, whole, blocks, from, to }
    }

    /// Where a cluster's share of so many blocks begins.
    pub fn share(cluster: i32, clusters: i32, total: i64) -> i32 {
        (i64::from(cluster) * total / i64::from(clusters)) as i32
    }
}

impl Iterator for Walk {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.tile < self.whole {
            let piece = Piece { tile: self.tile, from: 0, to: self.blocks };
            self.tile += self.step;
            return Some(piece);
        }
        if self.to <= self.from {
            return None;
        }
        let tile = (self.to - 1) / self.blocks;
        let first = self.from.max(tile * self.blocks);
        let piece =
            Piece { tile: self.whole + tile, from: first - tile * self.blocks, to: self.to - tile * self.blocks };
        self.to = first;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_tile_has_its_place() {
        let sizes = [(1, 1, 8, 1), (7, 5, 3, 2), (16, 3, 8, 1), (9, 11, 100, 3), (3, 16, 8, 1)];
        for ((tiles_m, tiles_n, group, batches), along) in sizes.into_iter().flat_map(|x| [(x, false), (x, true)]) {
            let order = Order { tiles_m, tiles_n, group, along };
            let places: HashSet<Place> = (0..tiles_m * tiles_n * batches).map(|tile| order.at(tile)).collect();
            assert_eq!(places.len() as i32, tiles_m * tiles_n * batches);
            let inside = |p: &Place| p.m < tiles_m && p.n < tiles_n && p.batch < batches;
            assert!(places.iter().all(inside));
        }
    }

    #[test]
    fn every_block_is_multiplied_once_and_shares_are_even() {
        for (tiles, whole, clusters, blocks) in
            [(1, 0, 132, 64), (100, 0, 132, 7), (200, 132, 132, 32), (5, 0, 66, 1), (300, 264, 132, 100), (3, 3, 2, 9)]
        {
            let mut seen = HashSet::new();
            let mut lengths = Vec::new();
            for me in 0..clusters {
                let pieces: Vec<Piece> = Walk::new(me, clusters, whole, tiles - whole, blocks).collect();
                let shared = pieces.iter().filter(|piece| piece.tile >= whole);
                lengths.push(shared.map(|piece| piece.to - piece.from).sum::<i32>());
                // One place for sums that others finish is enough.
                assert!(pieces.iter().filter(|piece| piece.to < blocks).count() <= 1);
                for piece in pieces {
                    assert!(piece.from < piece.to && piece.to <= blocks);
                    assert!((piece.from..piece.to).all(|block| seen.insert((piece.tile, block))));
                }
            }
            assert_eq!(seen.len() as i32, tiles * blocks);
            assert!(lengths.iter().max().unwrap() - lengths.iter().min().unwrap() <= 1);
        }
    }

    /// Who finishes a tile waits only for clusters before it, which have that part behind them: no circle of waiting.
    #[test]
    fn nobody_waits_for_one_who_comes_later() {
        let (shared, clusters, blocks) = (50, 132, 40);
        for me in 0..clusters {
            for piece in Walk::new(me, clusters, 0, shared, blocks).filter(|p| p.to == blocks && p.from > 0) {
                let first = piece.tile * blocks;
                let total = i64::from(shared * blocks);
                let others: Vec<i32> = (0..clusters)
                    .filter(|other| *other != me)
                    .filter(|other| {
                        let [from, to] = [*other, other + 1].map(|c| Walk::share(c, clusters, total));
                        from < first + piece.from && to > first
                    })
                    .collect();
                for other in others {
                    assert!(other < me);
                    let theirs = Walk::new(other, clusters, 0, shared, blocks).next().unwrap();
                    assert_eq!(theirs.tile, piece.tile);
                }
            }
        }
    }
}
