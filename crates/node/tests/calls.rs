//! Every kind of request and every refusal, through a running server.

mod common;

use std::sync::Arc;

use common::local_host::{LocalClient, LocalHost, MESSAGE_BYTES_MAX};
use common::talk::{definition, value_of};
use farsight_base::LeafNumber;
use farsight_base::prng::SplitMix64;
use farsight_node::{Node, NodeHandle, NodeOptions, TABLES_MAX};
use farsight_protocol::{
    ControlRequest, ErrorCode, HEADER_BYTES, KeyKind, OPERATIONS_MAX, Reply, Request, ServerError,
    SubModelsWanted, TableDefinition, TableId, TableInfo, WriteEntries, WriteEntry, WriteOperation,
    WriteOutcome,
};

const TABLE_MEMORY_BYTES: u64 = 1 << 20;
/// More than one reply describes.
const TABLES: usize = 1_500;

fn start() -> (NodeHandle, Arc<LocalHost>, LocalClient) {
    let host = LocalHost::new();
    let options = NodeOptions { table_memory_bytes: TABLE_MEMORY_BYTES, ..NodeOptions::default() };
    let server = Node::start(vec![host.clone()], &options).unwrap();
    let client = host.connect();
    (server, host, client)
}

fn assert_refused<T: std::fmt::Debug>(result: Result<T, ServerError>, code: ErrorCode, words: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.code, code, "{error}");
    for word in words {
        assert!(error.text.contains(word), "{:?} lacks {word:?}", error.text);
    }
}

#[test]
fn a_table_is_made_once_and_found_by_name() {
    let (_server, _host, client) = start();
    let made = client.create("users", 16);
    assert_eq!(client.create("users", 16), made, "the same definition finds it");
    let opened: TableInfo = client.control(&ControlRequest::OpenTable("users".into())).unwrap();
    assert_eq!(opened, made);
    let other = client.create("orders", 8);
    assert_ne!((other.id, other.region()), (made.id, made.region()));
    let listed: Vec<TableInfo> = client.control(&ControlRequest::ListTables { from: TableId(0) }).unwrap();
    assert_eq!(listed, [made, other]);
}

#[test]
fn tables_that_cannot_be_made_or_found_are_refused_by_name() {
    let (_server, _host, client) = start();
    client.create("users", 16);
    let create = |definition| client.create_as(definition);
    let other = TableDefinition { key_kind: KeyKind::I64, ..definition("users", 24) };
    assert_refused(create(other), ErrorCode::TableExists, &["users", "u64", "16 B", "i64", "24 B"]);
    assert_refused(create(definition("no/slash", 8)), ErrorCode::BadName, &["no/slash", "'/'"]);
    assert_refused(create(definition("", 8)), ErrorCode::BadName, &["1 to 64"]);
    assert_refused(create(definition("small", 7)), ErrorCode::WrongValueSize, &["7 B", "8 to 256 B"]);
    assert_refused(create(definition("large", 257)), ErrorCode::WrongValueSize, &["257 B"]);
    let open = |name: &str| client.control::<TableInfo>(&ControlRequest::OpenTable(name.into()));
    assert_refused(open("nobody"), ErrorCode::UnknownTable, &["nobody", "farsight tables"]);
    let long = "x".repeat(10_000);
    assert!(open(&long).unwrap_err().text.len() < 200, "a long name is not sent back whole");
    for index in 1..TABLES_MAX {
        client.create(&format!("t{index}"), 8);
    }
    assert_refused(create(definition("one-more", 8)), ErrorCode::OutOfResources, &["one-more", "4096"]);
}

#[test]
fn many_tables_are_listed_page_by_page() {
    let (_server, _host, client) = start();
    for index in 0..TABLES {
        client.create(&format!("t{index}"), 8);
    }
    let mut listed: Vec<TableInfo> = Vec::new();
    let mut pages = 0;
    loop {
        let from = TableId(listed.len() as u32);
        let page: Vec<TableInfo> = client.control(&ControlRequest::ListTables { from }).unwrap();
        if page.is_empty() {
            break;
        }
        listed.extend(page);
        pages += 1;
    }
    assert!(pages > 1, "all {} fit one page", listed.len());
    let names: Vec<String> = listed.into_iter().map(|info| info.definition.name).collect();
    assert_eq!(names, (0..TABLES).map(|index| format!("t{index}")).collect::<Vec<_>>());
}

