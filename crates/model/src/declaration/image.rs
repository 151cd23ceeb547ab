//! What reads an image or a spectrogram: patches, features, and networks made of convolutions.

use super::field::{Choice, Expr, no, yes};
use super::linear::Linear;
use super::model::Table;
use serde::Deserialize;

/// An image cut into squares by a convolution.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patches {
    pub at: String,
    /// Side of the image the positions were made for, and of a patch.
    pub image: Expr,
    pub side: Expr,
    pub channels: Expr,
    #[serde(default = "yes")]
    pub bias: Expr,
    /// Positions are stretched to other images; without it only its own size fits.
    #[serde(default)]
    pub any_image: bool,
    /// A token for the whole image comes before its squares.
    #[serde(default = "always")]
    pub whole: bool,
    /// Parameters of the embedding beside the convolution, each with its rows.
    #[serde(default)]
    pub tables: Vec<Table>,
}

/// A spectrogram that convolutions turn into tokens, each followed by an activation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Features {
    pub channels: Expr,
    pub length: Expr,
    pub convolutions: Vec<Convolution>,
}

/// A convolution; a kernel over images is square.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convolution {
    pub at: String,
    pub outputs: Expr,
    pub kernel: Expr,
    #[serde(default = "one")]
    pub stride: Expr,
    /// Zeros on each side.
    #[serde(default = "zero")]
    pub padding: Expr,
    #[serde(default = "one")]
    pub groups: Expr,
    #[serde(default = "no")]
    pub bias: Expr,
    /// A batch norm of its result.
    pub norm: Option<String>,
    #[serde(default = "yes")]
    pub when: Expr,
}

fn always() -> bool {
    true
}

fn one() -> Expr {
    Expr::Int(1)
}

fn zero() -> Expr {
    Expr::Int(0)
}

/// A network of convolutions: a stem, then stages, each of so many layers of one width. Expressions
/// may name `stage` (from 0), the stage's `width`, the `inputs` of a layer, and `step`, which is 2
/// in the first layer of a stage that halves the image and else 1.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stages {
    /// Side of the image if nothing else is said.
    pub image: Expr,
    pub channels: Expr,
    pub stem: Vec<ConvStep>,
    pub at: String,
    /// Lists of the config: the width of each stage and its number of layers.
    pub widths: String,
    pub depths: String,
    #[serde(default = "yes")]
    pub halves: Expr,
    /// Between a stage and the one before.
    #[serde(default)]
    pub before: Vec<ConvStep>,
    pub before_when: Option<Expr>,
    /// The steps of a layer, their paths below its number.
    pub layer: Choice<Vec<ConvStep>>,
    /// What the input passes before it is added to the result of a layer.
    pub shortcut: Option<Convolution>,
    /// An activation after that addition.
    #[serde(default)]
    pub activated: bool,
    /// A learned factor of a layer's result, one per channel.
    pub factor: Option<String>,
    #[serde(default = "yes")]
    pub factor_when: Expr,
}

/// One step of a network of convolutions.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConvStep {
    Convolution(Convolution),
    /// A linear layer over the channels of each place.
    Linear {
        linear: Linear,
        outputs: Expr,
    },
    /// A norm over the channels of each place.
    Norm(String),
    Activation,
    /// The largest of each 3x3 neighbourhood, every second one.
    MaxPool,
}
