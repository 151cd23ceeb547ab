//! A state space with all its numbers.

use super::{Facts, Linear};
use crate::declaration as decl;
use crate::error::ModelError;
use crate::expr::{Value, evaluate};

/// How the state runs over the tokens.
#[derive(Debug, Clone, PartialEq)]
pub enum Scan {
    /// Each channel has a time step of its own: x_proj gives it narrow, dt_proj widens it.
    Channels { x: Linear, dt: Linear },
    /// Each head has one; groups of heads share what reads and writes the state.
    Heads { heads: i64, groups: i64 },
}

#[derive(Debug, Clone, PartialEq)]
pub struct StateSpace {
    pub at: String,
    pub inner: i64,
    pub state: i64,
    pub kernel: i64,
    pub convolution_bias: bool,
    /// Channels the convolution runs over.
    pub convolved: i64,
    pub input: Linear,
    pub out: Linear,
    pub scan: Scan,
}

impl Facts<'_> {
    pub(super) fn state_space(&self, s: &decl::StateSpace, hidden: i64) -> Result<StateSpace, ModelError> {
        let (inner, state, bias) = (self.extent(&s.inner)?, self.extent(&s.state)?, self.holds(&s.bias)?);
        let (scan, convolved, projected) = match self.wrap(evaluate(&s.rank.text(), self.env))? {
            Value::Int(_) => {
                let rank = self.extent(&s.rank)?;
                let x = Linear::new("x_proj", inner, rank + 2 * state, false);
                let dt = Linear::new("dt_proj", rank, inner, true);
                (Scan::Channels { x, dt }, inner, 2 * inner)
            }
            _ => {
                let (heads, groups) = (self.extent(&s.heads)?, self.extent(&s.groups)?);
                if inner % heads != 0 || heads % groups != 0 {
                    let why =
                        format!("is {heads}; it must divide {inner} channels and be a multiple of {groups} groups");
                    return Err(self.config.error(&s.heads.text(), why));
                }
                let convolved = inner + 2 * groups * state;
                (Scan::Heads { heads, groups }, convolved, inner + convolved + heads)
            }
        };
        Ok(StateSpace {
            at: s.at.clone(),
            inner,
            state,
            kernel: self.extent(&s.kernel)?,
            convolution_bias: self.holds(&s.convolution_bias)?,
            convolved,
            input: Linear::new("in_proj", hidden, projected, bias),
            out: Linear::new("out_proj", inner, hidden, bias),
            scan,
        })
    }
}
