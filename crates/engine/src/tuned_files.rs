//! Tuned tables on the disk: `T.csv`, `T.ours.csv` and `T.meta.json`, and while tuning `T.part.csv`, to which every row is
//! added as soon as it is measured. What is there is only ever replaced as a whole.

use crate::dispatch::RefusedTable;
use gemwright_core::{TunedDevice, TunedRow, TunedTable};
use gemwright_exchange::tuned::{self, TunedText};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// `T.csv` with another ending.
fn beside(table: &Path, ending: &str) -> PathBuf {
    table.with_extension(ending)
}

/// Reads a table of ours, or one of aiter's or TunableOp's.
///
/// # Errors
/// What is wrong with it.
pub fn load(table: &Path) -> Result<TunedTable, String> {
    let text = |path: &Path| fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
    let (ours, meta) = (beside(table, "ours.csv"), beside(table, "meta.json"));
    if ours.exists() || meta.exists() {
        let name = |path: &Path, why: String| format!("{}: {why}", path.display());
        let rows_text = text(&ours)?;
        let rows = tuned::read_rows(&rows_text).map_err(|why| name(&ours, why))?;
        // What ended between the two files of a first table left the rows alone, which say whose they are.
        let device = match meta.exists() {
            true => tuned::read_device(&text(&meta)?).map_err(|why| name(&meta, why))?,
            false => tuned::device_of_rows(&rows_text).map_err(|why| name(&ours, why))?,
        };
        return Ok(TunedTable::new(device, rows));
    }
    let rows = tuned::foreign_rows(&text(table)?)?;
    // Who else has made it says nothing of the device: rates only weigh rows against one another.
    let device = TunedDevice { name: FOREIGN.into(), units: 0, flops: 1e15, bytes: 4e12, versions: Vec::new() };
    Ok(TunedTable::new(device, rows))
}

/// In the place of a device's name.
const FOREIGN: &str = "a device that another tool's table does not name";

/// The table is another tool's.
pub fn is_foreign(device: &TunedDevice) -> bool {
    device.name == FOREIGN
}

/// Some of a table's files are there.
pub fn exists(table: &Path) -> bool {
    [table.to_path_buf(), beside(table, "ours.csv"), beside(table, "meta.json")].iter().any(|path| path.exists())
}

/// Why a table says nothing of a device.
pub fn other_device(table: &TunedDevice, here: &TunedDevice) -> Option<String> {
    let shown = |device: &TunedDevice| match is_foreign(device) {
        true => device.name.clone(),
        false => format!("{} with {} units", device.name, device.units),
    };
    if (tuned::plain(&table.name), table.units) != (tuned::plain(&here.name), here.units) {
        return Some(format!("it was made on {}, this is {}", shown(table), shown(here)));
    }
    let ours =
        |device: &TunedDevice| device.versions.iter().find(|(name, _)| name == "gemwright").map(|(_, v)| v.clone());
    match (ours(table), ours(here)) {
        (Some(then), Some(now)) if then != now => {
            Some(format!("it was made by gemwright {then}, this is {now}: tune again"))
        }
        _ => None,
    }
}

/// Several tables as one, the later one counts; those that are wrong, or of another device than `here`, are left aside.
pub fn load_all(paths: &[PathBuf], here: Option<&TunedDevice>) -> (Option<TunedTable>, Vec<RefusedTable>) {
    let (mut all, mut refused) = (None::<TunedTable>, Vec::new());
    for path in paths {
        let loaded = load(path).and_then(|table| match here.and_then(|here| other_device(&table.device, here)) {
            Some(why) => Err(why),
            None => Ok(table),
        });
        match (loaded, &mut all) {
            (Err(why), _) => refused.push((path.clone(), why)),
            (Ok(table), Some(all)) => {
                if is_foreign(&all.device) {
                    all.device = table.device.clone();
                }
                table.rows().iter().for_each(|row| all.insert(row.clone()));
            }
            (Ok(table), None) => all = Some(table),
        }
    }
    (all, refused)
}

/// Where the next version of a file is written.
fn next(path: &Path) -> PathBuf {
    path.with_extension(format!("{}.next", path.extension().unwrap_or_default().to_string_lossy()))
}

/// Writes the next version of a file beside it.
fn prepare(path: &Path, text: &str) -> io::Result<()> {
    let next = next(path);
    let written = File::create(&next).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    if let Err(why) = written {
        // The old one stays.
        let _ = fs::remove_file(&next);
        return Err(why);
    }
    Ok(())
}

