//! Pairs to be loaded: read, sorted, without repetitions.

#[cfg(feature = "arrow")]
mod columns;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use farsight::{KeyKind, ValueKind};
use farsight_bench::dataset::{CSV_HEADER_NAMES, Dataset, csv_records};
use serde_json::value::RawValue;

use crate::key_set;
use crate::key_text::KeyText;
use crate::value_text::ValueFormat;

/// The seed of samples: fixed, so that a load repeated is the same.
const SAMPLE_SEED: u64 = 1;

/// Keys by which a new table's ranges are chosen: of sixteen, each gets a sixteenth of the keys to within a
/// few in a thousand.
const SAMPLE_KEYS: usize = 1 << 14;

/// Pairs in ascending order of their keys, which are distinct: integers that stand for them, or bytes.
pub(super) struct Pairs<T> {
    pub(super) keys: Vec<T>,
    pub(super) values: LoadedValues,
    pub(super) duplicates_dropped: u64,
}

/// The values of pairs, by their numbers.
pub(super) struct LoadedValues {
    /// One value a key, one behind the other.
    bytes: Vec<u8>,
    /// Where each ends; empty if the source has no values.
    ends: Vec<usize>,
    /// Bytes of a value that is derived from its key.
    derived_bytes: usize,
}

/// What to read.
pub(super) struct Request<'a> {
    pub(super) source: &'a str,
    pub(super) format: ValueFormat,
    pub(super) keys: Option<usize>,
    pub(super) header: bool,
    pub(super) sort: bool,
    pub(super) table: &'a str,
}

/// Pairs as they stand in a file.
struct Unsorted<T> {
    keys: Vec<T>,
    values: Vec<u8>,
    ends: Vec<usize>,
}

impl<T> Default for Unsorted<T> {
    fn default() -> Self {
        Self { keys: Vec::new(), values: Vec::new(), ends: Vec::new() }
    }
}

/// Value `index` of those that end there.
fn value_of<'a>(values: &'a [u8], ends: &[usize], index: usize) -> &'a [u8] {
    let begin = index.checked_sub(1).map_or(0, |before| ends[before]);
    &values[begin..ends[index]]
}

impl<T> Pairs<T> {
    /// Some of the keys, evenly spread over all.
    pub(super) fn sample(&self) -> impl Iterator<Item = &T> {
        self.keys.iter().step_by(self.keys.len().div_ceil(SAMPLE_KEYS).max(1))
    }
}

impl LoadedValues {
    /// The value of pair `index`, in `scratch` if it is derived from the key, whose bytes are these.
    pub(super) fn value<'a>(&'a self, index: usize, key: &[u8], scratch: &'a mut Vec<u8>) -> &'a [u8] {
        if self.ends.is_empty() {
            scratch.clear();
            scratch.extend(key.iter().cycle().take(self.derived_bytes));
            scratch
        } else {
            value_of(&self.bytes, &self.ends, index)
        }
    }
}

/// Reads the pairs of a source.
pub(super) fn read<K: KeyText + ?Sized>(request: &Request<'_>, kind: ValueKind) -> Result<Pairs<K::Typed>> {
    let path = Path::new(request.source);
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    ensure!(!request.header || extension.as_deref() == Some("csv"), "--header is for .csv files only");
    let unsorted = match extension.as_deref() {
        Some("txt") => text_keys::<K>(path)?,
        Some("csv") => csv_pairs::<K>(path, request, kind)?,
        Some("jsonl" | "ndjson") => json_pairs::<K>(path, request, kind)?,
        #[cfg(feature = "arrow")]
        Some("parquet") => columns::parquet_pairs::<K>(path, request, kind)?,
        #[cfg(feature = "arrow")]
        Some("arrow" | "arrows" | "feather") => columns::arrow_pairs::<K>(path, request, kind)?,
        #[cfg(not(feature = "arrow"))]
        Some("parquet" | "arrow" | "arrows" | "feather") => bail!(
            "this program was built without Arrow and Parquet: build it with --features arrow, or write the \
             pairs to a .csv or .jsonl file"
        ),
        _ => return integer_keys::<K>(request, kind.leaf_bytes()),
    };
    ensure!(request.keys.is_none(), "--keys takes a sample of named sets and SOSD files only");
    Ok(unsorted.into_sorted(kind.leaf_bytes()))
}

