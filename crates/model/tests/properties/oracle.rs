//! What the model's tests share: the oracle, and fences to be afraid of.

use farsight_model::{SubModel, TrainedModel};
use proptest::prelude::*;

/// The leaf that owns a key, by definition.
pub(crate) fn owner(fences: &[u64], key: u64) -> usize {
    fences.partition_point(|fence| *fence <= key) - 1
}

/// Checks that a sub-model whose position 0 is leaf `first_leaf` keeps the promise for `key`; gives the
/// number of candidates.
pub(crate) fn check_sub_model(model: &SubModel, first_leaf: usize, fences: &[u64], key: u64) -> usize {
    let leaf = owner(fences, key);
    assert!(first_leaf <= leaf, "key {key} of leaf {leaf}: the sub-model begins at {first_leaf}");
    let position = (leaf - first_leaf) as u32;
    let window = model.predict(key);
    assert!(window.start < window.end && window.end <= model.leaf_count, "{window:?} of {model:?}");
    assert!(window.contains(&position), "key {key}, position {position}: window {window:?} of {model:?}");
    let candidates =
        model.choose(key, window.clone(), |position| model.leaf_hint(fences[first_leaf + position as usize]));
    assert!(candidates.contains(&position), "key {key}, position {position}: {candidates:?} of {model:?}");
    assert!(window.start <= candidates.start && candidates.end <= window.end);
    candidates.len()
}

/// Checks the promise for `key`; gives the number of candidates.
pub(crate) fn check_key(model: &TrainedModel, fences: &[u64], key: u64) -> usize {
    let sub_model = &model.sub_models[model.top.dispatch(key) as usize];
    check_sub_model(&sub_model.model, sub_model.first_leaf, fences, key)
}

/// Every fence, the keys beside it, the middles between fences, and the ends.
pub(crate) fn telling_keys(fences: &[u64]) -> Vec<u64> {
    let mut keys = vec![0, 1, (1 << 53) - 1, 1 << 53, (1 << 53) + 1, 1 << 63, u64::MAX - 1, u64::MAX];
    for (index, fence) in fences.iter().enumerate() {
        let next = fences.get(index + 1).copied().unwrap_or(u64::MAX);
        keys.extend([fence.saturating_sub(1), *fence, fence.saturating_add(1), fence + (next - fence) / 2]);
    }
    keys
}

/// Keys near the places where integers and floats go wrong.
pub(crate) fn edge() -> impl Strategy<Value = u64> {
    let around =
        |centre: u64| (0_u64..5).prop_map(move |offset| centre.saturating_add(offset).saturating_sub(2));
    prop_oneof![around(0), around(1 << 24), around(1 << 53), around(1 << 63), around(u64::MAX), any::<u64>()]
}

/// A run of fences of one shape.
fn run() -> impl Strategy<Value = Vec<u64>> {
    let stepped = (edge(), 0_u32..60, 1_u64..200).prop_map(|(first, step_bits, count)| {
        (0..count).map(|index| first.saturating_add(index << step_bits.min(56))).collect()
    });
    let cluster = (edge(), 1_u32..64, proptest::collection::vec(any::<u64>(), 1..150))
        .prop_map(|(first, bits, offsets)| offsets.iter().map(|o| first.saturating_add(o >> bits)).collect());
    let exponential = (edge(), 1_u32..4)
        .prop_map(|(first, scale)| (0..63 * scale).map(|i| first.saturating_add(1 << (i / scale))).collect());
    let descending = edge().prop_map(|top| (0..63).map(|bits| top.saturating_sub(1 << bits)).collect());
    prop_oneof![
        stepped,
        cluster,
        exponential,
        descending,
        proptest::collection::vec(any::<u64>(), 0..400),
        proptest::collection::vec(edge(), 0..4),
    ]
}

/// Low fences: 0, then up to three runs together.
pub(crate) fn fences() -> impl Strategy<Value = Vec<u64>> {
    proptest::collection::vec(run(), 0..4).prop_map(|runs| {
        let mut fences = vec![0];
        fences.extend(runs.into_iter().flatten());
        fences.sort_unstable();
        fences.dedup();
        fences
    })
}
