//! Why a layer did not compute.

use gemwright_engine::MultiplyError;

/// Why a layer did not compute.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum LayerError {
    #[error("{0}")]
    Multiply(#[from] MultiplyError),
    #[error("{what} has {given} elements, the layer needs {needed}")]
    Size { what: &'static str, given: usize, needed: usize },
    #[error("{what} has {given} elements, which is no multiple of {of}")]
    Multiple { what: &'static str, given: usize, of: usize },
    #[error("{0}")]
    Shape(String),
    #[error("{path}: {why}")]
    File { path: String, why: String },
}

/// A slice has as many elements as are needed.
pub(crate) fn sized(what: &'static str, given: usize, needed: Option<usize>) -> Result<(), LayerError> {
    let needed = needed.unwrap_or(usize::MAX);
    if given == needed { Ok(()) } else { Err(LayerError::Size { what, given, needed }) }
}

/// A view of so many of each, so far apart, lies in a slice, and is no longer than one can be.
pub(crate) fn reaches(what: &'static str, given: usize, extents: &[(usize, usize)]) -> Result<(), LayerError> {
    if extents.iter().any(|(count, _)| *count == 0) {
        return Ok(());
    }
    if extents.iter().any(|(count, step)| *count > 1 && *step == 0) {
        return Err(LayerError::Shape(format!("parts of {what} lie on each other")));
    }
    let steps = extents.iter().try_fold(0usize, |sum, (count, step)| sum.checked_add((count - 1).checked_mul(*step)?));
    let all = extents.iter().try_fold(8usize, |all, (count, _)| all.checked_mul(*count));
    let needed = steps.filter(|_| all.is_some_and(|bytes| isize::try_from(bytes).is_ok()));
    match needed.and_then(|last| last.checked_add(1)) {
        Some(needed) if given >= needed => Ok(()),
        needed => Err(LayerError::Size { what, given, needed: needed.unwrap_or(usize::MAX) }),
    }
}
