//! What stands before the events of a file: the GPUs, and signs that it is no trace.

use crate::event::Device;
use crate::number::integer;
use crate::read::TraceError;
use crate::scan::{Broken, Cursor, unescaped};

/// What stands before the events.
#[derive(Default)]
pub struct Head {
    /// The GPUs it names.
    pub devices: Vec<Device>,
    /// It is an object whose list has a name, not a bare list.
    pub named: bool,
}

impl Head {
    /// Where the first event begins, or the list ends.
    pub fn find_events(&mut self, text: &[u8]) -> Result<usize, TraceError> {
        let seems = |what: &str| Err(TraceError(what.into()));
        let mut cursor = Cursor::new(text, 0);
        if text.starts_with(&[0xef, 0xbb, 0xbf]) {
            cursor.at = 3;
        }
        cursor.space();
        match cursor.peek() {
            None => return seems("it is empty"),
            Some(b'[') => {
                cursor.at += 1;
                return Ok(cursor.at);
            }
            Some(b'{') => cursor.at += 1,
            Some(_) if text.starts_with(b"PK") => return seems("it seems to be a zip archive; unpack it first"),
            Some(_) if text.starts_with(b"SQLite") => {
                return seems("it seems to be an Nsight Systems database; export Chrome JSON from the profiler");
            }
            Some(_) => return seems("it is no JSON"),
        }
        loop {
            match cursor.key() {
                Ok(Some(b"traceEvents")) => {
                    self.named = true;
                    return match cursor.expect(b'[') {
                        Ok(()) => Ok(cursor.at),
                        Err(Broken) => seems("its traceEvents are no list"),
                    };
                }
                Ok(Some(key)) => {
                    let Ok(value) = cursor.value() else { return seems("its JSON breaks off before traceEvents") };
                    if key == b"deviceProperties" {
                        self.devices = devices(value);
                    }
                }
                Ok(None) => return seems("it is JSON without traceEvents"),
                Err(Broken) => return seems("its JSON is broken before traceEvents"),
            }
        }
    }
}

fn devices(list: &[u8]) -> Vec<Device> {
    let mut cursor = Cursor::new(list, 0);
    let mut found = Vec::new();
    if cursor.expect(b'[').is_err() {
        return found;
    }
    while cursor.take(b'{') {
        let mut device = Device { id: found.len() as i64, name: String::new(), units: None, memory: None };
        while let Ok(Some(key)) = cursor.key() {
            let Ok(value) = cursor.value() else { return found };
            match key {
                b"id" => device.id = integer(value).unwrap_or(device.id),
                b"name" => device.name = unescaped(value.strip_prefix(b"\"").unwrap_or(value)).trim_matches('"').into(),
                b"numSms" => device.units = integer(value),
                b"totalGlobalMem" => device.memory = integer(value),
                _ => {}
            }
        }
        found.push(device);
        cursor.take(b',');
    }
    found
}
