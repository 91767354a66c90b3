//! Bulk loads: in pieces, in order, into an empty table, visible at the end.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::local_host::{LocalClient, LocalHost};
use common::talk::value_of;
use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_fabric::Region as _;
use farsight_layout::{Geometry, OWNER_WORD};
use farsight_node::{Node, NodeHandle, NodeOptions};
use farsight_protocol::{ErrorCode, ServerError, TableInfo, WriteOperation, WriteOutcome};

fn start() -> (NodeHandle, Arc<LocalHost>, LocalClient) {
    let host = LocalHost::new();
    let options = NodeOptions { table_memory_bytes: 1 << 20, ..NodeOptions::default() };
    let server = Node::start(vec![host.clone()], &options).unwrap();
    let client = host.connect();
    (server, host, client)
}

fn assert_bad_load(result: Result<u64, ServerError>, words: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.code, ErrorCode::BadLoad, "{error}");
    for word in words {
        assert!(error.text.contains(word), "{:?} lacks {word:?}", error.text);
    }
}

fn assert_holds_exactly(client: &LocalClient, table: &TableInfo, keys: &[u64]) {
    let value_bytes = table.definition.values.leaf_bytes();
    let mut found = Vec::new();
    let mut from = Some(0);
    while let Some(key) = from {
        let (pairs, next) = client.scan(table, key, u16::MAX).unwrap();
        for (key, _, value) in &pairs {
            assert_eq!(*value, value_of(*key, value_bytes));
            found.push(*key);
        }
        from = next;
    }
    assert_eq!(found, keys);
}

#[test]
fn pieces_become_visible_together_at_the_last() {
    let (_server, _host, client) = start();
    let table = client.create("loaded", 8);
    let keys: Vec<u64> = (0..900).map(|key| key * key).collect();
    assert_eq!(client.load_piece(&table, 0, false, &keys[..400]).unwrap(), 400);
    assert_eq!(client.load_piece(&table, 1, false, &keys[400..800]).unwrap(), 800);
    assert_holds_exactly(&client, &table, &[]);
    assert_eq!(client.load_piece(&table, 2, true, &keys[800..]).unwrap(), 900);
    assert_holds_exactly(&client, &table, &keys);
    assert_eq!(client.stats().tables[0].part().tree.pairs, 900);
    assert!(matches!(
        client.put(&table, &[0, 2])[..],
        [WriteOutcome::Replaced(_), WriteOutcome::Inserted(_)]
    ));
}

#[test]
fn an_empty_last_piece_ends_a_load() {
    let (_server, _host, client) = start();
    let table = client.create("ended", 24);
    client.load_piece(&table, 0, false, &[1, u64::MAX]).unwrap();
    assert_eq!(client.load_piece(&table, 1, true, &[]).unwrap(), 2);
    assert_holds_exactly(&client, &table, &[1, u64::MAX]);
    let empty = client.create("empty", 24);
    assert_eq!(client.load_piece(&empty, 0, true, &[]).unwrap(), 0);
    assert_holds_exactly(&client, &empty, &[]);
}

#[test]
fn keys_that_do_not_ascend_are_named_and_end_the_load() {
    let (_server, _host, client) = start();
    let table = client.create("order", 8);
    client.load_piece(&table, 0, false, &[1, 5, 9]).unwrap();
    let words = ["\"order\"", "piece 1", "pair 4", "key 8", "10"];
    assert_bad_load(client.load_piece(&table, 1, true, &[10, 8]), &words);
    assert_bad_load(client.load_piece(&table, 2, true, &[11]), &["piece 2", "expected piece 0"]);
    assert_bad_load(client.load_piece(&table, 0, true, &[3, 3]), &["piece 0", "pair 1", "key 3"]);
    assert_holds_exactly(&client, &table, &[]);
    client.load(&table, &[4, 6]);
    assert_holds_exactly(&client, &table, &[4, 6]);
}

#[test]
fn pieces_come_in_order_from_one_client() {
    let (_server, host, client) = start();
    let table = client.create("single", 8);
    assert_bad_load(client.load_piece(&table, 1, false, &[1]), &["piece 1", "expected piece 0"]);
    client.load_piece(&table, 0, false, &[1, 2]).unwrap();
    let other = host.connect();
    assert_bad_load(other.load_piece(&table, 1, false, &[3]), &["another client"]);
    client.load_piece(&table, 1, false, &[3]).unwrap();
    assert_bad_load(client.load_piece(&table, 3, false, &[4]), &["piece 3", "expected piece 2"]);
    client.load_piece(&table, 0, false, &[1, 2]).unwrap();
    other.load_piece(&table, 0, false, &[7]).unwrap();
    assert_bad_load(client.load_piece(&table, 1, true, &[3]), &["another client"]);
    other.load_piece(&table, 1, true, &[8]).unwrap();
    assert_holds_exactly(&client, &table, &[7, 8]);
}

