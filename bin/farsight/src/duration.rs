//! Durations as a command line has them.

use std::time::Duration;

/// Units, and their milliseconds; the longest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// A number of one of the units.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let Some((_, unit_ms)) = UNITS.iter().find(|(name, _)| *name == unit && !number.is_empty()) else {
        return Err(format!(
            "{text:?} is no duration: write a number of ms, s, m, h or d, as in 500ms or 5s"
        ));
    };
    let parsed = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*unit_ms));
    parsed
        .map(Duration::from_millis)
        .ok_or_else(|| format!("{text} is too long, at most {}ms are possible", u64::MAX))
}

/// A duration in whole milliseconds, in its two greatest units.
pub(crate) fn text(duration: Duration) -> String {
    let mut left_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut parts = Vec::new();
    for (name, ms) in UNITS {
        let count = left_ms / ms;
        left_ms %= ms;
        if count > 0 || !parts.is_empty() {
            parts.push((count, name));
        }
    }
    let parts = parts.into_iter().take(2).filter(|(count, _)| *count > 0);
    let text: Vec<String> = parts.map(|(count, name)| format!("{count}{name}")).collect();
    if text.is_empty() { "0ms".to_owned() } else { text.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("3h"), Ok(Duration::from_secs(3 * 3600)));
        assert_eq!(parse("1d"), Ok(Duration::from_secs(86_400)));
        for text in ["5", "", "s", "ms", "5 s", "-1s", "1.5s", "5sec"] {
            assert!(parse(text).unwrap_err().contains("500ms"), "{text}");
        }
        assert_eq!(parse("18446744073709551615ms"), Ok(Duration::from_millis(u64::MAX)));
        for text in ["99999999999999999d", "18446744073709551616ms", "99999999999999999999999s"] {
            assert!(parse(text).unwrap_err().contains("is too long"), "{text}");
        }
    }

    #[test]
    fn durations_are_said_in_two_units() {
        let said = [0, 7, 1_000, 61_007, 3_600_000, 90_061_007].map(|ms| text(Duration::from_millis(ms)));
        assert_eq!(said, ["0ms", "7ms", "1s", "1m 1s", "1h", "1d 1h"]);
    }
}
