//! Files of keys, told apart by extension: `.txt` holds one key a line, `.csv` a key in the first column,
//! everything else is SOSD binary. A `.csv` file has a header if its first name is one of
//! [`CSV_HEADER_NAMES`](super::CSV_HEADER_NAMES).

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use super::{DatasetError, KeySet, csv_records, read_sosd};

/// How to take a file's keys.
#[derive(Debug, Clone, Copy, Default)]
pub struct FileOptions {
    /// Sort keys that are out of order, which is an error otherwise.
    pub sort: bool,
}

/// Characters of a wrong line that an error repeats.
const EVIDENCE_CHARACTERS: usize = 40;

pub(super) fn read(path: &Path, options: FileOptions) -> Result<KeySet, DatasetError> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("txt") => in_order(path, text_keys(path)?, options),
        Some("csv") => in_order(path, csv_keys(path)?, options),
        _ => read_sosd(path, options),
    }
}

/// Checks or makes the order, and drops repetitions.
pub(super) fn in_order(path: &Path, keys: Vec<u64>, options: FileOptions) -> Result<KeySet, DatasetError> {
    if options.sort {
        return Ok(KeySet::of_unsorted(keys));
    }
    match keys.windows(2).position(|pair| pair[0] > pair[1]) {
        Some(before) => Err(DatasetError::Unsorted {
            path: path.to_owned(),
            index: before + 1,
            previous: keys[before],
            key: keys[before + 1],
        }),
        None => Ok(KeySet::of_sorted(keys)),
    }
}

/// Keys of a text file; empty lines are skipped.
fn text_keys(path: &Path) -> Result<Vec<u64>, DatasetError> {
    let io_error = |source| DatasetError::Io { action: "reading", path: path.to_owned(), source };
    let reader = BufReader::new(File::open(path).map_err(io_error)?);
    let mut keys = Vec::new();
    for (line, text) in (1..).zip(reader.lines()) {
        let text = text.map_err(io_error)?;
        if !text.trim().is_empty() {
            keys.push(text.trim().parse().map_err(|_| not_a_key(path, line, &text))?);
        }
    }
    Ok(keys)
}

/// Keys of a CSV file's first column.
fn csv_keys(path: &Path) -> Result<Vec<u64>, DatasetError> {
    let csv_error = |source| DatasetError::Csv { path: path.to_owned(), source };
    let mut keys = Vec::new();
    for (number, record) in (1..).zip(csv_records(path, false).map_err(csv_error)?) {
        let record = record.map_err(csv_error)?;
        let text = record.get(0).unwrap_or_default().trim();
        let line = record.position().map_or(number, csv::Position::line);
        keys.push(text.parse().map_err(|_| not_a_key(path, line, text))?);
    }
    Ok(keys)
}

fn not_a_key(path: &Path, line: u64, text: &str) -> DatasetError {
    let text = text.chars().take(EVIDENCE_CHARACTERS).collect();
    DatasetError::NotAKey { path: path.to_owned(), line, text }
}
