//! Values as people write them.
//!
//! | format | read | printed |
//! |---|---|---|
//! | auto | `0x` is hex, all else text | text if printable, else hex |
//! | text | its bytes, filled up with zero bytes | UTF-8 without the zero bytes at the end |
//! | hex | two digits a byte, all bytes, `0x` or not | with `0x` |
//! | decimal | an unsigned integer, little-endian in the first 8 bytes | the same, or hex if more follows |

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use farsight::ValueKind;
use std::fmt::Write;

/// How values are read and printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum ValueFormat {
    /// 0x is hex, all else text; printed as text if that is printable
    #[default]
    Auto,
    /// UTF-8, filled up with zero bytes
    Text,
    /// Two hexadecimal digits a byte, all bytes of the value
    Hex,
    /// An unsigned integer, little-endian in the first 8 bytes
    Decimal,
}

impl ValueFormat {
    /// The value that `text` says, of a table with such values. One of any length is not filled up.
    pub(crate) fn parse(self, text: &str, table: &str, values: ValueKind) -> Result<Vec<u8>> {
        match self {
            Self::Auto if text.starts_with("0x") => parse_hex(text, table, values),
            Self::Auto | Self::Text => {
                let got = text.len();
                ensure!(
                    got <= values.bytes_max(),
                    "a value of {got} B; table {table:?} has values of {values}"
                );
                Ok(filled(text.as_bytes(), values))
            }
            Self::Hex => parse_hex(text, table, values),
            Self::Decimal => match text.parse::<u64>() {
                Ok(number) => Ok(filled(&number.to_le_bytes(), values)),
                Err(error) => bail!("value {text:?} is no u64 in decimal: {error}"),
            },
        }
    }

    /// The text of `value`, of a table with such values. All bytes of one of any length are its own.
    pub(crate) fn text(self, value: &[u8], values: ValueKind) -> String {
        match self {
            Self::Auto | Self::Text if values.are_blocks() => match str::from_utf8(value) {
                Ok(text) if self == Self::Text => text.to_owned(),
                Err(_) if self == Self::Text => String::from_utf8_lossy(value).into_owned(),
                _ => plain_or_hex(value),
            },
            Self::Auto => printable(value).map_or_else(|| hex(value), str::to_owned),
            Self::Text => String::from_utf8_lossy(without_zeros(value)).into_owned(),
            Self::Hex => hex(value),
            Self::Decimal => match value.split_first_chunk() {
                Some((number, rest)) if without_zeros(rest).is_empty() => {
                    u64::from_le_bytes(*number).to_string()
                }
                _ => hex(value),
            },
        }
    }
}

/// `bytes` without the zeros at its end as text, if it is some, is printable, and would not be read as hex.
pub(crate) fn printable(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(without_zeros(bytes)).ok()?;
    (!text.is_empty() && is_plain(text)).then_some(text)
}

/// All bytes as text, if that is printable, and would not be read as hex; else as hex.
pub(crate) fn plain_or_hex(bytes: &[u8]) -> String {
    str::from_utf8(bytes).ok().filter(|text| is_plain(text)).map_or_else(|| hex(bytes), str::to_owned)
}

/// The bytes that so many hexadecimal digits are, two a byte; `None` if they are not.
pub(crate) fn bytes_of_digits(digits: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = digits.as_bytes().as_chunks() else { return None };
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// True if a text is printable, and would not be read as hex.
fn is_plain(text: &str) -> bool {
    !text.starts_with("0x") && !text.contains(char::is_control)
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

fn filled(bytes: &[u8], values: ValueKind) -> Vec<u8> {
    let mut value = bytes.to_vec();
    if let ValueKind::Fixed(length_bytes) = values {
        value.resize(length_bytes.into(), 0);
    }
    value
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes all text");
    }
    text
}

fn parse_hex(text: &str, table: &str, values: ValueKind) -> Result<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if let Some(wrong) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
        bail!("value {text:?} has {wrong:?}, which is no hexadecimal digit");
    }
    let got = digits.len();
    ensure!(
        got.is_multiple_of(2) && values.allows(got / 2),
        "a value of {got} hexadecimal digits; table {table:?} has values of {values}, two digits a byte"
    );
    Ok(bytes_of_digits(digits).expect("checked above"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(format: ValueFormat, text: &str, value_bytes: u16) -> String {
        let values = ValueKind::Fixed(value_bytes);
        format.text(&format.parse(text, "t", values).unwrap(), values)
    }

    #[test]
    fn values_come_back_from_their_text() {
        assert_eq!(round_trip(ValueFormat::Auto, "grüße", 16), "grüße");
        assert_eq!(round_trip(ValueFormat::Auto, "42", 8), "42");
        assert_eq!(round_trip(ValueFormat::Auto, "0x0001020304050607", 8), "0x0001020304050607");
        assert_eq!(round_trip(ValueFormat::Hex, "ff00ff00ff00ff00", 8), "0xff00ff00ff00ff00");
        assert_eq!(round_trip(ValueFormat::Decimal, "18446744073709551615", 12), u64::MAX.to_string());
    }

    #[test]
    fn what_is_not_printable_is_hex() {
        let text = |value| ValueFormat::Auto.text(value, ValueKind::Fixed(8));
        assert_eq!(text(&[0; 8]), "0x0000000000000000");
        assert_eq!(text(b"a\nb\0\0\0\0\0"), "0x610a620000000000");
        assert_eq!(text(b"0x\0\0\0\0\0\0"), "0x3078000000000000");
    }

    #[test]
    fn values_of_any_length_are_not_filled_up() {
        for (format, text) in [
            (ValueFormat::Auto, ""),
            (ValueFormat::Auto, "grüße"),
            (ValueFormat::Auto, "0x610a00"),
            (ValueFormat::Text, "a\nb"),
            (ValueFormat::Hex, "0x"),
            (ValueFormat::Hex, "0x00ff"),
        ] {
            let value = format.parse(text, "t", ValueKind::BLOCKS).unwrap();
            assert_eq!(format.text(&value, ValueKind::BLOCKS), text);
        }
        assert_eq!(ValueFormat::Decimal.parse("7", "t", ValueKind::BLOCKS).unwrap(), 7_u64.to_le_bytes());
        let error = ValueFormat::Text.parse("four", "t", ValueKind::blocks(3)).unwrap_err();
        assert_eq!(error.to_string(), "a value of 4 B; table \"t\" has values of up to 3 B");
    }

    #[test]
    fn wrong_values_name_the_sizes() {
        let error =
            |format: ValueFormat, text| format.parse(text, "t", ValueKind::Fixed(8)).unwrap_err().to_string();
        assert_eq!(error(ValueFormat::Auto, "nine byte"), "a value of 9 B; table \"t\" has values of 8 B");
        assert!(error(ValueFormat::Auto, "0x00").contains("2 hexadecimal digits"));
        assert!(error(ValueFormat::Hex, "0xgg").contains("'g'"));
        assert!(error(ValueFormat::Decimal, "-1").contains("no u64"));
    }
}
