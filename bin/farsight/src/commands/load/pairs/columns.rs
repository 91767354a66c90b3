//! Pairs of Arrow and Parquet files: a column of keys, and one of values or none.
//!
//! Invariant: a key or value that the table cannot hold exactly is an error that names its row; nothing is
//! rounded, cut or left out. A file is read batch by batch, and of its columns these two alone.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, DataType, Schema};
use farsight::{KeyKind, ValueKind};
use farsight_bench::dataset::CSV_HEADER_NAMES;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::{Request, Unsorted};
use crate::key_text::KeyText;

/// The name of a column of values.
const VALUE_NAME: &str = "value";
/// What an Arrow file begins with; a stream of Arrow has its schema there.
const ARROW_MAGIC: [u8; 6] = *b"ARROW1";

/// Record batches, one after the other.
type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// Which columns of a file are a table's.
#[derive(Debug, PartialEq, Eq)]
struct Columns {
    key: usize,
    value: Option<usize>,
}

/// The pairs of a Parquet file.
pub(super) fn parquet_pairs<K: KeyText + ?Sized>(
    path: &Path,
    request: &Request<'_>,
    kind: ValueKind,
) -> Result<Unsorted<K::Typed>> {
    let no_parquet = || format!("{} is no Parquet file that can be read", path.display());
    let builder = ParquetRecordBatchReaderBuilder::try_new(open(path)?).with_context(no_parquet)?;
    let columns = Columns::of(builder.schema(), path)?;
    let mask = ProjectionMask::roots(builder.parquet_schema(), columns.all());
    let batches = builder.with_projection(mask).build().with_context(no_parquet)?;
    pairs_of::<K>(Box::new(batches), &columns, (path, request, kind))
}

/// The pairs of an Arrow file, or of a stored stream of Arrow.
pub(super) fn arrow_pairs<K: KeyText + ?Sized>(
    path: &Path,
    request: &Request<'_>,
    kind: ValueKind,
) -> Result<Unsorted<K::Typed>> {
    let no_arrow = || format!("{} is no Arrow file or stream that can be read", path.display());
    let mut file = open(path)?;
    let mut magic = Vec::new();
    let unreadable = || format!("cannot read {}", path.display());
    file.by_ref().take(ARROW_MAGIC.len() as u64).read_to_end(&mut magic).with_context(unreadable)?;
    file.rewind().with_context(unreadable)?;
    let (batches, columns): (Batches, Columns) = if magic == ARROW_MAGIC {
        let whole = FileReader::try_new(BufReader::new(file), None).with_context(no_arrow)?;
        let columns = Columns::of(&whole.schema(), path)?;
        let projected = FileReader::try_new_buffered(open(path)?, Some(columns.all()));
        (Box::new(projected.with_context(no_arrow)?), columns)
    } else {
        let whole = StreamReader::try_new(BufReader::new(file), None).with_context(no_arrow)?;
        let columns = Columns::of(&whole.schema(), path)?;
        let projected = StreamReader::try_new_buffered(open(path)?, Some(columns.all()));
        (Box::new(projected.with_context(no_arrow)?), columns)
    };
    pairs_of::<K>(batches, &columns, (path, request, kind))
}

fn open(path: &Path) -> Result<File> {
    File::open(path).with_context(|| format!("cannot open {}", path.display()))
}

impl Columns {
    /// Those of the names by which CSV files are known, too; of one or two columns the first and the second.
    fn of(schema: &Schema, path: &Path) -> Result<Self> {
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let is_key = |name: &str| CSV_HEADER_NAMES.iter().any(|key| name.eq_ignore_ascii_case(key));
        let key = names.iter().position(|name| is_key(name));
        let value = names.iter().position(|name| name.eq_ignore_ascii_case(VALUE_NAME));
        match (key, value, names.len()) {
            (Some(key), Some(_), _) => Ok(Self { key, value }),
            (Some(key), None, 1 | 2) => Ok(Self { key, value: (0..names.len()).find(|other| *other != key) }),
            (None, Some(value), 2) => Ok(Self { key: 1 - value, value: Some(value) }),
            (None, None, 1) => Ok(Self { key: 0, value: None }),
            (None, None, 2) => Ok(Self { key: 0, value: Some(1) }),
            _ => bail!(
                "{} has the columns {}: expected one, two, or one of keys named {} and one of values named \
                 {VALUE_NAME}",
                path.display(),
                names.join(", "),
                CSV_HEADER_NAMES.join(", ")
            ),
        }
    }