/// A named set, or a SOSD file, whose keys are u64.
fn integer_keys<K: KeyText + ?Sized>(request: &Request<'_>, derived_bytes: usize) -> Result<Pairs<K::Typed>> {
    let dataset = Dataset::parse(request.source)?;
    ensure!(
        K::KEY_KIND == KeyKind::U64,
        "its keys are u64, those of the table {}; for another kind write the keys to a .csv or .txt file",
        K::KEY_KIND
    );
    let generated = key_set::generate(&dataset, request.keys, SAMPLE_SEED, request.sort);
    let set = match dataset {
        Dataset::File(_) => {
            generated.context("it is read as a SOSD file: its name ends as no text file's does")?
        }
        _ => generated?,
    };
    let keys = set.keys.iter().map(|key| K::typed(&key.to_string())).collect::<Result<_>>()?;
    let values = LoadedValues { bytes: Vec::new(), ends: Vec::new(), derived_bytes };
    Ok(Pairs { keys, values, duplicates_dropped: set.duplicates_dropped })
}

fn text_keys<K: KeyText + ?Sized>(path: &Path) -> Result<Unsorted<K::Typed>> {
    let mut pairs = Unsorted::default();
    for line in lines(path)? {
        let (number, line) = line?;
        if !key_field::<K>(&line).is_empty() {
            pairs.keys.push(key::<K>(&line, path, number)?);
        }
    }
    Ok(pairs)
}

/// The lines of a text file and their numbers, without a byte-order mark.
fn lines(path: &Path) -> Result<impl Iterator<Item = Result<(u64, String)>>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    Ok((1..).zip(BufReader::new(file).lines()).map(|(number, line)| {
        let mut line = line.with_context(|| format!("cannot read {}, line {number}", path.display()))?;
        if number == 1 && line.starts_with('\u{feff}') {
            line.remove(0);
        }
        Ok((number, line))
    }))
}

/// An object a line, as `farsight scan --json` prints them. Either all have values, or none. What else they
/// have is ignored.
fn json_pairs<K: KeyText + ?Sized>(
    path: &Path,
    request: &Request<'_>,
    kind: ValueKind,
) -> Result<Unsorted<K::Typed>> {
    let mut pairs = Unsorted::default();
    for line in lines(path)? {
        let (number, line) = line?;
        if line.trim().is_empty() {
            continue;
        }
        let expected = || {
            let example = r#"{"key": 7, "value": "text"}"#;
            format!("{}: expected an object with key and value, as {example}", at_line(path, number))
        };
        let object: BTreeMap<String, &RawValue> = serde_json::from_str(&line).with_context(expected)?;
        let text = object.get("key").and_then(|key| scalar(key)).with_context(expected)?;
        pairs.keys.push(key::<K>(&text, path, number)?);
        if let Some(value) = object.get("value").filter(|value| value.get() != "null") {
            let text = scalar(value).with_context(expected)?;
            let value = request.format.parse(&text, request.table, kind);
            pairs.values.extend(value.with_context(|| at_line(path, number))?);
            pairs.ends.push(pairs.values.len());
        }
        ensure!(
            pairs.ends.is_empty() || pairs.ends.len() == pairs.keys.len(),
            "{}: expected a value in each object or in none",
            at_line(path, number)
        );
    }
    Ok(pairs)
}

/// The text of a text, or a number as it stands there, digit for digit.
fn scalar(value: &RawValue) -> Option<Cow<'_, str>> {
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok().map(Cow::Owned),
        b'-' | b'0'..=b'9' => Some(Cow::Borrowed(text)),
        _ => None,
    }
}

