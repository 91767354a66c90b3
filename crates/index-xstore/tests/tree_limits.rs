//! What a tree refuses: a full region, a load out of order, a value of another size. Nothing is lost by any.

mod common;

use common::{Fixture, stamp_of, value_of};
use farsight_base::prng::mix;
use farsight_base::sync::Ordering;
use farsight_base::{LeafNumber, WORDS_PER_LINE};
use farsight_index::LeafFormat;
use farsight_index_xstore::server::{BulkLoadError, WriteError};
use farsight_layout::{KEY_LINES, KeyLines, PAIR_VERSION_BITS};
use farsight_protocol::WriteOutcome;

#[test]
fn a_full_region_refuses_inserts_and_nothing_else() {
    let fixture = Fixture::new(24, 20);
    let mut stored = Vec::new();
    let refused = (0..)
        .map(mix)
        .find_map(|key| match fixture.tree.insert(key, &fixture.value(key, 1), LeafNumber::NONE) {
            Ok(outcome) => {
                assert!(matches!(outcome, WriteOutcome::Inserted(_)));
                stored.push(key);
                None
            }
            Err(error) => Some((key, error)),
        })
        .unwrap();
    let (key, error) = refused;
    assert!(matches!(error, WriteError::RegionFull { .. }));
    let expected = format!("key {key}: region 7 is full: all of its 20 leaves of 1216 B are in use");
    assert_eq!(error.to_string(), expected);
    assert!(stored.len() > 150, "{} keys in 20 leaves", stored.len());

    stored.sort_unstable();
    assert_eq!(fixture.check_structure(), stored);
    let mut value = vec![0; 24];
    for key in &stored {
        fixture.tree.get(*key, &mut value).unwrap().expect("reads go on");
        assert_eq!(stamp_of(*key, &value), 1);
        fixture.tree.update(*key, &fixture.value(*key, 2), LeafNumber::NONE).expect("updates go on");
    }
    assert_eq!(fixture.tree.get(key, &mut value), Ok(None));

    // One removed pair makes room for one insert into the same leaf, without a block.
    let neighbour = stored[stored.partition_point(|stored| *stored < key) - 1];
    let full_leaf = fixture.tree.stats().compactions;
    fixture.tree.remove(neighbour, LeafNumber::NONE).unwrap();
    fixture
        .tree
        .insert(neighbour, &fixture.value(neighbour, 3), LeafNumber::NONE)
        .expect("a removed slot's room");
    assert_eq!(fixture.tree.stats().compactions, full_leaf + 1);
    assert_eq!(fixture.check_structure(), stored);
}

#[test]
fn versions_end_by_name_and_what_is_stored_stays() {
    let end = 1 << PAIR_VERSION_BITS;
    for value_bytes in [8, 16, 40, 100] {
        let fixture = Fixture::new(value_bytes, 20);
        fixture.insert_all(&[10, 20]);
        fixture.tree.leave_out_versions(end - 4);
        fixture.tree.leave_out_versions(7);
        let put = |key| fixture.tree.put(key, &fixture.value(key, 2), LeafNumber::NONE);
        assert_eq!(put(10), Ok(WriteOutcome::Replaced(end - 3)));
        assert_eq!(put(30), Ok(WriteOutcome::Inserted(end - 2)));
        assert_eq!(put(10), Ok(WriteOutcome::Replaced(end - 1)), "the last version there is");
        for key in [10, 20, 40] {
            let error = put(key).unwrap_err();
            assert!(matches!(error, WriteError::VersionsExhausted { .. }), "{error}");
            let expected = "all 2^48 versions of the table are used up; load it into a new table";
            assert_eq!(error.to_string(), format!("key {key}: {expected}"));
        }
        let mut value = vec![0; value_bytes];
        for (key, version, stamp) in [(10, end - 1, 2), (20, 2, 1), (30, end - 2, 2)] {
            assert_eq!(fixture.tree.get(key, &mut value), Ok(Some(version)));
            assert_eq!(stamp_of(key, &value), stamp);
        }
        assert_eq!(fixture.tree.get(40, &mut value), Ok(None));
        assert_eq!(fixture.check_structure(), [10, 20, 30]);
        assert_eq!(fixture.tree.remove(10, LeafNumber::NONE), Ok(WriteOutcome::Removed(end - 1)));
        assert_eq!(fixture.check_structure(), [20, 30]);
    }
    let fixture = Fixture::new(8, 20);
    fixture.tree.leave_out_versions(end - 50);
    let load = || fixture.tree.bulk_load((0..60).map(|key| (key, [0; 8].as_slice())));
    let refused = load().unwrap_err().to_string();
    assert!(refused.contains("all 2^48 versions of the table are used up"), "{refused}");
    assert!(fixture.check_structure().is_empty(), "what failed left nothing");
}

