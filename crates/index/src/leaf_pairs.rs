//! The pairs of a whole leaf, appended to a scan's.
//!
//! Invariant: keys go the scan's way from the one requested on, and each has the value that the leaf's
//! incarnation vouches for; or nothing is appended.

use farsight_base::Line;
use farsight_layout::{Fences, Geometry, KEY_LINES, KeyLines, LEAF_SLOTS, LeafSlot, PairsRoom};

use crate::{Direction, Pairs, ScanRequest};

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

/// What a scan wants of each pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Extent {
    /// Key, version and value.
    #[default]
    Pairs,
    /// The key alone.
    Keys,
}

impl Extent {
    /// Lines of a leaf, from its first on, that hold this.
    #[inline(always)]
    #[must_use]
    pub fn lines(self, geometry: &Geometry) -> usize {
        match self {
            Self::Pairs => geometry.leaf_lines(),
            Self::Keys => KEY_LINES,
        }
    }
}

/// Pairs wanted of a leaf for which all of it is copied, and turned round. For fewer, each is copied alone.
const TURNED_PAIRS_MIN: usize = 4;

/// Those of a leaf's pairs, which ascend, that a scan wants, on its way.
#[must_use]
pub fn wanted_pairs(
    sorted: &[(u64, LeafSlot)],
    direction: Direction,
    scan: ScanRequest,
) -> impl ExactSizeIterator<Item = (u64, LeafSlot)> {
    let before = match direction {
        Direction::Ascending => sorted.partition_point(|(key, _)| *key < scan.from),
        Direction::Descending => sorted.partition_point(|(key, _)| *key <= scan.from),
    };
    let (below, above) = sorted.split_at(before);
    let wanted = if direction == Direction::Ascending { above } else { below };
    (0..wanted.len().min(scan.limit)).map(move |index| match direction {
        Direction::Ascending => wanted[index],
        Direction::Descending => wanted[wanted.len() - 1 - index],
    })
}

/// The first key behind a leaf of these fences on a scan's way; `None` if there is none.
#[inline(always)]
#[must_use]
pub fn key_behind(fences: Fences, direction: Direction) -> Option<u64> {
    match direction {
        Direction::Ascending => fences.high,
        Direction::Descending => fences.low.checked_sub(1),
    }
}

impl Pairs {
    /// Appends up to `limit` pairs of a leaf with keys from `from` on, and returns how many. Returns `None`,
    /// with the pairs as they were, if a value is not what its key's line promised. So it does if one of
    /// these keys is above `until`: no leaf of an honest node holds a key beyond its fence.
    #[inline(always)]
    pub fn append_leaf(
        &mut self,
        leaf: &ConsistentLeaf<'_>,
        (from, until): (u64, u64),
        limit: usize,
    ) -> Option<usize> {
        if let Some((keys, versions, values)) = self.short_room::<LEAF_SLOTS>() {
            let mut room = PairsRoom { keys, versions, values };
            let ConsistentLeaf { geometry, lines, incarnation, permutation } = *leaf;
            let found =
                geometry.short_pairs(lines, incarnation, permutation, (from, until), limit, &mut room);
            if let Some(found) = found {
                let count = found.min(limit);
                self.keep_first(count);
                return Some(count);
            }
        }
        let before = self.len();
        let count = self.append_one_by_one(leaf, Direction::Ascending, ScanRequest { from, limit })?;
        if count > 0 && self.last_key().is_some_and(|last| last > until) {
            self.truncate(before);
            return None;
        }
        Some(count)
    }

    /// [`Pairs::append_leaf`] downwards: pairs with keys up to `from`, the greatest first.
    #[inline(never)]
    pub fn append_leaf_descending(
        &mut self,
        leaf: &ConsistentLeaf<'_>,
        from: u64,
        limit: usize,
    ) -> Option<usize> {
        if limit < TURNED_PAIRS_MIN {
            return self.append_one_by_one(leaf, Direction::Descending, ScanRequest { from, limit });
        }
        let before = self.len();
        let of_leaf = self.append_leaf(leaf, (0, u64::MAX), LEAF_SLOTS)?;
        let is_wanted = |at: &usize| self.pair(*at).key <= from;
        let wanted = (before..before + of_leaf).take_while(is_wanted).count();
        self.truncate(before + wanted);
        self.reverse_from(before);
        let count = wanted.min(limit);
        self.truncate(before + count);
        Some(count)
    }

    /// Appends the keys of a leaf that `scan` wants, without their versions and values, and returns how many.
    /// The key part is of one incarnation: each key with its occupancy bit was the leaf's when its line was
    /// copied, whatever became of its value's line.
    ///
    /// # Panics
    /// If the pairs are to have values.
    #[inline(never)]
    pub fn append_leaf_keys(
        &mut self,
        key_part: KeyLines<'_>,
        direction: Direction,
        scan: ScanRequest,
    ) -> usize {
        let mut sorted = [(0, LeafSlot::FIRST); LEAF_SLOTS];
        let count = key_part.sorted(&mut sorted);
        let wanted = wanted_pairs(&sorted[..count], direction, scan);
        let count = wanted.len();
        let room = self.room(count);
        assert!(room.values.is_empty(), "a scan of keys has no room for values");
        room.versions.fill(0);
        for (place, (key, _)) in room.keys.iter_mut().zip(wanted) {
            *place = key;
        }
        self.keep_first(count);
        count
    }

    /// [`Pairs::append_leaf`] either way, for values of any length, and for a leaf that changes somewhere:
    /// only the lines of the pairs wanted count.
    #[inline(never)]
    fn append_one_by_one(
        &mut self,
        leaf: &ConsistentLeaf<'_>,
        direction: Direction,
        scan: ScanRequest,
    ) -> Option<usize> {
        let key_lines = leaf.lines.first_chunk().expect("a leaf has a key part");
        let mut sorted = [(0, LeafSlot::FIRST); LEAF_SLOTS];
        let count = KeyLines(key_lines).sorted(&mut sorted);
        let before = self.len();
        for (key, slot) in wanted_pairs(&sorted[..count], direction, scan) {
            let place = leaf.geometry.value_place(slot);
            let value_lines = &leaf.lines[place.line..][..leaf.geometry.lines_per_value()];
            let version = leaf.geometry.read_value(value_lines, place, leaf.incarnation, self.begin());
            let Ok(version) = version else {
                self.truncate(before);
                return None;
            };
            self.keep(key, version);
        }
        Some(self.len() - before)
    }
}
