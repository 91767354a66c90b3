//! Leaves as a server's bulk load leaves them, without a server: twelve pairs each, numbered in key order.

use farsight_base::LeafNumber;
use farsight_base::sync::AtomicU64;
use farsight_layout::{Fences, Geometry, LeafImage, LeafWriter};
use farsight_model::shortest_fence;

/// Pairs of a leaf after a bulk load.
pub const PAIRS_PER_LEAF: usize = 12;
/// The incarnation of leaves that were filled once.
pub const INCARNATION: u32 = 1;

/// The low fences of the leaves of ascending `keys`.
#[must_use]
pub fn fences_of(keys: &[u64]) -> Vec<u64> {
    let leaves = keys.chunks(PAIRS_PER_LEAF).zip(keys.chunks(PAIRS_PER_LEAF).skip(1));
    let inner = leaves.map(|(left, right)| shortest_fence(left[left.len() - 1], right[0]));
    std::iter::once(0).chain(inner).collect()
}

/// Fills the leaves at the beginning of `words` with `keys`, whose low `fences` these are, and values of 8 B:
/// each the complement of its key.
///
/// # Panics
/// If the words do not suffice, or somebody else writes them.
pub fn fill(words: &[AtomicU64], geometry: &Geometry, keys: &[u64], fences: &[u64]) {
    for (leaf, pairs) in keys.chunks(PAIRS_PER_LEAF).enumerate() {
        let next = if leaf + 1 < fences.len() { LeafNumber(leaf as u32 + 1) } else { LeafNumber::NONE };
        let range = Fences { low: fences[leaf], high: fences.get(leaf + 1).copied() };
        let mut image = LeafImage::new(geometry, INCARNATION, next, range);
        for key in pairs {
            image.push(*key, 1, &(!key).to_le_bytes());
        }
        let words = &words[leaf * geometry.leaf_words()..][..geometry.leaf_words()];
        LeafWriter::latch(words, geometry, 1).expect("nobody else writes").rewrite(&image);
    }
}