/// Puts a table in its place: whoever reads one of its files has the old one or the new one whole, and none is replaced before
/// all are written.
///
/// # Errors
/// What could not be written; then the table that was there is still whole.
pub fn store(table: &Path, text: &TunedText) -> io::Result<()> {
    let (ours, meta) = (beside(table, "ours.csv"), beside(table, "meta.json"));
    let all = [(ours.as_path(), &text.ours), (&meta, &text.meta), (table, &text.aiter)];
    for (i, (path, text)) in all.iter().enumerate() {
        if let Err(why) = prepare(path, text) {
            for (path, _) in &all[..i] {
                let _ = fs::remove_file(next(path));
            }
            return Err(why);
        }
    }
    all.iter().try_for_each(|(path, _)| fs::rename(next(path), path))
}

/// Rows as they are measured, for one process at a time.
pub struct Journal {
    path: PathBuf,
    file: File,
    device: String,
    units: u64,
    /// It has rows of other devices too, which are not this one's to remove.
    shared: bool,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum JournalError {
    #[error(
        "another process is tuning into this table; wait for it, or give another -o and merge the two (`tune --merge`)"
    )]
    Busy,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Journal {
    /// Opens the journal of a table, with the rows of a run that did not end.
    ///
    /// # Errors
    /// Another process has it, or the disk says no.
    pub fn open(table: &Path, device: &TunedDevice) -> Result<(Journal, Vec<TunedRow>), JournalError> {
        let path = beside(table, "part.csv");
        let mut file = locked(&path)?;
        let mut text = String::new();
        // What is no file may have no end.
        if file.metadata()?.is_file() {
            file.seek(SeekFrom::Start(0))?;
            file.read_to_string(&mut text)?;
        }
        let version = format!("# gemwright {}", env!("CARGO_PKG_VERSION"));
        // What another version measured is measured again, as with its tables, and kept aside: rows of this one behind it would
        // count as that one's.
        if text.lines().next().is_some_and(|first| first != version) {
            let kept = OpenOptions::new().create(true).append(true).open(beside(table, "part.earlier.csv"));
            kept?.write_all(text.as_bytes())?;
            file.set_len(0)?;
            text.clear();
        }
        // A line that was cut off says nothing; it is ended here, and passed over from then on.
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n")?;
        }
        if text.is_empty() {
            writeln!(file, "{version}")?;
        }
        let head = tuned::HEAD.join(",");
        let here = format!("{},{},", tuned::plain(&device.name), device.units);
        let (ours, others): (Vec<&str>, Vec<&str>) = text.lines().skip(1).partition(|line| line.starts_with(&here));
        let row = |line: &str| tuned::read_rows(&format!("{head}\n{line}\n")).ok()?.pop();
        let rows = ours.into_iter().filter_map(row).collect();
        let shared = others.into_iter().any(|line| row(line).is_some());
        Ok((Journal { path, file, device: device.name.clone(), units: device.units, shared }, rows))
    }

    /// Adds a row; when this returns it is on the disk.
    ///
    /// # Errors
    /// The disk says no; rows before it are safe.
    pub fn add(&mut self, row: &TunedRow) -> io::Result<()> {
        self.file.write_all(tuned::row_line(&self.device, self.units, row).as_bytes())?;
        self.file.sync_data()
    }

    /// Its rows are in the table now.
    pub fn done(self) {
        if !self.shared {
            // One that stays is read again, which does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The file, locked; one that somebody removed meanwhile is made anew.
fn locked(path: &Path) -> Result<File, JournalError> {
    loop {
        let file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(JournalError::Busy),
            Err(fs::TryLockError::Error(why)) => return Err(why.into()),
        }
        if is_at(&file, path) {
            return Ok(file);
        }
    }
}

/// The file is the one of this name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().map(place).ok() == fs::metadata(path).map(place).ok()
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Problem;
    use gemwright_core::{DType, Runner, Timed};

    fn device(units: u64) -> TunedDevice {
        TunedDevice { name: "a cpu".into(), units, flops: 1e11, bytes: 1e10, versions: Vec::new() }
    }

    fn row(m: u64) -> TunedRow {
        let runner = Runner { candidate: "mkl".into(), packed: false, split: false };
        let times = vec![Timed { runner, seconds: 0.25, spread: 0.125 }];
        TunedRow { key: Problem::linear(m, 8, 16, DType::F32).tuned_key(), times, dropped: Vec::new(), foreign: false }
    }

    fn place(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gemwright-tuned-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder.join("t.csv")
    }

    #[test]
    fn what_was_measured_before_an_end_is_there_afterwards() {
        let table = place("journal");
        let (mut journal, before) = Journal::open(&table, &device(2)).unwrap();
        assert_eq!(before, []);
        journal.add(&row(1)).unwrap();
        journal.add(&row(2)).unwrap();
        assert!(matches!(Journal::open(&table, &device(2)), Err(JournalError::Busy)));
        drop(journal);
        // A line that was cut off in the middle.
        let part = beside(&table, "part.csv");
        let mut text = fs::read(&part).unwrap();
        text.truncate(text.len() - 9);
        fs::write(&part, &text).unwrap();
        let (mut journal, before) = Journal::open(&table, &device(2)).unwrap();
        assert_eq!(before, [row(1)]);
        journal.add(&row(3)).unwrap();
        drop(journal);
        let (journal, before) = Journal::open(&table, &device(2)).unwrap();
        assert_eq!(before, [row(1), row(3)]);
        drop(journal);
        // Another device's rows are not this one's, neither to read nor to remove.
        let (journal, before) = Journal::open(&table, &device(4)).unwrap();
        assert_eq!(before, []);
        journal.done();
        let (journal, before) = Journal::open(&table, &device(2)).unwrap();
        assert_eq!(before, [row(1), row(3)]);
        journal.done();
        assert!(!part.exists());
        // Another version's are measured again.
        let earlier = format!("# gemwright 0.0.0\n{}", tuned::row_line("a cpu", 2, &row(1)));
        fs::write(&part, &earlier).unwrap();
        let (mut journal, before) = Journal::open(&table, &device(2)).unwrap();
        assert_eq!(before, []);
        journal.add(&row(2)).unwrap();
        drop(journal);
        assert_eq!(Journal::open(&table, &device(2)).unwrap().1, [row(2)]);
        assert_eq!(fs::read_to_string(beside(&table, "part.earlier.csv")).unwrap(), earlier);
    }

    #[test]
    fn rows_alone_say_whose_they_are() {
        let path = place("alone");
        store(&path, &tuned::write(&TunedTable::new(device(2), vec![row(1)]), &serde_json::json!({}))).unwrap();
        fs::remove_file(beside(&path, "meta.json")).unwrap();
        let table = load(&path).unwrap();
        assert_eq!((table.rows(), other_device(&table.device, &device(2))), (&[row(1)][..], None));
        assert!(other_device(&table.device, &device(3)).is_some());
    }

    #[test]
    fn tables_of_elsewhere_are_refused_with_the_reason() {
        let path = place("device");
        store(&path, &tuned::write(&TunedTable::new(device(2), vec![row(1)]), &serde_json::json!({}))).unwrap();
        let all = |paths: &[PathBuf], units| {
            let (table, refused) = load_all(paths, Some(&device(units)));
            (table.map_or(0, |table| table.rows().len()), refused)
        };
        assert_eq!(all(std::slice::from_ref(&path), 2), (1, Vec::new()));
        let (rows, refused) = all(&[path.clone(), path.with_file_name("none.csv")], 8);
        assert_eq!((rows, refused.len()), (0, 2));
        assert!(refused[0].1.contains("2 units") && refused[0].1.contains("8 units"), "{refused:?}");
        let ours = beside(&path, "ours.csv");
        let text = fs::read_to_string(&ours).unwrap();
        fs::write(&ours, &text[..text.len() - 20]).unwrap();
        assert!(load(&path).unwrap_err().contains("line 2"), "{:?}", load(&path));
    }

    /// Whichever comes first.
    #[test]
    fn another_tools_solutions_are_for_one_n_and_k() {
        let (ours, theirs) = (place("beside"), place("beside").with_file_name("theirs.csv"));
        let row = TunedRow { key: Problem::linear(64, 4096, 4096, DType::Bf16).tuned_key(), ..row(1) };
        store(&ours, &tuned::write(&TunedTable::new(device(2), vec![row]), &serde_json::json!({}))).unwrap();
        fs::write(&theirs, "GemmTunableOp_BFloat16_TN,tn_8192_64_4096_ld_4096_4096_8192,Gemm_Hipblaslt_7,0.001\n")
            .unwrap();
        for paths in [[ours.clone(), theirs.clone()], [theirs.clone(), ours.clone()]] {
            let table = load_all(&paths, None).0.unwrap();
            let named =
                |n| table.look_up(&Problem::linear(64, n, 4096, DType::Bf16).tuned_key()).unwrap().runner.candidate;
            assert_eq!(
                ["Gemm_Hipblaslt_7", "mkl", "mkl"],
                [8192, 5000, 4096].map(named).each_ref().map(String::as_str)
            );
            assert_eq!(table.device.name, "a cpu");
        }
    }

    #[test]
    fn a_disk_that_is_full_leaves_the_old_table() {
        let path = place("full");
        let text = tuned::write(&TunedTable::new(device(2), vec![row(1)]), &serde_json::json!({}));
        store(&path, &text).unwrap();
        // A folder stands where the last of the new files would be written.
        fs::create_dir_all(path.with_extension("csv.next")).unwrap();
        let other = tuned::write(&TunedTable::new(device(2), vec![row(2)]), &serde_json::json!({}));
        assert!(store(&path, &other).is_err());
        assert_eq!(load(&path).unwrap().rows(), [row(1)]);
        assert!(!next(&beside(&path, "ours.csv")).exists());
    }
}
