//! What reads an image or a spectrogram, with all its numbers.

use super::layers::MOST_LAYERS;
use super::{Facts, Linear, Table};
use crate::declaration as decl;
use crate::error::ModelError;
use crate::expr::{Env, Value, evaluate};

/// An image cut into squares.
#[derive(Debug, Clone, PartialEq)]
pub struct Patches {
    pub at: String,
    pub image: i64,
    pub side: i64,
    pub channels: i64,
    pub bias: bool,
    pub any_image: bool,
    pub whole: bool,
    pub tables: Vec<Table>,
}

impl Patches {
    /// The squares of an image, and a token for the whole where there is one.
    pub fn tokens(&self, image: i64) -> i64 {
        let along = image / self.side;
        along * along + i64::from(self.whole)
    }
}

/// A spectrogram that convolutions turn into tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Features {
    pub channels: i64,
    pub length: i64,
    pub convolutions: Vec<Convolution>,
}

impl Features {
    /// How many tokens come out.
    pub fn tokens(&self) -> i64 {
        self.convolutions.iter().fold(self.length, |length, c| c.places(length))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Convolution {
    pub at: String,
    pub inputs: i64,
    pub outputs: i64,
    pub kernel: i64,
    pub stride: i64,
    pub padding: i64,
    pub groups: i64,
    pub bias: bool,
    pub norm: Option<String>,
}

impl Convolution {
    /// Places along a side that had `side` before; 0 or less where the kernel does not fit.
    pub fn places(&self, side: i64) -> i64 {
        match side + 2 * self.padding - self.kernel {
            left if left < 0 => 0,
            left => left / self.stride + 1,
        }
    }
}

/// One step of a network of convolutions.
#[derive(Debug, Clone, PartialEq)]
pub enum ConvStep {
    Convolution(Convolution),
    Linear(Linear),
    Norm { at: String, width: i64 },
    Activation,
    MaxPool,
}

/// Steps around which the input is added again.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvLayer {
    pub steps: Vec<ConvStep>,
    pub shortcut: Option<Convolution>,
    pub activated: bool,
    pub factor: Option<String>,
    pub width: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    pub before: Vec<ConvStep>,
    /// The first layer may shrink the image and change the width.
    pub first: ConvLayer,
    pub rest: ConvLayer,
    pub depth: i64,
    pub width: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    pub image: i64,
    pub channels: i64,
    pub stem: Vec<ConvStep>,
    pub at: String,
    pub list: Vec<Stage>,
}

impl Stages {
    /// Channels of the last stage.
    pub fn width(&self) -> i64 {
        self.list.last().map_or(1, |stage| stage.width)
    }

    /// Whether every kernel fits into what is left of an image.
    pub fn fit(&self, image: i64) -> bool {
        let sides = |steps: &[ConvStep], side: i64| {
            steps.iter().fold(side, |side, step| match step {
                ConvStep::Convolution(c) => c.places(side),
                ConvStep::MaxPool if side >= 1 => (side - 1) / 2 + 1,
                _ => side,
            })
        };
        let after_stem = sides(&self.stem, image);
        let mut side = after_stem;
        for stage in &self.list {
            side = sides(&stage.first.steps, sides(&stage.before, side));
        }
        after_stem >= 1 && side >= 1
    }
}

/// Wider than any network's.
const MOST_STAGES: usize = 64;

impl Facts<'_> {
    pub(super) fn patches(&self, p: &decl::Patches, hidden: i64) -> Result<Patches, ModelError> {
        Ok(Patches {
            at: p.at.clone(),
            image: self.extent(&p.image)?,
            side: self.extent(&p.side)?,
            channels: self.extent(&p.channels)?,
            bias: self.holds(&p.bias)?,
            any_image: p.any_image,
            whole: p.whole,
            tables: self.tables(&p.tables, hidden)?,
        })
    }

    pub(super) fn features(&self, f: &decl::Features) -> Result<Features, ModelError> {
        let channels = self.extent(&f.channels)?;
        let mut inputs = channels;
        let mut convolutions = Vec::new();
        for c in &f.convolutions {
            convolutions.push(self.convolution(c, inputs)?);
            inputs = self.extent(&c.outputs)?;
        }
        let features = Features { channels, length: self.extent(&f.length)?, convolutions };
        match features.tokens() {
            n if n >= 1 => Ok(features),
            _ => Err(self.config.error(&f.length.text(), "is too short for the kernels")),
        }
    }

