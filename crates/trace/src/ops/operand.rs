//! Tensors as an operation was given them, for counting bytes.

use crate::calls::Arguments;

/// One tensor: extents, and the bytes of an element.
#[derive(Debug, Clone, PartialEq)]
pub struct Operand {
    pub size: Vec<i64>,
    /// Elements that lie in memory: a dimension of stride 0 repeats what is there.
    stored: f64,
    pub element: f64,
    /// The profiler's name of its type.
    pub dtype: String,
}

/// Bytes of an element of any type the profiler names.
pub fn element_bytes(dtype: &str) -> Option<f64> {
    Some(match dtype {
        "double" | "long int" | "long" | "long long" | "c10::complex<float>" => 8.0,
        "float" | "int" => 4.0,
        "c10::BFloat16" | "c10::Half" | "short" => 2.0,
        "c10::complex<double>" => 16.0,
        "bool" | "signed char" | "unsigned char" => 1.0,
        name if name.starts_with("c10::Float8") => 1.0,
        // Two values in a byte, and the extents count bytes.
        name if name.starts_with("c10::Float4") => 1.0,
        _ => return None,
    })
}

impl Operand {
    /// The tensor at a place, if there is one.
    pub fn at(arguments: &Arguments, at: usize) -> Option<Operand> {
        let (size, dtype) = arguments.raw(at)?;
        let element = element_bytes(dtype)?;
        if size.iter().any(|n| *n < 0) {
            return None;
        }
        let stored = match arguments.stride(at).filter(|s| s.len() == size.len()) {
            Some(stride) => size.iter().zip(stride).filter(|(_, s)| **s != 0).map(|(n, _)| *n as f64).product(),
            None => size.iter().map(|n| *n as f64).product(),
        };
        Some(Operand { size: size.to_vec(), stored, element, dtype: dtype.to_string() })
    }

    /// The tensor at a place, which must be there.
    pub fn needed(arguments: &Arguments, at: usize) -> Result<Operand, String> {
        Operand::at(arguments, at).ok_or_else(|| format!("argument {at} is no tensor"))
    }

    /// A new tensor of these extents and this one's type.
    pub fn like(&self, size: &[i64]) -> Operand {
        let stored = size.iter().map(|n| *n as f64).product();
        Operand { size: size.to_vec(), stored, element: self.element, dtype: self.dtype.clone() }
    }

    /// Elements it shows.
    pub fn elements(&self) -> f64 {
        self.size.iter().map(|n| *n as f64).product()
    }

    /// Bytes that are moved when it is read or written once.
    pub fn bytes(&self) -> f64 {
        self.stored * self.element
    }
}

/// The extents that two or more tensors have together.
pub fn broadcast(operands: &[&Operand]) -> Result<Vec<i64>, String> {
    let rank = operands.iter().map(|o| o.size.len()).max().unwrap_or(0);
    let mut out = vec![1; rank];
    for operand in operands {
        let skip = rank - operand.size.len();
        for (place, n) in out[skip..].iter_mut().zip(&operand.size) {
            match (*place, *n) {
                (x, y) if x == y || y == 1 => {}
                (1, y) => *place = y,
                _ => return Err("its operands do not fit".into()),
            }
        }
    }
    Ok(out)
}
