//! What steers the layers of a diffusion model, with all its numbers.

use super::{Facts, Linear, Table};
use crate::declaration as decl;
use crate::error::ModelError;

#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// From the time step's waves to the hidden size, and on to the same.
    pub embedding: [Linear; 2],
    pub classes: Table,
    /// Six rows for each layer, two before the head.
    pub layer: Linear,
    pub head: Linear,
}

impl Facts<'_> {
    pub(super) fn condition(&self, c: &decl::Condition, hidden: i64) -> Result<Condition, ModelError> {
        let frequencies = self.extent(&c.frequencies)?;
        let embed = |name: &str, inputs| Linear::new(&format!("{}.{name}", c.at), inputs, hidden, true);
        let classes = Table { at: c.classes.at.clone(), rows: self.extent(&c.classes.rows)?, width: hidden };
        Ok(Condition {
            embedding: [embed("linear_1", frequencies), embed("linear_2", hidden)],
            classes,
            layer: Linear::new(&c.layer, hidden, 6 * hidden, true),
            head: Linear::new(&c.head, hidden, 2 * hidden, true),
        })
    }
}
