//! Tiles for AVX-512 in assembly: 32 registers hold 28 sums, two vectors of B and two broadcast elements of A, which
//! the compiler does not manage for all heights.
//!
//! A broadcast costs a load; held in a register it serves two products, as an operand in memory it needs no
//! instruction of its own. In high tiles rows take turns, so that neither loads nor instructions are what the loop
//! waits for; low ones would wait for loads. Wide tiles, eight rows by three vectors, hold every one: it serves three.
//! Lines of B are asked for eight steps ahead: the panel streams out of the second-level cache.

use crate::micro::{Ahead, Rows, Sums};
use std::arch::asm;

/// One row of a step: the vectors of B by one element of A, out of memory or out of a register. Last comes the
/// element's address.
#[rustfmt::skip]
macro_rules! row {
    (three, $p:literal, $to:literal, [$x:literal $y:literal $z:literal], $held:literal, $($at:tt)+) => {
        concat!(
            "vbroadcasts", $p, " zmm", $held, ", [", $($at)+, "]\n",
            "vfmadd231p", $p, " zmm", $x, ", zmm0, zmm", $held, "\n",
            "vfmadd231p", $p, " zmm", $y, ", zmm1, zmm", $held, "\n",
            "vfmadd231p", $p, " zmm", $z, ", zmm2, zmm", $held,
        )
    };
    (two, $p:literal, $to:literal, [$x:literal $y:literal $($z:literal)?], memory, $($at:tt)+) => {
        concat!(
            "vfmadd231p", $p, " zmm", $x, ", zmm0, [", $($at)+, "]{{", $to, "}}\n",
            "vfmadd231p", $p, " zmm", $y, ", zmm1, [", $($at)+, "]{{", $to, "}}",
        )
    };
    (two, $p:literal, $to:literal, [$x:literal $y:literal $($z:literal)?], $held:literal, $($at:tt)+) => {
        concat!(
            "vbroadcasts", $p, " zmm", $held, ", [", $($at)+, "]\n",
            "vfmadd231p", $p, " zmm", $x, ", zmm0, zmm", $held, "\n",
            "vfmadd231p", $p, " zmm", $y, ", zmm1, zmm", $held,
        )
    };
    (one, $p:literal, $to:literal, [$x:literal $($y:literal)*], $how:tt, $($at:tt)+) => {
        concat!("vfmadd231p", $p, " zmm", $x, ", zmm0, [", $($at)+, "]{{", $to, "}}")
    };
}

/// The vectors of B of a step, and the lines it will want; panels are `step` bytes wide.
#[rustfmt::skip]
macro_rules! columns {
    (three, $p:literal, $step:literal, $u:literal) => {
        concat!(columns!(two, $p, $step, $u), "\n", columns!(vector, $p, $step, $u, "2", "128"))
    };
    (two, $p:literal, $step:literal, $u:literal) => {
        concat!(columns!(one, $p, $step, $u), "\n", columns!(vector, $p, $step, $u, "1", "64"))
    };
    (one, $p:literal, $step:literal, $u:literal) => { columns!(vector, $p, $step, $u, "0", "0") };
    (vector, $p:literal, $step:literal, $u:literal, $register:literal, $at:literal) => {
        concat!(
            "vmovup", $p, " zmm", $register, ", [{b}+", $step, "*", $u, "+", $at, "]\n",
            "prefetcht0 [{b}+", $step, "*(", $u, "+8)+", $at, "]",
        )
    };
}

/// A step of a strip that was laid out: the vectors of B, then row by row.
#[rustfmt::skip]
macro_rules! step {
    ($u:literal, $form:ident, $p:literal, $to:literal, $step:literal, $size:literal, $mr:literal, $($i:literal [$($sum:literal)+] $how:tt),+) => {
        concat!(
            columns!($form, $p, $step, $u),
            $("\n", row!($form, $p, $to, [$($sum)+], $how, "{a}+", $size, "*(", $mr, "*", $u, "+", $i, ")")),+
        )
    };
}

