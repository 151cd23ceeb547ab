//! Figures of a list of numbers, as pandas and numpy give them.

/// Of at least one number.
pub struct Statistics {
    pub sum: f64,
    pub mean: f64,
    pub median: f64,
    /// With n - 1; none of one number.
    pub sample_deviation: Option<f64>,
    /// With n.
    pub deviation: f64,
    pub least: f64,
    pub largest: f64,
}

impl Statistics {
    /// Of those that are numbers; nothing of none.
    pub fn of_numbers(values: impl Iterator<Item = f64>) -> Option<Statistics> {
        let values: Vec<f64> = values.filter(|value| !value.is_nan()).collect();
        (!values.is_empty()).then(|| Statistics::of(&values))
    }

    pub fn of(values: &[f64]) -> Statistics {
        let n = values.len() as f64;
        let sum: f64 = values.iter().sum();
        let mean = sum / n;
        let squares: f64 = values.iter().map(|x| (x - mean) * (x - mean)).sum();
        // Value by value, as pandas does in groups: equal values deviate by nothing at all.
        let (mut so_far, mut spread) = (0.0, 0.0);
        for (i, x) in values.iter().enumerate() {
            let from = x - so_far;
            so_far += from / (i + 1) as f64;
            spread += from * (x - so_far);
        }
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => sorted[middle],
            _ if sorted.is_empty() => f64::NAN,
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        Statistics {
            sum,
            mean,
            median,
            sample_deviation: (values.len() > 1).then(|| (spread / (n - 1.0)).sqrt()),
            deviation: (squares / n).sqrt(),
            least: sorted.first().copied().unwrap_or(f64::NAN),
            largest: sorted.last().copied().unwrap_or(f64::NAN),
        }
    }
}
