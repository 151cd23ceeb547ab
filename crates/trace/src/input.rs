//! The bytes of a trace: plain, gzip or zstd, from a file's content.

use crate::problems::{Problems, Severity};
use std::io::Read;

/// A file that inflates to more is refused: it is a bomb, or needs more memory than a trace is worth.
const LARGEST: usize = 1 << 34;
/// Text inflates to no more than this many times its packed size; only runs of one byte do.
const MOST_TIMES: usize = 200;

/// The JSON text of a file. What of a truncated file can be inflated is given, and the loss noted.
pub fn inflate(packed: Vec<u8>, problems: &mut Problems) -> Result<Vec<u8>, String> {
    match packed.as_slice() {
        [0x1f, 0x8b, ..] => gzip(&packed, problems),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => zstd(&packed, problems),
        _ => Ok(packed),
    }
}

fn most(packed: usize) -> usize {
    packed.saturating_mul(MOST_TIMES).clamp(1 << 24, LARGEST)
}

fn gzip(packed: &[u8], problems: &mut Problems) -> Result<Vec<u8>, String> {
    // The length that the end of a whole file gives; a file of several members has it of the last alone.
    let tail = packed.len().checked_sub(4).map(|at| &packed[at..]);
    let length = tail.and_then(|t| t.try_into().ok()).map_or(0, u32::from_le_bytes) as usize;
    if length > 0 && length <= most(packed.len()) {
        let mut out = vec![0; length];
        let mut whole = libdeflater::Decompressor::new();
        if let Ok(written) = whole.gzip_decompress(packed, &mut out)
            && written == length
            && is_last_member(packed, &out)
        {
            return Ok(out);
        }
    }
    drained(flate2::read::MultiGzDecoder::new(packed), packed.len(), problems)
}

/// The checksum at the end of the file is that of what was inflated: no further member follows.
fn is_last_member(packed: &[u8], out: &[u8]) -> bool {
    let tail = packed.len().checked_sub(8).map(|at| &packed[at..at + 4]);
    let mut sum = libdeflater::Crc::new();
    sum.update(out);
    tail.and_then(|t| t.try_into().ok()).map(u32::from_le_bytes) == Some(sum.sum())
}

fn zstd(packed: &[u8], problems: &mut Problems) -> Result<Vec<u8>, String> {
    let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(|e| format!("no zstd stream: {e}"))?;
    drained(decoder, packed.len(), problems)
}

/// Everything up to the end, or up to where the stream breaks.
fn drained(mut stream: impl Read, packed: usize, problems: &mut Problems) -> Result<Vec<u8>, String> {
    let most = most(packed);
    let mut out = Vec::with_capacity(packed.saturating_mul(8).min(1 << 28));
    let mut block = vec![0; 1 << 16];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return Ok(out),
            Ok(n) if out.len() + n > most => {
                return Err(format!("inflates to more than {most} bytes: no trace, or not one that can be read here"));
            }
            Ok(n) => out.extend_from_slice(&block[..n]),
            Err(_) if out.is_empty() => return Err("the compressed stream is broken from its beginning".into()),
            Err(_) => {
                problems.add(Severity::Loss, "the compressed stream breaks off; what comes before was read");
                return Ok(out);
            }
        }
    }
}
