//! `farsight export`.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::export_tables;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::archive::{PLACES, new_archive};
use crate::connection::Connection;
use crate::output::output;
use crate::size;

/// Copy tables out of a server or a pool, whatever their engines
///
/// Programs may go on reading and writing. Each pair of the copy was in its table at some moment while that
/// was copied; a key that nobody writes meanwhile is in the copy, once. The copy is of no one instant, and
/// writes that came in this order may be in it in part. Of pairs with deadlines the copy has the instants at
/// which they end. The last file says that the copy is whole. `farsight import` makes tables of it.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{PLACES}"))]
pub(crate) struct Export {
    #[command(flatten)]
    connection: Connection,
    /// Where the copy goes; nothing may be there yet
    #[arg(value_name = "PLACE")]
    place: String,
    /// The tables [default: all]
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  farsight export /backups/monday
  farsight export /backups/sessions sessions tokens
  farsight import /backups/sessions --connect tcp://10.0.0.7:7474";

impl Export {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let client = self.connection.open()?;
        let style = ProgressStyle::with_template("{spinner} {msg}: {human_pos} pairs copied, {per_sec}");
        let bar = ProgressBar::no_length().with_style(style.expect("the template is well-formed"));
        let archive = new_archive(&self.place)?;
        let copied = export_tables(&client, &*archive, &self.tables, &mut |table, pairs| {
            bar.set_message(table.to_owned());
            bar.set_position(pairs);
        })?;
        bar.finish_and_clear();
        let mut out = output();
        for table in &copied {
            let (pairs, bytes) = (HumanCount(table.pairs), size::text(table.bytes));
            writeln!(out, "table {}: {pairs} pairs, {bytes}", table.name)?;
        }
        writeln!(out, "{}: tables {}", self.place, copied.len())?;
        Ok(ExitCode::SUCCESS)
    }
}
