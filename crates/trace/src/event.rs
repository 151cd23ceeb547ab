//! What a trace holds, typed; texts are slices of the file.

use crate::fast::Map;
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
        matches!(self, Category::CpuOp | Category::Runtime | Category::Driver)
    }
}

/// A number that may be missing, in eight bytes: there are many of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// One event. Places in `Trace::events` are in order of the file.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    /// Its index among all events of the file, those that are not kept counted too.
    pub uid: u32,
    /// Its kind.
    pub category: Category,
    /// Its name: an index into `Trace::texts`.
    pub name: u32,
    /// Process and thread, or device and stream: an index into `Trace::lanes`.
    pub lane: u32,
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
    /// Stream of a GPU event.
    pub stream: Tie,
    /// Device of a GPU event.
    pub device: Tie,
    /// The text of its arguments, with their braces.
    pub args: &'a [u8],
}

impl<'a> Event<'a> {
    /// The text of one argument.
    pub fn arg(&self, name: &str) -> Option<&'a [u8]> {
        let mut cursor = crate::scan::Cursor::new(self.args, 0);
        cursor.expect(b'{').ok()?;
        while let Ok(Some(key)) = cursor.key() {
            let value = cursor.value().ok()?;
            if key == name.as_bytes() {
                return Some(value);
            }
        }
        None
    }

    /// Nanoseconds at which it ends.
    pub fn end(&self) -> i64 {
        self.start.saturating_add(self.duration)
    }
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

/// Process, thread and kind of name, and the name.
pub type Names<'a> = Map<(&'a [u8], &'a [u8], &'a [u8]), String>;

/// A file, read.
pub struct Trace<'a> {
    /// What is kept, in order of the file.
    pub events: Vec<Event<'a>>,
    /// How many events the file has.
    pub count: usize,
    /// Names, each once, as written, escapes and all.
    pub texts: Vec<&'a [u8]>,
    /// Process and thread of each lane, as written.
    pub lanes: Vec<(&'a [u8], &'a [u8])>,
    /// (process, thread, kind) and the name that metadata gives it; the kind is as in the file.
    pub names: Names<'a>,
    /// From the file's head.
    pub devices: Vec<Device>,
    /// What was wrong.
    pub problems: Problems,
}

impl<'a> Trace<'a> {
    /// The name of the event at `place`, as written.
    pub fn name(&self, place: u32) -> &'a [u8] {
        self.texts[self.events[place as usize].name as usize]
    }

    /// There is something of the host in it, not only of the GPU.
    pub fn has_operations(&self) -> bool {
        self.events.iter().any(|e| e.category == Category::CpuOp)
    }
}
