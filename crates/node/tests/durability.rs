//! A node with a directory of data: what a restart finds, and what a crash leaves.

mod common;
mod durable_program;

use std::sync::Arc;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use common::local_host::{LocalClient, LocalHost};
use common::stepped::SteppedNode;
use common::talk::{create_at, definition, value_of};
use durable_program::Program;
use farsight_base::LeafNumber;
use farsight_base::report::with_causes;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_durability::LogOptions;
use farsight_durability::disk::{Disk, Fault, SimulatedDisk};
use farsight_index::EngineKind;
use farsight_node::{DataOptions, Node, NodeHandle, NodeOptions};
use farsight_protocol::{
    Ack, ControlRequest, ErrorCode, NodeHello, NodeLife, NodeLives, PoolPlace, Reply, Request,
    TableDefinition, TableId, TableInfo, ValueEntries, ValueKind, WriteEntries, WriteEntry, WriteOperation,
    WriteOutcome,
};

/// Programs of a run that crash at each operation of the disk.
const PROGRAMS: u64 = 3;

fn options(disk: &SimulatedDisk, ack: Ack) -> NodeOptions {
    let log = LogOptions { segment_bytes: 16 << 10 };
    let data = DataOptions { ack, log, snapshot_bytes: 64 << 10, ..DataOptions::new(Arc::new(disk.clone())) };
    NodeOptions { table_memory_bytes: 4 << 20, data: Some(data), ..NodeOptions::default() }
}

fn start(disk: &SimulatedDisk, ack: Ack) -> (NodeHandle, Arc<LocalHost>) {
    let host = LocalHost::new();
    let node = Node::start(vec![host.clone()], &options(disk, ack)).expect("a node");
    (node, host)
}

#[test]
fn tables_come_back_with_names_numbers_pairs_and_versions() {
    let disk = SimulatedDisk::default();
    let keys: Vec<u64> = (0..3_000).map(|key| key * 7).collect();
    let (node, host) = start(&disk, Ack::Durable);
    let client = host.connect();
    let [first, second, gone] = ["first", "second", "gone"].map(|name| client.create(name, 24));
    client.put(&first, &keys);
    client.load(&second, &keys);
    client.put(&second, &[1, 2]);
    client.put(&gone, &[5]);
    let removed = [(14, LeafNumber::NONE, Vec::new())];
    let removed = client.write(first.id, WriteOperation::Remove, &removed).expect("removed");
    assert!(matches!(removed[..], [WriteOutcome::Removed(_)]));
    client.control::<()>(&ControlRequest::DropTable("gone".into())).expect("dropped");
    let swap = ControlRequest::SwapTables { first: "first".into(), second: "second".into() };
    client.control::<()>(&swap).expect("swapped");
    let scans =
        |client: &LocalClient| [&first, &second].map(|table| client.scan(table, 0, 400).expect("pairs"));
    let before = scans(&client);
    node.shutdown().expect("stopped");

    let (_node, host) = start(&disk.crash(1), Ack::Durable);
    let client = host.connect();
    assert_eq!(scans(&client), before, "keys, versions and values");
    let open = |name: &str| client.control::<TableInfo>(&ControlRequest::OpenTable(name.into()));
    assert_eq!(open("first").expect("renamed").id, second.id);
    assert_eq!(open("second").expect("renamed").id, first.id);
    assert_eq!(open("gone").expect_err("dropped").code, ErrorCode::UnknownTable);
    assert!(client.create("new", 24).id > gone.id, "a number is not given again");
    let put = client.put(&first, &[14]);
    let greatest = before[0].0.iter().map(|(_, version, _)| *version).max().expect("pairs");
    assert!(matches!(put[..], [WriteOutcome::Inserted(version)] if version > greatest + 1), "{put:?}");
}

