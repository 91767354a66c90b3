//! The cached static tree reads the same leaves as the learned cache and gives the same answers. As the table
//! grows past it, it finds what moved or says that it is too old, and never answers wrongly.

use std::collections::BTreeMap;

use farsight::{Answers, WriteOutcome};
use farsight_base::prng::SplitMix64;
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::harness::XStore;
use farsight_conformance::engine::raw_table::RawTable;
use farsight_index_baselines::{BaselineError, TreeClient};
use farsight_layout::Geometry;
use farsight_oracles::sets;

const TABLE: &str = "t";
const TABLE_BYTES: u64 = 64 << 20;

type Model = BTreeMap<u64, Vec<u8>>;

fn put(server: &XStore, model: &mut Model, keys: &[u64], value_bytes: usize, salt: u64) {
    let table = server.connect().create_table::<u64>(TABLE, value_bytes).expect("the table");
    let mut session = table.session(farsight::Options::default()).expect("a session");
    let pairs: Vec<(u64, Vec<u8>)> = keys
        .iter()
        .map(|key| {
            let mut random = SplitMix64::new(*key ^ salt);
            (*key, (0..value_bytes).map(|_| random.next_u64() as u8).collect())
        })
        .collect();
    let mut outcomes = Vec::new();
    session.put_many(&pairs, &mut outcomes).expect("puts");
    assert!(!outcomes.iter().any(|outcome| matches!(outcome, WriteOutcome::Failed(_))), "{outcomes:?}");
    model.extend(pairs);
}

fn fetch(server: &XStore, raw: &mut RawTable, value_bytes: usize) -> TreeClient {
    let used_bytes = server.server().stats().tables[0].leaves.used_bytes();
    let leaf_bytes = Geometry::new(value_bytes).expect("a value size").leaf_bytes() as u64;
    let blocks = u32::try_from(used_bytes / leaf_bytes).expect("few blocks");
    TreeClient::fetch(&mut raw.queue, raw.info.region(), value_bytes, blocks)
        .expect("a table that nobody writes")
}

/// How many of `keys` the tree was too old for; every answer that it gave is the model's.
fn check(
    tree: &mut TreeClient,
    raw: &mut RawTable,
    model: &Model,
    keys: &[u64],
    value_bytes: usize,
) -> usize {
    let mut value = vec![0; value_bytes];
    let mut stale = 0;
    for key in keys {
        match tree.get(&mut raw.queue, *key, &mut value) {
            Ok(found) => assert_eq!(found.map(|_| &value), model.get(key), "key {key}"),
            Err(BaselineError::Stale { .. }) => stale += 1,
            Err(error) => panic!("key {key}: {error}"),
        }
    }
    let mut answers = Answers::default();
    for batch in keys.chunks(200) {
        match tree.multi_get(&mut raw.queue, batch, &mut answers) {
            Ok(()) => {
                for (key, answer) in batch.iter().zip(answers.iter()) {
                    assert_eq!(
                        answer.map(|(value, _)| value),
                        model.get(key).map(Vec::as_slice),
                        "key {key}"
                    );
                }
            }
            Err(BaselineError::Stale { .. }) if stale > 0 => {}
            Err(error) => panic!("{error}"),
        }
    }
    stale
}

#[test]
fn a_static_tree_answers_as_the_table_does() {
    let seed = Seed::new("a_static_tree_answers_as_the_table_does");
    for value_bytes in [8, 100] {
        let mut random = seed.random(value_bytes as u64);
        for keys in [sets::uniform(&mut random, 5_000), sets::clustered(&mut random, 120, 40)] {
            let keys: Vec<u64> = keys.into_iter().map(|key| key.0).collect();
            let server = XStore::start(TABLE_BYTES, 1);
            let mut model = Model::new();
            put(&server, &mut model, &keys, value_bytes, 1);
            let mut raw = RawTable::open(&server.socket(), TABLE);
            let mut tree = fetch(&server, &mut raw, value_bytes);
            let mut asked = keys.clone();
            asked.extend(keys.iter().map(|key| key ^ 1).chain([0, 1, u64::MAX]));
            assert_eq!(check(&mut tree, &mut raw, &model, &asked, value_bytes), 0);

            // Other values at once, and some splits: found by siblings.
            put(&server, &mut model, &keys[..1_000], value_bytes, 2);
            let between: Vec<u64> = keys.iter().step_by(3).map(|key| key ^ 2).collect();
            put(&server, &mut model, &between, value_bytes, 3);
            asked.extend(between);
            assert_eq!(check(&mut tree, &mut raw, &model, &asked, value_bytes), 0);
        }
    }
}

#[test]
fn a_tree_left_far_behind_says_so_and_a_new_one_does_not() {
    let server = XStore::start(TABLE_BYTES, 1);
    let mut model = Model::new();
    put(&server, &mut model, &[0, u64::MAX], 8, 1);
    let mut raw = RawTable::open(&server.socket(), TABLE);
    let mut old = fetch(&server, &mut raw, 8);
    let keys: Vec<u64> = (0..2_000).map(|key| key << 20).collect();
    put(&server, &mut model, &keys, 8, 2);
    let stale = check(&mut old, &mut raw, &model, &keys, 8);
    assert!(stale > keys.len() / 2, "one leaf became more than a hundred, yet only {stale} keys are too far");
    let mut new = fetch(&server, &mut raw, 8);
    assert_eq!(check(&mut new, &mut raw, &model, &keys, 8), 0);
}
