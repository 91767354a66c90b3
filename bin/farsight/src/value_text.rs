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
    /// The value of `value_bytes` that `text` says.
    pub(crate) fn parse(self, text: &str, table: &str, value_bytes: usize) -> Result<Vec<u8>> {
        match self {
            Self::Auto if text.starts_with("0x") => parse_hex(text, table, value_bytes),
            Self::Auto | Self::Text => {
                let got = text.len();
                ensure!(
                    got <= value_bytes,
                    "a value of {got} B; table {table:?} has values of {value_bytes} B"
                );
                Ok(filled(text.as_bytes(), value_bytes))
            }
            Self::Hex => parse_hex(text, table, value_bytes),
            Self::Decimal => match text.parse::<u64>() {
                Ok(number) => Ok(filled(&number.to_le_bytes(), value_bytes)),
                Err(error) => bail!("value {text:?} is no u64 in decimal: {error}"),
            },
        }
    }

    /// The text of `value`.
    pub(crate) fn text(self, value: &[u8]) -> String {
        match self {
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
    (!text.is_empty() && !text.starts_with("0x") && !text.contains(char::is_control)).then_some(text)
}

fn without_zeros(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

fn filled(bytes: &[u8], length_bytes: usize) -> Vec<u8> {
    let mut value = bytes.to_vec();
    value.resize(length_bytes, 0);
    value
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a string takes all text");
    }
    text
}

fn parse_hex(text: &str, table: &str, value_bytes: usize) -> Result<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if let Some(wrong) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
        bail!("value {text:?} has {wrong:?}, which is no hexadecimal digit");
    }
    let got = digits.len();
    let expected = 2 * value_bytes;
    ensure!(
        got == expected,
        "a value of {got} hexadecimal digits; table {table:?} has values of {value_bytes} B, {expected} digits"
    );
    let digit = |c: u8| char::from(c).to_digit(16).expect("checked above") as u8;
    Ok(digits.as_bytes().as_chunks().0.iter().map(|[high, low]| digit(*high) << 4 | digit(*low)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(format: ValueFormat, text: &str, value_bytes: usize) -> String {
        format.text(&format.parse(text, "t", value_bytes).unwrap())
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
        assert_eq!(ValueFormat::Auto.text(&[0; 8]), "0x0000000000000000");
        assert_eq!(ValueFormat::Auto.text(b"a\nb\0\0\0\0\0"), "0x610a620000000000");
        assert_eq!(ValueFormat::Auto.text(b"0x\0\0\0\0\0\0"), "0x3078000000000000");
    }

    #[test]
    fn wrong_values_name_the_sizes() {
        let error = |format: ValueFormat, text| format.parse(text, "t", 8).unwrap_err().to_string();
        assert_eq!(error(ValueFormat::Auto, "nine byte"), "a value of 9 B; table \"t\" has values of 8 B");
        assert!(error(ValueFormat::Auto, "0x00").contains("2 hexadecimal digits"));
        assert!(error(ValueFormat::Hex, "0xgg").contains("'g'"));
        assert!(error(ValueFormat::Decimal, "-1").contains("no u64"));
    }
}
