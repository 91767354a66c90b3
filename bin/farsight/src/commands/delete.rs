//! `farsight delete`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use farsight::{Options, Table, WriteOperation, WriteOutcome, say};

use crate::EXIT_ABSENT;
use crate::connection::Connection;
use crate::key_text::TextKey;
use crate::outcome;
use crate::typed_table::{TableCommand, on_table};

/// Remove keys
///
/// Prints how many were removed. An absent key is named on stderr and makes the exit code 3.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight delete prices 100
  farsight delete prices 100 101 102")]
pub(crate) struct Delete {
    #[command(flatten)]
    connection: Connection,
    /// The table
    table: String,
    /// The keys: decimal, 0x hexadecimal or text, as the table's kind asks
    #[arg(required = true, allow_negative_numbers = true)]
    keys: Vec<String>,
}

impl Delete {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let table = self.table.clone();
        on_table(&client, &table, self)
    }
}

impl TableCommand for Delete {
    type Output = ExitCode;

    fn run<K: TextKey>(self, table: Table<K>) -> Result<ExitCode> {
        let keys: Vec<K> = self.keys.iter().map(|text| K::parse(text)).collect::<Result<_>>()?;
        let mut outcomes = Vec::new();
        table.session(Options::default())?.remove_many(&keys, &mut outcomes)?;
        outcome::check(table.name(), WriteOperation::Remove, &outcomes)?;
        let mut removed = 0;
        for (key, outcome) in keys.iter().zip(outcomes) {
            match outcome {
                WriteOutcome::Removed(_) => removed += 1,
                WriteOutcome::Absent => {
                    say(format_args!("absent: key {} in table {:?}", key.text(), table.name()));
                }
                other => bail!("a remove was answered by {other:?}, which only other writes can be"),
            }
        }
        writeln!(std::io::stdout().lock(), "removed {removed} of {}", keys.len())?;
        Ok(if removed == keys.len() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_ABSENT) })
    }
}
