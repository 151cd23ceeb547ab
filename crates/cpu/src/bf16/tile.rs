//! The tile instructions. Tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 columns, or, three tiles of columns wide, 0 to 5
//! sums, 6 columns and 7 rows; all are 16 rows of 64 bytes.
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
pub unsafe fn clear<const WIDE: usize>() {
    // SAFETY: by the contract.
    unsafe {
        asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack, nomem));
        if WIDE == 3 {
            asm!("tilezero tmm4", "tilezero tmm5", options(nostack, nomem));
        }
    }
}

/// Sums from where [`store`] put them.
///
/// # Safety
/// Tiles are configured; 2 KB are readable for each of the `WIDE` tiles.
#[inline(always)]
pub unsafe fn load<const WIDE: usize>(sums: *const f32) {
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
        if WIDE == 3 {
            asm!(
                "tileloadd tmm4, [{c} + {row} + 4096]",
                "tileloadd tmm5, [{c} + {row} + 5120]",
                c = in(reg) sums,
                row = in(reg) ROW,
                options(nostack, readonly)
            );
        }
    }
}

/// Sums to memory, tile after tile: those of the first rows by all columns, then those of the last.
///
/// # Safety
/// Tiles are configured; 2 KB are writable for each of the `WIDE` tiles.
#[inline(always)]
pub unsafe fn store<const WIDE: usize>(sums: *mut f32) {
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
        if WIDE == 3 {
            asm!(
                "tilestored [{c} + {row} + 4096], tmm4",
                "tilestored [{c} + {row} + 5120], tmm5",
                c = in(reg) sums,
                row = in(reg) ROW,
                options(nostack)
            );
        }
    }
}

/// Sums to their place in a result whose rows are `apart` bytes from one to the next: tiles that [`store`] would put one
/// after the other lie side by side, or, with `SWAPPED` operands, one below the other.
///
/// # Safety
/// Tiles are configured; the place is writable.
#[inline(always)]
pub unsafe fn store_apart<const WIDE: usize, const SWAPPED: bool>(at: *mut f32, apart: isize) {
    let place = |row: usize, column: usize| {
        let (down, right) = if SWAPPED { (column, row) } else { (row, column) };
        at.wrapping_byte_offset((down * ROWS) as isize * apart).wrapping_add(right * ROWS)
    };
    macro_rules! put {
        ($tile:literal, $row:expr, $column:expr) => {
            asm!(
                concat!("tilestored [{c} + {apart}], ", $tile),
                c = in(reg) place($row, $column),
                apart = in(reg) apart,
                options(nostack)
            )
        };
    }
    // SAFETY: by the contract.
    unsafe {
        put!("tmm0", 0, 0);
        put!("tmm1", 0, 1);
        if WIDE == 3 {
            put!("tmm2", 0, 2);
            put!("tmm3", 1, 0);
            put!("tmm4", 1, 1);
            put!("tmm5", 1, 2);
        } else {
            put!("tmm2", 1, 0);
            put!("tmm3", 1, 1);
        }
    }
}

/// 32 rows, `apart` bytes from one to the next, by `WIDE` tiles of 16 columns by 32 steps. Loads stand between products: in
/// this order the loop runs as fast as products can. Rows that are tiles are [`ROW`] bytes apart. Of rows and columns the
/// ones are lines and the others pairs of steps: columns, or, with `SWAPPED` operands, rows; sums are transposed then.
///
/// # Safety
/// Tiles are configured; 32 rows of 64 bytes and `WIDE` KB of columns are readable.
#[inline(always)]
pub unsafe fn step<const WIDE: usize, const SWAPPED: bool>(rows: (*const u8, isize), columns: *const u8) {
    // SAFETY: by the contract.
    unsafe { step_keeping::<WIDE, SWAPPED>(rows, columns, None) }
}

/// Rows of tiles as [`step`] takes them.
#[inline(always)]
pub fn tiles(rows: *const u8) -> (*const u8, isize) {
    (rows, ROW as isize)
}

/// A piece of assembly that reads.
macro_rules! reads {
    ($($line:expr),+; $($name:ident = $value:expr),*) => {
        asm!($($line),+, $($name = in(reg) $value),*, options(nostack, readonly))
    };
}

