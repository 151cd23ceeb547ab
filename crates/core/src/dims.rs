//! Sizes and strides of a tensor, held inline: the interpreter makes tens of thousands of views.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::{Deref, DerefMut};

/// Up to [`Dims::MAX`] integers, one per dimension.
#[derive(Clone, Copy)]
pub struct Dims {
    values: [i64; Dims::MAX],
    rank: u8,
}

impl Dims {
    /// The most dimensions any tensor of a supported model has.
    pub const MAX: usize = 6;

    /// `rank` dimensions, each `value`.
    ///
    /// # Panics
    /// If `rank > Dims::MAX`.
    pub fn filled(rank: usize, value: i64) -> Dims {
        assert!(rank <= Dims::MAX, "a tensor of {rank} dimensions");
        Dims { values: [value; Dims::MAX], rank: rank as u8 }
    }

    /// A copy of `values`.
    ///
    /// # Panics
    /// If there are more than `Dims::MAX`.
    pub fn new(values: &[i64]) -> Dims {
        let mut dims = Dims::filled(values.len(), 0);
        dims.copy_from_slice(values);
        dims
    }

    /// The same with `value` put in before position `at`.
    pub fn with(&self, at: usize, value: i64) -> Dims {
        let mut dims = Dims::filled(self.len() + 1, value);
        dims[..at].copy_from_slice(&self[..at]);
        dims[at + 1..].copy_from_slice(&self[at..]);
        dims
    }

    /// The same without position `at`.
    pub fn without(&self, at: usize) -> Dims {
        let mut dims = Dims::filled(self.len() - 1, 0);
        dims[..at].copy_from_slice(&self[..at]);
        dims[at..].copy_from_slice(&self[at + 1..]);
        dims
    }

    /// The same with position `at` set to `value`.
    pub fn set(&self, at: usize, value: i64) -> Dims {
        let mut dims = *self;
        dims[at] = value;
        dims
    }
}

impl Deref for Dims {
    type Target = [i64];
    fn deref(&self) -> &[i64] {
        &self.values[..self.rank as usize]
    }
}

impl DerefMut for Dims {
    fn deref_mut(&mut self) -> &mut [i64] {
        &mut self.values[..self.rank as usize]
    }
}

impl PartialEq for Dims {
    fn eq(&self, other: &Dims) -> bool {
        **self == **other
    }
}

impl Eq for Dims {}

impl std::hash::Hash for Dims {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl std::fmt::Debug for Dims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

impl Serialize for Dims {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (**self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Dims {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Dims, D::Error> {
        let values = Vec::<i64>::deserialize(deserializer)?;
        if values.len() > Dims::MAX {
            return Err(serde::de::Error::custom(format!("a tensor of {} dimensions", values.len())));
        }
        Ok(Dims::new(&values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_come_and_go() {
        let dims = Dims::new(&[2, 3, 5]);
        assert_eq!(dims.with(1, 7), Dims::new(&[2, 7, 3, 5]));
        assert_eq!(dims.without(0), Dims::new(&[3, 5]));
        assert_eq!(dims.with(3, 9).without(3), dims);
        assert_eq!(dims.set(2, 1), Dims::new(&[2, 3, 1]));
    }
}
