//! The tile instructions. Tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 columns; all are 16 rows of 64 bytes.
//!
//! The compiler knows nothing of tiles: it neither uses nor saves them, so sums stay from one block of assembly to the
//! next as long as nothing else on the thread uses tiles in between.

use crate::amx::FULL;
use std::arch::asm;

/// Bytes of a tile.
pub const TILE: usize = 1024;
/// Rows of a tile.
pub const ROWS: usize = 16;
/// From row to row of a tile that lies in one piece.
const ROW: usize = 64;

/// Eight whole tiles for this thread; another library may have had others.
///
/// # Safety
/// [`crate::amx::available`] has returned true.
pub unsafe fn configure() {
    // SAFETY: by the contract; it reads 64 bytes.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &FULL, options(nostack, readonly)) };
}

/// Gives the tiles back, so that a switch of threads need not save them.
///
/// # Safety
/// As for [`configure`].
pub unsafe fn release() {
    // SAFETY: by the contract.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

/// Sums begin with 0.
///
/// # Safety
/// Tiles are configured.
#[inline(always)]
pub unsafe fn clear() {
    // SAFETY: by the contract.
    unsafe { asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem)) };
}

/// Sums from where [`store`] put them.
///
/// # Safety
/// Tiles are configured; 4 KB are readable.
#[inline(always)]
pub unsafe fn load(sums: *const f32) {
    // SAFETY: by the contract.
    unsafe {
        asm!(
            "tileloadd tmm0, [{c} + {row}]",
            "tileloadd tmm1, [{c} + {row} + 1024]",
            "tileloadd tmm2, [{c} + {row} + 2048]",
            "tileloadd tmm3, [{c} + {row} + 3072]",
            c = in(reg) sums,
            row = in(reg) ROW,
            options(nostack, readonly)
        );
    }
}

/// Sums to memory, tile after tile: first rows by first columns, first by last, last by first, last by last.
///
/// # Safety
/// Tiles are configured; 4 KB are writable.
#[inline(always)]
pub unsafe fn store(sums: *mut f32) {
    // SAFETY: by the contract.
    unsafe {
        asm!(
            "tilestored [{c} + {row}], tmm0",
            "tilestored [{c} + {row} + 1024], tmm1",
            "tilestored [{c} + {row} + 2048], tmm2",
            "tilestored [{c} + {row} + 3072], tmm3",
            c = in(reg) sums,
            row = in(reg) ROW,
            options(nostack)
        );
    }
}

/// Sums to their place in a result, 32 rows `apart` bytes from one to the next.
///
/// # Safety
/// Tiles are configured; 128 bytes of every row are writable.
#[inline(always)]
pub unsafe fn store_apart(at: *mut f32, apart: isize) {
    // SAFETY: by the contract.
    unsafe {
        asm!(
            "tilestored [{c} + {apart}], tmm0",
            "tilestored [{c} + {apart} + 64], tmm1",
            "tilestored [{c1} + {apart}], tmm2",
            "tilestored [{c1} + {apart} + 64], tmm3",
            c = in(reg) at,
            c1 = in(reg) at.wrapping_byte_offset(ROWS as isize * apart),
            apart = in(reg) apart,
            options(nostack)
        );
    }
}

/// 32 rows, `apart` bytes from one to the next, by 32 columns by 32 steps. Loads stand between products: in this order
/// the loop runs as fast as products can. Rows that are tiles are [`ROW`] bytes apart.
///
/// # Safety
/// Tiles are configured; 32 rows of 64 bytes and 2 KB of columns are readable.
#[inline(always)]
pub unsafe fn step((rows, apart): (*const u8, isize), columns: *const u8) {
    // SAFETY: by the contract.
    unsafe {
        asm!(
            "tileloadd tmm6, [{b} + {row}]",
            "tileloadd tmm4, [{a} + {apart}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a1} + {apart}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm7, [{b} + {row} + 1024]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            a = in(reg) rows,
            a1 = in(reg) rows.wrapping_offset(ROWS as isize * apart),
            apart = in(reg) apart,
            b = in(reg) columns,
            row = in(reg) ROW,
            options(nostack, readonly)
        );
    }
}

/// Rows of tiles as [`step`] takes them.
#[inline(always)]
pub fn tiles(rows: *const u8) -> (*const u8, isize) {
    (rows, ROW as isize)
}

/// The same, which also leaves the rows as tiles at `kept`.
///
/// # Safety
/// As for [`step`]; 2 KB are writable at `kept`.
#[inline(always)]
pub unsafe fn step_keeping(rows: (*const u8, isize), columns: *const u8, kept: *mut u8) {
    // SAFETY: by the contract; tiles 4 and 5 still hold the rows.
    unsafe {
        step(rows, columns);
        asm!(
            "tilestored [{kept} + {row}], tmm4",
            "tilestored [{kept} + {row} + 1024], tmm5",
            kept = in(reg) kept,
            row = in(reg) ROW,
            options(nostack)
        );
    }
}

/// 32 rows, `apart` bytes from one to the next, by 16 columns: sums in tiles 0 and 2.
///
/// # Safety
/// Tiles are configured; 32 rows of 64 bytes and 1 KB of columns are readable.
#[inline(always)]
pub unsafe fn step_narrow((rows, apart): (*const u8, isize), columns: *const u8) {
    // SAFETY: by the contract.
    unsafe {
        asm!(
            "tileloadd tmm4, [{a} + {apart}]",
            "tileloadd tmm6, [{b} + {row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a1} + {apart}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            a = in(reg) rows,
            a1 = in(reg) rows.wrapping_offset(ROWS as isize * apart),
            apart = in(reg) apart,
            b = in(reg) columns,
            row = in(reg) ROW,
            options(nostack, readonly)
        );
    }
}
