//! CSV files: which of them have a header.
//!
//! Invariant: the first line is a header exactly if the caller says so or its first field is one of
//! [`CSV_HEADER_NAMES`], in any case of letters; then it is reported. Every other line is data: a mistake in
//! the first key is not taken for a name.

use std::path::Path;

use csv::{ReaderBuilder, StringRecord, Trim};
use farsight_base::report::report;

/// Names of a column of keys, by which a header is known.
pub const CSV_HEADER_NAMES: [&str; 3] = ["key", "keys", "id"];

/// The lines of a CSV file with their fields, a header left out and reported. Fields are trimmed.
///
/// # Errors
/// A file that cannot be read; later, lines that are no UTF-8.
pub fn csv_records(
    path: &Path,
    has_header: bool,
) -> Result<impl Iterator<Item = csv::Result<StringRecord>>, csv::Error> {
    let mut reader = ReaderBuilder::new().flexible(true).trim(Trim::All).from_path(path)?;
    // The reader takes the first line for a header; it is handed on unless it is one.
    let first = reader.headers()?.clone();
    let is_header = has_header || is_key_name(first.get(0).unwrap_or_default());
    if is_header {
        report(format_args!("{}: header: {}", path.display(), first.iter().collect::<Vec<_>>().join(",")));
    }
    let data = (!is_header && !first.is_empty()).then_some(Ok(first));
    Ok(data.into_iter().chain(reader.into_records()))
}

fn is_key_name(field: &str) -> bool {
    CSV_HEADER_NAMES.iter().any(|name| field.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(text: &str, has_header: bool) -> Vec<(u64, String)> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("pairs.csv");
        std::fs::write(&path, text).expect("writable");
        let records = csv_records(&path, has_header).expect("readable");
        let line = |record: &StringRecord| record.position().expect("it was read").line();
        records
            .map(|record| record.expect("UTF-8"))
            .map(|record| (line(&record), record.iter().collect::<Vec<_>>().join("|")))
            .collect()
    }

    fn lines(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
        expected.iter().map(|(line, fields)| (*line, (*fields).to_owned())).collect()
    }

    #[test]
    fn a_header_is_named_or_announced() {
        let data = lines(&[(2, "1|a")]);
        for name in ["key", "Key", " KEYS ", "\"id\"", "\u{feff}key"] {
            assert_eq!(records(&format!("{name},value\n1, a\n"), false), data, "{name:?}");
        }
        for name in ["O1", "keyed", "price", "", "1"] {
            let all = lines(&[(1, &format!("{name}|value")), (2, "1|a")]);
            assert_eq!(records(&format!("{name},value\n1,a\n"), false), all, "{name:?}");
            assert_eq!(records(&format!("{name},value\n1,a\n"), true), data, "{name:?}");
        }
        assert_eq!(records("\n\nkey\n7\n", false), lines(&[(4, "7")]));
        assert_eq!(records("", false), []);
        assert_eq!(records("key\n", false), []);
    }
}
