//! What a region held at each moment that a READ may still ask for.
//!
//! Invariant: the region's words are what they are once every store is visible. A *record* says what a word
//! held before the store that becomes visible at its time. So a word at time t is the oldest record of it
//! that is younger than t, or else the word itself.
//!
//! Records of one word have times that do not fall, in the order of the stores.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use farsight_base::prng::mix;
use farsight_base::words::{CopyMode, copy_lines};
use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::Region as _;

use crate::region::SimRegion;

/// Records of one line beyond which the old ones are looked for and dropped.
const RECORDS_KEPT: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Record {
    at_ns: u64,
    word: u8,
    /// Stored by a verb, not by the node's processor.
    is_verb: bool,
    old: u64,
}

/// One seed, one order: the standard hasher is seeded by the process.
#[derive(Default)]
struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0 ^ u64::from(*byte));
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = mix(number as u64);
    }
}

/// The records of one region.
#[derive(Default)]
pub(crate) struct History {
    /// When the last of all records becomes visible.
    newest_ns: u64,
    lines: HashMap<usize, Vec<Record>, BuildHasherDefault<LineHasher>>,
}

impl History {
    /// Notes that the store of `word`, which held `old`, becomes visible at `at_ns`, or when an earlier store
    /// of the same word does, if that is later. Returns when. Nobody asks for moments before `floor_ns`.
    pub(crate) fn note(&mut self, word: usize, old: u64, at_ns: u64, is_verb: bool, floor_ns: u64) -> u64 {
        let records = self.lines.entry(word / WORDS_PER_LINE).or_default();
        if records.len() >= RECORDS_KEPT {
            records.retain(|record| record.at_ns > floor_ns);
        }
        let word = (word % WORDS_PER_LINE) as u8;
        let earlier =
            records.iter().rev().find(|record| record.word == word).map_or(0, |record| record.at_ns);
        let at_ns = at_ns.max(earlier);
        self.newest_ns = self.newest_ns.max(at_ns);
        records.push(Record { at_ns, word, is_verb, old });
        at_ns
    }

    /// `line` of `region` as it was at `at_ns`.
    pub(crate) fn line(&self, region: &SimRegion, line: usize, at_ns: u64) -> Line {
        let mut copy = present(region, line, CopyMode::Plain);
        if let Some(records) = self.lines.get(&line) {
            for record in records.iter().rev().filter(|record| record.at_ns > at_ns) {
                copy.0[usize::from(record.word)] = record.old;
            }
        }
        copy
    }

    /// True if `line` changes after `at_ns`.
    pub(crate) fn changes_after(&self, line: usize, at_ns: u64) -> bool {
        self.newest_ns > at_ns
            && self.lines.get(&line).is_some_and(|records| records.iter().any(|record| record.at_ns > at_ns))
    }

    /// True if a verb stored `word` after `at_ns`.
    pub(crate) fn verb_stored_after(&self, word: usize, at_ns: u64) -> bool {
        let place = (word % WORDS_PER_LINE) as u8;
        self.lines.get(&(word / WORDS_PER_LINE)).is_some_and(|records| {
            records.iter().any(|record| record.is_verb && record.word == place && record.at_ns > at_ns)
        })
    }
}

/// The line's words as they are. The mode matters beside real threads alone, which may be writing them.
pub(crate) fn present(region: &SimRegion, line: usize, mode: CopyMode) -> Line {
    let mut copy = [Line::ZERO];
    copy_lines(&region.words()[line * WORDS_PER_LINE..][..WORDS_PER_LINE], &mut copy, mode);
    copy[0]
}

#[cfg(test)]
mod tests {
    use farsight_base::RegionId;
    use farsight_base::sync::Ordering;
    use farsight_fabric::RegionRights;

    use super::*;

    #[test]
    fn each_moment_has_its_words() {
        let region = SimRegion::new(RegionId(0), 64, RegionRights::ReadOnly, 0);
        let mut history = History::default();
        let mut store = |word: usize, new: u64, at_ns: u64| {
            let old = region.words()[word].swap(new, Ordering::Relaxed);
            history.note(word, old, at_ns, false, 0)
        };
        assert_eq!(store(2, 10, 100), 100);
        assert_eq!(store(5, 50, 90), 90);
        assert_eq!(store(2, 11, 95), 100, "no store overtakes an earlier one of its word");
        assert_eq!(store(2, 12, 200), 200);
        let at = |at_ns| {
            let line = history.line(&region, 0, at_ns);
            (line.0[2], line.0[5])
        };
        assert_eq!(
            [at(89), at(90), at(99), at(100), at(199), at(200)],
            [(0, 0), (0, 50), (0, 50), (11, 50), (11, 50), (12, 50)]
        );
        assert!(history.changes_after(0, 199) && !history.changes_after(0, 200));
    }
}
