//! Keys as people write them, for each kind of table.

use std::borrow::Cow;

use anyhow::{Result, bail, ensure};
use farsight::{Key, KeyType, Table};

use crate::typed_table::OrderedCommand;
use crate::value_text;

/// A kind of keys that can be typed and printed, of eight bytes or of any number.
pub(crate) trait KeyText: KeyType {
    /// A key as it was typed.
    type Typed: Ord + Clone + Sync;

    /// Reads a key.
    fn typed(text: &str) -> Result<Self::Typed>;

    /// The key as operations take it.
    fn borrowed(typed: &Self::Typed) -> Self::Ref<'_>;

    /// The key as samples have it.
    fn owned(typed: &Self::Typed) -> Self::Owned;

    /// The bytes of which a value is made that nobody gave.
    fn bytes(typed: &Self::Typed) -> Cow<'_, [u8]>;

    /// The integers that stand for these keys, if they have an order.
    fn integers(typed: &[Self::Typed]) -> Option<&[u64]>;

    /// Prints it so that `typed` reads it back.
    fn shown(typed: &Self::Typed) -> String;

    /// Runs a command that needs an order of keys; `None` if they have none.
    fn in_order<C: OrderedCommand>(table: Table<Self>, command: C) -> Result<Option<C::Output>>;
}

impl<K: TextKey> KeyText for K {
    type Typed = u64;

    fn typed(text: &str) -> Result<u64> {
        Ok(K::parse(text)?.encode())
    }

    fn borrowed(typed: &u64) -> Self::Ref<'_> {
        K::decode(*typed)
    }

    fn owned(typed: &u64) -> K {
        K::decode(*typed)
    }

    fn bytes(typed: &u64) -> Cow<'_, [u8]> {
        Cow::Owned(typed.to_le_bytes().to_vec())
    }

    fn integers(typed: &[u64]) -> Option<&[u64]> {
        Some(typed)
    }

    fn shown(typed: &u64) -> String {
        K::decode(*typed).text()
    }

    fn in_order<C: OrderedCommand>(table: Table<K>, command: C) -> Result<Option<C::Output>> {
        command.run(table).map(Some)
    }
}

impl KeyText for [u8] {
    type Typed = Vec<u8>;

    /// Text is its bytes; two digits a byte after `0x`.
    fn typed(text: &str) -> Result<Vec<u8>> {
        match text.strip_prefix("0x") {
            None => Ok(text.as_bytes().to_vec()),
            Some(digits) => match value_text::bytes_of_digits(digits) {
                Some(bytes) => Ok(bytes),
                None => bail!("key {text:?} is not 0x and two hexadecimal digits a byte"),
            },
        }
    }

    fn borrowed(typed: &Vec<u8>) -> Self::Ref<'_> {
        typed
    }

    fn owned(typed: &Vec<u8>) -> Vec<u8> {
        typed.clone()
    }

    fn bytes(typed: &Vec<u8>) -> Cow<'_, [u8]> {
        Cow::Borrowed(typed)
    }

    fn integers(_: &[Vec<u8>]) -> Option<&[u64]> {
        None
    }

    fn shown(typed: &Vec<u8>) -> String {
        value_text::plain_or_hex(typed)
    }

    fn in_order<C: OrderedCommand>(_: Table<Self>, _: C) -> Result<Option<C::Output>> {
        Ok(None)
    }
}

/// A kind of key of eight bytes that can be typed and printed.
pub(crate) trait TextKey: Key {
    /// Reads a key.
    fn parse(text: &str) -> Result<Self>;

    /// Prints it so that `parse` reads it back. In JSON, too, keys are texts, whatever their value: common
    /// readers make floating point numbers of its numbers, which are exact up to 2^53 alone.
    fn text(self) -> String;
}

/// The hexadecimal digits of a text, without a sign, which integers could have there.
fn digits(text: &str) -> Option<&str> {
    text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'))
}

