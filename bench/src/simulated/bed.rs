//! A simulated testbed, loaded and ready: one server, client machines with a connection and a cache each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farsight::Access;
use farsight_base::clock::MonotonicNs;
use farsight_client::{Client, Table};
use farsight_fabric_sim::{ReliableConnection, SimConnection, Simulation, Utilization};
use farsight_layout::Geometry;
use farsight_protocol::{KeyKind, TableDefinition};
use farsight_server::ServerOptions;
use farsight_sim::Node;

use super::calls::core_ps;
use super::session::PricedSession;
use super::thread::{Thread, ThreadEnd};
use super::{SEED, SimulatedPlan, WARM_UP_PART};
use crate::driver::executor::Executor;
use crate::driver::{Cancellation, DriverError, checked_value};
use crate::workload::{KeySpace, OperationStream};

const ADDRESS: &str = "sim://server";
const TABLE: &str = "ycsb";
/// Pairs of a leaf after a bulk load, at least: what a table's memory is reckoned by.
const LEAF_PAIRS: usize = 6;
/// Leaves that a table has room for besides.
const LEAVES_SPARE: usize = 1 << 12;
/// Pairs between two looks at the cancellation.
const LOOK_PAIRS: usize = 1 << 16;
/// The most virtual time that training may take, and between two looks at it.
const TRAINING_MAX: Duration = Duration::from_secs(60);
const TRAINING_LOOK: Duration = Duration::from_millis(1);
/// Virtual time between two looks at the cancellation.
const LOOK_NS: u64 = 200_000;
/// Between the first batches of two threads, which would otherwise all ring at one moment.
const STAGGER_NS: u64 = 37;
/// Virtual time that the last batches may take.
const LAST_BATCHES: Duration = Duration::from_secs(60);
/// Operations that a thread's ring holds.
const SLOTS: usize = 1 << 12;

type Tables = Vec<Table<SimConnection<ReliableConnection>>>;

/// The testbed. Dropped in this order: the clients before the server.
pub(super) struct Bed {
    /// One a machine.
    tables: Tables,
    _clients: Vec<Client<SimConnection<ReliableConnection>>>,
    _node: Node<ReliableConnection>,
    simulation: Simulation,
}

impl Bed {
    pub(super) fn new(
        plan: &SimulatedPlan,
        space: &KeySpace,
        cancellation: &Cancellation,
    ) -> Result<Self, DriverError> {
        let engine = plan.profile.engine_prices();
        let simulation =
            Simulation::priced(plan.profile.prices(), move |request, reply| core_ps(&engine, request, reply));
        let geometry = Geometry::new(plan.value_bytes).expect("a size that the format knows");
        let pairs = space.loaded().len() + space.inserts().len();
        let leaves = pairs / LEAF_PAIRS + LEAVES_SPARE;
        // The cores are the fabric's; steps that share one thread need no more than one worker.
        let options = ServerOptions {
            workers: 1,
            table_memory_bytes: (leaves * geometry.leaf_bytes()) as u64,
            ..ServerOptions::default()
        };
        let node = Node::start(&simulation, ADDRESS, &options, SEED);
        let clients = (0..plan.machines).map(|_| node.connect()).collect::<Result<Vec<_>, _>>()?;
        let value_bytes = u16::try_from(plan.value_bytes).expect("a size that the format knows");
        let definition = TableDefinition { name: TABLE.to_owned(), key_kind: KeyKind::U64, value_bytes };
        load(&clients[0].create_table(definition)?, space.loaded(), cancellation)?;
        await_training(&simulation, &clients[0])?;
        let tables: Tables =
            clients.iter().map(|client| client.open_table(TABLE)).collect::<Result<_, _>>()?;
        if plan.access == Access::OneSided {
            for table in &tables {
                cancellation.check()?;
                table.session(plan.access)?.prefill()?;
            }
        }
        Ok(Self { tables, _clients: clients, _node: node, simulation })
    }

    /// Runs every thread; returns what each did and how busy the testbed was within the window.
    pub(super) fn run(
        &self,
        plan: &SimulatedPlan,
        space: &Arc<KeySpace>,
        cancellation: &Cancellation,
    ) -> Result<(Vec<ThreadEnd>, Vec<Utilization>), DriverError> {
        let window_ns = (plan.seconds * 1e9) as u64;
        let begin_ns = self.simulation.now().0;
        let warm_ns = begin_ns + (plan.seconds * WARM_UP_PART * 1e9) as u64;
        let end_ns = warm_ns + window_ns;
        let ends: Arc<Mutex<Vec<Result<ThreadEnd, DriverError>>>> = Arc::default();
        // Its threads take turns in the machines, and a machine.s in its cards.
        let threads = plan.machines * plan.threads;
        for number in 0..threads {
            let table = &self.tables[number % plan.machines];
            let session = PricedSession::open(&self.simulation, table, plan)?;
            let executor = Executor::new(session, TABLE, plan.value_bytes, Arc::clone(space));
            let place = (number, threads);
            let stream = OperationStream::new(plan.workload, plan.distribution, space, place, SLOTS, SEED)?;
            let thread = Thread {
                simulation: self.simulation.clone(),
                executor,
                stream,
                batch: plan.batch,
                begins_after: Duration::from_nanos(number as u64 * STAGGER_NS),
                window_ns: warm_ns..end_ns,
            };
            let (mut thread, ends) = (Box::new(thread), Arc::clone(&ends));
            self.simulation.process("thread", number % plan.machines, move || {
                let end = thread.run();
                drop(thread);
                ends.lock().unwrap_or_else(PoisonError::into_inner).push(end);
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

fn load(
    table: &Table<SimConnection<ReliableConnection>>,
    keys: &[u64],
    cancellation: &Cancellation,
) -> Result<(), DriverError> {
    let mut load = table.bulk_load()?;
    let mut value = vec![0; table.value_bytes()];
    for (index, &key) in keys.iter().enumerate() {
        checked_value::write(key, 0, &mut value);
        load.push(key, &value)?;
        if index % LOOK_PAIRS == 0 {
            cancellation.check()?;
        }
    }
    load.finish()?;
    Ok(())
}

fn await_training(
    simulation: &Simulation,
    client: &Client<SimConnection<ReliableConnection>>,
) -> Result<(), DriverError> {
    let deadline = simulation.now().plus(TRAINING_MAX);
    loop {
        let pending = client.pending_training()?;
        let generation = client.stats()?.tables.first().map_or(0, |table| table.model.generation);
        if pending == 0 && generation > 0 {
            return Ok(());
        }
        if simulation.now() > deadline {
            let evidence = format!("its model has generation {generation}, {pending} sub-models wait");
            return Err(DriverError::Restless { seconds: TRAINING_MAX.as_secs(), evidence });
        }
        simulation.sleep(TRAINING_LOOK);
    }
}
