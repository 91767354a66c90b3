//! Models: words of a top model or a sub-model from anyone, and trained ones on their way over the wire.

use farsight_index::{model_of, record_of};
use farsight_layout::SubModelRecord;
use farsight_model::{TopKind, TopModel, TrainOptions, TrainedModel, train};

use super::source::Source;

/// Keys asked of each model.
const KEYS_MAX: usize = 64;

/// Words that decode as a top model are the ones it encodes to, and its dispatch is total, monotone, in
/// range.
pub(super) fn top(data: &[u8]) {
    let words: Vec<u64> = data.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let Ok(top) = TopModel::from_words(&words) else { return };
    assert_eq!(top.to_words(), words);
    let mut keys: Vec<u64> = words.iter().take(KEYS_MAX).copied().flat_map(neighbours).collect();
    keys.extend([0, 1, 1 << 63, u64::MAX - 1, u64::MAX]);
    keys.sort_unstable();
    let count = top.sub_model_count();
    let mut previous = 0;
    for key in keys {
        let sub_model = top.dispatch(key);
        assert!(sub_model < count, "key {key} goes to sub-model {sub_model} of {count}");
        assert!(sub_model >= previous, "key {key} goes left, to {sub_model} after {previous}");
        previous = sub_model;
    }
    for sub_model in [0, previous, count - 1] {
        if let Some(boundary) = top.boundary(sub_model) {
            assert!(top.dispatch(boundary) >= sub_model, "boundary {boundary} of {sub_model}");
            assert!(boundary == 0 || top.dispatch(boundary - 1) < sub_model, "boundary {boundary}");
        }
    }
}

fn neighbours(key: u64) -> [u64; 3] {
    [key.wrapping_sub(1), key, key.wrapping_add(1)]
}

/// Any record predicts a window inside the sub-model, and chooses within that.
pub(super) fn sub(data: &[u8]) {
    let mut source = Source::new(data);
    let record = SubModelRecord::from_words([source.word(), source.word(), source.word()]);
    assert_eq!(SubModelRecord::from_words(record.to_words()).to_words(), record.to_words());
    let model = model_of(&record);
    let hints: Vec<u16> = (0..8).map(|_| source.half() as u16).collect();
    while !source.is_empty() {
        let key = source.key();
        let window = model.predict(key);
        assert!(window.start < window.end && window.end <= record.leaf_count.max(1), "{key}: {window:?}");
        let chosen = model.choose(key, window.clone(), |position| {
            assert!(window.contains(&position), "the hint at {position} of {window:?} was requested");
            hints[position as usize % hints.len()]
        });
        assert!(window.start <= chosen.start && chosen.start < chosen.end, "{window:?} {chosen:?}");
        assert!(chosen.end <= window.end, "{window:?} {chosen:?}");
    }
}

/// A model trained over any fences keeps its promise after its words and records have gone over the wire.
pub(super) fn training(data: &[u8]) {
    let mut source = Source::new(data);
    let top = if source.below(2) == 0 { TopKind::Radix } else { TopKind::Linear };
    let options = TrainOptions { top, target_leaves_per_sub_model: 1 + source.below(40) as u32 };
    let mut fences = vec![0];
    let mut stride = 1;
    while !source.is_empty() && fences.len() < 300 {
        match source.byte() {
            0xff => fences.push(source.word()),
            0xfe => stride = source.word() >> source.below(64),
            step => {
                let last = fences[fences.len() - 1];
                fences.push(last.saturating_add(stride.saturating_mul(u64::from(step))));
            }
        }
    }
    fences.sort_unstable();
    fences.dedup();
    let trained = train(&fences, options).expect("fences that ascend from 0 train");
    check_promise(&trained, &fences);
}

fn check_promise(trained: &TrainedModel, fences: &[u64]) {
    let top = TopModel::from_words(&trained.top.to_words()).expect("an encoded top model decodes");
    // What clients rely on before they make room for as many.
    let count = top.sub_model_count() as usize;
    assert!(count <= 2 * fences.len(), "{count} sub-models over {} leaves", fences.len());
    for key in fences.iter().copied().flat_map(neighbours).chain([1 << 62, u64::MAX]) {
        let owner = fences.partition_point(|fence| *fence <= key) - 1;
        let sub_model = &trained.sub_models[top.dispatch(key) as usize];
        let record = SubModelRecord::from_words(record_of(&sub_model.model).to_words());
        let model = model_of(&record);
        assert_eq!(model, sub_model.model);
        let hint_at = |position: u32| {
            let leaf = sub_model.first_leaf + position as usize;
            sub_model.model.leaf_hint(fences[leaf])
        };
        let chosen = model.choose(key, model.predict(key), hint_at);
        let wanted = (owner - sub_model.first_leaf) as u32;
        assert!(chosen.contains(&wanted), "key {key}: leaf {wanted} is not in {chosen:?}");
    }
}

fn trained(top: TopKind) -> TrainedModel {
    let fences: Vec<u64> = (0..200).map(|leaf: u64| leaf * leaf * 1_000_003).collect();
    train(&fences, TrainOptions { top, target_leaves_per_sub_model: 5 }).expect("ascending fences")
}

pub(super) fn top_seeds() -> Vec<Vec<u8>> {
    let bytes = |top| trained(top).top.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
    [TopKind::Radix, TopKind::Linear].map(bytes).into()
}

pub(super) fn sub_seeds() -> Vec<Vec<u8>> {
    let seed = |(index, sub_model): (usize, &farsight_model::TrainedSubModel)| {
        let words = record_of(&sub_model.model).to_words();
        let tail = (0..60).map(|byte| (byte * 11 + index) as u8);
        words.iter().flat_map(|word| word.to_le_bytes()).chain(tail).collect()
    };
    trained(TopKind::Radix).sub_models.iter().enumerate().step_by(8).map(seed).collect()
}

pub(super) fn training_seeds() -> Vec<Vec<u8>> {
    let steps = |step: fn(u8) -> u8| [vec![0, 7], (0..100).map(step).collect()].concat();
    vec![
        steps(|_| 1),
        steps(|index| index),
        steps(|index| if index % 9 == 0 { 0xff } else { index }),
        steps(|index| if index % 30 == 3 { 0xfe } else { 5 }),
    ]
}
