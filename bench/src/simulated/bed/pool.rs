//! A testbed of a pool: memory nodes, whose few cores answer calls alone, and compute nodes with a connection
//! to each of them and one cache.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farsight::{Access, ReadsByOthers};
use farsight_base::clock::MonotonicNs;
use farsight_base::sync::AtomicUsize;
use farsight_client::{CatalogueError, Client, ClientOptions, NewTable, PoolClient};
use farsight_fabric_sim::{ReliableConnection, SimHost, Simulation};
use farsight_index::Answers;
use farsight_layout::FORMAT_VERSION;
use farsight_node::{Background, BackgroundState, NodeOptions, NodeState, Worker};
use farsight_oracles::Embedding as _;
use farsight_protocol::ProxyPace;

use super::{Bed, definition, fill, keepers, leaf_bytes, proxies};
use crate::driver::store::PLAIN;
use crate::driver::{Cancellation, DriverError};
use crate::simulated::SimulatedPlan;
use crate::workload::KeySpace;

/// Calls of one step.
const STEP_CALLS: usize = 8;
/// Sub-models of one step of a node that trains parts of XStore-D tables, and its pause between two looks.
const BACKGROUND_BUDGET: usize = 64;
const BACKGROUND_PAUSE: Duration = Duration::from_micros(200);
/// Keys of the sample by which XStore-D's ranges are cut.
const SAMPLE_KEYS: usize = 1 << 12;
/// Virtual time that compute nodes may take to join.
const JOIN_MAX: Duration = Duration::from_secs(60);
/// The most virtual time that training may take, and between two looks at it.
const TRAINING_MAX: Duration = Duration::from_secs(60);
const TRAINING_LOOK: Duration = Duration::from_millis(1);
/// One key in so many is read to fill a cache: each group of leaves has more.
const WARM_STEP: usize = 512;
const WARM_BATCH: usize = 64;

/// A memory node; it dies when dropped.
struct MemoryNode {
    host: Arc<SimHost<ReliableConnection>>,
}

impl MemoryNode {
    fn start(simulation: &Simulation, address: &str, options: &NodeOptions) -> Self {
        let host = Arc::new(simulation.listen::<ReliableConnection>(address, FORMAT_VERSION));
        let state = NodeState::new(vec![host.clone()], options, simulation.now()).expect("a memory node");
        let mut worker = Worker::open(&state, 0, "worker 0").expect("a port");
        host.run_port(0, move |now: MonotonicNs| (worker.step(now, STEP_CALLS) == STEP_CALLS).then_some(now));
        let mut background = Background::by_processor_time(Arc::clone(&state), || Duration::ZERO);
        host.run(move |now| match background.step(now, BACKGROUND_BUDGET) {
            BackgroundState::Working => Some(MonotonicNs(now.0 + 1)),
            BackgroundState::Idle { again_at } => {
                let look_at = now.plus(BACKGROUND_PAUSE);
                Some(again_at.map_or(look_at, |at| at.min(look_at).max(MonotonicNs(now.0 + 1))))
            }
        });
        Self { host }
    }
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        self.host.kill();
    }
}

