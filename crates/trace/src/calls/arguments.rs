//! The arguments of an operation as the profiler wrote them, typed. Texts are compared with words,
//! never evaluated.

use crate::event::{Event, Trace};
use crate::scan::{Cursor, unescaped};
use gemwright_core::{DType, View};

/// One entry of the lists each.
pub struct Arguments {
    sizes: Vec<Vec<i64>>,
    /// Of lists of tensors, the sizes of each.
    lists: Vec<Vec<Vec<i64>>>,
    types: Vec<String>,
    strides: Option<Vec<Vec<i64>>>,
    values: Vec<String>,
}

/// The entries of a JSON list, as written.
fn entries(list: &[u8]) -> Vec<&[u8]> {
    let mut cursor = Cursor::new(list, 0);
    let mut found = Vec::new();
    if cursor.expect(b'[').is_err() {
        return found;
    }
    loop {
        cursor.separator();
        match cursor.peek() {
            None | Some(b']') => return found,
            Some(_) => match cursor.value() {
                Ok(value) => found.push(value),
                Err(_) => return found,
            },
        }
    }
}

fn integers(list: &[u8]) -> Vec<i64> {
    // A list of tensors has a list in place of each number: none of them is one tensor.
    entries(list).into_iter().map(|n| crate::number::integer(n).unwrap_or(-1)).collect()
}

/// The lists in a list; none where it holds numbers.
fn nested(list: &[u8]) -> Vec<Vec<i64>> {
    entries(list).into_iter().filter(|entry| entry.starts_with(b"[")).map(integers).collect()
}

fn words(list: &[u8]) -> Vec<String> {
    entries(list).into_iter().map(|word| unescaped(word.trim_ascii()).trim_matches('"').to_string()).collect()
}

/// The profiler's name of an element type.
fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "c10::BFloat16" => DType::Bf16,
        "c10::Half" => DType::F16,
        "float" => DType::F32,
        "double" => DType::F64,
        "c10::Float8_e4m3fn" | "c10::Float8_e4m3fnuz" => DType::F8E4m3,
        "c10::Float8_e5m2" | "c10::Float8_e5m2fnuz" => DType::F8E5m2,
        "c10::complex<float>" => DType::C64,
        "c10::complex<double>" => DType::C128,
        "signed char" => DType::I8,
        "int" => DType::I32,
        "bool" => DType::Bool,
        _ => return None,
    })
}

impl Arguments {
    /// Of an operation whose shapes nobody recorded.
    pub const NONE: Arguments =
        Arguments { sizes: Vec::new(), lists: Vec::new(), types: Vec::new(), strides: None, values: Vec::new() };

    /// Of an operation; `None` where its sizes or types were not recorded.
    pub fn of(trace: &Trace, event: &Event) -> Option<Arguments> {
        let list = |which: usize| trace.list(event, which);
        let lists = |text: &[u8]| entries(text).into_iter().map(integers).collect::<Vec<_>>();
        Some(Arguments {
            sizes: lists(list(0)?),
            lists: entries(list(0)?).into_iter().map(nested).collect(),
            types: words(list(1)?),
            strides: list(2).map(lists),
            values: list(3).map(words).unwrap_or_default(),
        })
    }

    /// The tensor at a place, which must be there.
    pub fn tensor(&self, at: usize) -> Result<View, String> {
        let kind = self.types.get(at).map_or("", String::as_str);
        let dtype = dtype(kind).ok_or_else(|| format!("argument {at} is no tensor of a known type (`{kind}`)"))?;
        let size = self.sizes.get(at).ok_or_else(|| format!("argument {at} has no size"))?;
        let stride = self.strides.as_ref().and_then(|strides| strides.get(at));
        View::checked(size, stride.map(Vec::as_slice), dtype).map_err(|why| format!("argument {at}: {why}"))
    }

    /// The tensor at a place, if one was given.
    pub fn optional(&self, at: usize) -> Result<Option<View>, String> {
        match self.types.get(at).map_or("", String::as_str) {
            "" | "None" => Ok(None),
            _ => self.tensor(at).map(Some),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.types.len()
    }

    /// Size and type of an entry, as written.
    pub fn raw(&self, at: usize) -> Option<(&[i64], &str)> {
        Some((self.sizes.get(at)?, self.types.get(at)?))
    }

    /// The strides of an entry, where they were recorded.
    pub fn stride(&self, at: usize) -> Option<&[i64]> {
        self.strides.as_ref().and_then(|strides| strides.get(at)).map(Vec::as_slice)
    }

    /// The sizes of a list of tensors.
    pub fn tensors(&self, at: usize) -> &[Vec<i64>] {
        self.lists.get(at).map_or(&[], Vec::as_slice)
    }

    /// Dimensions as a list or a number; none where neither stands.
    pub fn dimensions(&self, at: usize) -> Vec<i64> {
        let text = self.value(at).trim();
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        inner.split(',').filter_map(|word| word.trim().parse().ok()).collect()
    }

    fn value(&self, at: usize) -> &str {
        self.values.get(at).map_or("", String::as_str)
    }

    /// Yes or no, as a word or a digit; `None` where nothing stands.
    pub fn flag(&self, at: usize) -> Result<Option<bool>, String> {
        match self.value(at) {
            "True" | "true" | "1" => Ok(Some(true)),
            "False" | "false" | "0" => Ok(Some(false)),
            "" | "None" => Ok(None),
            other => Err(format!("argument {at} is `{}`, neither True nor False", other.escape_default())),
        }
    }

    /// A number; `None` where nothing stands.
    pub fn number(&self, at: usize) -> Result<Option<f64>, String> {
        match self.value(at) {
            "" | "None" => Ok(None),
            text => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Some(number)),
                _ => Err(format!("argument {at} is `{}`, no number", text.escape_default())),
            },
        }
    }

    /// A list such as `[2, 2]`, of as many numbers as there are dimensions: one stands for all.
    pub fn numbers(&self, at: usize, dimensions: usize) -> Result<Vec<i64>, String> {
        let list = self.list(at)?;
        match list.as_slice() {
            [one] => Ok(vec![*one; dimensions]),
            several if several.len() == dimensions => Ok(list),
            _ => Err(format!("argument {at} has {} numbers for {dimensions} dimensions", list.len())),
        }
    }

    /// A list of numbers.
    pub fn list(&self, at: usize) -> Result<Vec<i64>, String> {
        let text = self.value(at);
        let wrong = || format!("argument {at} is `{}`, no list of numbers", text.escape_default());
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or_else(wrong)?;
        let words = inner.split(',').map(str::trim).filter(|w| !w.is_empty());
        words.map(|w| w.parse().ok().filter(|n| (0..1 << 31).contains(n)).ok_or_else(wrong)).collect()
    }

    /// A list of yes and no.
    pub fn flags(&self, at: usize) -> Result<Vec<bool>, String> {
        let text = self.value(at);
        let wrong = || format!("argument {at} is `{}`, no list of True and False", text.escape_default());
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or_else(wrong)?;
        let flag = |word: &str| match word.trim() {
            "True" | "true" | "1" => Ok(true),
            "False" | "false" | "0" => Ok(false),
            _ => Err(wrong()),
        };
        inner.split(',').map(flag).collect()
    }
}
