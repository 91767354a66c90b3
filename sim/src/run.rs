//! A scenario run to its end and judged.
//!
//! The judges:
//! - No answer has a value that nobody wrote, but for a hidden tear ([`crate::hidden_tear`]).
//! - In each epoch of the server one order that respects real time explains each key's answers. A scan reads
//!   every key that it passes.
//! - The faults at work explain every failure.
//! - [`crate::look_back`] finds all in order once the faults are over.
//! - Every process ends within its virtual time.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, AtomicUsize, Ordering};
use farsight_base::{LINE_BYTES, Stamp, WORDS_PER_LINE};
use farsight_client::{Access, CatalogueError, ValueCache};
use farsight_fabric::Region as _;
use farsight_fabric_sim::{Fault, Kind, Ordered, ReliableConnection, SimRegion, Simulation, Timing, Weakest};
use farsight_index::ReadsByOthers;
use farsight_layout::Geometry;
use farsight_layout::pool::BlockGeometry;
use farsight_node::NodeOptions;
use farsight_oracles::Identity;
use farsight_protocol::{ValueKind, WriteOperation};

use crate::Scenario;
use crate::allowed::Allowed;
use crate::classes::Mark;
use crate::client::{self, Client, Plan, Unanswered};
use crate::cluster::{Cluster, HashedPool, MemoryPool, OneServer, PartedPool};
use crate::journal::{Entry, Journal};
use crate::kept;
use crate::linear::{self, Violation};
use crate::look_back::{check_left_over, look_back, mend_all, remember};
use crate::names;
use crate::node::Node;
use crate::pool;
use crate::report::{Failure, Report};
use crate::scenario::{PoolEngine, PoolShape};

use crate::servers::{Servers, Setting};
use crate::trace::Trace;

pub(crate) const ADDRESSES: &[&str] = &["sim://server"];
pub(crate) const TABLE: &str = "table";
/// No scenario lasts as long in virtual time.
pub(crate) const LASTS_MAX: Duration = Duration::from_secs(600);
/// Entries of an operation, about: a scan has one for each key that it passes.
const ENTRIES_AN_OPERATION: usize = 3;
/// Keys of one write while the table is filled.
const FILL_BATCH: usize = 64;
/// Bytes of values that a program keeps, where programs keep any: fewer than there are.
const VALUE_CACHE_BYTES: u64 = 16 << 10;
/// Between two looks of the operator of the servers.
pub(crate) const LOOK_AFTER: Duration = Duration::from_micros(100);
/// Of the keys, a later life of a server is given one in so many.
pub(crate) const FILLED_AGAIN_ONE_IN: usize = 2;
/// Groups of processes that are nobody's program: the one that looks back, that with a fresh cache, and who
/// operates the servers.
pub(crate) const BYSTANDER: usize = usize::MAX;
pub(crate) const NEWCOMER: usize = usize::MAX - 1;
pub(crate) const OPERATOR: usize = usize::MAX - 2;

impl Scenario {
    /// Runs it. Once `stop` is true it ends early, and what it returns means nothing.
    ///
    /// # Errors
    /// [`Failure`], with what happened in words if `keeps_trace`.
    pub fn run(&self, keeps_trace: bool, stop: &Arc<AtomicBool>) -> Result<Report, Box<Failure>> {
        let (simulation, journal) = self.begin(keeps_trace);
        simulation.stop_by(stop);
        let done = match (self.kept, self.pool, self.is_weakest) {
            (Some(kept), ..) => kept::run(self, kept, &simulation, &journal),
            (None, None, true) => self.run_on::<Weakest>(&simulation, &journal),
            (None, None, false) => self.run_on::<ReliableConnection>(&simulation, &journal),
            (None, Some(shape), _) => self.run_in_pool(shape, &simulation, &journal),
        };
        let entries = journal.take_entries(&self.keys);
        let judged = judge(done, &journal, &entries);
        let trace = if keeps_trace {
            Trace::new(simulation.told(), entries, journal.take_moments(), self)
        } else {
            Trace::default()
        };
        match judged {
            Ok(report) => Ok(Report { trace, ..report }),
            Err(Violation { what, entries, .. }) => {
                Err(Box::new(Failure { scenario: self.name, seed: self.seed, what, entries, trace }))
            }
        }
    }

