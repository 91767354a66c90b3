//! The journal of a pool's leaf: what its lock's holder is about to do, for the compute node that finds the
//! holder dead.
//!
//! Invariants:
//! - a torn journal is none: its check covers all of it;
//! - a rewrite's journal stands until the rewrite and all that follows from it is done, and is cleared before
//!   the leaf is unlocked;
//! - an update's journal may stand on. Repair replays it only while a line of its value is odd. The update
//!   made the line odd, or a later insert whose value shares the line. After such an insert the journal's
//!   value is the one that stands there.

use farsight_base::prng::mix;
use farsight_base::words::STAMP_INCARNATION_BITS;

use farsight_base::LeafNumber;
use smallvec::{SmallVec, smallvec};

use super::LockWord;
use crate::{Geometry, INFINITE_FLAG_BIT, LeafSlot, PAIR_VERSION_BITS, VALUE_BYTES_MAX};

/// Word of the control lines that no version in the leaf may fall below, though no slot shows it any more.
pub const FLOOR_WORD: usize = 0;
/// The bit of that word that says that the leaf is never merged into another.
pub const ANCHOR_BIT: u32 = 63;
/// Word of the control lines that holds the check over the lock word and the journal's other words.
pub const CHECK_WORD: usize = 1;
/// Word of the control lines that holds the journal's kind and the small fields.
const HEAD_WORD: usize = 2;
/// Word of the control lines at which what depends on the kind begins.
pub(super) const FIRST_PAYLOAD_WORD: usize = 3;
/// Words that a rewrite's payload takes.
pub(super) const REWRITE_WORDS: usize = 5;

/// A value in whole words.
pub type ValueWords = SmallVec<[u64; VALUE_BYTES_MAX / 8]>;
/// A journal's words: a few more than a value's.
pub type JournalWords = SmallVec<[u64; VALUE_BYTES_MAX / 8 + 4]>;

const _: () = assert!(FIRST_PAYLOAD_WORD - CHECK_WORD < 4, "check, head and version beside the value");
const UPDATE: u64 = 1;
const REWRITE: u64 = 2;
/// Where the head's fields begin: incarnation and, of an update, slot.
const INCARNATION_SHIFT: u32 = 8;
const SLOT_SHIFT: u32 = INCARNATION_SHIFT + STAMP_INCARNATION_BITS;
/// What a rewrite's first word says of the neighbour, above the number of a merged one.
const BORN: u64 = 1 << 32;
const MERGED: u64 = 2 << 32;

/// What a rewrite leaves to do at the leaf to the right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbour {
    /// Nothing.
    Same,
    /// The leaf that the next word names was made by this change: it is opened, if it is closed still.
    Born,
    /// A leaf was merged into this one: it is closed, if that holder still holds it.
    Merged {
        /// Which.
        leaf: LeafNumber,
        /// Who locked it for that.
        holder: LockWord,
    },
}

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
    /// What is to be done to the right.
    pub neighbour: Neighbour,
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
#[expect(clippy::large_enum_variant, reason = "a box would be an allocation an update")]
pub enum Journal {
    /// A slot's value is replaced.
    Update {
        /// The leaf's incarnation.
        incarnation: u32,
        /// The slot.
        slot: LeafSlot,
        /// The pair's new version.
        version: u64,
        /// The new value, in whole words.
        value: ValueWords,
    },
    /// All lines get a new incarnation.
    Rewrite(Rewrite),
}

impl Journal {
    /// The journal's words, from the check on.
    #[must_use]
    pub fn encode(&self) -> JournalWords {
        let mut words: JournalWords = smallvec![0];
        match self {
            Self::Update { incarnation, slot, version, value } => {
                let fields = u64::from(*incarnation) << INCARNATION_SHIFT;
                words.extend([UPDATE | fields | (slot.number() as u64) << SLOT_SHIFT, *version]);
                words.extend_from_slice(value);
            }
            Self::Rewrite(Rewrite { incarnation, next, high, floor, neighbour }) => {
                let neighbour = match neighbour {
                    Neighbour::Same => [0, 0],
                    Neighbour::Born => [BORN, 0],
                    Neighbour::Merged { leaf, holder } => [MERGED | u64::from(leaf.0), holder.0],
                };
                words.push(REWRITE | u64::from(*incarnation) << INCARNATION_SHIFT);
                words.extend(neighbour);
                words.extend([*next, *high, *floor]);
            }
        }
        words[0] = check(&words[1..]);
        words
    }

