//! Keys as people write them, for each kind of table.

use anyhow::{Result, bail, ensure};
use farsight::Key;

/// A kind of key that can be typed and printed.
pub(crate) trait TextKey: Key {
    /// Reads a key.
    fn parse(text: &str) -> Result<Self>;

    /// Prints it so that `parse` reads it back. In JSON, too, keys are texts, whatever their value: common
    /// readers make floating point numbers of its numbers, which are exact up to 2^53 alone.
    fn text(self) -> String;
}

impl TextKey for u64 {
    fn parse(text: &str) -> Result<Self> {
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => Self::from_str_radix(digits, 16),
            None => text.parse(),
        };
        match parsed {
            Ok(key) => Ok(key),
            Err(error) => bail!("key {text:?} is no u64, decimal or 0x hexadecimal: {error}"),
        }
    }

    fn text(self) -> String {
        self.to_string()
    }
}

impl TextKey for i64 {
    fn parse(text: &str) -> Result<Self> {
        match text.parse() {
            Ok(key) => Ok(key),
            Err(error) => bail!("key {text:?} is no i64 in decimal: {error}"),
        }
    }

    fn text(self) -> String {
        self.to_string()
    }
}

impl TextKey for f64 {
    fn parse(text: &str) -> Result<Self> {
        match text.parse() {
            Ok(key) => Ok(key),
            Err(error) => bail!("key {text:?} is no f64, as in -1.5e3, inf or NaN: {error}"),
        }
    }

    fn text(self) -> String {
        self.to_string()
    }
}

impl TextKey for [u8; 8] {
    /// Up to eight bytes of text, filled with zero bytes (which keeps the order of texts), or 16 digits after
    /// `0x`.
    fn parse(text: &str) -> Result<Self> {
        if let Some(digits) = text.strip_prefix("0x").filter(|digits| digits.len() == 16) {
            return match u64::from_str_radix(digits, 16) {
                Ok(bytes) => Ok(bytes.to_be_bytes()),
                Err(error) => bail!("key {text:?} is not 0x and 16 hexadecimal digits: {error}"),
            };
        }
        ensure!(text.len() <= 8, "key {text:?} has {} B; a key of this table has 8 B", text.len());
        let mut key = [0; 8];
        key[..text.len()].copy_from_slice(text.as_bytes());
        Ok(key)
    }

    fn text(self) -> String {
        match crate::value_text::printable(&self) {
            Some(text) => text.to_owned(),
            None => format!("0x{:016x}", u64::from_be_bytes(self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_their_text() {
        for key in [0, 7, u64::MAX] {
            assert_eq!(u64::parse(&key.text()).unwrap(), key);
        }
        assert_eq!(u64::parse("0xff").unwrap(), 255);
        assert_eq!(i64::parse(&i64::MIN.text()).unwrap(), i64::MIN);
        for key in [0.0, -0.0, 1.5, f64::MIN_POSITIVE, f64::INFINITY] {
            assert_eq!(f64::parse(&key.text()).unwrap().to_bits(), key.to_bits());
        }
        for key in [*b"abc\0\0\0\0\0", *b"12345678", [0; 8], [255; 8], *b"a\0b\0\0\0\0\0"] {
            assert_eq!(<[u8; 8]>::parse(&key.text()).unwrap(), key);
        }
    }

    #[test]
    fn wrong_keys_are_named() {
        assert!(u64::parse("-1").unwrap_err().to_string().contains("\"-1\" is no u64"));
        assert!(u64::parse("18446744073709551616").is_err());
        assert!(i64::parse("0x1").is_err());
        assert!(f64::parse("1,5").is_err());
        assert!(<[u8; 8]>::parse("nine byte").unwrap_err().to_string().contains("has 9 B"));
    }
}
