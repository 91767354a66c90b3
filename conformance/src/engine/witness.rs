//! Values that prove what they are, and a ledger of what was acknowledged.
//!
//! A *witness* is a value made of a key's number and a sequence number alone. Its first word has 20 bits of
//! number, 28 of sequence and 16 of checksum. Behind it is a stream that follows from them. So a torn value,
//! or one of another key, does not regenerate.
//!
//! The *ledger* is a file of three words a key, written by the key's one writer and read by other processes.
//! *Acknowledged* is the sequence number of the last write that was answered, and whether it removed the key.
//! *Begun* is the newest that was sent, and *removal begun* the newest removal that was sent. Each word
//! carries a check, so that one read while it is written is recognized. A reader looks at *acknowledged*
//! before it reads the table and at the others afterwards; between these bounds lies what it may find
//! ([`Bounds`]).

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use farsight_base::prng::{SplitMix64, mix};

const NUMBER_BITS: u32 = 20;
const SEQUENCE_BITS: u32 = 28;
const CHECK_BITS: u32 = 16;
const WORDS_PER_KEY: usize = 3;

/// What a witness says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Witness {
    /// Its key's number.
    pub number: u64,
    /// Which of the key's writes it is.
    pub sequence: u64,
}

impl Witness {
    /// Its bytes, as the value of a key.
    ///
    /// # Panics
    /// If the numbers do not fit.
    pub fn write(self, into: &mut [u8]) {
        assert!(self.number >> NUMBER_BITS == 0 && self.sequence >> SEQUENCE_BITS == 0, "{self:?} fits");
        let head = self.number | self.sequence << NUMBER_BITS;
        let word = head | mix(head) >> (64 - CHECK_BITS) << (64 - CHECK_BITS);
        let mut stream = SplitMix64::new(word);
        into[..8].copy_from_slice(&word.to_le_bytes());
        for chunk in into[8..].chunks_mut(8) {
            chunk.copy_from_slice(&stream.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }

    /// The witness that `value` is; `None` if it is torn.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let word = u64::from_le_bytes(*value.first_chunk()?);
        let number = word & ((1 << NUMBER_BITS) - 1);
        let sequence = word >> NUMBER_BITS & ((1 << SEQUENCE_BITS) - 1);
        let witness = Self { number, sequence };
        let mut whole = [0; farsight::VALUE_BYTES_MAX];
        witness.write(&mut whole[..value.len()]);
        (whole[..value.len()] == *value).then_some(witness)
    }
}

/// What a key's writer has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// The sequence number of the last write that was answered.
    pub acknowledged: u64,
    /// True if that was a removal.
    pub is_removed: bool,
    /// The newest sequence number that was sent.
    pub begun: u64,
    /// The newest removal's that was sent.
    pub removal_begun: u64,
}

/// The ledger's file.
pub struct Ledger {
    file: File,
}

impl Ledger {
    /// A new ledger, in which nothing has happened to `keys` keys.
    ///
    /// # Panics
    /// If the file cannot be made.
    #[must_use]
    pub fn create(path: &Path, keys: usize) -> Self {
        let file = File::options().read(true).write(true).create_new(true).open(path).expect("a new ledger");
        let ledger = Self { file };
        for number in 0..keys {
            ledger.set(number, Entry { is_removed: true, ..Entry::default() });
        }
        ledger
    }

    /// The ledger at `path`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn open(path: &Path) -> Self {
        let file = File::options().read(true).write(true).open(path).expect("the ledger");
        Self { file }
    }

    /// Records what was done to key `number`.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn set(&self, number: usize, entry: Entry) {
        let acknowledged = entry.acknowledged << 1 | u64::from(entry.is_removed);
        let words = [acknowledged, entry.begun, entry.removal_begun].map(checked);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, (number * WORDS_PER_KEY * 8) as u64).expect("the ledger is writable");
    }

    /// The entries of `count` keys from `first` on; `None` for those that were just being written.
    ///
    /// # Panics
    /// If the file cannot be read.
    pub fn read(&self, first: usize, count: usize, into: &mut Vec<Option<Entry>>) {
        let mut bytes = vec![0; count * WORDS_PER_KEY * 8];
        self.file
            .read_exact_at(&mut bytes, (first * WORDS_PER_KEY * 8) as u64)
            .expect("the ledger is readable");
        into.clear();
        into.extend(bytes.chunks_exact(WORDS_PER_KEY * 8).map(|entry| {
            let word = |index: usize| unchecked(u64::from_le_bytes(*entry[index * 8..].first_chunk()?));
            let (acknowledged, begun, removal_begun) = (word(0)?, word(1)?, word(2)?);
            Some(Entry {
                acknowledged: acknowledged >> 1,
                is_removed: acknowledged & 1 == 1,
                begun,
                removal_begun,
            })
        }));
    }
}

fn checked(number: u64) -> u64 {
    number << 24 | mix(number) >> 40
}

fn unchecked(word: u64) -> Option<u64> {
    (checked(word >> 24) == word).then_some(word >> 24)
}

/// What a read may find that ran between two looks at the ledger.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The entry before the read.
    pub before: Entry,
    /// The entry after it.
    pub after: Entry,
}

impl Bounds {
    /// Judges what a read found: the sequence number in the value, or `None` for an absent key.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(self, found: Option<u64>) -> Result<(), String> {
        let Self { before, after } = self;
        let verdict = match found {
            Some(sequence) if sequence < before.acknowledged => "outdated",
            Some(sequence) if sequence == before.acknowledged && before.is_removed => {
                "removed before the read"
            }
            Some(sequence) if sequence > after.begun => "from the future",
            None if !before.is_removed && after.removal_begun <= before.acknowledged => "lost",
            _ => return Ok(()),
        };
        Err(format!("{verdict}: found {found:?}, ledger before {before:?}, after {after:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn witnesses_come_back_and_changed_ones_do_not() {
        for length in [8, 9, 24, 100, 256] {
            let witness = Witness { number: 77, sequence: 123_456 };
            let mut value = vec![0; length];
            witness.write(&mut value);
            assert_eq!(Witness::read(&value), Some(witness));
            for place in 0..length {
                value[place] ^= 1;
                assert_eq!(Witness::read(&value), None, "byte {place} of {length}");
                value[place] ^= 1;
            }
        }
    }

    #[test]
    fn the_judge_sees_each_fault() {
        let before = Entry { acknowledged: 5, is_removed: false, begun: 5, removal_begun: 3 };
        let bounds = |after| Bounds { before, after };
        let put = bounds(Entry { begun: 6, ..before });
        assert!(put.judge(Some(5)).is_ok() && put.judge(Some(6)).is_ok());
        assert!(put.judge(Some(4)).unwrap_err().starts_with("outdated"));
        assert!(put.judge(Some(7)).unwrap_err().starts_with("from the future"));
        assert!(put.judge(None).unwrap_err().starts_with("lost"));
        let removal = bounds(Entry { begun: 6, removal_begun: 6, ..before });
        assert!(removal.judge(None).is_ok());
        let removed = Bounds { before: Entry { is_removed: true, ..before }, after: before };
        assert!(removed.judge(None).is_ok());
        assert!(removed.judge(Some(5)).unwrap_err().starts_with("removed"));
    }
}