    /// ROLEX asks for what a card need not promise; the others for nothing.
    fn run_in_pool(
        &self,
        shape: PoolShape,
        simulation: &Simulation,
        journal: &Journal,
    ) -> Result<Report, String> {
        use PoolEngine::{FlexKv, Rolex, XStoreD};
        match (shape.engine, self.is_weakest) {
            (Rolex, true) => pool::run_on::<_, MemoryPool<Ordered>>(self, shape, simulation, journal),
            (Rolex, false) => {
                pool::run_on::<_, MemoryPool<ReliableConnection>>(self, shape, simulation, journal)
            }
            (XStoreD, true) => pool::run_on::<_, PartedPool<Weakest>>(self, shape, simulation, journal),
            (XStoreD, false) => {
                pool::run_on::<_, PartedPool<ReliableConnection>>(self, shape, simulation, journal)
            }
            (FlexKv, true) => pool::run_on::<_, HashedPool<Weakest>>(self, shape, simulation, journal),
            (FlexKv, false) => {
                pool::run_on::<_, HashedPool<ReliableConnection>>(self, shape, simulation, journal)
            }
        }
    }

    fn begin(&self, keeps_trace: bool) -> (Simulation, Journal) {
        let simulation = Simulation::new(self.seed, Timing::default(), Vec::new());
        let mut journal = Journal::default();
        if keeps_trace {
            simulation.keep_trace();
            journal = Journal::timed(simulation.clone());
        }
        journal.expect_entries(ENTRIES_AN_OPERATION * self.operations);
        simulation.set_first_stamp(self.first_stamp);
        simulation.set_flips(self.flips.clone());
        simulation.spare(OPERATOR);
        (simulation, journal)
    }

    /// What the table's values are.
    pub(crate) fn values(&self) -> ValueKind {
        match self.block_bytes {
            None => ValueKind::Fixed(self.value_bytes),
            Some(_) => ValueKind::BLOCKS,
        }
    }

    /// How a table's leaves are laid out.
    pub(crate) fn geometry(&self) -> Geometry {
        Geometry::new(usize::from(self.value_bytes)).expect("a size that the format knows")
    }

    /// Lines from one leaf's begin to the next one's.
    pub(crate) fn leaf_lines(&self) -> usize {
        if !self.is_rolex() {
            return self.geometry().leaf_lines();
        }
        BlockGeometry::new(self.value_bytes.into()).expect("a size that the format knows").lines()
    }

    /// Bytes of a pool's table on each of its nodes.
    pub(crate) fn pool_table_bytes(&self) -> u64 {
        match self.pool {
            Some(shape) if shape.engine == PoolEngine::FlexKv => shape.hashed_bytes,
            _ => (self.leaves * self.leaf_lines() * LINE_BYTES) as u64,
        }
    }

    /// Whether compute nodes write leaves themselves, under locks.
    pub(crate) fn is_rolex(&self) -> bool {
        self.pool.is_some_and(|shape| shape.engine == PoolEngine::Rolex)
    }

    /// What its faults explain.
    fn allowed(&self) -> Allowed {
        let allowed = Allowed::by(&self.rules, self.is_rolex(), self.changes_names);
        let allowed = if self.kept.is_some() { allowed.with_disks() } else { allowed };
        let has_replicas = self.pool.is_some_and(|shape| shape.replicas > 1);
        let repairs = self.pool.is_some_and(|shape| shape.repairs_node);
        if has_replicas { allowed.with_losses(repairs) } else { allowed }
    }

    /// Whether servers may die.
    pub(crate) fn has_ends(&self) -> bool {
        self.rules.iter().any(|rule| matches!(rule.fault, Fault::CrashedServer | Fault::FrozenServer))
    }

    fn servers<K: Kind>(&self, simulation: &Simulation) -> Arc<Servers<K>> {
        let leaves_bytes = (self.leaves * self.geometry().leaf_bytes()) as u64;
        let table_memory_bytes = self.block_bytes.unwrap_or(leaves_bytes);
        let mut options = NodeOptions {
            workers: self.workers,
            table_memory_bytes,
            author_secret: Some(self.seed),
            ..NodeOptions::default()
        };
        if self.budget_bytes_max.is_some() {
            options.training.target_leaves_per_sub_model = 1;
        }
        Arc::new(Servers::start(Setting {
            simulation: simulation.clone(),
            address: ADDRESSES[0],
            table: TABLE,
            options,
            values: self.values(),
            versions_left_out: self.versions_left_out,
            parks_one_in: self.parks_one_in,
            seed: self.seed,
        }))
    }

