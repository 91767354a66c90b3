//! ROLEX's model (Li et al., FAST 2023): lines over runs of leaves, each within an error bound, trained on
//! the leaves' low fences.
//!
//! Leaf `i` has `slots` slots, so its low fence stands at record `i * slots`. Let a line `f` from keys to
//! records miss no fence of its run by more than `error` records. It finds the leaf of every key of the run.
//! For let `k` belong to leaf `i`. `f` never falls, so `f(k)` is at least `f(low_i)`, that is at least `i *
//! slots - error`. And it is at most `f(low_(i+1))`, which is at most `(i + 1) * slots + error`, unless the
//! run ends with `i`. So `i` lies from `(f(k) - error) / slots - 1` to `(f(k) + error) / slots`:
//! [`Segment::predict`], whose bounds are cut to the run. That is `1 + 2 * error / slots` leaves, less what
//! the cuts save.
//!
//! **The promise**: for every key at or above the first fence, present, absent or inserted later, the
//! prediction contains the position of the leaf that owned the key at training.
//!
//! Rounding does not break it. Lines are fitted within a bound smaller by [`SLACK`], and all that is lost
//! between the exact line and the prediction is less. With records below [`RECORDS_MAX`], `slope * distance`
//! is wrong by less than 2^-20 records: three roundings of a double. The intercept, at most the bound, is
//! wrong by less than 2^-10: one rounding to a float.
//!
//! Runs are cut greedily, each as long as any line allows (`hull`), in one pass; so no other cut has fewer.

use std::ops::Range;

use crate::hull::FeasibleLines;

/// Records within which all predictions must lie.
const RECORDS_MAX: u64 = 1 << 30;

/// The greatest error bound.
pub const ERROR_RECORDS_MAX: u32 = 1 << 12;

/// Parts of a record in which fences are placed while lines are fitted.
const PARTS_PER_RECORD: i64 = 64;

/// Parts by which the bound of the fit is smaller than that of the prediction.
const SLACK: i64 = 1;

/// The greatest hint of a leaf. Keys may have a greater one.
const LEAF_HINT_MAX: u64 = u32::MAX as u64 - 1;

/// How far predictions may be off, and what a leaf counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorBound {
    /// Records by which a line may miss a fence; 1 to [`ERROR_RECORDS_MAX`].
    pub records: u32,
    /// Records that a leaf has room for; at least 1.
    pub slots: u32,
}

/// A line over a run of leaves. Any field values can be evaluated without a panic; the promise holds for
/// those that [`fit_segments`] gives.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Segment {
    /// The low fence of the run's first leaf.
    pub first_key: u64,
    /// Records a key; not negative.
    pub slope: f64,
    /// Record of the first key, counted from the run's first leaf.
    pub intercept: f32,
    /// The position of the run's first leaf 24, the right shift from keys to hints 8, lowest bits first.
    pub place: SegmentPlace,
}

/// Two small fields of a segment in one word of 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentPlace(pub u32);

impl SegmentPlace {
    /// The place of a run that begins at a position.
    ///
    /// # Panics
    /// If the position has more than 24 bits.
    #[must_use]
    pub fn new(first_position: u32, hint_shift: u8) -> Self {
        assert!(first_position >> 24 == 0, "a segment at position {first_position}");
        Self(first_position | u32::from(hint_shift) << 24)
    }
}

const _: () = assert!(size_of::<Segment>() == 24);

/// Where a key is looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prediction {
    /// The positions of all leaves that can own the key; never empty.
    pub window: Range<u32>,
    /// The one of these that the line itself names.
    pub likeliest: u32,
}

impl Segment {
    /// The segment's words: first key, slope, then place 32 and intercept 32, lowest bits first.
    #[must_use]
    pub fn to_words(&self) -> [u64; 3] {
        let small = u64::from(self.place.0) | u64::from(self.intercept.to_bits()) << 32;
        [self.first_key, self.slope.to_bits(), small]
    }

