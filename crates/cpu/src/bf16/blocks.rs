//! How a product of more than 16 columns is cut: groups of threads have columns of their own, a group's part of the result
//! is cut into blocks of panels of rows by bands of column tiles, and k into blocks. A band is three tiles wide, so that a
//! panel of rows is read for as many products as the tiles hold sums for; two where that would leave a single one, where all
//! rows stay in a cache, so that threads share evenly, and where panels are short.

use super::amx::Rows;
use super::packed::{PANEL, STEP};
use super::tile::{ROWS, TILE};
use super::words::along;
use crate::cache::Caches;
use half::bf16;

/// Steps of k that are gone through at once at most, with sums that stay in tiles; what is up to twice as long is cut in
/// halves, and what is longer into blocks of about so many. Sums of a shorter block would come from the second-level cache
/// and go there too often, columns of a longer one fill it with fewer bands, so that rows, which come from further away, are
/// used for less.
const MOST_STEPS: usize = 64;
const STEPS: usize = 32;
/// Tiles of columns, two pairs of them, with which rows that are read where they lie go by in panels so short that they and
/// the sums stay in the first-level cache (where columns of all of k stay in the second, so that a block is one panel high);
/// rows that are turned as they are used have such panels too, in wide blocks.
const STRIPS_OF_SHORT: usize = 4;
const SHORT_STEPS: usize = 8;
const PAIRS_OF_SHORT: usize = 32;
const PANELS: usize = 8;
/// Elements of rows up to which they are in a cache anyway, and read where they lie by every pair; then so many steps of k
/// are gone through at once.
const NEAR_ROWS: usize = 1 << 17;
const MOST_AT_ONCE: usize = 512;
/// Tiles of columns from which on rows that lie across k are laid out beforehand, unless they take more bytes than that.
const OFTEN: usize = 32;
const MOST_LAID: usize = 256 << 20;
/// Tiles of columns a group must have, or rows would be read too often for what is done with them.
const LEAST_STRIPS: usize = 16;

/// Rows that stay in a cache.
pub fn near(rows: usize, k: usize) -> bool {
    k <= MOST_AT_ONCE && rows * k <= NEAR_ROWS
}

/// How it is cut.
#[derive(Debug, Clone, Copy)]
pub struct Blocks {
    /// Panels and bands of a block.
    pub panels: usize,
    pub bands: usize,
    /// Panels, tiles of columns (of which the last may not be there), bands and blocks of k of it all.
    pub all_panels: usize,
    pub all_strips: usize,
    pub all_bands: usize,
    pub all_k: usize,
    /// Bands that are three tiles wide: they come first, the others have two.
    triples: usize,
    /// Steps of a block of k.
    pub steps: usize,
    /// Groups of threads, and the most bands that one has; others may have one less.
    pub groups: usize,
    pub group_bands: usize,
    /// Rows are in a cache, and whoever takes a block lays its columns out: nobody else needs them.
    pub near_rows: bool,
    /// Rows lie across k and are used often: they are laid out as tiles beforehand.
    pub laid_rows: bool,
}

/// A block of the result.
pub struct Part {
    pub first_panel: usize,
    pub panels: usize,
    pub first_band: usize,
    pub bands: usize,
}

/// Columns side by side: the first of their tiles, and how many there are.
#[derive(Debug, Clone, Copy)]
pub struct Band {
    pub first: usize,
    pub wide: usize,
}

