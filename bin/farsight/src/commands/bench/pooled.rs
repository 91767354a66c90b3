//! What benchmarks of pools have in common: which fabric and testbed, which engines, how many keys.

use anyhow::{Result, bail, ensure};
use clap::Args;
use farsight::{Access, CachePolicy, EngineKind, POOL_NODES_MAX, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use farsight_bench::driver::{Placement, ServerSource, Values};
use farsight_bench::simulated::{Profile, Proxying, SimulatedPlan};
use farsight_bench::workload::{Distribution, Workload};

use super::simulated::{Clients, clients};
use super::{BATCH_MAX, FabricName, THREADS_MAX, server_command};
use crate::commands::create::engine;

/// The name under which results show the keys.
pub(super) const DATASET: &str = "uniform";
/// Bytes of all values of a table at most: with longer ones there are fewer keys.
const TABLE_BYTES_MAX: u64 = 256 << 20;

/// A pool, and who uses it.
#[derive(Debug, Args)]
pub(super) struct Pooled {
    /// What carries the verbs: a simulated network whose cards have prices, this host's memory, or TCP on
    /// loopback
    #[arg(long, value_enum, default_value = "sim")]
    pub(super) fabric: FabricName,
    /// Whose tables; several with commas between
    #[arg(long, value_parser = engine(), value_name = "NAME[,NAME...]", value_delimiter = ',',
        default_value = "flexkv")]
    pub(super) engine: Vec<&'static EngineKind>,
    /// Memory nodes
    #[arg(long, value_name = "N", default_value_t = 3,
        value_parser = clap::value_parser!(u64).range(1..=POOL_NODES_MAX as u64))]
    pub(super) memory_nodes: u64,
    /// What cards, links and cores take, with --fabric sim: cx3, cx4x2, cx5 or a file [default: cx3]
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Client machines and the threads of each, with --fabric sim [default: 20x10]
    #[arg(long, value_name = "MxT", value_parser = clients)]
    clients: Option<Clients>,
    /// Run FlexKV once more with so many of the machines writing for others, with --fabric sim; 0: do not
    /// [default: all]
    #[arg(long, value_name = "N")]
    proxies: Option<usize>,
    /// Client threads, with --fabric shm or tcp [default: 1]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u64).range(1..=THREADS_MAX))]
    threads: Option<u64>,
    /// Keys to load; fewer where values are long
    #[arg(long, value_name = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) keys: u64,
    /// Operations of a batch
    #[arg(long, value_name = "N", default_value_t = 8,
        value_parser = clap::value_parser!(u64).range(1..=BATCH_MAX))]
    pub(super) batch: u64,
}

/// One way to use an engine.
#[derive(Debug, Clone)]
pub(super) struct System {
    pub(super) engine: &'static EngineKind,
    pub(super) proxies: usize,
    /// What results call it.
    pub(super) name: String,
}

impl Pooled {
    /// Options that belong to another fabric are mistakes.
    pub(super) fn check(&self) -> Result<()> {
        let of_testbeds = [
            ("--profile", self.profile.is_some()),
            ("--clients", self.clients.is_some()),
            ("--proxies", self.proxies.is_some()),
        ];
        let of_runs = [("--threads", self.threads.is_some())];
        let others = if self.is_simulated() { &of_runs[..] } else { &of_testbeds[..] };
        if let Some((option, _)) = others.iter().find(|(_, is_given)| *is_given) {
            let own = if self.is_simulated() { "sim" } else { "shm or tcp" };
            bail!("{option} has no meaning with --fabric {own}");
        }
        let machines = self.clients().machines;
        let proxies = self.proxies();
        ensure!(
            proxies <= machines,
            "--proxies {proxies} are more than the {machines} machines of --clients"
        );
        if let Some(engine) = self.engine.iter().find(|engine| engine.is_alone()) {
            bail!("--engine {engine}: expected one whose tables lie in a pool of memory nodes");
        }
        Ok(())
    }

    pub(super) fn is_simulated(&self) -> bool {
        self.fabric == FabricName::Sim
    }

    fn clients(&self) -> Clients {
        self.clients.unwrap_or(Clients { machines: 20, threads: 10 })
    }

    fn proxies(&self) -> usize {
        self.proxies.unwrap_or(self.clients().machines)
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.map_or(1, |threads| threads as usize)
    }

    pub(super) fn profile(&self) -> Result<Profile> {
        Ok(Profile::load(self.profile.as_deref().unwrap_or("cx3"))?)
    }

    /// The ways that are compared: each engine, and FlexKV with machines that write for others.
    pub(super) fn systems(&self) -> Vec<System> {
        let has_others = self.engine.len() > 1;
        let mut systems = Vec::new();
        for engine in &self.engine {
            let is_flexkv = **engine == *EngineKind::FLEXKV;
            let alone = if is_flexkv && !has_others { "one-sided".to_owned() } else { engine.to_string() };
            systems.push(System { engine, proxies: 0, name: alone });
            if is_flexkv && self.is_simulated() && self.proxies() > 0 {
                let name = format!("{} proxies", self.proxies());
                systems.push(System { engine, proxies: self.proxies(), name });
            }
        }
        systems
    }

    /// The testbed, for the eye.
    pub(super) fn setting(&self, seconds: f64) -> Result<String> {
        let nodes = self.memory_nodes;
        let common = format!("{nodes} memory nodes; keys are integers; batches of {}", self.batch);
        if !self.is_simulated() {
            let name = if self.fabric == FabricName::Tcp { "tcp" } else { "shm" };
            return Ok(format!("{name}, {} client threads, {common}; {seconds} s", self.threads()));
        }
        let Clients { machines, threads } = self.clients();
        let (profile, ms) = (self.profile()?.name, seconds * 1e3);
        Ok(format!(
            "simulated, profile {profile}: {machines} machines of {threads} threads, {common}; {ms} ms"
        ))
    }

    /// Bytes of a value that `engine` has for one of so many.
    pub(super) fn value_bytes(engine: &EngineKind, wanted: usize) -> usize {
        wanted.clamp(VALUE_BYTES_MIN, engine.block_value_bytes_max.max(VALUE_BYTES_MAX))
    }

    /// Keys of a table of such values.
    pub(super) fn keys_of(&self, value_bytes: usize) -> u64 {
        self.keys.min((TABLE_BYTES_MAX / value_bytes as u64).max(1))
    }

    /// What values of so many bytes are.
    pub(super) fn values(value_bytes: usize) -> Values {
        if value_bytes > VALUE_BYTES_MAX {
            Values::blocks(value_bytes, value_bytes)
        } else {
            Values::fixed(value_bytes)
        }
    }

    /// What is started for an engine.
    pub(super) fn source(&self, engine: &'static EngineKind, placement: &Placement) -> Result<ServerSource> {
        let command = server_command(self.fabric.network(), placement)?;
        Ok(ServerSource::StartPool(engine, command, self.memory_nodes as usize))
    }

    /// A simulated run.
    pub(super) fn simulated_plan(
        &self,
        system: &System,
        (workload, distribution): (Workload, Distribution),
        value_bytes: usize,
        seconds: f64,
    ) -> Result<SimulatedPlan> {
        let Clients { machines, threads } = self.clients();
        Ok(SimulatedPlan {
            profile: self.profile()?,
            engine: system.engine,
            memory_nodes: self.memory_nodes as usize,
            machines,
            proxying: (system.proxies > 0).then(|| Proxying::by(system.proxies)),
            threads,
            workload,
            distribution,
            dataset: DATASET.to_owned(),
            value_bytes,
            batch: self.batch as usize,
            access: Access::OneSided,
            seconds,
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
