//! `farsight bench inserts`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use farsight::{VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use farsight_bench::dataset::Dataset;
use farsight_bench::driver::{DriverError, InsertOrder, InsertPlan, Placement, ServerSource};
use farsight_bench::report::{insert_table, thousands};

use super::{BATCH_MAX, Running, SEED};
use super::{cancellation, load_text, seconds, server_command};
use crate::key_set;
use crate::output::output;
use crate::results;

const HELP: &str = "\
First a writer alone; then, three times in turn, a reader alone (read), the
same beside a writer on another table of the same server (beside), and both on
one table. So what the machine's shared memory and cores cost a reader, and what
it costs it that its own table is written, are told apart. Every answer is
checked: inserts must find their keys absent, reads theirs present.

The server has the first core, the writer the second, the reader the third;
on two cores the writer shares the server's when there is a reader, and gets
less done. 'own' is the reader's own processor time for a batch, without waits
for a core.

The JSON has, besides, what happened in each tenth of a second: inserts, GETs,
sub-models trained again, sub-models waiting, the age of the oldest.

With --connect its two tables are made on that server, and dropped at the end.

Examples:
  farsight bench inserts
  farsight bench inserts --order append --json inserts.json
  farsight bench inserts --dataset longitudes --batch 64";

/// Inserts at full speed, training behind them, and readers beside them
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Inserts {
    /// The order of the new keys
    #[arg(long, value_enum, default_value_t)]
    order: OrderName,
    /// The keys to load: a name that `farsight dataset` lists, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "uniform")]
    dataset: String,
    /// Keys to load [default: all of a real set, 10 million of a synthetic one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// Bytes of a value
    #[arg(long, value_name = "B", default_value_t = 8, value_parser = clap::value_parser!(u64)
        .range(VALUE_BYTES_MIN as u64..=VALUE_BYTES_MAX as u64))]
    value_size: u64,
    /// Inserts that the writer hands over together
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u64)
        .range(1..=BATCH_MAX))]
    batch: u64,
    /// Time of a phase, of its three rounds together
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// A file for the results, as a JSON array of one object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    running: Running,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum OrderName {
    /// Anywhere between the loaded keys
    #[default]
    Random,
    /// Between the loaded keys, from the least on
    Ascending,
    /// Above the greatest key, ascending
    Append,
}

impl Inserts {
    pub(super) fn run(self) -> Result<ExitCode> {
        self.running.check()?;
        let cancellation = cancellation()?;
        results::check(self.json.as_deref())?;
        let dataset = Dataset::parse(&self.dataset)?;
        let keys = key_set::generate(&dataset, self.keys.map(|keys| keys as usize), SEED, false)?.keys;
        ensure!(!keys.is_empty(), "{} has no keys", self.dataset);
        let placement = Placement::new(2, self.running.connect.is_some())?;
        let source = match self.running.source(None)? {
            Some(source) => source,
            None => ServerSource::Start(server_command(None, &placement)?),
        };
        let plan = InsertPlan {
            order: match self.order {
                OrderName::Random => InsertOrder::Random,
                OrderName::Ascending => InsertOrder::Ascending,
                OrderName::Append => InsertOrder::Append,
            },
            dataset: dataset.name(),
            value_bytes: self.value_size as usize,
            batch: self.batch as usize,
            seconds: self.seconds,
        };
        let outcome = match plan.run(keys, &source, &placement, &cancellation) {
            Err(DriverError::Cancelled) => return Ok(self.running.interrupted()),
            done => done?,
        };
        let stored = results::store(self.json.as_deref(), std::slice::from_ref(&outcome.record));
        let mut out = output();
        write!(out, "{}{}", insert_table(&outcome.record), load_text(&outcome.load))?;
        writeln!(out, "wrong answers: 0 in {} operations", thousands(outcome.operations_checked))?;
        write!(out, "{}", self.running.remains())?;
        stored.tell(&mut out)?;
        if let Some(credit) = dataset.attribution() {
            writeln!(out, "{credit}")?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
