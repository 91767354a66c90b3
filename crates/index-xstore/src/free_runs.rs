//! The free lines of an arena or a region: runs of neighbours, of which blocks of any length are cut.
//!
//! Invariant: no two runs overlap or touch. Lines that come back join the runs beside them, so a run is as
//! long as it can be. A block is cut from the shortest run that has room, the first of several: so blocks
//! stay together, and long runs stay long.

use std::collections::{BTreeMap, BTreeSet};

/// Runs of free lines.
#[derive(Default)]
pub(crate) struct FreeRuns {
    /// Lines of the run that begins here.
    lines: BTreeMap<u32, u32>,
    /// The same runs: lines, then first line.
    by_length: BTreeSet<(u32, u32)>,
}

impl FreeRuns {
    /// The first of so many free neighbours, which are free no more; `None` if there are none.
    pub(crate) fn take(&mut self, lines: u32) -> Option<u32> {
        let &(length, first) = self.by_length.range((lines, 0)..).next()?;
        self.remove(first, length);
        if length > lines {
            self.insert(first + lines, length - lines);
        }
        Some(first)
    }

    /// Makes `lines` from `first` on free, which are not.
    pub(crate) fn give(&mut self, first: u32, lines: u32) {
        let (mut first, mut lines) = (first, lines);
        let before = self.lines.range(..first).next_back().map(|(before, lines)| (*before, *lines));
        if let Some((before, length)) = before.filter(|(before, length)| before + length >= first) {
            debug_assert_eq!(before + length, first, "lines are given back once");
            self.remove(before, length);
            (first, lines) = (before, length + lines);
        }
        if let Some(length) = self.lines.get(&(first + lines)).copied() {
            self.remove(first + lines, length);
            lines += length;
        }
        self.insert(first, lines);
    }

    /// Bytes of memory that the runs themselves take, about: nodes of both trees are three quarters full.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lines.len() * size_of::<[u32; 4]>() * 4 / 3
    }

    fn insert(&mut self, first: u32, lines: u32) {
        self.lines.insert(first, lines);
        self.by_length.insert((lines, first));
    }

    fn remove(&mut self, first: u32, lines: u32) {
        self.lines.remove(&first);
        self.by_length.remove(&(lines, first));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_and_join_again() {
        let mut runs = FreeRuns::default();
        runs.give(1, 10);
        assert_eq!([3, 3, 4].map(|lines| runs.take(lines)), [Some(1), Some(4), Some(7)]);
        assert_eq!(runs.take(1), None);
        runs.give(1, 3);
        runs.give(7, 4);
        assert_eq!(runs.take(5), None, "they do not touch");
        assert_eq!(runs.take(2), Some(1), "of the shorter run");
        runs.give(1, 2);
        runs.give(4, 3);
        assert_eq!(runs.take(10), Some(1), "all are one again");
        assert_eq!((runs.lines.len(), runs.by_length.len()), (0, 0));
    }
}
