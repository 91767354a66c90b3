//! What a READ of a pool's leaf says about one key.
//!
//! Invariant: a leaf that the READ shows closed proves nothing: it is not in the chain, not yet or no more.
//! The lock word stands in the last key line. If that line is of the same incarnation as those that hold key
//! and value, the leaf was in the chain at some instant of that incarnation. See docs/protocol/rolex.md for
//! why that is enough.

use farsight_base::{LeafNumber, Line, WORDS_PER_LINE};

use super::{BlockGeometry, LockWord};
use crate::{KEY_LINES, KeyLines, KeySearch, LeafSlot, OWNER_WORD};

/// What a leaf's lines say about a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockSearch {
    /// The key is here with this version; its value has been copied.
    Hit(u64),
    /// The key belongs here and is not stored.
    Absent,
    /// The key belongs to the right; this is the right sibling (or [`LeafNumber::NONE`]).
    Right(LeafNumber),
    /// The key belongs to the left.
    Left,
    /// The lines changed under the READ, or their writer died.
    Changing,
    /// No leaf of the chain now.
    Closed,
}

/// Looks `key` up in the `lines` of one READ, a leaf without its control lines, and copies its value.
///
/// # Panics
/// If `lines` or `into` are not of the geometry's sizes.
#[inline]
#[must_use]
pub fn search_block(geometry: &BlockGeometry, lines: &[Line], key: u64, into: &mut [u8]) -> BlockSearch {
    let leaf = geometry.leaf();
    assert_eq!(lines.len(), leaf.leaf_lines(), "lines of a leaf");
    let key_lines = lines.first_chunk::<KEY_LINES>().expect("a leaf has a key part");
    let Some((slot, incarnation)) = hit_in_block(key_lines, key) else {
        return miss_in_block(key_lines, key);
    };
    let place = leaf.value_place(slot);
    let value_lines = &lines[place.line..][..leaf.lines_per_value()];
    leaf.read_value(value_lines, place, incarnation, into).map_or(BlockSearch::Changing, BlockSearch::Hit)
}

/// The slot of `key` and the incarnation under which its value must be found, if it is in this key part of a
/// leaf of the chain. Most keys need only this part of [`search_block`].
#[inline(always)]
#[must_use]
pub fn hit_in_block(key_lines: &[Line; KEY_LINES], key: u64) -> Option<(LeafSlot, u32)> {
    let (slot, incarnation) = KeyLines(key_lines).hit(key)?;
    let lock_line = key_lines[KEY_LINES - 1].stamp();
    let is_proved = !lock_line.is_changing()
        && lock_line.incarnation() == incarnation
        && lock_of(key_lines) != LockWord::CLOSED;
    is_proved.then_some((slot, incarnation))
}

/// What a key part says of a key that [`hit_in_block`] does not find there; never [`BlockSearch::Hit`].
#[inline(never)]
#[must_use]
pub fn miss_in_block(key_lines: &[Line; KEY_LINES], key: u64) -> BlockSearch {
    if lock_of(key_lines) == LockWord::CLOSED {
        return BlockSearch::Closed;
    }
    match KeyLines(key_lines).search(key) {
        KeySearch::Absent => BlockSearch::Absent,
        KeySearch::Right(next) => BlockSearch::Right(next),
        KeySearch::Left => BlockSearch::Left,
        // A hit that the lock's line does not bear out.
        KeySearch::Hit { .. } | KeySearch::Changing => BlockSearch::Changing,
        KeySearch::Foreign => BlockSearch::Closed,
    }
}

/// The lock word in a key part.
#[inline]
#[must_use]
pub fn lock_of(key_lines: &[Line; KEY_LINES]) -> LockWord {
    LockWord(key_lines[OWNER_WORD / WORDS_PER_LINE].0[OWNER_WORD % WORDS_PER_LINE])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{LockedLeaf, Writes};

    const KEY: u64 = 77;

    fn leaf_with_a_pair() -> (BlockGeometry, Vec<Line>) {
        let geometry = BlockGeometry::new(8).unwrap();
        let words = geometry.first_leaf();
        let mut lines: Vec<Line> = words.as_chunks().0.iter().map(|words| Line(*words)).collect();
        let mut leaf = LockedLeaf::new(&geometry, LeafNumber(0), &mut lines);
        let slot = leaf.free_slot().unwrap();
        leaf.unlock(LockWord::of(1, 1), &mut Writes::default());
        leaf.insert(slot, KEY, 5, &[9; 8], &mut Writes::default());
        lines.truncate(geometry.leaf().leaf_lines());
        (geometry, lines)
    }

    fn found(geometry: &BlockGeometry, lines: &[Line], key: u64) -> BlockSearch {
        search_block(geometry, lines, key, &mut [0; 8])
    }

    #[test]
    fn a_hit_needs_the_locks_line_of_the_same_incarnation_and_not_closed() {
        let (geometry, lines) = leaf_with_a_pair();
        assert_eq!(found(&geometry, &lines, KEY), BlockSearch::Hit(5));
        assert_eq!(found(&geometry, &lines, KEY + 1), BlockSearch::Absent);
        let lock_line = KEY_LINES - 1;
        // The key's line is of a leaf that this block became since the lock was looked at.
        let mut older = lines.clone();
        let stamp = older[lock_line].stamp();
        older[lock_line].0[0] = stamp.with_incarnation(stamp.incarnation() - 1).0;
        assert_eq!(found(&geometry, &older, KEY), BlockSearch::Changing);
        assert_eq!(found(&geometry, &older, KEY + 1), BlockSearch::Changing);
        let mut changing = lines.clone();
        changing[lock_line].0[0] = stamp.changing().0;
        assert_eq!(found(&geometry, &changing, KEY), BlockSearch::Changing);
        let mut closed = lines;
        closed[lock_line].0[OWNER_WORD % WORDS_PER_LINE] = LockWord::CLOSED.0;
        assert_eq!(found(&geometry, &closed, KEY), BlockSearch::Closed);
        assert_eq!(found(&geometry, &closed, KEY + 1), BlockSearch::Closed);
    }
}
