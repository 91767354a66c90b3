//! The whole way over shared memory: tables made and loaded by calls, read one-sided through the learned
//! cache.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::LeafNumber;
use farsight_fabric::lane::Lane;
use farsight_fabric::{Connection, QueuePair};
use farsight_fabric_shm::{ConnectOptions, ListenOptions, ShmConnection, ShmHost, ShmQueue};
use farsight_index::{Access, Answers, EngineKind, OldValues};
use farsight_index_xstore::client::{XCache, XClient};
use farsight_layout::{FORMAT_VERSION, Geometry};
use farsight_node::{Node, NodeHandle, NodeOptions, StartError};
use farsight_protocol::{
    ControlRequest, KeyKind, NodeHello, PoolPlace, Reply, Request, TableDefinition, TableId, TableInfo,
    TableLayout, WriteEntries, WriteEntry, WriteOperation, WriteOutcome,
};
use serde::de::DeserializeOwned;

const KEYS: u64 = 50_000;

fn start(name: &str) -> (NodeHandle, ShmConnection, ShmQueue) {
    let path = std::env::temp_dir().join(format!("farsight-server-{name}-{}", std::process::id()));
    let host = Arc::new(ShmHost::listen(&path, ListenOptions::new(FORMAT_VERSION)).unwrap());
    let options = NodeOptions { table_memory_bytes: 64 << 20, workers: 2, ..NodeOptions::default() };
    let server = Node::start(vec![host], &options).unwrap();
    let connection = ShmConnection::connect(&path, ConnectOptions::new(FORMAT_VERSION)).unwrap();
    let queue = connection.open_queue().unwrap();
    (server, connection, queue)
}

fn call(queue: &mut ShmQueue, frame: &[u8]) -> Vec<u8> {
    let mut reply = Vec::new();
    Lane::new(queue).block_on(async |slot| slot.call(frame, &mut reply).await).unwrap().unwrap();
    reply
}

fn control<T: DeserializeOwned>(queue: &mut ShmQueue, request: &ControlRequest) -> T {
    let mut frame = Vec::new();
    Request::control(&mut frame, request);
    let reply = call(queue, &frame);
    Reply::decode(&reply).unwrap().unwrap().control().unwrap()
}

fn load(queue: &mut ShmQueue, table: &TableInfo, keys: &[u64]) {
    let pieces: Vec<&[u64]> = keys.chunks(1_000).collect();
    for (number, piece) in pieces.iter().enumerate() {
        let mut frame = Vec::new();
        let last = number + 1 == pieces.len();
        Request::begin_bulk_load(&mut frame, table.id, last, number as u32, piece.len(), 8);
        for key in *piece {
            let value = key.to_le_bytes();
            WriteEntries::push(&mut frame, WriteEntry { key: *key, hint: LeafNumber::NONE, value: &value });
        }
        Reply::decode(&call(queue, &frame)).unwrap().unwrap();
    }
}

fn wait_until_trained(queue: &mut ShmQueue) {
    let start = Instant::now();
    while control::<u64>(queue, &ControlRequest::PendingTraining) > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "training goes on for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn assert_all_present(client: &mut XClient, queue: &mut ShmQueue, keys: &[u64]) {
    let mut answers = Answers::default();
    client.multi_get(queue, keys, &mut answers).unwrap();
    for (key, answer) in keys.iter().zip(answers.iter()) {
        assert_eq!(answer.map(|found| found.0), Some(&key.to_le_bytes()[..]), "key {key}");
    }
}

/// Makes a table on this node alone.
fn create(queue: &mut ShmQueue, definition: TableDefinition) -> TableInfo {
    let hello: NodeHello = control(queue, &ControlRequest::Hello);
    let lines = Geometry::new(definition.values.leaf_bytes()).expect("a geometry").leaf_lines();
    let (engine, block_lines) = (EngineKind::XSTORE.table(&[], 1), lines as u16);
    let layout = TableLayout { definition, engine, block_lines, format_version: FORMAT_VERSION };
    let place = PoolPlace { epochs: vec![hello.epoch], index: 0 };
    control(queue, &ControlRequest::CreateTable { layout, place, id: None })
}

