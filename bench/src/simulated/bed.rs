//! A simulated testbed, loaded and ready: what has the table, and client machines with a cache each.

mod keepers;
mod pool;
mod proxies;
mod server;

use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farsight::{LoadError, VALUE_BYTES_MAX, ValueKind};
use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_client::{Client, Table};
use farsight_fabric_sim::{Profile, Simulation, Utilization};
use farsight_layout::hash_index::HASH_PARTITIONS;
use farsight_layout::pool::BlockGeometry;
use farsight_oracles::{Embedding as _, Identity};
use farsight_protocol::{KeyKind, Proxy, TableDefinition};

use super::calls::core_ps;
use super::session::PricedSession;
use super::thread::{Thread, ThreadEnd};
use super::{SEED, SimulatedPlan};
use crate::driver::executor::Executor;
use crate::driver::store::PLAIN;
use crate::driver::{Cancellation, DriverError, Values, checked_value};
use crate::workload::{KeySpace, OperationStream, Workload};
use proxies::Executed;

const TABLE: &str = "ycsb";
/// Pairs of a leaf after a bulk load, at least: what a table's memory is reckoned by.
const LEAF_PAIRS: usize = 6;
/// Leaves that a table has room for besides.
const LEAVES_SPARE: usize = 1 << 12;
/// Bytes by which a block is longer than its value, and what compute nodes take of blocks before they write.
const BLOCK_SPARE_BYTES: usize = 256;
const BLOCKS_SPARE_BYTES: usize = 1 << 30;
/// A value's bytes in a definition that says something else of values.
const SHORT_BYTES: u16 = 8;
/// Pairs between two looks at the cancellation.
const LOOK_PAIRS: usize = 1 << 16;
/// Virtual time between two looks at the cancellation.
const LOOK_NS: u64 = 200_000;
/// Between the first batches of two threads, which would otherwise all ring at one moment.
const STAGGER_NS: u64 = 37;
/// Virtual time that the last batches may take.
const LAST_BATCHES: Duration = Duration::from_secs(60);
/// Operations that a thread's ring holds: as many as it executes in a phase, for they recur. A thread does
/// not execute more in a second of virtual time, or by kept values alone.
const OPERATIONS_PER_S: f64 = 2e5;
const SLOTS_MIN: usize = 1 << 12;
const SLOTS_MAX: usize = 1 << 18;

/// A thread's session, and its operations by phase.
type Opened = (Executor<PricedSession>, Vec<OperationStream>);

/// What was seen of a testbed within the window.
pub(super) struct Seen {
    /// How busy it was.
    pub(super) usage: Vec<Utilization>,
    /// Writes that each machine which serves executed for others.
    pub(super) executed: Vec<u64>,
    /// The part of all partitions that machines write for others, at the end of each sample; empty if none
    /// does.
    pub(super) offloaded: Vec<f64>,
}

/// The testbed. Dropped in this order: the clients, which their tables keep, before what they talk to.
pub(super) struct Bed {
    /// One a machine.
    tables: Vec<Table>,
    /// A client of the pool, if it is one.
    client: Option<Client>,
    /// What each machine that serves has executed.
    executed: Vec<Arc<Executed>>,
    _peers: Box<dyn Any>,
    simulation: Simulation,
    /// Threads of clients that have work left, and one more before they begin. Others serve until it is 0.
    left: Arc<AtomicUsize>,
}

impl Bed {
    /// What the cache of a machine takes of memory.
    pub(super) fn cache_memory_bytes(&self) -> u64 {
        self.tables.first().map_or(0, |table| table.cache_stats().memory_bytes)
    }

    /// Runs every thread; returns what each did, and what was seen of the testbed within the window.
    pub(super) fn run(
        &self,
        plan: &SimulatedPlan,
        space: &Arc<KeySpace>,
        cancellation: &Cancellation,
    ) -> Result<(Vec<ThreadEnd>, Seen), DriverError> {
        let ends: Arc<Mutex<Vec<Result<ThreadEnd, DriverError>>>> = Arc::default();
        let opened = self.open(plan, space)?;
        let begin_ns = self.simulation.now().0;
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let warm_ns = begin_ns + ns(plan.warm_up_seconds());
        let phase_ends: Vec<u64> = plan.phase_ends().iter().map(|seconds| warm_ns + ns(*seconds)).collect();
        let end_ns = *phase_ends.last().expect("a phase at least");
        let sample_ns = plan.sample_seconds.map_or(end_ns - warm_ns, ns).max(1);
        // Relaxed, here and below: all of it happens on one thread.
        self.left.store(opened.len(), Ordering::Relaxed);
        for (number, (executor, streams)) in opened.into_iter().enumerate() {
            let thread = Thread {
                simulation: self.simulation.clone(),
                executor,
                phases: phase_ends.iter().copied().zip(streams).collect(),
                batch: plan.batch,
                begins_after: Duration::from_nanos(number as u64 * STAGGER_NS),
                window_ns: warm_ns..end_ns,
                sample_ns,
            };
            let (mut thread, ends, left) = (Box::new(thread), Arc::clone(&ends), Arc::clone(&self.left));
            self.simulation.process("thread", number % plan.machines, move || {
                let end = thread.run();
                drop(thread);
                ends.lock().unwrap_or_else(PoisonError::into_inner).push(end);
                left.fetch_sub(1, Ordering::Relaxed);
            });
        }
        self.pass(begin_ns, warm_ns, cancellation)?;
        let seen = self.watch(warm_ns..end_ns, sample_ns, cancellation)?;
        let all_ended = self.simulation.run_processes(MonotonicNs(end_ns).plus(LAST_BATCHES));
        assert!(all_ended, "a thread waits for longer than {LAST_BATCHES:?}");
        let ends = Arc::into_inner(ends).expect("all threads ended");
        let ends: Result<Vec<ThreadEnd>, _> =
            ends.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
        Ok((ends?, seen))
    }

