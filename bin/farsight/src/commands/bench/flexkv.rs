//! `farsight bench flexkv`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use farsight::POOL_NODES_MAX;
use farsight_bench::dataset::Dataset;
use farsight_bench::driver::DriverError;
use farsight_bench::flexkv_figures::{FlexFigure, FlexRunner, FlexTestbed};
use farsight_bench::report::flex_table;
use farsight_bench::simulated::{Profile, ProxyPace};

use super::pooled::DATASET;
use super::simulated::{Clients, clients};
use super::{BATCH_MAX, SEED, cancellation, interrupted, seconds};
use crate::output::output;
use crate::{key_set, results};

/// The figures of FlexKV's evaluation, in virtual time
///
/// The testbed is the paper's. The store runs with its keys and a compute node's memory scaled down; systems
/// that are not here are verb mixes.
#[derive(Debug, Args)]
#[command(after_help = "\
Figures, by the paper's numbers; of those that are printed in pairs, one of the two:
  11  throughput by clients, YCSB A to D        19  loads of those who write for others
  12  latencies with all clients                20  their threads
  13  shares of updates, Zipfian keys           21  bytes of a pair
  14  the same, uniform keys                    22  memory nodes, of all nodes
  17  what each technique adds                  23  a compute node's memory
  18  YCSB B, then A, over time                 24  the part offloaded
  table1  what answers reads, and how fast
Figure 15 is `farsight bench twitter`.

Two runs are equal. A figure takes minutes of one core; a line on stderr says what runs.

Examples:
  farsight bench flexkv --figure 11 --json clients.json
  farsight figure clients.json --out clients.svg
  farsight bench flexkv --figure all --json flexkv.json")]
pub(super) struct FlexKv {
    /// Figures, with commas between, or all
    #[arg(long, value_name = "N[,N...]|all", value_parser = figures)]
    figure: Figures,
    /// What cards, links and cores take: cx3, cx4x2, cx5 or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "cx3")]
    profile: String,
    /// Compute nodes and the client threads of each
    #[arg(long, value_name = "MxT", value_parser = clients, default_value = "20x10")]
    clients: Clients,
    /// Memory nodes
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..=POOL_NODES_MAX as u64))]
    memory_nodes: u64,
    /// Operations that a client thread has under way
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u64).range(1..=BATCH_MAX))]
    batch: u64,
    /// Keys of the store's tables; the paper has 10 million
    #[arg(long, value_name = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    keys: u64,
    /// Virtual time of a run that is measured
    #[arg(long, value_name = "S", default_value_t = 0.004, value_parser = seconds)]
    seconds: f64,
    /// How many times faster than usual the coordinator decides, from 1 to 1000
    #[arg(long, value_name = "N", default_value = "1000", value_parser = pace)]
    pace: ProxyPace,
    /// A file for the results, as a JSON array of one object a point
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone)]
struct Figures(Vec<FlexFigure>);

fn figures(text: &str) -> Result<Figures, String> {
    if text == "all" {
        return Ok(Figures(FlexFigure::ALL.to_vec()));
    }
    text.split(',').map(str::parse).collect::<Result<_, _>>().map(Figures)
}

fn pace(text: &str) -> Result<ProxyPace, String> {
    let pace = text.parse().ok().and_then(ProxyPace::new);
    pace.ok_or_else(|| format!("expected a number from 1 to 1000, got {text:?}"))
}

impl FlexKv {
    pub(super) fn run(self) -> Result<ExitCode> {
        let cancellation = cancellation()?;
        results::check(self.json.as_deref())?;
        let testbed = self.testbed()?;
        let keys = key_set::generate(&Dataset::parse(DATASET)?, Some(testbed.keys), SEED, false)?.keys;
        ensure!(!keys.is_empty(), "a table without keys");
        let setting = testbed.setting();
        let mut runner = FlexRunner::new(keys);
        let mut records = Vec::new();
        for point in self.figure.0.iter().flat_map(|figure| testbed.points(*figure)) {
            if runner.is_new(&point) {
                farsight::say(point.name());
            }
            match runner.run(&point, &cancellation) {
                Err(DriverError::Cancelled) => return Ok(interrupted("nothing else ran")),
                done => records.push(point.record(&setting, done?)),
            }
        }
        let stored = results::store(self.json.as_deref(), &records);
        let mut out = output();
        write!(out, "{}", flex_table(&records))?;
        writeln!(out, "wrong answers of the store: 0, each of them checked")?;
        stored.tell(&mut out)?;
        Ok(ExitCode::SUCCESS)
    }

    fn testbed(&self) -> Result<FlexTestbed> {
        let Clients { machines, threads } = self.clients;
        Ok(FlexTestbed {
            profile: Profile::load(&self.profile)?,
            memory_nodes: self.memory_nodes as usize,
            compute_nodes: machines,
            client_threads: threads,
            batch: self.batch as usize,
            keys: self.keys as usize,
            seconds: self.seconds,
            pace: self.pace,
        })
    }
}
