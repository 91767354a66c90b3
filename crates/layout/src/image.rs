//! A whole leaf as its writer wants it to be: what bulk load, compaction and split put in place in one step.

use farsight_base::LeafNumber;

use crate::{Fences, Geometry, LEAF_SLOTS};

/// The contents of a leaf: its place in the chain and its pairs, in key order.
#[derive(Clone, Debug)]
pub struct LeafImage {
    /// The incarnation that every line gets.
    pub incarnation: u32,
    /// The right sibling, or [`LeafNumber::NONE`].
    pub next: LeafNumber,
    /// The keys that belong here.
    pub fences: Fences,
    keys: [u64; LEAF_SLOTS],
    versions: [u64; LEAF_SLOTS],
    values: Vec<u8>,
    count: usize,
}

impl LeafImage {
    /// An empty leaf.
    #[must_use]
    pub fn new(geometry: &Geometry, incarnation: u32, next: LeafNumber, fences: Fences) -> Self {
        let values = Vec::with_capacity(LEAF_SLOTS * geometry.value_bytes());
        Self { incarnation, next, fences, keys: [0; LEAF_SLOTS], versions: [0; LEAF_SLOTS], values, count: 0 }
    }

    /// Takes the pairs out, for another leaf's image.
    pub fn clear(&mut self) {
        self.count = 0;
        self.values.clear();
    }

    /// Appends a pair.
    ///
    /// # Panics
    /// If the leaf is full, the keys do not ascend, the key does not belong here, or the version is zero.
    pub fn push(&mut self, key: u64, version: u64, value: &[u8]) {
        assert!(self.count < LEAF_SLOTS, "a leaf holds {LEAF_SLOTS} pairs");
        assert!(self.count == 0 || self.keys[self.count - 1] < key, "key {key} does not ascend");
        assert!(self.fences.contain(key), "key {key} is outside {:?}", self.fences);
        assert!(version != 0, "version zero means: not written");
        self.keys[self.count] = key;
        self.versions[self.count] = version;
        self.values.extend_from_slice(value);
        self.count += 1;
    }

    /// Pairs in the image.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without pairs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Pair `index`: key, version, value.
    #[must_use]
    pub fn pair(&self, index: usize) -> (u64, u64, &[u8]) {
        assert!(index < self.count, "pair {index} of {}", self.count);
        let value_bytes = self.values.len() / self.count;
        (self.keys[index], self.versions[index], &self.values[index * value_bytes..][..value_bytes])
    }
}
