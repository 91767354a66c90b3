//! The first level: a function from every `u64` to a sub-model that never decreases as the key grows.
//!
//! Because it is monotone, the keys of one sub-model are an interval, and its boundaries are *defined by the
//! function itself*. [`TopModel::boundary`] finds them by search, exact to the last bit whatever rounding
//! dispatch does. Server and client need not agree on anything else.
//!
//! Words: `kind`, `sub_model_count`, then linear: `base`, `slope`, `intercept` (f64 bits); radix: see
//! [`crate::RadixTop`].

use std::ops::RangeInclusive;

use crate::decode_error::DecodeError;
use crate::linear::LinearTop;
use crate::radix::RadixTop;

/// Words before the kind's own.
pub(crate) const HEADER_WORDS: usize = 2;

const KIND_LINEAR: u64 = 1;
const KIND_RADIX: u64 = 2;

/// Keys to sub-models: total, monotone, in `0..sub_model_count`.
#[derive(Debug, Clone, PartialEq)]
pub enum TopModel {
    /// One line: the paper's.
    Linear(LinearTop),
    /// A radix tree with linear buckets: survives skew.
    Radix(RadixTop),
}

impl TopModel {
    /// The sub-model of `key`.
    #[inline]
    #[must_use]
    pub fn dispatch(&self, key: u64) -> u32 {
        match self {
            Self::Radix(top) => top.dispatch(key),
            Self::Linear(top) => top.dispatch(key),
        }
    }

    /// [`TopModel::dispatch`] if that takes no more than one look at the model.
    #[inline(always)]
    #[must_use]
    pub fn dispatch_at_once(&self, key: u64) -> Option<u32> {
        match self {
            Self::Radix(top) => top.dispatch_at_once(key),
            Self::Linear(top) => Some(top.dispatch(key)),
        }
    }

    /// Sub-models; at least one.
    #[must_use]
    pub fn sub_model_count(&self) -> u32 {
        match self {
            Self::Radix(top) => top.sub_model_count,
            Self::Linear(top) => top.sub_model_count,
        }
    }

    /// The least key dispatched to `sub_model` or a later one; `None` if there is no such key.
    #[must_use]
    pub fn boundary(&self, sub_model: u32) -> Option<u64> {
        self.boundary_from(sub_model, 0, 1 << 63)
    }

    /// The dispatch interval: all keys dispatched to `sub_model`, or `None` if there are none (which happens
    /// with
    /// [`TopModel::Linear`] on skewed keys).
    #[must_use]
    pub fn interval(&self, sub_model: u32) -> Option<RangeInclusive<u64>> {
        let low = self.boundary(sub_model)?;
        let high = match self.boundary_from(sub_model + 1, low, 1 << 32) {
            Some(next) if next == low => return None,
            Some(next) => next - 1,
            None => u64::MAX,
        };
        Some(low..=high)
    }

    /// The sub-models that keys are dispatched to: all but those of [`TopModel::Linear`] on skewed keys.
    #[must_use]
    pub fn numbers_with_keys(&self) -> u32 {
        if let Self::Radix(top) = self {
            return top.sub_model_count;
        }
        let mut numbers = 1;
        let mut key = 0;
        while let Some(next) = self.dispatch(key).checked_add(1)
            && let Some(next_key) = self.boundary_from(next, key, 1 << 32)
        {
            numbers += 1;
            key = next_key;
        }
        numbers
    }

    /// Bytes of memory that the model takes beside itself.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Radix(top) => size_of_val(&*top.words),
            Self::Linear(_) => 0,
        }
    }

    /// [`TopModel::boundary`] for one who knows that it is at or above `from`, and that about `step` keys lie
    /// between: gallops away from `from`, then halves.
    pub(crate) fn boundary_from(&self, sub_model: u32, from: u64, step: u64) -> Option<u64> {
        if self.dispatch(from) >= sub_model {
            return Some(from);
        }
        // dispatch(below) < sub_model <= dispatch(reached), once reached is found.
        let (mut below, mut step) = (from, step.max(1));
        let mut reached = loop {
            let probe = below.saturating_add(step);
            if self.dispatch(probe) >= sub_model {
                break probe;
            }
            if probe == u64::MAX {
                return None;
            }
            below = probe;
            step = step.saturating_mul(2);
        };
        while reached - below > 1 {
            let middle = below + (reached - below) / 2;
            if self.dispatch(middle) >= sub_model {
                reached = middle;
            } else {
                below = middle;
            }
        }
        Some(reached)
    }

    /// The model as words, for [`TopModel::from_words`] at another place.
    #[must_use]
    pub fn to_words(&self) -> Vec<u64> {
        match self {
            Self::Linear(top) => vec![
                KIND_LINEAR,
                u64::from(top.sub_model_count),
                top.base,
                top.slope.to_bits(),
                top.intercept.to_bits(),
            ],
            Self::Radix(top) => {
                let mut words = vec![KIND_RADIX, u64::from(top.sub_model_count)];
                top.append_words(&mut words);
                words
            }
        }
    }

    /// The model of these words, which may come from anyone: whatever decodes is total, monotone and inside
    /// `0..sub_model_count`.
    ///
    /// # Errors
    /// [`DecodeError`], naming the first word that breaks a rule.
    pub fn from_words(words: &[u64]) -> Result<Self, DecodeError> {
        let [kind, sub_model_count, rest @ ..] = words else {
            return Err(length("the header", HEADER_WORDS, words.len()));
        };
        let sub_model_count =
            u32::try_from(*sub_model_count).ok().filter(|count| *count > 0).ok_or(DecodeError::Field {
                what: "sub-model count",
                word: 1,
                expected: "1 to 2^32 - 1",
                got: *sub_model_count,
            })?;
        match *kind {
            KIND_LINEAR => linear_from_words(sub_model_count, rest).map(Self::Linear),
            KIND_RADIX => RadixTop::from_words(sub_model_count, rest).map(Self::Radix),
            got => {
                Err(DecodeError::Field { what: "kind", word: 0, expected: "1 (linear) or 2 (radix)", got })
            }
        }
    }
}

pub(crate) fn length(what: &'static str, expected: usize, got: usize) -> DecodeError {
    DecodeError::Length { what, expected: expected as u64, got: got as u64 }
}

fn linear_from_words(sub_model_count: u32, words: &[u64]) -> Result<LinearTop, DecodeError> {
    let &[base, slope_bits, intercept_bits] = words else {
        return Err(length("the linear model", HEADER_WORDS + 3, HEADER_WORDS + words.len()));
    };
    let (slope, intercept) = (f64::from_bits(slope_bits), f64::from_bits(intercept_bits));
    let field =
        |what, offset, expected, got| DecodeError::Field { what, word: HEADER_WORDS + offset, expected, got };
    // With a finite slope and intercept the position is never NaN: at worst it overflows to +infinity.
    if !(slope.is_finite() && slope >= 0.0) {
        return Err(field("slope", 1, "the bits of a finite f64 of at least 0", slope_bits));
    }
    if !intercept.is_finite() {
        return Err(field("intercept", 2, "the bits of a finite f64", intercept_bits));
    }
    Ok(LinearTop { sub_model_count, base, slope, intercept })
}
