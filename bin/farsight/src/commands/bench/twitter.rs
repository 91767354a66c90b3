//! `farsight bench twitter`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use farsight::Access;
use farsight_bench::dataset::Dataset;
use farsight_bench::driver::{Age, Cancellation, DriverError, Placement, Plan};
use farsight_bench::report::{ClusterRecord, ClusterRun, cluster_table};
use farsight_bench::workload::{Cluster, Workload};

use super::pooled::{DATASET, Pooled, System};
use super::simulated::say;
use super::{SEED, cancellation, interrupted, seconds};
use crate::key_set;
use crate::output::output;
use crate::results;

const SIMULATED_SECONDS_DEFAULT: f64 = 0.002;
const SECONDS_DEFAULT: f64 = 1.0;

/// Workloads as Twitter's caches have them, by what was published of each
///
/// Nothing is replayed: a workload has a cluster's shares of operations, its mean length of values, and its
/// Zipfian skew (Yang et al., OSDI 2020).
#[derive(Debug, Args)]
#[command(after_help = "\
Operations:
  get, gets                        a read
  set, cas, incr, prepend, delete  an update of a stored key; so is what the published
                                   table does not name
  add                              an insert of a new key
Keys are integers, popular by the published skew. Pairs have no deadlines. Values are as
long as the published mean, 8 B at least and as many as an engine has at most; a line
below the table says where. Of longer values there are fewer keys. Cluster 5 has no
published figures.

Simulated runs are in virtual time, and two of them are equal. FlexKV runs one-sided, and
once more with machines that write for others. Over shm and tcp memory nodes are started.

Examples:
  farsight bench twitter --cluster 1,17,35,50
  farsight bench twitter --cluster all --json twitter.json    Figure 15 of FlexKV's paper
  farsight bench twitter --cluster 17 --engine flexkv,rolex --fabric shm")]
pub(super) struct Twitter {
    /// Clusters, from 1 to 54 with commas between, or all
    #[arg(long, value_name = "N[,N...]|all", value_parser = clusters)]
    cluster: Clusters,
    #[command(flatten)]
    pooled: Pooled,
    /// Measured time of a run [default: 1, simulated 0.002]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// A file for the results, as a JSON array of one object a cluster
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Debug, Clone)]
struct Clusters(Vec<Cluster>);

fn clusters(text: &str) -> Result<Clusters, String> {
    if text == "all" {
        return Ok(Clusters(Cluster::all()));
    }
    let one = |text: &str| {
        let number = text.parse().map_err(|_| format!("expected a number or all, got {text:?}"))?;
        Cluster::new(number).map_err(|error| error.to_string())
    };
    text.split(',').map(one).collect::<Result<_, _>>().map(Clusters)
}

impl Twitter {
    pub(super) fn run(self) -> Result<ExitCode> {
        self.pooled.check()?;
        let cancellation = cancellation()?;
        results::check(self.json.as_deref())?;
        let setting = self.pooled.setting(self.seconds())?;
        let mut records = Vec::new();
        for cluster in &self.cluster.0 {
            let mut record = ClusterRecord::new(*cluster, &setting);
            for system in self.pooled.systems() {
                say(&format!("cluster {}, {}", cluster.number(), system.name));
                match self.run_of(*cluster, &system, &cancellation) {
                    Err(error) if matches!(error.downcast_ref(), Some(DriverError::Cancelled)) => {
                        say("");
                        return Ok(interrupted("its memory nodes are stopped"));
                    }
                    done => record.runs.push(done?),
                }
            }
            records.push(record);
        }
        say("");
        let stored = results::store(self.json.as_deref(), &records);
        let mut out = output();
        write!(out, "{}", cluster_table(&records))?;
        writeln!(out, "wrong answers: 0, each of them checked")?;
        stored.tell(&mut out)?;
        Ok(ExitCode::SUCCESS)
    }

    fn seconds(&self) -> f64 {
        let usual = if self.pooled.is_simulated() { SIMULATED_SECONDS_DEFAULT } else { SECONDS_DEFAULT };
        self.seconds.unwrap_or(usual)
    }

    fn run_of(&self, cluster: Cluster, system: &System, cancellation: &Cancellation) -> Result<ClusterRun> {
        let value_bytes = Pooled::value_bytes(system.engine, cluster.value_bytes() as usize);
        let keys = self.pooled.keys_of(value_bytes);
        let keys = key_set::generate(&Dataset::parse(DATASET)?, Some(keys as usize), SEED, false)?.keys;
        ensure!(!keys.is_empty(), "a table without keys");
        if self.pooled.is_simulated() {
            self.simulated(cluster, system, (keys, value_bytes), cancellation)
        } else {
            self.measured(cluster, system, (keys, value_bytes), cancellation)
        }
    }

    fn simulated(
        &self,
        cluster: Cluster,
        system: &System,
        (keys, value_bytes): (Vec<u64>, usize),
        cancellation: &Cancellation,
    ) -> Result<ClusterRun> {
        let work = (Workload::Twitter(cluster), cluster.distribution());
        let plan = self.pooled.simulated_plan(system, work, value_bytes, self.seconds())?;
        let space = plan.key_space(keys)?;
        let record = plan.run(&space, cancellation)?;
        let of = (record.keys, record.value_size);
        Ok(ClusterRun::new(&system.name, of, &record.measured(), record.bottleneck))
    }

    fn measured(
        &self,
        cluster: Cluster,
        system: &System,
        (keys, value_bytes): (Vec<u64>, usize),
        cancellation: &Cancellation,
    ) -> Result<ClusterRun> {
        let placement = Placement::new(self.pooled.threads(), false)?;
        let plan = Plan {
            workloads: vec![Workload::Twitter(cluster)],
            distribution: None,
            dataset: DATASET.to_owned(),
            values: Pooled::values(value_bytes),
            threads: self.pooled.threads(),
            batch: self.pooled.batch as usize,
            access: Access::OneSided,
            seconds: self.seconds(),
            runs: 1,
            ages: vec![Age::Fresh],
            cache_bytes: None,
            value_cache_bytes: None,
            acknowledged: None,
        };
        let count = keys.len() as u64;
        let source = self.pooled.source(system.engine, &placement)?;
        let outcome = plan.run(keys, &source, &placement, cancellation)?;
        let of = (count, value_bytes as u32);
        Ok(ClusterRun::new(&system.name, of, &outcome.records[0].median, None))
    }
}
