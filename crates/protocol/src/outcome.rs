//! What became of one write, in one word.

use farsight_layout::PAIR_VERSION_BITS;

use crate::ErrorCode;

/// The writes. Each is one step: nobody sees the key between its look and its change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum WriteOperation {
    /// Stores a pair whose key is absent.
    Insert = 0,
    /// Replaces the value of a present key.
    Update = 1,
    /// Stores a pair whether its key is present or not.
    Put = 2,
    /// Removes a present key.
    Remove = 3,
    /// Stores a value if the key has the expected version. Version 0 expects an absent key.
    CompareAndSet = 4,
    /// Replaces the value if it equals the expected one, byte for byte.
    CompareAndSetValue = 5,
    /// Removes the key if it has the expected version.
    RemoveIf = 6,
    /// Adds to an integer of 8 B, little-endian and wrapping, and returns the integer before. An absent key
    /// counts as 0.
    FetchAdd = 7,
    /// Stores a pair whether its key is present or not, and returns the value before.
    Swap = 8,
}

/// Bytes of an expected version in an operand.
pub const EXPECTED_VERSION_BYTES: usize = 8;
/// Bytes of the integers that [`WriteOperation::FetchAdd`] adds to, and of what it adds.
pub const INTEGER_BYTES: usize = 8;

impl WriteOperation {
    /// All of them, by number.
    pub const ALL: [Self; 9] = [
        Self::Insert,
        Self::Update,
        Self::Put,
        Self::Remove,
        Self::CompareAndSet,
        Self::CompareAndSetValue,
        Self::RemoveIf,
        Self::FetchAdd,
        Self::Swap,
    ];

    /// The operation with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// True if what it does depends on the version or the value that it finds.
    #[inline]
    #[must_use]
    pub fn is_conditional(self) -> bool {
        self as u8 > Self::Remove as u8
    }

    /// True if it may store a value.
    #[must_use]
    pub fn has_value(self) -> bool {
        !matches!(self, Self::Remove | Self::RemoveIf)
    }

    /// True if the value that it finds matters, not its version alone.
    #[must_use]
    pub fn needs_old_value(self) -> bool {
        matches!(self, Self::CompareAndSetValue | Self::FetchAdd | Self::Swap)
    }

    /// True if it may make an absent key present.
    #[must_use]
    pub fn may_insert(self) -> bool {
        matches!(self, Self::Insert | Self::Put | Self::CompareAndSet | Self::FetchAdd | Self::Swap)
    }

    /// True if it may make a present key absent.
    #[must_use]
    pub fn may_remove(self) -> bool {
        matches!(self, Self::Remove | Self::RemoveIf)
    }

    /// True if its outcome comes with the value before.
    #[must_use]
    pub fn returns_value(self) -> bool {
        matches!(self, Self::FetchAdd | Self::Swap)
    }

    /// Bytes of its operand in a table with values of `value_bytes`, all of one size. The operand is the
    /// value, but for these ([`Operand`](crate::Operand)):
    ///
    /// | operation | operand |
    /// |---|---|
    /// | [`Remove`](Self::Remove) | nothing |
    /// | [`CompareAndSet`](Self::CompareAndSet) | the expected version, 8 B little-endian, then the value |
    /// | [`CompareAndSetValue`](Self::CompareAndSetValue) | the expected value, then the value |
    /// | [`RemoveIf`](Self::RemoveIf) | the expected version |
    /// | [`FetchAdd`](Self::FetchAdd) | what is added, 8 B little-endian |
    #[inline]
    #[must_use]
    pub fn operand_bytes(self, value_bytes: usize) -> usize {
        match self {
            Self::Insert | Self::Update | Self::Put | Self::Swap => value_bytes,
            Self::Remove => 0,
            Self::CompareAndSet => EXPECTED_VERSION_BYTES + value_bytes,
            Self::CompareAndSetValue => 2 * value_bytes,
            Self::RemoveIf => EXPECTED_VERSION_BYTES,
            Self::FetchAdd => INTEGER_BYTES,
        }
    }
}

/// The outcome of one write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteOutcome {
    /// The key was absent and is stored now, with this version.
    Inserted(u64),
    /// The key was present and has this version now.
    Replaced(u64),
    /// The key was present and is gone; this was its last version.
    Removed(u64),
    /// An insert found the key present, with this version. Nothing changed.
    Exists(u64),
    /// A write that needs its key found it absent. Nothing changed.
    Absent,
    /// A conditional write found another version or value than it expects: the key has this version. Nothing
    /// changed.
    Differs(u64),
    /// The server could not: region full, contended, versions exhausted. Nothing changed.
    Failed(ErrorCode),
}

