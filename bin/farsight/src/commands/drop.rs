//! `farsight drop`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::connection::Connection;
use crate::output::output;

/// Drop tables
///
/// All that they hold is gone at once. Their memory goes back to the system once no program has them open any
/// more; a program that has fails within a second of using it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight drop prices
  farsight drop prices-old quotes-old --connect tcp://127.0.0.1:7474,tcp://127.0.0.1:7475")]
pub(crate) struct Drop {
    #[command(flatten)]
    connection: Connection,
    /// The tables
    #[arg(required = true)]
    tables: Vec<String>,
}

impl Drop {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        for table in &self.tables {
            client.drop_table(table)?;
            writeln!(output(), "dropped {table}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
