//! `farsight bench ycsb --fabric sim`.

use std::io::{IsTerminal as _, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use farsight::{CachePolicy, EngineKind, ReadsByOthers, VALUE_BYTES_MIN};
use farsight_bench::dataset::Dataset;
use farsight_bench::driver::{Cancellation, DriverError};
use farsight_bench::report::{SimulatedRecord, simulated_table};
use farsight_bench::simulated::{Profile, Proxying, SimulatedPlan};
use farsight_bench::workload::Workload;

use super::{EXIT_INTERRUPTED, FabricName, Ycsb};
use crate::output::output;
use crate::results;

/// Keys of a simulated run: a GET's verbs are the same at a hundred times as many.
pub(super) const KEYS_DEFAULT: u64 = 1_000_000;
const SECONDS_DEFAULT: f64 = 0.002;
/// Machines and threads of the largest testbed.
const MACHINES_MAX: usize = 1_000;

/// The testbed of a simulated run.
#[derive(Debug, Args)]
pub(super) struct Testbed {
    /// What cards, links and cores take, with --fabric sim: cx3, cx4x2, cx5 or a file [default: cx4x2]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Client machines and the threads of each, with --fabric sim; several testbeds with commas between are
    /// simulated one after the other [default: 15x24]
    #[arg(long, value_name = "MxT[,MxT...]", value_parser = clients, value_delimiter = ',')]
    clients: Vec<Clients>,
    /// So many of the machines also write for others, with --fabric sim and --engine flexkv
    #[arg(long, value_name = "N", default_value_t = 0)]
    proxies: usize,
    /// What those do for GETs of the other machines, with --proxies: nothing, find addresses, or read values
    #[arg(long, value_enum, default_value_t = ProxiedReads::None)]
    proxied_reads: ProxiedReads,
    /// Run again with each uncertain price at both ends of its band, with --fabric sim
    #[arg(long)]
    sensitivity: bool,
}

/// What machines that write for others do for GETs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProxiedReads {
    None,
    Addresses,
    Values,
}