/// An outcome as it is sent: with what the server thinks of the entry's hint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentOutcome {
    /// The outcome.
    pub outcome: WriteOutcome,
    /// True if the entry had a hint and its key was elsewhere: the client's model is out of date there.
    pub is_hint_wrong: bool,
}

const WRONG_HINT_BIT: u64 = 1 << PAIR_VERSION_BITS;
const KIND_SHIFT: u32 = 56;
const VERSION_MASK: u64 = (1 << PAIR_VERSION_BITS) - 1;

impl WriteOutcome {
    /// The outcome's word: kind in the highest byte, version or error code below.
    #[must_use]
    pub fn to_word(self) -> u64 {
        let (kind, rest) = match self {
            Self::Inserted(version) => (1, version),
            Self::Replaced(version) => (2, version),
            Self::Removed(version) => (3, version),
            Self::Exists(version) => (4, version),
            Self::Absent => (5, 0),
            Self::Failed(code) => (6, u64::from(code as u8)),
            Self::Differs(version) => (7, version),
        };
        kind << KIND_SHIFT | rest & VERSION_MASK
    }

    /// The outcome of a word, or `None` for a word that is none.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        let version = word & VERSION_MASK;
        let outcome = match word >> KIND_SHIFT {
            1 => Some(Self::Inserted(version)),
            2 => Some(Self::Replaced(version)),
            3 => Some(Self::Removed(version)),
            4 => Some(Self::Exists(version)),
            5 => Some(Self::Absent),
            6 => ErrorCode::from_number(version as u8).map(Self::Failed),
            7 => Some(Self::Differs(version)),
            _ => None,
        };
        outcome.filter(|outcome| outcome.to_word() == word)
    }
}

impl SentOutcome {
    /// The outcome's word, and the bit behind its version.
    #[must_use]
    pub fn to_word(self) -> u64 {
        self.outcome.to_word() | u64::from(self.is_hint_wrong) << PAIR_VERSION_BITS
    }

    /// The outcome of a word, or `None` for a word that is none.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        let outcome = WriteOutcome::from_word(word & !WRONG_HINT_BIT)?;
        Some(Self { outcome, is_hint_wrong: word & WRONG_HINT_BIT != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_their_numbers_and_operands() {
        for (number, operation) in (0..).zip(WriteOperation::ALL) {
            assert_eq!(WriteOperation::from_number(number), Some(operation));
            assert_eq!(operation as u8, number);
        }
        assert_eq!(WriteOperation::from_number(9), None);
        let operands = WriteOperation::ALL.map(|operation| operation.operand_bytes(24));
        assert_eq!(operands, [24, 24, 24, 0, 32, 48, 8, 8, 24]);
    }

    #[test]
    fn outcomes_come_back() {
        let version = VERSION_MASK;
        for outcome in [
            WriteOutcome::Inserted(version),
            WriteOutcome::Replaced(1),
            WriteOutcome::Removed(2),
            WriteOutcome::Exists(3),
            WriteOutcome::Absent,
            WriteOutcome::Failed(ErrorCode::RegionFull),
            WriteOutcome::Differs(version),
        ] {
            for is_hint_wrong in [false, true] {
                let sent = SentOutcome { outcome, is_hint_wrong };
                assert_eq!(SentOutcome::from_word(sent.to_word()), Some(sent));
            }
            assert_eq!(WriteOutcome::from_word(outcome.to_word()), Some(outcome));
        }
        for none in [0, u64::MAX] {
            assert_eq!(WriteOutcome::from_word(none), None);
            assert_eq!(SentOutcome::from_word(none), None);
        }
        for stray in [1 << 48, 1 << 55] {
            assert_eq!(WriteOutcome::from_word(WriteOutcome::Replaced(1).to_word() | stray), None);
            let sent = SentOutcome::from_word(WriteOutcome::Replaced(1).to_word() | stray);
            assert_eq!(sent.is_some_and(|sent| sent.is_hint_wrong), stray == WRONG_HINT_BIT);
        }
        assert_eq!(WriteOutcome::from_word(WriteOutcome::Absent.to_word() | 1), None);
        assert_eq!(
            WriteOutcome::from_word(WriteOutcome::Failed(ErrorCode::RegionFull).to_word() | 1 << 8),
            None
        );
    }
}