    /// The journal that stands in `control` (a block's control words), if one does, whole.
    #[must_use]
    pub fn decode(geometry: &Geometry, control: &[u64]) -> Option<Self> {
        let covered = covered(geometry, control)?;
        if control[CHECK_WORD] != check(covered) {
            return None;
        }
        Self::decode_unchecked(geometry, control)
    }

    /// [`Journal::decode`] of words whose check is not looked at.
    #[must_use]
    pub fn decode_unchecked(geometry: &Geometry, control: &[u64]) -> Option<Self> {
        let covered = covered(geometry, control)?;
        let head = covered[0];
        let kind = head & ((1 << INCARNATION_SHIFT) - 1);
        let incarnation = (head >> INCARNATION_SHIFT) as u32 & ((1 << STAMP_INCARNATION_BITS) - 1);
        let slot = LeafSlot::new(usize::try_from(head >> SLOT_SHIFT).ok()?)?;
        match (kind, &covered[1..]) {
            (UPDATE, [version, value @ ..]) => {
                let is_version = *version != 0 && version >> PAIR_VERSION_BITS == 0;
                let value = value.into();
                is_version.then_some(Self::Update { incarnation, slot, version: *version, value })
            }
            (REWRITE, &[neighbour, holder, next, high, floor]) if slot == LeafSlot::FIRST => {
                let neighbour = decode_neighbour(neighbour, LockWord(holder))?;
                Some(Self::Rewrite(Rewrite { incarnation, next, high, floor, neighbour }))
            }
            _ => None,
        }
    }
}

/// The words that the check covers, if the head is one.
fn covered<'c>(geometry: &Geometry, control: &'c [u64]) -> Option<&'c [u64]> {
    let payload_words = match control.get(HEAD_WORD)? & ((1 << INCARNATION_SHIFT) - 1) {
        UPDATE => 1 + geometry.value_words(),
        REWRITE => REWRITE_WORDS,
        _ => return None,
    };
    control.get(HEAD_WORD..FIRST_PAYLOAD_WORD + payload_words)
}

fn decode_neighbour(word: u64, holder: LockWord) -> Option<Neighbour> {
    match (word, word & !u64::from(u32::MAX)) {
        (0, _) if holder == LockWord::FREE => Some(Neighbour::Same),
        (BORN, _) if holder == LockWord::FREE => Some(Neighbour::Born),
        (_, MERGED) if holder.owner().is_some() => {
            Some(Neighbour::Merged { leaf: LeafNumber(word as u32), holder })
        }
        _ => None,
    }
}

/// A number that hardly any other words have.
fn check(words: &[u64]) -> u64 {
    words.iter().fold(mix(words.len() as u64), |sum, word| mix(sum.rotate_left(23) ^ mix(*word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journals(geometry: &Geometry) -> [Journal; 4] {
        let value = (0..geometry.value_words() as u64).map(|word| word ^ 0xabc).collect();
        let neighbour = Neighbour::Same;
        let rewrite = Rewrite { incarnation: 0xff_fff0, next: 1 << 32 | 9, high: 77, floor: 5, neighbour };
        let merged = Neighbour::Merged { leaf: LeafNumber(u32::MAX - 1), holder: LockWord::of(3, 9) };
        let (slot, version) = (LeafSlot::new(15).unwrap(), (1 << 48) - 1);
        [
            Journal::Update { incarnation: 0xff_ffff, slot, version, value },
            Journal::Rewrite(rewrite),
            Journal::Rewrite(Rewrite { neighbour: Neighbour::Born, ..rewrite }),
            Journal::Rewrite(Rewrite { neighbour: merged, ..rewrite }),
        ]
    }

    #[test]
    fn journals_come_back_whole_or_not_at_all() {
        for value_bytes in [8, 24, 256] {
            let geometry = Geometry::new(value_bytes).unwrap();
            for journal in journals(&geometry) {
                let mut control = vec![0];
                control.extend(journal.encode());
                control.resize(40, 0);
                assert_eq!(Journal::decode(&geometry, &control), Some(journal.clone()));
                for bit in 64..64 * (1 + journal.encode().len()) {
                    control[bit / 64] ^= 1 << (bit % 64);
                    assert_eq!(Journal::decode(&geometry, &control), None, "bit {bit}");
                    control[bit / 64] ^= 1 << (bit % 64);
                }
                assert_eq!(Journal::decode(&geometry, &control[..4]), None, "cut off");
            }
            assert_eq!(Journal::decode(&geometry, &[0; 40]), None);
        }
    }
}
