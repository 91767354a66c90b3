//! An ordered list of WRITEs: how a change of leaves reaches their memory node.
//!
//! Invariant: they are executed in this order, whatever doorbells they go out with, and each stays within one
//! block. A fabric keeps the order of what goes to one memory node alone: before the first WRITE to another,
//! all before it must be complete.

use std::ops::Range;

use farsight_base::LeafNumber;

/// WRITEs in the order in which they must become visible.
#[derive(Clone, Default, Debug)]
pub struct Writes {
    writes: Vec<(LeafNumber, usize, Range<usize>)>,
    words: Vec<u64>,
}

impl Writes {
    /// Takes all of them out.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.words.clear();
    }

    /// Takes all but the first `count` out.
    pub fn truncate(&mut self, count: usize) {
        self.writes.truncate(count);
        self.words.truncate(self.writes.last().map_or(0, |(_, _, words)| words.end));
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Bytes of memory, used or not.
    #[must_use]
    pub fn room_bytes(&self) -> usize {
        self.writes.capacity() * size_of::<(LeafNumber, usize, Range<usize>)>()
            + self.words.capacity() * size_of::<u64>()
    }

    /// True if nothing is to be written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// WRITE `index`: the leaf, the word of its block at which it begins, and the words.
    #[must_use]
    pub fn get(&self, index: usize) -> (LeafNumber, usize, &[u64]) {
        let (leaf, first, range) = &self.writes[index];
        (*leaf, *first, &self.words[range.clone()])
    }

    /// All of them in their order, as [`Writes::get`] gives them.
    pub fn iter(&self) -> impl Iterator<Item = (LeafNumber, usize, &[u64])> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The last WRITE before all others: what no plan does.
    #[cfg(injected)]
    pub fn put_last_first(&mut self) {
        self.writes.rotate_right(1);
    }

    /// Appends a WRITE of `words` at word `first` of `leaf`'s block.
    pub(super) fn push(&mut self, leaf: LeafNumber, first: usize, words: impl IntoIterator<Item = u64>) {
        let start = self.words.len();
        self.words.extend(words);
        self.writes.push((leaf, first, start..self.words.len()));
    }
}
