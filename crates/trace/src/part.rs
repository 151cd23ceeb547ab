//! The events of one chunk of the text, typed, with numbers of their own for texts and lanes.

use crate::chunk::next_event;
use crate::event::{Category, EXCHANGE_NAMES, Event, Exchange, LIST_NAMES, Lists, NO_TEXT, Queue, Tie};
use crate::fast::{Map, Numbers};
use crate::number::{integer, nanoseconds};
use crate::problems::{Problems, Severity};
use crate::scan::{Broken, Cursor, unescaped};

/// What is kept beside operations, calls and GPU events.
#[derive(Debug, Clone, Copy, Default)]
pub struct Keep {
    /// Arrows from launches to kernels.
    pub arrows: bool,
    /// Modules among Python's frames.
    pub modules: bool,
}

/// How a chunk ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Behind a whole event.
    Clean,
    /// In an event that began here.
    Inside(usize),
    /// With the list of events.
    List,
}

/// Process, thread and kind as written, and the name they are given.
type Named<'a> = ([&'a [u8]; 3], String);

/// What a chunk holds.
pub struct Part<'a> {
    pub events: Vec<Event>,
    /// Events of every kind.
    pub count: usize,
    pub texts: Numbers<&'a [u8]>,
    pub lanes: Numbers<(u32, u32)>,
    pub queues: Numbers<Queue>,
    pub arguments: Numbers<Lists>,
    pub exchanges: Numbers<Exchange>,
    pub names: Vec<Named<'a>>,
    pub problems: Problems,
    pub end: End,
    keep: Keep,
    last_lane: Option<([&'a [u8]; 2], u32)>,
    guess: Guess<'a>,
}

/// Operations come in the same order layer after layer: what followed the last arguments before
/// probably follows them again, and one comparison of bytes says so without reading them.
#[derive(Default)]
struct Guess<'a> {
    /// The text of each set of arguments, where it is in one piece.
    text: Vec<&'a [u8]>,
    /// What came after each.
    after: Vec<u32>,
    last: usize,
}

impl<'a> Guess<'a> {
    fn next(&self) -> Option<(u32, &'a [u8])> {
        let number = *self.after.get(self.last)?;
        let text = self.text.get(number as usize)?;
        (!text.is_empty()).then_some((number, text))
    }

    fn saw(&mut self, number: u32, text: &'a [u8]) {
        if self.text.len() <= number as usize {
            self.text.resize(number as usize + 1, b"");
            self.after.resize(number as usize + 1, 0);
        }
        // A list ends with its bracket, whatever follows; a number might go on.
        if text.ends_with(b"]") {
            self.text[number as usize] = text;
        }
        if let Some(after) = self.after.get_mut(self.last) {
            *after = number;
        }
        self.last = number as usize;
    }
}

/// Arguments that nobody gave.
const NOTHING: Lists = [NO_TEXT; 4];
const NO_EXCHANGE: Exchange = [NO_TEXT; EXCHANGE_NAMES.len()];

