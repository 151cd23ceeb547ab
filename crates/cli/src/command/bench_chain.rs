//! `gemwright bench --device cuda --chain`: all products of the list in one graph, one after the other.

use super::bench::Asked;
use super::doctor_cuda::missing;
use crate::error::Error;
use gemwright_engine::Candidate;
use gemwright_engine::bench::Times;
use gemwright_engine::cuda::bench::Method;
use gemwright_engine::cuda::chain::{Link, measure_chains};
use gemwright_engine::cuda::contest::{Field, ratio};
use gemwright_engine::cuda::{CublasLt, Kernel};
use gemwright_report as report;
use serde_json::{Value, json};

/// What became of it.
pub struct Chained(Vec<Times>);

/// Ours as picked, the vendor's default, and of each product the proposal of the vendor's that was the fastest by itself.
pub fn chained(asked: &[Asked], rows: &[Value], field: &Field<'_>, rounds: usize) -> Result<Chained, Error> {
    let own = Kernel::Picked.candidate(field.device);
    let proposals = field.vendor.map_or(Vec::new(), CublasLt::proposals);
    let mut names = vec!["own"];
    if !proposals.is_empty() {
        names.extend(["cublaslt", "cublaslt, best of 8"]);
    }
    let links: Vec<Link<'_>> = asked
        .iter()
        .zip(rows)
        .map(|(asked, row)| {
            let mut candidates: Vec<&dyn Candidate> = vec![&*own];
            if let Some(default) = proposals.first() {
                let best = proposals.iter().find(|lt| Some(lt.name()) == fastest_of_vendor(row)).unwrap_or(default);
                candidates.extend([default as &dyn Candidate, best]);
            }
            Link { problem: asked.problem, count: asked.count.max(1) as usize, candidates }
        })
        .collect();
    let method = Method { rounds, ..Method::BURST };
    measure_chains(&names, &links, field.queue, field.tools, &method).map(Chained).map_err(|e| missing(&e))
}

fn fastest_of_vendor(row: &Value) -> Option<&str> {
    let times = row["burst"]["times"].as_array()?.iter().filter(|time| time["own"] != json!(true));
    let median = |time: &Value| {
        let mut values: Vec<f64> = time["us"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::INFINITY)
    };
    times.min_by(|x, y| median(x).total_cmp(&median(y)))?["name"].as_str()
}

impl Chained {
    pub fn json(&self) -> Value {
        let times = self.0.iter().map(|times| {
            let us: Vec<f64> = times.values.iter().map(|x| (x * 1e10).round() / 1e4).collect();
            json!({"name": times.name, "us": us, "own_is": self.0.first().map(|own| ratio(own, times))})
        });
        times.collect()
    }

    /// For the screen.
    pub fn lines(&self) -> String {
        let line = |times: &Times| {
            let faster = self.0.first().map_or(1.0, |own| ratio(own, times));
            let took = report::seconds(times.quantile(0.5));
            format!("  {:<20} {took:>10}   ours is {} times as fast", times.name, report::significant(faster, 3))
        };
        let lines: Vec<String> = self.0.iter().map(line).collect();
        format!("all of them one after the other, in one graph\n{}", lines.join("\n"))
    }
}
