//! A config.json as it was written: its fields, and where in the file they stand.

use crate::declaration::{Facts, Field, FieldKind, FullField};
use crate::error::ModelError;
use crate::expr::{Env, Value, evaluate};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The largest extent a config may give: beyond it is a mistake, not a model.
const LARGEST: i64 = 1 << 24;

/// A parsed config file with its text, for messages that name the line.
pub struct Config {
    /// What messages call the file.
    pub file: String,
    text: String,
    fields: serde_json::Map<String, Json>,
}

impl Config {
    /// Reads the text of a config.json.
    pub fn parse(file: &str, text: &str) -> Result<Config, ModelError> {
        let json = |why: String| ModelError::Json { file: file.into(), why };
        match serde_json::from_str(text) {
            Ok(Json::Object(fields)) => Ok(Config { file: file.into(), text: text.into(), fields }),
            Ok(_) => Err(json("not a JSON object; a config.json is one".into())),
            Err(e) => Err(json(format!("not JSON: {e}"))),
        }
    }

    /// The value of a field, explicit null included; `a.b` is the field `b` of the object `a`.
    pub fn get(&self, field: &str) -> Option<&Json> {
        match field.split_once('.') {
            Some((object, field)) => self.nested(object, field),
            None => self.fields.get(field),
        }
    }

    /// The value of a field inside an object field.
    pub fn nested(&self, object: &str, field: &str) -> Option<&Json> {
        self.fields.get(object).and_then(|o| o.get(field))
    }

    /// An error about a field, with its place.
    pub fn error(&self, field: &str, why: impl Into<String>) -> ModelError {
        let key = field.rsplit('.').next().unwrap_or(field);
        let place = match place_of_key(&self.text, key) {
            Some((line, column)) => format!("{}:{line}:{column}", self.file),
            None => self.file.clone(),
        };
        ModelError::Field { place, field: field.into(), why: why.into() }
    }

    /// An integer that counts something.
    pub fn count(&self, field: &str, json: &Json, least: i64) -> Result<i64, ModelError> {
        match json.as_i64() {
            Some(n) if (least..=LARGEST).contains(&n) => Ok(n),
            Some(n) => Err(self.error(field, format!("is {n}; it must be from {least} to {LARGEST}"))),
            None => Err(self.error(field, format!("is {}; it must be an integer", shown(json)))),
        }
    }

    fn typed(&self, field: &str, json: &Json, kind: FieldKind) -> Result<Value, ModelError> {
        let wrong = |what: &str| Err(self.error(field, format!("is {}; it must be {what}", shown(json))));
        match kind {
            FieldKind::Int => self.count(field, json, 0).map(Value::Int),
            FieldKind::Bool => json.as_bool().map_or_else(|| wrong("true or false"), |x| Ok(Value::Bool(x))),
            FieldKind::Text => json.as_str().map_or_else(|| wrong("a text"), |x| Ok(Value::Text(x.into()))),
            FieldKind::Float => json.as_f64().map_or_else(|| wrong("a number"), |x| Ok(Value::Float(x))),
            FieldKind::List => match json.as_array() {
                Some(list) => {
                    let number = |x: &Json| self.count(field, x, 0);
                    list.iter().map(number).collect::<Result<_, _>>().map(Value::List)
                }
                None => wrong("a list of integers"),
            },
        }
    }

    /// All declared fields with their values, and the names of those that were absent.
    pub fn resolve(&self, declaration: &Facts) -> Result<(Env, Vec<String>), ModelError> {
        let mut env = Env::new();
        let mut absent = Vec::new();
        // Expressions name other fields, so they come after everything that is written down.
        let mut later = Vec::new();
        for (name, field) in &declaration.config {
            let field = Rules::of(field);
            if let Some((object, _)) = name.split_once('.')
                && let Some(json) = self.get(object).filter(|json| !json.is_object() && !json.is_null())
            {
                return Err(self.error(object, format!("is {}; it must be an object", shown(json))));
            }
            let spelt = declaration.aliases.iter().filter(|(_, f)| *f == name).map(|(alias, _)| alias);
            let written = spelt.chain([name]).find_map(|spelling| self.get(spelling).map(|json| (spelling, json)));
            // transformers counts the labels where it saves their names.
            let labels = self.get("id2label").and_then(Json::as_object).filter(|_| name == "num_labels");
            if let (Some(labels), None) = (labels, written) {
                env.insert(name.clone(), Value::Int(labels.len() as i64));
                continue;
            }
            match written {
                Some((spelling, Json::Null)) => match field.null {
                    Some(expression) => later.push((name, expression)),
                    None => return Err(self.error(spelling, "is null, which this type does not accept")),
                },
                Some((_, Json::String(word))) if field.words.contains_key(word) => {
                    later.push((name, field.words[word].clone()));
                }
                Some((spelling, json)) => {
                    env.insert(name.clone(), self.typed(spelling, json, field.kind)?);
                }
                None => match field.absent {
                    Some(expression) => {
                        absent.push(name.clone());
                        later.push((name, expression));
                    }
                    None => return Err(self.error(name, "is missing, and this type has no default for it")),
                },
            }
        }
        // A broken rule says more than a default that fails because of it.
        for rule in &declaration.require {
            if crate::expr::holds(&rule.that, &env) == Ok(false) {
                return Err(self.error(&rule.field, rule.why.clone()));
            }
        }
        self.settle(later, &mut env)?;
        for rule in &declaration.require {
            if !self.holds(&rule.that, &env)? {
                return Err(self.error(&rule.field, rule.why.clone()));
            }
        }
        Ok((env, absent))
    }

