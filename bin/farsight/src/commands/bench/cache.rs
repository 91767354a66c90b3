//! `farsight bench cache`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Args;
use farsight::{Access, CachePolicy, EngineKind, VALUE_BYTES_MIN};
use farsight_bench::dataset::Dataset;
use farsight_bench::driver::DriverError;
use farsight_bench::report::{SimulatedRecord, budget_table};
use farsight_bench::simulated::{Profile, SimulatedPlan};
use farsight_bench::workload::{Distribution, Workload, ZIPFIAN_THETA_DEFAULT};

use super::simulated::{Clients, clients, say};
use super::{EXIT_INTERRUPTED, SEED, cancellation};
use crate::output::output;
use crate::{key_set, results};

/// Budgets, as parts of what a whole cache takes.
const PARTS: [(u64, u64); 4] = [(1, 2), (1, 4), (1, 8), (0, 1)];

/// GETs by what a client's cache may take, in virtual time
///
/// As Figures 15b and 15c of XStore's paper: the whole cache, then budgets down to the top model alone. What
/// the cache lacks comes by READs from where the server publishes it, or by calls.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  farsight bench cache --json cache.json
  farsight bench cache --clients 1x1 --keys 100000
  farsight figure cache.json --out cache.svg")]
pub(super) struct CacheBudgets {
    /// The keys: a name that `farsight dataset` lists, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "uniform")]
    dataset: String,
    /// Keys to load
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = at_least_one())]
    keys: u64,
    /// What cards, links and cores take: cx3, cx4x2, cx5 or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "cx4x2")]
    profile: String,
    /// Client machines and the threads of each
    #[arg(long, value_name = "MxT", value_parser = clients, default_value = "15x24")]
    clients: Clients,
    /// Operations of a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = at_least_one())]
    batch: u64,
    /// Virtual time of a run
    #[arg(long, value_name = "S", default_value_t = 0.002)]
    seconds: f64,
    /// Write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn at_least_one() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..)
}

impl CacheBudgets {
    pub(super) fn run(self) -> Result<ExitCode> {
        ensure!(self.seconds.is_finite() && self.seconds > 0.0, "--seconds: expected more than 0");
        results::check(self.json.as_deref())?;
        let cancellation = cancellation()?;
        let dataset = Dataset::parse(&self.dataset)?;
        let keys = key_set::generate(&dataset, Some(self.keys as usize), SEED, false)?.keys;
        ensure!(!keys.is_empty(), "{} has no keys", self.dataset);
        let mut records: Vec<SimulatedRecord> = Vec::new();
        let zipfian = Distribution::Zipfian { theta: ZIPFIAN_THETA_DEFAULT };
        for distribution in [Distribution::Uniform, zipfian] {
            let whole = self.plan(&dataset, distribution)?;
            let space = whole.key_space(keys.clone())?;
            let mut plans = vec![whole];
            while let Some(plan) = plans.pop() {
                say(&format!("{distribution:?}, cache {:?}: running in virtual time", plan.cache_bytes));
                let record = match plan.run(&space, &cancellation) {
                    Err(DriverError::Cancelled) => {
                        say("");
                        farsight::say("interrupted");
                        return Ok(ExitCode::from(EXIT_INTERRUPTED));
                    }
                    done => done?,
                };
                if plan.cache_bytes.is_none() {
                    plans = budgets(&plan, record.cache_memory_bytes);
                }
                records.push(record);
            }
        }
        say("");
        let stored = results::store(self.json.as_deref(), &records);
        let mut out = output();
        write!(out, "{}", budget_table(&records))?;
        writeln!(out, "wrong answers: 0, each of them checked")?;
        stored.tell(&mut out)?;
        if let Some(credit) = dataset.attribution() {
            writeln!(out, "{credit}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    /// GETs with a whole cache.
    fn plan(&self, dataset: &Dataset, distribution: Distribution) -> Result<SimulatedPlan> {
        let Clients { machines, threads } = self.clients;
        Ok(SimulatedPlan {
            profile: Profile::load(&self.profile)?,
            engine: EngineKind::XSTORE,
            memory_nodes: 0,
            machines,
            proxying: None,
            threads,
            workload: Workload::C,
            distribution,
            dataset: dataset.name(),
            value_bytes: VALUE_BYTES_MIN,
            batch: self.batch as usize,
            access: Access::OneSided,
            seconds: self.seconds,
            warm_up_seconds: None,
            then: None,
            sample_seconds: None,
            cache_bytes: None,
            value_cache_bytes: None,
            cache_policy: CachePolicy::default(),
            publishes_models: true,
        })
    }
}

/// The same with each budget, by READs and by calls; the last is the first to run.
fn budgets(whole: &SimulatedPlan, whole_bytes: u64) -> Vec<SimulatedPlan> {
    let of_part = |(part, of): (u64, u64)| {
        [true, false].map(|publishes_models| SimulatedPlan {
            cache_bytes: Some(whole_bytes * part / of),
            publishes_models,
            ..whole.clone()
        })
    };
    let mut plans: Vec<SimulatedPlan> = PARTS.into_iter().flat_map(of_part).collect();
    plans.reverse();
    plans
}