/// Four steps of such a strip, and the lines that are asked for meanwhile.
#[rustfmt::skip]
macro_rules! four_steps {
    ($first:literal $second:literal $third:literal $fourth:literal, $($tile:tt)+) => {
        concat!(
            "prefetcht0 [{next}]\n", step!($first, $($tile)+),
            "\nprefetcht0 [{next}+{row}]\n", step!($second, $($tile)+),
            "\nprefetcht0 [{next}+2*{row}]\n", step!($third, $($tile)+),
            "\nprefetcht0 [{next}+{row3}]\n", step!($fourth, $($tile)+),
            "\nadd {next}, {jump}\n",
        )
    };
}

/// A turn of the loop: of sixteen steps where the core keeps that many decoded instructions even for half of it, otherwise
/// of four, with a count of those. Whoever shares a core has half of its slots, so what a turn needs beside products counts.
#[rustfmt::skip]
macro_rules! turn {
    (long, $form:ident, $p:literal, $to:literal, $step:literal, $size:literal, $mr:literal, $($rows:tt)+) => {
        concat!(
            four_steps!("0" "1" "2" "3", $form, $p, $to, $step, $size, $mr, $($rows)+),
            four_steps!("4" "5" "6" "7", $form, $p, $to, $step, $size, $mr, $($rows)+),
            four_steps!("8" "9" "10" "11", $form, $p, $to, $step, $size, $mr, $($rows)+),
            four_steps!("12" "13" "14" "15", $form, $p, $to, $step, $size, $mr, $($rows)+),
            "add {next}, {back}\n",
            "add {a}, 16*", $mr, "*", $size, "\n",
            "add {b}, 16*", $step,
        )
    };
    (short, $form:ident, $p:literal, $to:literal, $step:literal, $size:literal, $mr:literal, $($rows:tt)+) => {
        concat!(
            four_steps!("0" "1" "2" "3", $form, $p, $to, $step, $size, $mr, $($rows)+),
            "add {a}, 4*", $mr, "*", $size, "\n",
            "add {b}, 4*", $step, "\n",
            "dec {quarter}\n",
            "jnz 5f\n",
            "add {next}, {back}\n",
            "mov {quarter:e}, 4\n",
            "5:",
        )
    };
}

/// Steps of a turn, as a power of two.
#[rustfmt::skip]
macro_rules! log_of_turn {
    (long) => { 4 };
    (short) => { 2 };
}

/// A row of sums from where it may have begun.
#[rustfmt::skip]
macro_rules! begun {
    (three, $p:literal, [$x:literal $y:literal $z:literal]) => {
        concat!("vmovup", $p, " zmm", $z, ", [{quarter}+128]\n", begun!(two, $p, [$x $y]))
    };
    (two, $p:literal, [$x:literal $y:literal $($z:literal)?]) => {
        concat!("vmovup", $p, " zmm", $y, ", [{quarter}+64]\n", begun!(one, $p, [$x]))
    };
    (one, $p:literal, [$x:literal $($y:literal)*]) => {
        concat!("vmovup", $p, " zmm", $x, ", [{quarter}]\nadd {quarter}, {to_row}")
    };
}

/// The place of a row of sums, asked for to be written.
#[rustfmt::skip]
macro_rules! asked {
    (three, $i:literal) => { concat!("prefetchw [{turns}+128]\nprefetchw [{then}+128]\n", asked!(two, $i)) };
    (two, $i:literal) => { concat!("prefetchw [{turns}+64]\nprefetchw [{then}+64]\n", asked!(one, $i)) };
    (one, $i:literal) => { "prefetchw [{turns}]\nprefetchw [{then}]\nadd {turns}, {to_row}\nadd {then}, {to_row}" };
}

/// A row of sums to its place.
#[rustfmt::skip]
macro_rules! stored {
    (three, $p:literal, [$x:literal $y:literal $z:literal]) => {
        concat!("vmovup", $p, " [{to}+128], zmm", $z, "\n", stored!(two, $p, [$x $y]))
    };
    (two, $p:literal, [$x:literal $y:literal $($z:literal)?]) => {
        concat!("vmovup", $p, " [{to}+64], zmm", $y, "\n", stored!(one, $p, [$x]))
    };
    (one, $p:literal, [$x:literal $($y:literal)*]) => {
        concat!("vmovup", $p, " [{to}], zmm", $x, "\nadd {to}, {to_row}")
    };
}