impl TextKey for u64 {
    fn parse(text: &str) -> Result<Self> {
        let parsed = match digits(text) {
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
    /// A number, or 16 digits after `0x`: its bits.
    fn parse(text: &str) -> Result<Self> {
        if let Some(digits) = digits(text).filter(|digits| digits.len() == 16) {
            return match u64::from_str_radix(digits, 16) {
                Ok(bits) => Ok(Self::from_bits(bits)),
                Err(error) => bail!("key {text:?} is not 0x and 16 hexadecimal digits: {error}"),
            };
        }
        match text.parse::<Self>() {
            // Of any number that is too large the parser makes an infinity: they would all be one key.
            Ok(key) if key.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) => {
                bail!("key {text:?} is beyond the greatest f64, {:e}; infinity is written inf", Self::MAX)
            }
            Ok(key) => Ok(key),
            Err(error) => bail!("key {text:?} is no f64, as in -1.5e3, inf or NaN: {error}"),
        }
    }

    /// Each NaN is a key of its own: those that no word means are their bits.
    fn text(self) -> String {
        match self.to_bits() {
            bits if bits == Self::NAN.to_bits() => "NaN".to_owned(),
            bits if bits == (-Self::NAN).to_bits() => "-NaN".to_owned(),
            bits if self.is_nan() => format!("0x{bits:016x}"),
            _ => self.to_string(),
        }
    }
}

impl TextKey for [u8; 8] {
    /// Up to eight bytes of text, filled with zero bytes (which keeps the order of texts), or 16 digits after
    /// `0x`.
    fn parse(text: &str) -> Result<Self> {
        if let Some(digits) = digits(text).filter(|digits| digits.len() == 16) {
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
        match value_text::printable(&self) {
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
        let nans = [f64::NAN, -f64::NAN, f64::from_bits(0x7ff0_0000_0000_0001), f64::from_bits(u64::MAX)];
        for key in [0.0, -0.0, 1.5, f64::MIN_POSITIVE, f64::INFINITY].into_iter().chain(nans) {
            assert_eq!(f64::parse(&key.text()).unwrap().to_bits(), key.to_bits());
        }
        for key in [*b"abc\0\0\0\0\0", *b"12345678", [0; 8], [255; 8], *b"a\0b\0\0\0\0\0"] {
            assert_eq!(<[u8; 8]>::parse(&key.text()).unwrap(), key);
        }
        for key in [&b""[..], b"ada@example.org", b"0x", b"a\0b", &[255; 20], "grüße".as_bytes()] {
            assert_eq!(<[u8]>::typed(&<[u8]>::shown(&key.to_vec())).unwrap(), key);
        }
        assert_eq!(<[u8]>::shown(&b"plain".to_vec()), "plain");
    }

    #[test]
    fn wrong_keys_are_named() {
        assert!(u64::parse("-1").unwrap_err().to_string().contains("\"-1\" is no u64"));
        assert!(u64::parse("18446744073709551616").is_err());
        assert!(u64::parse("0x+ff").is_err() && f64::parse("0x+ff8000000000000").is_err());
        assert!(<[u8; 8]>::parse("0x+123456789abcdef").is_err());
        assert!(i64::parse("0x1").is_err());
        assert!(f64::parse("1,5").is_err());
        for beyond in ["1e400", "-1e309"] {
            let error = f64::parse(beyond).unwrap_err().to_string();
            assert!(error.contains("is beyond the greatest f64, 1.7976931348623157e308"), "{error}");
        }
        for infinite in ["inf", "-inf", "infinity", "1.7976931348623157e308"] {
            assert!(f64::parse(infinite).is_ok(), "{infinite}");
        }
        assert!(<[u8; 8]>::parse("nine byte").unwrap_err().to_string().contains("has 9 B"));
        let error = <[u8]>::typed("0x0").unwrap_err().to_string();
        assert!(error.contains("two hexadecimal digits a byte"), "{error}");
    }
}