/// What longer values need is what others give back that became shorter before. A restart that takes the keys
/// in their order comes to the longer ones first.
#[test]
fn values_that_grow_into_what_others_gave_back_come_back() {
    const SHORT: usize = 100;
    const LONG: usize = 4000;
    let disk = SimulatedDisk::default();
    let data = DataOptions::new(Arc::new(disk.clone()));
    let options =
        |data| NodeOptions { table_memory_bytes: 2 << 20, data: Some(data), ..NodeOptions::default() };
    let mut node = SteppedNode::start(&options(data));
    let values = ValueKind::blocks(LONG as u32);
    let table = node.create(TableDefinition { values, ..definition("blocks", 8) });
    let put = |node: &mut SteppedNode, key: u64, bytes: usize| {
        let (mut frame, value) = (Vec::new(), value_of(key + bytes as u64, bytes));
        Request::begin_write_values(&mut frame, table.id, WriteOperation::Put, 1);
        ValueEntries::push(&mut frame, WriteEntry { key, hint: LeafNumber::NONE, value: &value });
        let reply = node.call(&frame);
        let mut outcomes =
            Reply::decode(&reply).expect("a reply").expect("an answer").outcomes(1).expect("one");
        let outcome = outcomes.next().expect("one").expect("an outcome").outcome;
        matches!(outcome, WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_))
    };
    // Short blocks have memory of their own.
    assert!((0..20).all(|key| put(&mut node, key, SHORT)));
    let long = (1000..3000).find(|key| !put(&mut node, *key, LONG)).expect("its memory ends") - 1;
    assert!(long > 1010, "{long}");
    let mut frame = Vec::new();
    Request::begin_write(&mut frame, table.id, WriteOperation::Remove, 1, 0);
    WriteEntries::push(&mut frame, WriteEntry { key: long, hint: LeafNumber::NONE, value: &[] });
    assert!(Reply::decode(&node.call(&frame)).expect("a reply").is_ok());
    let count = (long - 1000).min(20);
    for key in 0..count {
        for (key, bytes) in [(long - 1 - key, SHORT), (key, LONG - 1)] {
            // What was given back may be in use a moment later.
            let is_put = (0..100).any(|_| {
                node.rest(Duration::from_millis(10));
                put(&mut node, key, bytes)
            });
            assert!(is_put, "key {key}, {bytes} B");
        }
    }
    let all = || (0..long).filter(|key| *key < count || *key >= 1000);
    let before: Vec<_> = all().map(|key| node.stored(&table, key)).collect();
    let data = DataOptions::new(Arc::new(disk.crash(1)));
    let mut node = SteppedNode::start(&options(data));
    let after: Vec<_> = all().map(|key| node.stored(&table, key)).collect();
    assert!(after == before, "other pairs");
}

/// A snapshot that began while a table was empty ends after the table's bulk load.
#[test]
fn a_bulk_load_beside_snapshots_comes_back() {
    let keys: Vec<u64> = (0..300).collect();
    for _ in 0..100 {
        let disk = SimulatedDisk::default();
        let (node, host) = start(&disk, Ack::Durable);
        let client = host.connect();
        let table = client.create("loaded", 24);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let client = host.connect();
                while !is_done.load(Ordering::Relaxed) {
                    client.control::<u64>(&ControlRequest::BeginSnapshots).expect("a round begins");
                }
            });
            client.load(&table, &keys);
            is_done.store(true, Ordering::Relaxed);
        });
        node.shutdown().expect("stopped");

        let (_node, host) = start(&disk.crash(1), Ack::Durable);
        let (pairs, _) = host.connect().scan(&table, 0, 400).expect("pairs");
        assert_eq!(pairs.len(), keys.len());
    }
}