/// Every register of sums, of B and of A.
macro_rules! registers {
    ($($asm:tt)+) => {
        asm!(
            $($asm)+
            out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
            out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
            out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
            out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
            out("zmm16") _, out("zmm17") _, out("zmm18") _, out("zmm19") _,
            out("zmm20") _, out("zmm21") _, out("zmm22") _, out("zmm23") _,
            out("zmm24") _, out("zmm25") _, out("zmm26") _, out("zmm27") _,
            out("zmm28") _, out("zmm29") _, out("zmm30") _, out("zmm31") _,
            options(nostack),
        )
    };
}

/// Steps before the end of a tile at which it asks for the place of its sums.
const LAST: usize = 64;

/// Two tiles of a height: of a strip that was laid out, and of rows where they lie. Those have no long turns.
macro_rules! tile {
    ($name:ident, $lying:ident, long, $($rest:tt)+) => { laid_tile!($name, long, $($rest)+); };
    ($name:ident, $lying:ident, short, $($rest:tt)+) => {
        laid_tile!($name, short, $($rest)+);
        lying_tile!($lying, $($rest)+);
    };
}

/// A tile of a strip that was laid out.
macro_rules! laid_tile {
    ($name:ident, $turn:ident, $form:ident of $step:literal, $element:ty, $size:literal, $p:literal, $to:literal, $bytes:literal, $line:literal,
     $mr:literal, [$($pointer:ident $first:literal),+], $($i:literal [$($sum:literal)+] $how:tt $how_lying:tt $at:literal),+) => {
        #[doc = concat!("A ", stringify!($form), " tile of ", $mr, " rows.")]
        ///
        /// # Safety
        /// As for [`crate::micro::TileFn`].
        #[target_feature(enable = "avx512f")]
        pub unsafe fn $name(kc: usize, strip: *const $element, panel: *const $element, ahead: &Ahead, sums: Sums<$element>) {
            const STEPS: usize = 1 << log_of_turn!($turn);
            let first = (kc / STEPS).saturating_sub(LAST / STEPS);
            // SAFETY: by the contract kc · MR elements of the strip and kc steps of the panel are read, and MR rows as wide as
            // the tile are read and written; prefetching reads nothing.
            unsafe {
                registers!(
                    $($(concat!("vpxord zmm", $sum, ", zmm", $sum, ", zmm", $sum),)+)+
                    "test {quarter}, {quarter}",
                    "jz 7f",
                    "mov {quarter}, {to}",
                    $(begun!($form, $p, [$($sum)+]),)+
                    "7:",
                    "mov {quarter:e}, 4",
                    "test {turns}, {turns}",
                    "jz 3f",
                    "2:",
                    turn!($turn, $form, $p, $to, $step, $size, $mr, $($i [$($sum)+] $how),+),
                    "dec {turns}",
                    "jnz 2b",
                    "3:",
                    "cmp {rest}, {steps}",
                    "jb 8f",
                    // Where sums go is asked for shortly before they are there.
                    "mov {turns}, {to}",
                    $(asked!($form, $i),)+
                    "mov {turns}, {rest}",
                    "shr {turns}, {log}",
                    "and {rest}, {steps} - 1",
                    "jmp 2b",
                    "8:",
                    "test {rest}, {rest}",
                    "jz 4f",
                    "6:",
                    columns!($form, $p, $step, "0"),
                    $(row!($form, $p, $to, [$($sum)+], $how, "{a}+", $size, "*", $i),)+
                    concat!("add {a}, ", $mr, "*", $size),
                    concat!("add {b}, ", $step),
                    "dec {rest}",
                    "jnz 6b",
                    "4:",
                    $(stored!($form, $p, [$($sum)+]),)+
                    // What is left in the upper halves would slow every older instruction down that comes after.
                    "vzeroupper",
                    a = inout(reg) strip => _,
                    b = inout(reg) panel => _,
                    to = inout(reg) sums.ptr => _,
                    to_row = in(reg) sums.row * $bytes,
                    then = inout(reg) sums.next => _,
                    turns = inout(reg) first => _,
                    rest = inout(reg) kc - STEPS * first => _,
                    steps = const STEPS,
                    log = const log_of_turn!($turn),
                    next = inout(reg) ahead.ptr => _,
                    row = in(reg) ahead.row,
                    row3 = in(reg) 3 * ahead.row,
                    jump = in(reg) ahead.jump,
                    back = in(reg) ahead.back,
                    // At first whether to add, then where, then what is left of sixteen steps.
                    quarter = inout(reg) usize::from(sums.adds) => _,
                );
            }
        }
    };
}

