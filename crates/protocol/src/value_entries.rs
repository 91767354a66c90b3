//! The entries of a write whose values have any length.
//!
//! Each entry: key word, a word of hint 32 and the value's length 32, lowest bits first, the value padded to
//! words. What stands in the padding is ignored.

use farsight_base::LeafNumber;

use crate::wire::{put, put_padded};
use crate::{DecodeError, HEADER_BYTES, WriteEntry, padded};

/// Bytes of an entry before its value: key, hint and length.
pub const VALUE_ENTRY_HEAD_BYTES: usize = 16;

/// The entries of a write, each with a length of its own. They were checked when they were decoded.
#[derive(Clone, Copy, Debug)]
pub struct ValueEntries<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> ValueEntries<'a> {
    pub(crate) fn new(bytes: &'a [u8], count: usize) -> Result<Self, DecodeError> {
        let mut rest = bytes;
        for _ in 0..count {
            (_, rest) = split(rest).ok_or_else(|| {
                let at = HEADER_BYTES + bytes.len() - rest.len();
                let got = format!("{} B", rest.len());
                DecodeError::new("an entry of any length", at, "key, hint, length and value".into(), got)
            })?;
        }
        if rest.is_empty() {
            return Ok(Self { bytes, count });
        }
        let at = HEADER_BYTES + bytes.len() - rest.len();
        let got = format!("{} B more", rest.len());
        Err(DecodeError::new("a write's entries", at, format!("the end of {count} entries"), got))
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
    pub fn iter(&self) -> impl Iterator<Item = WriteEntry<'a>> + use<'a> {
        let mut rest = self.bytes;
        std::iter::from_fn(move || {
            let (entry, behind) = split(rest)?;
            rest = behind;
            Some(entry)
        })
    }

    /// Bytes of an entry whose value has so many.
    #[must_use]
    pub fn entry_bytes(value_bytes: usize) -> usize {
        VALUE_ENTRY_HEAD_BYTES + padded(value_bytes)
    }

    /// Appends one entry to a frame begun by [`Request::begin_write_values`](crate::Request).
    ///
    /// # Panics
    /// For a value of 4 GiB or more: no message carries it.
    #[inline]
    pub fn push(frame: &mut Vec<u8>, entry: WriteEntry<'_>) {
        let length = u32::try_from(entry.value.len()).expect("a value that a message carries");
        put(frame, entry.key);
        put(frame, u64::from(entry.hint.0) | u64::from(length) << u32::BITS);
        put_padded(frame, entry.value);
    }
}

/// The first entry and the bytes behind it; `None` if they end within it.
fn split(bytes: &[u8]) -> Option<(WriteEntry<'_>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(VALUE_ENTRY_HEAD_BYTES)?;
    let length = u32::from_le_bytes(head[12..].try_into().ok()?) as usize;
    let (value, rest) = rest.split_at_checked(padded(length))?;
    let key = u64::from_le_bytes(head[..8].try_into().ok()?);
    let hint = LeafNumber(u32::from_le_bytes(head[8..12].try_into().ok()?));
    Some((WriteEntry { key, hint, value: &value[..length] }, rest))
}
