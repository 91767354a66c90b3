//! `farsight dataset`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight_bench::dataset;
use indicatif::HumanCount;

use crate::key_set;
use crate::listing::listing;
use crate::output::output;

/// List, fetch and write sets of keys
///
/// Without a name: lists the sets. With one: downloads it, once; afterwards it is used by its name. With
/// --out: writes it to a file.
#[derive(Debug, Args)]
#[command(after_help = "\
Files are SOSD binary: a count and as many keys in order, 64-bit little-endian.

Examples:
  farsight dataset
  farsight dataset longitudes
  farsight dataset lognormal --keys 1000000 --out lognormal_uint64")]
pub(crate) struct Dataset {
    /// The set; with --out also a file of keys
    name: Option<String>,
    /// The file to write
    #[arg(long, value_name = "FILE", requires = "name")]
    out: Option<PathBuf>,
    /// Keys to write: of real sets a sample [default: all of a real set, 10 million of a synthetic one]
    #[arg(long, value_name = "N", requires = "out", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// The seed of synthetic sets and samples
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Sort the keys of a file that is not sorted
    #[arg(long, requires = "out")]
    sort: bool,
}

impl Dataset {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let Some(name) = &self.name else {
            list()?;
            return Ok(ExitCode::SUCCESS);
        };
        let dataset = dataset::Dataset::parse(name)?;
        if dataset.is_fetched() || self.out.is_none() {
            fetch(&dataset)?;
        }
        if let Some(out) = &self.out {
            self.write(&dataset, out)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn write(&self, dataset: &dataset::Dataset, out: &Path) -> Result<()> {
        let keys = self.keys.map(|keys| keys as usize);
        let set = key_set::generate(dataset, keys, self.seed, self.sort)?;
        dataset::write_sosd(out, &set.keys)?;
        writeln!(
            output(),
            "{} keys in {}; {} duplicates dropped",
            HumanCount(set.keys.len() as u64),
            out.display(),
            HumanCount(set.duplicates_dropped)
        )?;
        Ok(())
    }
}

fn fetch(dataset: &dataset::Dataset) -> Result<()> {
    let directory = dataset::default_cache_directory()?;
    dataset::fetch(dataset, &directory)?;
    writeln!(output(), "{} is in {}", dataset.name(), directory.display())?;
    Ok(())
}

fn list() -> Result<()> {
    let mut listing = listing(["name", "keys"]);
    let mut credits: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for dataset in dataset::Dataset::NAMED {
        listing.add_row([&dataset.name(), dataset.description()]);
        if let Some(credit) = dataset.attribution() {
            credits.entry(credit).or_default().push(dataset.name());
        }
    }
    let mut out = output();
    writeln!(out, "{listing}")?;
    for (credit, names) in credits {
        writeln!(out, "{}: {credit}", names.join(", "))?;
    }
    Ok(())
}
