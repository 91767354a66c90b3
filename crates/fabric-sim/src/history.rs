//! What a region held at each moment that a READ may still ask for.
//!
//! Invariant: the region's words are what they are once every store is visible. A *record* says what a word
//! held before the store that becomes visible at its time. So a word at time t is the oldest record of it
//! that is younger than t, or else the word itself.
//!
//! Records of one word have times that do not fall, in the order of the stores.

use farsight_base::words::{CopyMode, copy_lines};
use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::Region as _;

use crate::region::SimRegion;

/// Records of one line beyond which the old ones are looked for and dropped.
const RECORDS_KEPT: usize = 64;

/// Room for records that a line begins with: what a write or two leave.
const RECORDS_EXPECTED: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Record {
    at_ns: u64,
    word: u8,
    /// Stored by a verb, not by the node's processor.
    is_verb: bool,
    old: u64,
}

/// The records of one line.
#[derive(Default)]
struct LineRecords {
    /// When the last of each word's records becomes visible.
    words_ns: [u64; WORDS_PER_LINE],
    /// The last of these.
    newest_ns: u64,
    records: Vec<Record>,
}

/// The records of one region.
#[derive(Default)]
pub(crate) struct History {
    /// By line, up to the last that has records: where in `known` they are, counted from one; zero: nowhere.
    places: Vec<u32>,
    known: Vec<LineRecords>,
}

/// What a card that moves words took of a line, and whether that was torn.
pub(crate) struct TakenLine {
    /// The line as it was when its first word might be moved, and its last.
    pub(crate) before: Line,
    pub(crate) after: Line,
    /// Each word as it was at its own moment.
    pub(crate) words: Line,
}

impl History {
    /// Notes that the store of `word`, which held `old`, becomes visible at `at_ns`, or when an earlier store
    /// of the same word does, if that is later. Returns when. Nobody asks for moments before `floor_ns`.
    pub(crate) fn note(&mut self, word: usize, old: u64, at_ns: u64, is_verb: bool, floor_ns: u64) -> u64 {
        let own = self.records_of(word / WORDS_PER_LINE);
        if own.newest_ns <= floor_ns {
            own.records.clear();
        } else if own.records.len() >= RECORDS_KEPT {
            own.records.retain(|record| record.at_ns > floor_ns);
        }
        let word = word % WORDS_PER_LINE;
        let at_ns = at_ns.max(own.words_ns[word]);
        own.words_ns[word] = at_ns;
        own.newest_ns = own.newest_ns.max(at_ns);
        own.records.push(Record { at_ns, word: word as u8, is_verb, old });
        at_ns
    }

    fn records_of(&mut self, line: usize) -> &mut LineRecords {
        if self.places.len() <= line {
            self.places.resize(line + 1, 0);
        }
        let place = &mut self.places[line];
        if *place == 0 {
            let records = Vec::with_capacity(RECORDS_EXPECTED);
            self.known.push(LineRecords { records, ..LineRecords::default() });
            *place = u32::try_from(self.known.len()).expect("fewer lines than 2^32 are ever stored to");
        }
        &mut self.known[*place as usize - 1]
    }

    fn of(&self, line: usize) -> Option<&LineRecords> {
        let place = *self.places.get(line)?;
        self.known.get((place as usize).wrapping_sub(1))
    }

    /// What `line`, which is `now`, was at `at_ns`.
    pub(crate) fn line(&self, line: usize, mut now: Line, at_ns: u64) -> Line {
        if let Some(own) = self.of(line) {
            for record in own.records.iter().rev().filter(|record| record.at_ns > at_ns) {
                now.0[usize::from(record.word)] = record.old;
            }
        }
        now
    }

    /// `line`, which is `now`, with each word as it was at the moment given for it, and what it was at two
    /// others.
    pub(crate) fn words(
        &self,
        line: usize,
        now: Line,
        words_ns: &[u64; WORDS_PER_LINE],
        [before_ns, after_ns]: [u64; 2],
    ) -> TakenLine {
        let mut taken = TakenLine { before: now, after: now, words: now };
        for record in self.of(line).iter().flat_map(|own| own.records.iter().rev()) {
            let Record { at_ns, word, old, .. } = *record;
            let word = usize::from(word);
            let moments = [
                (&mut taken.before, before_ns),
                (&mut taken.after, after_ns),
                (&mut taken.words, words_ns[word]),
            ];
            for (copy, _) in moments.into_iter().filter(|(_, moment_ns)| at_ns > *moment_ns) {
                copy.0[word] = old;
            }
        }
        taken
    }

    /// True if `line` changes after `at_ns`.
    pub(crate) fn changes_after(&self, line: usize, at_ns: u64) -> bool {
        self.of(line).is_some_and(|own| own.newest_ns > at_ns)
    }

    /// True if a verb stored `word` after `at_ns`.
    pub(crate) fn verb_stored_after(&self, word: usize, at_ns: u64) -> bool {
        let place = (word % WORDS_PER_LINE) as u8;
        self.of(word / WORDS_PER_LINE).is_some_and(|own| {
            own.records.iter().any(|record| record.is_verb && record.word == place && record.at_ns > at_ns)
        })
    }
}

/// The line's words as they are. The mode matters beside real threads alone, which may be writing them.
pub(crate) fn present(region: &SimRegion, line: usize, mode: CopyMode) -> Line {
    let mut copy = [Line::ZERO];
    present_lines(region, line, &mut copy, mode);
    copy[0]
}

/// [`present`] of the lines from `first` on.
pub(crate) fn present_lines(region: &SimRegion, first: usize, into: &mut [Line], mode: CopyMode) {
    let words = into.len() * WORDS_PER_LINE;
    copy_lines(&region.words()[first * WORDS_PER_LINE..][..words], into, mode);
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
            let line = history.line(0, present(&region, 0, CopyMode::Plain), at_ns);
            (line.0[2], line.0[5])
        };
        assert_eq!(
            [at(89), at(90), at(99), at(100), at(199), at(200)],
            [(0, 0), (0, 50), (0, 50), (11, 50), (11, 50), (12, 50)]
        );
        assert!(history.changes_after(0, 199) && !history.changes_after(0, 200));
        assert!(!history.changes_after(1, 0), "another line");
        let mut words_ns = [150; WORDS_PER_LINE];
        words_ns[2] = 99;
        let taken = history.words(0, present(&region, 0, CopyMode::Plain), &words_ns, [89, 200]);
        let [before, after, words] =
            [taken.before, taken.after, taken.words].map(|line| (line.0[2], line.0[5]));
        assert_eq!((before, after, words), ((0, 0), (12, 50), (0, 50)));
    }
}