#[test]
fn writes_report_an_outcome_each_and_reads_see_them() {
    let (_server, _host, client) = start();
    for value_bytes in [8, 13, 256] {
        let table = client.create(&format!("v{value_bytes}"), value_bytes);
        let value_bytes = usize::from(value_bytes);
        let entry = |key: u64| (key, LeafNumber::NONE, value_of(key, value_bytes));
        let write = |operation, keys: &[u64]| {
            client
                .write(table.id, operation, &keys.iter().map(|key| entry(*key)).collect::<Vec<_>>())
                .unwrap()
        };
        let inserted = write(WriteOperation::Insert, &[5, 0, u64::MAX, 5]);
        assert!(matches!(inserted[0], WriteOutcome::Inserted(_)));
        let WriteOutcome::Inserted(version) = inserted[0] else { panic!("{inserted:?}") };
        assert_eq!(inserted[3], WriteOutcome::Exists(version), "the second insert of a key");
        let replaced = write(WriteOperation::Update, &[5, 6]);
        assert!(matches!(replaced[0], WriteOutcome::Replaced(newer) if newer > version), "{replaced:?}");
        assert_eq!(replaced[1], WriteOutcome::Absent);
        assert!(matches!(
            write(WriteOperation::Put, &[5, 6])[..],
            [WriteOutcome::Replaced(_), WriteOutcome::Inserted(_)]
        ));
        let values = client.get(&table, &[0, 1, 5, 6, u64::MAX]).unwrap();
        let present = |key| Some(value_of(key, value_bytes));
        assert_eq!(values, [present(0), None, present(5), present(6), present(u64::MAX)]);
        let removed = write(WriteOperation::Remove, &[6, 6]);
        assert!(matches!(removed[..], [WriteOutcome::Removed(_), WriteOutcome::Absent]), "{removed:?}");
        let (pairs, next) = client.scan(&table, 1, 100).unwrap();
        assert_eq!(pairs.iter().map(|pair| pair.0).collect::<Vec<_>>(), [5, u64::MAX]);
        assert_eq!(next, None);
    }
}

#[test]
fn values_of_another_size_are_refused_with_both_sizes() {
    let (_server, _host, client) = start();
    let table = client.create("sized", 16);
    let entries = [(1, LeafNumber::NONE, vec![0; 24])];
    for operation in [WriteOperation::Insert, WriteOperation::Update, WriteOperation::Put] {
        let refused = client.write(table.id, operation, &entries);
        assert_refused(refused, ErrorCode::WrongValueSize, &["\"sized\"", "16 B", "24 B"]);
    }
    assert_eq!(client.get(&table, &[1]).unwrap(), [None]);
}

#[test]
fn every_request_for_an_unknown_table_is_refused_by_number() {
    let (_server, _host, client) = start();
    let known = client.create("known", 8);
    let unknown = TableInfo { id: TableId(77), ..known };
    let words = ["77", "1 table"];
    assert_refused(client.get(&unknown, &[1]), ErrorCode::UnknownTable, &words);
    assert_refused(client.scan(&unknown, 0, 1), ErrorCode::UnknownTable, &words);
    let entry = [(1, LeafNumber::NONE, vec![0; 8])];
    let written = client.write(unknown.id, WriteOperation::Put, &entry);
    assert_refused(written, ErrorCode::UnknownTable, &words);
    assert_refused(client.lookup(&unknown, 1, u32::MAX).map(|_| ()), ErrorCode::UnknownTable, &words);
    assert_refused(client.top_model(unknown.id, 0).map(|_| ()), ErrorCode::UnknownTable, &words);
    assert_refused(
        client.sub_models(unknown.id, 0, SubModelsWanted::Path).map(|_| ()),
        ErrorCode::UnknownTable,
        &words,
    );
    assert_refused(client.load_piece(&unknown, 0, true, &[1]), ErrorCode::UnknownTable, &words);
}

#[test]
fn hints_are_never_believed() {
    let (_server, _host, client) = start();
    let table = client.create("hinted", 8);
    let keys: Vec<u64> = (0..2_000).map(|key| key * 10).collect();
    client.load(&table, &keys);
    let mut random = SplitMix64::new(3);
    for round in 0..2_000 {
        let key = random.below(20_000) | 1;
        let hint = match round % 3 {
            0 => LeafNumber(random.next_u64() as u32),
            1 => LeafNumber(random.below(u64::from(table.capacity_leaves())) as u32),
            _ => LeafNumber(random.below(200) as u32),
        };
        let outcome = client.write(table.id, WriteOperation::Put, &[(key, hint, value_of(key, 8))]).unwrap();
        assert!(matches!(outcome[0], WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_)), "{outcome:?}");
        assert_eq!(client.get(&table, &[key]).unwrap(), [Some(value_of(key, 8))]);
    }
}

#[test]
fn a_scan_longer_than_a_reply_goes_on_from_its_last_key() {
    let (_server, _host, client) = start();
    let table = client.create("long", 200);
    let keys: Vec<u64> = (0..1_000).map(|key| key * 3 + 1).collect();
    client.put(&table, &keys);
    let fitting = (MESSAGE_BYTES_MAX - HEADER_BYTES) / 216;
    let mut found = Vec::new();
    let mut from = Some(0);
    while let Some(key) = from {
        let (pairs, next) = client.scan(&table, key, u16::MAX).unwrap();
        assert!(pairs.len() == fitting || next.is_none(), "{} pairs, {fitting} fit", pairs.len());
        assert!(pairs.iter().all(|(key, _, value)| *value == value_of(*key, 200)));
        found.extend(pairs.iter().map(|pair| pair.0));
        assert!(next.is_none_or(|next| next == found.last().unwrap() + 1));
        from = next;
    }
    assert_eq!(found, keys);
    assert_eq!(client.scan(&table, 7, 0).unwrap(), (Vec::new(), Some(7)));
    assert_eq!(client.scan(&table, u64::MAX, 5).unwrap(), (Vec::new(), None));
    assert_eq!(
        client.scan(&table, 5, 3).unwrap().0.iter().map(|pair| pair.0).collect::<Vec<_>>(),
        [7, 10, 13]
    );
}

