//! The small language of the declarations: integers, names, `+ - * / %`, `//` (rounded down),
//! comparison, `&& || !`, `x in list`,
//! `c ? a : b`, `[1, 2]`, `list[layer]`, `a ?? b` (b where a is none), `'text'`, and `'part' in text`; a name may have dots.
//!
//! Whatever needs more than this is a new fact of the interpreter, not a longer expression.

use std::collections::HashMap;

/// What a config field or an expression holds.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    List(Vec<i64>),
    Text(String),
}

impl Value {
    fn truth(&self) -> bool {
        match self {
            Value::None => false,
            Value::Bool(x) => *x,
            Value::Int(x) => *x != 0,
            Value::Float(x) => *x != 0.0,
            Value::List(x) => !x.is_empty(),
            Value::Text(x) => !x.is_empty(),
        }
    }
}

/// Names and what they stand for.
pub type Env = HashMap<String, Value>;

/// Why an expression has no value.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[allow(missing_docs)]
pub enum ExprError {
    #[error("`{text}` is no expression: {why}")]
    Syntax { text: String, why: String },
    #[error("no field `{0}`")]
    Unknown(String),
    #[error("`{expression}`: {left} is not a multiple of {right}")]
    Inexact { expression: String, left: i64, right: i64 },
    #[error("`{0}` is out of range")]
    Range(String),
    #[error("`{expression}` must be {expected}")]
    Kind { expression: String, expected: &'static str },
}

/// The value of `text`.
pub fn evaluate(text: &str, env: &Env) -> Result<Value, ExprError> {
    let mut parser = Parser { text, rest: text.trim_start(), env };
    let value = parser.coalesce()?;
    if parser.rest.is_empty() { Ok(value) } else { Err(parser.syntax("something is left over")) }
}

/// The truth of `text`.
pub fn holds(text: &str, env: &Env) -> Result<bool, ExprError> {
    Ok(evaluate(text, env)?.truth())
}

/// The integer that `text` is.
pub fn integer(text: &str, env: &Env) -> Result<i64, ExprError> {
    match evaluate(text, env)? {
        Value::Int(x) => Ok(x),
        _ => Err(ExprError::Kind { expression: text.into(), expected: "an integer" }),
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
    env: &'a Env,
}

/// Binary operators by level, loosest first; longer ones before their prefixes.
const LEVELS: [&[&str]; 5] =
    [&["||"], &["&&"], &["==", "!=", ">=", "<=", ">", "<", "in "], &["+", "-"], &["*", "//", "/", "%"]];

impl<'a> Parser<'a> {
    fn syntax(&self, why: &str) -> ExprError {
        ExprError::Syntax { text: self.text.into(), why: why.into() }
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest.trim_start();
                true
            }
            None => false,
        }
    }

    fn coalesce(&mut self) -> Result<Value, ExprError> {
        let left = self.choice()?;
        if !self.take("??") {
            return Ok(left);
        }
        let right = self.coalesce()?;
        Ok(if left == Value::None { right } else { left })
    }

    fn choice(&mut self) -> Result<Value, ExprError> {
        let condition = self.binary(0)?;
        if self.rest.starts_with("??") || !self.take("?") {
            return Ok(condition);
        }
        let yes = self.choice()?;
        if !self.take(":") {
            return Err(self.syntax("`?` without `:`"));
        }
        let no = self.choice()?;
        Ok(if condition.truth() { yes } else { no })
    }

