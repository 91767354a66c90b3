//! The tree against a `BTreeMap`: every operation, adversarial keys, several value sizes.

mod common;

use std::collections::BTreeMap;

use common::{Fixture, stamp_of};
use farsight_base::LeafNumber;
use farsight_base::prng::{SplitMix64, mix};
use farsight_index::{Answers, Direction, Pairs};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

type Model = BTreeMap<u64, (u64, u32)>;

const OPERATIONS: [WriteOperation; 4] =
    [WriteOperation::Insert, WriteOperation::Update, WriteOperation::Put, WriteOperation::Remove];

/// Keys at the edges of integers and floats, one apart, and in clusters.
fn edges() -> Vec<u64> {
    let centres = [0, 1 << 31, 1 << 32, 1 << 53, 1 << 63, u64::MAX];
    centres
        .iter()
        .flat_map(|centre| (0..60).map(move |step| centre.wrapping_add(step).wrapping_sub(30)))
        .collect()
}

fn pools() -> Vec<(&'static str, Vec<u64>)> {
    let mut clusters: Vec<u64> =
        (0..3_000).map(|index| (mix(index / 300) & !0xffff_ffff) + mix(index) % 5_000).collect();
    clusters.sort_unstable();
    clusters.dedup();
    vec![
        ("one leaf", (0..20).collect()),
        ("few leaves", (u64::MAX - 90..=u64::MAX).collect()),
        ("dense", (0..4_000).collect()),
        ("edges", edges()),
        ("clusters", clusters),
        ("uniform", (0..6_000).map(mix).collect()),
    ]
}

/// What the model says to a write, and the model after it; versions are checked by the caller.
fn apply(
    model: &mut Model,
    operation: WriteOperation,
    key: u64,
    stamp: u32,
    outcome: WriteOutcome,
    last: &mut u64,
) {
    let mut fresh = |version: u64| {
        assert!(version > *last, "version {version} does not grow from {last}");
        *last = version;
        version
    };
    let present = model.get(&key).copied();
    match (operation, present, outcome) {
        (WriteOperation::Insert | WriteOperation::Put, None, WriteOutcome::Inserted(version))
        | (WriteOperation::Update | WriteOperation::Put, Some(_), WriteOutcome::Replaced(version)) => {
            model.insert(key, (fresh(version), stamp));
        }
        (WriteOperation::Insert, Some((version, _)), WriteOutcome::Exists(found)) => {
            assert_eq!(found, version);
        }
        (WriteOperation::Remove, Some((version, _)), WriteOutcome::Removed(found)) => {
            assert_eq!(found, version);
            model.remove(&key);
        }
        (WriteOperation::Update | WriteOperation::Remove, None, WriteOutcome::Absent) => {}
        other => panic!("key {key}: {other:?}"),
    }
}

fn check_against(fixture: &Fixture, model: &Model, pool: &[u64], random: &mut SplitMix64) {
    let keys = fixture.check_structure();
    assert!(keys.iter().eq(model.keys()));
    let mut value = vec![0; fixture.value_bytes];
    let mut answers = Answers::default();
    fixture.tree.get_many(pool, &mut answers).unwrap();
    for (key, answer) in pool.iter().zip(answers.iter()) {
        let expected = model.get(key).copied();
        let found = fixture.tree.get(*key, &mut value).unwrap();
        assert_eq!(found.map(|version| (version, stamp_of(*key, &value))), expected, "key {key}");
        assert_eq!(answer.map(|(value, version)| (version, stamp_of(*key, value))), expected, "key {key}");
    }
    for limit in [0, 1, 7, 100, usize::MAX] {
        let from = pool[random.below(pool.len() as u64) as usize].wrapping_sub(random.below(3));
        check_scan(fixture, model, from, limit);
    }
    check_scan(fixture, model, 0, usize::MAX);
}

fn check_scan(fixture: &Fixture, model: &Model, from: u64, limit: usize) {
    for direction in Direction::ALL {
        let mut pairs = Pairs::default();
        pairs.reset(fixture.value_bytes);
        fixture.scan_either_way(direction, from, limit, &mut pairs);
        let pairs = pairs.scan(0).map(|pair| (pair.key, (pair.version, stamp_of(pair.key, pair.value))));
        let owned = |(key, pair): (&u64, &(u64, u32))| (*key, *pair);
        let expected: Vec<_> = match direction {
            Direction::Ascending => model.range(from..).take(limit).map(owned).collect(),
            Direction::Descending => model.range(..=from).rev().take(limit).map(owned).collect(),
        };
        assert_eq!(pairs.collect::<Vec<_>>(), expected, "{direction:?} from {from}, limit {limit}");
    }
}

