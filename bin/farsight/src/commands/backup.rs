//! `farsight backup`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::back_up_data;

use crate::archive::{PLACES, bar, new_archive};
use crate::output::output;
use crate::size;

/// Copy a directory of data to a place of its own, while a server may use it
///
/// The backup is what the directory held at one instant while it was copied: all that was acknowledged before
/// is in it. Its last file says that it is whole. `farsight restore` makes a directory of data of it.
#[derive(Debug, Args)]
#[command(after_help = PLACES)]
pub(crate) struct Backup {
    /// The directory that `farsight serve --data` was given
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Where the backup goes; nothing may be there yet
    #[arg(value_name = "PLACE")]
    place: String,
}

impl Backup {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let bar = bar();
        let report = back_up_data(&self.directory, &*new_archive(&self.place)?, |bytes| bar.inc(bytes))?;
        bar.finish_and_clear();
        let mut out = output();
        writeln!(
            out,
            "{}: tables {}, segments of the log {}, {}",
            self.place,
            report.tables.len(),
            report.segments,
            size::text(report.bytes)
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
