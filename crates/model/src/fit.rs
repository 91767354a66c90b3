//! Fitting lines: least squares, and a sub-model with the errors that make its promise true.

use crate::hint::base_and_shift;
use crate::sub_model::{ERROR_WHOLE, LEAVES_PER_SUB_MODEL_MAX, SubModel};
use crate::train::TrainError;

/// Least-squares line through the points `(key - base, first_rank + i)` of increasing keys, all at or above
/// `base`: slope (finite, not negative) and the value at `base`.
///
/// Keys are centred as integers before they become floats, and once more on their mean, so that the slope
/// keeps its digits whatever the keys' magnitude.
pub(crate) fn fit_ranks(keys: &[u64], base: u64, first_rank: f64) -> (f64, f64) {
    let count = keys.len() as f64;
    let distance = |key: u64| (key - base) as f64;
    let distance_mean = keys.iter().map(|key| distance(*key)).sum::<f64>() / count;
    let rank_mean = first_rank + (count - 1.0) / 2.0;
    let (mut variance, mut covariance) = (0.0, 0.0);
    let mut rank = first_rank - rank_mean;
    for key in keys {
        let offset = distance(*key) - distance_mean;
        variance += offset * offset;
        covariance += offset * rank;
        rank += 1.0;
    }
    let slope = if variance > 0.0 { (covariance / variance).max(0.0) } else { 0.0 };
    (slope, rank_mean - slope * distance_mean)
}

/// Trains the sub-model of the dispatch interval `boundary_low..=boundary_high` alone: at first, or again
/// after leaves in it have split.
///
/// `fences`: the low fences of every leaf that meets the interval, strictly increasing, in key order. The
/// first one is at or below `boundary_low`: its leaf may begin in an earlier sub-model. The last one is at or
/// below `boundary_high`: its leaf may end in a later one. Position `i` of the sub-model is the leaf of
/// `fences[i]`.
///
/// # Errors
/// [`TrainError::SubModelTooLarge`] if there are more leaves than [`LEAVES_PER_SUB_MODEL_MAX`].
///
/// # Panics
/// If the fences are none, or begin above the interval, or end above it.
pub fn train_sub_model(
    boundary_low: u64,
    boundary_high: u64,
    fences: &[u64],
) -> Result<SubModel, TrainError> {
    let [first, inner @ ..] = fences else { panic!("a sub-model without a leaf") };
    assert!(
        *first <= boundary_low && inner.last().is_none_or(|last| *last <= boundary_high),
        "fences {first} to {:?} are not those that meet {boundary_low} to {boundary_high}",
        fences.last()
    );
    debug_assert!(fences.is_sorted_by(|a, b| a < b), "fences must increase");
    if fences.len() > LEAVES_PER_SUB_MODEL_MAX {
        return Err(TrainError::SubModelTooLarge { boundary_low, boundary_high, leaf_count: fences.len() });
    }
    let leaf_count = fences.len() as u32;
    let ([inner_first, ..], Some(inner_last)) = (inner, inner.last()) else {
        return Ok(SubModel { base: boundary_low, leaf_count, ..SubModel::default() });
    };
    let (base, hint_shift) = base_and_shift(*inner_first, *inner_last);
    let (slope, intercept) = fit_ranks(inner, base, 1.0);
    let intercept = tighten(inner, base, slope, intercept);
    let line = SubModel {
        base,
        slope: slope as f32,
        intercept: intercept as f32,
        error_low: 0,
        error_high: 0,
        leaf_count,
        hint_shift,
    };
    Ok(with_errors(line, boundary_low, boundary_high, inner))
}

/// The intercept that makes the window narrowest for this slope. The deviations of the fences' ranks spread
/// over `S`. This moves them to lie between 0 and the next integer above `S`, as rounding down wants them.
fn tighten(inner: &[u64], base: u64, slope: f64, intercept: f64) -> f64 {
    let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
    let mut rank = 1.0 - intercept;
    for fence in inner {
        let deviation = slope * (fence - base) as f64 - rank;
        least = least.min(deviation);
        most = most.max(deviation);
        rank += 1.0;
    }
    let spread = most - least;
    intercept - least + (spread.ceil() - spread) / 2.0
}

/// The line with its errors in leaves, over each leaf's part of the interval. Both ends of a part suffice,
/// since the position never decreases between them.
fn with_errors(line: SubModel, boundary_low: u64, boundary_high: u64, inner: &[u64]) -> SubModel {
    let (mut too_high, mut too_low) = (0, 0);
    let mut part_low = boundary_low;
    for leaf in 0..line.leaf_count {
        let next = inner.get(leaf as usize);
        let part_high = next.map_or(boundary_high, |fence| fence - 1);
        too_low = too_low.max(leaf.saturating_sub(line.position(part_low)));
        too_high = too_high.max(line.position(part_high).saturating_sub(leaf));
        part_low = next.copied().unwrap_or(part_low);
    }
    let saturated = |error: u32| u16::try_from(error).unwrap_or(ERROR_WHOLE);
    SubModel { error_low: saturated(too_high), error_high: saturated(too_low), ..line }
}
