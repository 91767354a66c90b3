//! The pairs of a whole leaf, appended to a scan's.
//!
//! Invariant: keys ascend from the one requested on, and each has the value that the leaf's incarnation
//! vouches for; or nothing is appended.

use farsight_base::Line;
use farsight_layout::{Geometry, KeyLines, LEAF_SLOTS, LeafSlot, PairsRoom};

use crate::Pairs;

/// A private copy of a leaf whose key lines are consistent.
#[derive(Clone, Copy)]
pub struct ConsistentLeaf<'a> {
    /// Where things stand in it.
    pub geometry: &'a Geometry,
    /// All of its lines.
    pub lines: &'a [Line],
    /// What its key lines agree on.
    pub incarnation: u32,
    /// Its slots in the order of their keys, four bits each; a hint.
    pub permutation: u64,
}

impl Pairs {
    /// Appends up to `limit` pairs of a leaf with keys from `from` on, and returns how many. Returns `None`,
    /// with the pairs as they were, if a value is not what its key's line promised.
    #[inline(always)]
    pub fn append_leaf(&mut self, leaf: &ConsistentLeaf<'_>, from: u64, limit: usize) -> Option<usize> {
        if let Some((keys, versions, values)) = self.short_room::<LEAF_SLOTS>() {
            let mut room = PairsRoom { keys, versions, values };
            let ConsistentLeaf { geometry, lines, incarnation, permutation } = *leaf;
            let found = geometry.short_pairs(lines, incarnation, permutation, from, limit, &mut room);
            if let Some(found) = found {
                let count = found.min(limit);
                self.keep_first(count);
                return Some(count);
            }
        }
        self.append_one_by_one(leaf, from, limit)
    }

    /// [`Pairs::append_leaf`] for values of any length, and for a leaf that changes somewhere: only the lines
    /// of the pairs wanted count.
    #[inline(never)]
    fn append_one_by_one(&mut self, leaf: &ConsistentLeaf<'_>, from: u64, limit: usize) -> Option<usize> {
        let key_lines = leaf.lines.first_chunk().expect("a leaf has a key part");
        let mut sorted = [(0, LeafSlot::FIRST); LEAF_SLOTS];
        let count = KeyLines(key_lines).sorted(&mut sorted);
        let before = self.len();
        let wanted = sorted[..count].iter().filter(|(key, _)| *key >= from);
        for (key, slot) in wanted.take(limit) {
            let place = leaf.geometry.value_place(*slot);
            let value_lines = &leaf.lines[place.line..][..leaf.geometry.lines_per_value()];
            let version = leaf.geometry.read_value(value_lines, place, leaf.incarnation, self.begin());
            let Ok(version) = version else {
                self.truncate(before);
                return None;
            };
            self.keep(*key, version);
        }
        Some(self.len() - before)
    }
}
