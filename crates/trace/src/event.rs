//! What a trace holds, typed. Nothing here borrows from the file: texts are kept once each, and events
//! have their numbers.

use crate::fast::{Map, Text};
use crate::problems::Problems;

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Category {
    CpuOp,
    Runtime,
    Driver,
    Kernel,
    Memcpy,
    Memset,
    /// The start or the end of an arrow from a launch to its GPU event.
    FlowStart,
    FlowEnd,
    /// A range named by the user, on the host or on the GPU.
    Annotation,
    /// A module of the model, from Python.
    Module,
}

impl Category {
    /// The name in the file; newer and older spellings.
    pub(crate) fn of(name: &[u8]) -> Option<Category> {
        Some(match name {
            b"cpu_op" | b"Operator" => Category::CpuOp,
            b"cuda_runtime" | b"Runtime" => Category::Runtime,
            b"cuda_driver" => Category::Driver,
            b"kernel" | b"Kernel" => Category::Kernel,
            b"gpu_memcpy" | b"Memcpy" => Category::Memcpy,
            b"gpu_memset" | b"Memset" => Category::Memset,
            b"user_annotation" | b"gpu_user_annotation" => Category::Annotation,
            _ => return None,
        })
    }

    /// It ran on the GPU.
    pub fn on_gpu(self) -> bool {
        matches!(self, Category::Kernel | Category::Memcpy | Category::Memset)
    }

    /// It ran on the host and nests.
    pub fn on_host(self) -> bool {
        matches!(self, Category::CpuOp | Category::Runtime | Category::Driver | Category::Module)
    }

    /// It asks the driver for something.
    pub fn is_call(self) -> bool {
        matches!(self, Category::Runtime | Category::Driver)
    }
}

/// A number that may be missing, in eight bytes: there are many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tie(i64);

impl Tie {
    /// There is none.
    pub const NONE: Tie = Tie(i64::MIN);

    /// The number, if there is one.
    #[inline]
    pub fn get(self) -> Option<i64> {
        (self != Tie::NONE).then_some(self.0)
    }
}

impl From<Option<i64>> for Tie {
    fn from(number: Option<i64>) -> Tie {
        number.map_or(Tie::NONE, Tie)
    }
}

/// The four lists of arguments of an operation, each the number of a text or [`NO_TEXT`]: sizes, types,
/// strides, values.
pub type Lists = [u32; 4];

/// A list that is not in the file.
pub const NO_TEXT: u32 = u32::MAX;

/// Their names in the file.
pub const LIST_NAMES: [&[u8]; 4] = [b"Input Dims", b"Input type", b"Input Strides", b"Concrete Inputs"];

/// What the profiler wrote of an exchange between GPUs, and the grid of a kernel, each the number of a
/// text or [`NO_TEXT`].
pub type Exchange = [u32; 10];

/// Their names in the file.
pub const EXCHANGE_NAMES: [&[u8]; 10] = [
    b"Process Group Name",
    b"Process Group Ranks",
    b"Collective name",
    b"Group size",
    b"dtype",
    b"In msg nelems",
    b"Out msg nelems",
    b"In split size",
    b"Out split size",
    b"grid",
];

/// The place of the grid among them.
pub const GRID: usize = 9;

/// One event. Places in `Trace::events` are in order of the file.
#[derive(Debug, Clone, Copy)]
pub struct Event {
    /// Its index among all events of the file, those that are not kept counted too.
    pub uid: u32,
    /// Its name: an index into `Trace::texts`.
    pub name: u32,
    /// Process and thread, or device and stream: an index into `Trace::lanes`.
    pub lane: u32,
    /// Stream and device of a GPU event: an index into `Trace::queues`.
    pub queue: u32,
    /// What an operation was given: an index into `Trace::arguments`; of a GPU event, one into
    /// `Trace::exchanges`.
    pub arguments: u32,
    /// Its kind.
    pub category: Category,
    /// Nanoseconds.
    pub start: i64,
    /// Nanoseconds.
    pub duration: i64,
    /// Ties a launch to what it launched; of a flow, its id.
    pub correlation: Tie,
    /// Ties an operation to what it launched.
    pub external: Tie,
    /// Ties a forward to its backward.
    pub sequence: Tie,
}

impl Event {
    /// Nanoseconds at which it ends.
    pub fn end(&self) -> i64 {
        self.start.saturating_add(self.duration)
    }
}

/// Where a GPU event ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Queue {
    pub stream: Tie,
    pub device: Tie,
}

/// A GPU of the file's head.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// As the profiler numbers it.
    pub id: i64,
    /// As the driver names it.
    pub name: String,
    /// Streaming multiprocessors or compute units.
    pub units: Option<i64>,
    /// Bytes.
    pub memory: Option<i64>,
}

/// Process, thread and kind of name, as written, and the name.
pub type Names = Map<[Text; 3], String>;

/// A file, read.
#[derive(Default)]
pub struct Trace {
    /// What is kept, in order of the file.
    pub events: Vec<Event>,
    /// How many events the file has.
    pub count: usize,
    /// Names and arguments, each once, as written, escapes and all.
    pub texts: Vec<Text>,
    /// Process and thread of each lane: numbers of texts.
    pub lanes: Vec<(u32, u32)>,
    /// Streams and devices.
    pub queues: Vec<Queue>,
    /// Arguments of operations.
    pub arguments: Vec<Lists>,
    /// What kernels exchange between GPUs; the first is nothing.
    pub exchanges: Vec<Exchange>,
    /// What metadata calls processes and threads; the kind is as in the file.
    pub names: Names,
    /// From the file's head.
    pub devices: Vec<Device>,
    /// What was wrong.
    pub problems: Problems,
}

impl Trace {
    /// The name of the event at `place`, as written.
    pub fn name(&self, place: u32) -> &[u8] {
        &self.texts[self.events[place as usize].name as usize]
    }

    /// One list of an event's arguments, as written.
    pub fn list(&self, event: &Event, which: usize) -> Option<&[u8]> {
        // A GPU event's number is one of an exchange.
        let lists = self.arguments.get(event.arguments as usize).filter(|_| !event.category.on_gpu())?;
        let number = lists[which];
        self.texts.get(number as usize).map(|text| &**text)
    }

    /// One fact about the exchange a kernel makes, as written.
    pub fn exchange(&self, event: &Event, which: usize) -> Option<&[u8]> {
        let facts = self.exchanges.get(event.arguments as usize).filter(|_| event.category.on_gpu())?;
        let number = facts[which];
        self.texts.get(number as usize).map(|text| &**text)
    }

    /// Blocks of a kernel in each direction, where that is recorded.
    pub fn grid(&self, event: &Event) -> Option<[u64; 3]> {
        let text = std::str::from_utf8(self.exchange(event, GRID)?).ok()?;
        let mut numbers = text.trim_matches(['[', ']']).split(',').map(|n| n.trim().parse::<u64>().ok());
        Some([numbers.next()??, numbers.next()??, numbers.next()??])
    }

    /// Where a GPU event ran.
    pub fn queue(&self, event: &Event) -> Queue {
        self.queues[event.queue as usize]
    }

    /// The process of a lane, as written.
    pub fn process(&self, lane: u32) -> u32 {
        self.lanes[lane as usize].0
    }

    /// There is something of the host in it, not only of the GPU.
    pub fn has_operations(&self) -> bool {
        self.events.iter().any(|e| e.category == Category::CpuOp)
    }
}