impl<'a> Part<'a> {
    /// Reads the events of `text` from `from`. `last`: nothing comes behind it.
    pub fn parse(text: &'a [u8], from: usize, last: bool, keep: Keep) -> Part<'a> {
        let mut part = Part {
            events: Vec::with_capacity(text.len() / 400),
            count: 0,
            texts: Numbers::default(),
            lanes: Numbers::default(),
            queues: Numbers::default(),
            arguments: Numbers::default(),
            exchanges: Numbers::default(),
            names: Vec::new(),
            problems: Problems::default(),
            end: End::Clean,
            keep,
            last_lane: None,
            guess: Guess::default(),
        };
        part.arguments.of(NOTHING);
        part.exchanges.of(NO_EXCHANGE);
        part.queues.of(Queue { stream: Tie::NONE, device: Tie::NONE });
        part.end = part.read(&mut Cursor::new(text, from), last);
        part
    }

    fn read(&mut self, cursor: &mut Cursor<'a>, last: bool) -> End {
        let mut wasted = 0;
        loop {
            cursor.separator();
            match cursor.peek() {
                Some(b',') => {}
                Some(b']') => return End::List,
                None if last => {
                    self.problems.add(Severity::Loss, BREAKS_OFF);
                    return End::Clean;
                }
                None => return End::Clean,
                Some(_) => {
                    let start = cursor.at;
                    if self.event(cursor).is_ok() {
                        continue;
                    }
                    let ran_out = cursor.at >= cursor.text.len();
                    if ran_out && !last {
                        return End::Inside(start);
                    }
                    wasted += cursor.at - start;
                    if wasted > MOST_WASTED * cursor.text.len() {
                        self.problems.add(Severity::Loss, "a stretch of the file is no JSON and was left out");
                        return End::Clean;
                    }
                    // Behind a broken event, at the next that looks like one.
                    let Some(next) = next_event(cursor.text, start + 1) else {
                        self.problems.add(Severity::Loss, if last { BREAKS_OFF } else { NO_JSON });
                        self.count += usize::from(!last);
                        return End::Clean;
                    };
                    self.problems.add(Severity::Loss, NO_JSON);
                    self.count += 1;
                    cursor.at = next;
                }
            }
        }
    }

    fn event(&mut self, cursor: &mut Cursor<'a>) -> Result<(), Broken> {
        cursor.expect(b'{')?;
        let mut fields: Fields<'a> = Fields::EMPTY;
        while let Some(key) = cursor.key()? {
            match key {
                b"ph" => fields.phase = cursor.value()?,
                b"cat" => {
                    fields.category = cursor.value()?;
                    if !self.keeps(&fields) {
                        cursor.close()?;
                        break;
                    }
                }
                b"name" => fields.name = cursor.value()?,
                b"pid" => fields.pid = cursor.value()?,
                b"tid" => fields.tid = cursor.value()?,
                b"ts" => fields.start = cursor.value()?,
                b"dur" => fields.duration = cursor.value()?,
                b"id" => fields.id = cursor.value()?,
                b"args" => self.arguments(cursor, &mut fields)?,
                _ => {
                    cursor.value()?;
                }
            }
        }
        let uid = self.count as u32;
        self.count += 1;
        match fields.phase {
            b"\"X\"" => self.slice(&fields, uid),
            b"\"s\"" | b"\"f\"" if self.keeps(&fields) => self.flow(&fields, uid),
            b"\"M\"" => self.metadata(&fields),
            b"" => self.problems.add(Severity::Warning, "an event without a phase was left out"),
            _ => {}
        }
        Ok(())
    }

    /// The kind of a slice, where it is one that is kept: of Python's frames only modules, where asked for.
    fn category(&self, fields: &Fields) -> Option<Category> {
        let kind = bare(fields.category);
        Category::of(kind).or_else(|| (self.keep.modules && kind == b"python_function").then_some(Category::Module))
    }

    /// By phase and category it may be an event that is kept.
    fn keeps(&self, fields: &Fields) -> bool {
        match fields.phase {
            b"\"X\"" => self.category(fields).is_some(),
            b"\"s\"" | b"\"f\"" => self.keep.arrows && matches!(fields.category, b"\"ac2g\"" | b"\"async_gpu\""),
            b"\"M\"" | b"" => true,
            _ => false,
        }
    }

    fn lane(&mut self, fields: &Fields<'a>) -> u32 {
        let key = [fields.pid, fields.tid];
        if let Some((last, lane)) = self.last_lane
            && last == key
        {
            return lane;
        }
        let [process, thread] = key.map(|text| self.texts.of(text));
        let lane = self.lanes.of((process, thread));
        self.last_lane = Some((key, lane));
        lane
    }

    fn slice(&mut self, fields: &Fields<'a>, uid: u32) {
        let Some(category) = self.category(fields) else { return };
        if category == Category::Module && !bare(fields.name).starts_with(b"nn.Module: ") {
            return;
        }
        let Some(start) = nanoseconds(bare(fields.start)) else {
            self.problems.add(Severity::Loss, "an event without a readable time was left out");
            return;
        };
        let Some(duration) = nanoseconds(bare(fields.duration)) else {
            self.problems.add(Severity::Loss, "an event without a readable duration was left out");
            return;
        };
        if fields.name.is_empty() {
            self.problems.add(Severity::Warning, "an event has no name");
        }
        if duration < 0 {
            self.problems.add(Severity::Warning, "an event has a negative duration");
        }
        let [correlation, external, sequence, stream, device] = fields.ties;
        let (name, lane) = (self.texts.of(bare(fields.name)), self.lane(fields));
        self.events.push(Event {
            uid,
            name,
            lane,
            queue: if category.on_gpu() { self.queues.of(Queue { stream, device }) } else { 0 },
            arguments: if category.on_gpu() { self.exchanges.of(fields.exchange) } else { fields.arguments },
            category,
            start,
            duration,
            correlation,
            external,
            sequence,
        });
    }

    fn flow(&mut self, fields: &Fields<'a>, uid: u32) {
        let (name, lane) = (self.texts.of(b""), self.lane(fields));
        self.events.push(Event {
            uid,
            name,
            lane,
            queue: 0,
            arguments: 0,
            category: if fields.phase == b"\"s\"" { Category::FlowStart } else { Category::FlowEnd },
            start: nanoseconds(bare(fields.start)).unwrap_or(0),
            duration: 0,
            correlation: integer(bare(fields.id)).into(),
            external: Tie::NONE,
            sequence: Tie::NONE,
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
                let key = [fields.pid, fields.tid, bare(fields.name)];
                self.names.push((key, unescaped(bare(value))));
            }
        }
    }

    /// The arguments: the numbers that tie events together, and the lists an operation was given.
    fn arguments(&mut self, cursor: &mut Cursor<'a>, fields: &mut Fields<'a>) -> Result<(), Broken> {
        cursor.space();
        let start = cursor.at;
        if cursor.peek() != Some(b'{') {
            fields.args = cursor.value()?;
            return Ok(());
        }
        cursor.at += 1;
        let mut lists = NOTHING;
        let mut known = None;
        // From the first list to the end of the last, if nothing else stands between.
        let mut piece: Option<(usize, usize)> = None;
        loop {
            cursor.separator();
            let at = cursor.at;
            if let Some((number, text)) = self.guess.next()
                && piece.is_none()
                && cursor.text[at..].starts_with(text)
            {
                cursor.at += text.len();
                piece = Some((at, cursor.at));
                known = Some(number);
                lists = self.arguments.list[number as usize];
                continue;
            }
            let Some(key) = cursor.key()? else { break };
            let value = cursor.value()?;
            let place = match key {
                b"correlation" => 0,
                b"External id" | b"external id" => 1,
                b"Sequence number" => 2,
                b"stream" => 3,
                b"device" => 4,
                _ => {
                    if let Some(list) = LIST_NAMES.iter().position(|name| *name == key) {
                        lists[list] = self.texts.of(value);
                        known = None;
                        let whole = |(_, end)| cursor.text.get(end..at).is_some_and(only_separates);
                        let end = if piece.is_none_or(whole) { cursor.at } else { usize::MAX };
                        piece = Some((piece.map_or(at, |p| p.0), end));
                    } else if let Some(fact) = EXCHANGE_NAMES.iter().position(|name| *name == key) {
                        fields.exchange[fact] = self.texts.of(value);
                    }
                    continue;
                }
            };
            fields.ties[place] = integer(bare(value)).into();
        }
        if let Some((from, to)) = piece {
            fields.arguments = known.unwrap_or_else(|| self.arguments.of(lists));
            self.guess.saw(fields.arguments, cursor.text.get(from..to).unwrap_or(b""));
        }
        fields.args = &cursor.text[start..cursor.at];
        Ok(())
    }
}

/// Broken events may be read over and over, each to the end of the text; so many times its length is enough.
const MOST_WASTED: usize = 64;

const NO_JSON: &str = "an event that is no JSON was left out";
/// What is said of a file that ends too early.
const BREAKS_OFF: &str = "the file breaks off; every whole event before was read";

fn only_separates(text: &[u8]) -> bool {
    text.iter().all(|c| *c == b',' || c.is_ascii_whitespace())
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
    /// Correlation, external id, sequence number, stream and device.
    ties: [Tie; 5],
    arguments: u32,
    exchange: Exchange,
}

impl Fields<'_> {
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
        arguments: 0,
        exchange: NO_EXCHANGE,
    };
}

/// A part that no longer borrows from its text, and can go to another thread.
pub struct Piece {
    pub events: Vec<Event>,
    pub count: usize,
    pub texts: Vec<Box<[u8]>>,
    pub lanes: Vec<(u32, u32)>,
    pub queues: Vec<Queue>,
    pub arguments: Vec<Lists>,
    pub exchanges: Vec<Exchange>,
    pub names: Map<[Box<[u8]>; 3], String>,
    pub problems: Problems,
    pub end: End,
}

impl From<Part<'_>> for Piece {
    fn from(part: Part<'_>) -> Piece {
        Piece {
            events: part.events,
            count: part.count,
            texts: part.texts.list.into_iter().map(Into::into).collect(),
            lanes: part.lanes.list,
            queues: part.queues.list,
            arguments: part.arguments.list,
            exchanges: part.exchanges.list,
            names: part.names.into_iter().map(|(key, name)| (key.map(Into::into), name)).collect(),
            problems: part.problems,
            end: part.end,
        }
    }
}
