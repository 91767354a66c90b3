//! A simulated testbed, loaded and ready: what has the table, and client machines with a cache each.

mod pool;
mod proxies;
mod server;

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farsight::{LoadError, VALUE_BYTES_MAX, ValueKind};
use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_client::Table;
use farsight_fabric_sim::{Profile, Simulation, Utilization};
use farsight_layout::pool::BlockGeometry;
use farsight_oracles::{Embedding as _, Identity};
use farsight_protocol::{KeyKind, TableDefinition};

use super::calls::core_ps;
use super::session::PricedSession;
use super::thread::{Thread, ThreadEnd};
use super::{SEED, SimulatedPlan, WARM_UP_PART};
use crate::driver::executor::Executor;
use crate::driver::store::PLAIN;
use crate::driver::{Cancellation, DriverError, Values, checked_value};
use crate::workload::{KeySpace, OperationStream};

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
/// Operations that a thread's ring holds.
const SLOTS: usize = 1 << 12;

/// The testbed. Dropped in this order: the clients, which their tables keep, before what they talk to.
pub(super) struct Bed {
    /// One a machine.
    tables: Vec<Table>,
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

    /// Runs every thread; returns what each did and how busy the testbed was within the window.
    pub(super) fn run(
        &self,
        plan: &SimulatedPlan,
        space: &Arc<KeySpace>,
        cancellation: &Cancellation,
    ) -> Result<(Vec<ThreadEnd>, Vec<Utilization>), DriverError> {
        let ends: Arc<Mutex<Vec<Result<ThreadEnd, DriverError>>>> = Arc::default();
        // Its threads take turns in the machines, and a machine's in its cards.
        let threads = plan.machines * plan.threads;
        let open = |number: usize| {
            let table = &self.tables[number % plan.machines];
            let session = PricedSession::open(&self.simulation, table, plan)?;
            let executor = Executor::new(session, TABLE, Values::fixed(plan.value_bytes), Arc::clone(space));
            let place = (number, threads);
            let stream = OperationStream::new(plan.workload, plan.distribution, space, place, SLOTS, SEED)?;
            Ok((executor, stream))
        };
        // Opening takes time, too: all of them are open before the warm-up begins.
        let opened = (0..threads).map(open).collect::<Result<Vec<_>, DriverError>>()?;
        let begin_ns = self.simulation.now().0;
        let warm_ns = begin_ns + (plan.seconds * WARM_UP_PART * 1e9) as u64;
        let end_ns = warm_ns + (plan.seconds * 1e9) as u64;
        // Relaxed, here and below: all of it happens on one thread.
        self.left.store(threads, Ordering::Relaxed);
        for (number, (executor, stream)) in opened.into_iter().enumerate() {
            let thread = Thread {
                simulation: self.simulation.clone(),
                executor,
                stream,
                batch: plan.batch,
                begins_after: Duration::from_nanos(number as u64 * STAGGER_NS),
                window_ns: warm_ns..end_ns,
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
        let before = self.simulation.usage().expect("verbs have prices");
        self.pass(warm_ns, end_ns, cancellation)?;
        let usage = self.simulation.usage().expect("verbs have prices").since(&before);
        let all_ended = self.simulation.run_processes(MonotonicNs(end_ns).plus(LAST_BATCHES));
        assert!(all_ended, "a thread waits for longer than {LAST_BATCHES:?}");
        let ends = Arc::into_inner(ends).expect("all threads ended");
        let ends: Result<Vec<ThreadEnd>, _> =
            ends.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().collect();
        Ok((ends?, usage))
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
