//! The epilogue of a problem: out = activation(scale · sum + bias) · times + residual, each part where it is given. A gated
//! one has weights \[K, 2N\]: out = activation(a · the first N columns) · (a · the others).

use crate::problem::Layout;
use gemwright_core::Activation;

/// What an epilogue may take beside the sums, in the order of the formula.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Part {
    Scale,
    Bias,
    /// Such as the other half of SiLU(gate) · up.
    Times,
    Residual,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 4] = [Part::Scale, Part::Bias, Part::Times, Part::Residual];

    /// The name used in all output.
    pub fn name(self) -> &'static str {
        match self {
            Part::Scale => "scale",
            Part::Bias => "bias",
            Part::Times => "times",
            Part::Residual => "residual",
        }
    }
}

/// One thing for each part.
pub type Parts<T> = [Option<T>; Part::ALL.len()];

/// Parts are \[M, N\] and of the result's type; a vector has rows, or columns, 0 elements apart.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Epilogue {
    #[allow(missing_docs)]
    pub activation: Activation,
    /// Where each part lies, in the order of [`Part::ALL`].
    pub parts: Parts<Layout>,
    /// The weights are two, side by side, and the activated one is multiplied with the other.
    pub gated: bool,
    /// Where what goes into the activation is written, for the way back: \[M, N\], of a gated one \[M, 2N\].
    pub kept: Option<Layout>,
}

/// Words of [`Epilogue::named`] beside parts and activations.
const GATED: &str = "gated";
const KEPT: &str = "kept";

impl Epilogue {
    /// Sums are the result.
    pub fn is_none(&self) -> bool {
        *self == Epilogue::default()
    }

    /// With a part.
    #[must_use]
    pub fn with(mut self, part: Part, layout: Layout) -> Epilogue {
        self.parts[part as usize] = Some(layout);
        self
    }

    /// With an activation.
    #[must_use]
    pub fn activated(self, activation: Activation) -> Epilogue {
        Epilogue { activation, ..self }
    }

    /// Columns of the weights, for each column of the result.
    pub fn weights(&self) -> u64 {
        if self.gated { 2 } else { 1 }
    }

    /// From names of parts and an activation, such as `bias`, `gelu`; vectors for scale and bias, matrices for the
    /// others; `gated`, and `kept` for what goes into the activation.
    pub fn named<'a>(names: impl Iterator<Item = &'a str>, (m, n): (u64, u64)) -> Result<Epilogue, String> {
        let mut epilogue = Epilogue::default();
        let mut kept = false;
        for name in names {
            if name == GATED || name == KEPT {
                (epilogue.gated, kept) = (epilogue.gated || name == GATED, kept || name == KEPT);
                continue;
            }
            let part = Part::ALL.into_iter().find(|part| part.name() == name);
            let activation = Activation::ALL.into_iter().find(|activation| activation.name() == name);
            epilogue = match (part, activation) {
                (Some(part @ (Part::Scale | Part::Bias)), _) => {
                    epilogue.with(part, Layout { row: 0, col: 1, batch: 0 })
                }
                (Some(part), _) => epilogue.with(part, Layout::row_major(m, n)),
                (_, Some(activation)) => epilogue.activated(activation),
                _ => {
                    let parts = Part::ALL.map(Part::name).into_iter();
                    let known = parts.chain(Activation::ALL.map(Activation::name)).chain([GATED, KEPT]);
                    let known: Vec<&str> = known.collect();
                    return Err(format!("no epilogue is called `{name}`; known are {}", known.join(", ")));
                }
            };
        }
        epilogue.kept = kept.then(|| Layout::row_major(m, n * epilogue.weights()));
        Ok(epilogue)
    }

    /// Names that [`Epilogue::named`] takes, in the order of the formula.
    pub fn names(&self) -> Vec<&'static str> {
        let given = |part: &Part| self.parts[*part as usize].is_some();
        let [before, after] = [&Part::ALL[..2], &Part::ALL[2..]].map(|parts| parts.iter().copied().filter(given));
        let activation = (self.activation != Activation::None).then(|| self.activation.name());
        let (gated, kept) = (self.gated.then_some(GATED), self.kept.is_some().then_some(KEPT));
        before.map(Part::name).chain(activation).chain(gated).chain(after.map(Part::name)).chain(kept).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_in_the_order_of_the_formula() {
        let epilogue = Epilogue::named(["times", "silu", "bias"].into_iter(), (3, 5)).unwrap();
        assert_eq!(epilogue.names(), ["bias", "silu", "times"]);
        assert_eq!(epilogue.parts[Part::Times as usize], Some(Layout::row_major(3, 5)));
        assert!(Epilogue::named(["swish"].into_iter(), (3, 5)).unwrap_err().contains("silu"));
        assert!(Epilogue::named([].into_iter(), (3, 5)).unwrap().is_none());
        let gated = Epilogue::named(["kept", "gated", "silu"].into_iter(), (3, 5)).unwrap();
        assert_eq!(gated.names(), ["silu", "gated", "kept"]);
        assert_eq!(gated.kept, Some(Layout::row_major(3, 10)));
    }
}
