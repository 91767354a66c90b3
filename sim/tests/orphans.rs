//! Memory that a compute node left at one memory node while it lives on at another. It is ended there, too,
//! before the memory is given back: one WRITE more could link a block of ROLEX, or spoil an object of FlexKV
//! at another replica.

use std::time::Duration;

use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress};
use farsight_client::{Access, ClientOptions, EngineKind, GroupSizes, NewTable, PoolClient};
use farsight_fabric::lane::{Lane, PoolLane};
use farsight_fabric::{Connection as _, FabricError, QueuePair as _, ReadMode};
use farsight_fabric_sim::{ReliableConnection, SimConnection, SimQueue, Simulation, Timing};
use farsight_index_rolex::LeafPlace;
use farsight_layout::{FORMAT_VERSION, LOW_FENCE_WORD};
use farsight_node::NodeOptions;
use farsight_protocol::{
    Blocks, ComputeNode, ControlRequest, KeyKind, LostNodes, ObjectGrant, Reply, Request, Space,
    TableDefinition, WriteOperation, WriteOutcome,
};
use farsight_sim::Node;
use serde::de::DeserializeOwned;

/// The memory node where the compute node leaves a block is the first; at the other it lives on.
const ADDRESSES: [&str; 2] = ["sim://home", "sim://away"];
const TABLE: &str = "t";
const SEED: u64 = 3;
/// Looks of a trainer, or at a node, within which each thing here has happened.
const LOOKS_MAX: usize = 1_000;
const PAUSE: Duration = Duration::from_millis(1);
/// Pairs that are written between two looks.
const PAIRS: usize = 256;
/// What a compute node WRITEs to memory that is in its hand.
const WRITTEN: u64 = 1 << 40;

type Queue = SimQueue<ReliableConnection>;

/// One connection of a compute node.
struct Side {
    queue: Queue,
    _connection: SimConnection<ReliableConnection>,
}

impl Side {
    fn new(simulation: &Simulation, address: &str) -> Self {
        let connection = simulation.connect(address, FORMAT_VERSION).expect("a connection");
        Self { queue: connection.open_queue().expect("a queue"), _connection: connection }
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &ControlRequest) -> T {
        let (mut frame, mut reply) = (Vec::new(), Vec::new());
        Request::control(&mut frame, request);
        let lane = Lane::new(&mut self.queue);
        lane.block_on(async |slot| slot.call(&frame, &mut reply).await).expect("a lane").expect("a reply");
        Reply::decode(&reply).expect("well-formed").expect("no refusal").control().expect("the answer")
    }

    fn write(&mut self, at: RemoteAddress) -> Result<(), FabricError> {
        self.queue.attach(at.region)?;
        PoolLane::new(std::slice::from_mut(&mut self.queue)).block_on(async |slot| {
            slot.post_write(0, 0, at, &[WRITTEN]);
            slot.completed().await;
            slot.take_word(0, 0).map(drop)
        })?
    }

    /// The first word of the line there.
    fn read(&mut self, at: RemoteAddress) -> u64 {
        self.queue.attach(at.region).expect("a region");
        let mut lines = [Line::ZERO];
        let lane = PoolLane::new(std::slice::from_mut(&mut self.queue));
        lane.block_on(async |slot| slot.read(0, at, &mut lines, ReadMode::Plain).await)
            .expect("a lane")
            .expect("a READ");
        lines[0].0[0]
    }
}

/// Two memory nodes and a client of them.
struct Pool {
    simulation: Simulation,
    nodes: [Node<ReliableConnection>; 2],
    client: PoolClient<SimConnection<ReliableConnection>>,
}

impl Pool {
    fn start(table_memory_bytes: u64) -> Self {
        let simulation = Simulation::new(SEED, Timing::default(), Vec::new());
        let options = NodeOptions { table_memory_bytes, ..NodeOptions::default() };
        let nodes = ADDRESSES.map(|address| {
            let node = Node::<ReliableConnection>::start(&simulation, address, &options, SEED);
            node.hear_departed(SEED);
            node
        });
        let connect = |address: &str| simulation.connect(address, FORMAT_VERSION).expect("a connection");
        let client = PoolClient::of_pool(ADDRESSES.map(connect).into(), ClientOptions::default());
        let client = client.expect("a client");
        Self { simulation, nodes, client }
    }

    /// Connections of another compute node.
    fn compute_node(&self, coordinator: u64) -> [Side; 2] {
        let [mut home, mut away] = ADDRESSES.map(|address| Side::new(&self.simulation, address));
        let lost = LostNodes::default();
        let compute_node: ComputeNode = home.ask(&ControlRequest::Register { lost });
        away.ask::<()>(&ControlRequest::Announce { coordinator, compute_node, lost });
        [home, away]
    }
}

