//! Models of the server's writers against readers without latches, under shuttle. A leaf has too many words
//! for loom, which has tried the line that each of them is made of.

use std::sync::Arc;

use farsight_base::injection::assert_found;
use farsight_base::sync::model::{check, thread};
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{LeafNumber, RegionId};
use farsight_fabric::Region;
use farsight_index::{Direction, LeafAnswer, LeafFormat, Pairs};
use farsight_layout::injected;

use super::{ModelStore, XStoreLeaf, XTree};

/// Looks at one leaf that a reader of a model takes at most.
const LOOKS_MAX: usize = 64;

struct Words(Vec<AtomicU64>);

impl Region for Words {
    fn id(&self) -> RegionId {
        RegionId(0)
    }

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    fn huge_page_bytes(&self) -> u64 {
        0
    }

    fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
        0
    }
}

type Tree = XTree<XStoreLeaf>;

/// A tree of these keys, in their order, in a region of four leaves.
fn tree_of(keys: impl Iterator<Item = u64>) -> Arc<Tree> {
    let format = XStoreLeaf::new(8).expect("values of 8 B");
    let words = (0..4 * format.leaf_words()).map(|_| AtomicU64::new(0)).collect();
    let tree = Tree::new(format, Arc::new(Words(words)), Arc::new(ModelStore::new())).expect("room");
    keys.for_each(|key| insert(&tree, key));
    Arc::new(tree)
}

fn value_of(key: u64) -> [u8; 8] {
    (key ^ 0x5a5a).to_le_bytes()
}

fn insert(tree: &Tree, key: u64) {
    tree.insert(key, &value_of(key), LeafNumber::NONE).expect("an insert");
}

fn remove(tree: &Tree, key: u64) {
    tree.remove(key, LeafNumber::NONE).expect("a removal");
}

/// What a client does whose model is as old as the tree's first leaf: from there it goes right as the fences
/// say. True if the key is there, with its value. Who goes right meets whole leaves.
fn is_found_by_walking(tree: &Tree, key: u64) -> bool {
    let mut value = [0; 8];
    let mut leaf = LeafNumber(0);
    for _ in 0..LOOKS_MAX {
        let words = tree.slab().block(leaf).expect("a leaf of the region");
        match tree.format().get(words, key, &mut value) {
            LeafAnswer::Found(_) => {
                assert_eq!(value, value_of(key), "key {key}: another's value");
                return true;
            }
            LeafAnswer::Absent => return false,
            LeafAnswer::Right(next) => leaf = next,
            LeafAnswer::Changing => thread::yield_now(),
            LeafAnswer::Elsewhere => panic!("key {key}: {leaf} was linked before it was whole"),
        }
    }
    panic!("key {key}: {LOOKS_MAX} looks found no rest");
}

/// The same by the server: down the tree.
fn is_found_by_descent(tree: &Tree, key: u64) -> bool {
    let mut value = [0; 8];
    let found = tree.get(key, &mut value).expect("an answer").is_some();
    assert!(!found || value == value_of(key), "key {key}: another's value");
    found
}

fn scan(tree: &Tree) -> Vec<u64> {
    let mut pairs = Pairs::default();
    pairs.reset(8);
    assert_eq!(tree.scan(Direction::Ascending, 0, 1_000, &mut pairs), Ok(None));
    pairs.end_scan();
    pairs.scan(0).map(|pair| pair.key).collect()
}

/// A leaf splits under an insert. Pairs that were there are found all the time, by every way; one that never
/// was is not; the new one stays once it was seen.
fn split_against_readers() {
    let old = || (0..16).map(|index| 10 * index);
    let tree = tree_of(old());
    let written = Arc::clone(&tree);
    let writer = thread::spawn(move || insert(&written, 75));
    let walked = Arc::clone(&tree);
    let walker = thread::spawn(move || {
        let mut was_seen = false;
        for key in [0, 70, 80, 150] {
            assert!(is_found_by_walking(&walked, key), "key {key} is lost in a split");
            let is_seen = is_found_by_walking(&walked, 75);
            assert!(is_seen || !was_seen, "the new key is lost again");
            was_seen = is_seen;
        }
        assert!(!is_found_by_walking(&walked, 85), "a key that never was");
    });
    assert!(is_found_by_descent(&tree, 80) && is_found_by_descent(&tree, 70));
    let mut seen = scan(&tree);
    seen.retain(|key| *key != 75);
    assert!(seen.into_iter().eq(old()), "a scan skips or doubles a key");
    writer.join().unwrap();
    walker.join().unwrap();
    assert!(is_found_by_walking(&tree, 75) && is_found_by_descent(&tree, 75));
}

/// Slots are used again after a compaction: nobody takes the new pair's value for the old one's.
fn compaction_against_readers() {
    let tree = tree_of(0..16);
    let written = Arc::clone(&tree);
    let writer = thread::spawn(move || {
        (0..4).for_each(|key| remove(&written, key));
        insert(&written, 100);
    });
    for key in [9, 3, 15] {
        let is_found = is_found_by_walking(&tree, key);
        assert!(is_found || key < 4, "key {key} is lost in a compaction");
    }
    writer.join().unwrap();
    assert!(scan(&tree).into_iter().eq((4..16).chain([100])));
}