/// A tile of rows where they lie, which are reached three at a time from pointers of their own.
macro_rules! lying_tile {
    ($lying:ident, $form:ident of $step:literal, $element:ty, $size:literal, $p:literal, $to:literal, $bytes:literal, $line:literal,
     $mr:literal, [$($pointer:ident $first:literal),+], $($i:literal [$($sum:literal)+] $how:tt $how_lying:tt $at:literal),+) => {
        #[doc = concat!("A ", stringify!($form), " tile of ", $mr, " rows where they lie.")]
        ///
        /// # Safety
        /// As for [`crate::micro::LyingFn`].
        #[target_feature(enable = "avx512f")]
        pub unsafe fn $lying(kc: usize, rows: Rows<$element>, panel: *const $element, sums: Sums<$element>) {
            // SAFETY: by the contract kc elements of MR rows and kc steps of the panel are read, and MR rows as wide as the
            // tile are read and written; prefetching reads nothing.
            unsafe {
                registers!(
                    $($(concat!("vpxord zmm", $sum, ", zmm", $sum, ", zmm", $sum),)+)+
                    "test {quarter}, {quarter}",
                    "jz 7f",
                    "mov {quarter}, {to}",
                    $(begun!($form, $p, [$($sum)+]),)+
                    "7:",
                    "mov {quarter:e}, 1",
                    "test {turns}, {turns}",
                    "jz 3f",
                    "2:",
                    // Every line of a row is asked for once, well before it is wanted.
                    "dec {quarter:e}",
                    "jnz 5f",
                    $(concat!("prefetcht0 [", $at, "+512]"),)+
                    concat!("mov {quarter:e}, ", $line),
                    "5:",
                    columns!($form, $p, $step, "0"),
                    $(row!($form, $p, $to, [$($sum)+], $how_lying, $at),)+
                    columns!($form, $p, $step, "1"),
                    $(row!($form, $p, $to, [$($sum)+], $how_lying, $at, "+", $size),)+
                    columns!($form, $p, $step, "2"),
                    $(row!($form, $p, $to, [$($sum)+], $how_lying, $at, "+2*", $size),)+
                    columns!($form, $p, $step, "3"),
                    $(row!($form, $p, $to, [$($sum)+], $how_lying, $at, "+3*", $size),)+
                    $(concat!("add {", stringify!($pointer), "}, 4*", $size),)+
                    concat!("add {b}, 4*", $step),
                    "dec {turns}",
                    "jnz 2b",
                    "3:",
                    "test {one}, {one}",
                    "jz 4f",
                    "6:",
                    columns!($form, $p, $step, "0"),
                    $(row!($form, $p, $to, [$($sum)+], $how_lying, $at),)+
                    $(concat!("add {", stringify!($pointer), "}, ", $size),)+
                    concat!("add {b}, ", $step),
                    "dec {one}",
                    "jnz 6b",
                    "4:",
                    $(stored!($form, $p, [$($sum)+]),)+
                    "vzeroupper",
                    $($pointer = inout(reg) rows.ptr.wrapping_offset($first * rows.row) => _,)+
                    row = in(reg) rows.row * $bytes,
                    b = inout(reg) panel => _,
                    to = inout(reg) sums.ptr => _,
                    to_row = in(reg) sums.row * $bytes,
                    turns = inout(reg) kc / 4 => _,
                    one = inout(reg) kc % 4 => _,
                    // At first whether to add, then where, then quarters of a line that are left.
                    quarter = inout(reg) usize::from(sums.adds) => _,
                );
            }
        }
    };
}