    /// Evaluates expressions that may name one another, each once its names are known.
    fn settle(&self, mut later: Vec<(&String, String)>, env: &mut Env) -> Result<(), ModelError> {
        while !later.is_empty() {
            let mut waiting = Vec::new();
            let before = later.len();
            let mut last = None;
            for (name, expression) in later {
                match evaluate(&expression, env) {
                    Ok(value) => {
                        env.insert(name.clone(), value);
                    }
                    Err(error @ crate::expr::ExprError::Unknown(_)) => {
                        last = Some(error);
                        waiting.push((name, expression));
                    }
                    Err(error) => {
                        return Err(self.error(name, format!("is absent or null, and its default fails: {error}")));
                    }
                }
            }
            if waiting.len() == before {
                let source = last.unwrap_or(crate::expr::ExprError::Unknown(String::new()));
                return Err(ModelError::Expr { file: self.file.clone(), source });
            }
            later = waiting;
        }
        Ok(())
    }

    /// The truth of a declaration's expression.
    pub fn holds(&self, expression: &str, env: &Env) -> Result<bool, ModelError> {
        crate::expr::holds(expression, env).map_err(|source| ModelError::Expr { file: self.file.clone(), source })
    }
}

/// What holds for a declared field, whichever way it was declared.
struct Rules {
    kind: FieldKind,
    absent: Option<String>,
    null: Option<String>,
    words: BTreeMap<String, String>,
}

impl Rules {
    fn of(field: &Field) -> Rules {
        let words = BTreeMap::new();
        let literal = |kind, text: String| Rules { kind, absent: Some(text), null: None, words: BTreeMap::new() };
        match field {
            Field::Bool(x) => literal(FieldKind::Bool, x.to_string()),
            Field::Int(x) => literal(FieldKind::Int, x.to_string()),
            Field::Expression(text) => {
                Rules { kind: FieldKind::Int, absent: Some(text.clone()), null: Some(text.clone()), words }
            }
            Field::Full(FullField { kind, absent, null, words }) => {
                Rules { kind: *kind, absent: absent.clone(), null: null.clone(), words: words.clone() }
            }
        }
    }
}

fn shown(json: &Json) -> String {
    let text = json.to_string();
    if text.chars().count() <= 40 { text } else { text.chars().take(37).chain("...".chars()).collect() }
}

/// Line and column, from 1, at which a key stands in a JSON text; the outermost one if it is there more than once.
fn place_of_key(text: &str, key: &str) -> Option<(usize, usize)> {
    let quoted = format!("\"{key}\"");
    let mut best: Option<(usize, usize)> = None;
    let (mut depth, mut in_string, mut skip) = (0usize, false, false);
    for (at, c) in text.char_indices() {
        if skip {
            skip = false;
        } else if in_string {
            match c {
                '\\' => skip = true,
                '"' => in_string = false,
                _ => {}
            }
        } else {
            match c {
                '"' => {
                    in_string = true;
                    let rest = &text[at..];
                    let is_key = rest.starts_with(&quoted) && rest[quoted.len()..].trim_start().starts_with(':');
                    if is_key && best.is_none_or(|(d, _)| depth < d) {
                        best = Some((depth, at));
                    }
                }
                '{' | '[' => depth += 1,
                '}' | ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
        }
    }
    let (_, at) = best?;
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    Some((line, column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_where_it_stands_and_not_in_a_value() {
        let text = "{\n \"a\": \"b\",\n \"x\": {\"b\": 1},\n  \"b\": 2}";
        assert_eq!(place_of_key(text, "b"), Some((4, 3)));
        assert_eq!(place_of_key(text, "c"), None);
        assert_eq!(place_of_key("{\"q\\\"b\": 1, \"b\" : 2}", "b"), Some((1, 13)));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for text in ["", "[]", "1", "{", "null", "{\"a\": nan}"] {
            assert!(Config::parse("x", text).is_err(), "{text}");
        }
    }
}
