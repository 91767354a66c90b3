//! Runs of pages, or of lines: which are free, and how far the region is used.
//!
//! Invariant: free runs neither overlap nor touch each other, and lie below `used`.

use std::collections::{BTreeMap, BTreeSet};

/// The pages of a region, or its lines.
pub struct Pages {
    /// Pages from the region's start that were ever used.
    used: u64,
    /// Pages that may be used.
    limit: u64,
    /// Free runs: first page and length.
    free: BTreeMap<u64, u64>,
    /// The same by length, then first page.
    by_length: BTreeSet<(u64, u64)>,
    free_count: u64,
}

impl Pages {
    /// So many, of which none is used.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self { used: 0, limit, free: BTreeMap::new(), by_length: BTreeSet::new(), free_count: 0 }
    }

    /// Pages ever used.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Pages of free runs.
    #[must_use]
    pub fn free_pages(&self) -> u64 {
        self.free_count
    }

    /// Takes a run of `count` pages: the shortest free one that suffices, else one at the end, for which
    /// `grow` sees to it that so many pages can be written. `Ok(None)` if there are not so many pages.
    ///
    /// # Errors
    /// Those of `grow`; then nothing has changed.
    pub fn take<E>(&mut self, count: u64, grow: impl FnOnce(u64) -> Result<(), E>) -> Result<Option<u64>, E> {
        if let Some(&(length, first)) = self.by_length.range((count, 0)..).next() {
            self.remove(first, length);
            if length > count {
                self.add(first + count, length - count);
            }
            return Ok(Some(first));
        }
        // The last free run may end where the used pages do: then the new run begins with it.
        let last = self.free.last_key_value().map(|(first, length)| (*first, *length));
        let last = last.filter(|(first, length)| first + length == self.used);
        let first = last.map_or(self.used, |(first, _)| first);
        let Some(end) = first.checked_add(count).filter(|end| *end <= self.limit) else { return Ok(None) };
        grow(end)?;
        if let Some((first, length)) = last {
            self.remove(first, length);
        }
        self.used = end;
        Ok(Some(first))
    }

    /// Makes the run of `count` pages from `first` on free.
    ///
    /// # Panics
    /// If one of them is free.
    pub fn give_back(&mut self, first: u64, count: u64) {
        let (mut first, mut count) = (first, count);
        if let Some((&before, &length)) = self.free.range(..first).next_back() {
            assert!(before + length <= first, "page {first} is free already");
            if before + length == first {
                self.remove(before, length);
                (first, count) = (before, length + count);
            }
        }
        if let Some((&behind, &length)) = self.free.range(first..).next() {
            assert!(first + count <= behind, "page {behind} is free already");
            if first + count == behind {
                self.remove(behind, length);
                count += length;
            }
        }
        self.add(first, count);
    }

    /// So many of which those outside `taken` are free: runs in their order, first page and length.
    #[must_use]
    pub fn with_taken(limit: u64, taken: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut pages = Self::new(limit);
        for (first, count) in taken {
            if first > pages.used {
                pages.add(pages.used, first - pages.used);
            }
            pages.used = pages.used.max(first + count);
        }
        pages
    }

    fn add(&mut self, first: u64, length: u64) {
        self.free.insert(first, length);
        self.by_length.insert((length, first));
        self.free_count += length;
    }

    fn remove(&mut self, first: u64, length: u64) {
        self.free.remove(&first);
        self.by_length.remove(&(length, first));
        self.free_count -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(pages: &mut Pages, count: u64) -> Option<u64> {
        let taken: Result<_, ()> = pages.take(count, |_| Ok(()));
        taken.expect("growth")
    }

    #[test]
    fn neighbours_become_one_run_and_the_shortest_that_suffices_is_taken() {
        let mut pages = Pages::new(20);
        assert_eq!([4, 1, 3, 1].map(|count| take(&mut pages, count)), [Some(0), Some(4), Some(5), Some(8)]);
        pages.give_back(0, 4);
        pages.give_back(5, 3);
        assert_eq!(take(&mut pages, 3), Some(5), "the shorter one");
        pages.give_back(5, 3);
        pages.give_back(4, 1);
        assert_eq!((pages.free_pages(), take(&mut pages, 8)), (8, Some(0)), "one run");
        assert_eq!(pages.used(), 9);
    }

    #[test]
    fn what_is_not_taken_is_free() {
        let mut pages = Pages::with_taken(20, [(2, 3), (5, 1), (9, 2)].into_iter());
        assert_eq!((pages.used(), pages.free_pages()), (11, 5));
        assert_eq!([2, 3, 3, 9].map(|count| take(&mut pages, count)), [Some(0), Some(6), Some(11), None]);
    }

    #[test]
    fn a_run_at_the_end_is_lengthened_and_the_limit_holds() {
        let mut pages = Pages::new(10);
        assert_eq!([take(&mut pages, 2), take(&mut pages, 5)], [Some(0), Some(2)]);
        pages.give_back(2, 5);
        assert_eq!(pages.take(8, Err), Err(10), "no memory");
        assert_eq!((pages.used(), pages.free_pages()), (7, 5), "nothing has changed");
        assert_eq!([take(&mut pages, 9), take(&mut pages, 8)], [None, Some(2)]);
        assert_eq!((pages.used(), pages.free_pages()), (10, 0));
        assert_eq!(take(&mut pages, u64::MAX), None);
    }
}
