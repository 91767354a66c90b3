//! What compute nodes that serve are asked of keys, and what they answer of where those stand.

use crate::DecodeError;

/// What is asked of each key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FindWanted {
    /// Where it stands.
    Addresses = 0,
    /// What it holds.
    Values = 1,
}

impl FindWanted {
    pub(crate) fn from_number(number: u8) -> Result<Self, DecodeError> {
        match number {
            0 => Ok(Self::Addresses),
            1 => Ok(Self::Values),
            other => Err(DecodeError::new("what is asked of keys", 1, "0 or 1".into(), other.to_string())),
        }
    }
}

/// Where a key stands, as a compute node says: two words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SentAddress {
    /// Nowhere: it was absent when the compute node looked. Both words are zero.
    Absent,
    /// It does not say. The first word is all ones, the other one zero.
    Unknown,
    /// In this slot, perhaps: it had this word.
    At {
        /// The slot's line, in the lower half of the first word.
        line: u32,
        /// The slot in that line, in the byte above.
        slot: u8,
        /// The slot's word, the second one. It is not zero.
        word: u64,
    },
}

impl SentAddress {
    /// Words of one.
    pub const WORDS: usize = 2;

    /// Its words.
    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        match self {
            Self::Absent => [0; Self::WORDS],
            Self::Unknown => [u64::MAX, 0],
            Self::At { line, slot, word } => [u64::from(line) | u64::from(slot) << u32::BITS, word],
        }
    }

    /// Of these words; what is none tells nothing.
    #[must_use]
    pub fn from_words([place, word]: [u64; Self::WORDS]) -> Self {
        match (place, word) {
            (0, 0) => Self::Absent,
            (place, 1..) if place >> (u32::BITS + u8::BITS) == 0 => {
                Self::At { line: place as u32, slot: (place >> u32::BITS) as u8, word }
            }
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_and_strays_tell_nothing() {
        let at = SentAddress::At { line: u32::MAX, slot: 6, word: 9 };
        for address in [SentAddress::Absent, SentAddress::Unknown, at] {
            assert_eq!(SentAddress::from_words(address.to_words()), address);
        }
        for stray in [[1, 0], [1 << 40, 1], [u64::MAX, 3]] {
            assert_eq!(SentAddress::from_words(stray), SentAddress::Unknown);
        }
    }
}