impl Blocks {
    /// Of rows by q columns. The order of sums, `steps` and `all_k`, does not depend on `threads`.
    pub fn new(rows: &Rows<'_>, (q, k): (usize, usize), threads: usize) -> Blocks {
        let (all_panels, strips, all) = (rows.count().div_ceil(PANEL), q.div_ceil(ROWS), k.div_ceil(STEP));
        let near_rows = near(rows.count(), k);
        let l2 = Caches::of_this_machine().l2;
        let turned = matches!(rows, Rows::Plain(lines) if !along(lines));
        let tiles_of_rows = all_panels.saturating_mul(all).saturating_mul(PANEL * STEP * size_of::<bf16>());
        let laid_rows = turned && !near_rows && strips >= OFTEN && tiles_of_rows <= MOST_LAID;
        let plain = matches!(rows, Rows::Plain(_));
        let short = turned && !laid_rows || plain && strips == STRIPS_OF_SHORT;
        // Columns that stay in half of the second-level cache: then a panel of rows is followed to its end, as long streams.
        // The order of sums does not depend on the number of threads, so there it is not a group's that are looked at.
        let stay = |strips: usize| (strips * ROWS * size_of::<bf16>()).saturating_mul(k) <= l2 / 2;
        let at_once =
            near_rows || strips <= 2 || strips == 3 && !short || !short && (all <= MOST_STEPS || stay(strips));
        let halves = !short && all <= 2 * MOST_STEPS;
        let about = if short { SHORT_STEPS } else { STEPS };
        let steps = match (at_once, halves) {
            (true, _) => all,
            (_, true) => all.div_ceil(2),
            _ => all.div_ceil(((all + about / 2) / about).max(1)),
        };
        let triples = if near_rows || short { 0 } else { (strips / 3).saturating_sub(usize::from(strips % 3 == 1)) };
        let pairs = (strips - 3 * triples).div_ceil(2);
        let (all_strips, all_bands) = (3 * triples + 2 * pairs, triples + pairs);
        let groups = if !near_rows && strips >= threads * LEAST_STRIPS { threads } else { 1 };
        let group_bands = all_bands.div_ceil(groups);
        let wide = if triples > 0 { 3 } else { 2 };
        let (band, sums) = (wide * steps * TILE, wide * ROWS * PANEL * size_of::<f32>());
        // Of the cache, beside a panel of rows; two long blocks of k want fewer sums than many short ones.
        let (eighths_of_columns, eighths_of_sums) = if halves { (4, 2) } else { (3, 3) };
        let most_bands = match (short, at_once) {
            (true, _) => PAIRS_OF_SHORT,
            (_, true) => ((l2 / 2 + band / 2) / band).max(2),
            (_, false) => (l2 / 8 * eighths_of_columns / band).max(2),
        };
        let bands = group_bands.div_ceil(group_bands.div_ceil(most_bands));
        let most_panels = if short || at_once { PANELS } else { (l2 / 8 * eighths_of_sums / (bands * sums)).max(1) };
        let mut blocks = Blocks {
            panels: if stay(all_strips.div_ceil(groups)) { 1 } else { most_panels },
            bands,
            all_panels,
            all_strips,
            all_bands,
            all_k: k.div_ceil(steps * STEP),
            triples,
            steps,
            groups,
            group_bands,
            near_rows,
            laid_rows,
        };
        if near_rows {
            // Over before anybody could be helped: a block for each thread.
            return Blocks { panels: all_panels, bands: all_bands.div_ceil(threads), ..blocks };
        }
        // Every thread has its share, and a slow one can be helped.
        while blocks.count_of_group() * groups < 4 * threads && blocks.panels > 1 {
            blocks.panels = blocks.panels.div_ceil(2);
        }
        while blocks.count_of_group() * groups < 4 * threads && blocks.bands > 2 {
            blocks.bands = blocks.bands.div_ceil(2);
        }
        blocks
    }

    /// Blocks of the result that a group has.
    pub fn count_of_group(&self) -> usize {
        self.all_panels.div_ceil(self.panels) * self.group_bands.div_ceil(self.bands)
    }

    /// One of them.
    pub fn part(&self, group: usize, block: usize) -> Part {
        let along_panels = self.all_panels.div_ceil(self.panels);
        let first_panel = block % along_panels * self.panels;
        let before = block / along_panels * self.bands;
        let (first, end) = self.bands_of(group);
        let first_band = (first + before).min(end);
        let bands = self.bands.min(end - first_band);
        Part { first_panel, panels: self.panels.min(self.all_panels - first_panel), first_band, bands }
    }

    /// The first band of a group, and the one after its last.
    pub fn bands_of(&self, group: usize) -> (usize, usize) {
        (group * self.all_bands / self.groups, (group + 1) * self.all_bands / self.groups)
    }

    /// One of the bands.
    pub fn band(&self, band: usize) -> Band {
        match band.checked_sub(self.triples) {
            None => Band { first: 3 * band, wide: 3 },
            Some(pair) => Band { first: 3 * self.triples + 2 * pair, wide: 2 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Mat;

    #[test]
    fn every_piece_is_in_one_block_and_sums_do_not_depend_on_threads() {
        let memory = vec![bf16::ZERO; 4400 * 4096];
        let mut cut = [0; 2];
        for (p, q, k, turned) in [
            (64, 64, 64, false),
            (600, 300, 700, false),
            (2048, 33, 700, false),
            (100, 2048, 96, false),
            (1000, 1000, 300, false),
            (300, 4096, 700, false),
            // k in two halves, in more blocks, in short ones; rows that lie across k.
            (300, 4096, 4096, false),
            (300, 4096, 4400, false),
            (600, 60, 700, false),
            (600, 60, 4400, true),
            (300, 4096, 4400, true),
        ] {
            let lines = match turned {
                false => Mat::row_major(&memory, p, k).unwrap(),
                true => Mat::row_major(&memory, k, p).unwrap().transposed(),
            };
            let rows = Rows::Plain(lines);
            let one = Blocks::new(&rows, (q, k), 1);
            cut[0] += usize::from(one.all_k == 2);
            cut[1] += usize::from(one.all_k > 2);
            for threads in 1..17 {
                let blocks = Blocks::new(&rows, (q, k), threads);
                assert_eq!((blocks.steps, blocks.all_k), (one.steps, one.all_k));
                let mut seen = vec![0; blocks.all_panels * blocks.all_strips];
                let across = blocks.all_strips;
                for (group, block) in
                    (0..blocks.groups).flat_map(|group| (0..blocks.count_of_group()).map(move |block| (group, block)))
                {
                    let part = blocks.part(group, block);
                    for panel in part.first_panel..part.first_panel + part.panels {
                        for band in part.first_band..part.first_band + part.bands {
                            let Band { first, wide } = blocks.band(band);
                            seen[panel * across..][first..first + wide].iter_mut().for_each(|times| *times += 1);
                        }
                    }
                }
                assert!(
                    seen.iter().all(|times| *times == 1) && (across - 2) * ROWS < q && q <= across * ROWS,
                    "{blocks:?}"
                );
            }
        }
        assert!(cut.iter().all(|some| *some > 0), "{cut:?}");
    }
}
