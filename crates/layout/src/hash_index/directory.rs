//! A partition's directory: into which subtables it was split.
//!
//! Invariant: a word is zero, or names the two halves of one subtable. It is written once. So whatever parts
//! of a directory somebody has READ, at whatever moments, lead to a subtable that was the key's once. If it
//! is not any more, all of its slots are sealed.

use farsight_base::WORDS_PER_LINE;

use super::{HASH_PARTITION_BITS, HASH_SPLIT_BITS};

/// Words of a partition's directory: that of a subtable is where a heap has it, the root's at 1. The first
/// word is zero.
pub const DIRECTORY_WORDS: usize = 1 << HASH_SPLIT_BITS;
/// Lines of a partition's directory.
pub const DIRECTORY_LINES: usize = DIRECTORY_WORDS / WORDS_PER_LINE;
/// Bits of a directory's word for each half of a split subtable: its unit, plus one.
pub const DIRECTORY_UNIT_BITS: u32 = 32;

const _: () = assert!(DIRECTORY_LINES * WORDS_PER_LINE == DIRECTORY_WORDS);
const _: () = assert!(2 * DIRECTORY_UNIT_BITS == u64::BITS);

/// A subtable of a partition, and the unit in which it stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Subtable {
    /// Its number in a heap: the root has 1, halves of h have 2h and 2h + 1.
    number: u32,
    unit: u32,
}

/// The units of a split subtable's halves: of keys whose next bit is 0, and 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Halves(pub [u32; 2]);

impl Subtable {
    pub(super) fn root(unit: u32) -> Self {
        Self { number: 1, unit }
    }

    /// The unit in which it stands.
    #[must_use]
    pub fn unit(self) -> u32 {
        self.unit
    }

    /// Its number in its partition.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }

    /// So many of the highest bits of their hashes its keys share.
    #[must_use]
    pub fn depth(self) -> u32 {
        HASH_PARTITION_BITS + self.number.ilog2()
    }

    /// The word of the directory that names its halves; `None` if it is of the greatest depth, which is not
    /// split.
    #[must_use]
    pub fn directory_word(self) -> Option<usize> {
        let word = self.number as usize;
        (word < DIRECTORY_WORDS).then_some(word)
    }

    /// One of its halves.
    #[must_use]
    pub fn half(self, half: usize, halves: Halves) -> Self {
        Self { number: self.number * 2 + half as u32, unit: halves.0[half] }
    }
}

impl Halves {
    /// Their word.
    #[must_use]
    pub fn word(self) -> u64 {
        let [low, high] = self.0.map(|unit| u64::from(unit) + 1);
        low | high << DIRECTORY_UNIT_BITS
    }

    /// The halves that a word names, if they are two of so many units.
    #[must_use]
    pub fn parse(word: u64, units: u32) -> Option<Self> {
        let unit = |number: u32| number.checked_sub(1).filter(|unit| *unit < units);
        let (low, high) = (unit(word as u32)?, unit((word >> DIRECTORY_UNIT_BITS) as u32)?);
        (low != high).then_some(Self([low, high]))
    }
}