/// An empty leaf is given back while another writer, and readers, want its range.
fn reclaim_against_writers_and_readers() {
    let tree = tree_of((0..17).map(|index| 10 * index));
    let keys = scan(&tree);
    assert_eq!(tree.leaf_count(), 2);
    let second_half: Vec<u64> = keys.iter().copied().filter(|key| *key >= 140).collect();
    let written = Arc::clone(&tree);
    let remover = thread::spawn(move || second_half.iter().for_each(|key| remove(&written, *key)));
    let written = Arc::clone(&tree);
    let inserter = thread::spawn(move || insert(&written, 155));
    assert!(is_found_by_descent(&tree, 130));
    assert!(!is_found_by_descent(&tree, 145));
    remover.join().unwrap();
    inserter.join().unwrap();
    let rest: Vec<u64> = keys.into_iter().filter(|key| *key < 140).chain([155]).collect();
    assert_eq!(scan(&tree), rest);
    assert!(rest.iter().all(|key| is_found_by_descent(&tree, *key)));
}

/// Two leaves that both hold pairs are merged, and a pair that the right one had is updated. A reader that
/// knows the right leaf's number finds the old value there only until the update is acknowledged. Pairs of
/// the left one change their slots, and nobody takes another pair's value.
fn merge_against_writers_and_readers() {
    const RIGHT: LeafNumber = LeafNumber(1);
    let tree = tree_of((0..17).map(|index| 10 * index));
    (0..6).for_each(|index| remove(&tree, 10 * index));
    let acknowledged = Arc::new(AtomicU64::new(0));
    let (written, done) = (Arc::clone(&tree), Arc::clone(&acknowledged));
    let writer = thread::spawn(move || {
        remove(&written, 160);
        written.put(150, &[9; 8], LeafNumber::NONE).expect("an update");
        // Release: as the reply orders the update. Partner: the reader's Acquire load.
        done.store(1, Ordering::Release);
    });
    let (read, done) = (Arc::clone(&tree), Arc::clone(&acknowledged));
    let stale_reader = thread::spawn(move || {
        let words = read.slab().block(RIGHT).expect("a leaf of the region");
        for _ in 0..3 {
            let is_acknowledged = done.load(Ordering::Acquire) == 1;
            let mut value = [0; 8];
            match read.format().get(words, 150, &mut value) {
                LeafAnswer::Found(_) if is_acknowledged => assert_eq!(value, [9; 8], "an outdated value"),
                LeafAnswer::Found(_) => assert!(value == value_of(150) || value == [9; 8], "{value:?}"),
                answer => {
                    assert!(matches!(answer, LeafAnswer::Elsewhere | LeafAnswer::Changing), "{answer:?}")
                }
            }
        }
    });
    for key in [60, 110] {
        assert!(is_found_by_walking(&tree, key), "key {key} is lost in a merge");
    }
    assert!(is_found_by_descent(&tree, 140));
    let mut seen = scan(&tree);
    seen.retain(|key| *key != 160);
    assert!(seen.into_iter().eq((6..16).map(|index| 10 * index)), "a scan skips or doubles a key");
    writer.join().unwrap();
    stale_reader.join().unwrap();
    assert_eq!((tree.leaf_count(), tree.stats().merges), (1, 1));
}

#[test]
fn readers_of_merged_leaves_find_what_is_acknowledged() {
    check(3, merge_against_writers_and_readers);
}

#[test]
fn a_merge_that_leaves_the_right_leaf_standing_is_found() {
    assert_found(&crate::injected::RIGHT_LEFT_STANDING, || check(3, merge_against_writers_and_readers));
}

#[test]
fn a_merge_under_the_same_incarnation_is_found() {
    assert_found(&crate::injected::MERGED_IN_PLACE, || check(3, merge_against_writers_and_readers));
}

#[test]
fn readers_never_miss_a_pair_in_a_split() {
    check(3, split_against_readers);
}

#[test]
fn readers_never_take_another_pairs_value() {
    check(3, compaction_against_readers);
}

#[test]
fn a_range_whose_leaf_is_given_back_stays_whole() {
    check(3, reclaim_against_writers_and_readers);
}

#[test]
fn a_sibling_linked_before_it_is_filled_is_found() {
    assert_found(&injected::LINKED_BEFORE_FILLED, || check(3, split_against_readers));
}

#[test]
fn a_value_of_any_incarnation_is_found() {
    assert_found(&injected::ANY_INCARNATION, || check(3, compaction_against_readers));
}

#[test]
fn a_copy_without_a_second_look_is_found() {
    assert_found(&farsight_base::injected::NO_SECOND_LOOK, || check(3, compaction_against_readers));
}
