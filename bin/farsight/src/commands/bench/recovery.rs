//! `farsight bench recovery`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use farsight::{VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use farsight_bench::dataset::Dataset;
use farsight_bench::driver::{DriverError, RecoveryPlan, Values};
use farsight_bench::report::recovery_table;

use super::{BATCH_MAX, SEED, ValuesName, cancellation, command_on, interrupted};
use crate::key_set;
use crate::output::output;
use crate::results;
use crate::size;

/// No log grows to that.
const NEVER_BYTES: u64 = 1 << 50;

const HELP: &str = "\
A server keeps a table in a new directory below DIR. It is killed (SIGKILL) and
started again, several times with each of these: nothing in the directory
(empty); the table, all of whose pairs stand in a snapshot (loaded); the same,
and a log of updates of random keys that no snapshot knows (logged). So the
difference of two rows is what the files have taken that the later one has
more. Medians are shown. After each start a sample of the values is compared
with what was written last.

The server has all cores. 'processor' is what all its threads have used until it
was ready. The files were written a moment ago, so no disk is waited for.

Beside that, one thread reads the same files and computes their checksum.

Examples:
  farsight bench recovery
  farsight bench recovery --data /var/tmp --keys 10000000 --log-size 1G
  farsight bench recovery --values blocks --value-size 128 --json recovery.json";

/// How long a killed server takes to come back, with snapshots and a log to read
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Recovery {
    /// The directory below which the server keeps its table, until the end [default: that of temporary files]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The keys: a name that `farsight dataset` lists, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "uniform")]
    dataset: String,
    /// Keys to load [default: all of a real set, 10 million of a synthetic one]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keys: Option<u64>,
    /// What values are
    #[arg(long, value_enum, value_name = "KIND", default_value_t)]
    values: ValuesName,
    /// Bytes of a value
    #[arg(long, value_name = "B", default_value_t = VALUE_BYTES_MIN as u64,
        value_parser = clap::value_parser!(u64).range(VALUE_BYTES_MIN as u64..=64 << 10))]
    value_size: u64,
    /// Bytes of log to replay, at least
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    log_size: u64,
    /// Updates that are handed over together
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u64)
        .range(1..=BATCH_MAX))]
    batch: u64,
    /// Starts of each kind; their medians are shown
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// A file for the results, as a JSON array of one object
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Recovery {
    pub(super) fn run(self) -> Result<ExitCode> {
        let values = self.values()?;
        let cancellation = cancellation()?;
        results::check(self.json.as_deref())?;
        let dataset = Dataset::parse(&self.dataset)?;
        let keys = key_set::generate(&dataset, self.keys.map(|keys| keys as usize), SEED, false)?.keys;
        ensure!(!keys.is_empty(), "{} has no keys", self.dataset);
        let data = self.data.unwrap_or_else(std::env::temp_dir);
        std::fs::create_dir_all(&data).with_context(|| format!("cannot make {}", data.display()))?;
        let mut command = command_on(None, None)?;
        command.data = Some(data);
        let options = ["--ack=memory".to_owned(), format!("--snapshot-bytes={NEVER_BYTES}")];
        command.arguments.extend(options);
        let plan = RecoveryPlan {
            dataset: dataset.name(),
            values,
            log_bytes: self.log_size,
            batch: self.batch as usize,
            runs: self.runs as usize,
        };
        let record = match plan.run(keys, &command, &cancellation) {
            Err(DriverError::Cancelled) => return Ok(interrupted("the server is stopped")),
            done => done?,
        };
        let stored = results::store(self.json.as_deref(), std::slice::from_ref(&record));
        let mut out = output();
        write!(out, "{}", recovery_table(&record))?;
        stored.tell(&mut out)?;
        if let Some(credit) = dataset.attribution() {
            writeln!(out, "{credit}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn values(&self) -> Result<Values> {
        let bytes = self.value_size as usize;
        if self.values == ValuesName::Fixed {
            let remedy = "longer ones want --values blocks";
            ensure!(bytes <= VALUE_BYTES_MAX, "--value-size: up to {VALUE_BYTES_MAX} B; {remedy}");
            return Ok(Values::fixed(bytes));
        }
        let values = Values::blocks(bytes, bytes);
        Ok(if self.values == ValuesName::Expiring { values.with_deadlines() } else { values })
    }
}
