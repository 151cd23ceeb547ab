//! Tiles for AVX-512 in assembly: 32 registers hold 28 sums, two vectors of B and two broadcast elements of A, which
//! the compiler does not manage for all heights.
//!
//! A broadcast costs a load; held in a register it serves two products, as an operand in memory it needs no
//! instruction of its own. Rows take turns, so that neither loads nor instructions are what the loop waits for.
//! Lines of B are asked for eight steps ahead: the panel streams out of the second-level cache.

use crate::micro::{Ahead, Sums};
use std::arch::asm;

/// One row of a step: both vectors of B by one element of A, out of memory or out of a register.
#[rustfmt::skip]
macro_rules! row {
    (wide, $size:literal, $p:literal, $to:literal, $mr:literal, $u:literal, $i:literal, $lo:literal, $hi:literal, memory) => {
        concat!(
            "vfmadd231p", $p, " zmm", $lo, ", zmm0, [{a}+", $size, "*(", $mr, "*", $u, "+", $i, ")]{{", $to, "}}\n",
            "vfmadd231p", $p, " zmm", $hi, ", zmm1, [{a}+", $size, "*(", $mr, "*", $u, "+", $i, ")]{{", $to, "}}",
        )
    };
    (wide, $size:literal, $p:literal, $to:literal, $mr:literal, $u:literal, $i:literal, $lo:literal, $hi:literal, $held:literal) => {
        concat!(
            "vbroadcasts", $p, " zmm", $held, ", [{a}+", $size, "*(", $mr, "*", $u, "+", $i, ")]\n",
            "vfmadd231p", $p, " zmm", $lo, ", zmm0, zmm", $held, "\n",
            "vfmadd231p", $p, " zmm", $hi, ", zmm1, zmm", $held,
        )
    };
    (narrow, $size:literal, $p:literal, $to:literal, $mr:literal, $u:literal, $i:literal, $lo:literal, $hi:literal, $how:tt) => {
        concat!("vfmadd231p", $p, " zmm", $lo, ", zmm0, [{a}+", $size, "*(", $mr, "*", $u, "+", $i, ")]{{", $to, "}}")
    };
}

/// The vectors of B of a step, and the lines it will want.
#[rustfmt::skip]
macro_rules! columns {
    (wide, $p:literal, $u:literal) => {
        concat!(
            "vmovup", $p, " zmm0, [{b}+128*", $u, "]\nvmovup", $p, " zmm1, [{b}+128*", $u, "+64]\n",
            "prefetcht0 [{b}+128*", $u, "+1024]\nprefetcht0 [{b}+128*", $u, "+1088]",
        )
    };
    (narrow, $p:literal, $u:literal) => {
        concat!("vmovup", $p, " zmm0, [{b}+128*", $u, "]\nprefetcht0 [{b}+128*", $u, "+1024]")
    };
}

/// A row of sums from where it may have begun.
#[rustfmt::skip]
macro_rules! begun {
    (wide, $p:literal, $lo:literal, $hi:literal) => {
        concat!("vmovup", $p, " zmm", $lo, ", [{quarter}]\nvmovup", $p, " zmm", $hi, ", [{quarter}+64]\nadd {quarter}, {to_row}")
    };
    (narrow, $p:literal, $lo:literal, $hi:literal) => {
        concat!("vmovup", $p, " zmm", $lo, ", [{quarter}]\nadd {quarter}, {to_row}")
    };
}

/// A row of sums to its place.
#[rustfmt::skip]
macro_rules! stored {
    (wide, $p:literal, $lo:literal, $hi:literal) => {
        concat!("vmovup", $p, " [{to}], zmm", $lo, "\nvmovup", $p, " [{to}+64], zmm", $hi, "\nadd {to}, {to_row}")
    };
    (narrow, $p:literal, $lo:literal, $hi:literal) => {
        concat!("vmovup", $p, " [{to}], zmm", $lo, "\nadd {to}, {to_row}")
    };
}

