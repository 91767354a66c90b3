//! `farsight put`.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use farsight::{Lifetime, Options, Table, WriteOutcome};

use crate::connection::Connection;
use crate::duration;
use crate::key_text::KeyText;
use crate::outcome;
use crate::output::output;
use crate::typed_table::{TableCommand, on_table};
use crate::value_text::ValueFormat;

/// Store a pair, whether its key is present or not
///
/// Prints "inserted" or "replaced" and the pair's version. A condition is looked at and the pair stored in
/// one step: no other write comes between.
#[derive(Debug, Args)]
#[command(after_help = "\
Values have the size that the table was made with. Text is filled up with zero bytes; 0x takes two digits a byte.
In a table made with --values blocks they have any length, and text is the value as it is.

A put whose condition does not hold changes nothing. The exit code is then 4 and stderr names the version that is
there, or 3 if the key is absent. `farsight get --json` prints a key's version.

Examples:
  farsight put prices 100 hello
  farsight put prices 100 0x68656c6c6f000000
  farsight put prices 100 1999 --format decimal
  farsight put prices 100 bye --if-version 17      # only if nobody has written it since
  farsight put prices 100 first --if-version 0     # only if it is absent
  farsight put prices 100 bye --if-value hello
  farsight put prices 100 bye --return-old
  farsight put tokens 7 secret --ttl 30s           # in a table made with --ttl")]
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
    /// Only if the key has this version; 0: only if it is absent
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
    /// Only if the key has this value, read as the value is
    #[arg(long, value_name = "VALUE", conflicts_with = "if_version", allow_negative_numbers = true)]
    if_value: Option<String>,
    /// Print the value before, too, if there was one
    #[arg(long, conflicts_with_all = ["if_version", "if_value"])]
    return_old: bool,
    /// Let the pair stay so long, instead of as long as the table says
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    ttl: Option<Duration>,
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

    fn run<K: KeyText + ?Sized>(self, table: Table<K>) -> Result<ExitCode> {
        let typed = K::typed(&self.key)?;
        let key = K::borrowed(&typed);
        let parse = |text: &str| self.format.parse(text, table.name(), table.values());
        let value = parse(&self.value)?;
        let mut session = table.session(Options::default())?;
        if let Some(ttl) = self.ttl {
            session.set_lifetime(Lifetime::For(ttl))?;
        }
        let mut out = output();
        if self.return_old {
            let swapped = session.swap(key, &value)?;
            match swapped.old {
                None => writeln!(out, "inserted, version {}", swapped.version)?,
                Some(old) => {
                    let old = self.format.text(&old, table.values());
                    writeln!(out, "replaced, version {}, before {old}", swapped.version)?;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        let outcome = match (self.if_version, &self.if_value) {
            (Some(version), _) => session.compare_and_set(key, version, &value)?,
            (None, Some(expected)) => session.compare_and_set_value(key, &parse(expected)?, &value)?,
            (None, None) => session.put(key, &value)?,
        };
        if let Some(code) = outcome::explain(table.name(), &K::shown(&typed), outcome) {
            return Ok(code);
        }
        match outcome {
            WriteOutcome::Inserted(version) => writeln!(out, "inserted, version {version}")?,
            WriteOutcome::Replaced(version) => writeln!(out, "replaced, version {version}")?,
            other => anyhow::bail!("a put was answered by {other:?}, which only other writes can be"),
        }
        Ok(ExitCode::SUCCESS)
    }
}
