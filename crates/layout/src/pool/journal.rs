//! The journal of a pool's leaf: what its lock's holder is about to do, for whoever finds the holder dead.
//!
//! Invariant: a journal is believed under the lock value that it was written under and no other. Lock values
//! are never used twice, so a finished change's journal needs no clearing, and a torn one is none.

use farsight_base::prng::mix;
use farsight_base::words::STAMP_INCARNATION_BITS;

use super::LockWord;
use crate::{Geometry, INFINITE_FLAG_BIT, LeafSlot, PAIR_VERSION_BITS};

/// Word of the control lines that no version in the leaf may fall below, though no slot shows it any more.
pub const FLOOR_WORD: usize = 0;
/// Word of the control lines that holds the check over the lock word and the journal's other words.
pub const CHECK_WORD: usize = 1;
/// Word of the control lines that holds the journal's kind and the small fields.
const HEAD_WORD: usize = 2;
/// Word of the control lines at which what depends on the kind begins.
pub(super) const FIRST_PAYLOAD_WORD: usize = 3;
/// Words that a rewrite's payload takes.
pub(super) const REWRITE_WORDS: usize = 4;

const UPDATE: u64 = 1;
const REWRITE: u64 = 2;
/// Bits of the head that hold the kind; those above hold an update's slot.
const KIND_BITS: u32 = 8;

/// Everything about a leaf but its pairs, as it shall be, and which of its pairs stay: those below the high
/// fence. Compaction keeps the fences, a split lowers the high one, a merge raises it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rewrite {
    /// The incarnation that every line gets.
    pub incarnation: u32,
    /// The leaf's next word: right sibling, and whether the high fence is infinite.
    pub next: u64,
    /// The leaf's high fence word.
    pub high: u64,
    /// What the versions of its pairs grow from.
    pub floor: u64,
    /// The leaf to the right that is merged into this one, by its number in a next word.
    pub merged: Option<u32>,
}

impl Rewrite {
    /// True if the leaf keeps a pair of `key`.
    #[must_use]
    pub fn keeps(&self, key: u64) -> bool {
        self.next >> INFINITE_FLAG_BIT & 1 == 1 || key < self.high
    }
}

/// A change that must be finished once it has begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Journal {
    /// A slot's value is replaced.
    Update {
        /// The slot.
        slot: LeafSlot,
        /// The pair's new version.
        version: u64,
        /// The new value, in whole words.
        value: Vec<u64>,
    },
    /// All lines get a new incarnation.
    Rewrite(Rewrite),
}

impl Journal {
    /// The journal's words, from the check on, under `lock`.
    #[must_use]
    pub fn encode(&self, lock: LockWord) -> Vec<u64> {
        let mut words = vec![0];
        match self {
            Self::Update { slot, version, value } => {
                words.extend([UPDATE | (slot.number() as u64) << KIND_BITS, *version]);
                words.extend(value);
            }
            Self::Rewrite(rewrite) => {
                let merged = rewrite.merged.map_or(0, |number| 1 << 32 | u64::from(number));
                words.extend([REWRITE | u64::from(rewrite.incarnation) << KIND_BITS, merged]);
                words.extend([rewrite.next, rewrite.high, rewrite.floor]);
            }
        }
        words[0] = check(lock, &words[1..]);
        words
    }

    /// The journal that stands in `control` (a block's control words), if it was written under `lock`, whole:
    /// otherwise the change had not begun.
    #[must_use]
    pub fn decode(geometry: &Geometry, lock: LockWord, control: &[u64]) -> Option<Self> {
        let head = *control.get(HEAD_WORD)?;
        let (kind, fields) = (head & ((1 << KIND_BITS) - 1), head >> KIND_BITS);
        let payload_words = match kind {
            UPDATE => 1 + geometry.value_words(),
            REWRITE => REWRITE_WORDS,
            _ => return None,
        };
        let covered = control.get(HEAD_WORD..FIRST_PAYLOAD_WORD + payload_words)?;
        if control[CHECK_WORD] != check(lock, covered) {
            return None;
        }
        match (kind, &covered[1..]) {
            (UPDATE, [version, value @ ..]) => {
                let slot = usize::try_from(fields).ok().and_then(LeafSlot::new)?;
                let is_version = *version != 0 && version >> PAIR_VERSION_BITS == 0;
                is_version.then(|| Self::Update { slot, version: *version, value: value.to_vec() })
            }
            (REWRITE, &[merged, next, high, floor]) => {
                let incarnation =
                    u32::try_from(fields).ok().filter(|it| it >> STAMP_INCARNATION_BITS == 0)?;
                let merged = match merged >> 32 {
                    0 if merged == 0 => None,
                    1 => Some(merged as u32),
                    _ => return None,
                };
                Some(Self::Rewrite(Rewrite { incarnation, next, high, floor, merged }))
            }
            _ => None,
        }
    }
}

/// A number that hardly any other words under any other lock have.
fn check(lock: LockWord, words: &[u64]) -> u64 {
    words.iter().fold(mix(lock.0), |sum, word| mix(sum.rotate_left(23) ^ mix(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journals(geometry: &Geometry) -> [Journal; 3] {
        let value = (0..geometry.value_words() as u64).map(|word| word ^ 0xabc).collect();
        let rewrite = Rewrite { incarnation: 0xff_fff0, next: 1 << 32 | 9, high: 77, floor: 5, merged: None };
        [
            Journal::Update { slot: LeafSlot::new(15).unwrap(), version: (1 << 48) - 1, value },
            Journal::Rewrite(rewrite),
            Journal::Rewrite(Rewrite { merged: Some(u32::MAX - 1), ..rewrite }),
        ]
    }

    #[test]
    fn journals_come_back_under_their_own_lock_alone() {
        for value_bytes in [8, 24, 256] {
            let geometry = Geometry::new(value_bytes).unwrap();
            for journal in journals(&geometry) {
                let lock = LockWord::of(3, 9);
                let mut control = vec![0];
                control.extend(journal.encode(lock));
                control.resize(40, 0);
                assert_eq!(Journal::decode(&geometry, lock, &control), Some(journal.clone()));
                assert_eq!(Journal::decode(&geometry, LockWord::of(3, 10), &control), None);
                for bit in 64..64 * journal.encode(lock).len() {
                    control[bit / 64] ^= 1 << (bit % 64);
                    assert_eq!(Journal::decode(&geometry, lock, &control), None, "bit {bit}");
                    control[bit / 64] ^= 1 << (bit % 64);
                }
                assert_eq!(Journal::decode(&geometry, lock, &control[..4]), None, "cut off");
            }
        }
    }
}