fn csv_pairs<K: KeyText + ?Sized>(
    path: &Path,
    request: &Request<'_>,
    kind: ValueKind,
) -> Result<Unsorted<K::Typed>> {
    let mut pairs = Unsorted::default();
    let mut columns = None;
    for (number, record) in (1..).zip(csv_records(path, request.header)?) {
        let record = record?;
        let line = record.position().map_or(number, csv::Position::line);
        let key = key::<K>(record.get(0).unwrap_or_default(), path, line).map_err(|error| {
            let names = CSV_HEADER_NAMES.join(", ");
            let hint = format!("a header begins with one of {names}, or is announced by --header");
            if pairs.keys.is_empty() { anyhow!("{error:#}; {hint}") } else { error }
        })?;
        let expected = *columns.get_or_insert(record.len());
        if record.len() != expected || expected > 2 {
            bail!(
                "{}: expected a key, or a key and a value, as on the lines before, got {} columns",
                at_line(path, line),
                record.len()
            );
        }
        pairs.keys.push(key);
        if let Some(text) = record.get(1) {
            let is_number = matches!(request.format, ValueFormat::Decimal | ValueFormat::Hex);
            let text = if is_number { text.trim() } else { text };
            let value = request.format.parse(text, request.table, kind);
            pairs.values.extend(value.with_context(|| at_line(path, line))?);
            pairs.ends.push(pairs.values.len());
        }
    }
    Ok(pairs)
}

/// The key that stands on a line.
fn key<K: KeyText + ?Sized>(text: &str, path: &Path, line: u64) -> Result<K::Typed> {
    K::typed(key_field::<K>(text)).with_context(|| {
        format!("{}: expected a key of kind {}, got {text:?}", at_line(path, line), K::KEY_KIND)
    })
}

/// Of a field, what is the key: without the spaces around it, unless keys are bytes.
fn key_field<K: KeyText + ?Sized>(text: &str) -> &str {
    match K::KEY_KIND {
        KeyKind::Bytes | KeyKind::Bytes8 => text,
        KeyKind::U64 | KeyKind::I64 | KeyKind::F64 => text.trim(),
    }
}

fn at_line(path: &Path, line: u64) -> String {
    format!("{}:{line}", path.display())
}

impl<T: Ord + Clone> Unsorted<T> {
    /// Sorts by key; of equal keys the last stays.
    fn into_sorted(self, derived_bytes: usize) -> Pairs<T> {
        let mut order: Vec<usize> = (0..self.keys.len()).collect();
        order.sort_by(|one, other| self.keys[*one].cmp(&self.keys[*other]));
        let values = LoadedValues { bytes: Vec::new(), ends: Vec::new(), derived_bytes };
        let mut pairs = Pairs { keys: Vec::new(), values, duplicates_dropped: 0 };
        for (place, index) in order.iter().enumerate() {
            let next = order.get(place + 1).map(|next| &self.keys[*next]);
            if next == Some(&self.keys[*index]) {
                pairs.duplicates_dropped += 1;
                continue;
            }
            pairs.keys.push(self.keys[*index].clone());
            if !self.ends.is_empty() {
                pairs.values.bytes.extend_from_slice(value_of(&self.values, &self.ends, *index));
                pairs.values.ends.push(pairs.values.bytes.len());
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_keys_the_last_stays() {
        let (keys, values) = (vec![5, 3, 5, 1, 3, 5], b"abccddef".to_vec());
        let unsorted = Unsorted { keys, values, ends: vec![1, 2, 4, 6, 6, 8] };
        let pairs = unsorted.into_sorted(1);
        assert_eq!(pairs.keys, [1, 3, 5]);
        let value = |index| pairs.values.value(index, b"", &mut Vec::new()).to_vec();
        assert_eq!([0, 1, 2].map(value), [&b"dd"[..], b"", b"ef"]);
        assert_eq!(pairs.duplicates_dropped, 3);
    }

    #[test]
    fn a_derived_value_repeats_the_key() {
        let pairs = Unsorted { keys: vec![0x0102_u64], ..Unsorted::default() }.into_sorted(11);
        let bytes = pairs.keys[0].to_le_bytes();
        assert_eq!(pairs.values.value(0, &bytes, &mut Vec::new()), [2, 1, 0, 0, 0, 0, 0, 0, 2, 1, 0]);
    }
}
