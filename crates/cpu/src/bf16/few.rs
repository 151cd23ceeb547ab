//! Up to 16 columns: they are one tile, and rows stream past them, read once.
//!
//! What comes next is asked for one step ahead. The 32 rows of two tiles are 32 streams where they lie, nearly enough to keep
//! memory at work by themselves; tiles laid out beforehand come one after the other.

use super::ahead::ask_panel;
use super::amx::{Columns, Rows};
use super::output::{Output, Sink};
use super::packed::{PANEL, STEP};
use super::tile::{self, ROWS, TILE};
use super::words::{along, rows_tile, rows_tiles_turned};
use crate::matrix::Mat;
use crate::pool::{Pool, Rounds};
use crate::scratch::{Scratch, Space};
use half::bf16;

/// Steps of the columns that a thread lays out at a time.
const STEPS: usize = 16;

/// What a thread has beside: two tiles of rows, and four of sums.
#[repr(C, align(64))]
struct Own {
    rows: [u8; 2 * TILE],
    sums: [f32; 4 * ROWS * ROWS],
}

/// `columns` are lines of k, up to 16; the result is as `sink` says, with columns for rows where these are packed.
pub fn few<U: Output>(
    rows: Rows<'_>,
    columns: Mat<'_, bf16>,
    sink: Sink<'_, U>,
    pool: &Pool,
    threads: usize,
    scratch: &mut Scratch,
) {
    let (count, steps) = (rows.count(), columns.cols.div_ceil(STEP));
    let swapped = matches!(rows, Rows::Packed(_));
    // Lines that are one and the same may be longer than memory.
    scratch.reserve(steps.checked_mul(TILE).expect("sizes that fit the address space"));
    let space = Space::<u8>::of(scratch);
    let (laying, panels) = (Rounds::new(steps.div_ceil(STEPS), threads), Rounds::new(count.div_ceil(PANEL), threads));
    pool.run(threads, &|thread| {
        // SAFETY: `gemm_amx` has asked for the instructions; pieces of the columns and panels of the result are whose
        // who claimed them; nobody reads columns before all are laid out.
        unsafe {
            while let Some(piece) = laying.claim(thread, 0) {
                for step in piece * STEPS..steps.min((piece + 1) * STEPS) {
                    Columns::Plain(columns).tile(0, step, space.from(step * TILE), swapped);
                }
                laying.finish();
            }
            laying.wait(1);
            tile::configure();
            let mut own = Own { rows: [0; 2 * TILE], sums: [0.0; 4 * ROWS * ROWS] };
            while let Some(panel) = panels.claim(thread, 0) {
                sums(&rows, panel, (steps, space.from(0)), &mut own);
                for half in 0..2 {
                    let (sums, i) = (own.sums.as_ptr().add(2 * half * ROWS * ROWS), panel * PANEL + half * ROWS);
                    let (i, j) = if swapped { (0, i) } else { (i, 0) };
                    sink.put(sums, i, j);
                }
            }
            tile::release();
        }
    });
}

/// The sums of a panel of rows.
///
/// # Safety
/// Tiles are configured; the panel is there; the columns have `steps` tiles.
unsafe fn sums(rows: &Rows<'_>, panel: usize, (steps, columns): (usize, *const u8), own: &mut Own) {
    // SAFETY: by the contract.
    unsafe {
        tile::clear::<2>();
        match rows {
            Rows::Packed(packed) => {
                for step in 0..steps {
                    ask_panel(tile::tiles(packed.tiles(panel, step).wrapping_add(2 * TILE)));
                    tile::step_narrow::<true>(tile::tiles(packed.tiles(panel, step)), columns.add(step * TILE));
                }
            }
            Rows::Plain(lines) => {
                let i = panel * PANEL;
                // Whole tiles of memory can be read where they lie.
                let whole = if along(lines) && lines.rows - i >= PANEL { lines.cols / STEP } else { 0 };
                let apart = lines.row * size_of::<bf16>() as isize;
                for step in 0..whole {
                    let rows: *const u8 = lines.at(i, step * STEP).cast();
                    ask_panel((rows.wrapping_add(STEP * size_of::<bf16>()), apart));
                    tile::step_narrow::<false>((rows, apart), columns.add(step * TILE));
                }
                for step in whole..steps {
                    panel_tiles(lines, i, step, own.rows.as_mut_ptr());
                    tile::step_narrow::<false>(tile::tiles(own.rows.as_ptr()), columns.add(step * TILE));
                }
            }
        }
        tile::store::<2>(own.sums.as_mut_ptr());
    }
}

/// The two tiles of a panel of rows at a step.
///
/// # Safety
/// AVX-512 F, BW and VL are there; row i and the step are; 2 KB are writable.
pub unsafe fn panel_tiles(lines: &Mat<'_, bf16>, i: usize, step: usize, to: *mut u8) {
    // SAFETY: by the contract; rows that are not there leave what was there, and sums that nobody takes.
    unsafe {
        if lines.row == 1 && !along(lines) && lines.rows - i >= PANEL && lines.cols - step * STEP >= STEP {
            return rows_tiles_turned(lines, i, step * STEP, to);
        }
        rows_tile(lines, i, step * STEP, to);
        if i + ROWS < lines.rows {
            rows_tile(lines, i + ROWS, step * STEP, to.add(TILE));
        }
    }
}
