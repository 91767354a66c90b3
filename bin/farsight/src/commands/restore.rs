//! `farsight restore`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::restore_data;

use crate::archive::{PLACES, archive, bar};
use crate::output::output;
use crate::size;

/// Make a directory of data of a backup, for `farsight serve --data`
///
/// Checks all that a server would read before the directory becomes one that a server takes.
#[derive(Debug, Args)]
#[command(after_help = PLACES)]
pub(crate) struct Restore {
    /// Where the backup is
    #[arg(value_name = "PLACE")]
    place: String,
    /// The directory: empty, or not there yet
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Restore {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let bar = bar();
        let report = restore_data(&*archive(&self.place)?, &self.directory, |bytes| bar.inc(bytes))?;
        bar.finish_and_clear();
        let mut out = output();
        writeln!(
            out,
            "{}: {} of tables {}",
            self.directory.display(),
            size::text(report.bytes),
            report.tables.join(", ")
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
