//! Keys as an engine has them whose tables may have keys of any length.
//!
//! Invariant: two keys of one table are equal exactly if their bytes are. All keys of a table are of one
//! kind, so an integer never meets bytes.

use std::fmt;

/// A key: an integer, as the catalogue encodes the keys of eight bytes, or bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Key<'k> {
    /// The little-endian bytes of an integer.
    Integer([u8; size_of::<u64>()]),
    /// Any number of bytes.
    Bytes(&'k [u8]),
}

/// A [`Key`] of its own, as errors have it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum OwnedKey {
    /// An integer.
    Integer(u64),
    /// Bytes.
    Bytes(Box<[u8]>),
}

/// Bytes of a key that an error shows.
const SHOWN_BYTES: usize = 64;

impl Key<'_> {
    /// Its bytes, as they stand beside its value.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Integer(bytes) => bytes,
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl From<u64> for Key<'_> {
    #[inline]
    fn from(key: u64) -> Self {
        Self::Integer(key.to_le_bytes())
    }
}

impl<'k> From<&'k [u8]> for Key<'k> {
    #[inline]
    fn from(key: &'k [u8]) -> Self {
        Self::Bytes(key)
    }
}

impl From<Key<'_>> for OwnedKey {
    fn from(key: Key<'_>) -> Self {
        match key {
            Key::Integer(bytes) => Self::Integer(u64::from_le_bytes(bytes)),
            Key::Bytes(bytes) => Self::Bytes(bytes.into()),
        }
    }
}

impl From<u64> for OwnedKey {
    fn from(key: u64) -> Self {
        Self::Integer(key)
    }
}

impl From<&[u8]> for OwnedKey {
    fn from(key: &[u8]) -> Self {
        Self::Bytes(key.into())
    }
}

/// An integer as a number, bytes in quotes: those that are no visible ASCII are escaped, and a long key ends
/// with its length.
impl fmt::Display for OwnedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(key) => key.fmt(f),
            Self::Bytes(bytes) if bytes.len() <= SHOWN_BYTES => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Bytes(bytes) => {
                write!(f, "\"{}\"… of {} B", bytes[..SHOWN_BYTES].escape_ascii(), bytes.len())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_as_users_have_them() {
        assert_eq!(OwnedKey::from(7).to_string(), "7");
        assert_eq!(OwnedKey::from(&b"a \"b\"\n"[..]).to_string(), r#""a \"b\"\n""#);
        let long = OwnedKey::from(&[b'x'; 65][..]).to_string();
        assert_eq!(long, format!("\"{}\"… of 65 B", "x".repeat(64)));
    }

    #[test]
    fn a_key_has_the_bytes_that_stand_beside_its_value() {
        assert_eq!(Key::from(0x0102).as_bytes(), [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Key::from(&b""[..]).as_bytes(), b"");
        assert_eq!(OwnedKey::from(Key::from(0x0102)), OwnedKey::Integer(0x0102));
    }
}
