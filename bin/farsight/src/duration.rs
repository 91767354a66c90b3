//! Durations as a command line has them.

use std::time::Duration;

/// A number of `ms` or `s`.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let parsed = match text.strip_suffix("ms") {
        Some(number) => number.parse().ok().map(Duration::from_millis),
        None => text.strip_suffix('s').and_then(|number| number.parse().ok()).map(Duration::from_secs),
    };
    parsed.ok_or_else(|| format!("{text:?} is no duration: write a number of ms or s, as in 500ms or 5s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("5s"), Ok(Duration::from_secs(5)));
        for text in ["5", "", "s", "ms", "5 s", "-1s", "1.5s", "5m", "5sec"] {
            assert!(parse(text).unwrap_err().contains("500ms"), "{text}");
        }
    }
}
