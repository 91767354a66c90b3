//! Little-endian words in frames.

use crate::DecodeError;

/// Words in a received frame.
#[derive(Clone, Copy, Debug)]
pub struct Words<'a> {
    bytes: &'a [u8],
}

impl<'a> Words<'a> {
    /// The words of `bytes`.
    ///
    /// # Errors
    /// If the length is no multiple of eight; `what` names the frame's part.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.len().is_multiple_of(8) {
            return Ok(Self { bytes });
        }
        Err(DecodeError::new(what, bytes.len(), "a multiple of 8 B".into(), format!("{} B", bytes.len())))
    }

    /// Words left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / 8
    }

    /// True without words.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Word `index`.
    ///
    /// # Panics
    /// If there are fewer words.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> u64 {
        u64::from_le_bytes(self.bytes[8 * index..8 * index + 8].try_into().expect("eight bytes"))
    }

    /// The first `count` words, which are taken off.
    ///
    /// # Errors
    /// If there are fewer; `what` names them.
    pub fn take(&mut self, what: &'static str, count: usize) -> Result<Words<'a>, DecodeError> {
        if self.len() < count {
            return Err(DecodeError::new(what, 0, format!("{count} words"), format!("{} words", self.len())));
        }
        let (head, tail) = self.bytes.split_at(8 * count);
        self.bytes = tail;
        Ok(Words { bytes: head })
    }

    /// The last word, which is taken off.
    ///
    /// # Errors
    /// If there is none; `what` names it.
    pub fn take_last(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let Some(last) = self.len().checked_sub(1) else {
            return Err(DecodeError::new(what, 0, "a word".into(), "none".into()));
        };
        let word = self.get(last);
        self.bytes = &self.bytes[..8 * last];
        Ok(word)
    }

    /// The words, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
    }

    /// The bytes behind the words.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Appends one word.
#[inline]
pub(crate) fn put(into: &mut Vec<u8>, word: u64) {
    into.extend_from_slice(&word.to_le_bytes());
}

/// Appends `bytes` and zeros up to the next word.
#[inline]
pub(crate) fn put_padded(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(bytes);
    into.resize(into.len().next_multiple_of(8), 0);
}
