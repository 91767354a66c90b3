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
//! 1. Load, unless the table is still as it was loaded ([`Age`] says how).
//! 2. Wait until the server has trained and is idle.
//! 3. Fill the client's cache.
//! 4. Measure the limits.
//! 5. Warm up, and measure.
//!
//! Operations are drawn before the clock starts, and their keys with them ([`crate::workload`]). The time of
//! a run has the copy of a batch out of the thread's ring, its split by kind, and the checks of its answers.
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

mod age;
mod change;
pub mod checked_value;
mod error;
pub(crate) mod executor;
mod inserts;
mod limit_region;
mod load;
mod placement;
mod recovery;
mod run;
mod server_process;
pub(crate) mod store;
mod values;
mod worker;

use std::sync::Arc;

use farsight::{Access, Addresses, ConnectOptions, EngineKind, ServerUrl};
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_oracles::Identity;
use indicatif::{ProgressBar, ProgressStyle};

use crate::limits::LimitArrays;
use crate::machine::Machine;
use crate::report::{Record, Setting, thousands};
use crate::workload::{Distribution, InsertSupply, KeySpace, Workload, WorkloadError};

pub use age::Age;
pub use change::{CacheFiller, ChangePlan, filled_cache_bytes};
pub use error::DriverError;
pub use inserts::{InsertOrder, InsertOutcome, InsertPlan};
pub use limit_region::LimitRegion;
pub use load::{Load, LoadReport, Loading, table_names};
pub use placement::Placement;
pub use recovery::RecoveryPlan;
pub use server_process::{ServerCommand, remove_directory_of};
pub use store::{identities, table_keys};
pub use values::Values;

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
    /// What the table's values are.
    pub values: Values,
    /// Client threads.
    pub threads: usize,
    /// Operations of a batch.
    pub batch: usize,
    /// Who searches the table.
    pub access: Access,
    /// Measured time of a run.
    pub seconds: f64,
    /// Runs of each workload, on a table of each age in turns.
    pub runs: usize,
    /// How the tables came to hold their keys.
    pub ages: Vec<Age>,
    /// What the client's cache may take of memory, if not as much as it needs.
    pub cache_bytes: Option<u64>,
    /// Bytes of values that the client may keep, if any.
    pub value_cache_bytes: Option<u64>,
    /// When writes are acknowledged, if the servers keep their tables: `durable` or `memory`.
    pub acknowledged: Option<&'static str>,
}

