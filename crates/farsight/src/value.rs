//! Bytes of one value, owned.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Deref, DerefMut};

use smallvec::SmallVec;

/// Bytes of the longest value that needs no allocation.
pub(crate) const INLINE_BYTES: usize = 16;

/// Bytes of a value of one word.
pub(crate) const WORD_BYTES: usize = 8;

/// Bytes of one value, owned. Up to 16 B it lies in place and allocates nothing.
///
/// It is used as the slice of its bytes, and compares with slices, arrays and vectors.
// Of whole words, in which its bytes stand first. Behind a byte of their own they would be moved by vectors
// that reach over that byte's store: such a load waits until the store is done.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Value(SmallVec<[u8; INLINE_BYTES]>);

const _: () = assert!(size_of::<Value>() == INLINE_BYTES + size_of::<usize>());

impl Value {
    /// The first `value_bytes` of these, in place.
    #[inline]
    pub(crate) fn in_place(bytes: [u8; INLINE_BYTES], value_bytes: usize) -> Self {
        Self(SmallVec::from_buf_and_len(bytes, value_bytes))
    }

    /// A value of one word, in place.
    #[inline]
    pub(crate) fn of_word(bytes: [u8; WORD_BYTES]) -> Self {
        // By a register: a load of sixteen bytes waits for the store of eight of them.
        let both = u128::from(u64::from_le_bytes(bytes)).to_le_bytes();
        Self::in_place(both, WORD_BYTES)
    }

    /// The bytes in a vector.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.0.into_vec()
    }
}

impl Deref for Value {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Value {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl AsRef<[u8]> for Value {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(SmallVec::from_slice(bytes))
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self(SmallVec::from_vec(bytes))
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.into_vec()
    }
}

impl<const BYTES: usize> TryFrom<Value> for [u8; BYTES] {
    type Error = Value;

    fn try_from(value: Value) -> Result<Self, Value> {
        Self::try_from(&value[..]).map_err(|_| value)
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PartialEq<[u8]> for Value {
    #[inline]
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl PartialEq<&[u8]> for Value {
    #[inline]
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}

impl<const BYTES: usize> PartialEq<[u8; BYTES]> for Value {
    #[inline]
    fn eq(&self, other: &[u8; BYTES]) -> bool {
        **self == *other
    }
}

impl<const BYTES: usize> PartialEq<&[u8; BYTES]> for Value {
    #[inline]
    fn eq(&self, other: &&[u8; BYTES]) -> bool {
        **self == **other
    }
}

impl PartialEq<Vec<u8>> for Value {
    #[inline]
    fn eq(&self, other: &Vec<u8>) -> bool {
        **self == **other
    }
}

impl PartialEq<Value> for Vec<u8> {
    #[inline]
    fn eq(&self, other: &Value) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_its_bytes() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!((Value::of_word(bytes), Value::of_word(bytes).len()), (Value::from(bytes.to_vec()), 8));
    }

    #[test]
    fn values_are_their_bytes_in_place_or_not() {
        for bytes in [0, 8, INLINE_BYTES, INLINE_BYTES + 1, 256] {
            let mut value = Value::from(vec![0; bytes]);
            let is_short = bytes <= INLINE_BYTES;
            if is_short {
                value = Value::in_place([0; INLINE_BYTES], bytes);
            }
            assert_eq!(value.0.spilled(), !is_short, "{bytes} B");
            value.fill(7);
            assert_eq!((value.len(), &value), (bytes, &Value::from(&vec![7; bytes][..])));
            assert_eq!(value, vec![7; bytes]);
            assert_eq!(format!("{value:?}"), format!("{:?}", vec![7; bytes]));
            assert_eq!(<[u8; 8]>::try_from(value.clone()).is_ok(), bytes == 8);
            assert_eq!(Vec::from(value), vec![7; bytes]);
        }
        let value = Value::from(&b"8 bytes."[..]);
        assert!(value == b"8 bytes." && value == *b"8 bytes." && value != b"8 bytes");
    }
}
