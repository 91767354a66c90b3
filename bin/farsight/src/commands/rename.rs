//! `farsight rename`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::connection::Connection;
use crate::output::output;

/// Give a table another name, or let two exchange theirs
///
/// Programs that have a table open follow its name: within a second they go on with the table that is called
/// so then, or fail if none is.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight rename prices prices-old
  farsight rename --swap prices prices-new")]
pub(crate) struct Rename {
    #[command(flatten)]
    connection: Connection,
    /// The table
    from: String,
    /// Its new name: letters, digits, _ and -
    to: String,
    /// Both are tables, and exchange their names at one instant
    #[arg(long)]
    swap: bool,
}

impl Rename {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let Self { from, to, .. } = &self;
        let mut out = output();
        if self.swap {
            client.swap_tables(from, to)?;
            writeln!(out, "swapped {from} and {to}")?;
        } else {
            client.rename_table(from, to)?;
            writeln!(out, "renamed {from} to {to}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