impl From<ProxiedReads> for ReadsByOthers {
    fn from(reads: ProxiedReads) -> Self {
        match reads {
            ProxiedReads::None => Self::None,
            ProxiedReads::Addresses => Self::Addresses,
            ProxiedReads::Values => Self::Values,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Clients {
    pub(super) machines: usize,
    pub(super) threads: usize,
}

const CLIENTS_DEFAULT: Clients = Clients { machines: 15, threads: 24 };

pub(super) fn clients(text: &str) -> Result<Clients, String> {
    let parse = |number: &str| number.parse().ok().filter(|number| (1..=MACHINES_MAX).contains(number));
    text.split_once('x')
        .and_then(|(machines, threads)| Some((parse(machines)?, parse(threads)?)))
        .map(|(machines, threads)| Clients { machines, threads })
        .ok_or_else(|| {
            format!("expected machines x threads, as 15x24, each from 1 to {MACHINES_MAX}, got {text:?}")
        })
}

impl Testbed {
    /// Options that belong to another fabric are mistakes.
    pub(super) fn check(&self, ycsb: &Ycsb) -> Result<()> {
        let of_runs =
            [("--threads", ycsb.threads.is_some()), ("--runs", ycsb.runs.is_some()), ("--aged", ycsb.aged)];
        // An address says itself which fabric it is of.
        let connect = [("--connect", ycsb.running.connect.is_some())];
        let of_testbeds = [
            ("--profile", self.profile.is_some()),
            ("--clients", !self.clients.is_empty()),
            ("--proxies", self.proxies > 0),
            ("--sensitivity", self.sensitivity),
        ];
        let (own, others) = match ycsb.fabric {
            FabricName::Sim => ("sim", [&of_runs[..], &connect].concat()),
            FabricName::Tcp => ("tcp", [&connect[..], &of_testbeds].concat()),
            FabricName::Shm => ("shm", of_testbeds.to_vec()),
        };
        let stray = others.iter().find(|(_, is_given)| *is_given);
        if let Some((option, _)) = stray {
            bail!("{option} has no meaning with --fabric {own}");
        }
        let other = ycsb.engines().into_iter().find(|engine| **engine != *EngineKind::FLEXKV);
        if let (Some(engine), true) = (other, self.proxies > 0) {
            bail!(
                "--proxies has no meaning with --engine {engine}: compute nodes write for others in flexkv's"
            );
        }
        if self.proxies == 0 && self.proxied_reads != ProxiedReads::None {
            bail!("--proxied-reads has no meaning without --proxies");
        }
        let is_simulated = ycsb.fabric == FabricName::Sim;
        if let (Some(engine), true, Some(_)) = (other, is_simulated, ycsb.value_cache) {
            bail!("--value-cache has no meaning with --engine {engine}: values are kept of flexkv's tables");
        }
        Ok(())
    }
}

impl Ycsb {
    /// Runs the workloads in virtual time, each on a testbed of its own.
    pub(super) fn simulate(
        &self,
        dataset: &Dataset,
        keys: &[u64],
        cancellation: &Cancellation,
    ) -> Result<ExitCode> {
        let profile = Profile::load(self.testbed.profile.as_deref().unwrap_or("cx4x2"))?;
        let mut records = Vec::new();
        let testbeds = match &self.testbed.clients[..] {
            [] => vec![CLIENTS_DEFAULT],
            given => given.to_vec(),
        };
        let proxies = self.testbed.proxies;
        if let Some(Clients { machines, .. }) = testbeds.iter().find(|clients| clients.machines < proxies) {
            bail!("--proxies {proxies} are more than the {machines} machines of --clients");
        }
        let engines = self.engines();
        let of_testbed = |clients: Clients| engines.iter().map(move |engine| (clients, *engine));
        let of_engine =
            |(clients, engine)| self.workload.0.iter().map(move |workload| (clients, engine, *workload));
        for (clients, engine, workload) in testbeds.into_iter().flat_map(of_testbed).flat_map(of_engine) {
            let plan = self.simulated_plan(&profile, clients, engine, dataset, workload)?;
            say(&format!("{engine}, workload {workload}: loading and running in virtual time"));
            match simulated(&plan, keys.to_vec(), self.testbed.sensitivity, cancellation) {
                Err(DriverError::Cancelled) => {
                    say("");
                    farsight::say("interrupted");
                    return Ok(ExitCode::from(EXIT_INTERRUPTED));
                }
                done => records.push(done?),
            }
        }
        say("");
        let stored = results::store(self.json.as_deref(), &records);
        let mut out = output();
        write!(out, "{}", simulated_table(&records))?;
        writeln!(out, "wrong answers: 0, each of them checked")?;
        stored.tell(&mut out)?;
        if let Some(credit) = dataset.attribution() {
            writeln!(out, "{credit}")?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn simulated_plan(
        &self,
        profile: &Profile,
        Clients { machines, threads }: Clients,
        engine: &'static EngineKind,
        dataset: &Dataset,
        workload: Workload,
    ) -> Result<SimulatedPlan> {
        Ok(SimulatedPlan {
            profile: profile.clone(),
            engine,
            memory_nodes: if engine.is_alone() { 0 } else { self.memory_nodes as usize },
            machines,
            proxying: (self.testbed.proxies > 0).then(|| Proxying {
                reads: self.testbed.proxied_reads.into(),
                ..Proxying::by(self.testbed.proxies)
            }),
            threads,
            workload,
            distribution: self.distribution()?.unwrap_or(workload.usual_distribution()),
            dataset: dataset.name(),
            value_bytes: self.value_size.map_or(VALUE_BYTES_MIN, |(_, most)| most),
            batch: self.batch as usize,
            access: self.access.into(),
            seconds: self.seconds.unwrap_or(SECONDS_DEFAULT),
            warm_up_seconds: None,
            then: None,
            sample_seconds: None,
            cache_bytes: None,
            value_cache_bytes: self.value_cache,
            cache_policy: CachePolicy::default(),
            publishes_models: true,
        })
    }
}

fn simulated(
    plan: &SimulatedPlan,
    keys: Vec<u64>,
    with_sensitivity: bool,
    cancellation: &Cancellation,
) -> Result<SimulatedRecord, DriverError> {
    let space = plan.key_space(keys)?;
    let mut record = plan.run(&space, cancellation)?;
    if with_sensitivity {
        say(&format!(
            "workload {}: {} constants at both ends of their bands",
            plan.workload,
            plan.uncertain().len()
        ));
        record.sensitivity = plan.sensitivity(&space, cancellation)?;
    }
    Ok(record)
}

/// One line of what is under way, which the next one replaces; nothing where stderr is no terminal.
pub(super) fn say(what: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        // A terminal that takes no more is no reason to fail.
        let _ = write!(stderr, "\r\x1b[K{what}");
        let _ = stderr.flush();
    }
}
