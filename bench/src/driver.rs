//! The driver: YCSB against a server in a process of its own, measured beside what the machine allows.
//!
//! Invariants:
//! - Every answer is checked: each value carries its key and is whole, each key that must be there is, each
//!   scan is complete and in order. A run with a wrong answer has no result.
//! - The limits that a result is compared with were measured just before it, on the same cores and the same
//!   kind of pages.
//! - Whatever ends the driver, its server ends with it.
//!
//! Protocol of one run:
//! 1. Load, unless the table is still as it was loaded.
//! 2. Wait until the server has trained and is idle.
//! 3. Fill the client's cache.
//! 4. Measure the limits.
//! 5. Warm up, and measure.
//!
//! A batch is split by kind and executed kind after kind: inserts, reads, scans, read-modify-writes, updates.
//! Read-modify-writes are one multi-GET, then updates with what follows from the values read. So an
//! operation's latency is that of its batch, from the end of the thread's batch before to its own end: what a
//! caller of batches waits. In batches of one each operation goes by the session's way for one (`get_into`,
//! `insert`, `update`; a scan is a batch of one). It is compared with unchecked walks one at a time.
//!
//! Rates are of wall time, limits of processor time. On cores that nothing else uses the two are the same.
//! [`crate::report::Measured::client_cpu_fraction`] tells how far the client threads had theirs to
//! themselves.

pub mod checked_value;
mod error;
pub(crate) mod executor;
mod inserts;
mod limit_region;
mod load;
mod placement;
mod run;
mod server_process;
pub(crate) mod store;
mod worker;

use std::sync::Arc;

use farsight::{Access, Addresses, ConnectOptions, Engine, ServerUrl};
use farsight_base::sync::{AtomicBool, Ordering};
use indicatif::{ProgressBar, ProgressStyle};

use crate::limits::LimitArrays;
use crate::machine::Machine;
use crate::report::{Record, Setting, thousands};
use crate::workload::{Distribution, InsertSupply, KeySpace, Workload, WorkloadError};

pub use error::DriverError;
pub use inserts::{InsertOrder, InsertOutcome, InsertPlan};
pub use limit_region::LimitRegion;
pub use load::{Load, LoadReport, table_names};
pub use placement::Placement;
pub use server_process::{ServerCommand, remove_directory_of};

use run::{Run, RunEnd};

/// Inserts that one thread is prepared to make in a second: more than calls can carry.
const INSERTS_PER_S_MAX: f64 = 1e6;
/// Prepared inserts of the shortest runs, and of the longest, which end early.
const INSERTS_MIN: usize = 1 << 16;
const INSERTS_MAX: usize = 1 << 25;
/// The seed of keys held back and of operations.
const SEED: u64 = 1;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The workloads, one after the other.
    pub workloads: Vec<Workload>,
    /// Which keys are popular; without it the youngest in workload D, all alike in the others.
    pub distribution: Option<Distribution>,
    /// The name under which results show the keys.
    pub dataset: String,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Client threads.
    pub threads: usize,
    /// Operations of a batch.
    pub batch: usize,
    /// Who searches the table.
    pub access: Access,
    /// Measured time of a run.
    pub seconds: f64,
    /// Runs of each workload.
    pub runs: usize,
}

/// Where the server is.
#[derive(Debug, Clone)]
pub enum ServerSource {
    /// Started here, and ended with the driver.
    Start(ServerCommand),
    /// The memory nodes of a pool, so many, each started by this command; for tables of this engine.
    StartPool(Engine, ServerCommand, usize),
    /// Already running, on this host or another, or a pool's memory nodes. Tables made there, named by
    /// [`table_names`], stay until it ends.
    Connect(Addresses, ConnectOptions),
}

impl ServerSource {
    /// What carries the verbs, as the scheme of its address says.
    #[must_use]
    pub fn fabric(&self) -> &'static str {
        let url = match self {
            Self::Start(command) | Self::StartPool(_, command, _) => command.network.as_ref(),
            Self::Connect(addresses, _) => Some(&addresses.urls()[0]),
        };
        match url {
            None | Some(ServerUrl::Shm(_)) => "shm",
            Some(ServerUrl::Tcp(_)) => "tcp",
            Some(ServerUrl::Rdma(_)) => "rdma",
        }
    }
}

/// What a plan gave.
#[derive(Debug)]
pub struct Outcome {
    /// One record a workload.
    pub records: Vec<Record>,
    /// The first load.
    pub load: LoadReport,
    /// Operations whose answers were checked, all of them right.
    pub operations_checked: u64,
    /// What a reader of the figures should know of single workloads.
    pub notes: Vec<String>,
}

/// Lets another thread, or a signal, end the driver early.
#[derive(Debug, Clone, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// The flag; once true, the driver cleans up and returns [`DriverError::Cancelled`].
    #[must_use]
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Whether it is time to end.
    #[inline]
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        // Relaxed: the flag publishes nothing but itself.
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> Result<(), DriverError> {
        if self.is_cancelled() { Err(DriverError::Cancelled) } else { Ok(()) }
    }
}

