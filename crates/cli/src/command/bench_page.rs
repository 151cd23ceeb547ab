//! The page of `gemwright bench --html`: every candidate's share of the limit against the rows of the product, and where
//! another candidate is faster than ours.

use gemwright_core::Table;
use gemwright_report::{self as report, Axis, Curve, Dot, Measure, Page, Plot, Scale};

/// Changes that are told.
const CHANGES: usize = 5;

/// What a candidate did.
pub struct Run {
    /// What its dots are called; ours may be another kernel for every product.
    pub series: String,
    pub own: bool,
    pub seconds: f64,
    /// Of the limit, 0 to 1.
    pub share: Option<f64>,
}

/// A product that was measured.
pub struct Contest {
    pub caption: String,
    pub rows: u64,
    pub count: u64,
    /// What finds its rows in the tables.
    pub filter: String,
    /// Time of the best other by ours.
    pub ratio: Option<f64>,
    pub runs: Vec<Run>,
}

impl Contest {
    fn best(&self, own: bool) -> Option<&Run> {
        let runs = self.runs.iter().filter(|run| run.own == own && run.seconds > 0.0);
        runs.min_by(|x, y| x.seconds.total_cmp(&y.seconds))
    }
}

fn mean(of: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = of.filter(|x| *x > 0.0).fold((0u32, 0.0), |(count, sum), x| (count + 1, sum + x.ln()));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

/// The page; `limit` says what the shares are of.
pub fn bench_page(title: String, subtitle: String, limit: &str, contests: &[Contest], table: Table) -> Page {
    let mut series: Vec<&str> = Vec::new();
    for own in [true, false] {
        for run in contests.iter().flat_map(|contest| &contest.runs).filter(|run| run.own == own) {
            if !series.contains(&run.series.as_str()) {
                series.push(&run.series);
            }
        }
    }
    Page {
        title,
        subtitle,
        answer: answer(contests),
        changes: changes(contests),
        measures: vec![("Products won".to_string(), wins(contests, &series))],
        plot: plot(limit, contests, &series),
        tables: vec![("times".into(), table)],
        open: "times".into(),
        ..Page::default()
    }
}

fn answer(contests: &[Contest]) -> String {
    let ratios: Vec<(&Contest, f64)> = contests.iter().filter_map(|c| Some((c, c.ratio?))).collect();
    let (Some(all), Some(least)) = (mean(ratios.iter().map(|r| r.1)), ratios.iter().min_by(|x, y| x.1.total_cmp(&y.1)))
    else {
        return format!("{} products, without another candidate to hold ours against.", contests.len());
    };
    let won = ratios.iter().filter(|(_, ratio)| *ratio >= 1.0).count();
    format!(
        "Ours is {} times as fast as the best other (geometric mean over {} products) and the fastest on {won} of them; \
         least {} at {}.",
        report::significant(all, 3),
        ratios.len(),
        report::significant(least.1, 3),
        least.0.caption
    )
}

/// Where another candidate would save most.
fn changes(contests: &[Contest]) -> Vec<(String, String)> {
    let mut all: Vec<(f64, String, String)> = Vec::new();
    for contest in contests {
        let (Some(own), Some(other)) = (contest.best(true), contest.best(false)) else { continue };
        let saves = (own.seconds - other.seconds) * contest.count as f64;
        if saves > 0.0 {
            let text = format!(
                "{}: {} takes {}, ours {}; it would save {} in {} {}",
                contest.caption,
                other.series,
                report::seconds(other.seconds),
                report::seconds(own.seconds),
                report::seconds(saves),
                contest.count,
                if contest.count == 1 { "run" } else { "runs" },
            );
            all.push((saves, text, contest.filter.clone()));
        }
    }
    all.sort_by(|x, y| y.0.total_cmp(&x.0));
    all.into_iter().take(CHANGES).map(|(_, text, filter)| (text, filter)).collect()
}

/// On how many products each is the fastest.
fn wins(contests: &[Contest], series: &[&str]) -> Vec<Measure> {
    let fastest = |contest: &&Contest, name: &str| {
        let first = contest.runs.iter().min_by(|x, y| x.seconds.total_cmp(&y.seconds));
        first.is_some_and(|run| run.series == name)
    };
    let line = |name: &&str| {
        let won = contests.iter().filter(|contest| fastest(contest, name)).count();
        let share = won as f64 / contests.len().max(1) as f64;
        Measure { caption: (*name).to_string(), text: format!("{won} of {}", contests.len()), share }
    };
    series.iter().map(line).collect()
}

fn plot(limit: &str, contests: &[Contest], series: &[&str]) -> Plot {
    let shares = || contests.iter().flat_map(|c| c.runs.iter().filter_map(move |run| Some((c, run, run.share?))));
    let rows = || contests.iter().map(|contest| contest.rows.max(1) as f64);
    let (low, high) = rows().fold((f64::INFINITY, 1.0f64), |(low, high), x| (low.min(x), high.max(x)));
    let most = shares().map(|(_, _, share)| share).fold(1.0, f64::max);
    let mut dots: Vec<Dot> = Vec::new();
    for (contest, run, share) in shares() {
        let kind = series.iter().position(|name| *name == run.series).unwrap_or(0);
        let words = vec![
            run.series.clone(),
            contest.caption.clone(),
            report::seconds(run.seconds),
            format!("{} of {limit}", report::percent(share)),
        ];
        dots.push(Dot {
            x: contest.rows.max(1) as f64,
            y: share,
            area: 0.02,
            kind,
            words,
            filter: contest.filter.clone(),
        });
    }
    dots.sort_by(|x, y| x.x.total_cmp(&y.x));
    let curve = |(kind, name): (usize, &&str)| {
        let mut at: Vec<f64> = dots.iter().filter(|dot| dot.kind == kind).map(|dot| dot.x).collect();
        at.dedup();
        let average = |x: f64| mean(dots.iter().filter(|d| d.kind == kind && d.x == x).map(|d| d.y));
        let points = at.into_iter().filter_map(|x| Some((x, average(x)?))).collect();
        Curve { name: (*name).to_string(), points, kind: Some(kind) }
    };
    let axis = |caption: String, low, high, scale| Axis { caption, low, high, scale };
    Plot {
        heading: format!("Share of {limit} against M"),
        empty: "Nothing was measured against a limit.".into(),
        about: format!("Share of {limit} against M: a circle for each of {} measurements.", dots.len()),
        x: axis("rows, M".into(), low.min(high) / 1.2, high * 1.2, Scale::Logarithmic),
        y: axis(format!("share of {limit}"), 0.0, (most * 10.0).ceil() / 10.0, Scale::Percent),
        curves: series.iter().enumerate().map(curve).collect(),
        dots,
        kinds: series.iter().map(ToString::to_string).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contest(rows: u64, own: f64, other: f64) -> Contest {
        let run =
            |series: &str, own, seconds: f64| Run { series: series.into(), own, seconds, share: Some(1e-3 / seconds) };
        Contest {
            caption: format!("{rows} x 8 x 8"),
            rows,
            count: 3,
            filter: rows.to_string(),
            ratio: Some(other / own),
            runs: vec![run("ours", true, own), run("theirs", false, other)],
        }
    }

    #[test]
    fn it_says_who_wins_and_what_the_other_would_save() {
        let contests = [contest(1, 2e-3, 1e-3), contest(64, 1e-3, 4e-3)];
        let page = bench_page("t".into(), String::new(), "the limit", &contests, Table::new(&[]));
        assert!(page.answer.contains("1.41 times") && page.answer.contains("1 of them"), "{}", page.answer);
        assert!(page.answer.contains("least 0.500 at 1 x 8 x 8"), "{}", page.answer);
        assert_eq!(page.changes.len(), 1);
        assert!(page.changes[0].0.contains("save 3"), "{:?}", page.changes);
        assert_eq!(page.plot.curves[0].points, [(1.0, 0.5), (64.0, 1.0)]);
        assert_eq!(page.measures[0].1[1].text, "1 of 2");
    }

    #[test]
    fn alone_there_is_nothing_to_hold_it_against() {
        let mut alone = contest(1, 1e-3, 1e-3);
        alone.runs.pop();
        alone.ratio = None;
        let page = bench_page("t".into(), String::new(), "the limit", &[alone], Table::new(&[]));
        assert!(page.answer.contains("without another") && page.changes.is_empty());
    }
}