/// Versions and values of every length, by a snapshot and the log behind it, and no memory lost.
#[test]
fn values_of_any_length_come_back() {
    let disk = SimulatedDisk::default();
    let (node, host) = start(&disk, Ack::Durable);
    let client = host.connect();
    let values = ValueKind::blocks(8_000);
    let table = client.create_as(TableDefinition { values, ..definition("long", 8) }).expect("a table");
    let value = |key: u64, round: u64| {
        let length = [0, 1, 40, 41, 300, 8_000][((key + round) % 6) as usize];
        value_of(key ^ round << 32, length)
    };
    for round in 0..9 {
        for key in 0..120 {
            let put = client.put_values(&table, &[(key, value(key, round))]);
            assert!(matches!(put[..], [WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_)]), "{put:?}");
        }
    }
    let removed: Vec<_> = (0..120).step_by(7).map(|key| (key, LeafNumber::NONE, Vec::new())).collect();
    client.write(table.id, WriteOperation::Remove, &removed).expect("removed");
    let all = |client: &LocalClient| -> Vec<Option<(u64, Vec<u8>)>> {
        (0..121).map(|key| client.get_value(&table, key).expect("an answer")).collect()
    };
    let live_bytes = |client: &LocalClient| client.stats().tables[0].blocks.expect("blocks").live_bytes;
    let (before, live_before) = (all(&client), live_bytes(&client));
    node.shutdown().expect("stopped");
    let names = disk.list().expect("names");
    assert!(names.iter().any(|name| name.starts_with("snapshot-")), "{names:?}");

    let (_node, host) = start(&disk.crash(1), Ack::Durable);
    let client = host.connect();
    assert!(all(&client) == before, "versions and values");
    assert_eq!(live_bytes(&client), live_before, "each pair's block, and none besides");
    for key in 0..120 {
        let is_there = key % 7 != 0;
        let expected = is_there.then(|| value(key, 8));
        assert_eq!(before[key as usize].as_ref().map(|(_, value)| value), expected.as_ref(), "key {key}");
    }
}

/// A snapshot names the place in the log behind which it lacks pairs.
#[test]
fn a_log_that_somebody_removed_is_noticed() {
    let disk = SimulatedDisk::default();
    let (node, host) = start(&disk, Ack::Durable);
    let client = host.connect();
    let table = client.create("t", 24);
    // Its file is there before the catalogue says so.
    let has_snapshot = || client.stats().data.is_some_and(|data| data.pieces > 0);
    let mut puts = (0..100_000).map(|key| client.put(&table, &[key]));
    assert!(puts.any(|_| has_snapshot()), "a snapshot");
    client.put(&table, &[1]);
    node.shutdown().expect("stopped");
    let segments: Vec<String> = disk.list().expect("names");
    let segments: Vec<_> = segments.into_iter().filter(|name| name.starts_with("log-")).collect();
    assert!(!segments.is_empty());
    for name in &segments {
        disk.remove(name).expect("removed");
    }

    let refused = Node::start(vec![LocalHost::new()], &options(&disk, Ack::Durable)).err().expect("refused");
    let said = with_causes(&refused);
    assert!(segments.iter().any(|name| said.contains(&format!("{name} is missing"))), "{said}");
}

#[test]
fn swaps_are_executed_as_far_as_their_answer_has_room() {
    let (_node, host) = start(&SimulatedDisk::default(), Ack::Durable);
    host.connect().check_full_answers();
}

#[test]
fn what_would_not_come_back_is_refused_by_name() {
    let (_node, host) = start(&SimulatedDisk::default(), Ack::Durable);
    let client = host.connect();
    let ControlRequest::CreateTable { mut layout, .. } = create_at(1, definition("pooled", 8)) else {
        return;
    };
    layout.engine = EngineKind::ROLEX.table(&[], 1);
    let place = PoolPlace { epochs: vec![1], index: 0 };
    let create = ControlRequest::CreateTable { layout, place, id: None };
    let error = client.control::<TableInfo>(&create).expect_err("no log");
    assert!(error.code == ErrorCode::BadRequest, "{error}");
}

