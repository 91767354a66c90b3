//! `farsight put`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::{Options, Table, WriteOutcome};

use crate::connection::Connection;
use crate::key_text::TextKey;
use crate::typed_table::{TableCommand, on_table};
use crate::value_text::ValueFormat;

/// Store a pair, whether its key is present or not
///
/// Prints "inserted" or "replaced" and the pair's version.
#[derive(Debug, Args)]
#[command(after_help = "\
Values have the size that the table was made with. Text is filled up with zero bytes; 0x takes two digits a byte.

Examples:
  farsight put prices 100 hello
  farsight put prices 100 0x68656c6c6f000000
  farsight put prices 100 1999 --format decimal")]
pub(crate) struct Put {
    #[command(flatten)]
    connection: Connection,
    /// The table
    table: String,
    /// The key: decimal, 0x hexadecimal or text, as the table's kind asks
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// The value
    #[arg(allow_negative_numbers = true)]
    value: String,
    /// How to read the value
    #[arg(long, value_enum, default_value_t)]
    format: ValueFormat,
}

impl Put {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let table = self.table.clone();
        on_table(&client, &table, self)
    }
}

impl TableCommand for Put {
    type Output = ExitCode;

    fn run<K: TextKey>(self, table: Table<K>) -> Result<ExitCode> {
        let key = K::parse(&self.key)?;
        let value = self.format.parse(&self.value, table.name(), table.value_bytes())?;
        let outcome = table.session(Options::default())?.put(key, &value)?;
        let mut out = std::io::stdout().lock();
        match outcome {
            WriteOutcome::Inserted(version) => writeln!(out, "inserted, version {version}")?,
            WriteOutcome::Replaced(version) => writeln!(out, "replaced, version {version}")?,
            other => anyhow::bail!("a put was answered by {other:?}, which only other writes can be"),
        }
        Ok(ExitCode::SUCCESS)
    }
}
