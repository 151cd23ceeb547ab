//! "Did you mean": the known name closest to an unknown one.

/// The name most like `wanted`, if any is likely to be meant.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lower = wanted.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&lower, &name.to_lowercase()), name))
        .filter(|(score, _)| *score > 0.75)
        .max_by(|x, y| x.0.total_cmp(&y.0))
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn close_names_are_offered_and_far_ones_are_not() {
        let known = ["llama", "mistral", "gpt_neox"];
        assert_eq!(nearest("lama", known), Some("llama"));
        assert_eq!(nearest("gpt-neox", known), Some("gpt_neox"));
        assert_eq!(nearest("zzz", known), None);
    }
}