    /// A session and operations for each thread, by phase. Opening takes time, too: all of them are open
    /// before the warm-up begins.
    fn open(&self, plan: &SimulatedPlan, space: &Arc<KeySpace>) -> Result<Vec<Opened>, DriverError> {
        // Its threads take turns in the machines, and a machine's in its cards.
        let threads = plan.machines * plan.threads;
        let open = |number: usize| {
            let table = &self.tables[number % plan.machines];
            let session = PricedSession::open(&self.simulation, table, plan)?;
            let executor = Executor::new(session, TABLE, Values::fixed(plan.value_bytes), Arc::clone(space));
            let stream = |(phase, (workload, seconds)): (usize, (Workload, f64))| {
                let slots = ((seconds * OPERATIONS_PER_S) as usize).clamp(SLOTS_MIN, SLOTS_MAX);
                let (place, seed) = ((number, threads), SEED + phase as u64);
                OperationStream::new(workload, plan.distribution, space, place, slots, seed)
            };
            let streams = plan.timed_phases().into_iter().enumerate().map(stream);
            Ok((executor, streams.collect::<Result<Vec<_>, _>>()?))
        };
        (0..threads).map(open).collect()
    }

    /// Lets the window pass.
    fn watch(
        &self,
        window_ns: Range<u64>,
        sample_ns: u64,
        cancellation: &Cancellation,
    ) -> Result<Seen, DriverError> {
        let usage = || self.simulation.usage().expect("verbs have prices");
        let (before, executed_before) = (usage(), self.executed());
        let (mut begins_ns, mut offloaded) = (window_ns.start, Vec::new());
        while begins_ns < window_ns.end {
            let ends_ns = (begins_ns + sample_ns).min(window_ns.end);
            self.pass(begins_ns, ends_ns, cancellation)?;
            if ends_ns < window_ns.end {
                offloaded.extend(self.offloaded()?);
            }
            begins_ns = ends_ns;
        }
        let usage = usage().since(&before);
        let executed = self.executed().into_iter().zip(executed_before);
        let executed = executed.map(|(now, before)| now - before).collect();
        // What it takes to hear that is no part of the window.
        offloaded.extend(self.offloaded()?);
        Ok(Seen { usage, executed, offloaded })
    }

    fn executed(&self) -> Vec<u64> {
        self.executed.iter().map(|executed| executed.writes()).collect()
    }

    /// The part of all partitions that clients are told to send to machines that serve; `None` if there are
    /// no such machines.
    fn offloaded(&self) -> Result<Option<f64>, DriverError> {
        let Some(client) = self.client.as_ref().filter(|_| !self.executed.is_empty()) else {
            return Ok(None);
        };
        let proxies = client.proxies(self.tables[0].info().id)?;
        let told: usize = proxies.iter().map(Proxy::partitions).sum();
        Ok(Some(told as f64 / HASH_PARTITIONS as f64))
    }

    /// Lets time pass from one moment to another.
    fn pass(&self, from_ns: u64, to_ns: u64, cancellation: &Cancellation) -> Result<(), DriverError> {
        let mut now_ns = from_ns;
        while now_ns < to_ns {
            cancellation.check()?;
            now_ns = (now_ns + LOOK_NS).min(to_ns);
            let _ = self.simulation.run_processes(MonotonicNs(now_ns));
        }
        Ok(())
    }
}

/// A simulation whose verbs cost what the profile says.
fn simulation(profile: &Profile) -> Simulation {
    let engine = profile.engine_prices();
    Simulation::priced(profile.prices(), move |request, reply| core_ps(&engine, request, reply))
}

/// The table. Values that no leaf holds are in blocks.
fn definition(plan: &SimulatedPlan) -> TableDefinition {
    let in_leaves =
        u16::try_from(plan.value_bytes).ok().filter(|bytes| usize::from(*bytes) <= VALUE_BYTES_MAX);
    let values = in_leaves.map_or(ValueKind::blocks(plan.value_bytes as u32), ValueKind::Fixed);
    TableDefinition { values, ..TableDefinition::new(TABLE, KeyKind::U64, SHORT_BYTES) }
}

/// Memory for its leaves, those of keys that a run inserts among them; where values are blocks, for blocks.
fn leaf_bytes(plan: &SimulatedPlan, space: &KeySpace) -> u64 {
    let pairs = space.loaded().len() + space.inserts().len();
    if plan.value_bytes > VALUE_BYTES_MAX {
        return (pairs * (plan.value_bytes + BLOCK_SPARE_BYTES) + BLOCKS_SPARE_BYTES) as u64;
    }
    let geometry = BlockGeometry::new(plan.value_bytes).expect("a size that the format knows");
    ((pairs / LEAF_PAIRS + LEAVES_SPARE) * geometry.bytes()) as u64
}

/// Gives `push` all keys with their first values.
fn fill(
    keys: &[Identity],
    value_bytes: usize,
    cancellation: &Cancellation,
    mut push: impl FnMut(u64, &[u8]) -> Result<(), LoadError>,
) -> Result<(), DriverError> {
    let mut value = vec![0; value_bytes];
    for (index, &key) in keys.iter().enumerate() {
        checked_value::write(key, 0, &mut value);
        push(PLAIN.key(key), &value)?;
        if index % LOOK_PAIRS == 0 {
            cancellation.check()?;
        }
    }
    Ok(())
}
