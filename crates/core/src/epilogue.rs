//! What becomes of a product's sums on their way out.

/// A function of single elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[allow(missing_docs)]
pub enum Activation {
    #[default]
    None,
    Relu,
    /// GELU by its usual approximation with tanh.
    GeluTanh,
    /// GELU as it is defined, with erf.
    GeluErf,
    Silu,
}

impl Activation {
    /// Every one that does something.
    pub const ALL: [Activation; 4] = [Activation::Relu, Activation::GeluTanh, Activation::GeluErf, Activation::Silu];

    /// The name used in all output.
    pub fn name(self) -> &'static str {
        match self {
            Activation::None => "none",
            Activation::Relu => "relu",
            Activation::GeluTanh => "gelu-tanh",
            Activation::GeluErf => "gelu",
            Activation::Silu => "silu",
        }
    }
}