/// [`step`] that may also leave the rows as tiles at `kept`.
///
/// # Safety
/// As for [`step`]; 2 KB are writable at `kept`.
#[inline(always)]
pub unsafe fn step_keeping<const WIDE: usize, const SWAPPED: bool>(
    (a, apart): (*const u8, isize),
    b: *const u8,
    kept: Option<*mut u8>,
) {
    let a1 = a.wrapping_offset(ROWS as isize * apart);
    // The product of a row tile and a column tile.
    macro_rules! product {
        ($sums:literal, $row:literal, $column:literal) => {
            match SWAPPED {
                false => asm!(concat!("tdpbf16ps ", $sums, ", ", $row, ", ", $column), options(nostack, nomem)),
                true => asm!(concat!("tdpbf16ps ", $sums, ", ", $column, ", ", $row), options(nostack, nomem)),
            }
        };
    }
    macro_rules! keep {
        ($half:literal, $tile:literal) => {
            if let Some(kept) = kept {
                asm!(
                    concat!("tilestored [{kept} + {row} + ", $half, "], ", $tile),
                    kept = in(reg) kept,
                    row = in(reg) ROW,
                    options(nostack)
                );
            }
        };
    }
    // SAFETY: by the contract.
    unsafe {
        if WIDE == 3 {
            // Six sums leave two tiles: a row, and the columns one after the other, there and back.
            reads!("tileloadd tmm7, [{a} + {apart}]", "tileloadd tmm6, [{b} + {row}]"; a = a, apart = apart, b = b, row = ROW);
            product!("tmm0", "tmm7", "tmm6");
            reads!("tileloadd tmm6, [{b} + {row} + 1024]"; b = b, row = ROW);
            product!("tmm1", "tmm7", "tmm6");
            reads!("tileloadd tmm6, [{b} + {row} + 2048]"; b = b, row = ROW);
            product!("tmm2", "tmm7", "tmm6");
            keep!("0", "tmm7");
            reads!("tileloadd tmm7, [{a1} + {apart}]"; a1 = a1, apart = apart);
            product!("tmm5", "tmm7", "tmm6");
            reads!("tileloadd tmm6, [{b} + {row} + 1024]"; b = b, row = ROW);
            product!("tmm4", "tmm7", "tmm6");
            reads!("tileloadd tmm6, [{b} + {row}]"; b = b, row = ROW);
            product!("tmm3", "tmm7", "tmm6");
            keep!("1024", "tmm7");
        } else {
            reads!("tileloadd tmm6, [{b} + {row}]", "tileloadd tmm4, [{a} + {apart}]"; a = a, apart = apart, b = b, row = ROW);
            product!("tmm0", "tmm4", "tmm6");
            reads!("tileloadd tmm5, [{a1} + {apart}]"; a1 = a1, apart = apart);
            product!("tmm2", "tmm5", "tmm6");
            reads!("tileloadd tmm7, [{b} + {row} + 1024]"; b = b, row = ROW);
            product!("tmm1", "tmm4", "tmm7");
            product!("tmm3", "tmm5", "tmm7");
            keep!("0", "tmm4");
            keep!("1024", "tmm5");
        }
    }
}

/// 32 rows, `apart` bytes from one to the next, by 16 columns: sums in tiles 0 and 2. Operands as in [`step`].
///
/// # Safety
/// Tiles are configured; 32 rows of 64 bytes and 1 KB of columns are readable.
#[inline(always)]
pub unsafe fn step_narrow<const SWAPPED: bool>((a, apart): (*const u8, isize), b: *const u8) {
    let a1 = a.wrapping_offset(ROWS as isize * apart);
    // SAFETY: by the contract.
    unsafe {
        reads!("tileloadd tmm4, [{a} + {apart}]", "tileloadd tmm6, [{b} + {row}]"; a = a, apart = apart, b = b, row = ROW);
        match SWAPPED {
            false => asm!("tdpbf16ps tmm0, tmm4, tmm6", options(nostack, nomem)),
            true => asm!("tdpbf16ps tmm0, tmm6, tmm4", options(nostack, nomem)),
        }
        reads!("tileloadd tmm5, [{a1} + {apart}]"; a1 = a1, apart = apart);
        match SWAPPED {
            false => asm!("tdpbf16ps tmm2, tmm5, tmm6", options(nostack, nomem)),
            true => asm!("tdpbf16ps tmm2, tmm6, tmm5", options(nostack, nomem)),
        }
    }
}
