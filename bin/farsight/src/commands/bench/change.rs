//! `farsight bench change`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farsight::ServerUrl;
use farsight_bench::dataset::Dataset;
use farsight_bench::driver::{CacheFiller, ChangePlan, DriverError, Placement, filled_cache_bytes};
use farsight_bench::report::{change_table, thousands};
use farsight_bench::workload::ShapeChange;

use super::{SEED, cancellation, interrupted, server_command};
use crate::key_set;
use crate::output::output;
use crate::results;

const HELP: &str = "\
Scenarios, each on a server process and a table of its own:
  append   inserts above the greatest key, ascending
  cluster  inserts between two neighbouring keys, in random order
  tenant   inserts into an empty range of keys, in random order
  window   a queue: inserts at the top, and as many removes of the oldest; it is
           loaded with a quarter as many keys as --operations, --keys at most
  growth   inserts anywhere, in random order: --operations, --keys at most
  delete   95 % of the keys removed, in random order, whatever --operations

First a reader of loaded keys alone, for a second; then the writer changes the
table at full speed, and the reader goes on. At the last write the reader turns
to the new keys (or to those left). From one second to two after it, GETs are
measured. Every answer is checked.

Each figure is printed beside its mark. READs, fallbacks and rate are of the
GETs after the change, the rate by that of the fresh table in the same run. The
writer's slowest 25 ms are held against the median of the first half
of its own; with fewer than four full ones there is no figure. The worst
scenario stands first.

The server has the first core, the writer the second, the reader the third;
on two cores the writer shares the server's, and gets less done.

The JSON has, besides, the course in steps of 25 ms: writes, GETs, their
p99, READs and fallbacks, pairs, leaves, memory of cache and server.

Examples:
  farsight bench change
  farsight bench change --scenario window --keys 1000000
  farsight bench change --json change.json && farsight figure change.json --out change.svg";

/// Tables whose shape changes after the load, and what that costs
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(super) struct Change {
    /// The scenario: append, cluster, tenant, window, growth or delete [default: all]
    #[arg(long, value_name = "NAME")]
    scenario: Option<ShapeChange>,
    /// Keys to load, uniform ones
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64)
        .range(1_000..1 << 31))]
    keys: u64,
    /// Writes of a scenario
    #[arg(long, value_name = "M", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64)
        .range(1_000..1 << 31))]
    operations: u64,
    /// A file for the results, as a JSON array of one object a scenario
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What fills a cache in a process of its own.
const FILL_CACHE: [&str; 2] = ["bench", "fill-cache"];

/// Started for a benchmark alone.
#[derive(Debug, Args)]
pub(super) struct FillCache {
    /// The server
    server: ServerUrl,
    /// The table
    table: String,
}

impl FillCache {
    pub(super) fn run(self) -> Result<ExitCode> {
        writeln!(output(), "{}", filled_cache_bytes(&self.server, &self.table)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Change {
    pub(super) fn run(self) -> Result<ExitCode> {
        let cancellation = cancellation()?;
        results::check(self.json.as_deref())?;
        let keys = key_set::generate(&Dataset::Uniform, Some(self.keys as usize), SEED, false)?.keys;
        let placement = Placement::new(2, false)?;
        let server = server_command(None, &placement)?;
        let changes = self.scenario.map_or(ShapeChange::ALL.to_vec(), |change| vec![change]);
        let cache_filler =
            CacheFiller { program: server.program.clone(), arguments: FILL_CACHE.map(str::to_owned).into() };
        let plan = ChangePlan { changes, operations: self.operations as usize, cache_filler };
        let records = match plan.run(&keys, &server, &placement, &cancellation) {
            Err(DriverError::Cancelled) => return Ok(interrupted("the server is stopped")),
            done => done?,
        };
        let stored = results::store(self.json.as_deref(), &records);
        let mut out = output();
        write!(out, "{}", change_table(&records))?;
        let checked = records.iter().map(|record| record.operations_checked).sum();
        writeln!(out, "wrong answers: 0 in {} operations", thousands(checked))?;
        stored.tell(&mut out)?;
        Ok(ExitCode::SUCCESS)
    }
}