#[test]
fn a_latch_that_is_never_free_ends_the_wait() {
    let fixture = Fixture::new(8, 4);
    fixture.insert_all(&[10, 20]);
    let words = fixture.tree.slab().block(LeafNumber(0)).unwrap();
    let held = fixture.tree.format().latch(words, 1).unwrap();
    let error = fixture.tree.put(10, &fixture.value(10, 2), LeafNumber(0)).unwrap_err();
    assert_eq!(error.to_string(), "key 10: leaf 0 stayed busy for 4096 attempts");
    let mut value = [0; 8];
    assert!(fixture.tree.get(10, &mut value).unwrap().is_some(), "reads need no latch");
    drop(held);
    assert_eq!(stamp_of(10, &value), 1);
    assert!(matches!(fixture.tree.put(10, &value, LeafNumber(0)), Ok(WriteOutcome::Replaced(_))));
}

#[test]
fn a_leaf_whose_stamps_lost_a_bit_is_mended() {
    for value_bytes in [8, 24, 100] {
        let lines = Fixture::new(value_bytes, 1).tree.format().leaf_words() / WORDS_PER_LINE;
        for (line, bit) in (0..lines).flat_map(|line| [(line, 0), (line, 49), (line, 55)]) {
            let fixture = Fixture::new(value_bytes, 4);
            let keys: Vec<u64> = (1..=12).map(|key| 10 * key).collect();
            fixture.insert_all(&keys);
            let words = fixture.tree.slab().block(LeafNumber(0)).unwrap();
            words[line * WORDS_PER_LINE].fetch_xor(1 << bit, Ordering::Relaxed);
            let mut value = vec![0; value_bytes];
            for key in &keys {
                assert!(fixture.tree.get(*key, &mut value).unwrap().is_some(), "line {line}, bit {bit}");
                assert_eq!(stamp_of(*key, &value), 1);
            }
            assert_eq!(fixture.tree.get(15, &mut value), Ok(None));
            // A line of slots without pairs is met by nobody until it is written.
            assert!(fixture.tree.stats().scrubbed <= 1);
            words[line * WORDS_PER_LINE].fetch_xor(1 << bit, Ordering::Relaxed);
            fixture.tree.put(15, &fixture.value(15, 2), LeafNumber(0)).expect("an insert");
            fixture.tree.put(20, &fixture.value(20, 2), LeafNumber(0)).expect("an update");
            fixture.tree.remove(30, LeafNumber(0)).expect("a remove");
            for (key, expected) in [(10, Some(1)), (15, Some(2)), (20, Some(2)), (30, None), (120, Some(1))] {
                let found = fixture.tree.get(key, &mut value).unwrap();
                assert_eq!(
                    found.map(|_| stamp_of(key, &value)),
                    expected,
                    "key {key}, line {line}, bit {bit}"
                );
            }
            if line < KEY_LINES {
                assert_eq!(fixture.tree.stats().scrubbed, 2, "line {line}, bit {bit}");
            }
        }
    }
}

#[test]
fn values_of_another_size_are_named() {
    let fixture = Fixture::new(24, 4);
    let error = fixture.tree.put(5, &[0; 8], LeafNumber::NONE).unwrap_err();
    assert_eq!(error.to_string(), "key 5: the write brings 8 B, this table's bring 24 B");
}

#[test]
fn a_bulk_load_is_the_same_as_inserts() {
    for count in [0, 1, 11, 12, 13, 24, 25, 400, 12 * 24, 12 * 24 + 1, 20_000] {
        let mut keys: Vec<u64> = (0..count).map(mix).collect();
        if count > 10 {
            keys.extend([0, u64::MAX]);
        }
        keys.sort_unstable();
        keys.dedup();
        let fixture = Fixture::loaded(40, 8_000, &keys);
        assert_eq!(fixture.check_structure(), keys);
        assert_eq!(fixture.tree.leaf_count(), (keys.len() as u64).div_ceil(12).max(1));
        let mut value = vec![0; 40];
        for key in &keys {
            assert!(fixture.tree.get(*key, &mut value).unwrap().is_some());
            assert_eq!(stamp_of(*key, &value), 0);
        }
        let more: Vec<u64> = (count..2 * count + 100).map(mix).collect();
        fixture.insert_all(&more);
        keys.extend(more);
        keys.sort_unstable();
        assert_eq!(fixture.check_structure(), keys);
    }
}