#[test]
fn keys_are_read_without_the_servers_processor() {
    let (server, connection, mut queue) = start("reads");
    let definition = TableDefinition::new("t", KeyKind::U64, 8);
    let table: TableInfo = create(&mut queue, definition);
    let mut keys: Vec<u64> = (0..KEYS).map(|key| key << 30 | key).collect();
    load(&mut queue, &table, &keys);
    wait_until_trained(&mut queue);

    let region_bytes = queue.attach(table.region()).unwrap();
    let cache = XCache::new(&table, region_bytes).unwrap();
    let mut client = XClient::new(Arc::clone(&cache), Access::OneSided);
    client.prefill(&mut queue).unwrap();
    let calls = server.stats().calls;
    assert_all_present(&mut client, &mut queue, &keys);
    assert_eq!(server.stats().calls, calls, "{:?}: not one of {KEYS} gets was a call", client.counters());

    // A second session writes; the first reads on with what it has cached.
    let mut writer_queue = connection.open_queue().unwrap();
    writer_queue.attach(table.region()).unwrap();
    let mut writer = XClient::new(cache, Access::OneSided);
    let inserted: Vec<u64> = (0..KEYS).map(|key| key << 30 | 1 << 29).collect();
    let values: Vec<[u8; 8]> = inserted.iter().map(|key| key.to_le_bytes()).collect();
    let entries: Vec<(u64, &[u8])> =
        inserted.iter().copied().zip(values.iter().map(|value| &value[..])).collect();
    let mut outcomes = Vec::new();
    writer
        .write(
            &mut writer_queue,
            WriteOperation::Insert,
            entries.iter().copied(),
            &mut outcomes,
            &mut OldValues::default(),
        )
        .unwrap();
    assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Inserted(_))));
    keys.extend(inserted);
    assert_all_present(&mut client, &mut queue, &keys);
    wait_until_trained(&mut queue);
    assert_all_present(&mut client, &mut queue, &keys);
    let stats = server.stats();
    assert_eq!((stats.clients, stats.tables[0].part().tree.pairs), (1, 2 * KEYS));
    assert!(stats.tables[0].part().tree.hint_hits > KEYS / 4, "{:?}", stats.tables[0].part().tree);

    // The reader requests the sub-models from which it had to walk beside its GETs, until none is left.
    let start = Instant::now();
    loop {
        let before = client.counters().sibling_steps;
        assert_all_present(&mut client, &mut queue, &keys);
        if client.counters().sibling_steps == before {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", client.counters());
    }
}

#[test]
fn a_session_that_only_writes_comes_to_its_hints() {
    let (server, _connection, mut queue) = start("writes");
    let definition = TableDefinition::new("t", KeyKind::U64, 8);
    let table: TableInfo = create(&mut queue, definition);
    let keys: Vec<u64> = (0..KEYS).map(|key| key << 30 | key).collect();
    load(&mut queue, &table, &keys);
    wait_until_trained(&mut queue);
    let region_bytes = queue.attach(table.region()).unwrap();
    let mut writer = XClient::new(XCache::new(&table, region_bytes).unwrap(), Access::OneSided);
    let hint_hits = || server.stats().tables[0].part().tree.hint_hits;
    let mut update_all = || {
        let entries = keys.iter().map(|key| (*key, &[7; 8][..]));
        let mut outcomes = Vec::new();
        writer
            .write(&mut queue, WriteOperation::Update, entries, &mut outcomes, &mut OldValues::default())
            .unwrap();
        assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Replaced(_))));
    };
    assert_eq!(hint_hits(), 0);
    update_all();
    let before = hint_hits();
    update_all();
    assert!(hint_hits() - before > KEYS * 9 / 10, "{} of {KEYS} by hint", hint_hits() - before);
}

#[test]
fn a_stopped_server_ends_its_clients_calls() {
    let (server, _connection, mut queue) = start("stops");
    assert!(
        control::<Vec<TableInfo>>(&mut queue, &ControlRequest::ListTables { from: TableId(0) }).is_empty()
    );
    server.shutdown().unwrap();
    let mut frame = Vec::new();
    Request::control(&mut frame, &ControlRequest::ListTables { from: TableId(0) });
    let start = Instant::now();
    let mut reply = Vec::new();
    let ended = Lane::new(&mut queue).block_on(async |slot| slot.call(&frame, &mut reply).await);
    assert!(!matches!(ended, Ok(Ok(()))), "a call to a server that is gone");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// A mapping of this process, by the kernel's word.
struct Mapped {
    addresses: Range<u64>,
    /// True of a region's file; what a region may grow to lies behind those, on none.
    is_file: bool,
    resident_bytes: u64,
}

fn mappings() -> Vec<Mapped> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found: Vec<Mapped> = Vec::new();
    for line in smaps.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap();
        if first == "Rss:" {
            let kibibytes: u64 = words.next().unwrap().parse().unwrap();
            found.last_mut().unwrap().resident_bytes = kibibytes << 10;
        } else if let Some((begin, end)) = first.split_once('-').filter(|_| !first.ends_with(':')) {
            let address = |text| u64::from_str_radix(text, 16).unwrap();
            let is_file = line.contains("/memfd:farsight-region");
            found.push(Mapped { addresses: address(begin)..address(end), is_file, resident_bytes: 0 });
        }
    }
    found
}