/// Tiles of every height of one element type: high ones, panels two vectors wide.
macro_rules! heights {
    ($module:ident, $turn:ident, $form:ident of $step:literal, $element:ty, $size:literal, $p:literal, $to:literal, $bytes:literal, $line:literal) => {
        pub mod $module {
            use super::*;
            tile!(rows2, lying2, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "2",
                [p0 0],
                "0" ["4" "5"] "2" "3" "{p0}", "1" ["6" "7"] "3" "2" "{p0}+{row}");
            tile!(rows4, lying4, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "4",
                [p0 0, p1 3],
                "0" ["4" "5"] "2" "3" "{p0}", "1" ["6" "7"] "3" "2" "{p0}+{row}", "2" ["8" "9"] "2" "3" "{p0}+2*{row}",
                "3" ["10" "11"] "3" "3" "{p1}");
            tile!(rows6, lying6, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "6",
                [p0 0, p1 3],
                "0" ["4" "5"] "2" memory "{p0}", "1" ["6" "7"] "3" "2" "{p0}+{row}", "2" ["8" "9"] "2" "3" "{p0}+2*{row}",
                "3" ["10" "11"] "3" memory "{p1}", "4" ["12" "13"] "2" "2" "{p1}+{row}", "5" ["14" "15"] "3" "3" "{p1}+2*{row}");
            tile!(rows8, lying8, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "8",
                [p0 0, p1 3, p2 6],
                "0" ["4" "5"] "2" memory "{p0}", "1" ["6" "7"] "3" "2" "{p0}+{row}", "2" ["8" "9"] "2" "3" "{p0}+2*{row}",
                "3" ["10" "11"] "3" memory "{p1}", "4" ["12" "13"] "2" "2" "{p1}+{row}", "5" ["14" "15"] "3" "3" "{p1}+2*{row}",
                "6" ["16" "17"] "2" memory "{p2}", "7" ["18" "19"] "3" "2" "{p2}+{row}");
            tile!(rows10, lying10, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "10",
                [p0 0, p1 3, p2 6, p3 9],
                "0" ["4" "5"] "2" memory "{p0}", "1" ["6" "7"] "3" "2" "{p0}+{row}", "2" ["8" "9"] "2" "3" "{p0}+2*{row}",
                "3" ["10" "11"] "3" memory "{p1}", "4" ["12" "13"] "2" "2" "{p1}+{row}", "5" ["14" "15"] "3" "3" "{p1}+2*{row}",
                "6" ["16" "17"] "2" memory "{p2}", "7" ["18" "19"] "3" "2" "{p2}+{row}", "8" ["20" "21"] "2" "3" "{p2}+2*{row}",
                "9" ["22" "23"] "3" memory "{p3}");
            tile!(rows12, lying12, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "12",
                [p0 0, p1 3, p2 6, p3 9],
                "0" ["4" "5"] "2" memory "{p0}", "1" ["6" "7"] memory "2" "{p0}+{row}", "2" ["8" "9"] "3" "3" "{p0}+2*{row}",
                "3" ["10" "11"] memory memory "{p1}", "4" ["12" "13"] "2" "2" "{p1}+{row}", "5" ["14" "15"] memory "3" "{p1}+2*{row}",
                "6" ["16" "17"] "3" memory "{p2}", "7" ["18" "19"] memory "2" "{p2}+{row}", "8" ["20" "21"] "2" "3" "{p2}+2*{row}",
                "9" ["22" "23"] memory memory "{p3}", "10" ["24" "25"] "3" "2" "{p3}+{row}", "11" ["26" "27"] memory "3" "{p3}+2*{row}");
            tile!(rows14, lying14, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "14",
                [p0 0, p1 3, p2 6, p3 9, p4 12],
                "0" ["4" "5"] "2" memory "{p0}", "1" ["6" "7"] memory "2" "{p0}+{row}", "2" ["8" "9"] "3" "3" "{p0}+2*{row}",
                "3" ["10" "11"] memory memory "{p1}", "4" ["12" "13"] "2" "2" "{p1}+{row}", "5" ["14" "15"] memory "3" "{p1}+2*{row}",
                "6" ["16" "17"] "3" memory "{p2}", "7" ["18" "19"] memory "2" "{p2}+{row}", "8" ["20" "21"] "2" "3" "{p2}+2*{row}",
                "9" ["22" "23"] memory memory "{p3}", "10" ["24" "25"] "3" "2" "{p3}+{row}", "11" ["26" "27"] memory "3" "{p3}+2*{row}",
                "12" ["28" "29"] "2" memory "{p4}", "13" ["30" "31"] memory "2" "{p4}+{row}");
        }
    };
}

