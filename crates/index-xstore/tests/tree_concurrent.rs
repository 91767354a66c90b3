//! Many threads on one tree: no torn, lost, foreign or outdated value, and a sound structure afterwards.

mod common;

use std::collections::BTreeMap;
use std::thread;

use common::{Fixture, Writing, stamp_of};
use farsight_base::LeafNumber;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicUsize, Ordering};
use farsight_index::{Direction, Pairs};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

const WRITERS: u64 = 4;
/// Under a sanitizer (`portable_words`) a step takes ten times as long. It finds a race by what orders two
/// accesses, not by their meeting, so fewer steps do.
const OPERATIONS: u32 = if cfg!(portable_words) { 10_000 } else { 40_000 };
/// How often a writer fills the tree and empties it.
const FILLS: usize = if cfg!(portable_words) { 3 } else { 10 };
const KEYS: u64 = 3_000;

/// Spreads the test's keys: some one apart, some far, both ends of the key space.
fn key_of(index: u64) -> u64 {
    if index == KEYS - 1 { u64::MAX } else { (index / 100) * (u64::MAX / 40) + index % 100 }
}

/// Reads until all writers are done: each key's version only grows, each value is whole and its key's, and
/// one version has one value.
fn read_on(fixture: &Fixture, seed: u64, writers: &AtomicUsize) {
    let mut random = SplitMix64::new(seed);
    let mut latest: BTreeMap<u64, (u64, u32)> = BTreeMap::new();
    let mut observe = |key: u64, version: u64, stamp: u32| {
        let before = latest.insert(key, (version, stamp)).unwrap_or((0, 0));
        assert!(version >= before.0, "key {key}: version {version} after {}", before.0);
        assert!(version != before.0 || stamp == before.1, "key {key}: two values of version {version}");
    };
    let mut value = vec![0; fixture.value_bytes];
    let mut pairs = Pairs::default();
    while writers.load(Ordering::Acquire) > 0 {
        for _ in 0..50 {
            let key = key_of(random.below(KEYS));
            if let Some(version) = fixture.tree.get(key, &mut value).unwrap() {
                observe(key, version, stamp_of(key, &value));
            }
        }
        pairs.reset(fixture.value_bytes);
        let from = key_of(random.below(KEYS));
        let direction = Direction::ALL[random.below(2) as usize];
        fixture.scan_either_way(direction, from, 150, &mut pairs);
        let mut last = None;
        for pair in pairs.scan(0) {
            let is_behind = last.is_none_or(|last| direction.is_behind(pair.key, last));
            assert!(is_behind && !direction.is_behind(from, pair.key), "a scan out of order");
            last = Some(pair.key);
            observe(pair.key, pair.version, stamp_of(pair.key, pair.value));
        }
    }
}

/// Writes random keys, each `key_of` an index that `pick` gives; returns what must be stored if nobody else
/// wrote.
fn write_on(fixture: &Fixture, seed: u64, pick: impl Fn(&mut SplitMix64) -> u64) -> BTreeMap<u64, u32> {
    let mut random = SplitMix64::new(seed);
    let mut stored = BTreeMap::new();
    for stamp in 0..OPERATIONS {
        let key = key_of(pick(&mut random));
        let value = fixture.value(key, stamp);
        let hint = LeafNumber(random.below(600) as u32);
        // Alternating phases of growth and of removal make splits, compactions and merges meet.
        let removes = if stamp / 5_000 % 2 == 0 { 2 } else { 7 };
        let outcome = if random.below(10) < removes {
            fixture.tree.remove(key, hint)
        } else if stamp % 2 == 0 {
            fixture.tree.put(key, &value, hint)
        } else {
            let mut outcome = None;
            let entry = WriteEntry { key, hint: LeafNumber::NONE, value: &value };
            fixture.tree.write_many(WriteOperation::Put, [entry], |done, _| outcome = Some(done));
            outcome.unwrap()
        };
        match outcome.unwrap() {
            WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_) => stored.insert(key, stamp),
            _ => stored.remove(&key),
        };
    }
    stored
}

fn run(
    value_bytes: usize,
    pick: impl Fn(u64, &mut SplitMix64) -> u64 + Sync,
) -> (Fixture, BTreeMap<u64, u32>) {
    let fixture = Fixture::new(value_bytes, 4_000);
    let writers = AtomicUsize::new(WRITERS as usize);
    let (reading, pick, left) = (&fixture, &pick, &writers);
    let stored = thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn(move || read_on(reading, seed, left));
        }
        let handles: Vec<_> = (0..WRITERS)
            .map(|writer| {
                scope.spawn(move || {
                    let _writing = Writing(left);
                    write_on(reading, 100 + writer, |random| pick(writer, random))
                })
            })
            .collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap()).collect()
    });
    println!("{:?}", fixture.tree.stats());
    (fixture, stored)
}

#[test]
fn writers_of_disjoint_keys_lose_nothing() {
    for value_bytes in [8, 100] {
        let (fixture, stored) =
            run(value_bytes, |writer, random| random.below(KEYS / WRITERS) * WRITERS + writer);
        assert!(fixture.check_structure().iter().eq(stored.keys()));
        let mut value = vec![0; value_bytes];
        for (key, stamp) in &stored {
            fixture.tree.get(*key, &mut value).unwrap().expect("stored");
            assert_eq!(stamp_of(*key, &value), *stamp, "key {key}");
        }
        assert!(fixture.tree.stats().splits > 100 && fixture.tree.stats().merges > 0);
    }
}

#[test]
fn writers_of_the_same_keys_keep_order() {
    for value_bytes in [8, 24] {
        // A third of the writes hit a hundred keys.
        let (fixture, _) =
            run(
                value_bytes,
                |_, random| if random.below(3) == 0 { random.below(100) } else { random.below(KEYS) },
            );
        let mut value = vec![0; value_bytes];
        for key in fixture.check_structure() {
            fixture.tree.get(key, &mut value).unwrap().expect("stored");
            stamp_of(key, &value);
        }
    }
}

#[test]
fn appending_writers_agree() {
    let fixture = Fixture::new(8, 20_000);
    let shared = &fixture;
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || (0..20_000).for_each(|index| shared.insert(index * WRITERS + writer)));
        }
    });
    assert!(fixture.check_structure().into_iter().eq(0..20_000 * WRITERS));
}

#[test]
fn collected_leaves_tile_the_keys_while_the_tree_changes() {
    let fixture = Fixture::new(8, 40_000);
    let writers = AtomicUsize::new(2);
    let (shared, left) = (&fixture, &writers);
    thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn(move || {
                let _writing = Writing(left);
                let mut random = SplitMix64::new(seed);
                for _ in 0..FILLS {
                    let keys: Vec<u64> = (0..10_000).map(|_| random.next_u64()).collect();
                    shared.insert_all(&keys);
                    // In order, so that neighbours merge, and the nodes above them.
                    let mut sorted = keys;
                    sorted.sort_unstable();
                    for key in sorted.iter().filter(|key| **key % 16 > 0) {
                        shared.tree.remove(*key, LeafNumber::NONE).unwrap();
                    }
                }
            });
        }
        scope.spawn(move || {
            while left.load(Ordering::Acquire) > 0 {
                let collected = shared.leaves();
                assert_eq!(collected.low_fences[0], 0);
                assert!(collected.low_fences.is_sorted_by(|a, b| a < b));
            }
        });
    });
    fixture.check_structure();
}