impl Bed {
    /// Memory nodes with a loaded table, and compute nodes that know where its leaves are.
    pub(in crate::simulated) fn of_pool(
        plan: &SimulatedPlan,
        space: &KeySpace,
        cancellation: &Cancellation,
    ) -> Result<Self, DriverError> {
        let cores = plan.profile.value("machine.memory_node_cores");
        let simulation = super::simulation(&plan.profile.with("machine.server_cores", cores));
        // The coordinator has a group more, and no node is exactly as full as another.
        let bytes = 2 * leaf_bytes(plan, space) / plan.memory_nodes as u64;
        let proxy_pace = plan.proxying.map_or(ProxyPace::default(), |proxying| proxying.pace);
        let options = NodeOptions { table_memory_bytes: bytes, proxy_pace, ..NodeOptions::default() };
        let addresses: Vec<String> =
            (0..plan.memory_nodes).map(|node| format!("sim://memory-{node}")).collect();
        let nodes: Vec<MemoryNode> =
            addresses.iter().map(|address| MemoryNode::start(&simulation, address, &options)).collect();
        let step = space.loaded().len().div_ceil(SAMPLE_KEYS).max(1);
        let every = |step| space.loaded().iter().step_by(step).map(|key| PLAIN.key(*key)).collect::<Vec<_>>();
        let sample = every(step);
        let clients = (0..plan.machines)
            .map(|machine| join(&simulation, machine, &addresses))
            .collect::<Result<Vec<_>, CatalogueError>>()?;
        let new = NewTable { definition: definition(plan), engine: Some(plan.engine), sample };
        let tables = clients
            .iter()
            .map(|client| client.create_table(new.clone()))
            .collect::<Result<Vec<_>, CatalogueError>>()?;
        let mut load = tables[0].bulk_load()?;
        fill(space.loaded(), plan.value_bytes, cancellation, |key, value| load.push(key, value))?;
        load.finish()?;
        await_training(&simulation, &clients[0])?;
        let some = every(WARM_STEP);
        for table in &tables {
            cancellation.check()?;
            table.set_proxy_pace(proxy_pace)?;
            table
                .set_reads_by_others(plan.proxying.map_or(ReadsByOthers::None, |proxying| proxying.reads))?;
            table.set_cache_policy(plan.cache_policy)?;
            if let Some(bytes) = plan.cache_bytes
                && !table.set_cache_bytes(bytes)?
            {
                return Err(DriverError::NoBudget { engine: plan.engine });
            }
            let mut session = table.session(Access::OneSided)?;
            session.prefill()?;
            let mut answers = Answers::default();
            for keys in some.chunks(WARM_BATCH) {
                session.multi_get(keys, &mut answers)?;
            }
        }
        let left = Arc::new(AtomicUsize::new(1));
        let mut executed = Vec::new();
        if let Some(proxying) = plan.proxying {
            let start = |machine| proxies::start(&simulation, (plan, proxying), machine, &addresses, &left);
            executed = (0..proxying.machines).map(start).collect();
            simulation.reach_by_address();
            simulation.sleep(proxying.begun_within());
        }
        if let Some(bytes) = plan.value_cache_bytes {
            for of_machine in tables.iter().enumerate() {
                keepers::start(&simulation, of_machine, bytes, &left)?;
            }
        }
        let client = Some(clients[0].clone());
        Ok(Self { tables, client, executed, _peers: Box::new(nodes), simulation, left })
    }
}

/// Waits until all parts of XStore tables have a model that knows every split.
pub(super) fn await_training(simulation: &Simulation, client: &Client) -> Result<(), DriverError> {
    let deadline = simulation.now().plus(TRAINING_MAX);
    loop {
        let pending = client.pending_training()?;
        let nodes = client.node_stats()?;
        let parts = nodes.iter().flat_map(|node| &node.tables).filter_map(|table| table.part);
        let untrained = parts.filter(|part| part.model.generation == 0).count();
        if pending == 0 && untrained == 0 {
            return Ok(());
        }
        if simulation.now() > deadline {
            let evidence = format!("{untrained} parts have no model, {pending} sub-models wait");
            return Err(DriverError::Restless { seconds: TRAINING_MAX.as_secs(), evidence });
        }
        simulation.sleep(TRAINING_LOOK);
    }
}

/// A client of the pool.
pub(super) fn connect(simulation: &Simulation, addresses: &[String]) -> Result<Client, CatalogueError> {
    let connect = |address: &String| simulation.connect::<ReliableConnection>(address, FORMAT_VERSION);
    let options = ClientOptions { reconnect_timeout: Duration::ZERO };
    let connections = addresses.iter().map(connect).collect::<Result<_, _>>()?;
    PoolClient::of_pool(connections, options).map(Client::from)
}

/// Compute node `machine`'s client. A client that connects in a process is of that process's machine, and so
/// all of a compute node's connections share its cards.
fn join(simulation: &Simulation, machine: usize, addresses: &[String]) -> Result<Client, CatalogueError> {
    let joined = Arc::new(Mutex::new(None));
    let (own, ours, addresses) = (simulation.clone(), Arc::clone(&joined), addresses.to_vec());
    simulation.process("joins", machine, move || {
        *ours.lock().unwrap_or_else(PoisonError::into_inner) = Some(connect(&own, &addresses));
    });
    let all_ended = simulation.run_processes(simulation.now().plus(JOIN_MAX));
    assert!(all_ended, "a compute node joins for longer than {JOIN_MAX:?}");
    let mut joined = joined.lock().unwrap_or_else(PoisonError::into_inner);
    joined.take().expect("the process has ended")
}
