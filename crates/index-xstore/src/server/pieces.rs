//! Sub-models over a run of leaves: one, or several where it has outgrown its bound.
//!
//! Invariant: the sub-models tile the keys of the run. Each has at most [`leaves_max`] leaves, and hints that
//! tell them apart; the last one alone may lack leaves behind its first, if the run was cut short.

use farsight_base::LeafNumber;
use farsight_index::record_of;
use farsight_layout::TableEntry;
use farsight_model::{SubModel, TrainError, TrainOptions, cut, is_blurred, train_sub_model};

use super::model_tree::{Interval, SubModelImage};

/// Leaves that the options may demand of a sub-model at most: its table is a few READs or a small part of a
/// message.
const TARGET_MAX: usize = 128;

/// Leaves that a sub-model should have, by the options.
pub(super) fn target_of(options: TrainOptions) -> usize {
    (options.target_leaves_per_sub_model as usize).min(TARGET_MAX)
}

/// Leaves of a sub-model at most. Until the next whole training most sub-models get twice their leaves, and
/// some had half as many again from the beginning.
fn leaves_max(target: usize) -> usize {
    7 * target / 2
}

/// Leaves that are so few that a sub-model should have its neighbour's, too.
pub(super) fn few_leaves(target: usize) -> usize {
    target / 4
}

/// Leaves that are collected together at most: those of a hundred sub-models, which take a fraction of a
/// millisecond.
pub(super) fn collected_leaves_max(target: usize) -> usize {
    100 * target
}

/// The sub-models of the keys `low..=high`, which meet the leaves of these low fences. If the leaves are
/// those of the least keys only, the last sub-model knows the last leaf alone.
///
/// # Errors
/// [`TrainError`], for leaves that no sub-model can hold.
pub(super) fn pieces_of(
    (low, high): (u64, u64),
    fences: &[u64],
    leaves: &[LeafNumber],
    is_cut_short: bool,
    target: usize,
) -> Result<Vec<SubModelImage>, TrainError> {
    let whole = if is_cut_short { fences.len() - 1 } else { fences.len() };
    let mut starts = vec![0];
    if whole > leaves_max(target) || (whole > 2 && is_blurred(&fences[1..whole])) {
        starts.extend(cut(&fences[..whole], target));
    }
    if is_cut_short && whole > 0 {
        starts.push(whole);
    }
    let mut pieces = Vec::with_capacity(starts.len());
    for (place, &start) in starts.iter().enumerate() {
        let end = starts.get(place + 1).copied().unwrap_or(fences.len());
        let piece_low = if start == 0 { low } else { fences[start] };
        let piece_high = if end == fences.len() { high } else { fences[end] - 1 };
        pieces.push(piece_of((piece_low, piece_high), &fences[start..end], &leaves[start..end])?);
    }
    Ok(pieces)
}

fn piece_of(
    (low, high): (u64, u64),
    low_fences: &[u64],
    leaves: &[LeafNumber],
) -> Result<SubModelImage, TrainError> {
    let model = train_sub_model(low, high, low_fences)?;
    Ok(image_of(Some((low, high)), &model, low_fences, leaves))
}

/// A sub-model of these keys with its table over these leaves.
pub(super) fn image_of(
    interval: Interval,
    model: &SubModel,
    low_fences: &[u64],
    leaves: &[LeafNumber],
) -> SubModelImage {
    let entries = low_fences
        .iter()
        .zip(leaves)
        .map(|(low_fence, leaf)| TableEntry::new(*leaf, model.leaf_hint(*low_fence)).0);
    SubModelImage { interval, record: record_of(model), entries: entries.collect() }
}
