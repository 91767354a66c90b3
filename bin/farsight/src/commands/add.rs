//! `farsight add`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::{Options, Table};

use crate::connection::Connection;
use crate::key_text::KeyText;
use crate::output::output;
use crate::typed_table::{TableCommand, on_table};

/// Add to the integer that is a key's value
///
/// Prints the sum, the integer before and the pair's version. The sum is made in one step: no other write
/// comes between. Values are integers of 8 bytes, little-endian, and wrap. An absent key counts as 0.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight create visits --value-size 8
  farsight add visits 4711 1
  farsight add visits 4711 -1 --signed
  farsight get visits 4711 --format decimal")]
pub(crate) struct Add {
    #[command(flatten)]
    connection: Connection,
    /// The table
    table: String,
    /// The key: decimal, 0x hexadecimal or text, as the table's kind asks
    #[arg(allow_negative_numbers = true)]
    key: String,
    /// What is added: an integer in decimal
    #[arg(allow_negative_numbers = true)]
    addend: i64,
    /// Print the integers as signed ones
    #[arg(long)]
    signed: bool,
}

impl Add {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let table = self.table.clone();
        on_table(&client, &table, self)
    }
}

impl TableCommand for Add {
    type Output = ExitCode;

    fn run<K: KeyText + ?Sized>(self, table: Table<K>) -> Result<ExitCode> {
        let typed = K::typed(&self.key)?;
        let key = K::borrowed(&typed);
        let added = table.session(Options::default())?.fetch_add(key, self.addend)?;
        let sum = added.old.wrapping_add_signed(self.addend);
        let text = |integer: u64| {
            if self.signed { integer.cast_signed().to_string() } else { integer.to_string() }
        };
        let (sum, old, version) = (text(sum), text(added.old), added.version);
        writeln!(output(), "{sum}, before {old}, version {version}")?;
        Ok(ExitCode::SUCCESS)
    }
}
