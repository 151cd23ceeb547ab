//! From a stream of JSON text to events: one thread inflates and cuts, the others read chunk by chunk,
//! and what they find is put together in the order of the file.

use crate::chunk::{Chunk, Chunks};
use crate::event::{Event, Exchange, Lists, NO_TEXT, Queue, Trace};
use crate::fast::{Numbers, Texts};
use crate::head::Head;
use crate::input::Input;
use crate::part::{End, Keep, Part, Piece};
use crate::problems::Severity;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};

/// A file that is no trace.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("is no profiler trace: {0}")]
pub struct TraceError(pub String);

/// How a file is read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Reading {
    /// Arrows from launches to kernels are kept: TraceLens's rules need them.
    pub arrows: bool,
    /// Modules of the model are kept, where the profiler recorded Python's stacks.
    pub modules: bool,
    /// One thread and small chunks.
    pub low_memory: bool,
    /// Bytes of a chunk, where not the usual.
    pub chunk: Option<usize>,
}

/// Bytes of a chunk: a few fit into the caches of a core.
const CHUNK: usize = 1 << 20;
const SMALL_CHUNK: usize = 1 << 18;

/// Reads a trace: plain, gzip or zstd.
pub fn read(source: impl Read + Send, reading: Reading) -> Result<Trace, TraceError> {
    let input = Input::new(source).map_err(TraceError)?;
    let size = reading.chunk.unwrap_or(if reading.low_memory { SMALL_CHUNK } else { CHUNK });
    let mut chunks = Chunks::new(input, size);
    let first = chunks.next(Vec::new()).map_err(TraceError)?;
    let first = first.ok_or_else(|| TraceError("it is empty".into()))?;
    if chunks.broke_off && first.text().is_empty() {
        return Err(TraceError("the compressed stream is broken from its beginning".into()));
    }
    let mut head = Head::default();
    let start = head.find_events(first.text())?;
    let mut collector = Collector::new(Keep { arrows: reading.arrows, modules: reading.modules });
    let single = first.last || reading.low_memory;
    let part = Part::parse(first.text(), start, first.last, collector.keep);
    collector.take(&first, part.into());
    let buffer = first.into_buffer();
    let done = match single {
        true => one_after_the_other(&mut chunks, buffer, &mut collector),
        false => in_parallel(&mut chunks, buffer, &mut collector),
    };
    done.map_err(TraceError)?;
    let whole = collector.ended;
    let mut trace = collector.finish();
    trace.devices = head.devices;
    if chunks.broke_off && !whole {
        trace.problems.add(Severity::Loss, "the compressed stream breaks off; what comes before was read");
    }
    if trace.count == 0 && !head.named {
        return Err(TraceError("it has no events".into()));
    }
    Ok(trace)
}

fn one_after_the_other<R: Read>(
    chunks: &mut Chunks<R>,
    mut buffer: Vec<u8>,
    collector: &mut Collector,
) -> Result<(), String> {
    while !collector.ended
        && let Some(chunk) = chunks.next(std::mem::take(&mut buffer))?
    {
        let part = Part::parse(chunk.text(), 0, chunk.last, collector.keep);
        collector.take(&chunk, part.into());
        buffer = chunk.into_buffer();
    }
    Ok(())
}