/// Bytes in memory of each region of so many bytes that this process has.
fn resident_bytes(region_bytes: u64) -> Vec<u64> {
    let mappings = mappings();
    let mut found = Vec::new();
    let mut rest = &mappings[..];
    while let Some((first, behind)) = rest.split_first() {
        // The last mapping may lie at the end of all addresses.
        let end = first.addresses.start.saturating_add(region_bytes);
        let count = rest.iter().take_while(|mapped| mapped.addresses.end <= end).count();
        let region = &rest[..count];
        let has_gap = region.windows(2).any(|pair| pair[0].addresses.end != pair[1].addresses.start);
        let is_region =
            first.is_file && !has_gap && region.last().is_some_and(|last| last.addresses.end == end);
        if is_region {
            found.push(region.iter().map(|mapped| mapped.resident_bytes).sum());
        }
        rest = if is_region { &rest[count..] } else { behind };
    }
    found.sort_unstable();
    found
}

#[test]
fn memory_is_taken_before_the_first_table() {
    // No other test has regions of this size.
    let table_memory_bytes = 38 << 20;
    let path = std::env::temp_dir().join(format!("farsight-server-prefault-{}", std::process::id()));
    let listen = || Arc::new(ShmHost::listen(&path, ListenOptions::new(FORMAT_VERSION)).unwrap());
    let prefault_bytes = vec![10 << 20, 4 << 10, u64::MAX];
    let options = NodeOptions { table_memory_bytes, prefault_bytes, ..NodeOptions::default() };
    let mut said = Vec::new();
    let mut say = |bytes| {
        said.push(bytes);
        ControlFlow::Continue(())
    };
    let server = Node::start_reporting(vec![listen()], &options, &mut say).unwrap();
    assert_eq!(said, [10 << 20, (10 << 20) + 4096, (48 << 20) + 4096]);
    // What is on huge pages is rounded up to them.
    let resident = resident_bytes(table_memory_bytes);
    assert!(resident[0] == 4096 || resident[0] == 2 << 20, "{resident:?}");
    assert_eq!(resident[1..], [10 << 20, 38 << 20]);

    let connection = ShmConnection::connect(&path, ConnectOptions::new(FORMAT_VERSION)).unwrap();
    let mut queue = connection.open_queue().unwrap();
    let regions = ["a", "b", "c", "d"].map(|name| {
        let definition = TableDefinition::new(name, KeyKind::U64, 8);
        create(&mut queue, definition).region().0
    });
    // Each table has a region of models, too, which is made with the table.
    assert_eq!(regions.map(|region| region - regions[0]), [0, 1, 2, 6]);
    assert_eq!(resident_bytes(table_memory_bytes).len(), 4, "the fourth table has a region of its own");
    let leaves = server.stats().tables[0].leaves;
    assert_eq!(leaves.capacity, table_memory_bytes / leaves.block_bytes);
}

#[test]
fn taking_memory_can_be_ended() {
    let path = std::env::temp_dir().join(format!("farsight-server-ended-{}", std::process::id()));
    let host = Arc::new(ShmHost::listen(&path, ListenOptions::new(FORMAT_VERSION)).unwrap());
    let options = NodeOptions {
        table_memory_bytes: 1 << 20,
        prefault_bytes: vec![1 << 20; 3],
        ..NodeOptions::default()
    };
    let mut until = |bytes| if bytes < 2 << 20 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    let ended = Node::start_reporting(vec![host], &options, &mut until).err().expect("it was ended");
    let StartError::Ended { taken_bytes, wanted_bytes } = ended else { panic!("{ended}") };
    assert_eq!((taken_bytes, wanted_bytes), (2 << 20, 3 << 20));
}

#[test]
fn memory_that_is_not_there_is_not_taken() {
    let path = std::env::temp_dir().join(format!("farsight-server-short-{}", std::process::id()));
    let host = Arc::new(ShmHost::listen(&path, ListenOptions::new(FORMAT_VERSION)).unwrap());
    let options = NodeOptions {
        table_memory_bytes: 1 << 46,
        prefault_bytes: vec![1 << 40, 1 << 45],
        ..NodeOptions::default()
    };
    let refused = Node::start(vec![host], &options).err().expect("nobody has so much");
    let StartError::Memory { wanted_bytes, available_bytes } = refused else { panic!("{refused}") };
    assert!(wanted_bytes == 33 << 40 && available_bytes < wanted_bytes, "{refused}");
}
