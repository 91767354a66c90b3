//! Models: trained without being asked, sent in pieces, and right about every key.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::local_host::{LocalClient, LocalHost, MESSAGE_BYTES_MAX};
use common::talk::{SentSubModel, value_of};
use farsight_base::words::copy_stamped;
use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::Region;
use farsight_index::model_of;
use farsight_layout::{Geometry, KEY_LINES, KeyLines, KeySearch, TableEntry};
use farsight_model::{TopKind, TopModel, TrainOptions};
use farsight_node::{Node, NodeHandle, NodeOptions};
use farsight_protocol::{ControlRequest, TableInfo};

fn start(training: TrainOptions) -> (NodeHandle, Arc<LocalHost>, LocalClient) {
    let host = LocalHost::new();
    let options = NodeOptions { table_memory_bytes: 16 << 20, training, ..NodeOptions::default() };
    let server = Node::start(vec![host.clone()], &options).unwrap();
    let client = host.connect();
    (server, host, client)
}

fn wait_until_trained(client: &LocalClient) {
    let start = Instant::now();
    while client.control::<u64>(&ControlRequest::PendingTraining).unwrap() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", client.stats());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A model as a client gathers it.
struct Gathered {
    generation: u64,
    top: TopModel,
    sub_models: Vec<SentSubModel>,
}

impl Gathered {
    fn fetch(client: &LocalClient, table: &TableInfo) -> Self {
        let mut words = Vec::new();
        let generation = loop {
            let piece = client.top_model(table.id, words.len() as u32).unwrap();
            assert!(!piece.body.is_empty(), "{} words of {}", words.len(), piece.count);
            words.extend(&piece.body);
            if words.len() == piece.count as usize {
                break piece.generation;
            }
        };
        let top = TopModel::from_words(&words).unwrap();
        let mut sub_models: Vec<SentSubModel> = Vec::new();
        while sub_models.len() < top.sub_model_count() as usize {
            let piece = client.sub_models(table.id, sub_models.len() as u32, 0).unwrap();
            assert_eq!((piece.generation, piece.count as usize), (generation, piece.body.len()));
            assert!(piece.count > 0, "sub-model {} fits a reply", sub_models.len());
            sub_models.extend(piece.body);
        }
        assert!(sub_models.iter().enumerate().all(|(index, sent)| sent.0 == index as u64));
        Self { generation, top, sub_models }
    }

    /// The leaves where the model believes `key` to be.
    fn candidates(&self, key: u64) -> Vec<TableEntry> {
        candidates(&self.sub_models[self.top.dispatch(key) as usize], key)
    }
}

fn candidates((_, record, entries): &SentSubModel, key: u64) -> Vec<TableEntry> {
    let model = model_of(record);
    let entry = |position: u32| TableEntry(entries[position as usize]);
    let chosen = model.choose(key, model.predict(key), |position| entry(position).hint());
    chosen.map(entry).collect()
}

/// What the region's bytes say about `key` at these leaves, as a client's READs would find it.
fn is_stored(host: &LocalHost, table: &TableInfo, key: u64, candidates: &[TableEntry]) -> bool {
    let geometry = Geometry::new(usize::from(table.definition.value_bytes)).unwrap();
    let region = host.region(table.region());
    for entry in candidates.iter().rev() {
        let first = entry.leaf().0 as usize * geometry.leaf_words();
        let mut lines = [Line::ZERO; KEY_LINES];
        copy_stamped(&region.words()[first..first + KEY_LINES * WORDS_PER_LINE], &mut lines);
        match KeyLines(&lines).search(key) {
            KeySearch::Hit { incarnation, .. } => {
                assert_eq!(entry.incarnation(), incarnation as u16, "key {key}: the entry is current");
                return true;
            }
            KeySearch::Absent => return false,
            KeySearch::Left => {}
            other => panic!("key {key} at {entry:?}: {other:?}"),
        }
    }
    panic!("no candidate of key {key} is its leaf: {candidates:?}");
}

#[test]
fn a_loaded_table_is_trained_and_its_model_finds_every_key() {
    let (_server, host, client) = start(TrainOptions::default());
    let table = client.create("trained", 8);
    let keys: Vec<u64> = (0..40_000_u64).map(|key| key * key * 31 + 5).collect();
    client.load(&table, &keys);
    wait_until_trained(&client);
    let model = Gathered::fetch(&client, &table);
    assert!(model.sub_models.len() > 50, "{} sub-models", model.sub_models.len());
    for key in &keys {
        assert!(is_stored(&host, &table, *key, &model.candidates(*key)), "key {key}");
        assert!(!is_stored(&host, &table, *key + 1, &model.candidates(*key + 1)), "key {key} + 1");
    }
    for key in [0, u64::MAX] {
        assert!(!is_stored(&host, &table, key, &model.candidates(key)));
    }
    let stats = client.stats().tables[0].part().model;
    assert_eq!((stats.generation, stats.sub_models), (model.generation, model.sub_models.len() as u64));
    assert!(stats.training_s > 0.0 && stats.pending == 0, "{stats:?}");
}

#[test]
fn splits_are_retrained_until_the_model_is_right_again() {
    let (_server, host, client) = start(TrainOptions::default());
    let table = client.create("grown", 16);
    let mut keys: Vec<u64> = (0..20_000_u64).map(|key| key << 40).collect();
    client.load(&table, &keys);
    wait_until_trained(&client);
    let before = client.stats().tables[0].part().model;
    let inserted: Vec<u64> = (0..9_000_u64).map(|key| ((2_000 + key) << 40) + 77).collect();
    client.put(&table, &inserted);
    wait_until_trained(&client);
    let after = &client.stats().tables[0];
    assert!(after.part().tree.splits > 100, "{:?}", after.part().tree);
    assert!(
        after.part().model.generation > before.generation || after.part().model.retrained > 0,
        "{:?}",
        after.part().model
    );
    let model = Gathered::fetch(&client, &table);
    keys.extend(inserted);
    for key in keys {
        assert!(is_stored(&host, &table, key, &model.candidates(key)), "key {key}");
    }
}

#[test]
fn a_lookup_brings_the_sub_model_that_finds_the_key_next_time() {
    let (_server, host, client) = start(TrainOptions { top: TopKind::Linear, ..TrainOptions::default() });
    let table = client.create("looked", 100);
    let keys: Vec<u64> = (0..10_000).map(|key| key * 1_000).collect();
    client.load(&table, &keys);
    wait_until_trained(&client);
    let model = Gathered::fetch(&client, &table);
    for key in keys.iter().step_by(37).flat_map(|key| [*key, key + 1]) {
        let looked = client.lookup(&table, key).unwrap();
        let is_present = key % 1_000 == 0;
        assert_eq!(looked.value, is_present.then(|| value_of(key, 100)));
        assert_eq!((looked.generation, looked.sub_models.len()), (model.generation, 1));
        let sent = &looked.sub_models[0];
        assert_eq!(sent.0, u64::from(model.top.dispatch(key)));
        assert_eq!(is_stored(&host, &table, key, &candidates(sent, key)), is_present);
    }
}

#[test]
fn pieces_keep_to_their_bounds() {
    let (_server, _host, client) = start(TrainOptions::default());
    let table = client.create("pieces", 8);
    client.load(&table, &(0..20_000_u64).map(|key| key * 5).collect::<Vec<_>>());
    wait_until_trained(&client);
    let all = Gathered::fetch(&client, &table).sub_models;
    let one = client.sub_models(table.id, 3, 1).unwrap();
    assert_eq!(one.body, all[3..4]);
    let few = client.sub_models(table.id, 5, 9).unwrap();
    assert_eq!(few.body, all[5..14]);
    let last = client.sub_models(table.id, all.len() as u32 - 1, 0).unwrap();
    assert_eq!(last.body, all[all.len() - 1..]);
    for first in [all.len() as u32, u32::MAX] {
        let beyond = client.sub_models(table.id, first, 0).unwrap();
        assert_eq!((beyond.count, beyond.body.len()), (0, 0));
        assert!(beyond.generation > 0);
    }
    let top = client.top_model(table.id, 0).unwrap();
    let end = client.top_model(table.id, top.count).unwrap();
    assert_eq!((end.count, end.body.len(), end.generation), (top.count, 0, top.generation));
}

#[test]
fn a_sub_model_larger_than_a_reply_is_left_out_and_said_so() {
    let target = TrainOptions { target_leaves_per_sub_model: 1 << 20, ..TrainOptions::default() };
    let (_server, _host, client) = start(target);
    let table = client.create("huge", 8);
    let keys: Vec<u64> = (0..40_000).collect();
    client.load(&table, &keys);
    wait_until_trained(&client);
    let stats = &client.stats().tables[0];
    assert!(
        stats.part().model.sub_models < 3 && stats.part().tree.leaves * 8 > MESSAGE_BYTES_MAX as u64,
        "{stats:?}"
    );
    let sent = client.sub_models(table.id, 0, 0).unwrap();
    assert_eq!((sent.count, sent.body.len(), sent.generation), (0, 0, stats.part().model.generation));
    let looked = client.lookup(&table, 20_000).unwrap();
    assert_eq!(looked.value, Some(value_of(20_000, 8)));
    assert_eq!((looked.sub_models.len(), looked.generation), (0, stats.part().model.generation));
}

#[test]
fn filled_pieces_of_a_region_are_collapsed_in_the_background() {
    let (_server, _host, client) = start(TrainOptions::default());
    let table = client.create("collapsed", 8);
    client.load(&table, &(0..150_000).collect::<Vec<_>>());
    let start = Instant::now();
    loop {
        let stats = client.stats().tables.swap_remove(table.id.0 as usize);
        let whole = stats.used_bytes() >> 21 << 21;
        assert!(whole > 0 && stats.huge_page_bytes <= whole, "{stats:?}");
        if stats.huge_page_bytes == whole {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{stats:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
