//! From JSON text to events: the head, then the events, cut in two where it pays.

use crate::event::{Category, Device, Event, Names, Tie, Trace};
use crate::fast::{Map, Texts};
use crate::number::{integer, nanoseconds};
use crate::problems::{Problems, Severity};
use crate::scan::{Broken, Cursor, next_event, unescaped};

/// Process and thread, as written.
type Lane<'a> = (&'a [u8], &'a [u8]);

/// A file that is no trace.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("is no profiler trace: {0}")]
pub struct TraceError(pub String);

/// An event takes about so many bytes of text, or more.
const EVENT_BYTES: usize = 320;
/// Below this many bytes one thread is enough.
const WORTH_TWO: usize = 4 << 20;

/// Reads the text of a trace.
pub fn read<'a>(text: &'a [u8], mut problems: Problems) -> Result<Trace<'a>, TraceError> {
    let mut head = Head::default();
    let start = head.find_events(text)?;
    let parts = cut(text, start);
    let mut pieces: Vec<Part<'a>> = std::thread::scope(|scope| {
        let others: Vec<_> =
            parts[1..].iter().map(|(from, to)| scope.spawn(move || Part::parse(text, *from, Some(*to)))).collect();
        let (from, to) = parts[0];
        let first = Part::parse(text, from, Some(to));
        let rest = others.into_iter().map(|t| t.join().unwrap_or_default());
        std::iter::once(first).chain(rest).collect()
    });
    // A part must end exactly where the next was guessed to begin; else the guess was in a string.
    if let Some(wrong) = (1..pieces.len()).find(|i| pieces[i - 1].ended != Some(parts[*i].0)) {
        let from = parts[wrong - 1].0;
        pieces.truncate(wrong - 1);
        pieces.push(Part::parse(text, from, None));
    }
    let mut trace = Trace {
        events: Vec::new(),
        count: 0,
        texts: Vec::new(),
        lanes: Vec::new(),
        names: Map::default(),
        devices: head.devices,
        problems: Problems::default(),
    };
    let mut lanes = Map::default();
    let mut texts = Texts::default();
    for piece in pieces {
        join(&mut trace, piece, &mut lanes, &mut texts, &mut problems);
    }
    trace.texts = texts.list;
    trace.problems = problems;
    if trace.count == 0 && !head.named {
        return Err(TraceError("it has no events".into()));
    }
    Ok(trace)
}

/// Ranges of the text, each from the beginning of an event.
fn cut(text: &[u8], start: usize) -> Vec<(usize, usize)> {
    let middle = start + (text.len() - start) / 2;
    match next_event(text, middle) {
        Some(second) if text.len() - start > WORTH_TWO && second > start => {
            vec![(start, second), (second, text.len())]
        }
        _ => vec![(start, text.len())],
    }
}

fn join<'a>(
    trace: &mut Trace<'a>,
    piece: Part<'a>,
    lanes: &mut Map<Lane<'a>, u32>,
    texts: &mut Texts<'a>,
    problems: &mut Problems,
) {
    let map: Vec<u32> = piece
        .lanes
        .iter()
        .map(|lane| {
            *lanes.entry(*lane).or_insert_with(|| {
                trace.lanes.push(*lane);
                trace.lanes.len() as u32 - 1
            })
        })
        .collect();
    let names: Vec<u32> = piece.texts.list.iter().map(|text| texts.number(text)).collect();
    let before = trace.count as u32;
    let own = |e: &mut Event| {
        e.uid += before;
        e.lane = map[e.lane as usize];
        e.name = names[e.name as usize];
    };
    let mut events = piece.events;
    events.iter_mut().for_each(own);
    if trace.events.is_empty() {
        trace.events = events;
    } else {
        trace.events.append(&mut events);
    }
    trace.count += piece.count;
    trace.names.extend(piece.names);
    problems.join(piece.problems);
}

