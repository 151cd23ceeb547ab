//! One side of a comparison: whatever names a workload, or a `model` command in quotes.

use crate::chips::chips;
use crate::error::Error;
use crate::subject::{ModelOptions, model};
use crate::workload::{describe, holds_list, workload};
use clap::Parser;
use gemwright_core::{Catalog, Chip, Workload};
use gemwright_model::{Model, Options};
use std::path::Path;

/// The words of a quoted command.
#[derive(Parser)]
#[command(name = "model", no_binary_name = true, disable_help_flag = true)]
struct Words {
    subject: String,
    #[command(flatten)]
    options: ModelOptions,
}

/// A workload, and the model behind it where there is one.
pub struct Side {
    pub title: String,
    pub workload: Workload,
    pub model: Option<(Model, Options)>,
}

/// A quoted command as words, without the program's own name.
fn words(text: &str) -> Result<Words, Error> {
    let wrong = |why: &str| Error::Usage(format!("`{text}`: {why}"));
    let mut words = match Path::new(text).exists() {
        true => vec![text.to_string()],
        false => shlex::split(text).ok_or_else(|| wrong("a quote is not closed"))?,
    };
    for name in ["gemwright", "model"] {
        if words.len() > 1 && words[0] == name && !words[1].starts_with('-') {
            words.remove(0);
        }
    }
    let read = Words::try_parse_from(&words);
    read.map_err(|error| {
        let message = error.render().to_string();
        let first = message.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").replace('\n', " ");
        wrong(&first)
    })
}

impl Side {
    /// Reads or predicts it.
    pub fn read(text: &str, quiet: bool) -> Result<Side, Error> {
        let words = words(text)?;
        if holds_list(&words.subject) {
            let workload = workload(&words.subject, &words.options, quiet)?;
            return Ok(Side { title: describe(&workload), workload, model: None });
        }
        let (model, options) = (model(&words.subject)?, words.options.options());
        let workload = model.predict(&options)?.workload;
        Ok(Side { title: text.to_string(), workload, model: Some((model, options)) })
    }

    /// Predicts it again with the order of single calls, which a graph on the other side needs.
    pub fn keep_order(&mut self) -> Result<(), Error> {
        if let Some((model, options)) = &mut self.model {
            options.in_order = true;
            self.workload = model.predict(options)?.workload;
        }
        Ok(())
    }

    /// The GPU that the source names, if the catalog has it.
    pub fn own_chip(&self) -> Option<Chip> {
        let fact = |name: &str| self.workload.source.facts.iter().find(|(key, _)| key == name).map(|(_, value)| value);
        let number = |name: &str| fact(name).and_then(serde_json::Value::as_i64);
        let name = fact("device")?.as_str()?;
        Catalog::builtin().recognise(name, number("units"), number("memory")).cloned()
    }
}

/// The chip of each side: as asked for (one for both, or one each), else its own, else the other's.
pub fn chips_of(sides: [&Side; 2], on: &[String]) -> Result<[Option<Chip>; 2], Error> {
    match chips(on)?.as_slice() {
        [] => {
            let [a, b] = sides.map(Side::own_chip);
            Ok([a.clone().or_else(|| b.clone()), b.or(a)])
        }
        [one] => Ok([Some(one.clone()), Some(one.clone())]),
        [a, b] => Ok([Some(a.clone()), Some(b.clone())]),
        several => Err(Error::Usage(format!("--on names {} chips; one for both sides, or one each", several.len()))),
    }
}