impl Plan {
    /// Runs every workload over `keys`, which are ascending and distinct.
    ///
    /// # Errors
    /// [`DriverError`]; the server that was started for this has ended then, too.
    pub fn run(
        &self,
        keys: Vec<u64>,
        source: &ServerSource,
        placement: &Placement,
        cancellation: &Cancellation,
    ) -> Result<Outcome, DriverError> {
        let key_count = keys.len() as u64;
        let space = Arc::new(self.key_space(keys)?);
        // What the processor does with memory of its own says nothing of what comes over a network.
        let is_local = source.fabric() == "shm";
        let limit_region = is_local.then(|| LimitRegion::new(key_count)).transpose()?;
        let limits = limit_region.as_ref().map(|limit_region| {
            let limits = LimitArrays::new(limit_region.region().words(), space.loaded());
            limit_region.region().collapse_to_huge_pages(limit_region.bytes());
            limits
        });
        let driver = Driver { plan: self, space, source, placement, limits, cancellation };
        driver.run_all()
    }

    /// The keys to load, and enough others for the workloads that insert.
    fn key_space(&self, keys: Vec<u64>) -> Result<KeySpace, WorkloadError> {
        if !self.workloads.iter().any(|workload| workload.mix().insert > 0) {
            return KeySpace::split(keys, InsertSupply::default(), SEED);
        }
        let a_second = INSERTS_PER_S_MAX * self.threads as f64;
        let wanted = ((self.seconds * a_second) as usize).clamp(INSERTS_MIN, INSERTS_MAX);
        KeySpace::with_inserts(keys, wanted, SEED)
    }

    fn distribution_of(&self, workload: Workload) -> Distribution {
        self.distribution.unwrap_or(workload.usual_distribution())
    }

    fn setting(&self, workload: Workload, source: &ServerSource, load: &LoadReport) -> Setting {
        Setting {
            workload: workload.name().to_owned(),
            distribution: self.distribution_of(workload).name().to_owned(),
            dataset: self.dataset.clone(),
            keys: load.pairs,
            value_size: self.value_bytes as u32,
            threads: self.threads,
            batch: self.batch,
            access: match self.access {
                Access::OneSided => "one-sided".into(),
                Access::Rpc => "rpc".into(),
            },
            fabric: source.fabric().to_owned(),
            engine: load.engine.to_string(),
            memory_nodes: load.memory_nodes,
            seconds: self.seconds,
        }
    }
}

/// A plan under way.
struct Driver<'a> {
    plan: &'a Plan,
    space: Arc<KeySpace>,
    source: &'a ServerSource,
    placement: &'a Placement,
    /// Without them nothing is compared.
    limits: Option<LimitArrays<'a>>,
    cancellation: &'a Cancellation,
}

impl Driver<'_> {
    fn run_all(&self) -> Result<Outcome, DriverError> {
        let mut loads = 1;
        let mut load = self.load(loads)?;
        let report = load.report();
        let mut machine = Machine { huge_page_bytes_mapped: report.huge_page_bytes, ..Machine::detect() };
        let (mut results, mut notes, mut operations_checked) = (Vec::new(), Vec::new(), 0);
        let mut is_fresh = true;
        for &workload in &self.plan.workloads {
            let mut ends: Vec<RunEnd> = Vec::new();
            for number in 0..self.plan.runs {
                if !is_fresh {
                    drop(load);
                    loads += 1;
                    load = self.load(loads)?;
                }
                self.cancellation.check()?;
                let bar = spinner(format!("workload {workload}, run {} of {}", number + 1, self.plan.runs));
                let end = self.run_of(workload, &load, number).execute()?;
                bar.finish_and_clear();
                operations_checked += end.operations;
                is_fresh = end.inserted == 0;
                ends.push(end);
            }
            notes.extend(self.note(workload, &ends));
            results.push((self.plan.setting(workload, self.source, &report), ends));
        }
        machine.huge_page_bytes_mapped = machine.huge_page_bytes_mapped.max(load.report().huge_page_bytes);
        let records = results.into_iter().map(|(setting, ends)| {
            let runs: Vec<_> = ends.iter().map(|end| end.measured).collect();
            Record::of_runs(setting, &runs, machine.clone())
        });
        Ok(Outcome { records: records.collect(), load: report, operations_checked, notes })
    }

    fn load(&self, number: usize) -> Result<Load, DriverError> {
        let table = (self.plan.value_bytes, self.plan.access);
        Load::new(self.source, table, self.space.loaded(), number, self.cancellation)
    }

    fn run_of<'a>(&'a self, workload: Workload, load: &'a Load, number: usize) -> Run<'a> {
        Run {
            plan: self.plan,
            workload,
            distribution: self.plan.distribution_of(workload),
            load,
            space: &self.space,
            limits: self.limits.as_ref(),
            placement: self.placement,
            cancellation: self.cancellation,
            seed: SEED + number as u64,
        }
    }

    /// How far the table grew during the runs, which is not what it was loaded with.
    fn note(&self, workload: Workload, ends: &[RunEnd]) -> Option<String> {
        let inserted = ends.iter().map(|end| end.inserted).max().filter(|inserted| *inserted > 0)?;
        let loaded = self.space.loaded().len() as u64;
        let mut note = format!(
            "{workload}: each run began with {} pairs and ended with up to {}",
            thousands(loaded),
            thousands(loaded + inserted)
        );
        if ends.iter().any(|end| end.is_exhausted) {
            note.push_str("; at least one ended early, when every key prepared for inserts was stored");
        }
        Some(note)
    }
}

/// What is under way, on stderr; nothing where that is no terminal.
fn spinner(message: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}").expect("a well-formed template");
    let bar = ProgressBar::new_spinner().with_style(style).with_message(message);
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar
}
