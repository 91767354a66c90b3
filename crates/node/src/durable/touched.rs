//! Which pieces of snapshots were written to since they were made.
//!
//! Invariant: a piece that is not touched has all that was written to its keys before the last time that
//! somebody took the marks. So the next snapshots leave it as it is.
//!
//! Protocol:
//! 1. The sequencer marks the pieces of a group's keys once the group is applied, before its position counts.
//! 2. Who makes snapshots takes the marks, and reads the pairs of touched pieces after that. A write whose
//!    mark comes later may be in the file, too: it is written once more the next time.
//! 3. What is not written in the end is marked again.
//! 4. When pieces are replaced, marks that have come meanwhile go to all pieces that have one of their keys.
//!
//! A mark costs a search among a table's first keys, in memory that stays in the cache.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use farsight_durability::SnapshotPiece;

/// The marks of all tables.
#[derive(Default)]
pub(super) struct Touched(Mutex<BTreeMap<u32, Marks>>);

/// The marks of one table.
struct Marks {
    /// The first keys of its pieces, from zero on.
    firsts: Vec<u64>,
    are_touched: Vec<bool>,
}

impl Touched {
    /// Marks the pieces of these keys. A table without marks has no piece: its snapshot will have all.
    pub(super) fn mark(&self, table: u32, keys: impl Iterator<Item = u64>) {
        if let Some(marks) = self.lock().get_mut(&table) {
            for key in keys {
                let index = marks.index_of(key);
                marks.are_touched[index] = true;
            }
        }
    }

    /// Marks all pieces that have keys from `first` on and below `end`.
    pub(super) fn mark_range(&self, table: u32, first: u64, end: Option<u64>) {
        if let Some(marks) = self.lock().get_mut(&table) {
            let last = end.map_or(u64::MAX, |end| end.saturating_sub(1));
            let range = marks.index_of(first)..=marks.index_of(last);
            marks.are_touched[range].fill(true);
        }
    }

    /// Takes the marks of a table of these pieces; without any, there is one mark for all keys from now on.
    pub(super) fn take(&self, table: u32, pieces: &[SnapshotPiece]) -> Vec<bool> {
        let mut tables = self.lock();
        let marks = tables.entry(table).or_insert_with(|| Marks::new(pieces));
        std::mem::replace(&mut marks.are_touched, vec![false; marks.firsts.len()])
    }

    /// The table has these pieces now.
    pub(super) fn set_pieces(&self, table: u32, pieces: &[SnapshotPiece]) {
        let mut tables = self.lock();
        let mut marks = Marks::new(pieces);
        if let Some(before) = tables.get(&table) {
            let ends = marks.firsts.iter().skip(1).map(|first| first - 1).chain([u64::MAX]);
            let ranges = marks.firsts.iter().zip(ends);
            marks.are_touched = ranges
                .map(|(first, last)| {
                    let range = before.index_of(*first)..=before.index_of(last);
                    before.are_touched[range].contains(&true)
                })
                .collect();
        }
        tables.insert(table, marks);
    }

    /// Forgets the marks of tables that are not among these.
    pub(super) fn retain(&self, is_there: impl Fn(u32) -> bool) {
        self.lock().retain(|table, _| is_there(*table));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Marks>> {
        // A change of it is never half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Marks {
    fn new(pieces: &[SnapshotPiece]) -> Self {
        let mut firsts: Vec<u64> = pieces.iter().map(|piece| piece.first_key).collect();
        if firsts.is_empty() {
            firsts.push(0);
        }
        let are_touched = vec![false; firsts.len()];
        Self { firsts, are_touched }
    }

    fn index_of(&self, key: u64) -> usize {
        self.firsts.partition_point(|first| *first <= key).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use farsight_durability::LogPosition;

    use super::*;

    fn piece(first_key: u64) -> SnapshotPiece {
        let position = LogPosition::default();
        let (number, version_max, frames, checksum, pairs, pair_bytes) = (1, 0, 0, 0, 0, 0);
        SnapshotPiece { number, first_key, position, version_max, frames, checksum, pairs, pair_bytes }
    }

    #[test]
    fn marks_follow_their_keys_when_pieces_split_and_merge() {
        let touched = Touched::default();
        touched.mark(1, [7].into_iter());
        let of = |firsts: &[u64]| -> Vec<SnapshotPiece> { firsts.iter().copied().map(piece).collect() };
        assert_eq!(touched.take(1, &[]), [false], "no piece, and no mark yet");
        touched.mark(1, [7].into_iter());
        touched.set_pieces(1, &of(&[0, 10, 20]));
        assert_eq!(touched.take(1, &of(&[0, 10, 20])), [true; 3], "nobody knows where");
        touched.mark(1, [10, 19, u64::MAX].into_iter());
        touched.set_pieces(1, &of(&[0, 5, 15, 20, 30]));
        assert_eq!(touched.take(1, &[]), [false, true, true, true, true], "where one of its keys may be");
        touched.mark_range(1, 5, Some(15));
        assert_eq!(touched.take(1, &[]), [false, true, false, false, false]);
        touched.mark_range(1, 20, None);
        touched.set_pieces(1, &of(&[0, 20]));
        assert_eq!(touched.take(1, &[]), [false, true]);
        touched.retain(|table| table != 1);
        assert_eq!(touched.take(1, &of(&[0, 2])), [false; 2]);
    }
}
