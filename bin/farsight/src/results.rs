//! Results in files.
//!
//! Invariant: a result is never lost. What cannot be stored in its file is printed, and the command fails.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use farsight_bench::report::{ReportError, to_json, write_json};
use farsight_bench::whole_file::check_whole;
use serde::Serialize;

/// Finds out before minutes of work, and without a trace, whether a file can be written.
pub(crate) fn check(path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    check_whole(path).with_context(|| format!("cannot write results to {}", path.display()))
}

/// Results that are in their file, or have to be printed.
pub(crate) struct Stored<'a>(Option<(&'a Path, Result<(), Unstored>)>);

struct Unstored {
    json: String,
    error: ReportError,
}

/// Writes records into a file, if one is named. To be called before anything is printed, which may fail, too.
pub(crate) fn store<'a>(path: Option<&'a Path>, records: &[impl Serialize]) -> Stored<'a> {
    let write = |path| write_json(path, records).map_err(|error| Unstored { json: to_json(records), error });
    Stored(path.map(|path| (path, write(path))))
}

impl Stored<'_> {
    /// Says where the results are, or prints them.
    ///
    /// # Errors
    /// Why they are not in their file.
    pub(crate) fn tell(self, out: &mut impl Write) -> Result<()> {
        match self.0 {
            None => Ok(()),
            Some((path, Ok(()))) => Ok(writeln!(out, "results: {}", path.display())?),
            Some((_, Err(Unstored { json, error }))) => {
                out.write_all(json.as_bytes())?;
                Err(error).context("the results are printed, not stored")
            }
        }
    }
}
