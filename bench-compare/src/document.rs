//! Putting a comparison into a document, in place of the one of the same name.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

const SECONDS_PER_DAY: u64 = 86_400;

/// Replaces the part of the document at `path` that stands between the markers of `name` by `markdown`. Adds
/// it at the end if there is none.
pub(crate) fn put(path: &Path, name: &str, markdown: &str) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let text = replaced(&text, name, markdown).with_context(|| format!("changing {}", path.display()))?;
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

fn replaced(text: &str, name: &str, markdown: &str) -> Result<String> {
    let (begin, end) = (format!("<!-- measured: {name} -->\n"), format!("<!-- end: {name} -->\n"));
    let block = format!("{begin}\n{markdown}{end}");
    let Some((before, rest)) = text.split_once(&begin) else {
        return Ok(format!("{text}\n{block}"));
    };
    let after = rest.split_once(&end).map(|(_, after)| after);
    ensure!(after.is_some(), "the line {:?} is missing", end.trim());
    Ok(format!("{before}{block}{}", after.unwrap_or_default()))
}

/// The day of `now` in UTC, as year-month-day.
pub(crate) fn date(now: SystemTime) -> String {
    let days = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / SECONDS_PER_DAY);
    // Days since 0000-03-01 in eras of 400 years: years that begin in March end with the leap day.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn days_have_their_dates() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (20_453, "2025-12-31"),
            (20_778, "2026-11-21"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(days * SECONDS_PER_DAY + 7)), expected);
        }
    }

    #[test]
    fn a_block_is_added_once_and_then_replaced() {
        let first = replaced("# Title\n", "uniform 1000", "| one |\n\n").expect("added");
        assert!(first.starts_with("# Title\n\n<!-- measured: uniform 1000 -->\n"), "{first}");
        let second = replaced(&format!("{first}after\n"), "uniform 1000", "| two |\n\n").expect("replaced");
        assert!(second.ends_with("<!-- end: uniform 1000 -->\nafter\n"), "{second}");
        assert!(second.contains("| two |") && !second.contains("| one |"), "{second}");
        let third = replaced(&second, "uniform 5", "| three |\n\n").expect("added");
        assert_eq!(third.matches("<!-- measured").count(), 2);
        let broken = first.replace("<!-- end", "<!-- und");
        let error = replaced(&broken, "uniform 1000", "").unwrap_err().to_string();
        assert!(error.contains("<!-- end: uniform 1000 -->"), "{error}");
    }
}
