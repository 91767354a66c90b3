//! The entries of a replacement that a compute node executes for another one: keys and values of any length.
//!
//! Each entry: a word of the key's length 32 and the value's length 32, lowest bits first, then the key and
//! the value, each padded to words. What stands in the padding is ignored.

use crate::wire::{put, put_padded};
use crate::{DecodeError, HEADER_BYTES, padded};

/// Bytes of an entry before its key.
const ENTRY_HEAD_BYTES: usize = 8;

/// The entries of a replacement. They were checked when they were decoded.
#[derive(Clone, Copy, Debug)]
pub struct ReplaceEntries<'a> {
    bytes: &'a [u8],
    count: usize,
}

/// A value that is to be replaced by this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplaceEntry<'a> {
    /// The key; of an integer its little-endian bytes.
    pub key: &'a [u8],
    /// The new value.
    pub value: &'a [u8],
}

impl<'a> ReplaceEntries<'a> {
    pub(crate) fn new(bytes: &'a [u8], count: usize, offset: usize) -> Result<Self, DecodeError> {
        let mut rest = bytes;
        let at = |rest: &[u8]| HEADER_BYTES + offset + bytes.len() - rest.len();
        for _ in 0..count {
            let Some((_, behind)) = split(rest) else {
                let (expected, got) = ("lengths, key and value".to_owned(), format!("{} B", rest.len()));
                return Err(DecodeError::new("an entry of a replacement", at(rest), expected, got));
            };
            rest = behind;
        }
        if rest.is_empty() {
            return Ok(Self { bytes, count });
        }
        let got = format!("{} B more", rest.len());
        let expected = format!("the end of {count} entries");
        Err(DecodeError::new("a replacement's entries", at(rest), expected, got))
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = ReplaceEntry<'a>> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (entry, behind) = split(rest)?;
            rest = behind;
            Some(entry)
        })
    }

    /// Bytes of an entry whose key and value have so many.
    #[must_use]
    pub fn entry_bytes(key_bytes: usize, value_bytes: usize) -> usize {
        ENTRY_HEAD_BYTES + padded(key_bytes) + padded(value_bytes)
    }

    /// Appends one entry to a frame begun by [`Request::begin_replace`](crate::Request).
    ///
    /// # Panics
    /// For a key or a value of 4 GiB or more: no message carries it.
    pub fn push(frame: &mut Vec<u8>, ReplaceEntry { key, value }: ReplaceEntry<'_>) {
        let length = |bytes: &[u8]| u64::from(u32::try_from(bytes.len()).expect("what a message carries"));
        put(frame, length(key) | length(value) << u32::BITS);
        put_padded(frame, key);
        put_padded(frame, value);
    }
}

/// The first entry and the bytes behind it; `None` if they end within it.
fn split(bytes: &[u8]) -> Option<(ReplaceEntry<'_>, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<ENTRY_HEAD_BYTES>()?;
    let lengths = u64::from_le_bytes(*head);
    let (key_bytes, value_bytes) = (lengths as u32 as usize, (lengths >> u32::BITS) as usize);
    let (key, rest) = rest.split_at_checked(padded(key_bytes))?;
    let (value, rest) = rest.split_at_checked(padded(value_bytes))?;
    Some((ReplaceEntry { key: &key[..key_bytes], value: &value[..value_bytes] }, rest))
}
