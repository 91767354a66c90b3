//! `farsight delete`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::Args;
use farsight::{Options, Table, WriteOperation, WriteOutcome};

use crate::connection::Connection;
use crate::key_text::KeyText;
use crate::outcome;
use crate::output::output;
use crate::typed_table::{TableCommand, on_table};

/// Remove keys
///
/// Prints how many were removed. An absent key is named on stderr and makes the exit code 3. A key of another
/// version than the one given stays, and makes it 4.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight delete prices 100
  farsight delete prices 100 101 102
  farsight delete prices 100 --if-version 17     # only if nobody has written it since")]
pub(crate) struct Delete {
    #[command(flatten)]
    connection: Connection,
    /// The table
    table: String,
    /// The keys: decimal, 0x hexadecimal or text, as the table's kind asks
    #[arg(required = true, allow_negative_numbers = true)]
    keys: Vec<String>,
    /// Only if the key, a single one, has this version
    #[arg(long, value_name = "VERSION")]
    if_version: Option<u64>,
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

    fn run<K: KeyText + ?Sized>(self, table: Table<K>) -> Result<ExitCode> {
        let typed: Vec<K::Typed> = self.keys.iter().map(|text| K::typed(text)).collect::<Result<_>>()?;
        let keys: Vec<K::Ref<'_>> = typed.iter().map(K::borrowed).collect();
        let mut outcomes = Vec::new();
        let mut session = table.session(Options::default())?;
        match self.if_version {
            None => session.remove_many(&keys, &mut outcomes)?,
            Some(version) => {
                ensure!(
                    keys.len() == 1,
                    "--if-version is one key's, and {} were given: delete them one by one",
                    keys.len()
                );
                outcomes.push(session.remove_if(keys[0], version)?);
            }
        }
        outcome::check(table.name(), WriteOperation::Remove, &outcomes)?;
        let (mut removed, mut code) = (0, ExitCode::SUCCESS);
        for (key, outcome) in typed.iter().zip(outcomes) {
            match outcome {
                WriteOutcome::Removed(_) => removed += 1,
                other => match outcome::explain(table.name(), &K::shown(key), other) {
                    Some(why) => code = why,
                    None => bail!("a remove was answered by {other:?}, which only other writes can be"),
                },
            }
        }
        writeln!(output(), "removed {removed} of {}", keys.len())?;
        Ok(code)
    }
}
