//! AMX tiles: whether they may be used, and how fast they can be.

use crate::bf16::tile;
use crate::pool::Pool;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// Tiles of bf16 are there and the system lets this process use them. The permission is asked for once.
pub fn available() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| has_tiles() && permitted())
}

/// CPUID leaf 7: EDX bit 24 is AMX-TILE, bit 22 AMX-BF16.
fn has_tiles() -> bool {
    let features = std::arch::x86_64::__cpuid_count(7, 0).edx;
    features & (1 << 24) != 0 && features & (1 << 22) != 0
}

#[cfg(target_os = "linux")]
fn permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: it only enables a feature of the CPU for this process; threads that come later have it too.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn permitted() -> bool {
    false
}

/// What LDTILECFG reads.
#[repr(C, align(64))]
pub struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Eight tiles of 16 rows of 64 bytes.
pub static FULL: Config = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        (row_bytes[tile], rows[tile]) = (64, 16);
        tile += 1;
    }
    Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

/// Bytes of two tiles, one step of the loop on one side.
const STEP: usize = 2048;
/// Steps whose operands stay in the first-level cache together.
const STEPS: usize = 8;
/// Times a piece goes over them.
const TURNS: usize = 2000;
/// FLOPs of a step: four tiles of 16 by 16 by 32.
const FLOPS: usize = 4 * 2 * 16 * 16 * 32;

/// A row of a tile, on a line of the cache.
#[repr(C, align(64))]
struct Line([u16; 32]);

impl Line {
    fn of(number: &mut impl FnMut() -> u16) -> Line {
        Line(std::array::from_fn(|_| number()))
    }
}

/// FLOP/s of products of bf16 tiles whose operands, random numbers, lie in the first-level cache.
pub fn amx_loop(pool: &Pool, threads: usize) -> Option<f64> {
    if !available() {
        return None;
    }
    // Values between 1 and 2: zeros would let the clock run faster than numbers do.
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        0x3f80 | (state >> 25) as u16
    };
    // On lines: rows of tiles that reach over two take three times as long.
    let operands: Vec<Line> = (0..2 * STEPS * STEP / size_of::<Line>()).map(|_| Line::of(&mut random)).collect();
    let (next, all) = (AtomicUsize::new(0), 4 * threads);
    let begin = Instant::now();
    pool.run(threads, &|_| {
        while next.fetch_add(1, Ordering::Relaxed) < all {
            // SAFETY: tiles may be used; there are STEPS steps of operands on either side.
            unsafe { piece(operands.as_ptr().cast()) };
        }
    });
    Some((all * TURNS * STEPS * FLOPS) as f64 / begin.elapsed().as_secs_f64())
}

/// # Safety
/// [`available`] has returned true; `operands` has 2 · STEPS · STEP readable bytes.
unsafe fn piece(operands: *const u8) {
    // SAFETY: by the contract; tiles are configured before they are used and released in the end.
    unsafe {
        tile::configure();
        tile::clear::<2>();
        for _ in 0..TURNS {
            for step in 0..STEPS {
                tile::step::<2, false>(tile::tiles(operands.add(step * STEP)), operands.add((STEPS + step) * STEP));
            }
        }
        tile::release();
    }
}
