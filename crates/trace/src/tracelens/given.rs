//! What an operation was given, read with Python's manners: what is not there raises.

use super::Fail;
use super::value::Param;
use serde_json::Value;

/// Result of reading with those manners.
pub type Read<T> = Result<T, Fail>;

/// The four lists of an event, and the names of its kernels.
#[derive(Default)]
pub struct Given {
    pub name: String,
    dims: Option<Vec<Value>>,
    types: Option<Vec<Value>>,
    strides: Option<Vec<Value>>,
    concrete: Option<Vec<Value>>,
    /// Names of the kernels below it, by time.
    pub kernels: Vec<String>,
    /// The annotation around it, where one was looked for.
    pub annotation: Option<String>,
}

fn list(text: Option<&[u8]>) -> Option<Vec<Value>> {
    let text = String::from_utf8_lossy(text?);
    match serde_json::from_str(&text) {
        Ok(Value::Array(items)) => Some(items),
        _ => None,
    }
}

impl Given {
    /// From the texts of the lists: sizes, types, strides, values.
    pub fn new(name: &str, lists: [Option<&[u8]>; 4]) -> Given {
        let [dims, types, strides, concrete] = lists.map(list);
        Given { name: name.into(), dims, types, strides, concrete, ..Given::default() }
    }

    /// `Input Dims`, which must be there.
    pub fn dims(&self) -> Read<&[Value]> {
        self.dims.as_deref().ok_or(Fail::Error)
    }

    /// `Input Dims`, nothing where it is not.
    pub fn dims_or_none(&self) -> &[Value] {
        self.dims.as_deref().unwrap_or_default()
    }

    /// One entry of it.
    pub fn entry(&self, at: usize) -> Read<&Value> {
        self.dims()?.get(at).ok_or(Fail::Error)
    }

    /// One size, a list of integers.
    pub fn shape(&self, at: usize) -> Read<Vec<i64>> {
        integers(self.entry(at)?)
    }

    /// One size as integers or nothing: an entry that is missing, or empty, is nothing.
    pub fn filled(&self, at: usize) -> Option<Vec<i64>> {
        self.shape(at).ok().filter(|shape| !shape.is_empty())
    }

    /// `Input type`, which must be there.
    pub fn types(&self) -> Read<Vec<String>> {
        Ok(self.types.as_ref().ok_or(Fail::Error)?.iter().map(plain).collect())
    }

    /// One type, which must be there.
    pub fn dtype(&self, at: usize) -> Read<String> {
        self.types()?.get(at).cloned().ok_or(Fail::Error)
    }

    /// The types from one place up to another, as many as there are.
    pub fn dtypes(&self, from: usize, to: usize) -> Read<Vec<String>> {
        Ok(self.types()?.into_iter().skip(from).take(to - from).collect())
    }

    /// One stride as a tuple, `None` where strides were not recorded at all.
    pub fn stride_or_none(&self, at: usize) -> Read<Param> {
        match &self.strides {
            None => Ok(Param::None),
            Some(strides) => Ok(Param::ints(&integers(strides.get(at).ok_or(Fail::Error)?)?)),
        }
    }

    /// One stride as a tuple, which must be there.
    pub fn stride(&self, at: usize) -> Read<Param> {
        self.strides.as_ref().ok_or(Fail::Error)?;
        self.stride_or_none(at)
    }

    /// `Concrete Inputs`, which must be there.
    pub fn concrete(&self) -> Read<&[Value]> {
        self.concrete.as_deref().ok_or(Fail::Error)
    }

    /// One value as text, which must be there.
    pub fn text(&self, at: usize) -> Read<String> {
        self.concrete()?.get(at).map(plain).ok_or(Fail::Error)
    }

    /// One value as text, empty where it is not there.
    pub fn text_or_empty(&self, at: usize) -> String {
        self.text(at).unwrap_or_default()
    }

    /// `float(...)`.
    pub fn float(&self, at: usize) -> Read<f64> {
        self.text(at)?.trim().parse().map_err(|_| Fail::Error)
    }

    /// A number, 0 where there is none.
    pub fn float_or_zero(&self, at: usize) -> Read<f64> {
        Ok(self.text(at)?.trim().parse().unwrap_or(0.0))
    }

    /// `int(...)`.
    pub fn int(&self, at: usize) -> Read<i64> {
        self.text(at)?.trim().parse().map_err(|_| Fail::Error)
    }

    /// `true`, in any case; anything else is not.
    pub fn is_true(&self, at: usize) -> Read<bool> {
        Ok(self.text(at)?.to_lowercase() == "true")
    }

    /// What Python would make of the text as an expression, for the two words that occur.
    pub fn word(&self, at: usize) -> Read<bool> {
        match self.text(at)?.trim() {
            "True" | "1" => Ok(true),
            "False" | "0" => Ok(false),
            _ => Err(Fail::Error),
        }
    }

    /// A list of integers as text, `[2, 2]`.
    pub fn int_list(&self, at: usize) -> Read<Vec<i64>> {
        let text = self.text(at)?;
        let inner = text.trim().strip_prefix(['[', '(']).and_then(|t| t.strip_suffix([']', ')'])).ok_or(Fail::Error)?;
        let words = inner.split(',').map(str::trim).filter(|word| !word.is_empty());
        words.map(|word| word.parse().map_err(|_| Fail::Error)).collect()
    }

    /// A list of yes and no as text.
    pub fn bool_list(&self, at: usize) -> Read<Vec<bool>> {
        let text = self.text(at)?;
        let inner = text.trim().strip_prefix('[').and_then(|t| t.strip_suffix(']')).ok_or(Fail::Error)?;
        let word = |word: &str| match word.trim() {
            "True" | "1" => Ok(true),
            "False" | "0" => Ok(false),
            _ => Err(Fail::Error),
        };
        inner.split(',').map(word).collect()
    }
}

/// A list of integers.
pub fn integers(value: &Value) -> Read<Vec<i64>> {
    value.as_array().ok_or(Fail::Error)?.iter().map(|v| v.as_i64().ok_or(Fail::Error)).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// Multiplied.
pub fn product(shape: &[i64]) -> f64 {
    shape.iter().map(|n| *n as f64).product()
}

/// Bytes of an element.
pub fn size_of(dtype: &str) -> Option<f64> {
    Some(match dtype.to_lowercase().as_str() {
        "double" | "long int" => 8.0,
        "float" | "scalar" | "int" => 4.0,
        "c10::half" | "c10::bfloat16" => 2.0,
        "c10::float8_e4m3fnuz"
        | "c10::float8_e4m3fn"
        | "c10::float8_e5m2"
        | "c10::float8_e8m0fnu"
        | "unsigned char"
        | "signed char"
        | "fp8"
        | "c10::float4_e2m1fn_x2"
        | "fp4" => 1.0,
        _ => return None,
    })
}

/// The word for what it computes in.
pub fn precision(dtype: &str) -> Option<&'static str> {
    Some(match dtype.to_lowercase().as_str() {
        "float" => "fp32",
        "double" => "fp64",
        "c10::half" => "fp16",
        "c10::bfloat16" => "bf16",
        "c10::float8_e4m3fnuz" | "c10::float8_e4m3fn" | "unsigned char" | "fp8" => "fp8",
        "fp4" | "mxfp4" | "c10::float4_e2m1fn_x2" => "fp4",
        _ => return None,
    })
}