/// What stands before the events.
#[derive(Default)]
struct Head {
    devices: Vec<Device>,
    named: bool,
}

impl Head {
    /// Where the first event begins, or the list ends.
    fn find_events(&mut self, text: &[u8]) -> Result<usize, TraceError> {
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

/// The events of a range of the text.
#[derive(Default)]
struct Part<'a> {
    events: Vec<Event<'a>>,
    count: usize,
    lanes: Vec<Lane<'a>>,
    lane_of: Map<Lane<'a>, u32>,
    last_lane: Option<(Lane<'a>, u32)>,
    texts: Texts<'a>,
    names: Names<'a>,
    problems: Problems,
    /// Where the event after the last one begins; `None` at the end of the list.
    ended: Option<usize>,
}

impl<'a> Part<'a> {
    /// Reads events from `from`, which may be the beginning of one, until the next would begin at
    /// `until` or the list ends.
    fn parse(text: &'a [u8], from: usize, until: Option<usize>) -> Part<'a> {
        let mut part = Part::default();
        part.events.reserve(text.len().saturating_sub(from) / EVENT_BYTES);
        let mut cursor = Cursor::new(text, from);
        loop {
            cursor.space();
            match cursor.peek() {
                Some(b',') => cursor.at += 1,
                Some(b']') => return part,
                None => {
                    part.problems.add(Severity::Loss, "the file breaks off; every whole event before was read");
                    return part;
                }
                Some(b'{') if until.is_some_and(|until| cursor.at >= until) => {
                    part.ended = Some(cursor.at);
                    return part;
                }
                Some(_) => {
                    let start = cursor.at;
                    if part.event(&mut cursor).is_err() && !part.recover(&mut cursor, start) {
                        return part;
                    }
                }
            }
        }
    }

    /// Behind a broken event, at the next that looks like one.
    fn recover(&mut self, cursor: &mut Cursor<'a>, start: usize) -> bool {
        match next_event(cursor.text, start + 1) {
            Some(next) => {
                self.problems.add(Severity::Loss, "an event that is no JSON was left out");
                self.count += 1;
                cursor.at = next;
                true
            }
            None => {
                self.problems.add(Severity::Loss, "the file breaks off; every whole event before was read");
                false
            }
        }
    }

    fn lane(&mut self, pid: &'a [u8], tid: &'a [u8]) -> u32 {
        let key = (pid, tid);
        if let Some((last, lane)) = self.last_lane
            && last == key
        {
            return lane;
        }
        let lane = *self.lane_of.entry(key).or_insert_with(|| {
            self.lanes.push(key);
            self.lanes.len() as u32 - 1
        });
        self.last_lane = Some((key, lane));
        lane
    }

    fn event(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Broken> {
        cursor.expect(b'{')?;
        let mut fields: Fields<'a> = Fields::EMPTY;
        while let Some(key) = cursor.key()? {
            match key {
                b"ph" => fields.phase = cursor.value()?,
                b"cat" => fields.category = cursor.value()?,
                b"name" => fields.name = cursor.value()?,
                b"pid" => fields.pid = cursor.value()?,
                b"tid" => fields.tid = cursor.value()?,
                b"ts" => fields.start = cursor.value()?,
                b"dur" => fields.duration = cursor.value()?,
                b"id" => fields.id = cursor.value()?,
                b"args" => fields.ties = fields.arguments(cursor)?,
                _ => {
                    cursor.value()?;
                }
            }
        }
        let uid = self.count as u32;
        self.count += 1;
        match fields.phase {
            b"\"X\"" => self.slice(&fields, uid),
            b"\"s\"" | b"\"f\"" if matches!(fields.category, b"\"ac2g\"" | b"\"async_gpu\"") => self.flow(&fields, uid),
            b"\"M\"" => self.metadata(&fields),
            b"" => self.problems.add(Severity::Warning, "an event without a phase was left out"),
            _ => {}
        }
        Ok(())
    }

    fn slice(&mut self, fields: &Fields<'a>, uid: u32) {
        let Some(category) = Category::of(bare(fields.category)) else { return };
        let (Some(start), duration) = (nanoseconds(bare(fields.start)), bare(fields.duration)) else {
            self.problems.add(Severity::Loss, "an event without a readable time was left out");
            return;
        };
        let Some(duration) = nanoseconds(duration) else {
            self.problems.add(Severity::Loss, "an event without a readable duration was left out");
            return;
        };
        if fields.name.is_empty() {
            self.problems.add(Severity::Warning, "an event has no name");
        }
        if duration < 0 {
            self.problems.add(Severity::Warning, "an event has a negative duration");
        }
        let lane = self.lane(fields.pid, fields.tid);
        let [correlation, external, sequence, stream, device] = fields.ties;
        let name = self.texts.number(bare(fields.name));
        let args = fields.args;
        self.events.push(Event {
            uid,
            category,
            name,
            lane,
            start,
            duration,
            correlation,
            external,
            sequence,
            stream,
            device,
            args,
        });
    }

    fn flow(&mut self, fields: &Fields<'a>, uid: u32) {
        let category = if fields.phase == b"\"s\"" { Category::FlowStart } else { Category::FlowEnd };
        let lane = self.lane(fields.pid, fields.tid);
        self.events.push(Event {
            uid,
            category,
            name: self.texts.number(b""),
            lane,
            start: nanoseconds(bare(fields.start)).unwrap_or(0),
            duration: 0,
            correlation: integer(bare(fields.id)).into(),
            external: Tie::NONE,
            sequence: Tie::NONE,
            stream: Tie::NONE,
            device: Tie::NONE,
            args: b"",
        });
    }

    fn metadata(&mut self, fields: &Fields<'a>) {
        let mut cursor = Cursor::new(fields.args, 0);
        if cursor.expect(b'{').is_err() {
            return;
        }
        while let Ok(Some(key)) = cursor.key() {
            let Ok(value) = cursor.value() else { return };
            if matches!(key, b"name" | b"labels") {
                self.names.insert((fields.pid, fields.tid, bare(fields.name)), unescaped(bare(value)));
            }
        }
    }
}

/// Without the quotes, where there are some.
fn bare(text: &[u8]) -> &[u8] {
    match text {
        [b'"', inner @ .., b'"'] => inner,
        other => other,
    }
}

struct Fields<'a> {
    phase: &'a [u8],
    category: &'a [u8],
    name: &'a [u8],
    pid: &'a [u8],
    tid: &'a [u8],
    start: &'a [u8],
    duration: &'a [u8],
    id: &'a [u8],
    args: &'a [u8],
    ties: Ties,
}

/// Correlation, external id, sequence number, stream and device.
type Ties = [Tie; 5];

impl<'a> Fields<'a> {
    const EMPTY: Fields<'static> = Fields {
        phase: b"",
        category: b"",
        name: b"",
        pid: b"",
        tid: b"",
        start: b"",
        duration: b"",
        id: b"",
        args: b"",
        ties: [Tie::NONE; 5],
    };

    /// The arguments, and among them the numbers that tie events together.
    fn arguments(&mut self, cursor: &mut Cursor<'a>) -> Result<Ties, Broken> {
        let mut ties = [Tie::NONE; 5];
        cursor.space();
        let start = cursor.at;
        if cursor.peek() != Some(b'{') {
            self.args = cursor.value()?;
            return Ok(ties);
        }
        cursor.at += 1;
        while let Some(key) = cursor.key()? {
            let value = cursor.value()?;
            let place = match key {
                b"correlation" => 0,
                b"External id" | b"external id" => 1,
                b"Sequence number" => 2,
                b"stream" => 3,
                b"device" => 4,
                _ => continue,
            };
            ties[place] = integer(bare(value)).into();
        }
        self.args = &cursor.text[start..cursor.at];
        Ok(ties)
    }
}
