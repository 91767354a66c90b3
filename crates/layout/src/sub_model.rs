//! A sub-model on the wire and in the client's cache: three words.

use crate::SUB_MODEL_WORDS;

/// A linear model from keys to positions in its own part of the translation table.
///
/// Words: `base`; `slope` (f32 bits, low) and `intercept` (f32 bits, high); `error_low` 16, `error_high` 16,
/// `leaf_count` 24, `hint_shift` 8, lowest bits first.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SubModelRecord {
    /// Where the line and the hints begin, at or below the first fence inside the dispatch interval.
    pub base: u64,
    /// Positions a key, of `key - base`.
    pub slope: f32,
    /// Position of `base`.
    pub intercept: f32,
    /// Leaves by which a prediction may lie too high.
    pub error_low: u16,
    /// Leaves by which a prediction may lie too low.
    pub error_high: u16,
    /// Leaves of this sub-model; below 2^24. Zero: no record here.
    pub leaf_count: u32,
    /// Right shift from `key - base` to the 16 bits of a hint; below 64.
    pub hint_shift: u8,
}

impl SubModelRecord {
    /// The record's words.
    #[must_use]
    pub fn to_words(&self) -> [u64; SUB_MODEL_WORDS] {
        debug_assert!(self.leaf_count < 1 << 24, "{} leaves do not fit a record", self.leaf_count);
        [
            self.base,
            u64::from(self.slope.to_bits()) | u64::from(self.intercept.to_bits()) << 32,
            u64::from(self.error_low)
                | u64::from(self.error_high) << 16
                | u64::from(self.leaf_count) << 32
                | u64::from(self.hint_shift) << 56,
        ]
    }

    /// The record of these words. Any words give a record that can be evaluated. The shift is cut to 63, and
    /// a slope or intercept that is no number gives some position inside the sub-model.
    #[inline]
    #[must_use]
    pub fn from_words(words: [u64; SUB_MODEL_WORDS]) -> Self {
        let [base, line, shape] = words;
        Self {
            base,
            slope: f32::from_bits(line as u32),
            intercept: f32::from_bits((line >> 32) as u32),
            error_low: shape as u16,
            error_high: (shape >> 16) as u16,
            leaf_count: (shape >> 32) as u32 & 0xff_ffff,
            hint_shift: (shape >> 56) as u8 & 63,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_back() {
        let record = SubModelRecord {
            base: u64::MAX - 3,
            slope: 1.5e-12,
            intercept: -0.25,
            error_low: 3,
            error_high: 65_535,
            leaf_count: 0xff_fffe,
            hint_shift: 63,
        };
        assert_eq!(SubModelRecord::from_words(record.to_words()), record);
    }
}
