//! Cutting a run of leaves into sub-models that are each small and sharp.
//!
//! *Sharp* means that hints tell a sub-model's leaves apart, but for a few ties. Boundaries stand at fences.
//! So a fence in the void between two clusters is no fence *inside* a sub-model, and stretches no hints.

use crate::hint::expected_ties;

/// Ties a leaf that a sub-model may cost.
const TIES_PER_LEAF_MAX: f64 = 0.005;
/// How far the cut looks ahead for leaves that are sharp together.
const RUN_SUB_MODELS: usize = 4;

/// Ties a leaf for which a sub-model is cut that was sharp once: leaves that split make some more.
const BLURRED_TIES_PER_LEAF: f64 = 4.0 * TIES_PER_LEAF_MAX;

/// Whether hints no longer tell the leaves with these inner fences apart.
#[must_use]
pub fn is_blurred(inner_fences: &[u64]) -> bool {
    expected_ties(inner_fences) > BLURRED_TIES_PER_LEAF * inner_fences.len() as f64
}

/// Whether hints tell the leaves with these inner fences apart, all but a few ties.
pub(crate) fn is_sharp(inner_fences: &[u64]) -> bool {
    expected_ties(inner_fences) <= TIES_PER_LEAF_MAX * inner_fences.len() as f64
}

/// The fences at which sub-models begin when these leaves are cut, as indices of `fences`; none if one
/// sub-model holds them all. Of each run of leaves that is sharp together every sub-model takes an equal
/// part, of about `target` leaves. Each has one leaf at least, and `2 * target` at most.
///
/// # Panics
/// If the target is no leaf a sub-model.
#[must_use]
pub fn cut(fences: &[u64], target: usize) -> Vec<usize> {
    assert!(target > 0, "a sub-model has at least one leaf");
    let mut starts = Vec::new();
    let mut inner_start = 1;
    while let Some(start) = next_start(fences, inner_start, inner_start, fences.len(), target) {
        starts.push(start);
        inner_start = start + 1;
    }
    starts
}

/// The fence, of `from..end`, at which the next sub-model should begin when the one before has its inner
/// fences from `inner_start` on; `None` if it holds all that is left.
pub(crate) fn next_start(
    fences: &[u64],
    inner_start: usize,
    from: usize,
    end: usize,
    target: usize,
) -> Option<usize> {
    let reach = end.min(inner_start + RUN_SUB_MODELS * target).max(from);
    let leaves = sharp_end(fences, inner_start, from, reach) - inner_start + 1;
    let parts = ((leaves * 4 + target) / (target * 4)).max(1);
    let start = from.max(inner_start + leaves.div_ceil(parts) - 1);
    (start < end).then_some(start)
}

/// The end, from `from` to `reach`, of the longest sharp range that begins at `inner_start`, as far as
/// halving finds it.
fn sharp_end(fences: &[u64], inner_start: usize, from: usize, reach: usize) -> usize {
    if is_sharp(&fences[inner_start..reach]) {
        return reach;
    }
    let (mut sharp, mut blurred) = (from, reach);
    while blurred - sharp > 1 {
        let middle = sharp + (blurred - sharp) / 2;
        if is_sharp(&fences[inner_start..middle]) {
            sharp = middle;
        } else {
            blurred = middle;
        }
    }
    sharp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_leaves_are_cut_into_equal_parts() {
        let fences: Vec<u64> = (0..1_000).map(|leaf| leaf * 4_096).collect();
        let starts = cut(&fences, 18);
        let lengths = starts.iter().scan(0, |before, start| Some(start - std::mem::replace(before, *start)));
        assert!(lengths.into_iter().all(|length| (9..=27).contains(&length)), "{starts:?}");
        assert!((40..=80).contains(&starts.len()), "{starts:?}");
        assert!(cut(&fences[..18], 18).is_empty() && cut(&fences[..1], 18).is_empty());
    }

    #[test]
    fn every_part_is_small_and_sharp() {
        // Clusters a few keys wide, powers of two apart, and one leaf far away.
        let mut fences: Vec<u64> =
            (0..60).flat_map(|power| (0..40).map(move |leaf| (1 << power) + leaf)).collect();
        fences.extend([0, u64::MAX]);
        fences.sort_unstable();
        fences.dedup();
        for target in [1, 2, 18] {
            let starts = cut(&fences, target);
            let ends = starts.iter().copied().chain([fences.len()]);
            for (begin, end) in std::iter::once(0).chain(starts.iter().copied()).zip(ends) {
                assert!(begin < end && end - begin <= 2 * target, "{begin} to {end} of {target}");
                assert!(end - begin <= 2 || is_sharp(&fences[begin + 1..end]), "{:?}", &fences[begin..end]);
            }
        }
    }
}