#[test]
fn random_operations_agree_with_a_map() {
    for value_bytes in [8, 24, 100] {
        for (name, pool) in pools() {
            let fixture = Fixture::new(value_bytes, 8_000);
            let mut random = SplitMix64::new(value_bytes as u64);
            let mut model = Model::new();
            let mut last_version = 0;
            // Phases that grow the tree, shake it, empty it, and grow it again from freed blocks.
            for (phase, removes_percent) in [10, 45, 95, 10].into_iter().enumerate() {
                for stamp in 0..3 * pool.len() as u32 {
                    let key = pool[random.below(pool.len() as u64) as usize];
                    let operation = if random.below(100) < removes_percent {
                        WriteOperation::Remove
                    } else {
                        OPERATIONS[random.below(3) as usize]
                    };
                    let value = fixture.value(key, stamp);
                    // Any number may come as a hint.
                    let hint = match random.below(3) {
                        0 => LeafNumber(random.below(20) as u32),
                        1 => LeafNumber(random.next_u64() as u32),
                        _ => LeafNumber::NONE,
                    };
                    let outcome = match operation {
                        WriteOperation::Insert => fixture.tree.insert(key, &value, hint),
                        WriteOperation::Update => fixture.tree.update(key, &value, hint),
                        WriteOperation::Put => fixture.tree.put(key, &value, hint),
                        WriteOperation::Remove => fixture.tree.remove(key, hint),
                        other => unreachable!("{other:?} is none of OPERATIONS"),
                    };
                    apply(&mut model, operation, key, stamp, outcome.unwrap(), &mut last_version);
                }
                println!("{value_bytes} B, {name}, phase {phase}: {:?}", fixture.tree.stats());
                check_against(&fixture, &model, &pool, &mut random);
            }
            if pool.len() > 1_000 {
                assert!(fixture.tree.stats().merges > 10, "{name}: leaves with few pairs are merged");
                assert!(fixture.tree.stats().compactions > 0 && fixture.tree.stats().hint_hits > 0);
            }
        }
    }
}

#[test]
fn batches_agree_with_a_map() {
    for (_, pool) in pools() {
        let fixture = Fixture::new(16, 8_000);
        let mut random = SplitMix64::new(5);
        let mut model = Model::new();
        let mut last_version = 0;
        for stamp in 0..60 {
            let operation = OPERATIONS[if stamp < 20 { 0 } else { random.below(4) as usize }];
            let keys: Vec<u64> =
                (0..random.below(200)).map(|_| pool[random.below(pool.len() as u64) as usize]).collect();
            let values: Vec<Vec<u8>> = keys.iter().map(|key| fixture.value(*key, stamp)).collect();
            let entries = keys.iter().zip(&values).map(|(key, value)| WriteEntry {
                key: *key,
                hint: LeafNumber(random.below(40) as u32),
                value: if operation.has_value() { value } else { &[] },
            });
            let mut outcomes = Vec::new();
            fixture.tree.write_many(operation, entries, |outcome, _| outcomes.push(outcome.unwrap()));
            assert_eq!(outcomes.len(), keys.len());
            for (key, outcome) in keys.iter().zip(outcomes) {
                apply(&mut model, operation, *key, stamp, outcome, &mut last_version);
            }
        }
        check_against(&fixture, &model, &pool, &mut random);
    }
}

#[test]
fn ascending_inserts_fill_leaves() {
    for base in [0, 1 << 62] {
        let fixture = Fixture::new(8, 20_000);
        if base > 0 {
            // The run lies between other keys, not at the end.
            fixture.insert(u64::MAX);
        }
        for key in 0..100_000 {
            fixture.insert(base + key);
        }
        fixture.check_structure();
        let per_leaf = 100_000.0 / fixture.tree.leaf_count() as f64;
        assert!(per_leaf > 13.5, "{per_leaf} pairs a leaf");
    }
}

#[test]
fn an_emptied_tree_keeps_few_leaves_and_grows_again() {
    let fixture = Fixture::new(8, 20_000);
    let mut keys: Vec<u64> = (0..50_000).map(mix).collect();
    fixture.insert_all(&keys);
    let full = fixture.tree.leaf_count();
    keys.reverse();
    for key in &keys {
        fixture.tree.remove(*key, LeafNumber::NONE).unwrap();
    }
    assert!(fixture.check_structure().is_empty());
    let left = fixture.tree.leaf_count();
    assert!(left * 8 < full, "{left} of {full} leaves stay");
    fixture.insert_all(&keys);
    assert_eq!(fixture.check_structure().len(), keys.len());
}

#[test]
fn leaves_of_a_run_are_those_of_its_keys() {
    let mut random = SplitMix64::fresh();
    let keys: Vec<u64> = (0..40_000).map(|key| key * 1_000_003).collect();
    let fixture = Fixture::loaded(8, 8_000, &keys);
    let (mut one_by_one, mut run) = (Vec::new(), Vec::new());
    for count in [0, 1, 7, 64, 1000] {
        let mut keys: Vec<u64> = (0..count).map(|_| random.below(41_000 * 1_000_003)).collect();
        keys.extend([0, u64::MAX]);
        // In any order, and ascending.
        for _ in 0..2 {
            fixture.tree.leaves_of(&keys, &mut one_by_one);
            fixture.tree.leaves_of_run(&keys, &mut run);
            assert_eq!(run, one_by_one, "of {keys:?}");
            keys.sort_unstable();
        }
    }
}
