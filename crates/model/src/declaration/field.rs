//! Config fields, and the values a declaration gives as expressions.

use crate::expr::{Env, ExprError, holds};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A condition on the config, and what to say where it does not hold.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    pub field: String,
    pub that: String,
    pub why: String,
}

/// A config field. A literal is the class default and null is refused; a string is an expression
/// that stands for an absent field and for null.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Field {
    Bool(bool),
    Int(i64),
    Expression(String),
    Full(FullField),
}

/// A field that a literal or an expression does not describe.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullField {
    pub kind: FieldKind,
    /// Expression for an absent field; without it the field is required.
    pub absent: Option<String>,
    /// Expression for an explicit null; without it null is refused.
    pub null: Option<String>,
    /// Words that may stand in place of a number, each with its expression.
    #[serde(default)]
    pub words: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldKind {
    Int,
    Bool,
    Float,
    List,
    Text,
}

/// An integer or a condition: an expression, or the value itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Expr {
    Bool(bool),
    Int(i64),
    Text(String),
}

impl Expr {
    pub fn text(&self) -> String {
        match self {
            Expr::Bool(x) => x.to_string(),
            Expr::Int(x) => x.to_string(),
            Expr::Text(x) => x.clone(),
        }
    }
}

/// One value, or the first whose condition holds.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Choice<T> {
    One(T),
    Cases(Vec<(String, T)>),
}

impl<T: Clone> Choice<T> {
    /// `None` where no condition holds.
    pub fn pick(&self, env: &Env) -> Result<Option<T>, ExprError> {
        match self {
            Choice::One(x) => Ok(Some(x.clone())),
            Choice::Cases(cases) => {
                for (condition, x) in cases {
                    if holds(condition, env)? {
                        return Ok(Some(x.clone()));
                    }
                }
                Ok(None)
            }
        }
    }
}

/// The default of what is there unless a condition says otherwise.
pub fn yes() -> Expr {
    Expr::Bool(true)
}

/// The default of what is not there.
pub fn no() -> Expr {
    Expr::Bool(false)
}

/// The default of an extent that need not be given.
pub fn none() -> Expr {
    Expr::Text("none".into())
}
