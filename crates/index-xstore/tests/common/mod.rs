//! What the tests share: a region in ordinary memory, values that prove whose they are, and a check of the
//! whole structure by the region's bytes alone.

#![allow(dead_code, reason = "each test file uses a part")]

use std::sync::Arc;

use farsight_base::prng::mix;
use farsight_base::sync::{AtomicU64, AtomicUsize, Ordering};
use farsight_base::words::copy_stamped;
use farsight_base::{LeafNumber, Line, RegionId, WORDS_PER_LINE};
use farsight_fabric::Region;
use farsight_index::{Direction, LeafFormat, Pairs};
use farsight_index_xstore::server::{CollectedLeaves, ModelStore, XStoreLeaf, XTree};
use farsight_layout::{KEY_LINES, KeyLines, LEAF_SLOTS, LeafSlot};

/// A region in this process's ordinary memory, line-aligned by leaving words out.
pub(crate) struct HeapRegion(Vec<AtomicU64>);

impl HeapRegion {
    pub(crate) fn new(words: usize) -> Self {
        Self((0..words + WORDS_PER_LINE).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Region for HeapRegion {
    fn id(&self) -> RegionId {
        RegionId(7)
    }
    fn words(&self) -> &[AtomicU64] {
        let address = self.0.as_ptr().addr();
        let skipped = (address.next_multiple_of(64) - address) / 8;
        &self.0[skipped..skipped + self.0.len() - WORDS_PER_LINE]
    }
    fn huge_page_bytes(&self) -> u64 {
        0
    }
    fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
        0
    }
}

/// Counts a writer out, also one that panics: readers must not wait for it.
pub(crate) struct Writing<'a>(pub(crate) &'a AtomicUsize);

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

pub(crate) struct Fixture {
    pub(crate) tree: Arc<XTree<XStoreLeaf>>,
    pub(crate) store: Arc<ModelStore>,
    pub(crate) value_bytes: usize,
}

impl Fixture {
    pub(crate) fn new(value_bytes: usize, leaves: usize) -> Self {
        let format = XStoreLeaf::new(value_bytes).unwrap();
        let store = Arc::new(ModelStore::new());
        let region = Arc::new(HeapRegion::new(leaves * format.leaf_words()));
        let tree = Arc::new(XTree::new(format, region, Arc::clone(&store) as _).unwrap());
        Self { tree, store, value_bytes }
    }

    /// A tree loaded with these ascending keys.
    pub(crate) fn loaded(value_bytes: usize, leaves: usize, keys: &[u64]) -> Self {
        let fixture = Self::new(value_bytes, leaves);
        let values: Vec<Vec<u8>> = keys.iter().map(|key| value_of(*key, 0, value_bytes)).collect();
        let loaded =
            fixture.tree.bulk_load(keys.iter().copied().zip(values.iter().map(Vec::as_slice))).unwrap();
        assert_eq!(loaded.pairs, keys.len() as u64);
        fixture
    }

    pub(crate) fn value(&self, key: u64, stamp: u32) -> Vec<u8> {
        value_of(key, stamp, self.value_bytes)
    }

    pub(crate) fn insert(&self, key: u64) {
        self.tree.insert(key, &self.value(key, 1), LeafNumber::NONE).unwrap();
    }

    pub(crate) fn insert_all(&self, keys: &[u64]) {
        for key in keys {
            self.insert(*key);
        }
    }

    /// Appends a whole scan upwards, call after call.
    pub(crate) fn scan(&self, from: u64, limit: usize, pairs: &mut Pairs) {
        self.scan_either_way(Direction::Ascending, from, limit, pairs);
    }