#[test]
fn a_block_comes_back_once_its_compute_node_writes_nowhere() {
    let pool = Pool::start(1 << 20);
    let Pool { simulation, nodes, client } = &pool;
    client.create_table(TableDefinition::new(TABLE, KeyKind::U64, 8)).expect("a table");
    let links = client.links(TABLE).expect("the table");
    let word_of = |node: usize, block: u32| {
        links.cache.table().address(LeafPlace::new(node, block).expect("a leaf"), LOW_FENCE_WORD)
    };

    let [mut home, mut away] = pool.compute_node(links.coordinator.0);
    let table = links.infos[0].id;
    let allocate = ControlRequest::Allocate { table, space: Space::Leaves, count: 1 };
    let [left, other] = [&mut home, &mut away].map(|side| side.ask::<Blocks>(&allocate));
    home.write(word_of(0, left.first)).expect("a WRITE to a leaf that nothing leads to");
    drop(home);
    let is_orphan = |_: &usize| {
        simulation.sleep(PAUSE);
        nodes[0].stats().tables[0].leaves.orphaned == 1
    };
    (0..LOOKS_MAX).find(is_orphan).expect("the compute node has ended at one of its nodes");
    away.write(word_of(1, other.first)).expect("and lives on at the other");

    let mut trainer = client.trainer(TABLE, GroupSizes::USUAL).expect("a trainer");
    let is_freed = |_: &usize| {
        simulation.sleep(PAUSE);
        trainer.reclaim().expect("a look").freed > 0
    };
    (0..LOOKS_MAX).find(is_freed).expect("the block comes back");
    let late = away.write(word_of(1, other.first)).expect_err("a WRITE behind the look at its blocks");
    assert!(matches!(late, FabricError::Dismissed { .. }), "{late}");
}

#[test]
fn an_objects_memory_comes_back_once_its_compute_node_writes_nowhere() {
    let pool = Pool::start(64 << 20);
    let Pool { simulation, client, .. } = &pool;
    let definition = TableDefinition { replicas: Some(2), ..TableDefinition::new(TABLE, KeyKind::U64, 8) };
    let table = NewTable { definition, engine: Some(EngineKind::FLEXKV), sample: Vec::new() };
    let table = client.create_table(table).expect("a table");
    let (info, coordinator) = (table.info(), table.info().place.epochs[0]);
    let mut session = table.session(Access::OneSided).expect("a session");

    // Shard 0 has its tail at the first node, and its head at the other.
    let [mut tail, mut head] = pool.compute_node(coordinator);
    let (published, freed) = (Vec::new(), Vec::new());
    let exchange =
        ControlRequest::ExchangeObjects { table: info.id, shard: 0, lines: 1, count: 1, published, freed };
    let in_hand = head.ask::<ObjectGrant>(&exchange).given[0];
    let objects = info.region_of(Space::Blocks).expect("objects");
    // Each node has the section of its own shard first.
    let offset_bytes = u64::from(in_hand.offset_lines) * LINE_BYTES as u64;
    let at = RemoteAddress { region: RegionId(objects.id), offset_bytes };
    tail.write(at).expect("a WRITE to memory in its hand");
    drop(head);
    simulation.sleep(PAUSE);

    let [mut reader, _head] = pool.compute_node(coordinator);
    let mut keys = 0..;
    let is_given_again = |_: &usize| {
        let (mut outcomes, value) = (Vec::new(), 7_u64.to_le_bytes());
        let entries = keys.by_ref().take(PAIRS).map(|key: u64| (key, &value[..]));
        session.write(WriteOperation::Put, entries, &mut outcomes).expect("pairs");
        assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Inserted(_))), "{outcomes:?}");
        reader.read(at) != WRITTEN
    };
    (0..LOOKS_MAX).find(is_given_again).expect("the memory has another object");
    let late = tail.write(at).expect_err("a WRITE to memory that another compute node was given");
    assert!(matches!(late, FabricError::Dismissed { .. }), "{late}");
}

#[cfg(injected)]
#[test]
fn memory_that_is_given_again_unfenced_is_found() {
    let bug = &farsight_node::injected::HAND_FREED_UNFENCED;
    farsight_base::injection::assert_found(
        bug,
        an_objects_memory_comes_back_once_its_compute_node_writes_nowhere,
    );
}

#[cfg(injected)]
#[test]
fn a_fence_at_the_blocks_own_node_alone_is_found() {
    let bug = &farsight_index_rolex::injected::ORPHAN_FENCED_AT_HOME;
    farsight_base::injection::assert_found(bug, a_block_comes_back_once_its_compute_node_writes_nowhere);
}