    /// The segment of these words, if they are such as trained ones have: the slope finite and not negative,
    /// the intercept finite, the shift below 64.
    #[must_use]
    pub fn from_words(words: [u64; 3]) -> Option<Self> {
        let segment = Self::from_checked_words(words);
        let Self { slope, intercept, place, .. } = segment;
        let is_line = slope.is_finite() && slope.is_sign_positive() && intercept.is_finite();
        (is_line && place.0 >> 24 < 64).then_some(segment)
    }

    /// The segment of words that [`Segment::from_words`] took before.
    #[inline]
    #[must_use]
    pub fn from_checked_words([first_key, slope, small]: [u64; 3]) -> Self {
        let (slope, intercept) = (f64::from_bits(slope), f32::from_bits((small >> 32) as u32));
        Self { first_key, slope, intercept, place: SegmentPlace(small as u32) }
    }

    /// Position of the run's first leaf.
    #[inline]
    #[must_use]
    pub fn first_position(&self) -> u32 {
        self.place.0 & 0xff_ffff
    }

    /// Right shift from keys to hints; below 64.
    #[inline]
    fn hint_shift(&self) -> u32 {
        self.place.0 >> 24 & 63
    }

    /// Where `key` is looked for, in a run that ends before position `end`: of that run's positions alone.
    #[inline]
    #[must_use]
    pub fn predict(&self, key: u64, end: u32, bound: ErrorBound) -> Prediction {
        let distance = key.saturating_sub(self.first_key) as f64;
        let record = self.slope * distance + f64::from(self.intercept);
        let (error, slots) = (f64::from(bound.records), f64::from(bound.slots));
        let at = |leaf: u32| {
            let last = end.saturating_sub(1).max(self.first_position());
            self.first_position().saturating_add(leaf).min(last)
        };
        // Conversions saturate: below zero and no number give 0.
        let start = at(whole_below((record - error) / slots));
        let last = at(((record + error) / slots) as u32).max(start);
        let likeliest = at((record / slots) as u32).clamp(start, last);
        Prediction { window: start..last.saturating_add(1), likeliest }
    }

    /// The hint of a leaf of this run: the first *quantum* of `2^hint_shift` keys at or above its low fence,
    /// counted from that of the run's first key.
    #[inline]
    #[must_use]
    pub fn leaf_hint(&self, low_fence: u64) -> u32 {
        let Some(below) = low_fence.checked_sub(1).filter(|_| low_fence > self.first_key) else { return 0 };
        let shift = self.hint_shift();
        ((below >> shift) + 1 - (self.first_key >> shift)).min(LEAF_HINT_MAX) as u32
    }

    /// The positions of `window` whose leaf can own `key`: [`KeyQuanta::choose`].
    #[inline]
    #[must_use]
    pub fn choose(&self, key: u64, window: Range<u32>, hint_at: impl Fn(u32) -> u32) -> Range<u32> {
        self.quanta(key).choose(window, hint_at)
    }

    /// A key as the hints of this run's leaves see it.
    #[inline]
    #[must_use]
    pub fn quanta(&self, key: u64) -> KeyQuanta {
        let shift = self.hint_shift();
        let surely = (key >> shift).saturating_sub(self.first_key >> shift);
        KeyQuanta { surely, perhaps: surely + u64::from(shift != 0) }
    }
}

/// A key as the hints of a run's leaves see it: the greatest hint of leaves that begin at or below the key
/// surely, and perhaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyQuanta {
    surely: u64,
    perhaps: u64,
}

impl KeyQuanta {
    /// A key of no run.
    pub const NONE: Self = Self { surely: 0, perhaps: 0 };

    /// The positions of `window` whose leaf can own the key: one, or two if a fence lies in the key's own
    /// quantum. `hint_at(position)` is [`Segment::leaf_hint`] of that leaf.
    ///
    /// If the key's owner is in `window`, it is in the answer. For a leaf whose hint is at most the key's
    /// begins at or below the key, and one whose hint is greater by two begins above it. Whatever the hints,
    /// the answer is a part of the window, and not empty.
    #[inline]
    #[must_use]
    pub fn choose(self, window: Range<u32>, hint_at: impl Fn(u32) -> u32) -> Range<u32> {
        let behind = window.end.saturating_sub(1).max(window.start);
        let (mut first, mut last) = (window.start, window.start);
        let mut look_at = |position: u32| {
            let hint = u64::from(hint_at(position));
            first = if hint <= self.surely { position } else { first };
            last = if hint <= self.perhaps { position } else { last };
        };
        if behind - window.start <= 2 {
            // Nearly every window. To look at its last leaf twice costs less than a branch by its length,
            // which nobody can foretell.
            look_at(behind.min(window.start.saturating_add(1)));
            look_at(behind);
        } else {
            (window.start + 1..=behind).for_each(look_at);
        }
        first.min(last)..last + 1
    }
}

