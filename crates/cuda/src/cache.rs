//! Compiled kernels on disk. The name of a file is a hash of everything that can change it; files are written beside and
//! renamed, so that whoever reads one has all of it, and two processes that write the same one do no harm.

use sha2::{Digest, Sha256};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where they are kept; `None` where there is no place, or `GEMWRIGHT_CACHE` is empty.
pub fn folder() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os("GEMWRIGHT_CACHE") {
        return (!chosen.is_empty()).then(|| chosen.into());
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    cache.or_else(home).map(|cache| cache.join("gemwright"))
}

/// A file's name for these parts, each with its length, so that no two lists of parts are alike.
pub fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// What was kept under a key.
pub fn get(key: &str) -> Option<Vec<u8>> {
    let bytes = std::fs::read(folder()?.join(format!("{key}.cubin"))).ok()?;
    // A file cut off by a full disk was never renamed, but disks fail in other ways too.
    bytes.starts_with(b"\x7fELF").then_some(bytes)
}

/// Keeps it, or not, where that is impossible: it can be made again.
pub fn put(key: &str, bytes: &[u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let Some(folder) = folder() else { return };
    let beside = format!("{key}.{}.{}.part", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let beside = folder.join(beside);
    let written = std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&beside, bytes));
    if written.and_then(|()| std::fs::rename(&beside, folder.join(format!("{key}.cubin")))).is_err() {
        let _ = std::fs::remove_file(&beside);
    }
}

/// How many are kept, and their bytes.
pub fn size() -> (usize, u64) {
    let entries = folder().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let compiled = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "cubin"));
    let bytes = compiled.filter_map(|entry| entry.metadata().ok()).map(|about| about.len());
    bytes.fold((0, 0), |(count, all), bytes| (count + 1, all + bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_changes_the_key() {
        let all = [key(&["a", "b"]), key(&["ab", ""]), key(&["a", "b", ""]), key(&["b", "a"])];
        for (i, one) in all.iter().enumerate() {
            assert_eq!(one.len(), 32);
            assert!(all[i + 1..].iter().all(|other| other != one));
        }
    }
}
