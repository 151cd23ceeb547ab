//! What ranks exchange when a model is split over several.

use crate::Pass;
use std::sync::Arc;

/// How ranks exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectiveKind {
    /// Each has a sum's part, each gets the sum.
    AllReduce,
    /// Each has a slice, each gets the whole.
    AllGather,
}

impl CollectiveKind {
    /// Every way.
    pub const ALL: [CollectiveKind; 2] = [CollectiveKind::AllReduce, CollectiveKind::AllGather];

    /// The name used in all output.
    pub fn name(self) -> &'static str {
        match self {
            CollectiveKind::AllReduce => "all_reduce",
            CollectiveKind::AllGather => "all_gather",
        }
    }
}

/// One exchange, merged over equal repetitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collective {
    /// How.
    pub kind: CollectiveKind,
    /// In which pass.
    pub pass: Pass,
    /// The module after which, or backward before which, it happens.
    pub module: Arc<str>,
    /// Bytes of the whole tensor, as each rank holds it afterwards.
    pub bytes: u128,
    /// How often.
    pub count: u64,
}
