//! `gemwright bench --device cuda --chain`: all products of the list in one graph, one after the other.

use super::asked::Asked;
use super::bench_cuda::median;
use gemwright_engine::Candidate;
use gemwright_engine::bench::Times;
use gemwright_engine::cuda::bench::{Measured, Method};
use gemwright_engine::cuda::chain::{Link, measure_chains};
use gemwright_engine::cuda::contest::Field;
use gemwright_engine::cuda::{CublasLt, Kernel};
use gemwright_report as report;
use serde_json::{Value, json};

/// What became of it.
pub struct Chained(Measured);

const OWN: &str = "own";

/// Ours as picked, the vendor's default, and of each product the proposal of the vendor's that was the fastest by itself.
pub fn chained(asked: &[Asked], rows: &[Value], field: &Field<'_>, rounds: usize) -> Result<Chained, String> {
    let own = Kernel::Picked.candidate(field.device);
    let proposals = field.vendor.map_or(Vec::new(), CublasLt::proposals);
    let mut names = vec![OWN];
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
    measure_chains(&names, &links, field.queue, field.tools, &method).map(Chained).map_err(|e| e.to_string())
}

fn fastest_of_vendor(row: &Value) -> Option<&str> {
    let times = row["burst"]["times"].as_array()?.iter().filter(|time| time["own"] != json!(true));
    times.min_by(|x, y| median(x).total_cmp(&median(y)))?["name"].as_str()
}

impl Chained {
    fn own(&self) -> Option<&Times> {
        self.0.of(OWN)
    }

    pub fn json(&self) -> Value {
        let times = self.0.times.iter().map(|times| {
            let us: Vec<f64> = times.values.iter().map(|x| (x * 1e10).round() / 1e4).collect();
            json!({"name": times.name, "us": us, "own_is": self.own().and_then(|own| own.ratio(times))})
        });
        let left_out = self.0.left_out.iter().map(|(name, why)| json!({"name": name, "left_out": why}));
        times.chain(left_out).collect()
    }

    /// For the screen.
    pub fn lines(&self) -> String {
        let line = |times: &Times| {
            let took = report::seconds(times.quantile(0.5));
            let faster = self
                .own()
                .and_then(|own| own.ratio(times))
                .map_or(String::new(), |ratio| format!("   ours is {} times as fast", report::significant(ratio, 3)));
            format!("  {:<20} {took:>10}{faster}", times.name)
        };
        let left_out = self.0.left_out.iter().map(|(name, why)| format!("  {name:<20} left out: {why}"));
        let lines: Vec<String> = self.0.times.iter().map(line).chain(left_out).collect();
        format!("all of them one after the other, in one graph\n{}", lines.join("\n"))
    }
}
