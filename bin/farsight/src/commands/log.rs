//! `farsight log`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::{DataRecord, Key, KeyKind, ValueKind, read_data};

use crate::key_text::TextKey;
use crate::output::output;
use crate::value_text::ValueFormat;

/// Print the records of a log while no server uses it, the oldest first
///
/// One line a record: segment and byte of its frame, table, version, and "key = value" or "key removed". A
/// pair with a deadline says until when it stays, in milliseconds since 1970.
/// Those that a snapshot covers already are among them, as long as their segment is there.
#[derive(Debug, Args)]
pub(crate) struct Log {
    /// The directory that `farsight serve --data` was given
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Only records of this table
    #[arg(long, value_name = "NAME")]
    table: Option<String>,
}

impl Log {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let mut out = std::io::BufWriter::new(output());
        let mut written = Ok(());
        read_data(&self.directory, |record| {
            let name = record.table.map(|table| &table.name);
            if written.is_ok() && (self.table.is_none() || self.table.as_ref() == name) {
                written = writeln!(out, "{}", line(&record));
            }
        })?;
        written?;
        out.flush()?;
        Ok(ExitCode::SUCCESS)
    }
}

fn line(record: &DataRecord<'_>) -> String {
    let DataRecord { segment, offset, table_id, table, key, version, value, ends_at_ms } = record;
    let name = table.map_or_else(|| format!("dropped table {table_id}"), |table| table.name.clone());
    let key = key_text(table.and_then(|table| table.key_kind), *key);
    let values = table.and_then(|table| table.values).unwrap_or(ValueKind::BLOCKS);
    let text = |value: &[u8]| ValueFormat::Auto.text(value, values);
    let rest = value.map_or_else(|| "removed".to_owned(), |value| format!("= {}", text(value)));
    let until = ends_at_ms.map_or_else(String::new, |at_ms| format!(" until {at_ms} ms"));
    format!("{segment}:{offset} {name} version {version}: {key} {rest}{until}")
}

fn key_text(kind: Option<KeyKind>, key: u64) -> String {
    fn text<K: TextKey>(key: u64) -> String {
        <K as Key>::decode(key).text()
    }
    match kind {
        Some(KeyKind::I64) => text::<i64>(key),
        Some(KeyKind::F64) => text::<f64>(key),
        Some(KeyKind::Bytes8) => text::<[u8; 8]>(key),
        // No log has keys of any length.
        Some(KeyKind::U64 | KeyKind::Bytes) | None => text::<u64>(key),
    }
}