/// A node of a pool is the same in all lives of its directory, and knows those of the others that it met.
#[test]
fn lives_of_a_pool_are_met_once_and_for_all() {
    let disk = SimulatedDisk::default();
    let start = |disk: &SimulatedDisk, epoch: u64| {
        let host = LocalHost::of_epoch(epoch);
        (Node::start(vec![host.clone()], &options(disk, Ack::Durable)).expect("a node"), host)
    };
    let life = |number: u64, epoch: u64| NodeLife { number, epoch };
    let (_node, host) = start(&disk, 70);
    let client = host.connect();
    let meet = |client: &LocalClient, other: NodeLife| {
        client.control::<()>(&ControlRequest::Meet(vec![other, life(1, 70)]))
    };
    let refused = meet(&client, life(1, 50)).expect_err("there is no pool");
    assert!(refused.code == ErrorCode::OtherPool && refused.text.contains("has 0 nodes"), "{refused}");
    let ControlRequest::CreateTable { mut layout, .. } = create_at(1, definition("t", 8)) else { return };
    layout.engine = EngineKind::XSTORE_D.table(&[], 2);
    let place = PoolPlace { epochs: vec![50, 70], index: 1 };
    let create =
        ControlRequest::CreateTable { layout: layout.clone(), place: place.clone(), id: Some(TableId(3)) };
    client.control::<TableInfo>(&create).expect("its part");
    meet(&client, life(4, 51)).expect("the first");
    meet(&client, life(3, 50)).expect("a late client's is passed over");
    let refused = meet(&client, life(4, 52)).expect_err("a copy");
    assert!(refused.code == ErrorCode::OtherPool && refused.text.contains("another copy"), "{refused}");
    meet(&client, life(6, 53)).expect("a later one");

    let image = disk.crash(1);
    let (node, host) = start(&image, 71);
    let client = host.connect();
    let hello: NodeHello = client.control(&ControlRequest::Hello).expect("an answer");
    assert_eq!((hello.epoch, hello.place.as_ref()), (70, Some(&place)), "the node that it was");
    let lives: NodeLives = client.control(&ControlRequest::Lives).expect("an answer");
    assert_eq!(lives, NodeLives { own: Some(life(2, 71)), met: vec![Some(life(6, 53)), None] });
    let has_lived = |life| client.control::<bool>(&ControlRequest::HasLived(life)).expect("an answer");
    assert!(has_lived(life(1, 70)) && has_lived(life(2, 71)));
    for never in [life(1, 71), life(2, 70), life(3, 71), life(u64::MAX, 0)] {
        assert!(!has_lived(never), "{never:?}");
    }
    // What the coordinator has dropped is not made again, in this life and in the next.
    let dropped = [TableId(3), TableId(9)];
    client.control::<()>(&ControlRequest::ForgetTables(dropped.to_vec())).expect("forgotten");
    drop(node);
    let (_node, host) = start(&image.crash(1), 72);
    let after = host.connect();
    assert!(after.stats().tables.is_empty());
    for id in dropped {
        let (layout, place) = (layout.clone(), place.clone());
        let create = ControlRequest::CreateTable { layout, place, id: Some(id) };
        let refused = after.control::<TableInfo>(&create).expect_err("forgotten");
        assert!(refused.text.contains("was dropped"), "{refused}");
    }
}

#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_acknowledged() {
    durable_program::crash_everywhere(PROGRAMS);
}

#[test]
fn a_disk_that_fails_ends_all_answers() {
    for at in 0..12 {
        let disk = SimulatedDisk::default();
        let mut program = Program::start(&disk, 7);
        program.create("table");
        disk.set_faults(&[Fault::FailAt(at)]);
        let answered = (0..8).filter(|key| program.put("table", *key, *key).is_ok()).count();
        disk.set_faults(&[]);
        let error = program.put("table", 9, 9);
        if answered < 8 {
            assert!(error.is_err(), "after a failure of operation {at}");
            assert!(program.failure().is_some());
        }
    }
}

#[test]
fn a_full_disk_refuses_and_goes_on_with_room() {
    for are_blocks in [false, true] {
        let disk = SimulatedDisk::default();
        let mut program = Program::start(&disk, 7);
        let create = if are_blocks { Program::create_blocks } else { Program::create };
        create(&mut program, "table");
        disk.set_faults(&[Fault::CapacityBytes(20 << 10)]);
        let refused = (0..200).find_map(|key| program.put("table", key, key).err()).expect("a full disk");
        assert_eq!(refused.code, ErrorCode::OutOfResources, "{refused}");
        assert!(refused.text.contains("no room"), "{refused}");
        program.check_blocks("the refused pair's block is given back");
        disk.set_faults(&[]);
        program.put("table", 1_000, 1).expect("there is room");
        program.check(&disk.crash(3), "after a full disk");
    }
}

