//! CSV files: which of them have a header.
//!
//! Invariant: the first line is a header exactly if the caller says so or its first field is one of
//! [`CSV_HEADER_NAMES`], in any case of letters; then it is reported. Every other line is data: a mistake in
//! the first key is not taken for a name.

use std::fs::File;
use std::io::{Error, ErrorKind, Read};
use std::path::Path;

use csv::{ReaderBuilder, StringRecord};
use farsight_base::report::report;

/// Names of a column of keys, by which a header is known.
pub const CSV_HEADER_NAMES: [&str; 3] = ["key", "keys", "id"];

/// A line that is put behind the file's last one: a quote that is open there takes it in.
const LAST_LINE: &str = "the last line";

/// The lines of a CSV file with their fields, a header left out and reported. Spaces belong to fields.
///
/// # Errors
/// A file that cannot be read; later, lines that are no UTF-8, and a quote that is opened but not closed.
pub fn csv_records(
    path: &Path,
    has_header: bool,
) -> Result<impl Iterator<Item = csv::Result<StringRecord>>, csv::Error> {
    let text = File::open(path)?.chain("\n".as_bytes()).chain(LAST_LINE.as_bytes());
    let reader = ReaderBuilder::new().flexible(true).has_headers(false).from_reader(text);
    let mut records = without_last_line(reader.into_records()).peekable();
    if let Some(Ok(first)) = records.peek()
        && (has_header || is_key_name(first.get(0).unwrap_or_default().trim()))
    {
        let names: Vec<&str> = first.iter().map(str::trim).collect();
        report(format_args!("{}: header: {}", path.display(), names.join(",")));
        records.next();
    }
    Ok(records)
}

/// The records of the file alone; an error in place of one that took in [`LAST_LINE`].
fn without_last_line(
    records: impl Iterator<Item = csv::Result<StringRecord>>,
) -> impl Iterator<Item = csv::Result<StringRecord>> {
    let mut records = records.peekable();
    std::iter::from_fn(move || {
        let record = records.next()?;
        if records.peek().is_some() {
            return Some(record);
        }
        match record {
            Ok(last) if last.len() == 1 && &last[0] == LAST_LINE => None,
            Ok(last) => Some(Err(unclosed(&last))),
            Err(error) => Some(Err(error)),
        }
    })
}

fn unclosed(record: &StringRecord) -> csv::Error {
    let line = record.position().map_or(0, csv::Position::line);
    let text =
        format!("the record of line {line} opens a quote (\") that is not closed up to the file's end");
    Error::new(ErrorKind::InvalidData, text).into()
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
    fn spaces_belong_to_fields() {
        assert_eq!(records("1, a \n 2,\" b \"\n", false), lines(&[(1, "1| a "), (2, " 2| b ")]));
    }

    #[test]
    fn a_quote_that_is_not_closed_is_named() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("pairs.csv");
        let last = |text: &str| {
            std::fs::write(&path, text).expect("writable");
            let records = csv_records(&path, false).expect("readable");
            records.last().expect("there is one").map_err(|error| error.to_string())
        };
        for text in ["1,\"a\n2,b\n3,c\n", "1,\"a\"\"\n", "1,\""] {
            let error = last(text).expect_err("it has no end");
            assert!(error.contains("line 1 opens a quote"), "{text:?}: {error}");
        }
        for text in ["1,\"a\nb\"", "1,\"a\"\"\"\n", "1,a\"\n", "1,\"\"", "1,the last line\n"] {
            last(text).expect("it is whole");
        }
        assert_eq!(records("the last line\n", false), lines(&[(1, "the last line")]));
        assert_eq!(records("the last line", false), lines(&[(1, "the last line")]));
    }

    #[test]
    fn a_header_is_named_or_announced() {
        let data = lines(&[(2, "1|a")]);
        for name in ["key", "Key", " KEYS ", "\"id\"", "\u{feff}key"] {
            assert_eq!(records(&format!("{name},value\n1,a\n"), false), data, "{name:?}");
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