/// The greatest whole number below `x`, at least 0; of no number 0.
#[inline]
fn whole_below(x: f64) -> u32 {
    let whole = x as u32;
    whole.saturating_sub(u32::from(f64::from(whole) >= x))
}

/// The segment of `segments` that `key` belongs to, and the position at which its run ends; of keys below the
/// first the first segment. They are kept in any form that `segment` reads.
///
/// # Panics
/// If there are no segments.
#[inline]
#[must_use]
pub fn segment_of<Kept>(
    segments: &[Kept],
    leaf_count: u32,
    key: u64,
    segment: impl Fn(&Kept) -> Segment,
) -> (Segment, u32) {
    let index = segments.partition_point(|kept| segment(kept).first_key <= key).saturating_sub(1);
    let end = segments.get(index + 1).map_or(leaf_count, |next| segment(next).first_position());
    (segment(&segments[index]), end)
}

/// Cuts leaves with these low fences, strictly increasing, into the fewest segments whose predictions keep
/// the promise within `bound`. Position `i` is the leaf of `fences[i]`.
///
/// # Panics
/// If the bound is none, there are more than 2^30 records or 2^24 leaves, or fences do not increase.
#[must_use]
pub fn fit_segments(fences: &[u64], bound: ErrorBound) -> Vec<Segment> {
    let records = fences.len() as u64 * u64::from(bound.slots);
    assert!((1..=ERROR_RECORDS_MAX).contains(&bound.records) && bound.slots > 0, "{bound:?} is no bound");
    assert!(records <= RECORDS_MAX, "{} leaves of {} slots", fences.len(), bound.slots);
    assert!(fences.is_sorted_by(|a, b| a < b), "fences must increase");
    let mut segments = Vec::new();
    let mut lines = FeasibleLines::new(i64::from(bound.records) * PARTS_PER_RECORD - SLACK);
    let mut first = 0;
    for (position, fence) in fences.iter().enumerate() {
        let record = (position - first) as i64 * i64::from(bound.slots);
        if !lines.accepts(*fence, record * PARTS_PER_RECORD) {
            segments.push(segment(&fences[first..position], first, lines.slope(), bound));
            lines.clear();
            first = position;
            let alone = lines.accepts(*fence, 0);
            debug_assert!(alone, "a line passes through any one point");
        }
    }
    if first < fences.len() {
        segments.push(segment(&fences[first..], first, lines.slope(), bound));
    }
    segments
}

/// The segment over a run, with the intercept that makes its greatest error least.
fn segment(run: &[u64], first_position: usize, parts_a_key: f64, bound: ErrorBound) -> Segment {
    let (first_key, last_key) = (run[0], run[run.len() - 1]);
    let slope = parts_a_key / PARTS_PER_RECORD as f64;
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut record = 0.0;
    for fence in run {
        let deviation = record - slope * (fence - first_key) as f64;
        least = least.min(deviation);
        most = most.max(deviation);
        record += f64::from(bound.slots);
    }
    Segment {
        first_key,
        slope,
        intercept: f64::midpoint(least, most) as f32,
        place: SegmentPlace::new(first_position as u32, hint_shift(first_key, last_key)),
    }
}

/// The least shift with which no hint of a run's leaves saturates.
fn hint_shift(first_key: u64, last_key: u64) -> u8 {
    let mut shift = (last_key - first_key).checked_ilog2().map_or(0, |log| (log + 1).saturating_sub(32));
    while (last_key.saturating_sub(1) >> shift) + 1 - (first_key >> shift) > LEAF_HINT_MAX {
        shift += 1;
    }
    shift as u8
}