    /// Appends a whole scan, call after call.
    pub(crate) fn scan_either_way(&self, direction: Direction, from: u64, limit: usize, pairs: &mut Pairs) {
        let end = pairs.len().saturating_add(limit);
        let mut cursor = Some(from);
        while let Some(key) = cursor.filter(|_| pairs.len() < end) {
            cursor = self.tree.scan(direction, key, end - pairs.len(), pairs).unwrap();
            let is_further = cursor.is_none_or(|cursor| direction.is_behind(cursor, key));
            assert!(is_further, "{cursor:?} after {key}, {direction:?}");
        }
        pairs.end_scan();
    }

    /// The leaf's key lines, as a READ would return them.
    pub(crate) fn key_lines(&self, leaf: LeafNumber) -> [Line; KEY_LINES] {
        let words = self.tree.slab().block(leaf).unwrap();
        let mut lines = [Line::ZERO; KEY_LINES];
        copy_stamped(&words[..KEY_LINES * WORDS_PER_LINE], &mut lines);
        lines
    }

    /// All leaves, as training collects them.
    pub(crate) fn leaves(&self) -> CollectedLeaves {
        let mut leaves = CollectedLeaves::default();
        let rest = self.tree.collect_leaves(0, u64::MAX, usize::MAX, &mut leaves).unwrap();
        assert_eq!(rest, None);
        leaves
    }

    /// Checks a tree that nobody writes. Fences tile the key space, the chain is the tree's order, separators
    /// are the low fences. Every key lies within its leaf's fences, ascending over all, and counts agree.
    /// Returns the keys.
    pub(crate) fn check_structure(&self) -> Vec<u64> {
        let collected = self.leaves();
        let mut keys = Vec::new();
        let mut low = Some(0);
        let mut leaf = collected.leaves[0];
        for (index, (expected, separator)) in collected.leaves.iter().zip(&collected.low_fences).enumerate() {
            assert_eq!(leaf, *expected, "the chain and the tree differ at leaf {index}");
            let lines = self.key_lines(leaf);
            let view = KeyLines(&lines);
            assert!(view.incarnation().is_some(), "{leaf} is of two incarnations");
            let fences = view.fences().expect("a leaf");
            assert_eq!(Some(fences.low), low, "{leaf} does not begin where the one before ends");
            assert_eq!(fences.low, *separator, "{leaf}");
            let mut sorted = [(0, LeafSlot::new(0).unwrap()); LEAF_SLOTS];
            let count = view.sorted(&mut sorted);
            let occupied = LeafSlot::all().filter(|slot| view.is_occupied(*slot)).count();
            assert_eq!(count, occupied, "{leaf} holds a key twice");
            for (key, _) in &sorted[..count] {
                assert!(fences.contain(*key), "{leaf}: key {key} is outside {fences:?}");
                keys.push(*key);
            }
            low = fences.high;
            leaf = view.next();
        }
        assert_eq!((low, leaf), (None, LeafNumber::NONE), "the last leaf is not the end");
        assert!(keys.is_sorted_by(|a, b| a < b));
        let stats = self.tree.stats();
        assert_eq!((stats.pairs, stats.leaves), (keys.len() as u64, collected.leaves.len() as u64));
        assert_eq!(u64::from(self.tree.slab().used_leaves()), stats.leaves, "blocks leak");
        keys
    }
}

/// A value that carries its key and a stamp in every word.
pub(crate) fn value_of(key: u64, stamp: u32, value_bytes: usize) -> Vec<u8> {
    let head = (key & 0xffff_ffff) | u64::from(stamp) << 32;
    let words =
        (0..value_bytes.div_ceil(8) as u64).map(|word| if word == 0 { head } else { mix(head + word) });
    words.flat_map(u64::to_le_bytes).take(value_bytes).collect()
}

/// The stamp of a value, which must be whole and `key`'s.
pub(crate) fn stamp_of(key: u64, value: &[u8]) -> u32 {
    let stamp = u32::from_le_bytes(value[4..8].try_into().unwrap());
    assert_eq!(value, value_of(key, stamp, value.len()), "key {key}: a torn or foreign value");
    stamp
}
