//! A block that a compute node left at one memory node while it lives on at another. Who looks at the block
//! ends the compute node there, too, before the block is given back: one WRITE more could link it.

use std::time::Duration;

use farsight_base::RemoteAddress;
use farsight_client::{ClientOptions, GroupSizes, PoolClient};
use farsight_fabric::lane::{Lane, PoolLane};
use farsight_fabric::{Connection as _, FabricError, QueuePair as _};
use farsight_fabric_sim::{ReliableConnection, SimConnection, SimQueue, Simulation, Timing};
use farsight_index_rolex::LeafPlace;
use farsight_layout::{FORMAT_VERSION, LOW_FENCE_WORD};
use farsight_node::NodeOptions;
use farsight_protocol::{
    Blocks, ComputeNode, ControlRequest, KeyKind, LostNodes, Reply, Request, Space, TableDefinition,
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
            slot.post_write(0, 0, at, &[1 << 40]);
            slot.completed().await;
            slot.take_word(0, 0).map(drop)
        })?
    }
}

#[test]
fn a_block_comes_back_once_its_compute_node_writes_nowhere() {
    let simulation = Simulation::new(SEED, Timing::default(), Vec::new());
    let options = NodeOptions { table_memory_bytes: 1 << 20, ..NodeOptions::default() };
    let nodes = ADDRESSES.map(|address| {
        let node = Node::<ReliableConnection>::start(&simulation, address, &options, SEED);
        node.hear_departed(SEED);
        node
    });
    let connect = |address: &str| simulation.connect(address, FORMAT_VERSION).expect("a connection");
    let client = PoolClient::of_pool(ADDRESSES.map(connect).into(), ClientOptions::default());
    let client: PoolClient<SimConnection<ReliableConnection>> = client.expect("a client");
    client.create_table(TableDefinition::new(TABLE, KeyKind::U64, 8)).expect("a table");
    let links = client.links(TABLE).expect("the table");
    let word_of = |node: usize, block: u32| {
        links.cache.table().address(LeafPlace::new(node, block).expect("a leaf"), LOW_FENCE_WORD)
    };

    let [mut home, mut away] = ADDRESSES.map(|address| Side::new(&simulation, address));
    let compute_node: ComputeNode = home.ask(&ControlRequest::Register { lost: LostNodes::default() });
    let lost = LostNodes::default();
    let announced = ControlRequest::Announce { coordinator: links.coordinator.0, compute_node, lost };
    away.ask::<()>(&announced);
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

#[cfg(injected)]
#[test]
fn a_fence_at_the_blocks_own_node_alone_is_found() {
    let bug = &farsight_index_rolex::injected::ORPHAN_FENCED_AT_HOME;
    farsight_base::injection::assert_found(bug, a_block_comes_back_once_its_compute_node_writes_nowhere);
}
