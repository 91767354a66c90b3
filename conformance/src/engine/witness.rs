//! Values that prove what they are, and a ledger of what was acknowledged.
//!
//! A *witness* is a value made of a key's identity and a sequence number alone. Its first word has 20 bits of
//! identity, 28 of sequence and 16 of checksum. The rest follows from that ([`farsight_oracles::values`]). So
//! a torn value, or one of another key, does not regenerate.
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

use farsight_base::prng::mix;
use farsight_oracles::{Identity, values};

const IDENTITY_BITS: u32 = 20;
const SEQUENCE_BITS: u32 = 28;
const CHECK_BITS: u32 = 16;
const WORDS_PER_KEY: usize = 3;

/// What a witness says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Witness {
    /// Its key.
    pub key: Identity,
    /// Which of the key's writes it is.
    pub sequence: u64,
}

impl Witness {
    /// Its bytes, as the value of a key.
    ///
    /// # Panics
    /// If the numbers do not fit.
    pub fn write(self, into: &mut [u8]) {
        values::write(self.word(), into);
    }

    /// Its bytes, as many as said.
    ///
    /// # Panics
    /// As [`Self::write`].
    #[must_use]
    pub fn value(self, bytes: usize) -> Vec<u8> {
        let mut value = vec![0; bytes];
        self.write(&mut value);
        value
    }

    fn word(self) -> u64 {
        let Self { key: Identity(number), sequence } = self;
        assert!(number >> IDENTITY_BITS == 0 && sequence >> SEQUENCE_BITS == 0, "{self:?} fits");
        let head = number | sequence << IDENTITY_BITS;
        head | mix(head) >> (64 - CHECK_BITS) << (64 - CHECK_BITS)
    }

    /// The witness that `value` is; `None` if it is torn.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let word = values::first_word(value)?;
        let key = Identity(word & ((1 << IDENTITY_BITS) - 1));
        let witness = Self { key, sequence: word >> IDENTITY_BITS & ((1 << SEQUENCE_BITS) - 1) };
        (witness.word() == word).then_some(witness)
    }

    /// The sequence number in `value`, which must be a witness of `key`.
    ///
    /// # Panics
    /// If it is torn, or another key's.
    #[must_use]
    pub fn sequence_of(key: Identity, value: &[u8]) -> u64 {
        let witness = Self::read(value).unwrap_or_else(|| panic!("key {key}: torn value {value:x?}"));
        assert_eq!(witness.key, key, "the value of another key");
        witness.sequence
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

/// The ledger's file. Its keys are dense: the identity says where a key's words are.
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
        for number in 0..keys as u64 {
            ledger.set(Identity(number), Entry { is_removed: true, ..Entry::default() });
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

    /// Records what was done to `key`.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn set(&self, key: Identity, entry: Entry) {
        let acknowledged = entry.acknowledged << 1 | u64::from(entry.is_removed);
        let words = [acknowledged, entry.begun, entry.removal_begun].map(checked);
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.file.write_all_at(&bytes, place(key)).expect("the ledger is writable");
    }

    /// The entries of `count` keys from `first` on; `None` for those that were just being written.
    ///
    /// # Panics
    /// If the file cannot be read.
    pub fn read(&self, first: Identity, count: usize, into: &mut Vec<Option<Entry>>) {
        let mut bytes = vec![0; count * WORDS_PER_KEY * 8];
        self.file.read_exact_at(&mut bytes, place(first)).expect("the ledger is readable");
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

fn place(key: Identity) -> u64 {
    key.0 * WORDS_PER_KEY as u64 * 8
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

    /// Judges what a read found that says of the key only whether it is there.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge_presence(self, is_found: bool) -> Result<(), String> {
        let Self { before, after } = self;
        if !is_found {
            return self.judge(None);
        }
        if before.is_removed && after.begun == before.acknowledged {
            return Err(format!("removed before the read: ledger before {before:?}, after {after:?}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn witnesses_come_back_and_changed_ones_do_not() {
        for length in [8, 9, 24, 100, 256] {
            let witness = Witness { key: Identity(77), sequence: 123_456 };
            let mut value = witness.value(length);
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
        assert!(removed.judge_presence(true).unwrap_err().starts_with("removed"));
        assert!(removed.judge_presence(false).is_ok() && put.judge_presence(true).is_ok());
        assert!(put.judge_presence(false).unwrap_err().starts_with("lost"));
        let stored_anew = Bounds { before: removed.before, after: Entry { begun: 6, ..removed.before } };
        assert!(stored_anew.judge_presence(true).is_ok() && stored_anew.judge_presence(false).is_ok());
    }
}