/// Where the server is.
#[derive(Debug, Clone)]
pub enum ServerSource {
    /// Started here, and ended with the driver.
    Start(ServerCommand),
    /// The memory nodes of a pool, so many, each started by this command; for tables of this engine.
    StartPool(&'static EngineKind, ServerCommand, usize),
    /// Already running, on this host or another, or a pool's memory nodes; for tables of this engine, or of
    /// the usual one there. Tables made there, named by [`table_names`], are dropped at the end.
    Connect(Option<&'static EngineKind>, Addresses, ConnectOptions),
}

impl ServerSource {
    /// What carries the verbs, as the scheme of its address says.
    #[must_use]
    pub fn fabric(&self) -> &'static str {
        let url = match self {
            Self::Start(command) | Self::StartPool(_, command, _) => command.network.as_ref(),
            Self::Connect(_, addresses, _) => Some(&addresses.urls()[0]),
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
    /// The first load of each age.
    pub loads: Vec<LoadReport>,
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
        let space = Arc::new(self.key_space(identities(keys))?);
        // What the processor does with memory of its own says nothing of what comes over a network.
        let is_local = source.fabric() == "shm";
        let limit_region = is_local.then(|| LimitRegion::new(key_count, self.values)).transpose()?;
        let limits =
            limit_region.as_ref().map(|limit_region| limit_region.arrays(&table_keys(space.loaded())));
        let driver = Driver { plan: self, space, source, placement, limits, cancellation };
        driver.run_all()
    }

    /// The keys to load, and enough others for the workloads that insert.
    fn key_space(&self, keys: Vec<Identity>) -> Result<KeySpace, WorkloadError> {
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
            distribution: self.distribution_of(workload).label(),
            dataset: self.dataset.clone(),
            keys: load.pairs,
            value_size: self.values.most_bytes() as u32,
            value_size_min: self.values.least_bytes() as u32,
            values: self.values.name().to_owned(),
            threads: self.threads,
            batch: self.batch,
            access: match self.access {
                Access::OneSided => "one-sided".into(),
                Access::Rpc => "rpc".into(),
            },
            fabric: source.fabric().to_owned(),
            engine: load.engine.to_string(),
            memory_nodes: load.memory_nodes,
            table: load.age.name().to_owned(),
            seconds: self.seconds,
            acknowledged: self.acknowledged.map(str::to_owned),
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

/// A table, or the next one of its age.
struct Subject {
    /// None once a run has inserted into the table.
    load: Option<Load>,
    /// The first load's.
    report: LoadReport,
}

impl Driver<'_> {
    fn run_all(&self) -> Result<Outcome, DriverError> {
        let mut loads = 0;
        let mut subjects = Vec::new();
        for &age in &self.plan.ages {
            loads += 1;
            let load = self.load(age, loads)?;
            subjects.push(Subject { report: load.report(), load: Some(load) });
        }
        let (mut results, mut notes, mut operations_checked) = (Vec::new(), Vec::new(), 0);
        for &workload in &self.plan.workloads {
            let mut ends: Vec<Vec<RunEnd>> = subjects.iter().map(|_| Vec::new()).collect();
            for number in 0..self.plan.runs {
                for (subject, ends) in subjects.iter_mut().zip(&mut ends) {
                    let end = self.run_on(subject, workload, number, &mut loads)?;
                    operations_checked += end.operations;
                    ends.push(end);
                }
            }
            for (subject, ends) in subjects.iter().zip(ends) {
                notes.extend(self.note(workload, subject.report.age, &ends));
                results.push((self.plan.setting(workload, self.source, &subject.report), ends));
            }
        }
        let loads = subjects
            .iter()
            .flat_map(|subject| subject.load.as_ref().map(Load::report).into_iter().chain([subject.report]));
        let of_pages = loads.map(|report| report.huge_page_bytes);
        let machine = Machine { huge_page_bytes_mapped: of_pages.max().unwrap_or(0), ..Machine::detect() };
        let records = results.into_iter().map(|(setting, ends)| {
            let runs: Vec<_> = ends.iter().map(|end| end.measured).collect();
            Record::of_runs(setting, &runs, machine.clone())
        });
        let loads = subjects.iter().map(|subject| subject.report).collect();
        Ok(Outcome { records: records.collect(), loads, operations_checked, notes })
    }

    /// One run, on a new table if the subject's has been inserted into.
    fn run_on(
        &self,
        subject: &mut Subject,
        workload: Workload,
        number: usize,
        loads: &mut usize,
    ) -> Result<RunEnd, DriverError> {
        let age = subject.report.age;
        let load = match &mut subject.load {
            Some(load) => load,
            gone => {
                *loads += 1;
                gone.insert(self.load(age, *loads)?)
            }
        };
        self.cancellation.check()?;
        let (name, runs) = (age.name(), self.plan.runs);
        let bar = spinner(format!("workload {workload}, {name} table, run {} of {runs}", number + 1));
        let end = self.run_of(workload, load, number).execute()?;
        bar.finish_and_clear();
        if end.inserted > 0 {
            subject.load = None;
        }
        Ok(end)
    }

    fn load(&self, age: Age, number: usize) -> Result<Load, DriverError> {
        let Plan { values, access, cache_bytes, value_cache_bytes, .. } = *self.plan;
        let loading = Loading { values, access, age, cache_bytes, value_cache_bytes };
        Load::new(self.source, loading, self.space.loaded(), number, self.cancellation)
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
    fn note(&self, workload: Workload, age: Age, ends: &[RunEnd]) -> Option<String> {
        let inserted = ends.iter().map(|end| end.inserted).max().filter(|inserted| *inserted > 0)?;
        let loaded = self.space.loaded().len() as u64;
        let mut note = format!(
            "{workload}{}: each run began with {} pairs and ended with up to {}",
            if age == Age::Aged { " aged" } else { "" },
            thousands(loaded),
            thousands(loaded + inserted)
        );
        if ends.iter().any(|end| end.is_exhausted) {
            note.push_str("; at least one ended early, when every key prepared for inserts was stored");
        }
        Some(note)
    }
}

/// What is under way, on stderr: what turns on a terminal, and a line elsewhere.
fn spinner(message: String) -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {msg}, {elapsed}").expect("a well-formed template");
    let bar = ProgressBar::new_spinner().with_style(style);
    if bar.is_hidden() {
        farsight::say(format_args!("{message}"));
    }
    bar.enable_steady_tick(std::time::Duration::from_millis(200));
    bar.with_message(message)
}
