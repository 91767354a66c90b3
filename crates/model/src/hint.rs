//! Hints: a leaf's low fence in 16 bits, fine enough to pick the leaf without reading its neighbours.
//!
//! Keys are cut into *quanta* of `2^hint_shift` keys, aligned to multiples of their size. A key's hint is the
//! number of its quantum, counted from that of the sub-model's base. A leaf's hint is the number of the first
//! quantum that lies wholly at or above its low fence. So, for a leaf with hint `H` and a key with hint `h`:
//!
//! - `h >= H`: the key is at or above the fence;
//! - `h + 1 < H`: it is below;
//! - `h + 1 == H`: the fence lies in, or at the end of, the key's quantum, and nothing is known: a *tie*.
//!   With quanta of one key there is none.
//!
//! Rounding up (and aligned quanta) makes a fence at a multiple of the quantum cost no tie for its own leaf's
//! keys. [`shortest_fence`] chooses such fences; fences that are simply the first key of each leaf tie for
//! that key, one in a dozen.
//!
//! Invariant: the hints of a sub-model's leaves never saturate (training chooses the shift so), those of keys
//! may. A saturated key is below the first inner fence's quantum, or above the last.

use std::ops::Range;

use crate::SubModel;

/// The greatest hint.
const HINT_MAX: u64 = u16::MAX as u64;

/// Windows up to this many positions are counted through, longer ones searched by halving.
const COUNTED_WINDOW_MAX: u32 = 16;

impl SubModel {
    /// The hint of a key: the number of its quantum, saturating at both ends.
    #[inline]
    #[must_use]
    pub fn hint(&self, key: u64) -> u16 {
        let shift = self.hint_shift & 63;
        (key >> shift).saturating_sub(self.base >> shift).min(HINT_MAX) as u16
    }

    /// The hint of a leaf with this low fence: the first quantum at or above it, saturating at both ends.
    #[inline]
    #[must_use]
    pub fn leaf_hint(&self, low_fence: u64) -> u16 {
        let shift = self.hint_shift & 63;
        match low_fence.checked_sub(1) {
            Some(below) if low_fence > self.base => {
                ((below >> shift) - (self.base >> shift) + 1).min(HINT_MAX) as u16
            }
            _ => 0,
        }
    }

    /// A key as the hints of this sub-model see it.
    #[inline]
    #[must_use]
    pub fn key_hint(&self, key: u64) -> KeyHint {
        let surely = u32::from(self.hint(key));
        KeyHint { surely, perhaps: surely + u32::from(self.hint_shift & 63 != 0) }
    }

    /// The greatest hint of leaves that perhaps begin at or below `key`: the last of
    /// [`KeyHint::greatest_below`].
    #[inline(always)]
    #[must_use]
    pub fn greatest_hint(&self, key: u64) -> u16 {
        let shift = self.hint_shift & 63;
        let quantum = (key >> shift).saturating_sub(self.base >> shift);
        // No overflow: of 64 bits nothing is added to.
        (quantum + u64::from(shift != 0)).min(HINT_MAX) as u16
    }

    /// [`KeyHint::choose`] for `key`.
    #[inline]
    #[must_use]
    pub fn choose(&self, key: u64, window: Range<u32>, hint_at: impl Fn(u32) -> u16) -> Range<u32> {
        self.key_hint(key).choose(window, hint_at)
    }
}

/// All that choosing needs of a key and its sub-model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyHint {
    /// A leaf with at most this hint begins at or below the key.
    surely: u32,
    /// A leaf with more than this hint begins above the key.
    perhaps: u32,
}

impl KeyHint {
    /// The greatest hints of leaves that begin at or below the key: surely, and perhaps (on a tie).
    #[inline]
    #[must_use]
    pub fn greatest_below(self) -> [u16; 2] {
        // A leaf's hint has sixteen bits: what lies above bounds it no more.
        [self.surely, self.perhaps].map(|hint| hint.min(u32::from(u16::MAX)) as u16)
    }

    /// The positions of `window` whose leaf can own the key: one, or on a tie more. Of these the *last* is
    /// the likeliest, for the key is often the leaf's very fence. `hint_at(position)` is the leaf's hint; it
    /// must not decrease within the window. It is never called for the window's first position.
    ///
    /// Promise: if the key's owner is in `window`, it is in the answer. Whatever the hints, the answer is a
    /// non-empty part of a non-empty window.
    #[inline]
    #[must_use]
    pub fn choose(self, window: Range<u32>, hint_at: impl Fn(u32) -> u16) -> Range<u32> {
        let rest = window.start + 1..window.end.max(window.start + 1);
        let (mut first, mut last) = (window.start, window.start);
        if rest.len() < COUNTED_WINDOW_MAX as usize {
            for position in rest {
                let hint = u32::from(hint_at(position));
                first += u32::from(hint <= self.surely);
                last += u32::from(hint <= self.perhaps);
            }
        } else {
            first = last_at_most(rest.clone(), self.surely, &hint_at);
            last = last_at_most(first + 1..rest.end, self.perhaps, &hint_at);
        }
        first..last + 1
    }
}

