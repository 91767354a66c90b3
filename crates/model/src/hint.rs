//! Hints: a leaf's low fence in 16 bits, fine enough to pick the leaf without reading its neighbours.
//!
//! Keys are cut into *quanta* of `2^hint_shift` keys, aligned to multiples of their size. A key's hint is the
//! number of its quantum, counted from that of the sub-model's base. A leaf's hint is that of its low fence.
//! So, for a leaf with hint `H` and a key with hint `h`:
//!
//! - `h > H`: the key is at or above the fence;
//! - `h < H`: it is below;
//! - `h == H`: both lie in one quantum, and nothing is known: a *tie*. With quanta of one key, the key is the
//!   fence.
//!
//! On a tie the leaf of the fence is the likelier. A fence at the edge of a quantum has no key of its quantum
//! below it: the likelier leaf is the right one. [`shortest_fence`] chooses such fences. Of other fences the
//! keys of the quantum that lie below them are looked for in a wrong leaf first.
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

    /// The hint of a leaf with this low fence: that of the fence.
    #[inline]
    #[must_use]
    pub fn leaf_hint(&self, low_fence: u64) -> u16 {
        self.hint(low_fence)
    }

    /// A key as the hints of this sub-model see it.
    #[inline]
    #[must_use]
    pub fn key_hint(&self, key: u64) -> KeyHint {
        let perhaps = self.hint(key);
        let is_exact = u32::from(self.hint_shift.is_multiple_of(64));
        KeyHint { surely_end: u32::from(perhaps) + is_exact, perhaps }
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
    /// A leaf with less than this hint begins at or below the key.
    surely_end: u32,
    /// A leaf with more than this hint begins above the key.
    perhaps: u16,
}

impl KeyHint {
    /// The greatest hint of leaves that surely begin at or below the key; `None` if no hint says so.
    #[inline]
    #[must_use]
    pub fn greatest_surely_below(self) -> Option<u16> {
        self.surely_end.checked_sub(1).map(|hint| hint as u16)
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
                first += u32::from(hint < self.surely_end);
                last += u32::from(hint <= u32::from(self.perhaps));
            }
        } else {
            first = last_below(rest.clone(), self.surely_end, &hint_at);
            last = last_below(first + 1..rest.end, u32::from(self.perhaps) + 1, &hint_at);
        }
        first..last + 1
    }
}

/// The last position of `range` whose hint is below `bound`; the position before `range` if there is none.
fn last_below(range: Range<u32>, bound: u32, hint_at: &impl Fn(u32) -> u16) -> u32 {
    let (mut low, mut high) = (range.start, range.end);
    while low < high {
        let middle = low + (high - low) / 2;
        if u32::from(hint_at(middle)) < bound {
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
/// The base lies one quantum below the first inner fence, if there are so many keys: what is further down
/// saturates to hint 0 and ties with nothing. Only the fences count, not the dispatch interval, so a cluster
/// in a wide interval is told apart.
pub(crate) fn base_and_shift(first: u64, last: u64) -> (u64, u8) {
    debug_assert!(0 < first && first <= last, "inner fences {first} to {last}");
    let mut shift = (last - first).checked_ilog2().map_or(0, |log| (log + 1).saturating_sub(16));
    while ((last - 1) >> shift) - ((first - 1) >> shift) + 2 > HINT_MAX {
        shift += 1;
    }
    ((first - 1).saturating_sub(1 << shift), shift as u8)
}

/// How many of the leaves between these inner fences ties cost, expected: of each leaf the part of its keys
/// that lies in the quantum of the fence behind it.
pub(crate) fn expected_ties(inner_fences: &[u64]) -> f64 {
    let [first, .., last] = inner_fences else { return 0.0 };
    let (_, shift) = base_and_shift(*first, *last);
    let quantum_mask = (1_u64 << shift) - 1;
    let part = |low: u64, fence: u64| ((fence & quantum_mask) as f64 / (fence - low) as f64).min(1.0);
    inner_fences.windows(2).map(|pair| part(pair[0], pair[1])).sum()
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
            assert!(first <= quantum || model.leaf_hint(first) >= 1, "{first} {last}: ties below the base");
            let unbounded = (last >> hint_shift) - (base >> hint_shift);
            assert_eq!(u64::from(model.leaf_hint(last)), unbounded, "{first} {last}: a hint saturates");
            assert!(
                hint_shift == 0 || u64::from(model.leaf_hint(last)) > HINT_MAX / 4 - 2,
                "{first} {last}: the shift {hint_shift} wastes hints"
            );
            let edge = last / quantum * quantum;
            if edge > first {
                assert_eq!(model.leaf_hint(edge), model.hint(edge), "a fence at an edge holds its own key");
                assert!(model.leaf_hint(edge) > model.hint(edge - 1), "{edge} ties with the key below it");
            }
        }
    }

    /// Keys at equal distances, all right below edges: the last one of each leaf is, and the fence behind it
    /// is that edge.
    #[test]
    fn keys_right_below_edges_are_found_in_their_leaves() {
        const STEP: u64 = 1 << 20;
        for below_edge in [1, 2, 3_352, 4_096, STEP / 2, STEP - 1, STEP] {
            let key = |index: u64| (index + 1) * STEP - below_edge;
            let fences: Vec<u64> = (0..20)
                .map(|leaf| if leaf == 0 { 0 } else { shortest_fence(key(12 * leaf - 1), key(12 * leaf)) })
                .collect();
            let model = crate::train_sub_model(0, u64::MAX, &fences).expect("a sub-model");
            let hint_at = |position: u32| model.leaf_hint(fences[position as usize]);
            for index in 0..240 {
                let chosen = model.choose(key(index), model.predict(key(index)), hint_at);
                assert_eq!(chosen.end - 1, index as u32 / 12, "key {index}, {below_edge} below an edge");
            }
            assert!(expected_ties(&fences[1..]) < 0.01);
        }
    }

    #[test]
    fn counting_and_halving_agree() {
        let model = SubModel { hint_shift: 4, ..SubModel::default() };
        let hints: Vec<u16> = (0..40).map(|position| position / 3 * 2).collect();
        let at = |position: u32| hints[position as usize];
        for key in 0..500 {
            let long = model.choose(key, 0..40, at);
            let surely = hints[1..].iter().filter(|hint| **hint < model.hint(key)).count() as u32;
            let perhaps = hints[1..].iter().filter(|hint| **hint <= model.hint(key)).count() as u32;
            assert_eq!(long, surely..perhaps + 1);
            assert_eq!(model.choose(key, 0..12, at), surely.min(11)..perhaps.min(11) + 1);
        }
    }
}
