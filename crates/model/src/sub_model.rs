//! The second level: a line from keys to the positions of a few leaves, with the error that it has at worst.
//!
//! Invariant: [`SubModel::position`] never decreases as the key grows. Each of its operations is monotone.
//! The saturating subtraction and the cut to 63 bits are. A conversion to f32, a product with a slope that is
//! not negative, a sum and a conversion to an integer round monotonely. Sum and product are two IEEE
//! operations, never a fused one, so client and server compute the same on any processor.

use std::ops::Range;

/// Leaves of one sub-model at most; the positions below are exact in f32.
pub const LEAVES_PER_SUB_MODEL_MAX: usize = (1 << 24) - 1;

/// The error that stands for "anywhere in the sub-model".
pub const ERROR_WHOLE: u16 = u16::MAX;

/// A linear model from the keys of one dispatch interval to positions in `0..leaf_count`.
///
/// Any field values can be evaluated without a panic; the promise holds for those that
/// [`crate::train_sub_model`] gives.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SubModel {
    /// Where the line and the hints begin: one hint's quantum below the first fence inside the interval.
    /// Smaller keys count as this one.
    pub base: u64,
    /// Positions a key, of `key - base`; not negative.
    pub slope: f32,
    /// Position of `base`.
    pub intercept: f32,
    /// Leaves by which a position may lie too high; [`u16::MAX`]: any number.
    pub error_low: u16,
    /// Leaves by which a position may lie too low; [`u16::MAX`]: any number.
    pub error_high: u16,
    /// Leaves that meet the dispatch interval; 1 to [`LEAVES_PER_SUB_MODEL_MAX`].
    pub leaf_count: u32,
    /// Right shift from keys to hints; below 64.
    pub hint_shift: u8,
}

impl SubModel {
    /// The window of positions that contains the owner of `key`: half-open, never empty, inside
    /// `0..leaf_count` (`0..1` if there are no leaves).
    #[inline]
    #[must_use]
    pub fn predict(&self, key: u64) -> Range<u32> {
        let position = self.position(key);
        let low = position.saturating_sub(reach(self.error_low));
        let high = position.saturating_add(reach(self.error_high)).min(self.last_position());
        low..high + 1
    }

    /// The line's position for `key`, inside `0..leaf_count`: the window without its errors.
    #[inline]
    pub(crate) fn position(&self, key: u64) -> u32 {
        // 63 bits convert in one instruction, and nobody needs to tell apart what lies above.
        let distance = key.saturating_sub(self.base).min(i64::MAX as u64) as i64 as f32;
        let position = self.slope * distance + self.intercept;
        // Saturates: below zero and no number give 0.
        (position as u32).min(self.last_position())
    }

    #[inline]
    fn last_position(&self) -> u32 {
        self.leaf_count.saturating_sub(1)
    }
}

#[inline]
fn reach(error: u16) -> u32 {
    if error == ERROR_WHOLE { u32::MAX } else { u32::from(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_fields_evaluate() {
        let floats = [0.0, -1.0, 1e30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE];
        for slope in floats {
            for intercept in floats {
                for leaf_count in [0, 1, 7, u32::MAX] {
                    for error in [0, 1, u16::MAX] {
                        let model = SubModel {
                            base: 1 << 40,
                            slope,
                            intercept,
                            error_low: error,
                            error_high: error,
                            leaf_count,
                            hint_shift: 255,
                        };
                        for key in [0, 1 << 40, u64::MAX] {
                            let window = model.predict(key);
                            assert!(window.start < window.end && window.end <= leaf_count.max(1));
                            let chosen = model.choose(key, window.clone(), |_| 3);
                            assert!(window.start <= chosen.start && chosen.start < chosen.end);
                            assert!(chosen.end <= window.end);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_saturated_error_means_the_whole() {
        let model = SubModel {
            slope: 1.0,
            error_low: ERROR_WHOLE,
            error_high: ERROR_WHOLE,
            leaf_count: 1 << 20,
            ..SubModel::default()
        };
        assert_eq!(model.predict(0), 0..1 << 20);
        assert_eq!(model.predict(u64::MAX), 0..1 << 20);
    }
}