#[test]
fn a_get_larger_than_a_reply_is_refused_with_what_fits() {
    let (_server, _host, client) = start();
    let table = client.create("wide", 256);
    let fitting = (MESSAGE_BYTES_MAX - HEADER_BYTES) / 264;
    assert!(client.get(&table, &vec![1; fitting]).unwrap().iter().all(Option::is_none));
    let refused = client.get(&table, &vec![1; fitting + 1]);
    assert_refused(refused, ErrorCode::BadRequest, &[&fitting.to_string(), &(fitting + 1).to_string()]);
    assert_refused(client.get(&table, &vec![1; OPERATIONS_MAX + 1]), ErrorCode::BadRequest, &["1024"]);
}

#[test]
fn a_full_region_fails_inserts_and_nothing_else() {
    let (_server, _host, client) = start();
    let table = client.create("full", 8);
    let mut stored = Vec::new();
    let mut refused = None;
    for key in 0..1_000_000 {
        match client.put(&table, &[key])[0] {
            WriteOutcome::Inserted(_) => stored.push(key),
            WriteOutcome::Failed(code) => {
                refused = Some((key, code));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let (key, code) = refused.expect("1 MiB of leaves is full before a million keys");
    assert_eq!(code, ErrorCode::RegionFull);
    assert!(stored.len() > table.capacity_leaves() as usize * 4, "{} keys", stored.len());
    for keys in stored.chunks(500) {
        let values = client.get(&table, keys).unwrap();
        assert!(values.iter().zip(keys).all(|(value, key)| value.as_deref() == Some(&value_of(*key, 8)[..])));
    }
    assert_eq!(client.get(&table, &[key]).unwrap(), [None]);
    assert!(matches!(client.put(&table, &[3])[0], WriteOutcome::Replaced(_)), "updates need no room");
    let stats = client.stats();
    assert_eq!(stats.tables[0].part().tree.pairs, stored.len() as u64);
}

#[test]
fn swaps_are_executed_as_far_as_their_answer_has_room() {
    let (_server, _host, client) = start();
    client.check_full_answers();
}

#[test]
fn statistics_count_calls_operations_clients_and_pairs() {
    let (_server, host, client) = start();
    let table = client.create("counted", 8);
    let before = client.stats();
    let second = host.connect();
    second.put(&table, &[1, 2, 3]);
    second.get(&table, &[1, 2, 3, 4]).unwrap();
    let after = client.stats();
    assert_eq!(after.calls - before.calls, 4, "two calls of the earlier statistics, a write, a get");
    assert_eq!(after.operations - before.operations, 7);
    assert_eq!((before.clients, after.clients), (1, 2));
    assert_eq!(after.process_id, std::process::id());
    assert!(after.uptime_s >= before.uptime_s && after.cpu_s >= before.cpu_s && after.cpu_s > 0.0);
    let stats = &after.tables[0];
    assert_eq!((&stats.info, stats.part().tree.pairs), (&table, 3));
    assert!(stats.length_bytes() > TABLE_MEMORY_BYTES / 2 && stats.used_bytes() > 0);
    drop(second);
    assert_eq!(client.stats().clients, 1);
}

#[test]
fn garbage_is_always_answered_and_harms_nobody() {
    let (server, _host, client) = start();
    let table = client.create("garden", 24);
    client.put(&table, &(0..500).collect::<Vec<_>>());
    let mut random = SplitMix64::new(17);
    let mut frame = Vec::new();
    for round in 0..60_000 {
        frame.clear();
        if round % 4 == 0 {
            Request::begin_write(&mut frame, table.id, WriteOperation::Put, 2, 24);
            for key in 0..2 {
                WriteEntries::push(
                    &mut frame,
                    WriteEntry { key, hint: LeafNumber(key as u32), value: &[1; 24] },
                );
            }
        } else {
            frame.extend([1 + random.below(8) as u8, random.below(4) as u8, 0, 0]);
            frame.extend((random.below(3) as u32).to_le_bytes());
            frame.extend(random.below(40).to_le_bytes());
            frame.extend((0..random.below(64)).map(|_| random.next_u64() as u8));
        }
        for _ in 0..random.below(4) {
            let at = random.below(frame.len().min(32) as u64) as usize;
            frame[at] = random.next_u64() as u8;
        }
        frame.truncate(frame.len() - random.below(9).min(frame.len() as u64) as usize);
        let reply = client.call(&frame);
        assert!(reply.len() <= MESSAGE_BYTES_MAX);
        if let Err(error) = Reply::decode(&reply).expect("a well-formed reply") {
            assert!(!error.text.is_empty());
        }
    }
    assert_eq!(server.failure(), None);
    let values = client.get(&table, &(2..500).collect::<Vec<_>>()).unwrap();
    assert_eq!(values.len(), 498);
}
