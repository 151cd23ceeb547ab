//! The text cut into chunks that each begin where an event seems to.

use crate::input::{Break, Input};
use memchr::memmem::Finder;
use std::io::Read;

/// A piece of the text. `last` is the one behind which nothing comes.
pub struct Chunk {
    bytes: Vec<u8>,
    filled: usize,
    pub last: bool,
}

impl Chunk {
    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// The memory, for the next one.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }
}

/// Cuts a stream.
pub struct Chunks<R: Read> {
    input: Input<R>,
    /// What was read beyond the last cut.
    rest: Vec<u8>,
    size: usize,
    ended: bool,
    /// The compressed stream broke off.
    pub broke_off: bool,
}

impl<R: Read> Chunks<R> {
    /// Chunks of about `size` bytes, larger where an event is.
    pub fn new(input: Input<R>, size: usize) -> Chunks<R> {
        Chunks { input, rest: Vec::new(), size, ended: false, broke_off: false }
    }

    /// The next chunk, in the memory of `bytes`; `None` behind the last.
    pub fn next(&mut self, mut bytes: Vec<u8>) -> Result<Option<Chunk>, String> {
        if self.ended {
            return Ok(None);
        }
        let mut filled = self.rest.len();
        // Not cleared: memory that was used before need not be made zero again.
        bytes.resize(self.size.max(2 * filled), 0);
        bytes[..filled].copy_from_slice(&self.rest);
        self.rest.clear();
        loop {
            let room = bytes.len() - filled;
            let (n, end) = self.input.fill(&mut bytes[filled..]);
            filled += n;
            match end {
                Err(Break::Refused(why)) => return Err(why),
                Err(Break::Off) => self.broke_off = true,
                Ok(()) => {}
            }
            if n < room {
                self.ended = true;
                return Ok(Some(Chunk { bytes, filled, last: true }));
            }
            if let Some(cut) = last_event(&bytes[..filled]).filter(|cut| *cut > 0) {
                self.rest.extend_from_slice(&bytes[cut..filled]);
                return Ok(Some(Chunk { bytes, filled: cut, last: false }));
            }
            bytes.resize(2 * bytes.len(), 0);
        }
    }
}

/// The `{` of an event is one that its phase follows; where it is looked for, so is this brace.
fn opens_before(text: &[u8], phase: usize) -> Option<usize> {
    let open = text[..phase].iter().rposition(|c| !c.is_ascii_whitespace())?;
    (text[open] == b'{').then_some(open)
}

/// The beginning of the last event, as far as can be told without reading from the start.
fn last_event(text: &[u8]) -> Option<usize> {
    let mut end = text.len();
    loop {
        let phase = memchr::memmem::rfind(&text[..end], b"\"ph\"")?;
        if let Some(open) = opens_before(text, phase) {
            return Some(open);
        }
        end = phase;
    }
}

/// The beginning of the first event after `from`: for going on behind a broken place.
pub fn next_event(text: &[u8], mut from: usize) -> Option<usize> {
    let finder = Finder::new(b"\"ph\"");
    loop {
        let phase = from + finder.find(text.get(from..)?)?;
        if let Some(open) = opens_before(text, phase).filter(|open| *open >= from) {
            return Some(open);
        }
        from = phase + 4;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, size: usize) -> Vec<String> {
        let mut chunks = Chunks::new(Input::new(text.as_bytes()).unwrap(), size);
        let mut found = Vec::new();
        while let Some(chunk) = chunks.next(Vec::new()).unwrap() {
            found.push(String::from_utf8(chunk.text().to_vec()).unwrap());
        }
        found
    }

    #[test]
    fn chunks_begin_with_events_and_add_up() {
        let events: Vec<String> = (0..50).map(|i| format!("{{ \"ph\": \"X\", \"n\": {i}}}")).collect();
        let text = format!("[{}]", events.join(",\n"));
        for size in [1, 7, 30, 64, 1000, 5000] {
            let found = cut(&text, size);
            assert_eq!(found.concat(), text);
            assert!(found[1..].iter().all(|chunk| chunk.starts_with("{ \"ph\"")), "{size}");
        }
        assert_eq!(cut("", 10), [""]);
    }

    #[test]
    fn the_next_event_is_one_that_begins_with_its_phase() {
        let text = br#"{"ph": "X", "a": {"b": "ph"}}, {"ph" : 1}"#;
        assert_eq!((next_event(text, 0), next_event(text, 1), next_event(text, 32)), (Some(0), Some(31), None));
    }
}
