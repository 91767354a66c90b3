//! `farsight figure`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use farsight_bench::figures;
use farsight_bench::whole_file::write_whole;

/// Draw a benchmark's result
///
/// Takes the JSON of `farsight bench` (model, inserts, change, ycsb) or of bench-compare and writes an SVG
/// that follows its reader's light or dark colour scheme.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight bench inserts --json inserts.json
  farsight figure inserts.json --out inserts.svg")]
pub(crate) struct Figure {
    /// The result
    #[arg(value_name = "JSON")]
    result: PathBuf,
    /// The picture
    #[arg(long, value_name = "SVG")]
    out: PathBuf,
}

impl Figure {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let (from, to) = (self.result.display(), self.out.display());
        let json = std::fs::read_to_string(&self.result).with_context(|| format!("reading {from}"))?;
        let picture = figures::draw(&json).with_context(|| format!("drawing {from}"))?;
        write_whole(&self.out, picture.as_bytes()).with_context(|| format!("writing {to}"))?;
        Ok(ExitCode::SUCCESS)
    }
}
