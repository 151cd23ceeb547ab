//! MLPs and experts with all their numbers.

use super::{Facts, Linear};
use crate::declaration::{self as decl, LinearWay, Stored};
use crate::error::ModelError;
use crate::options::WeightFormat;

#[derive(Debug, Clone, PartialEq)]
pub enum Up {
    /// activation(gate) · up.
    Gated { gate: Linear, up: Linear },
    /// The same from one projection.
    Fused(Linear),
    /// activation(up).
    Plain(Linear),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Mlp {
    pub at: String,
    pub up: Up,
    pub down: Linear,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Experts {
    pub at: String,
    pub router: Linear,
    pub router_in_f32: bool,
    pub stacked: String,
    pub count: i64,
    pub chosen: i64,
    pub inner: i64,
    pub stored: Stored,
    pub bias: bool,
    /// How the experts' weights are stored, where that is not the model's own type.
    pub weight: Option<WeightFormat>,
    pub shared: Option<SharedExpert>,
    /// How likely each is among a token's choices, where that was given; else all alike.
    pub chances: Option<Vec<f64>>,
}

impl Experts {
    /// Takes the load of each expert, in tokens or any other unit.
    pub fn set_load(&mut self, load: &[f64]) -> Result<(), String> {
        let (count, chosen) = (self.count, self.chosen);
        if load.len() as i64 != count {
            return Err(format!("has {} numbers; the model has {count} experts", load.len()));
        }
        if let Some(wrong) = load.iter().find(|x| !x.is_finite() || **x < 0.0) {
            return Err(format!("has {wrong}; a load is zero or more"));
        }
        let sum: f64 = load.iter().sum();
        let chances: Vec<f64> = load.iter().map(|x| x / sum * chosen as f64).collect();
        // A token's choices are different experts, so none is in more than all of them.
        match chances.iter().position(|chance| chance.is_nan() || *chance > 1.0 + 1e-9) {
            Some(i) => {
                Err(format!("gives expert {i} more than 1 of every token's {chosen} choices: {} of {sum}", load[i]))
            }
            None => {
                self.chances = Some(chances.into_iter().map(|chance| chance.min(1.0)).collect());
                Ok(())
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct SharedExpert {
    pub mlp: Mlp,
    pub gate: Option<Linear>,
    pub first: bool,
}

impl Facts<'_> {
    pub(super) fn experts(&self, e: &decl::Experts, mlp: &decl::Mlp, hidden: i64) -> Result<Experts, ModelError> {
        let (count, chosen) = (self.extent(&e.count)?, self.extent(&e.chosen)?);
        if chosen > count {
            return Err(self.config.error(&e.chosen.text(), format!("is {chosen} of {count} experts")));
        }
        let shared = match &e.shared {
            Some(s) => {
                let mlp = self.mlp_of(mlp, &s.at, self.extent(&s.inner)?, hidden)?;
                let gate = s.gate.as_ref().map(|at| Linear::new(at, hidden, 1, false));
                Some(SharedExpert { mlp, gate, first: s.first })
            }
            None => None,
        };
        Ok(Experts {
            at: e.at.clone(),
            router: self.linear(&e.router, hidden, count, LinearWay::Linear)?,
            router_in_f32: e.router_in_f32,
            stacked: e.stacked.clone(),
            count,
            chosen,
            inner: self.extent(&e.inner)?,
            stored: e.stored,
            bias: self.holds(&e.bias)?,
            weight: None,
            shared,
            chances: None,
        })
    }

    pub(super) fn mlp(&self, m: &decl::Mlp, hidden: i64) -> Result<Mlp, ModelError> {
        if let Some(other) = &m.or
            && self.holds(&other.when)?
        {
            return self.mlp(&other.mlp, hidden);
        }
        self.mlp_of(m, &m.at, self.extent(&m.inner)?, hidden)
    }

    fn mlp_of(&self, m: &decl::Mlp, at: &str, inner: i64, hidden: i64) -> Result<Mlp, ModelError> {
        let linear = |l: &decl::Linear, outputs| self.linear(l, hidden, outputs, m.way);
        let up = match (&m.gate, &m.up, &m.gate_up) {
            (Some(gate), Some(up), None) => Up::Gated { gate: linear(gate, inner)?, up: linear(up, inner)? },
            (None, Some(up), None) => Up::Plain(linear(up, inner)?),
            (None, None, Some(both)) => Up::Fused(linear(both, 2 * inner)?),
            _ => panic!("a declaration has gate and up, up, or gate_up"),
        };
        Ok(Mlp { at: at.into(), up, down: self.linear(&m.down, inner, hidden, m.way)? })
    }
}
