//! The paper's top model (XStore, OSDI 2020, section 5.1): one line from keys to sub-models.
//!
//! Good for keys spread evenly; on skewed ones most sub-models are empty and few hold nearly all leaves. It
//! is kept to compare with.

use crate::fit::fit_ranks;

/// `sub-model = floor(slope * (key - base) + intercept)`, clamped into `0..sub_model_count`.
///
/// Monotone, since each of its operations is: the saturating subtraction, the conversion to f64, the product
/// with a slope that is not negative, the sum, and the saturating conversion back. The conversion to f64 is
/// exact below 2^53 and rounds to the nearest above.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearTop {
    /// Sub-models; at least one.
    pub(crate) sub_model_count: u32,
    /// The key that counts as 0; smaller ones count as it.
    pub(crate) base: u64,
    /// Sub-models a key; finite, not negative.
    pub(crate) slope: f64,
    /// Value of `base`; finite.
    pub(crate) intercept: f64,
}

impl LinearTop {
    /// The line of `sub_model_count` sub-models by least squares of rank over low fence. `fences[0]` stands
    /// for minus infinity and is left out.
    pub(crate) fn fit(fences: &[u64], sub_model_count: u32) -> Self {
        let inner = &fences[1..];
        let Some(base) = inner.first().copied() else {
            return Self { sub_model_count: 1, base: 0, slope: 0.0, intercept: 0.0 };
        };
        let (slope, intercept) = fit_ranks(inner, base, 0.0);
        let scale = f64::from(sub_model_count) / inner.len() as f64;
        Self { sub_model_count, base, slope: slope * scale, intercept: intercept * scale }
    }

    /// The sub-model of `key`.
    #[inline]
    #[must_use]
    pub fn dispatch(&self, key: u64) -> u32 {
        let position = self.slope * key.saturating_sub(self.base) as f64 + self.intercept;
        (position as u32).min(self.sub_model_count - 1)
    }
}
