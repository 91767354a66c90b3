//! Memory nodes over shared memory, as their clients meet them.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::{Epoch, RegionId, RemoteAddress};
use farsight_fabric::lane::{Lane, PoolLane};
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_fabric_shm::{ConnectOptions, ListenOptions, ShmConnection, ShmHost, ShmQueue};
use farsight_index::EngineKind;
use farsight_layout::pool::{BlockGeometry, LockWord};
use farsight_layout::{FORMAT_VERSION, Geometry, OWNER_WORD};
use farsight_node::{Node, NodeHandle, NodeOptions, StartError};
use farsight_protocol::{
    Adopted, Begun, Blocks, Claim, Closed, ComputeNode, ControlRequest, ErrorCode, Fenced, KeyKind,
    LEASE_MAX, LeftOut, LockSeen, LostNodes, NodeHello, NodeStats, PoolAddresses, PoolMap, PoolPlace, Reply,
    Request, ServerError, Space, TableDefinition, TableId, TableInfo, TableLayout, TakeIn, TakenBlocks,
    TakenPiece,
};
use serde::de::DeserializeOwned;

const FORMAT: u32 = FORMAT_VERSION;
/// What no wait of a passing test comes near.
const PATIENCE: Duration = Duration::from_secs(20);

fn start(directory: &Path, name: &str) -> NodeHandle {
    let host = ShmHost::listen(directory.join(name), ListenOptions::new(FORMAT)).expect("a socket");
    let options = NodeOptions { table_memory_bytes: 1 << 20, ..NodeOptions::default() };
    Node::start(vec![Arc::new(host)], &options).expect("a memory node")
}

struct Client {
    connection: ShmConnection,
    queue: ShmQueue,
}

impl Client {
    fn new(directory: &Path, name: &str) -> Self {
        let options = ConnectOptions::new(FORMAT);
        let connection = ShmConnection::connect(directory.join(name), options).expect("a connection");
        Self { queue: connection.open_queue().expect("a queue"), connection }
    }

    fn frame<T: DeserializeOwned>(&mut self, frame: &[u8]) -> Result<T, ServerError> {
        let mut reply = Vec::new();
        let lane = Lane::new(&mut self.queue);
        lane.block_on(async |slot| slot.call(frame, &mut reply).await).expect("a lane").expect("a reply");
        Reply::decode(&reply).expect("well-formed").map(|reply| reply.control().expect("the answer"))
    }

    fn ask<T: DeserializeOwned>(&mut self, request: &ControlRequest) -> Result<T, ServerError> {
        let mut frame = Vec::new();
        Request::control(&mut frame, request);
        self.frame(&frame)
    }

    fn epoch(&mut self) -> u64 {
        self.ask::<NodeHello>(&ControlRequest::Hello).expect("an answer").epoch
    }

    fn stats(&mut self) -> NodeStats {
        let stats: NodeStats = self.ask(&ControlRequest::Stats).expect("statistics");
        let tables = self.ask(&ControlRequest::TableStats { from: TableId(0) });
        NodeStats { tables: tables.expect("statistics of tables"), ..stats }
    }

    /// Writes a word and reads what a fetch-and-add finds there.
    fn write(&mut self, region: RegionId, offset_bytes: u64, word: u64) -> Result<u64, FabricError> {
        self.queue.attach(region)?;
        let at = RemoteAddress { region, offset_bytes };
        PoolLane::new(std::slice::from_mut(&mut self.queue)).block_on(async |slot| {
            slot.post_write(0, 0, at, &[word]);
            slot.post_fetch_add(0, 1, at, 0);
            slot.completed().await;
            slot.take_word(0, 1)
        })?
    }