/// As many chunks are in memory as there are buffers: whoever has read one gives it back.
fn in_parallel<R: Read + Send>(
    chunks: &mut Chunks<R>,
    buffer: Vec<u8>,
    collector: &mut Collector,
) -> Result<(), String> {
    let readers = std::thread::available_parallelism().map_or(2, usize::from).clamp(1, 8);
    let keep = collector.keep;
    let (hand_out, waiting) = channel();
    let waiting = Mutex::new(waiting);
    std::thread::scope(|scope| {
        let (give_back, buffers) = channel();
        let (deliver, delivered) = channel();
        for empty in std::iter::once(buffer).chain(std::iter::repeat_n(Vec::new(), readers + 1)) {
            // The other end lives as long as this function.
            let _ = give_back.send(empty);
        }
        let cutter = scope.spawn(move || {
            for number in 0.. {
                let Ok(buffer) = buffers.recv() else { return Ok(()) };
                let Some(chunk) = chunks.next(buffer)? else { return Ok(()) };
                if hand_out.send((number, chunk)).is_err() {
                    return Ok(());
                }
            }
            Ok(())
        });
        for _ in 0..readers {
            let (waiting, deliver) = (&waiting, deliver.clone());
            scope.spawn(move || {
                while let Some((number, chunk)) = next_of(waiting) {
                    let parse = || Piece::from(Part::parse(chunk.text(), 0, chunk.last, keep));
                    // A chunk that never comes back would leave the others waiting for its buffer.
                    let piece = std::panic::catch_unwind(std::panic::AssertUnwindSafe(parse)).ok();
                    if deliver.send((number, chunk, piece)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(deliver);
        let mut early = BTreeMap::new();
        let mut next = 0;
        for (number, chunk, piece) in delivered {
            early.insert(number, (chunk, piece));
            while let Some((chunk, piece)) = early.remove(&next) {
                let Some(piece) = piece else { return Err("an event of it could not be read".into()) };
                collector.take(&chunk, piece);
                let _ = give_back.send(chunk.into_buffer());
                next += 1;
            }
            if collector.ended {
                break;
            }
        }
        drop(give_back);
        cutter.join().unwrap_or_else(|_| Err("the reader failed".into()))
    })
}

fn next_of(waiting: &Mutex<Receiver<(usize, Chunk)>>) -> Option<(usize, Chunk)> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

/// Puts pieces together, in order.
struct Collector {
    trace: Trace,
    texts: Texts,
    lanes: Numbers<(u32, u32)>,
    queues: Numbers<Queue>,
    arguments: Numbers<Lists>,
    exchanges: Numbers<Exchange>,
    keep: Keep,
    /// The list of events has ended.
    ended: bool,
    /// The beginning of an event whose rest is in the next chunk: a cut was guessed wrongly.
    open: Vec<u8>,
    /// Bytes read twice for that.
    read_again: usize,
}

/// Bytes; no event is larger.
const LARGEST_EVENT: usize = 16 << 20;

impl Collector {
    fn new(keep: Keep) -> Collector {
        Collector {
            trace: Trace::default(),
            texts: Texts::default(),
            lanes: Numbers::default(),
            queues: Numbers::default(),
            arguments: Numbers::default(),
            exchanges: Numbers::default(),
            keep,
            ended: false,
            open: Vec::new(),
            read_again: 0,
        }
    }

    fn take(&mut self, chunk: &Chunk, piece: Piece) {
        if self.ended {
            return;
        }
        if self.open.is_empty() {
            self.settle(piece, chunk.text());
            return;
        }
        let mut text = std::mem::take(&mut self.open);
        text.extend_from_slice(chunk.text());
        // What is read again and again without coming to an end is no event.
        self.read_again += text.len();
        let last = chunk.last || text.len() > LARGEST_EVENT || self.read_again > 16 * LARGEST_EVENT;
        let piece: Piece = Part::parse(&text, 0, last, self.keep).into();
        self.settle(piece, &text);
    }

    fn settle(&mut self, piece: Piece, text: &[u8]) {
        match piece.end {
            End::Clean => {}
            End::Inside(start) => self.open.extend_from_slice(&text[start..]),
            End::List => self.ended = true,
        }
        self.join(piece);
    }

    /// With the numbers of the whole file in place of the piece's own.
    fn join(&mut self, piece: Piece) {
        let texts: Vec<u32> = piece.texts.iter().map(|text| self.texts.of(text)).collect();
        let lanes: Vec<u32> = piece
            .lanes
            .iter()
            .map(|(process, thread)| self.lanes.of((texts[*process as usize], texts[*thread as usize])))
            .collect();
        let queues: Vec<u32> = piece.queues.iter().map(|queue| self.queues.of(*queue)).collect();
        let list = |number: u32| texts.get(number as usize).copied().unwrap_or(NO_TEXT);
        let arguments: Vec<u32> = piece.arguments.iter().map(|lists| self.arguments.of(lists.map(list))).collect();
        let exchanges: Vec<u32> = piece.exchanges.iter().map(|facts| self.exchanges.of(facts.map(list))).collect();
        let before = self.trace.count as u32;
        self.trace.events.extend(piece.events.iter().map(|event| Event {
            uid: event.uid + before,
            name: texts[event.name as usize],
            lane: lanes[event.lane as usize],
            queue: queues[event.queue as usize],
            arguments: if event.category.on_gpu() { &exchanges } else { &arguments }[event.arguments as usize],
            ..*event
        }));
        self.trace.count += piece.count;
        self.trace.names.extend(piece.names.into_iter().map(|(key, name)| (key.map(Into::into), name)));
        self.trace.problems.join(piece.problems);
    }

    fn finish(self) -> Trace {
        Trace {
            texts: self.texts.list,
            lanes: self.lanes.list,
            queues: self.queues.list,
            arguments: self.arguments.list,
            exchanges: self.exchanges.list,
            ..self.trace
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        let event = |i: usize| {
            format!(
                r#"{{"ph": "X", "cat": "cpu_op", "name": "op {}", "pid": 1, "tid": {}, "ts": {i}.5, "dur": 1,
                "args": {{"External id": {i}, "Input Dims": [[{}, 4], []], "Ev Idx": {i}, "Input type": ["a]", ""]}}}}"#,
                i % 3,
                i % 2,
                i % 5
            )
        };
        // Some hold what looks like the beginning of another.
        let odd = r#"{"ph": "X", "cat": "cpu_op", "name": "x", "pid": 1, "tid": 1, "ts": 1, "dur": 1,
            "args": {"inner": [{"ph": "X"}, {"ph": "}"}]}}"#;
        let odd = odd.to_string();
        let events: Vec<String> = (0..200).map(|i| if i % 50 == 7 { odd.clone() } else { event(i) }).collect();
        format!("{{\"schemaVersion\": 1, \"traceEvents\": [{}], \"x\": 1}}", events.join(",\n  "))
    }

    fn essence(trace: &Trace) -> String {
        let lane = |e: &Event| trace.lanes[e.lane as usize];
        let name = |e: &Event| &trace.texts[e.name as usize];
        let one = |e: &Event| format!("{} {:?} {} {:?} {:?}", e.uid, name(e), e.start, trace.list(e, 0), lane(e));
        trace.events.iter().map(one).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn how_a_text_is_cut_does_not_matter() {
        let text = text();
        let whole = read(text.as_bytes(), Reading::default()).unwrap();
        assert_eq!((whole.count, whole.events.len()), (200, 200));
        assert!(whole.problems.list().is_empty(), "{:?}", whole.problems.list());
        for chunk in [100, 333, 1000, 5000] {
            for low_memory in [false, true] {
                let pieces =
                    read(text.as_bytes(), Reading { chunk: Some(chunk), low_memory, ..Reading::default() }).unwrap();
                assert!(essence(&pieces) == essence(&whole), "{chunk}");
                assert!(pieces.problems.list().is_empty());
            }
        }
    }
}