/// Writers count their keys up. Images of the disk are taken meanwhile: each has all that was acknowledged
/// before.
#[test]
fn writers_snapshots_and_crashes() {
    for ack in [Ack::Durable, Ack::Memory] {
        let disk = SimulatedDisk::default();
        let (node, host) = start(&disk, ack);
        let table = host.connect().create("counters", 8);
        let acknowledged = Mutex::new([0_u64; 4]);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let (host, table, acknowledged, is_over) = (&host, &table, &acknowledged, &is_over);
                scope.spawn(move || {
                    let client = host.connect();
                    let mut count = 0_u64;
                    // Relaxed: a flag.
                    while !is_over.load(Ordering::Relaxed) {
                        count += 1;
                        let put = [(writer, count), (1_000 * (writer + 1) + count % 500, count)];
                        let put =
                            put.map(|(key, value)| (key, LeafNumber::NONE, value.to_le_bytes().to_vec()));
                        let put = client.write(table.id, WriteOperation::Put, &put).expect("put");
                        assert!(!put.iter().any(|outcome| matches!(outcome, WriteOutcome::Failed(_))));
                        acknowledged.lock().expect("no panic")[writer as usize] = count;
                    }
                });
            }
            for seed in 0..6 {
                sleep(Duration::from_millis(60));
                let before = *acknowledged.lock().expect("no panic");
                let image = disk.crash(seed);
                // A crash of the process alone leaves what the system was given; this one is the machine's.
                let (_node, host) = start(&image, ack);
                let found = host.connect().get(&table, &[0, 1, 2, 3]).expect("pairs");
                let count = |value: &Option<Vec<u8>>| {
                    value.as_ref().map_or(0, |value| u64::from_le_bytes(value[..8].try_into().expect("8 B")))
                };
                for (found, acknowledged) in found.iter().map(count).zip(before) {
                    assert!(ack == Ack::Memory || found >= acknowledged, "{found} of {acknowledged}");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        node.shutdown().expect("stopped");
        let names = disk.list().expect("names");
        assert!(names.iter().any(|name| name.starts_with("snapshot-")), "{names:?}");
        assert!(!names.contains(&"log-0000000000000001".to_owned()), "the oldest segment is not needed");
        let (_node, host) = start(&disk.crash(9), ack);
        let found = host.connect().get(&table, &[0]).expect("pairs");
        let expected = acknowledged.lock().expect("no panic")[0].to_le_bytes().to_vec();
        assert_eq!(found, [Some(expected)], "a stop loses nothing");
    }
}

#[test]
fn a_load_is_there_whole_or_not_at_all() {
    let disk = SimulatedDisk::default();
    let (node, host) = start(&disk, Ack::Durable);
    let client = host.connect();
    let table = client.create("loaded", 16);
    let keys: Vec<u64> = (0..1_000).collect();
    client.load_piece(&table, 0, false, &keys[..500]).expect("a piece");
    let (_early, early_host) = start(&disk.crash(1), Ack::Durable);
    assert_eq!(early_host.connect().get(&table, &[3]).expect("empty"), [None]);
    client.load_piece(&table, 1, true, &keys[500..]).expect("the last piece");
    let (_late, late_host) = start(&disk.crash(2), Ack::Durable);
    let late = late_host.connect();
    assert_eq!(late.get(&table, &[3, 999]).expect("pairs"), [3, 999].map(|key| Some(value_of(key, 16))));
    let scans = [&client, &late].map(|client| client.scan(&table, 0, 100).expect("pairs"));
    assert_eq!(scans[0], scans[1], "versions, too");
    drop(node);
}

/// What fits a table fits it after a restart, however full it was; and no room is promised that is not there.
#[test]
fn a_full_table_refuses_and_comes_back() {
    let disk = SimulatedDisk::default();
    let start = |disk: &SimulatedDisk| {
        let host = LocalHost::new();
        let options = NodeOptions { table_memory_bytes: 64 << 10, ..options(disk, Ack::Durable) };
        (Node::start(vec![host.clone()], &options).expect("a node"), host)
    };
    let (node, host) = start(&disk);
    let client = host.connect();
    let table = client.create("full", 8);
    // Ascending keys fill leaves to their end; a load would leave a quarter of each empty.
    let mut stored = Vec::new();
    let mut refused = None;
    for key in 0..10_000 {
        match client.put(&table, &[key])[0] {
            WriteOutcome::Inserted(_) => stored.push(key),
            WriteOutcome::Failed(code) => refused = Some(code),
            other => panic!("{other:?}"),
        }
        if refused.is_some() {
            break;
        }
    }
    assert_eq!((refused, node.failure()), (Some(ErrorCode::RegionFull), None));
    let leaves = u64::from(table.capacity_leaves());
    assert!(stored.len() as u64 > leaves * 12, "{} pairs in {leaves} leaves", stored.len());
    let found = |host: &LocalHost, keys: &[u64]| {
        let client = host.connect();
        keys.chunks(100).all(|keys| client.get(&table, keys).expect("pairs").iter().all(Option::is_some))
    };
    assert!(found(&host, &stored));
    // Enough updates for snapshots, which the next start loads.
    for _ in 0..30 {
        client.put(&table, &stored[..200]);
    }
    sleep(Duration::from_millis(200));
    node.shutdown().expect("stopped");
    assert!(disk.list().expect("names").iter().any(|name| name.starts_with("snapshot-")));
    let (_node, host) = start(&disk.crash(4));
    assert!(found(&host, &stored), "pairs are lost");
}

/// A limit of the process's memory is met before the log, never behind it.
#[test]
fn a_limit_of_memory_refuses_inserts_and_ends_nothing() {
    let disk = SimulatedDisk::default();
    let host = LocalHost::new();
    let options = NodeOptions { memory_limit_bytes: Some(1), ..options(&disk, Ack::Durable) };
    let node = Node::start(vec![host.clone()], &options).expect("a node");
    let client = host.connect();
    let ControlRequest::CreateTable { layout, place, id } = create_at(1, definition("t", 8)) else { return };
    let made = client.control::<TableInfo>(&ControlRequest::CreateTable { layout, place, id });
    if let Ok(table) = made {
        let outcomes = client.put(&table, &(0..1_000).collect::<Vec<_>>());
        assert!(outcomes.iter().any(|outcome| matches!(outcome, WriteOutcome::Failed(_))), "{outcomes:?}");
    }
    assert_eq!(node.failure(), None);
}

/// The checkers checked. `RUSTFLAGS="--cfg injected" cargo test`.
#[cfg(injected)]
mod injected {
    use farsight_base::injection::assert_found;

    use super::*;

    /// The first that meets the bug ends the test: hardly any takes more than five.
    const PROGRAMS_MAX: u64 = 100;

    #[test]
    fn answers_before_the_sync() {
        assert_found(&farsight_node::injected::ANSWERED_BEFORE_SYNC, || {
            durable_program::crash_everywhere(PROGRAMS_MAX);
        });
    }

    #[test]
    fn a_group_that_flies_and_is_not_seen_by_the_next() {
        assert_found(&farsight_node::injected::FLYING_UNSEEN, || {
            durable_program::crash_everywhere(PROGRAMS_MAX);
        });
    }

    #[test]
    fn writes_that_are_seen_before_their_sync_has_ended() {
        assert_found(&farsight_node::injected::APPLIED_BEFORE_SYNC, || {
            durable_program::crash_everywhere(PROGRAMS_MAX);
        });
    }

    #[test]
    fn a_piece_that_was_written_to_and_is_kept_by_a_round() {
        assert_found(&farsight_node::injected::TOUCHED_PIECE_KEPT, || {
            durable_program::crash_everywhere(PROGRAMS_MAX);
        });
    }

    #[test]
    fn a_segment_that_a_round_removes_before_its_end() {
        assert_found(&farsight_durability::injected::SEGMENT_REMOVED_EARLY, || {
            durable_program::crash_everywhere(PROGRAMS_MAX);
        });
    }

    #[test]
    fn a_recovered_block_that_is_written_over_and_given_back() {
        assert_found(&farsight_index_xstore::injected::OWN_BLOCK_RETIRED, || {
            durable_program::crash_everywhere(PROGRAMS_MAX);
        });
    }

    #[test]
    fn versions_that_recur() {
        assert_found(&farsight_durability::injected::VERSION_REUSED, || {
            durable_program::crash_everywhere(PROGRAMS_MAX);
        });
    }
}
