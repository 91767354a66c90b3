//! `farsight bench model`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use farsight_bench::dataset::Dataset;
use farsight_bench::model_survey::survey;
use farsight_bench::report::thousands;

use super::SEED;
use crate::key_set;
use crate::output::output;
use crate::results;

/// How well a model follows a set of keys, without a server
///
/// Trains the model that a server would train after a bulk load, and asks it for every key.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight bench model
  farsight bench model --dataset lognormal --keys 1000000
  farsight bench model --dataset longitudes --json model.json
  farsight figure model.json --out model.svg")]
pub(super) struct Model {
    /// The keys: a name that `farsight dataset` lists, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "boundaries")]
    dataset: String,
    /// Keys to train on [default: all of a real set, 10 million of a synthetic one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Write the result as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Model {
    pub(super) fn run(self) -> Result<ExitCode> {
        results::check(self.json.as_deref())?;
        let dataset = Dataset::parse(&self.dataset)?;
        let keys = key_set::generate(&dataset, self.keys.map(|keys| keys as usize), SEED, false)?.keys;
        ensure!(!keys.is_empty(), "{} has no keys", self.dataset);
        let record = survey(&dataset.name(), &keys)?;
        let stored = results::store(self.json.as_deref(), std::slice::from_ref(&record));
        let mut out = output();
        writeln!(
            out,
            "{}: {} keys on {} leaves",
            record.dataset,
            thousands(record.keys),
            thousands(record.leaves)
        )?;
        writeln!(
            out,
            "{} sub-models, {:.3} B a key, trained in {:.1} ms",
            thousands(record.sub_models),
            record.model_bytes_per_key,
            record.training_s * 1e3
        )?;
        writeln!(
            out,
            "a prediction leaves {:.3} leaves on average, at most {}; with fence hints {:.4}",
            record.window_leaves_mean, record.window_leaves_max, record.candidates_mean
        )?;
        stored.tell(&mut out)?;
        if let Some(credit) = dataset.attribution() {
            writeln!(out, "{credit}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
