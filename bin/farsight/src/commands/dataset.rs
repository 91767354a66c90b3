//! `farsight dataset`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::key_set;
use crate::listing::listing;
use anyhow::Result;
use clap::{Args, Subcommand};
use farsight_bench::dataset;
use indicatif::HumanCount;

/// List, fetch and write sets of keys
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight dataset list
  farsight dataset fetch longitudes
  farsight dataset write lognormal --keys 1000000 --out lognormal.sosd")]
pub(crate) struct Dataset {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List the named sets
    List,
    /// Download a set once; afterwards it is used by its name
    Fetch {
        /// The set, one that `list` shows as fetched
        name: String,
    },
    /// Write a set to a SOSD binary file: a count and the keys, little-endian 64-bit integers in order
    Write {
        /// The set's name, or a file of keys
        name: String,
        /// Keys: of real sets a sample [default: all of a real set, 10 million of a synthetic one]
        #[arg(long, value_name = "N")]
        keys: Option<usize>,
        /// The seed of synthetic sets and samples
        #[arg(long, value_name = "N", default_value_t = 1)]
        seed: u64,
        /// The file to write
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// Sort the keys of a file that is not sorted
        #[arg(long)]
        sort: bool,
    },
}

impl Dataset {
    pub(crate) fn run(self) -> Result<ExitCode> {
        match self.action {
            Action::List => list()?,
            Action::Fetch { name } => {
                let directory = dataset::default_cache_directory()?;
                dataset::fetch(&dataset::Dataset::parse(&name)?, &directory)?;
                writeln!(std::io::stdout().lock(), "{name} is in {}", directory.display())?;
            }
            Action::Write { name, keys, seed, out, sort } => {
                let set = key_set::generate(&dataset::Dataset::parse(&name)?, keys, seed, sort)?;
                dataset::write_sosd(&out, &set.keys)?;
                let count = HumanCount(set.keys.len() as u64);
                writeln!(
                    std::io::stdout().lock(),
                    "{count} keys in {}, {} duplicates dropped",
                    out.display(),
                    HumanCount(set.duplicates_dropped)
                )?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
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
    let mut out = std::io::stdout().lock();
    writeln!(out, "{listing}")?;
    for (credit, names) in credits {
        writeln!(out, "{}: {credit}", names.join(", "))?;
    }
    Ok(())
}