macro_rules! tile {
    ($name:ident, $form:ident, $element:ty, $size:literal, $p:literal, $to:literal, $bytes:literal, $mr:literal,
     $($i:literal $lo:literal $hi:literal $how:tt),+) => {
        #[doc = concat!("A ", stringify!($form), " tile of ", $mr, " rows.")]
        ///
        /// # Safety
        /// As for [`crate::micro::TileFn`].
        #[target_feature(enable = "avx512f")]
        pub unsafe fn $name(kc: usize, strip: *const $element, panel: *const $element, ahead: &Ahead, sums: Sums<$element>) {
            // SAFETY: by the contract kc · MR elements of the strip and kc panels of 128 bytes are read, and MR rows of
            // 128 bytes (64 of a narrow tile) are read and written; prefetching reads nothing.
            unsafe {
                asm!(
                    $(concat!("vpxord zmm", $lo, ", zmm", $lo, ", zmm", $lo, "\nvpxord zmm", $hi, ", zmm", $hi, ", zmm", $hi),)+
                    "test {quarter}, {quarter}",
                    "jz 7f",
                    "mov {quarter}, {to}",
                    $(begun!($form, $p, $lo, $hi),)+
                    "7:",
                    "mov {quarter:e}, 4",
                    "test {four}, {four}",
                    "jz 3f",
                    "2:",
                    "prefetcht0 [{next}]",
                    columns!($form, $p, "0"),
                    $(row!($form, $size, $p, $to, $mr, "0", $i, $lo, $hi, $how),)+
                    "prefetcht0 [{next}+{row}]",
                    columns!($form, $p, "1"),
                    $(row!($form, $size, $p, $to, $mr, "1", $i, $lo, $hi, $how),)+
                    "prefetcht0 [{next}+2*{row}]",
                    columns!($form, $p, "2"),
                    $(row!($form, $size, $p, $to, $mr, "2", $i, $lo, $hi, $how),)+
                    "prefetcht0 [{next}+{row3}]",
                    columns!($form, $p, "3"),
                    $(row!($form, $size, $p, $to, $mr, "3", $i, $lo, $hi, $how),)+
                    concat!("add {a}, 4*", $mr, "*", $size),
                    "add {b}, 512",
                    "add {next}, {jump}",
                    "dec {quarter}",
                    "jnz 5f",
                    "add {next}, {back}",
                    "mov {quarter:e}, 4",
                    "5:",
                    "dec {four}",
                    "jnz 2b",
                    "3:",
                    "test {one}, {one}",
                    "jz 4f",
                    "6:",
                    columns!($form, $p, "0"),
                    $(row!($form, $size, $p, $to, $mr, "0", $i, $lo, $hi, $how),)+
                    concat!("add {a}, ", $mr, "*", $size),
                    "add {b}, 128",
                    "dec {one}",
                    "jnz 6b",
                    "4:",
                    $(stored!($form, $p, $lo, $hi),)+
                    // What is left in the upper halves would slow every older instruction down that comes after.
                    "vzeroupper",
                    a = inout(reg) strip => _,
                    b = inout(reg) panel => _,
                    to = inout(reg) sums.ptr => _,
                    to_row = in(reg) sums.row * $bytes,
                    four = inout(reg) kc / 4 => _,
                    one = inout(reg) kc % 4 => _,
                    next = inout(reg) ahead.ptr => _,
                    row = in(reg) ahead.row,
                    row3 = in(reg) 3 * ahead.row,
                    jump = in(reg) ahead.jump,
                    back = in(reg) ahead.back,
                    // At first whether to add, then where, then what is left of sixteen steps.
                    quarter = inout(reg) usize::from(sums.adds) => _,
                    out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
                    out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
                    out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                    out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
                    out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
                    out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
                    out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
                    out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
                    options(nostack),
                );
            }
        }
    };
}

/// Tiles of every height of one element type.
macro_rules! heights {
    ($module:ident, $form:ident, $element:ty, $size:literal, $p:literal, $to:literal, $bytes:literal) => {
        pub mod $module {
            use super::*;
            tile!(rows2, $form, $element, $size, $p, $to, $bytes, "2", "0" "4" "5" "2", "1" "6" "7" "3");
            tile!(rows4, $form, $element, $size, $p, $to, $bytes, "4",
                "0" "4" "5" "2", "1" "6" "7" "3", "2" "8" "9" "2", "3" "10" "11" memory);
            tile!(rows6, $form, $element, $size, $p, $to, $bytes, "6",
                "0" "4" "5" "2", "1" "6" "7" memory, "2" "8" "9" "3", "3" "10" "11" memory, "4" "12" "13" "2",
                "5" "14" "15" memory);
            tile!(rows8, $form, $element, $size, $p, $to, $bytes, "8",
                "0" "4" "5" "2", "1" "6" "7" memory, "2" "8" "9" "3", "3" "10" "11" memory, "4" "12" "13" "2",
                "5" "14" "15" memory, "6" "16" "17" "3", "7" "18" "19" memory);
            tile!(rows10, $form, $element, $size, $p, $to, $bytes, "10",
                "0" "4" "5" "2", "1" "6" "7" memory, "2" "8" "9" "3", "3" "10" "11" memory, "4" "12" "13" "2",
                "5" "14" "15" memory, "6" "16" "17" "3", "7" "18" "19" memory, "8" "20" "21" "2", "9" "22" "23" memory);
            tile!(rows12, $form, $element, $size, $p, $to, $bytes, "12",
                "0" "4" "5" "2", "1" "6" "7" memory, "2" "8" "9" "3", "3" "10" "11" memory, "4" "12" "13" "2",
                "5" "14" "15" memory, "6" "16" "17" "3", "7" "18" "19" memory, "8" "20" "21" "2", "9" "22" "23" memory,
                "10" "24" "25" "3", "11" "26" "27" memory);
            tile!(rows14, $form, $element, $size, $p, $to, $bytes, "14",
                "0" "4" "5" "2", "1" "6" "7" memory, "2" "8" "9" "3", "3" "10" "11" memory, "4" "12" "13" "2",
                "5" "14" "15" memory, "6" "16" "17" "3", "7" "18" "19" memory, "8" "20" "21" "2", "9" "22" "23" memory,
                "10" "24" "25" "3", "11" "26" "27" memory, "12" "28" "29" "2", "13" "30" "31" memory);
        }
    };
}

heights!(wide_f32, wide, f32, "4", "s", "1to16", 4);
heights!(narrow_f32, narrow, f32, "4", "s", "1to16", 4);
heights!(wide_f64, wide, f64, "8", "d", "1to8", 8);
heights!(narrow_f64, narrow, f64, "8", "d", "1to8", 8);