#[test]
fn only_an_empty_table_is_loaded() {
    let (_server, _host, client) = start();
    let table = client.create("used", 8);
    client.put(&table, &[5]);
    assert_bad_load(client.load_piece(&table, 0, true, &[1]), &["\"used\"", "piece 0", "1 pairs"]);
    assert_holds_exactly(&client, &table, &[5]);
    let raced = client.create("raced", 8);
    client.load_piece(&raced, 0, false, &[1, 2]).unwrap();
    client.put(&raced, &[9]);
    assert_bad_load(client.load_piece(&raced, 1, true, &[3]), &["piece 1", "a write to the table"]);
    assert_holds_exactly(&client, &raced, &[9]);
}

#[test]
fn a_load_larger_than_the_region_is_refused_and_gives_everything_back() {
    let (_server, _host, client) = start();
    let table = client.create("small", 8);
    let most = u64::from(table.capacity_leaves()) * 16;
    let mut piece = 0;
    let mut key = 0;
    let error = loop {
        let keys: Vec<u64> = (key..key + 400).collect();
        match client.load_piece(&table, piece, false, &keys) {
            Ok(_) => (piece, key) = (piece + 1, key + 400),
            Err(error) => break error,
        }
        assert!(key < most, "{key} pairs in {} leaves", table.capacity_leaves());
    };
    assert_eq!(error.code, ErrorCode::RegionFull, "{error}");
    assert!(error.text.contains("\"small\"") && error.text.contains("is full"), "{error}");
    let keys: Vec<u64> = (0..1_000).collect();
    client.load(&table, &keys);
    assert_holds_exactly(&client, &table, &keys);
}

#[test]
fn a_load_ends_with_its_client_and_with_no_other() {
    let (server, host, client) = start();
    let table = client.create("left", 8);
    let used_bytes = || server.stats().tables[0].leaves.used_bytes();
    let empty_bytes = used_bytes();
    let loader = host.connect();
    let keys: Vec<u64> = (0..400).collect();
    loader.load_piece(&table, 0, false, &keys).unwrap();
    let loading_bytes = used_bytes();
    assert!(loading_bytes > empty_bytes + 10 * 448, "{loading_bytes} B for 400 pairs");
    for _ in 0..10 {
        drop(host.connect());
        std::thread::sleep(Duration::from_millis(2));
    }
    loader.load_piece(&table, 1, false, &[400]).expect("the load goes on beside others' ends");
    assert!(used_bytes() >= loading_bytes);
    drop(loader);
    let begun = Instant::now();
    while used_bytes() > empty_bytes {
        assert!(begun.elapsed() < Duration::from_secs(30), "{} B are still used", used_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_holds_exactly(&client, &table, &[]);
}

#[test]
fn values_of_another_size_are_refused() {
    let (_server, _host, client) = start();
    let table = client.create("sized", 8);
    let lie = TableInfo { definition: common::talk::definition("sized", 16), ..table.clone() };
    let error = client.load_piece(&lie, 0, true, &[1]).unwrap_err();
    assert_eq!(error.code, ErrorCode::WrongValueSize);
    assert!(error.text.contains("8 B") && error.text.contains("16 B"), "{error}");
    let none = client.write(table.id, WriteOperation::Remove, &[(1, LeafNumber::NONE, Vec::new())]).unwrap();
    assert_eq!(none, [WriteOutcome::Absent]);
}

/// A latch of a block that the load has filled, and of one that it fills next, held for longer than it waits.
#[test]
fn a_load_that_times_out_at_a_latch_loses_no_write_behind_a_hint() {
    let (server, host, client) = start();
    let table = client.create("held", 8);
    let used_bytes = || server.stats().tables[0].leaves.used_bytes();
    let empty_bytes = used_bytes();
    let leaf_words = Geometry::new(8).unwrap().leaf_words();
    let region = host.region(table.region());
    let owner = |leaf: usize| &region.words()[leaf * leaf_words + OWNER_WORD];
    let keys: Vec<u64> = (0..400).map(|key| 2 * key).collect();
    client.load_piece(&table, 0, false, &keys[..200]).unwrap();
    let last = ((used_bytes() - empty_bytes) / (8 * leaf_words as u64)) as usize;
    for leaf in [1, last] {
        owner(leaf).fetch_or(1, Ordering::Relaxed);
    }
    let error = client.load_piece(&table, 1, true, &keys[200..]).unwrap_err();
    assert_eq!(error.code, ErrorCode::Contended, "{error}");
    assert_eq!(used_bytes(), empty_bytes, "every block of the load is free");
    for leaf in [1, last] {
        assert_eq!(owner(leaf).fetch_and(!1, Ordering::Relaxed) & 1, 1, "the latch is its holder's");
    }

    // The load's second leaf began behind its twelfth pair.
    let entry = (2 * 12 + 1, LeafNumber(1), value_of(2 * 12 + 1, 8));
    let outcomes = client.write(table.id, WriteOperation::Insert, &[entry]).unwrap();
    assert!(matches!(outcomes[..], [WriteOutcome::Inserted(_)]), "{outcomes:?}");
    assert_holds_exactly(&client, &table, &[2 * 12 + 1]);
}
