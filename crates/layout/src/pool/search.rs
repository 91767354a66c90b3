//! What a READ of a pool's leaf says about one key.
//!
//! Invariant: a leaf that the READ shows closed proves nothing: it is not in the chain, not yet or no more.
//! The lock word stands in the last key line; with that line in the same incarnation as those that hold key
//! and value, the leaf was in the chain at some instant of that incarnation (docs/protocol/rolex.md says why
//! that is enough).

use farsight_base::{LeafNumber, Line, WORDS_PER_LINE};

use super::{BlockGeometry, LockWord};
use crate::{KEY_LINES, KeyLines, KeySearch, OWNER_WORD};

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
    if lock_of(key_lines) == LockWord::CLOSED {
        return BlockSearch::Closed;
    }
    match KeyLines(key_lines).search(key) {
        KeySearch::Hit { slot, incarnation } => {
            let lock_line = key_lines[KEY_LINES - 1].stamp();
            if lock_line.is_changing() || lock_line.incarnation() != incarnation {
                return BlockSearch::Changing;
            }
            let place = leaf.value_place(slot);
            let value_lines = &lines[place.line..][..leaf.lines_per_value()];
            leaf.read_value(value_lines, place, incarnation, into)
                .map_or(BlockSearch::Changing, BlockSearch::Hit)
        }
        KeySearch::Absent => BlockSearch::Absent,
        KeySearch::Right(next) => BlockSearch::Right(next),
        KeySearch::Left => BlockSearch::Left,
        KeySearch::Changing => BlockSearch::Changing,
        KeySearch::Foreign => BlockSearch::Closed,
    }
}

/// The lock word in a key part.
#[must_use]
pub fn lock_of(key_lines: &[Line; KEY_LINES]) -> LockWord {
    LockWord(key_lines[OWNER_WORD / WORDS_PER_LINE].0[OWNER_WORD % WORDS_PER_LINE])
}
