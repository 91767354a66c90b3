//! One size class: its slabs, and which of their places are free.
//!
//! Invariant: `partial` names exactly the slabs that have free places; a slab all of whose places are free is
//! no slab any more.

use std::collections::{BTreeMap, BTreeSet};

use crate::PAGE_LINES;
use crate::sizes::{lines_of, slab_pages};

/// The slabs of one class.
pub(crate) struct Class {
    lines: u64,
    pages_per_slab: u64,
    places_per_slab: u64,
    /// By their first page.
    slabs: BTreeMap<u64, Slab>,
    partial: BTreeSet<u64>,
    free_places: u64,
}

/// The places of one slab.
struct Slab {
    /// A bit a place: set if it is free.
    free: Vec<u64>,
    free_count: u64,
}

impl Class {
    pub(crate) fn new(class: usize) -> Self {
        let (lines, pages_per_slab) = (u64::from(lines_of(class)), slab_pages(class));
        Self {
            lines,
            pages_per_slab,
            places_per_slab: pages_per_slab * PAGE_LINES / lines,
            slabs: BTreeMap::new(),
            partial: BTreeSet::new(),
            free_places: 0,
        }
    }

    /// Pages of one slab.
    pub(crate) fn pages_per_slab(&self) -> u64 {
        self.pages_per_slab
    }

    /// Lines of free places.
    pub(crate) fn free_lines(&self) -> u64 {
        self.free_places * self.lines
    }

    /// Lines of slabs in which no place is.
    pub(crate) fn lost_lines(&self) -> u64 {
        let rest = self.pages_per_slab * PAGE_LINES - self.places_per_slab * self.lines;
        self.slabs.len() as u64 * rest
    }

    /// Makes the pages from `first` on a slab.
    pub(crate) fn add_slab(&mut self, first: u64) {
        let count = self.places_per_slab;
        let full_words = (count / 64) as usize;
        let mut free = vec![u64::MAX; full_words];
        if !count.is_multiple_of(64) {
            free.push((1 << (count % 64)) - 1);
        }
        self.slabs.insert(first, Slab { free, free_count: count });
        self.partial.insert(first);
        self.free_places += count;
    }

    /// Appends the first lines of up to `count` places to `into`, those of the lowest slabs: so higher ones
    /// become empty.
    pub(crate) fn take(&mut self, count: usize, into: &mut Vec<u64>) {
        let wanted = into.len() + count;
        while into.len() < wanted {
            let Some(&first) = self.partial.first() else { return };
            let slab = self.slabs.get_mut(&first).expect("a slab with free places");
            let before = into.len();
            slab.take(wanted - before, |place| into.push(first * PAGE_LINES + place * self.lines));
            self.free_places -= (into.len() - before) as u64;
            if slab.free_count == 0 {
                self.partial.remove(&first);
            }
        }
    }

    /// Makes the place at this line free. Returns the first page of its slab if that has no other.
    pub(crate) fn give_back(&mut self, offset_lines: u64) -> Option<u64> {
        let page = offset_lines / PAGE_LINES;
        let (&first, slab) = self.slabs.range_mut(..=page).next_back().expect("a place of some slab");
        let within = offset_lines - first * PAGE_LINES;
        let (place, rest) = (within / self.lines, within % self.lines);
        assert!(rest == 0 && place < self.places_per_slab, "line {offset_lines} begins no place");
        let (word, bit) = (&mut slab.free[(place / 64) as usize], 1 << (place % 64));
        assert_eq!(*word & bit, 0, "the place at line {offset_lines} is free already");
        *word |= bit;
        slab.free_count += 1;
        self.free_places += 1;
        if slab.free_count < self.places_per_slab {
            self.partial.insert(first);
            return None;
        }
        self.slabs.remove(&first);
        self.partial.remove(&first);
        self.free_places -= self.places_per_slab;
        Some(first)
    }
}

impl Slab {
    /// Takes up to `count` places, the lowest first.
    fn take(&mut self, count: usize, mut taken: impl FnMut(u64)) {
        let mut left = count;
        for (number, word) in self.free.iter_mut().enumerate() {
            while *word != 0 && left > 0 {
                let bit = u64::from(word.trailing_zeros());
                *word &= *word - 1;
                taken(number as u64 * 64 + bit);
                self.free_count -= 1;
                left -= 1;
            }
        }
    }
}