heights!(two_f32, short, two of "128", f32, "4", "s", "1to16", 4, "4");
heights!(one_f32, short, one of "128", f32, "4", "s", "1to16", 4, "4");
heights!(two_f64, short, two of "128", f64, "8", "d", "1to8", 8, "2");
heights!(one_f64, short, one of "128", f64, "8", "d", "1to8", 8, "2");

// The same in long turns, for wide cores.
heights!(long_two_f32, long, two of "128", f32, "4", "s", "1to16", 4, "4");
heights!(long_one_f32, long, one of "128", f32, "4", "s", "1to16", 4, "4");
heights!(long_two_f64, long, two of "128", f64, "8", "d", "1to8", 8, "2");
heights!(long_one_f64, long, one of "128", f64, "8", "d", "1to8", 8, "2");

/// The same of panels three vectors wide, for large products: a broadcast serves three.
macro_rules! wide_heights {
    ($module:ident, $turn:ident, $form:ident of $step:literal, $element:ty, $size:literal, $p:literal, $to:literal, $bytes:literal, $line:literal) => {
        pub mod $module {
            use super::*;
            tile!(rows2, lying2, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "2",
                [p0 0],
                "0" ["5" "6" "7"] "3" "3" "{p0}", "1" ["8" "9" "10"] "4" "4" "{p0}+{row}");
            tile!(rows4, lying4, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "4",
                [p0 0, p1 3],
                "0" ["5" "6" "7"] "3" "3" "{p0}", "1" ["8" "9" "10"] "4" "4" "{p0}+{row}",
                "2" ["11" "12" "13"] "3" "3" "{p0}+2*{row}", "3" ["14" "15" "16"] "4" "4" "{p1}");
            tile!(rows6, lying6, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "6",
                [p0 0, p1 3],
                "0" ["5" "6" "7"] "3" "3" "{p0}", "1" ["8" "9" "10"] "4" "4" "{p0}+{row}",
                "2" ["11" "12" "13"] "3" "3" "{p0}+2*{row}", "3" ["14" "15" "16"] "4" "4" "{p1}",
                "4" ["17" "18" "19"] "3" "3" "{p1}+{row}", "5" ["20" "21" "22"] "4" "4" "{p1}+2*{row}");
            tile!(rows8, lying8, $turn, $form of $step, $element, $size, $p, $to, $bytes, $line, "8",
                [p0 0, p1 3, p2 6],
                "0" ["5" "6" "7"] "3" "3" "{p0}", "1" ["8" "9" "10"] "4" "4" "{p0}+{row}",
                "2" ["11" "12" "13"] "3" "3" "{p0}+2*{row}", "3" ["14" "15" "16"] "4" "4" "{p1}",
                "4" ["17" "18" "19"] "3" "3" "{p1}+{row}", "5" ["20" "21" "22"] "4" "4" "{p1}+2*{row}",
                "6" ["23" "24" "25"] "3" "3" "{p2}", "7" ["26" "27" "28"] "4" "4" "{p2}+{row}");
        }
    };
}

wide_heights!(wide_three_f32, short, three of "192", f32, "4", "s", "1to16", 4, "4");
wide_heights!(wide_two_f32, short, two of "192", f32, "4", "s", "1to16", 4, "4");
wide_heights!(wide_one_f32, short, one of "192", f32, "4", "s", "1to16", 4, "4");
wide_heights!(wide_three_f64, short, three of "192", f64, "8", "d", "1to8", 8, "2");
wide_heights!(wide_two_f64, short, two of "192", f64, "8", "d", "1to8", 8, "2");
wide_heights!(wide_one_f64, short, one of "192", f64, "8", "d", "1to8", 8, "2");
