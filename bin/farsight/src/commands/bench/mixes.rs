//! `farsight bench mixes`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use farsight_bench::driver::{Cancellation, DriverError};
use farsight_bench::report::{mix_table, ratio_table};
use farsight_bench::simulated::Profile;
use farsight_bench::verb_mixes::{Popularity, RatioPlan, System, VerbMixPlan, VerbRates};
use farsight_bench::workload::Workload;

use super::{EXIT_INTERRUPTED, THREADS_MAX, seconds};
use crate::output::output;
use crate::results;
use crate::size;

const SECONDS_DEFAULT: f64 = 0.002;
/// Compute nodes and memory nodes of the largest testbed.
const NODES_MAX: u64 = 1_000;
/// The most skewed keys: more have the first one alone.
const THETA_MAX: f64 = 4.0;

/// What cards allow FlexKV and its rivals, by the verbs that each posts
///
/// This is no store: it posts the verbs of systems that are not here, where verbs have prices.
#[derive(Debug, Args)]
#[command(after_help = "\
Systems:
  flexkv     index partitions proxied by compute nodes, values cached there; the best of
             10, 20, 40, 60, 80 and 100 % offloaded
  one-sided  the same without proxies
  fusee, aceso, clover
  flexkv-op  each request goes to the compute node that owns its key

What is drawn and what is left out: docs/prices.md. Two runs are equal.

Examples:
  farsight bench mixes
  farsight bench mixes --system flexkv,aceso --workload a --sensitivity
  farsight bench mixes --workload a --ratios
  farsight bench mixes --verbs
  farsight bench mixes --profile cx5 --theta 0 --json mixes.json")]
pub(super) struct Mixes {
    /// Whose verbs; several with commas between [default: all]
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    system: Vec<System>,
    /// YCSB workloads of reads, updates and inserts [default: a, b-standard, c, d]
    #[arg(long, value_name = "NAME[,NAME...]", value_delimiter = ',')]
    workload: Vec<Workload>,
    /// What cards, links and cores take: cx3, cx4x2, cx5 or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "cx3")]
    profile: String,
    /// Compute nodes
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64)
        .range(2..=NODES_MAX))]
    compute_nodes: u64,
    /// Memory nodes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64)
        .range(1..=NODES_MAX))]
    memory_nodes: u64,
    /// Client threads of a compute node
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64)
        .range(1..=THREADS_MAX))]
    clients: u64,
    /// Operations that a client thread has under way
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u64)
        .range(1..=THREADS_MAX))]
    coroutines: u64,
    /// A compute node's memory, for its cache and the index that it proxies
    #[arg(long, value_name = "SIZE", default_value = "64000000", value_parser = size::parse)]
    cache: u64,
    /// Keys
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64)
        .range(1..=1_000_000_000))]
    keys: u64,
    /// Their Zipfian skew; 0: uniform
    #[arg(long, value_name = "THETA", default_value_t = 0.99)]
    theta: f64,
    /// Virtual time that is measured
    #[arg(long, value_name = "S", default_value_t = SECONDS_DEFAULT, value_parser = seconds)]
    seconds: f64,
    /// Run again with each uncertain price at both ends of its band
    #[arg(long)]
    sensitivity: bool,
    /// Compare the systems by what a CAS and a message cost, in WRITEs
    #[arg(long, conflicts_with_all = ["sensitivity", "system"])]
    ratios: bool,
    /// What each kind of verb reaches alone
    #[arg(long, conflicts_with_all = ["sensitivity", "system", "workload", "ratios", "json"])]
    verbs: bool,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Mixes {
    pub(super) fn run(self) -> Result<ExitCode> {
        ensure!((0.0..=THETA_MAX).contains(&self.theta), "--theta {}: not from 0 to {THETA_MAX}", self.theta);
        for workload in self.workloads() {
            let mix = workload.mix();
            ensure!(
                mix.scan + mix.read_modify_write == 0,
                "workload {workload} has more than reads, updates and inserts"
            );
        }
        let cancellation = super::cancellation()?;
        results::check(self.json.as_deref())?;
        let profile = Profile::load(&self.profile)?;
        if self.verbs {
            return self.verb_rates(&profile);
        }
        let popularity = Popularity::new(self.keys, self.theta);
        let done = if self.ratios {
            self.compare_ratios(&profile, &popularity, &cancellation)
        } else {
            self.compare_systems(&profile, &popularity, &cancellation)
        };
        match done {
            Err(error) if matches!(error.downcast_ref(), Some(DriverError::Cancelled)) => {
                farsight::say("interrupted");
                Ok(ExitCode::from(EXIT_INTERRUPTED))
            }
            done => done,
        }
    }

    fn workloads(&self) -> Vec<Workload> {
        match &self.workload[..] {
            [] => vec![Workload::A, Workload::BStandard, Workload::C, Workload::D],
            given => given.to_vec(),
        }
    }

    fn plan(&self, profile: &Profile, system: System, workload: Workload) -> VerbMixPlan {
        VerbMixPlan {
            compute_nodes: self.compute_nodes as usize,
            memory_nodes: self.memory_nodes as usize,
            client_threads: self.clients as usize,
            coroutines: self.coroutines as usize,
            cache_bytes: self.cache,
            seconds: self.seconds,
            ..VerbMixPlan::of_paper(profile.clone(), system, workload)
        }
    }

    fn compare_systems(
        &self,
        profile: &Profile,
        popularity: &Popularity,
        cancellation: &Cancellation,
    ) -> Result<ExitCode> {
        let systems = if self.system.is_empty() { System::ALL.to_vec() } else { self.system.clone() };
        let mut records = Vec::new();
        for workload in self.workloads() {
            for system in &systems {
                let plan = self.plan(profile, *system, workload);
                let (best, mut record) = plan.run_best(popularity, cancellation)?;
                if self.sensitivity {
                    record.sensitivity = best.sensitivity(popularity, cancellation)?;
                }
                records.push(record);
            }
        }
        let stored = results::store(self.json.as_deref(), &records);
        let mut out = output();
        write!(out, "{}", mix_table(&records))?;
        stored.tell(&mut out)?;
        Ok(ExitCode::SUCCESS)
    }

    fn compare_ratios(
        &self,
        profile: &Profile,
        popularity: &Popularity,
        cancellation: &Cancellation,
    ) -> Result<ExitCode> {
        let mut records = Vec::new();
        for workload in self.workloads() {
            let plan = self.plan(profile, System::FlexKv, workload);
            records.extend(RatioPlan::usual().run(&plan, popularity, cancellation)?);
        }
        let stored = results::store(self.json.as_deref(), &records);
        let mut out = output();
        write!(out, "{}", ratio_table(&records))?;
        stored.tell(&mut out)?;
        Ok(ExitCode::SUCCESS)
    }

    fn verb_rates(&self, profile: &Profile) -> Result<ExitCode> {
        let rates = VerbRates::of(&self.plan(profile, System::FlexKv, Workload::A));
        let mut out = output();
        for (verb, rate) in [
            ("CAS of 8 B", rates.swaps_per_s),
            ("WRITE of 8 B", rates.writes_per_s),
            ("call of 8 B between compute nodes", rates.calls_per_s),
            ("READ of 128 B", rates.reads_per_s),
        ] {
            writeln!(out, "{verb:34} {:7.1} M/s, {:5.1} by CAS", rate / 1e6, rate / rates.swaps_per_s)?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