    fn binary(&mut self, level: usize) -> Result<Value, ExprError> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = operators.iter().find(|op| self.rest.starts_with(**op)) {
            self.take(operator);
            let right = self.binary(level + 1)?;
            left = self.apply(operator, &left, &right)?;
        }
        Ok(left)
    }

    fn apply(&self, operator: &str, left: &Value, right: &Value) -> Result<Value, ExprError> {
        match operator {
            "||" => return Ok(Value::Bool(left.truth() || right.truth())),
            "&&" => return Ok(Value::Bool(left.truth() && right.truth())),
            "==" => return Ok(Value::Bool(left == right)),
            "!=" => return Ok(Value::Bool(left != right)),
            "in " => {
                return match (left, right) {
                    (Value::Text(part), Value::Text(text)) => Ok(Value::Bool(text.contains(part.as_str()))),
                    (Value::Int(x), _) => Ok(Value::Bool(matches!(right, Value::List(list) if list.contains(x)))),
                    _ => Err(ExprError::Kind { expression: self.text.into(), expected: "an integer in a list" }),
                };
            }
            _ => {}
        }
        let (Value::Int(x), Value::Int(y)) = (left, right) else {
            return Err(ExprError::Kind { expression: self.text.into(), expected: "made of integers" });
        };
        let (x, y) = (*x, *y);
        let range = || ExprError::Range(self.text.into());
        let number = |n: Option<i64>| n.map(Value::Int).ok_or_else(range);
        match operator {
            ">=" => Ok(Value::Bool(x >= y)),
            "<=" => Ok(Value::Bool(x <= y)),
            ">" => Ok(Value::Bool(x > y)),
            "<" => Ok(Value::Bool(x < y)),
            "+" => number(x.checked_add(y)),
            "-" => number(x.checked_sub(y)),
            "*" => number(x.checked_mul(y)),
            "%" => number(x.checked_rem(y)),
            "//" => number(x.checked_div(y)),
            _ if y == 0 => Err(range()),
            _ if x % y != 0 => Err(ExprError::Inexact { expression: self.text.into(), left: x, right: y }),
            _ => Ok(Value::Int(x / y)),
        }
    }

    fn unary(&mut self) -> Result<Value, ExprError> {
        if self.take("!") {
            return Ok(Value::Bool(!self.unary()?.truth()));
        }
        if self.take("(") {
            let value = self.coalesce()?;
            return if self.take(")") { Ok(value) } else { Err(self.syntax("`(` without `)`")) };
        }
        if self.take("[") {
            return self.list();
        }
        if let Some(rest) = self.rest.strip_prefix('\'') {
            let Some((text, rest)) = rest.split_once('\'') else { return Err(self.syntax("`'` without `'`")) };
            self.rest = rest.trim_start();
            return Ok(Value::Text(text.into()));
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
        let end = end.unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        match word {
            "" => Err(self.syntax("a name or a number is missing")),
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            "none" => Ok(Value::None),
            _ if word.starts_with(|c: char| c.is_ascii_digit()) => {
                word.parse().map(Value::Int).map_err(|_| ExprError::Range(word.into()))
            }
            _ => self.name(word),
        }
    }

    fn list(&mut self) -> Result<Value, ExprError> {
        let mut list = Vec::new();
        loop {
            match self.coalesce()? {
                Value::Int(n) => list.push(n),
                _ => return Err(ExprError::Kind { expression: self.text.into(), expected: "a list of integers" }),
            }
            if self.take("]") {
                return Ok(Value::List(list));
            }
            if !self.take(",") {
                return Err(self.syntax("`[` without `]`"));
            }
        }
    }

    fn name(&mut self, word: &str) -> Result<Value, ExprError> {
        let value = self.env.get(word).cloned().ok_or_else(|| ExprError::Unknown(word.into()))?;
        if !self.take("[") {
            return Ok(value);
        }
        let index = self.coalesce()?;
        if !self.take("]") {
            return Err(self.syntax("`[` without `]`"));
        }
        match (value, index) {
            (Value::None, _) => Ok(Value::None),
            (Value::List(list), Value::Int(i)) => usize::try_from(i)
                .ok()
                .and_then(|i| list.get(i))
                .map(|x| Value::Int(*x))
                .ok_or_else(|| ExprError::Range(format!("{word}[{i}]"))),
            _ => Err(ExprError::Kind { expression: self.text.into(), expected: "a list and an index" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env() -> Env {
        let mut env = Env::new();
        for (name, value) in [
            ("hidden", Value::Int(4096)),
            ("heads", Value::Int(32)),
            ("window", Value::None),
            ("layer", Value::Int(3)),
            ("flag", Value::Bool(true)),
            ("list", Value::List(vec![1, 1, 1, 0])),
            ("kind", Value::Text("gated-gelu".into())),
            ("inner.width", Value::Int(5)),
        ] {
            env.insert(name.into(), value);
        }
        env
    }

    #[test]
    fn values() {
        for (text, want) in [
            ("hidden / heads", Value::Int(128)),
            ("2 * (heads + 1)", Value::Int(66)),
            ("hidden - heads * 2 - 1", Value::Int(4031)),
            ("window ?? hidden", Value::Int(4096)),
            ("list[layer] ?? 7", Value::Int(0)),
            ("window[layer] ?? (layer + 1) % 4 != 0", Value::Bool(false)),
            ("flag && !window", Value::Bool(true)),
            ("flag ? 1 : heads", Value::Int(1)),
            ("window ? 1 : flag ? 2 : 3", Value::Int(2)),
            ("hidden % heads == 0", Value::Bool(true)),
            ("layer >= 3", Value::Bool(true)),
            ("hidden // 3", Value::Int(1365)),
            ("layer in list", Value::Bool(false)),
            ("'gated' in kind && kind != 'relu'", Value::Bool(true)),
            ("inner.width + 1", Value::Int(6)),
            ("[3, heads]", Value::List(vec![3, 32])),
            ("1 in list && !(1 in window)", Value::Bool(true)),
        ] {
            assert_eq!(evaluate(text, &env()), Ok(want), "{text}");
        }
    }

    #[test]
    fn what_has_no_value_says_why() {
        let error = |text: &str| evaluate(text, &env()).unwrap_err().to_string();
        assert_eq!(error("hidden / 3"), "`hidden / 3`: 4096 is not a multiple of 3");
        assert_eq!(error("width"), "no field `width`");
        assert!(error("hidden *").contains("missing"));
        assert!(error("(hidden").contains("without"));
        assert!(error("hidden heads").contains("left over"));
        assert!(error("hidden / 0").contains("out of range"));
        assert!(error("9223372036854775807 + 1").contains("out of range"));
        assert!(error("flag + 1").contains("integers"));
        assert!(error("list[9]").contains("out of range"));
    }
}
