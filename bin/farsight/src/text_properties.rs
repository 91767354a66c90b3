//! Texts that anyone may type: no reader of them panics, and what is printed is read back as the same.

use farsight::ValueKind;
use proptest::prelude::*;

use crate::key_text::TextKey;
use crate::size;
use crate::value_text::ValueFormat;

/// Texts of any characters, and of those that keys, values and sizes are written with.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "(0x)?[0-9a-fA-FxKMGTiB+. -]{0,20}", "[0-9]{1,22}[KMGTkiB]{0,4}"]
}

/// A key that was read is printed so that it is read back.
fn comes_back<K: TextKey + PartialEq + std::fmt::Debug>(text: &str) {
    if let Ok(key) = K::parse(text) {
        let printed = key.text();
        assert_eq!(K::parse(&printed).map_err(|error| error.to_string()), Ok(key), "{text:?}, {printed:?}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_key_or_an_error(text in texts()) {
        comes_back::<u64>(&text);
        comes_back::<i64>(&text);
        comes_back::<[u8; 8]>(&text);
        // NaN differs from itself.
        if !matches!(f64::parse(&text), Ok(key) if key.is_nan()) {
            comes_back::<f64>(&text);
        }
    }

    #[test]
    fn every_key_comes_back(word: u64, bytes: [u8; 8]) {
        prop_assert_eq!(u64::parse(&word.text()).ok(), Some(word));
        prop_assert_eq!(<[u8; 8]>::parse(&bytes.text()).ok(), Some(bytes));
        let float = f64::from_bits(word);
        if !float.is_nan() {
            prop_assert_eq!(f64::parse(&float.text()).map(f64::to_bits).ok(), Some(word));
        }
    }

    #[test]
    fn any_text_is_a_value_or_an_error(text in texts(), value_bytes in 8_u16..=256) {
        let values = ValueKind::Fixed(value_bytes);
        for format in [ValueFormat::Auto, ValueFormat::Text, ValueFormat::Hex, ValueFormat::Decimal] {
            if let Ok(value) = format.parse(&text, "t", values) {
                prop_assert_eq!(value.len(), usize::from(value_bytes));
                let printed = format.text(&value, values);
                prop_assert_eq!(format.parse(&printed, "t", values).ok(), Some(value), "{:?}", printed);
            }
        }
    }

    #[test]
    fn every_value_comes_back(value in prop::collection::vec(any::<u8>(), 8..=256)) {
        for values in [ValueKind::Fixed(value.len() as u16), ValueKind::BLOCKS] {
            for format in [ValueFormat::Auto, ValueFormat::Hex] {
                let printed = format.text(&value, values);
                let read = format.parse(&printed, "t", values).ok();
                prop_assert_eq!(read.as_ref(), Some(&value), "{}", printed);
            }
        }
    }

    #[test]
    fn any_text_is_a_size_or_an_error(text in texts()) {
        if let Ok(bytes) = size::parse(&text) {
            let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
            let number: u64 = digits.parse().expect("digits come first");
            let unit = &text[digits.len()..];
            prop_assert!(["", "B", "K", "k", "M", "G", "T", "KiB", "kiB", "MiB", "GiB", "TiB"].contains(&unit));
            prop_assert!(bytes >= number && (number == 0 || bytes % number == 0), "{}", bytes);
        }
    }
}