    fn run_on<K: Kind>(&self, simulation: &Simulation, journal: &Journal) -> Result<Report, String> {
        let servers = self.servers::<K>(simulation);
        let bystander = Arc::new(self.plan::<OneServer<K>>(simulation, journal, ADDRESSES));
        servers.make_table().map_err(|error| error.to_string())?;
        self.fill(&bystander, 1).map_err(|_| "the table is not filled".to_owned())?;
        remember(&bystander)?;
        simulation.set_rules(self.rules.clone());
        let left = Arc::new(AtomicUsize::new(self.processes));
        for process in 0..self.processes {
            let (group, seed) = (process % self.programs, self.seed ^ (process as u64) << 32);
            let access = if process % 4 == 3 { Access::Rpc } else { Access::OneSided };
            let plan = Plan { group, access, process, seed, ..bystander.again() };
            start(plan, self.programs, &left);
        }
        if self.has_ends() {
            self.operate(&servers, &bystander, &left);
        }
        if self.changes_names {
            let servers = Arc::clone(&servers);
            self.change_names(&bystander, &left, move || servers.make_table());
        }
        let all_ended = simulation.run_processes(MonotonicNs(0).plus(LASTS_MAX));
        let strikes = simulation.strikes();
        simulation.set_rules(Vec::new());
        simulation.await_stopped_hosts();
        if !all_ended {
            return Err(format!("a process still waits after {LASTS_MAX:?}"));
        }
        // Who operates the servers ends with the last program, perhaps before it has made the table again.
        if servers.succeed() || self.has_ends() {
            servers.make_table().map_err(|error| error.to_string())?;
        }
        let node = servers.current();
        if self.decays() {
            mend_all(&bystander)?;
        }
        if let Some(failure) = node.failure() {
            return Err(format!("the server met a bug: {failure}"));
        }
        let stored = look_back(&bystander)?;
        let (events, trace_hash) = (simulation.events(), simulation.trace_hash());
        let lasted = simulation.now().since(MonotonicNs(0));
        let stats = check_left_over(&node, &bystander, stored, self.decays())?;
        journal.mark(Mark::Scrubbed, stats.part().tree.scrubbed);
        journal.mark(
            Mark::Retrained,
            stats.part().model.retrained + stats.part().model.generation.saturating_sub(1),
        );
        journal.mark(Mark::Wrapped, self.wrapped_lines(&node));
        let mut coverage = journal.coverage();
        coverage.strikes = strikes;
        Ok(Report {
            splits: stats.part().tree.splits,
            merges: stats.part().tree.merges,
            events,
            trace_hash,
            lasted,
            coverage,
            ..Report::default()
        })
    }

