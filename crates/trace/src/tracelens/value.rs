//! Values as Python has them, for parameters that Python's tables print.

use crate::python::{float, quote};

/// A parameter of a model.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Param {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Tuple(Vec<Param>),
    List(Vec<Param>),
}

impl Param {
    /// As Python's `repr`.
    pub fn repr(&self) -> String {
        let inner = |items: &[Param]| items.iter().map(Param::repr).collect::<Vec<_>>().join(", ");
        match self {
            Param::None => "None".into(),
            Param::Bool(value) => if *value { "True" } else { "False" }.into(),
            Param::Int(value) => value.to_string(),
            Param::Float(value) => float(*value),
            Param::Text(text) => {
                let mut out = String::new();
                quote(text, &mut out);
                out
            }
            Param::Tuple(items) if items.len() == 1 => format!("({},)", items[0].repr()),
            Param::Tuple(items) => format!("({})", inner(items)),
            Param::List(items) => format!("[{}]", inner(items)),
        }
    }

    /// As Python's `str`.
    pub fn text(&self) -> String {
        if let Param::Text(text) = self { text.clone() } else { self.repr() }
    }

    /// A number, in the sense of a column of numbers.
    pub fn is_number(&self) -> bool {
        matches!(self, Param::Int(_) | Param::Float(_))
    }

    /// A tuple of integers.
    pub fn ints(values: &[i64]) -> Param {
        Param::Tuple(values.iter().map(|v| Param::Int(*v)).collect())
    }

    /// A tuple of texts.
    pub fn texts<S: AsRef<str>>(values: &[S]) -> Param {
        Param::Tuple(values.iter().map(|v| Param::Text(v.as_ref().into())).collect())
    }
}

impl From<i64> for Param {
    fn from(value: i64) -> Param {
        Param::Int(value)
    }
}

impl From<f64> for Param {
    fn from(value: f64) -> Param {
        Param::Float(value)
    }
}

impl From<bool> for Param {
    fn from(value: bool) -> Param {
        Param::Bool(value)
    }
}

impl From<&str> for Param {
    fn from(value: &str) -> Param {
        Param::Text(value.into())
    }
}

impl From<String> for Param {
    fn from(value: String) -> Param {
        Param::Text(value)
    }
}

impl<T: Into<Param>> From<Option<T>> for Param {
    fn from(value: Option<T>) -> Param {
        value.map_or(Param::None, Into::into)
    }
}