    fn wait_until(&mut self, what: &str, is_so: impl Fn(&NodeStats) -> bool) {
        let started = Instant::now();
        while !is_so(&self.stats()) {
            assert!(started.elapsed() < PATIENCE, "{what}: {:?}", self.stats());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn layout(name: &str, value_bytes: u16) -> TableLayout {
    let definition = TableDefinition::new(name, KeyKind::U64, value_bytes);
    let block_lines = BlockGeometry::new(value_bytes.into()).expect("a geometry").lines() as u16;
    TableLayout {
        definition,
        engine: EngineKind::ROLEX.table(&[], 1),
        block_lines,
        format_version: FORMAT_VERSION,
    }
}

fn create(
    client: &mut Client,
    epochs: &[u64],
    index: u8,
    id: Option<TableId>,
) -> Result<TableInfo, ServerError> {
    let place = PoolPlace { epochs: epochs.to_vec(), index };
    client.ask(&ControlRequest::CreateTable { layout: layout("t", 8), place, id })
}

fn code<T: std::fmt::Debug>(answer: Result<T, ServerError>) -> ErrorCode {
    answer.expect_err("a refusal").code
}

#[test]
fn a_table_is_made_on_every_node_of_one_pool() {
    let directory = tempfile::tempdir().unwrap();
    let (coordinator, other) = (start(directory.path(), "coordinator"), start(directory.path(), "other"));
    let mut at_coordinator = Client::new(directory.path(), "coordinator");
    let mut at_other = Client::new(directory.path(), "other");
    let epochs = [at_coordinator.epoch(), at_other.epoch()];
    assert_eq!(epochs, [coordinator.epoch().0, other.epoch().0]);

    // The coordinator numbers, the other is told.
    assert_eq!(code(create(&mut at_coordinator, &epochs, 0, Some(TableId(3)))), ErrorCode::BadRequest);
    let info = create(&mut at_coordinator, &epochs, 0, None).unwrap();
    assert_eq!(code(create(&mut at_other, &epochs, 1, None)), ErrorCode::BadRequest);
    let part = create(&mut at_other, &epochs, 1, Some(info.id)).unwrap();
    assert_eq!(part.id, info.id);
    assert!(info.region_of(Space::Meta).is_some() && part.region_of(Space::Meta).is_none());
    assert!(u64::from(info.capacity_leaves()) >= (1 << 20) / info.block_bytes());
    // Again: the same table.
    assert_eq!(create(&mut at_coordinator, &epochs, 0, None), Ok(info.clone()));
    assert_eq!(at_coordinator.ask::<TableInfo>(&ControlRequest::OpenTable("t".into())), Ok(info));
    assert_eq!(
        code(at_coordinator.ask::<TableInfo>(&ControlRequest::OpenTable("u".into()))),
        ErrorCode::UnknownTable
    );

    // Another shape of leaves than this release's.
    let mut narrow = layout("u", 8);
    narrow.block_lines -= 1;
    let place = PoolPlace { epochs: epochs.to_vec(), index: 0 };
    let narrow = ControlRequest::CreateTable { layout: narrow, place, id: None };
    assert_eq!(code(at_coordinator.ask::<TableInfo>(&narrow)), ErrorCode::BadRequest);

    // Another order, another list, another definition.
    let turned = [epochs[1], epochs[0]];
    assert_eq!(code(create(&mut at_coordinator, &turned, 1, Some(TableId(0)))), ErrorCode::OtherPool);
    assert_eq!(code(create(&mut at_coordinator, &epochs[..1], 0, None)), ErrorCode::OtherPool);
    assert_eq!(code(create(&mut at_other, &epochs, 0, None)), ErrorCode::OtherPool);
    let place = PoolPlace { epochs: epochs.to_vec(), index: 0 };
    let wider = ControlRequest::CreateTable { layout: layout("t", 16), place, id: None };
    assert_eq!(code(at_coordinator.ask::<TableInfo>(&wider)), ErrorCode::TableExists);

    // A node that was started again is no part of the pool any more.
    other.shutdown().unwrap();
    let again = start(directory.path(), "other");
    let mut at_again = Client::new(directory.path(), "other");
    assert_ne!(again.epoch(), Epoch(epochs[1]));
    assert_eq!(code(create(&mut at_again, &epochs, 1, Some(TableId(0)))), ErrorCode::OtherPool);
    let renewed = [epochs[0], again.epoch().0];
    assert_eq!(code(create(&mut at_coordinator, &renewed, 0, None)), ErrorCode::OtherPool);
}

#[test]
fn a_compute_node_that_ends_leaves_its_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let _coordinator = start(directory.path(), "coordinator");
    let mut client = Client::new(directory.path(), "coordinator");
    let mut witness = Client::new(directory.path(), "coordinator");
    let epochs = [client.epoch()];
    let info = create(&mut client, &epochs, 0, None).unwrap();
    let allocate = |space, count| ControlRequest::Allocate { table: info.id, space, count };

    assert_eq!(code(client.ask::<Blocks>(&allocate(Space::Leaves, 4))), ErrorCode::BadRequest);
    assert_eq!(client.ask(&ControlRequest::Register { lost: LostNodes::default() }), Ok(ComputeNode(1)));
    assert_eq!(witness.ask(&ControlRequest::Register { lost: LostNodes::default() }), Ok(ComputeNode(2)));
    assert_eq!(client.ask(&allocate(Space::Leaves, 4)), Ok(Blocks { first: 1, count: 4 }));
    assert_eq!(client.ask(&allocate(Space::Meta, 100)), Ok(Blocks { first: 1, count: 100 }));
    assert_eq!(witness.ask(&allocate(Space::Leaves, 4)), Ok(Blocks { first: 5, count: 4 }));
    let block_bytes = info.block_bytes();
    assert_eq!(client.write(info.region(), 3 * block_bytes + 8, 77).unwrap(), 77);

    drop(client);
    witness.wait_until("blocks come back", |stats| stats.tables[0].leaves.orphaned == 1);
    assert_eq!((witness.stats().tables[0].leaves.used, witness.stats().tables[0].meta.used), (6, 1));
    assert_eq!(witness.stats().compute_nodes, 1);
    let ended = ControlRequest::Ended { table: info.id, space: Space::Leaves };
    assert_eq!(witness.ask(&ended), Ok(vec![ComputeNode(1)]));
    let orphans = ControlRequest::TakeOrphans { table: info.id, space: Space::Leaves, of: ComputeNode(1) };
    let taken: TakenBlocks = witness.ask(&orphans).unwrap();
    assert_eq!(taken.blocks, [Blocks { first: 3, count: 1 }]);
    let known = witness.ask::<TakenBlocks>(&orphans).map(|none| none.claim).unwrap();
    let blocks = vec![Blocks { first: 3, count: 1 }, Blocks { first: 5, count: 4 }];
    let (table, space) = (info.id, Space::Leaves);
    let adopt = |known| ControlRequest::Adopt { table, space, known, blocks: blocks.clone() };
    // Some of what the other had never written became free before.
    assert!(!witness.ask::<Adopted>(&adopt(Claim::ALLOCATED)).unwrap().is_done);
    let Adopted { claim, is_done } = witness.ask(&adopt(known)).unwrap();
    assert!(is_done && claim > taken.claim);
    let free = ControlRequest::Free { table, space, claim: taken.claim, blocks: blocks.clone() };
    assert_eq!(witness.ask::<u64>(&free), Ok(0), "they are another claim's");
    let free = ControlRequest::Free { table, space, claim, blocks: blocks.clone() };
    assert_eq!(witness.ask::<u64>(&free), Ok(5));
    assert_eq!(witness.ask::<u64>(&free), Ok(0));
    let Adopted { claim, is_done } = witness.ask(&adopt(claim)).unwrap();
    assert!(!is_done, "they became free");
    assert_eq!(code(witness.ask::<Adopted>(&adopt(claim))), ErrorCode::BadRequest);
    let blocks = vec![Blocks { first: 0, count: 1 }];
    let pin = ControlRequest::Pin { table, space, claim, blocks };
    assert_eq!(code(witness.ask::<()>(&pin)), ErrorCode::BadRequest);
    assert_eq!(witness.stats().tables[0].leaves.used, 1, "the table's first leaf");
    let capacity = info.capacity_leaves();
    assert_eq!(witness.ask(&allocate(Space::Leaves, 1000)), Ok(Blocks { first: 1, count: 8 }));
    for _ in 0..capacity.div_ceil(1000) {
        witness.ask::<Blocks>(&allocate(Space::Leaves, 1000)).unwrap();
    }
    assert_eq!(code(witness.ask::<Blocks>(&allocate(Space::Leaves, 1))), ErrorCode::RegionFull);
}

/// Asks for a fence until it is done.
fn fence(client: &mut Client, coordinator: u64, compute_node: ComputeNode, seen: Option<LockSeen>) {
    let started = Instant::now();
    loop {
        match client.ask(&ControlRequest::Fence { coordinator, compute_node, seen }) {
            Ok(Fenced::Done) => return,
            Ok(Fenced::Wait { pause_ms, why }) => {
                assert!(started.elapsed() < PATIENCE, "{compute_node} is not fenced: {why}");
                std::thread::sleep(Duration::from_millis(pause_ms.into()));
            }
            Err(error) => panic!("{compute_node}: {error}"),
        }
    }
}

#[test]
fn a_fenced_compute_node_writes_nothing_more() {
    let directory = tempfile::tempdir().unwrap();
    let _coordinator = start(directory.path(), "coordinator");
    let mut client = Client::new(directory.path(), "coordinator");
    let mut witness = Client::new(directory.path(), "coordinator");
    let coordinator = client.epoch();
    let info = create(&mut client, &[coordinator], 0, None).unwrap();
    let number: ComputeNode = client.ask(&ControlRequest::Register { lost: LostNodes::default() }).unwrap();
    let own: ComputeNode = witness.ask(&ControlRequest::Register { lost: LostNodes::default() }).unwrap();
    client.write(info.region(), 64, 5).unwrap();
    let request =
        |coordinator: u64, compute_node| ControlRequest::Fence { coordinator, compute_node, seen: None };

    assert_eq!(code(witness.ask::<Fenced>(&request(coordinator, own))), ErrorCode::BadRequest);
    assert_eq!(code(witness.ask::<Fenced>(&request(coordinator + 1, number))), ErrorCode::OtherPool);
    client.write(info.region(), 64, 6).unwrap();
    fence(&mut witness, coordinator, number, None);
    assert!(matches!(client.write(info.region(), 64, 7), Err(FabricError::Dismissed { .. })));
    assert!(client.connection.check().is_err());
    assert_eq!(witness.write(info.region(), 72, 1).unwrap(), 1);
    witness.wait_until("one is left", |stats| (stats.compute_nodes, stats.fenced) == (1, 1));

    let mut back = Client::new(directory.path(), "coordinator");
    let announce = ControlRequest::Announce { coordinator, compute_node: number, lost: LostNodes::default() };
    assert_eq!(code(back.ask::<()>(&announce)), ErrorCode::Fenced);
    assert_eq!(back.ask(&ControlRequest::Register { lost: LostNodes::default() }), Ok(ComputeNode(3)));
    // Fencing who has gone is done at once.
    assert_eq!(witness.ask(&request(coordinator, number)), Ok(Fenced::Done));
}

#[test]
fn a_lock_is_its_holders_for_a_lease_that_the_node_itself_has_seen() {
    let directory = tempfile::tempdir().unwrap();
    let host =
        ShmHost::listen(directory.path().join("coordinator"), ListenOptions::new(FORMAT)).expect("a socket");
    let options = NodeOptions {
        table_memory_bytes: 1 << 20,
        lease: Some(Duration::from_millis(300)),
        ..NodeOptions::default()
    };
    let _coordinator = Node::start(vec![Arc::new(host)], &options).expect("a memory node");
    let mut holder = Client::new(directory.path(), "coordinator");
    let mut waiter = Client::new(directory.path(), "coordinator");
    let coordinator = holder.epoch();
    let info = create(&mut holder, &[coordinator], 0, None).unwrap();
    let number: ComputeNode = holder.ask(&ControlRequest::Register { lost: LostNodes::default() }).unwrap();
    waiter.ask::<ComputeNode>(&ControlRequest::Register { lost: LostNodes::default() }).unwrap();
    let lock = |sequence| LockWord::of(number.0, sequence).0;
    let at = OWNER_WORD as u64 * 8;
    let seen = |word| Some(LockSeen { table: info.id, block: 0, word });
    let request = |seen| ControlRequest::Fence { coordinator, compute_node: number, seen };

    // Locks that are not there, and words that are nobody's locks, are no reason.
    for _ in 0..2 {
        let answer: Fenced = waiter.ask(&request(seen(lock(1)))).unwrap();
        assert!(matches!(answer, Fenced::Wait { .. }), "{answer:?}");
        std::thread::sleep(Duration::from_millis(350));
    }
    for word in [0, 1 << 63, LockWord::of(number.0 + 1, 1).0] {
        assert_eq!(code(waiter.ask::<Fenced>(&request(seen(word)))), ErrorCode::BadRequest, "{word:#x}");
    }
    let outside = Some(LockSeen { table: info.id, block: info.capacity_leaves(), word: lock(1) });
    assert_eq!(code(waiter.ask::<Fenced>(&request(outside))), ErrorCode::BadRequest);
    // Locks that change in time, however long they are waited for.
    for sequence in 1..8 {
        holder.write(info.region(), at, lock(sequence)).unwrap();
        let answer: Fenced = waiter.ask(&request(seen(lock(sequence)))).unwrap();
        assert!(matches!(answer, Fenced::Wait { .. }), "{answer:?}");
        std::thread::sleep(Duration::from_millis(60));
        holder.connection.check().expect("nobody was fenced");
    }
    assert_eq!(waiter.stats().fenced, 0);
    // One that stays.
    holder.write(info.region(), at, lock(9)).unwrap();
    let begun = Instant::now();
    fence(&mut waiter, coordinator, number, seen(lock(9)));
    assert!(begun.elapsed() >= Duration::from_millis(300), "fenced after {:?}", begun.elapsed());
    assert!(matches!(holder.write(info.region(), at, 0), Err(FabricError::Dismissed { .. })));
    assert_eq!(waiter.stats().fenced, 1);
}

#[test]
fn numbers_that_nobody_was_given_lock_nobody_out() {
    let directory = tempfile::tempdir().unwrap();
    let (_coordinator, _other) = (start(directory.path(), "coordinator"), start(directory.path(), "other"));
    let mut at_coordinator = Client::new(directory.path(), "coordinator");
    let mut at_other = Client::new(directory.path(), "other");
    let epochs = [at_coordinator.epoch(), at_other.epoch()];
    let early = ControlRequest::Announce {
        coordinator: epochs[0],
        compute_node: ComputeNode(1),
        lost: LostNodes::default(),
    };
    assert_eq!(code(at_other.ask::<()>(&early)), ErrorCode::OtherPool, "it is in no pool yet");
    let info = create(&mut at_coordinator, &epochs, 0, None).unwrap();
    create(&mut at_other, &epochs, 1, Some(info.id)).unwrap();
    let own: ComputeNode =
        at_coordinator.ask(&ControlRequest::Register { lost: LostNodes::default() }).unwrap();
    at_other
        .ask::<()>(&ControlRequest::Announce {
            coordinator: epochs[0],
            compute_node: own,
            lost: LostNodes::default(),
        })
        .unwrap();
    for client in [&mut at_coordinator, &mut at_other] {
        for number in (2..70_000).chain([0, u32::MAX - 1, u32::MAX]) {
            let fence = |seen| {
                let compute_node = ComputeNode(number);
                ControlRequest::Fence { coordinator: epochs[0], compute_node, seen }
            };
            let seen = Some(LockSeen { table: info.id, block: 0, word: 1 });
            assert_eq!(code(client.ask::<Fenced>(&fence(seen))), ErrorCode::BadRequest, "{number}");
            // There is nothing to end of one that has ended elsewhere.
            assert_eq!(client.ask::<Fenced>(&fence(None)), Ok(Fenced::Done), "{number}");
        }
        assert_eq!(client.stats().fenced, 0);
    }
    // The next client is let in, under the next number.
    let mut next_at_coordinator = Client::new(directory.path(), "coordinator");
    let mut next_at_other = Client::new(directory.path(), "other");
    assert_eq!(
        next_at_coordinator.ask(&ControlRequest::Register { lost: LostNodes::default() }),
        Ok(ComputeNode(2))
    );
    let announce = ControlRequest::Announce {
        coordinator: epochs[0],
        compute_node: ComputeNode(2),
        lost: LostNodes::default(),
    };
    assert_eq!(next_at_other.ask::<()>(&announce), Ok(()));
    let allocate = ControlRequest::Allocate { table: info.id, space: Space::Leaves, count: 1 };
    next_at_other.ask::<Blocks>(&allocate).expect("a block");
    // Announced numbers that the coordinator never gave are nobody's at the coordinator.
    let forged = ControlRequest::Announce {
        coordinator: epochs[0],
        compute_node: ComputeNode(77),
        lost: LostNodes::default(),
    };
    assert_eq!(code(next_at_coordinator.ask::<()>(&forged)), ErrorCode::BadRequest);
}

#[test]
fn statistics_and_registrations_do_not_wait_for_each_other() {
    const REGISTRATIONS: usize = 20_000;
    let (done, is_done) = std::sync::mpsc::channel();
    // The node is that thread's: nobody waits for it if it hangs.
    std::thread::spawn(move || {
        let directory = tempfile::tempdir().unwrap();
        let node = start(directory.path(), "a");
        std::thread::scope(|scope| {
            let registering = scope.spawn(|| {
                let mut client = Client::new(directory.path(), "a");
                for _ in 0..REGISTRATIONS {
                    client
                        .ask::<ComputeNode>(&ControlRequest::Register { lost: LostNodes::default() })
                        .unwrap();
                }
            });
            while !registering.is_finished() {
                assert!(node.stats().compute_nodes <= 1);
            }
        });
        done.send(()).unwrap();
    });
    is_done.recv_timeout(PATIENCE).expect("both go on");
}

#[test]
fn a_lease_has_bounds() {
    let directory = tempfile::tempdir().unwrap();
    for lease in [Duration::from_millis(9), LEASE_MAX + Duration::from_millis(1)] {
        let host =
            ShmHost::listen(directory.path().join("node"), ListenOptions::new(FORMAT)).expect("a socket");
        let options =
            NodeOptions { table_memory_bytes: 1 << 20, lease: Some(lease), ..NodeOptions::default() };
        let refused = Node::start(vec![Arc::new(host)], &options).err().expect("a refusal");
        assert!(matches!(refused, StartError::Lease { got, .. } if got == lease), "{refused}");
    }
}

#[test]
fn each_engine_refuses_by_name_what_only_the_other_has() {
    let directory = tempfile::tempdir().unwrap();
    let _coordinator = start(directory.path(), "coordinator");
    let mut client = Client::new(directory.path(), "coordinator");
    let epoch = client.epoch();
    let table = create(&mut client, &[epoch], 0, None).expect("a table");
    // A ROLEX table's pairs are nothing that a node's processor knows of.
    let mut frame = Vec::new();
    Request::get(&mut frame, table.id, &[1]);
    let refused = client.frame::<()>(&frame).expect_err("a refusal");
    assert_eq!(refused.code, ErrorCode::BadRequest);
    assert!(refused.text.contains("\"t\" is of rolex"), "{refused}");
    // Nobody is given blocks of an XStore table.
    let geometry = Geometry::new(8).expect("a geometry");
    let (engine, block_lines) = (EngineKind::XSTORE.table(&[], 1), geometry.leaf_lines() as u16);
    let x_store = TableLayout { engine, block_lines, ..layout("x", 8) };
    let place = PoolPlace { epochs: vec![epoch], index: 0 };
    let made = ControlRequest::CreateTable { layout: x_store, place, id: None };
    let made: TableInfo = client.ask(&made).expect("a table");
    client.ask::<ComputeNode>(&ControlRequest::Register { lost: LostNodes::default() }).expect("a number");
    let allocate = ControlRequest::Allocate { table: made.id, space: Space::Leaves, count: 1 };
    let refused = client.ask::<Blocks>(&allocate).expect_err("a refusal");
    assert!(refused.text.contains("\"x\" is of xstore"), "{refused}");
    assert_eq!(code(client.frame::<()>(b"no frame")), ErrorCode::BadRequest);
    let place = PoolPlace { epochs: Vec::new(), index: 0 };
    let nowhere = ControlRequest::CreateTable { layout: layout("t", 8), place, id: None };
    assert_eq!(code(client.ask::<TableInfo>(&nowhere)), ErrorCode::BadRequest);
}

#[test]
fn a_node_whose_memory_cannot_be_written_has_no_rolex_tables() {
    let directory = tempfile::tempdir().unwrap();
    let host =
        ShmHost::listen(directory.path().join("coordinator"), ListenOptions::new(FORMAT)).expect("a socket");
    let read_only = Some("cards and processors do not see each other".to_owned());
    let options = NodeOptions { table_memory_bytes: 1 << 20, read_only, ..NodeOptions::default() };
    let _coordinator = Node::start(vec![Arc::new(host)], &options).expect("a node");
    let mut client = Client::new(directory.path(), "coordinator");
    let epoch = client.epoch();
    let refused = create(&mut client, &[epoch], 0, None).expect_err("a refusal");
    for word in ["\"t\"", "rolex", "do not see each other"] {
        assert!(refused.text.contains(word), "{refused:?} lacks {word:?}");
    }
}

fn take_in<T: DeserializeOwned>(client: &mut Client, step: TakeIn) -> Result<T, ServerError> {
    client.ask(&ControlRequest::TakeIn(step))
}

fn closed(client: &mut Client, step: &TakeIn) -> (u32, u32) {
    let started = Instant::now();
    loop {
        match take_in(client, step.clone()).expect("an answer") {
            Closed::Done { newest, next_table } => return (newest, next_table),
            Closed::Wait { why, .. } => assert!(started.elapsed() < PATIENCE, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn fenced(client: &mut Client, step: &TakeIn) -> Result<(), ServerError> {
    let started = Instant::now();
    while let Fenced::Wait { why, .. } = take_in(client, step.clone())? {
        assert!(started.elapsed() < PATIENCE, "{why}");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, from a loss to the new list")]
fn a_new_node_is_taken_in_step_by_step() {
    let directory = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"];
    let mut nodes: Vec<NodeHandle> = names.iter().map(|name| start(directory.path(), name)).collect();
    let connect = |name: &str| Client::new(directory.path(), name);
    let (mut a, mut b) = (connect("a"), connect("b"));
    let epochs: Vec<u64> = nodes.iter().map(|node| node.epoch().0).collect();
    let mut layout = layout("t", 8);
    layout.definition.replicas = Some(3);
    layout.engine = EngineKind::FLEXKV.table(&[], 3);
    layout.block_lines = (EngineKind::FLEXKV.block_lines)(8).expect("lines") as u16;
    let place = |index, epochs: &[u64]| PoolPlace { epochs: epochs.to_vec(), index };
    let create = |client: &mut Client, index, id| {
        let request =
            ControlRequest::CreateTable { layout: layout.clone(), place: place(index, &epochs), id };
        client.ask::<TableInfo>(&request)
    };
    let info = create(&mut a, 0, None).expect("a table");
    create(&mut b, 1, Some(info.id)).expect("its part");
    create(&mut connect("c"), 2, Some(info.id)).expect("its part");

    // The third node is lost, and another one stands in its place.
    nodes.pop();
    let lost = LostNodes::of([2]);
    for client in [&mut a, &mut b] {
        let left_out = client.ask::<LeftOut>(&ControlRequest::LeaveOut { lost, term: 0 });
        assert_eq!(left_out, Ok(LeftOut::Done(lost)));
        let refused = client.ask::<LeftOut>(&ControlRequest::LeaveOut { lost, term: 1 });
        assert_eq!(code(refused), ErrorCode::Fenced, "of another list");
    }
    let register = ControlRequest::Register { lost };
    let mut former = connect("a");
    let mut former_at_b = connect("b");
    let former_number: ComputeNode = former.ask(&register).expect("a number");
    let again = start(directory.path(), "c");
    let mut new = connect("c");
    let mut whole_list = epochs.clone();
    whole_list[2] = again.epoch().0;

    // The first who tells where the nodes are is believed, and tells of all of them or of none.
    let at = |names: &[&str]| PoolAddresses::of_one_fabric(names.iter().map(|name| (*name).to_owned()));
    let map = |client: &mut Client| client.ask::<PoolMap>(&ControlRequest::Map).expect("a map");
    for (term, told, known) in [
        (0, at(&["a"]), at(&[])),
        (1, at(&["x", "b", "c"]), at(&[])),
        (0, at(&["a", "b", "c"]), at(&["a", "b", "c"])),
    ]
    .into_iter()
    .chain([(0, at(&["x", "y", "z"]), at(&["a", "b", "c"]))])
    {
        a.ask::<()>(&ControlRequest::TellAddresses { term, addresses: told }).expect("an answer");
        assert_eq!(map(&mut a).addresses, known);
    }
    let long = ControlRequest::TellAddresses { term: 0, addresses: at(&["a", "b", &"c".repeat(300)]) };
    assert_eq!(code(b.ask::<()>(&long)), ErrorCode::BadRequest);
    assert_eq!(map(&mut b).addresses, at(&[]));

    let begin = TakeIn::Begin { epochs: whole_list.clone(), addresses: at(&["a", "b", "d"]) };
    let mut strange = whole_list.clone();
    strange[1] = 7;
    let strange = TakeIn::Begin { epochs: strange, addresses: at(&[]) };
    assert_eq!(code(take_in::<Begun>(&mut a, strange)), ErrorCode::OtherPool);
    let few = TakeIn::Begin { epochs: whole_list.clone(), addresses: at(&["a", "b"]) };
    assert_eq!(code(take_in::<Begun>(&mut a, few)), ErrorCode::BadRequest, "addresses of two");
    assert_eq!(code(take_in::<Begun>(&mut b, begin.clone())), ErrorCode::BadRequest, "no coordinator");
    let Begun { attempt, .. } = take_in(&mut a, begin.clone()).expect("an attempt");
    assert_eq!(code(take_in::<Begun>(&mut a, begin)), ErrorCode::TakingIn, "one at a time");
    assert_eq!(
        code(take_in::<Fenced>(&mut a, TakeIn::Commit { attempt })),
        ErrorCode::BadRequest,
        "not closed"
    );
    let close = TakeIn::Close { attempt };
    drop(former);
    let (newest, next_table) = closed(&mut a, &close);
    assert_eq!((newest, next_table), (former_number.0, info.id.0 + 1));
    assert_eq!(code(connect("a").ask::<ComputeNode>(&register)), ErrorCode::TakingIn);
    closed(&mut b, &TakeIn::EndFormer { attempt, newest });
    // It was registered at the coordinator, and comes to the other one too late.
    let announce = ControlRequest::Announce { coordinator: epochs[0], compute_node: former_number, lost };
    assert_eq!(code(former_at_b.ask::<()>(&announce)), ErrorCode::Fenced);

    let receive = |attempt| TakeIn::Receive {
        attempt,
        place: place(2, &whole_list),
        pool: epochs[0],
        term: 1,
        lost: LostNodes::default(),
        addresses: at(&["a", "b", "d"]),
    };
    let pieces = |attempt, first_line| TakeIn::Pieces {
        attempt,
        table: info.id,
        pieces: vec![TakenPiece { space: Space::Index, first_line, bytes: vec![1; 64] }],
    };
    assert_eq!(code(take_in::<()>(&mut new, pieces(attempt, 0))), ErrorCode::Forgotten, "not begun");
    take_in::<()>(&mut new, receive(attempt)).expect("it begins");
    assert_eq!(code(take_in::<()>(&mut new, receive(attempt))), ErrorCode::Forgotten, "not above");
    let made: TableInfo =
        take_in(&mut new, TakeIn::Table { attempt, id: info.id, layout: layout.clone() }).expect("a table");
    assert_eq!(made.place, place(2, &whole_list));
    take_in::<()>(&mut new, pieces(attempt, 0)).expect("a piece");
    assert_eq!(code(take_in::<()>(&mut new, pieces(attempt, u32::MAX))), ErrorCode::BadRequest, "outside");
    assert_eq!(code(take_in::<()>(&mut new, pieces(attempt + 1, 0))), ErrorCode::Forgotten, "another's");
    let hello: NodeHello = new.ask(&ControlRequest::Hello).expect("an answer");
    assert_eq!((hello.place, hello.pool), (None, None), "it has not all yet");
    assert_eq!((map(&mut new).place, map(&mut new).pool), (None, None), "likewise");
    assert_eq!(
        code(new.ask::<ComputeNode>(&ControlRequest::Register { lost: LostNodes::default() })),
        ErrorCode::Fenced
    );
    // A later attempt begins empty, and what the one before brings counts no more.
    take_in::<()>(&mut new, receive(attempt + 1)).expect("it begins anew");
    assert_eq!(code(take_in::<()>(&mut new, pieces(attempt, 0))), ErrorCode::Forgotten, "of a left attempt");
    assert_eq!(code(take_in::<()>(&mut new, pieces(attempt + 1, 0))), ErrorCode::UnknownTable);
    take_in::<TableInfo>(&mut new, TakeIn::Table { attempt: attempt + 1, id: info.id, layout })
        .expect("a table");
    let whole = TakeIn::Whole {
        attempt: attempt + 1,
        newest: newest + 1,
        next_table: next_table + 3,
        left: Vec::new(),
    };
    take_in::<()>(&mut new, whole).expect("it is whole");
    assert_eq!(code(take_in::<()>(&mut new, pieces(attempt + 1, 0))), ErrorCode::Forgotten, "it has all");

    // Nobody has the list yet; then the coordinator, and who is told by it.
    let adopt = |by| TakeIn::Adopt {
        epochs: whole_list.clone(),
        term: 1,
        lost: LostNodes::default(),
        by,
        addresses: at(&["a", "b", "d"]),
    };
    assert_eq!(map(&mut a).addresses, at(&["a", "b", "c"]), "it is not decided");
    assert_eq!(
        code(fenced(&mut b, &adopt(LostNodes::of([2])))),
        ErrorCode::Fenced,
        "the new node alone says so"
    );
    assert_eq!(fenced(&mut a, &TakeIn::Commit { attempt }), Ok(()));
    assert_eq!(
        code(take_in::<Fenced>(&mut a, TakeIn::Commit { attempt })),
        ErrorCode::Forgotten,
        "it is over"
    );
    assert_eq!(fenced(&mut b, &adopt(LostNodes::of([0]))), Ok(()));
    assert_eq!(fenced(&mut b, &adopt(LostNodes::of([0]))), Ok(()), "again");
    for (index, client) in [&mut a, &mut b, &mut new].into_iter().enumerate() {
        let hello: NodeHello = client.ask(&ControlRequest::Hello).expect("an answer");
        assert_eq!(hello.place, Some(place(index as u8, &whole_list)));
        assert_eq!((hello.lost, hello.term, hello.pool), (LostNodes::default(), 1, Some(epochs[0])));
        assert!(hello.knows_addresses);
        let map = map(client);
        assert_eq!((map.epoch, map.pool, map.term), (hello.epoch, hello.pool, 1));
        assert_eq!((map.place, map.addresses), (hello.place, at(&["a", "b", "d"])));
    }
    let newcomer = connect("a").ask::<ComputeNode>(&ControlRequest::Register { lost: LostNodes::default() });
    assert_eq!(newcomer, Ok(ComputeNode(newest + 1)));
}
