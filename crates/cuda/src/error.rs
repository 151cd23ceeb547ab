//! What can go wrong, with how to mend it.

/// A library of CUDA's that is not here, or lacks a function.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {why}; {how}")]
pub struct Absent {
    /// Such as `libcuda`.
    pub name: &'static str,
    /// What happened.
    pub why: String,
    /// How to get it.
    pub how: &'static str,
}

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum CudaError {
    #[error(transparent)]
    Absent(#[from] Absent),
    #[error("{call}: {why}")]
    Call { call: &'static str, why: String },
    #[error("the kernel does not compile ({why}):\n{log}")]
    Compile { why: String, log: String },
    #[error("{0}")]
    Refused(String),
}