    /// Their numbers in the file, ascending, which is the order in which a projection has them.
    fn all(&self) -> Vec<usize> {
        let mut all: Vec<usize> = [Some(self.key), self.value].into_iter().flatten().collect();
        all.sort_unstable();
        all
    }

    /// The two columns of a batch that has no others.
    fn take<'b>(&self, batch: &'b RecordBatch) -> (&'b ArrayRef, Option<&'b ArrayRef>) {
        let is_key_first = self.value.is_none_or(|value| self.key < value);
        let place = usize::from(!is_key_first);
        (batch.column(place), self.value.map(|_| batch.column(1 - place)))
    }
}

fn pairs_of<K: KeyText + ?Sized>(
    batches: Batches,
    columns: &Columns,
    (path, request, kind): (&Path, &Request<'_>, ValueKind),
) -> Result<Unsorted<K::Typed>> {
    let mut pairs = Unsorted::default();
    for batch in batches {
        let batch = batch.with_context(|| format!("reading {}", path.display()))?;
        let (keys, values) = columns.take(&batch);
        let keys = Texts::of(keys, "keys")?;
        let values = values.map(|values| Texts::of(values, "values")).transpose()?;
        for row in 0..batch.num_rows() {
            // Counted from 1, as lines are.
            let number = pairs.keys.len() + 1;
            let at_row = || format!("{} row {number}", path.display());
            let key = keys.key::<K>(row).with_context(at_row)?;
            if let Some(values) = &values {
                let value = values.value(row, request, kind).with_context(at_row)?;
                pairs.values.extend(value);
                pairs.ends.push(pairs.values.len());
            }
            pairs.keys.push(key);
        }
    }
    Ok(pairs)
}

/// A column whose rows are bytes, or texts as people write them.
enum Texts {
    Bytes(ArrayRef),
    Text(ArrayRef),
}

impl Texts {
    fn of(column: &ArrayRef, what: &str) -> Result<Self> {
        let is_bytes = |kind: &DataType| {
            use DataType::{Binary, BinaryView, FixedSizeBinary, LargeBinary};
            matches!(kind, Binary | BinaryView | FixedSizeBinary(_) | LargeBinary)
        };
        let cast = |column: &dyn Array, to: &DataType| {
            let wrong =
                || format!("a column of {what} is of {}, which is no key or value", column.data_type());
            arrow_cast::cast(column, to).with_context(wrong)
        };
        match column.data_type() {
            kind if is_bytes(kind) => Ok(Self::Bytes(cast(column, &DataType::LargeBinary)?)),
            DataType::Dictionary(_, kind) if is_bytes(kind) => {
                Ok(Self::Bytes(cast(column, &DataType::LargeBinary)?))
            }
            // Moments and spans are their numbers, in the column's own unit.
            kind if kind.is_temporal() => {
                let numbers = cast(column, &number_of(kind))?;
                Ok(Self::Text(cast(&numbers, &DataType::LargeUtf8)?))
            }
            kind if kind.is_nested() => bail!("a column of {what} is of {kind}, which is no key or value"),
            _ => Ok(Self::Text(cast(column, &DataType::LargeUtf8)?)),
        }
    }

    /// A row's key.
    fn key<K: KeyText + ?Sized>(&self, row: usize) -> Result<K::Typed> {
        match self {
            Self::Bytes(column) => {
                let bytes = present(column, row, "a key")?.as_binary::<i64>().value(row);
                let has_any_length = K::KEY_KIND == KeyKind::Bytes;
                ensure!(has_any_length || bytes.len() == 8, "a key of {} B; this one has 8 B", bytes.len());
                K::typed(&bytes.iter().fold(String::from("0x"), |text, byte| format!("{text}{byte:02x}")))
            }
            Self::Text(column) => K::typed(present(column, row, "a key")?.as_string::<i64>().value(row)),
        }
    }

    /// The value of a row.
    fn value(&self, row: usize, request: &Request<'_>, kind: ValueKind) -> Result<Vec<u8>> {
        match self {
            Self::Bytes(column) => {
                let bytes = present(column, row, "a value")?.as_binary::<i64>().value(row);
                let (table, got) = (request.table, bytes.len());
                ensure!(kind.allows(got), "a value of {got} B; table {table:?} has values of {kind}");
                Ok(bytes.to_vec())
            }
            Self::Text(column) => {
                let text = present(column, row, "a value")?.as_string::<i64>().value(row);
                request.format.parse(text, request.table, kind)
            }
        }
    }
}

/// The integers that a temporal column is stored as.
fn number_of(kind: &DataType) -> DataType {
    match kind {
        DataType::Date32 | DataType::Time32(_) => DataType::Int32,
        _ => DataType::Int64,
    }
}

fn present<'a>(column: &'a ArrayRef, row: usize, what: &str) -> Result<&'a Arc<dyn Array>> {
    ensure!(!column.is_null(row), "it is null where {what} is expected");
    Ok(column)
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        BinaryArray, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray, UInt64Array,
    };
    use arrow_ipc::writer::{FileWriter, StreamWriter};
    use farsight::{Key, ValueKind};
    use parquet::arrow::ArrowWriter;
    use tempfile::TempDir;

    use super::super::read;
    use super::*;
    use crate::value_text::ValueFormat;

    const EIGHT: ValueKind = ValueKind::Fixed(8);

    fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, of)| (name, of, true)))
            .expect("columns of one length")
    }

    /// The batch in a file of each kind.
    fn files(directory: &TempDir, batch: &RecordBatch) -> Vec<String> {
        let path = |name: &str| directory.path().join(name);
        let create = |name: &str| File::create(path(name)).expect("a file");
        let mut parquet =
            ArrowWriter::try_new(create("pairs.parquet"), batch.schema(), None).expect("a writer");
        parquet.write(batch).expect("written");
        parquet.close().expect("closed");
        let mut file = FileWriter::try_new(create("pairs.arrow"), &batch.schema()).expect("a writer");
        file.write(batch).expect("written");
        file.finish().expect("finished");
        let mut stream = StreamWriter::try_new(create("pairs.arrows"), &batch.schema()).expect("a writer");
        stream.write(batch).expect("written");
        stream.finish().expect("finished");
        ["pairs.parquet", "pairs.arrow", "pairs.arrows"].map(|name| path(name).display().to_string()).into()
    }

    fn load<K: KeyText + ?Sized>(
        source: &str,
        format: ValueFormat,
        kind: ValueKind,
    ) -> Result<Vec<(K, Vec<u8>)>> {
        let request = Request { source, format, keys: None, header: false, sort: false, table: "t" };
        let pairs = read::<K>(&request, kind)?;
        let value = |index| pairs.value(index, &mut Vec::new()).to_vec();
        Ok((0..pairs.keys.len()).map(|index| (K::decode(pairs.keys[index]), value(index))).collect())
    }

    /// What a file of each kind says, which is the same.
    fn loaded<K: TextKey + Key + PartialEq + std::fmt::Debug>(
        columns: Vec<(&str, ArrayRef)>,
        format: ValueFormat,
        kind: ValueKind,
    ) -> Result<Vec<(K, Vec<u8>)>, String> {
        let directory = TempDir::new().expect("a directory");
        let batch = batch(columns);
        let mut all =
            files(&directory, &batch).into_iter().map(|source| match load::<K>(&source, format, kind) {
                Ok(pairs) => Ok(pairs),
                Err(error) => Err(format!("{error:#}").replace(&source, "FILE")),
            });
        let first = all.next().expect("three files");
        for other in all {
            assert_eq!(other, first);
        }
        first
    }

    #[test]
    fn keys_and_values_come_whole_from_each_kind_of_file() {
        let keys: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX, 0, (1 << 53) + 1]));
        let values: ArrayRef =
            Arc::new(BinaryArray::from(vec![&b"12345678"[..], b"abcdefgh", b"\0\x01234567"]));
        let expected = vec![
            (0, b"abcdefgh".to_vec()),
            ((1 << 53) + 1, b"\0\x01234567".to_vec()),
            (u64::MAX, b"12345678".to_vec()),
        ];
        let columns = vec![("value", values), ("other", Arc::clone(&keys)), ("ID", keys)];
        assert_eq!(loaded::<u64>(columns, ValueFormat::Auto, EIGHT), Ok(expected));
    }

    #[test]
    fn texts_numbers_and_moments_are_read_as_in_other_files() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7, 9]));
        let moments: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![-5, 1_700_000_000_000_001]));
        let columns = vec![("at", moments), ("price", numbers)];
        let expected =
            vec![(-5, 7_u64.to_le_bytes().to_vec()), (1_700_000_000_000_001, vec![9, 0, 0, 0, 0, 0, 0, 0])];
        assert_eq!(loaded::<i64>(columns, ValueFormat::Decimal, EIGHT), Ok(expected));

        let floats: ArrayRef = Arc::new(Float64Array::from(vec![0.1, -1e300]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["grüße", ""]));
        let blocks = ValueKind::blocks(100);
        let expected = vec![(-1e300, Vec::new()), (0.1, "grüße".into())];
        assert_eq!(loaded::<f64>(vec![("a", floats), ("b", texts)], ValueFormat::Auto, blocks), Ok(expected));
    }

    #[test]
    fn what_a_table_cannot_hold_is_named_by_row() {
        let keys = |keys: Vec<Option<i64>>| -> ArrayRef { Arc::new(Int64Array::from(keys)) };
        let bytes = |bytes: &[&[u8]]| -> ArrayRef { Arc::new(BinaryArray::from(bytes.to_vec())) };
        let refused = |columns: Vec<(&str, ArrayRef)>| {
            loaded::<u64>(columns, ValueFormat::Auto, EIGHT).expect_err("refused")
        };
        let error = refused(vec![("key", keys(vec![Some(3), Some(-1)]))]);
        assert!(error.starts_with("FILE row 2: key \"-1\" is no u64"), "{error}");
        let error = refused(vec![("key", keys(vec![Some(3), None]))]);
        assert_eq!(error, "FILE row 2: it is null where a key is expected");
        let two = || keys(vec![Some(1), Some(2)]);
        let error = refused(vec![("key", two()), ("value", bytes(&[b"12345678", b"1234567"]))]);
        assert_eq!(error, "FILE row 2: a value of 7 B; table \"t\" has values of 8 B");
        let error = refused(vec![("a", two()), ("b", two()), ("c", two())]);
        assert!(error.starts_with("FILE has the columns a, b, c: expected one, two, or"), "{error}");
    }

    #[test]
    fn what_is_no_such_file_is_said() {
        let directory = TempDir::new().expect("a directory");
        for (name, expected) in [
            ("cut.parquet", "is no Parquet file"),
            ("cut.arrow", "is no Arrow file or stream"),
            ("cut.arrows", "is no Arrow file or stream"),
        ] {
            let path = directory.path().join(name);
            std::fs::write(&path, b"ARROW").expect("written");
            let source = path.display().to_string();
            let error = load::<u64>(&source, ValueFormat::Auto, EIGHT).expect_err("refused");
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
