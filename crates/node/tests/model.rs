//! Models: trained without being asked, sent in pieces, and right about every key.

mod common;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::local_host::{LocalClient, LocalHost};
use common::talk::{Sent, value_of};
use farsight_base::words::copy_stamped;
use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::Region;
use farsight_index::model_of;
use farsight_layout::{Geometry, KEY_LINES, KeyLines, KeySearch, TableEntry};
use farsight_model::{TopKind, TopModel, TrainOptions};
use farsight_node::{Node, NodeHandle, NodeOptions};
use farsight_protocol::{ControlRequest, SubModelsWanted, TableInfo};

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
    parts: HashMap<u32, Sent>,
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
        let (mut parts, mut key) = (HashMap::new(), 0);
        loop {
            let (piece, next) = client.sub_models(table.id, key, SubModelsWanted::AllFrom).unwrap();
            assert_eq!((piece.generation, piece.count as usize), (generation, piece.body.len()));
            assert!(piece.count > 0, "the sub-model of {key} fits a reply");
            parts.extend(piece.body.into_iter().map(|part| (number_of(&part), part)));
            if next == 0 {
                break;
            }
            assert!(next > key, "{next} after {key}");
            key = next;
        }
        Self { generation, top, parts }
    }

    /// The sub-model of `key`.
    fn part(&self, key: u64) -> &Sent {
        let mut number = self.top.dispatch(key);
        loop {
            match &self.parts[&number] {
                Sent::Branch(_, boundaries, children) => {
                    number = children[boundaries.partition_point(|boundary| *boundary <= key)];
                }
                part @ Sent::SubModel(..) => return part,
            }
        }
    }

    /// The leaves where the model believes `key` to be.
    fn candidates(&self, key: u64) -> Vec<TableEntry> {
        candidates(self.part(key), key)
    }

    fn count(&self, is_wanted: fn(&Sent) -> bool) -> u64 {
        self.parts.values().filter(|part| is_wanted(part)).count() as u64
    }
}

fn number_of(part: &Sent) -> u32 {
    let (Sent::SubModel(number, ..) | Sent::Branch(number, ..)) = part;
    *number
}

fn is_sub_model(part: &Sent) -> bool {
    matches!(part, Sent::SubModel(..))
}

fn candidates(part: &Sent, key: u64) -> Vec<TableEntry> {
    let Sent::SubModel(_, record, entries) = part else { panic!("a branch where {key} ends") };
    let model = model_of(record);
    let entry = |position: u32| TableEntry(entries[position as usize]);
    let chosen = model.choose(key, model.predict(key), |position| entry(position).hint());
    chosen.map(entry).collect()
}