    /// The plan of the program that fills the table and looks back, which no rule stops.
    pub(crate) fn plan<C: Cluster>(
        &self,
        simulation: &Simulation,
        journal: &Journal,
        addresses: &'static [&'static str],
    ) -> Plan<C> {
        Plan {
            simulation: simulation.clone(),
            journal: journal.clone(),
            cluster: PhantomData,
            programs: Arc::default(),
            group: BYSTANDER,
            addresses,
            table: TABLE,
            keys: Arc::new(self.keys.clone()),
            table_keys: self.table_keys(),
            hot_keys: self.hot_keys,
            writes_percent: self.writes_percent,
            conditional_percent: self.conditional_percent,
            wave_writes: self.wave_writes,
            rests_one_in: self.rests_one_in,
            walks_one_in: self.walks_one_in,
            scan_ways: self.scan_ways,
            budget_bytes_max: self.budget_bytes_max,
            reads_by_others: self.pool.map_or(ReadsByOthers::None, |shape| shape.reads_by_others),
            value_cache: self
                .pool
                .and_then(|shape| shape.reads_a_write)
                .map(|reads_a_write| ValueCache { bytes: VALUE_CACHE_BYTES, reads_a_write }),
            access: Access::OneSided,
            allowed: self.allowed(),
            may_be_full: self.may_be_full,
            block_lengths: self.block_bytes.map(|_| self.block_lengths),
            leaves_one_in: self.pool.and_then(|shape| shape.leaves_one_in),
            // With replicas, others carry on what was lost between two of them, whenever they come by.
            unanswered: if self.pool.is_some_and(|shape| shape.proxies > 0 && shape.replicas == 1) {
                Unanswered::ReplacesNothingLater
            } else {
                Unanswered::MayReplaceAnything
            },
            versions_end: self.versions_left_out > 0,
            operations: self.operations / self.processes,
            process: self.processes,
            seed: self.seed,
        }
    }

    /// Writes some keys, one in `one_in` of those that the first life has.
    pub(crate) fn fill<C: Cluster>(&self, plan: &Arc<Plan<C>>, one_in: usize) -> Result<(), client::End> {
        let mut writer = Client::<C>::open(plan, self.seed)?;
        let mut random = SplitMix64::new(!self.seed);
        let filled: Vec<Identity> = (0..self.filled_keys / one_in)
            .map(|_| self.keys[random.below(self.keys.len() as u64) as usize])
            .collect();
        filled.chunks(FILL_BATCH).try_for_each(|keys| writer.write_keys(WriteOperation::Put, keys))
    }

    /// Starts who looks after the servers, until no client is left.
    fn operate<K: Kind>(
        &self,
        servers: &Arc<Servers<K>>,
        bystander: &Arc<Plan<OneServer<K>>>,
        left: &Arc<AtomicUsize>,
    ) {
        let (scenario, servers, left) = (self.clone(), Arc::clone(servers), Arc::clone(left));
        let plan = Arc::new(Plan { group: OPERATOR, process: self.processes + 1, ..bystander.again() });
        let simulation = plan.simulation.clone();
        simulation.process("operator", OPERATOR, move || {
            let mut is_ready = true;
            // Relaxed: all of it happens on one thread.
            while left.load(Ordering::Relaxed) > 0 {
                is_ready &= !servers.succeed();
                if !is_ready {
                    match servers.make_table() {
                        Ok(()) => is_ready = scenario.fill(&plan, FILLED_AGAIN_ONE_IN).is_ok(),
                        Err(error) => {
                            plan.complain_of("making a table", &error, plan.allowed.catalogue(&error));
                        }
                    }
                }
                plan.simulation.sleep(LOOK_AFTER);
            }
        });
    }

    /// Starts who changes the table's name, until no client is left.
    pub(crate) fn change_names<C: Cluster>(
        &self,
        bystander: &Arc<Plan<C>>,
        left: &Arc<AtomicUsize>,
        make_table: impl Fn() -> Result<(), CatalogueError> + Send + 'static,
    ) {
        let (scenario, left) = (self.clone(), Arc::clone(left));
        let plan = Arc::new(Plan { group: OPERATOR, process: self.processes + 1, ..bystander.again() });
        let simulation = plan.simulation.clone();
        simulation.process("names", OPERATOR, move || names::change(&scenario, &plan, &left, make_table));
    }

    /// Lines of the first regions whose counters have begun again.
    fn wrapped_lines<K: Kind>(&self, node: &Node<K>) -> u64 {
        let first = self.first_stamp;
        let has_wrapped =
            |stamp: Stamp| stamp.version() < first.version() || stamp.incarnation() < first.incarnation();
        let wrapped = |region: &SimRegion| {
            let stamps = region.words().iter().step_by(WORDS_PER_LINE);
            stamps.filter(|word| has_wrapped(Stamp(word.load(Ordering::Relaxed)))).count() as u64
        };
        node.regions().iter().map(|region| wrapped(region)).sum()
    }
}

/// Whether all is as it should be. What a client met first explains what was found afterwards.
fn judge(done: Result<Report, String>, journal: &Journal, entries: &[Entry]) -> Result<Report, Violation> {
    let plain = |what: String| Violation { key: Identity::MIN, what, entries: Vec::new() };
    journal.complaint().map_or(Ok(()), |complaint| Err(plain(complaint)))?;
    let report = done.map_err(plain)?;
    linear::check(entries).map_err(|violation| Violation {
        what: format!("key {}: {}", violation.key, violation.what),
        ..violation
    })?;
    Ok(report.with_entries(entries))
}

/// Starts a process; if its program is killed, or it leaves it, the rest of its plan goes to a successor.
pub(crate) fn start<C: Cluster>(plan: Plan<C>, programs: usize, left: &Arc<AtomicUsize>) {
    let (simulation, name) = (plan.simulation.clone(), format!("process {}", plan.process));
    let (plan, left) = (Arc::new(plan), Arc::clone(left));
    simulation.process(&name, plan.group, move || {
        let operations = client::run::<C>(&plan);
        if operations > 0 {
            let Some(plan) = Arc::into_inner(plan) else { unreachable!("its clients are gone") };
            let (group, seed) = (plan.group + programs, SplitMix64::new(plan.seed).next_u64());
            start(Plan { group, operations, seed, ..plan }, programs, &left);
        } else {
            // Relaxed: all of it happens on one thread.
            if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                plan.programs.end_work();
            }
        }
    });
}
