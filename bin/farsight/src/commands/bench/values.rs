//! `farsight bench values`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use farsight::{Access, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use farsight_bench::dataset::Dataset;
use farsight_bench::driver::{Age, DriverError, Placement, Plan, ServerSource, Values};
use farsight_bench::report::{Record, thousands, values_table};
use farsight_bench::workload::{Distribution, Workload};

use super::{BATCH_MAX, RUNS_DEFAULT, SEED, cancellation, interrupted, seconds, server_command};
use crate::key_set;
use crate::output::output;
use crate::results;

/// Keys, unless said otherwise: more would take memory for the longest values.
const KEYS_DEFAULT: u64 = 1_000_000;
/// The longest value that is measured.
const LONGEST_BYTES: u64 = 64 << 10;

/// GETs of values in leaves beside those in blocks of their own, by length
///
/// A value of one size lies in its leaf, and the READ of the leaf brings it. A value of any length lies in a
/// block, whose READ is one more. This shows what that costs, as Figure 16a of XStore's paper does. There an
/// indirect value costs up to 43 %, and 8 % at 1 KiB.
#[derive(Debug, Args)]
#[command(after_help = "\
Each length has a server of its own, first with values in leaves (up to 256 B), then in
blocks. 'copies' are copies of a value out of a random block, in the same run: what the
memory of this machine gives. Every answer is checked.

Examples:
  farsight bench values
  farsight bench values --sizes 128,1024,4096 --distribution zipfian --json values.json")]
pub(super) struct ValueLengths {
    /// Bytes of the values, with commas between
    #[arg(long, value_name = "B[,B...]", value_delimiter = ',',
        default_values_t = [8, 16, 32, 64, 128, 256, 1024, 4096],
        value_parser = clap::value_parser!(u64).range(VALUE_BYTES_MIN as u64..=LONGEST_BYTES))]
    sizes: Vec<u64>,
    /// The keys: a name that `farsight dataset` lists, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "uniform")]
    dataset: String,
    /// Keys to load
    #[arg(long, value_name = "N", default_value_t = KEYS_DEFAULT,
        value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Which keys are popular: uniform or zipfian
    #[arg(long, value_name = "NAME", default_value = "uniform")]
    distribution: Distribution,
    /// GETs of a batch
    #[arg(long, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=BATCH_MAX))]
    batch: u64,
    /// Measured time of a run
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
    /// Runs of each; their medians are shown
    #[arg(long, value_name = "R", default_value_t = RUNS_DEFAULT,
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// A file for the results, as a JSON array of one object a length and kind
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl ValueLengths {
    pub(super) fn run(self) -> Result<ExitCode> {
        let cancellation = cancellation()?;
        results::check(self.json.as_deref())?;
        let dataset = Dataset::parse(&self.dataset)?;
        let keys = key_set::generate(&dataset, Some(self.keys as usize), SEED, false)?.keys;
        ensure!(!keys.is_empty(), "{} has no keys", self.dataset);
        let placement = Placement::new(1, false)?;
        let mut records = Vec::<Record>::new();
        let mut checked = 0;
        for values in self.sizes.iter().flat_map(|bytes| kinds(*bytes as usize)) {
            let source = ServerSource::Start(server_command(None, &placement)?);
            let plan = self.plan(&dataset, values);
            match plan.run(keys.clone(), &source, &placement, &cancellation) {
                Err(DriverError::Cancelled) => return Ok(interrupted("the server is stopped")),
                done => {
                    let outcome = done?;
                    records.extend(outcome.records);
                    checked += outcome.operations_checked;
                }
            }
        }
        let stored = results::store(self.json.as_deref(), &records);
        let mut out = output();
        write!(out, "{}", values_table(&records))?;
        writeln!(out, "wrong answers: 0 in {} operations, each of them checked", thousands(checked))?;
        stored.tell(&mut out)?;
        if let Some(credit) = dataset.attribution() {
            writeln!(out, "{credit}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn plan(&self, dataset: &Dataset, values: Values) -> Plan {
        Plan {
            workloads: vec![Workload::C],
            distribution: Some(self.distribution),
            dataset: dataset.name(),
            values,
            threads: 1,
            batch: self.batch as usize,
            access: Access::OneSided,
            seconds: self.seconds,
            runs: self.runs as usize,
            ages: vec![Age::Fresh],
            cache_bytes: None,
            value_cache_bytes: None,
            acknowledged: None,
        }
    }
}

/// In leaves, if those hold values so long, and in blocks.
fn kinds(bytes: usize) -> impl Iterator<Item = Values> {
    let in_leaves = (bytes <= VALUE_BYTES_MAX).then_some(Values::fixed(bytes));
    in_leaves.into_iter().chain([Values::blocks(bytes, bytes)])
}