/// The last position of `range` whose hint is at most `bound`; the position before `range` if there is none.
fn last_at_most(range: Range<u32>, bound: u32, hint_at: &impl Fn(u32) -> u16) -> u32 {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if u32::from(hint_at(middle)) <= bound {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low - 1
}

/// The base and the shift of a sub-model whose inner fences (all but its first leaf's) go from `first` to
/// `last`.
///
/// The base lies one quantum below the first inner fence: what is further down saturates to hint 0 and ties
/// with nothing. Only the fences count, not the dispatch interval, so a cluster in a wide interval is told
/// apart.
pub(crate) fn base_and_shift(first: u64, last: u64) -> (u64, u8) {
    debug_assert!(0 < first && first <= last, "inner fences {first} to {last}");
    let mut shift = (last - first).checked_ilog2().map_or(0, |log| (log + 1).saturating_sub(16));
    while ((last - 1) >> shift) - ((first - 1) >> shift) + 2 > HINT_MAX {
        shift += 1;
    }
    ((first - 1).saturating_sub(1 << shift), shift as u8)
}

/// How many of the leaves between these inner fences ties cost, expected. A leaf of `width` keys shares a
/// quantum with its neighbour for `quantum / width` of them.
pub(crate) fn expected_ties(inner_fences: &[u64]) -> f64 {
    let [first, .., last] = inner_fences else { return 0.0 };
    let (_, shift) = base_and_shift(*first, *last);
    if shift == 0 {
        return 0.0;
    }
    let quantum = (1_u64 << shift) as f64;
    inner_fences.windows(2).map(|pair| (quantum / (pair[1] - pair[0]) as f64).min(1.0)).sum()
}

/// The fence to set between two neighbouring keys: of all that separate them, that is `left_last < fence <=
/// right_first`, the one with the most trailing zeros. Such fences fall on the edges of quanta, so that hints
/// tell leaves apart without ties (the integer form of a prefix B-tree's shortest separator: Bayer and
/// Unterauer, 1977).
///
/// # Panics
/// If the keys are not in order: `left_last >= right_first`.
#[inline]
#[must_use]
pub fn shortest_fence(left_last: u64, right_first: u64) -> u64 {
    assert!(left_last < right_first, "no fence separates {left_last} from {right_first}");
    // The highest bit in which they differ is set in the right one only: keep it and all above it.
    let keep = (left_last ^ right_first).ilog2();
    right_first >> keep << keep
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_fence_separates_with_most_zeros() {
        for (left, right) in
            [(0, 1), (0, u64::MAX), (5, 6), (7, 8), (9, 15), (1 << 53, (1 << 53) + 1), (3, 1 << 40)]
        {
            let fence = shortest_fence(left, right);
            assert!(left < fence && fence <= right, "{left} {fence} {right}");
            if right - left < 1000 {
                let best = (left + 1..=right).map(u64::trailing_zeros).max();
                assert_eq!(Some(fence.trailing_zeros()), best, "{left} {right}");
            }
        }
    }

    #[test]
    fn inner_hints_never_saturate_and_fences_at_edges_never_tie() {
        for (first, last) in
            [(1, 1), (1, 2), (1, 65_536), (7, 1 << 20), (1, u64::MAX), (1 << 63, (1 << 63) + 70_000)]
        {
            let (base, hint_shift) = base_and_shift(first, last);
            let model = SubModel { base, hint_shift, leaf_count: 3, ..SubModel::default() };
            let quantum = 1_u64 << hint_shift;
            assert!(base < first);
            assert!(model.leaf_hint(first) >= 1 && u64::from(model.leaf_hint(last)) <= HINT_MAX);
            assert!(
                model.leaf_hint(last) > model.hint(last - 1),
                "{first} {last}: a key below its fence is not surely above"
            );
            assert!(
                hint_shift == 0 || u64::from(model.leaf_hint(last)) > HINT_MAX / 4 - 2,
                "{first} {last}: the shift {hint_shift} wastes hints"
            );
            let edge = last / quantum * quantum;
            if edge > first {
                assert_eq!(model.leaf_hint(edge), model.hint(edge), "a fence at an edge holds its own key");
            }
        }
    }

    #[test]
    fn counting_and_halving_agree() {
        let model = SubModel { hint_shift: 4, ..SubModel::default() };
        let hints: Vec<u16> = (0..40).map(|position| position / 3 * 2).collect();
        let at = |position: u32| hints[position as usize];
        for key in 0..500 {
            assert_eq!(model.greatest_hint(key), model.key_hint(key).greatest_below()[1]);
            let long = model.choose(key, 0..40, at);
            let surely = hints[1..].iter().filter(|hint| **hint <= model.hint(key)).count() as u32;
            let perhaps = hints[1..].iter().filter(|hint| **hint <= model.hint(key) + 1).count() as u32;
            assert_eq!(long, surely..perhaps + 1);
            assert_eq!(model.choose(key, 0..12, at), surely.min(11)..perhaps.min(11) + 1);
        }
    }
}