#[test]
fn a_bulk_load_refuses_by_pair_and_key_and_leaves_nothing() {
    let fixture = Fixture::new(8, 10);
    let load = |keys: &[u64]| fixture.tree.bulk_load(keys.iter().map(|key| (*key, [0; 8].as_slice())));
    let ascending: Vec<u64> = (0..100).collect();
    let unsorted = [ascending.as_slice(), &[50]].concat();
    let duplicate = [ascending.as_slice(), &[99]].concat();
    assert_eq!(load(&unsorted), Err(BulkLoadError::Unsorted { index: 100, key: 50, previous: 99 }));
    assert_eq!(load(&duplicate), Err(BulkLoadError::Duplicate { index: 100, key: 99 }));
    let too_many: Vec<u64> = (0..200).collect();
    let full = load(&too_many).unwrap_err().to_string();
    assert_eq!(full, "pair 120: key 120: region 7 is full: all of its 10 leaves of 448 B are in use");
    assert!(fixture.check_structure().is_empty(), "what failed left nothing");
    assert_eq!(load(&ascending).map(|loaded| (loaded.pairs, loaded.leaves)), Ok((100, 9)));
    assert_eq!(load(&ascending), Err(BulkLoadError::NotEmpty { pairs: 100, leaves: 9 }));
    assert_eq!(fixture.check_structure(), ascending);
}

#[test]
fn a_load_that_was_overtaken_gives_its_blocks_back() {
    let fixture = Fixture::new(8, 100);
    let mut loader = fixture.tree.begin_bulk_load().unwrap();
    for key in 0..600 {
        loader.push(key, &value_of(key, 0, 8)).unwrap();
    }
    let mut value = [0; 8];
    assert_eq!(fixture.tree.get(300, &mut value), Ok(None), "nothing is visible before the end");
    // A hint that names a leaf of the load is not taken.
    for hint in 0..60 {
        fixture.tree.put(300, &fixture.value(300, 9), LeafNumber(hint)).unwrap();
    }
    assert_eq!(fixture.tree.stats().hint_hits, 0);
    assert!(matches!(loader.finish(), Err(BulkLoadError::NotEmpty { pairs: 1, .. })));
    assert_eq!(fixture.check_structure(), [300]);
}

/// A writer with a mistaken hint latches a block of the load, or the tree's only leaf, and is preempted for
/// longer than the load waits.
#[test]
fn a_load_that_times_out_at_a_latch_leaves_no_leaf_for_hints() {
    const FILLED: LeafNumber = LeafNumber(1);
    // The block to be filled next, or the leaf that the tree has: a load ends at either.
    for held in [LeafNumber(2), LeafNumber(0)] {
        let fixture = Fixture::new(8, 100);
        let latch = |leaf| {
            let words = fixture.tree.slab().block(leaf).expect("a block");
            fixture.tree.format().latch(words, 1).expect("a free latch")
        };
        let mut loader = fixture.tree.begin_bulk_load().unwrap();
        let mut keys = (0..).step_by(2);
        for key in keys.by_ref().take(30) {
            loader.push(key, &value_of(key, 0, 8)).unwrap();
        }
        assert_eq!(fixture.tree.slab().used_leaves(), 3);
        let latches = [latch(FILLED), latch(held)];
        let error = if held == LeafNumber(0) {
            loader.finish().unwrap_err()
        } else {
            let pushed = keys.find_map(|key| loader.push(key, &value_of(key, 0, 8)).err());
            drop(loader);
            pushed.unwrap()
        };
        assert!(matches!(error, BulkLoadError::Write { error: WriteError::Contended(_), .. }), "{error}");
        assert_eq!(KeyLines(&fixture.key_lines(FILLED)).fences(), None, "the filled block is no leaf");
        assert_eq!(fixture.tree.slab().used_leaves(), 1, "every block of the load is free");
        drop(latches);

        // Of the load's second leaf: a key that it had, and one that it had not.
        for (key, stamp) in [(26, 1), (27, 1), (26, 2)] {
            let value = fixture.value(key, stamp);
            fixture.tree.put(key, &value, FILLED).unwrap();
            let mut found = [0; 8];
            assert!(fixture.tree.get(key, &mut found).unwrap().is_some(), "key {key} was acknowledged");
            assert_eq!(found[..], value);
        }
        assert_eq!(fixture.tree.stats().hint_hits, 0);
        assert_eq!(fixture.check_structure(), [26, 27]);
        // Blocks that nobody holds any more are used again.
        fixture.insert_all(&(100..1_000).collect::<Vec<u64>>());
        assert_eq!(fixture.check_structure().len(), 902);
    }
}
