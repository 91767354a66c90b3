//! Words of 64 bits that texts keep exact.
//!
//! Invariant: in a format for people, as JSON is, such a word is a string, whatever its value. Common readers
//! of JSON make floating point numbers of its numbers, which are exact up to 2^53 alone. In postcard it is a
//! number.

use std::borrow::Cow;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

struct Word(u64);

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(&self.0)
        } else {
            serializer.serialize_u64(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return u64::deserialize(deserializer).map(Self);
        }
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(|error| Error::custom(format!("{text:?} is no word: {error}")))
    }
}

/// One word, as in `#[serde(with = "farsight_protocol::exact::word")]`.
pub mod word {
    use super::{Deserialize, Deserializer, Serialize, Serializer, Word};

    /// Writes it.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(word: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        Word(*word).serialize(serializer)
    }

    /// Reads it.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        Word::deserialize(deserializer).map(|word| word.0)
    }
}

/// A list of words.
pub mod words {
    use super::{Deserialize, Deserializer, Serializer, Word};

    /// Writes them.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(words: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(words.iter().map(|word| Word(*word)))
    }

    /// Reads them.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        let words = Vec::<Word>::deserialize(deserializer)?;
        Ok(words.into_iter().map(|word| word.0).collect())
    }
}