/// What the region's bytes say about `key` at these leaves, as a client's READs would find it.
fn is_stored(host: &LocalHost, table: &TableInfo, key: u64, candidates: &[TableEntry]) -> bool {
    let geometry = Geometry::new(table.definition.values.leaf_bytes()).unwrap();
    let region = host.region(table.region());
    for entry in candidates.iter().rev() {
        let first = entry.leaf().0 as usize * geometry.leaf_words();
        let mut lines = [Line::ZERO; KEY_LINES];
        copy_stamped(&region.words()[first..first + KEY_LINES * WORDS_PER_LINE], &mut lines);
        match KeyLines(&lines).search(key) {
            KeySearch::Hit { .. } => return true,
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
    assert!(model.parts.len() > 50, "{} sub-models", model.parts.len());
    for key in &keys {
        assert!(is_stored(&host, &table, *key, &model.candidates(*key)), "key {key}");
        assert!(!is_stored(&host, &table, *key + 1, &model.candidates(*key + 1)), "key {key} + 1");
    }
    for key in [0, u64::MAX] {
        assert!(!is_stored(&host, &table, key, &model.candidates(key)));
    }
    let stats = client.stats().tables[0].part().model;
    assert_eq!((stats.generation, stats.sub_models), (model.generation, model.count(is_sub_model)));
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
        let looked = client.lookup(&table, key, u32::MAX).unwrap();
        let is_present = key % 1_000 == 0;
        assert_eq!(looked.value, is_present.then(|| value_of(key, 100)));
        assert_eq!((looked.generation, looked.sub_models.len()), (model.generation, 1));
        let sent = &looked.sub_models[0];
        assert_eq!(number_of(sent), model.top.dispatch(key));
        assert_eq!(is_stored(&host, &table, key, &candidates(sent, key)), is_present);
    }
}

/// Fifty thousand pairs between two neighbours: one sub-model of the top model becomes a tree of branches.
/// Every sub-model below is small, and a client is sent what it lacks.
#[test]
fn a_sub_model_that_outgrows_its_bound_is_cut_where_it_is() {
    let (_server, host, client) = start(TrainOptions::default());
    let table = client.create("clustered", 8);
    let keys: Vec<u64> = (0..200_000_u64).map(|key| key << 32).collect();
    client.load(&table, &keys);
    wait_until_trained(&client);
    let before = client.stats().tables[0].part().model;
    assert_eq!(before.sub_models_below, 0);
    let low = 70_000_u64 << 32;
    let inserted: Vec<u64> = (1..50_000).map(|key| low + 3 * key).collect();
    client.put(&table, &inserted);
    wait_until_trained(&client);
    let after = client.stats().tables[0].part().model;
    assert_eq!(after.generation, before.generation, "no whole training");
    assert!((100..400).contains(&after.sub_models_below), "{after:?}");
    let model = Gathered::fetch(&client, &table);
    assert_eq!(model.count(is_sub_model), after.sub_models);
    assert!(model.count(|part| !is_sub_model(part)) >= 3, "branches of two levels");
    for part in model.parts.values() {
        match part {
            Sent::SubModel(number, record, _) => assert!(record.leaf_count <= 63, "{number}: {record:?}"),
            Sent::Branch(number, boundaries, children) => {
                assert!(children.len() <= 64 && boundaries.is_sorted_by(|a, b| a < b), "{number}");
            }
        }
    }
    for key in keys.iter().chain(&inserted) {
        assert!(is_stored(&host, &table, *key, &model.candidates(*key)), "key {key}");
    }
    let key = inserted[20_000];
    let number = number_of(model.part(key));
    let sent = |known: u32| client.lookup(&table, key, known).unwrap().sub_models;
    let (all, known) = (sent(u32::MAX), sent(number));
    assert_eq!(
        (number_of(&all[0]), &known[..]),
        (number, &all[..1]),
        "what the client has is not sent again"
    );
    assert!(all.len() >= 3 && all[1..].iter().all(|part| !is_sub_model(part)), "{all:?}");
    assert_eq!(number_of(all.last().unwrap()), model.top.dispatch(key), "the way from the top model");
    assert_eq!(sent(number_of(&all[1])), all[..2], "from the innermost that the client knows");
}

#[test]
fn what_is_asked_for_is_sent() {
    let (_server, _host, client) = start(TrainOptions::default());
    let table = client.create("pieces", 8);
    client.load(&table, &(0..20_000_u64).map(|key| key * 5).collect::<Vec<_>>());
    wait_until_trained(&client);
    let all = Gathered::fetch(&client, &table);
    for key in [0, 50_000, u64::MAX] {
        let own = all.part(key);
        let (path, next) = client.sub_models(table.id, key, SubModelsWanted::Path).unwrap();
        assert_eq!(path.body, std::slice::from_ref(own));
        assert!(next > key || key == u64::MAX && next == 0, "{next}");
        let (beside, _) = client.sub_models(table.id, key, SubModelsWanted::Neighbours).unwrap();
        assert!(beside.body.contains(own) && beside.body.len() <= 32, "{} beside", beside.body.len());
        assert!(beside.body.iter().all(|part| all.parts[&number_of(part)] == *part));
    }
    let (last, next) = client.sub_models(table.id, u64::MAX, SubModelsWanted::AllFrom).unwrap();
    assert_eq!((last.body, next), (vec![all.part(u64::MAX).clone()], 0));
    let top = client.top_model(table.id, 0).unwrap();
    let end = client.top_model(table.id, top.count).unwrap();
    assert_eq!((end.count, end.body.len(), end.generation), (top.count, 0, top.generation));
}

#[test]
fn however_many_leaves_are_asked_for_a_sub_model_fits_a_reply() {
    let target = TrainOptions { target_leaves_per_sub_model: 1 << 20, ..TrainOptions::default() };
    let (_server, host, client) = start(target);
    let table = client.create("huge", 8);
    let keys: Vec<u64> = (0..40_000).collect();
    client.load(&table, &keys);
    wait_until_trained(&client);
    let stats = client.stats().tables[0].part().model;
    assert!(stats.sub_models_below > 10, "{stats:?}");
    let model = Gathered::fetch(&client, &table);
    for key in keys {
        assert!(is_stored(&host, &table, key, &model.candidates(key)), "key {key}");
    }
}

#[test]
fn filled_pieces_of_a_region_are_collapsed_in_the_background() {
    let (_server, _host, client) = start(TrainOptions::default());
    let table = client.create("collapsed", 8);
    client.load(&table, &(0..150_000).collect::<Vec<_>>());
    let start = Instant::now();
    loop {
        let stats = client.stats().tables.swap_remove(table.id.0 as usize);
        let whole = stats.leaves.used_bytes() >> 21 << 21;
        assert!(whole > 0 && stats.huge_page_bytes <= whole, "{stats:?}");
        if stats.huge_page_bytes == whole {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{stats:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