    fn convolution(&self, c: &decl::Convolution, inputs: i64) -> Result<Convolution, ModelError> {
        let (outputs, groups) = (self.extent(&c.outputs)?, self.extent(&c.groups)?);
        if inputs % groups != 0 || outputs % groups != 0 {
            let why = format!("is {groups}, which does not divide {inputs} and {outputs} channels");
            return Err(self.config.error(&c.groups.text(), why));
        }
        Ok(Convolution {
            at: c.at.clone(),
            inputs,
            outputs,
            kernel: self.extent(&c.kernel)?,
            stride: self.extent(&c.stride)?,
            padding: self.at_least(&c.padding, 0)?,
            groups,
            bias: self.holds(&c.bias)?,
            norm: c.norm.clone(),
        })
    }

    /// The steps, with the number of channels followed from one to the next.
    fn conv_steps(&self, steps: &[decl::ConvStep], channels: &mut i64) -> Result<Vec<ConvStep>, ModelError> {
        let mut found = Vec::new();
        for step in steps {
            found.push(match step {
                decl::ConvStep::Convolution(c) => {
                    let convolution = self.convolution(c, *channels)?;
                    *channels = convolution.outputs;
                    ConvStep::Convolution(convolution)
                }
                decl::ConvStep::Linear { linear, outputs } => {
                    let outputs = self.extent(outputs)?;
                    let linear = self.linear(linear, *channels, outputs, decl::LinearWay::Linear)?;
                    *channels = outputs;
                    ConvStep::Linear(linear)
                }
                decl::ConvStep::Norm(at) => ConvStep::Norm { at: at.clone(), width: *channels },
                decl::ConvStep::Activation => ConvStep::Activation,
                decl::ConvStep::MaxPool => ConvStep::MaxPool,
            });
        }
        Ok(found)
    }

    fn list(&self, field: &str, most: i64) -> Result<Vec<i64>, ModelError> {
        let wrong = |why: String| Err(self.config.error(field, why));
        match self.wrap(evaluate(field, self.env))? {
            Value::List(list) if list.is_empty() || list.len() > MOST_STAGES => {
                wrong(format!("has {} stages; it must have from 1 to {MOST_STAGES}", list.len()))
            }
            Value::List(list) => match list.iter().find(|n| !(1..=most).contains(*n)) {
                Some(n) => wrong(format!("has {n}; each must be from 1 to {most}")),
                None => Ok(list),
            },
            _ => wrong("must be a list".into()),
        }
    }

    pub(super) fn stages(&self, s: &decl::Stages, keep: Option<i64>) -> Result<Stages, ModelError> {
        if keep.is_some() {
            let why = "is for stacks of equal layers; this network has stages".into();
            return Err(ModelError::Option { option: "--layers", why });
        }
        let (widths, depths) = (self.list(&s.widths, i64::MAX)?, self.list(&s.depths, MOST_LAYERS)?);
        if widths.len() != depths.len() {
            let why = format!("has {} stages, {} has {}", depths.len(), s.widths, widths.len());
            return Err(self.config.error(&s.depths, why));
        }
        let channels = self.extent(&s.channels)?;
        let mut inputs = channels;
        let stem = self.conv_steps(&s.stem, &mut inputs)?;
        let mut list = Vec::new();
        for (stage, (&width, &depth)) in widths.iter().zip(&depths).enumerate() {
            list.push(self.stage(s, stage, width, depth, &mut inputs)?);
        }
        Ok(Stages { image: self.extent(&s.image)?, channels, stem, at: s.at.clone(), list })
    }

    fn stage(
        &self,
        s: &decl::Stages,
        stage: usize,
        width: i64,
        depth: i64,
        inputs: &mut i64,
    ) -> Result<Stage, ModelError> {
        let with = |inputs: i64, step: i64| -> Env {
            let numbers = [("stage", stage as i64), ("width", width), ("inputs", inputs), ("step", step)];
            let mut env = self.env.clone();
            env.extend(numbers.map(|(name, n)| (name.to_string(), Value::Int(n))));
            env
        };
        let env = with(*inputs, 1);
        let outer = Facts { env: &env, ..*self };
        let step = if outer.holds(&s.halves)? { 2 } else { 1 };
        let before = match &s.before_when {
            Some(when) if !outer.holds(when)? => Vec::new(),
            _ => outer.conv_steps(&s.before, inputs)?,
        };
        let layer = |mut inputs: i64, step: i64| {
            let env = with(inputs, step);
            let facts = Facts { env: &env, ..*self };
            let shortcut = match &s.shortcut {
                Some(c) if facts.holds(&c.when)? => Some(facts.convolution(c, inputs)?),
                _ => None,
            };
            let steps = facts.pick(&Some(s.layer.clone()))?.unwrap_or_default();
            let steps = facts.conv_steps(&steps, &mut inputs)?;
            let factor = if facts.holds(&s.factor_when)? { s.factor.clone() } else { None };
            Ok(ConvLayer { steps, shortcut, activated: s.activated, factor, width })
        };
        let first = layer(*inputs, step)?;
        *inputs = width;
        Ok(Stage { before, first, rest: layer(width, 1)?, depth, width })
    }
}
