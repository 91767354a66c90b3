//! A survey of the model that a server would train after a bulk load of a key set: the same leaves, fences
//! and training, without a server.

use std::time::Instant;

use farsight_model::{TrainError, TrainOptions, TrainedModel, TrainedSubModel, train};

use crate::loaded_leaves::fences_of;
use crate::report::{CurvePoint, DetailedSubModel, ModelDetail, ModelRecord, Prediction};

/// Pieces of the distribution.
const CURVE_POINTS: usize = 400;
/// Sub-models shown in full.
const DETAILED_SUB_MODELS: usize = 3;
/// Predictions shown of each.
const DETAILED_PREDICTIONS: usize = 120;

/// A model over the leaves of a key set.
struct Survey<'a> {
    keys: &'a [u64],
    fences: Vec<u64>,
    model: TrainedModel,
}

/// Sums over some keys' windows.
#[derive(Default)]
struct Windows {
    keys: u64,
    leaves: u64,
    leaves_max: u64,
    candidates: u64,
}

/// Trains on the leaves of `keys` (ascending, distinct, at least one) and looks at the model with every key.
///
/// # Errors
/// [`TrainError`], which no key set causes with the default top model.
///
/// # Panics
/// Without a key.
pub fn survey(dataset: &str, keys: &[u64]) -> Result<ModelRecord, TrainError> {
    assert!(!keys.is_empty(), "a survey needs a key");
    let fences = fences_of(keys);
    let begun = Instant::now();
    let model = train(&fences, TrainOptions::default())?;
    let training_s = begun.elapsed().as_secs_f64();
    let survey = Survey { keys, fences, model };

    let pieces = CURVE_POINTS.min(keys.len());
    let bound = |piece: usize| keys.len() * piece / pieces;
    let mut all = Windows::default();
    let curve = (0..pieces).map(|piece| {
        let windows = survey.windows(bound(piece)..bound(piece + 1));
        all.add(&windows);
        CurvePoint {
            key: keys[bound(piece)],
            rank: piece as f64 / pieces as f64,
            window_leaves_mean: windows.leaves_mean(),
            window_leaves_max: windows.leaves_max,
        }
    });
    let curve = curve.collect();
    let model_bytes = 8 * survey.model.top.to_words().len() + 32 * survey.model.sub_models.len();
    Ok(ModelRecord {
        dataset: dataset.to_owned(),
        keys: keys.len() as u64,
        leaves: survey.fences.len() as u64,
        sub_models: survey.model.sub_models.len() as u64,
        model_bytes_per_key: model_bytes as f64 / keys.len() as f64,
        training_s,
        window_leaves_mean: all.leaves_mean(),
        window_leaves_max: all.leaves_max,
        candidates_mean: all.candidates as f64 / all.keys as f64,
        curve,
        detail: survey.detail(),
    })
}

impl Survey<'_> {
    fn sub_model(&self, key: u64) -> &TrainedSubModel {
        &self.model.sub_models[self.model.top.dispatch(key) as usize]
    }

    fn windows(&self, keys: std::ops::Range<usize>) -> Windows {
        let mut windows = Windows::default();
        for key in &self.keys[keys] {
            let TrainedSubModel { model, first_leaf, .. } = self.sub_model(*key);
            let window = model.predict(*key);
            let hint_at = |position: u32| model.leaf_hint(self.fences[first_leaf + position as usize]);
            let chosen = model.choose(*key, window.clone(), hint_at);
            let leaves = u64::from(window.end - window.start);
            windows.add(&Windows {
                keys: 1,
                leaves,
                leaves_max: leaves,
                candidates: u64::from(chosen.end - chosen.start),
            });
        }
        windows
    }

    /// The sub-models from the middle key's on, where each has more than one leaf.
    fn detail(&self) -> ModelDetail {
        let middle = self.model.top.dispatch(self.keys[self.keys.len() / 2]) as usize;
        let last = (middle + DETAILED_SUB_MODELS).min(self.model.sub_models.len());
        let chosen: Vec<usize> = (middle..last).collect();
        let sub_models: Vec<DetailedSubModel> =
            chosen.iter().filter_map(|index| self.detailed(*index)).collect();
        let of = |index: usize| &self.model.sub_models[index];
        let first = of(chosen[0]).first_leaf;
        let end =
            chosen.last().map_or(first, |index| of(*index).first_leaf + of(*index).model.leaf_count as usize);
        ModelDetail {
            fences: self.fences[first..end.min(self.fences.len())].to_vec(),
            first_position: first as u64,
            sub_models,
        }
    }

    fn detailed(&self, index: usize) -> Option<DetailedSubModel> {
        let TrainedSubModel { model, first_leaf, interval } = self.model.sub_models[index];
        let (least, greatest) = interval?;
        // What the interval holds of the leaves: it may begin or end far from any.
        let end = (first_leaf + model.leaf_count as usize).min(self.fences.len());
        let from_key = self.fences[first_leaf].max(least);
        let to_key = self.fences.get(end).map_or(greatest, |fence| (fence - 1).min(greatest));
        let step = (to_key - from_key) / DETAILED_PREDICTIONS as u64;
        let predictions = (0..=DETAILED_PREDICTIONS as u64).map(|number| {
            let key = from_key + number * step;
            let window = model.predict(key);
            Prediction {
                key,
                position: self.fences.partition_point(|fence| *fence <= key) as u64 - 1,
                window_begin: first_leaf as u64 + u64::from(window.start),
                window_end: first_leaf as u64 + u64::from(window.end),
            }
        });
        Some(DetailedSubModel { from_key, to_key, predictions: predictions.collect() })
    }
}

impl Windows {
    fn add(&mut self, other: &Self) {
        self.keys += other.keys;
        self.leaves += other.leaves;
        self.leaves_max = self.leaves_max.max(other.leaves_max);
        self.candidates += other.candidates;
    }

    fn leaves_mean(&self) -> f64 {
        self.leaves as f64 / self.keys.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;

    use super::*;

    #[test]
    fn a_survey_keeps_the_models_promise() {
        let mut random = SplitMix64::new(3);
        for shift in [0, 30, 50] {
            let mut keys: Vec<u64> = (0..20_000).map(|_| random.next_u64() >> shift).collect();
            keys.sort_unstable();
            keys.dedup();
            let record = survey("test", &keys).expect("a model");
            assert_eq!(record.leaves, keys.len().div_ceil(12) as u64);
            assert!(record.window_leaves_mean >= 1.0 && record.candidates_mean >= 1.0);
            assert!(record.candidates_mean <= record.window_leaves_mean);
            assert_eq!(record.curve.len(), CURVE_POINTS);
            assert!(record.curve.is_sorted_by(|a, b| a.key < b.key && a.rank < b.rank));
            let detail = &record.detail;
            assert!(!detail.sub_models.is_empty());
            for prediction in detail.sub_models.iter().flat_map(|sub_model| &sub_model.predictions) {
                let window = prediction.window_begin..prediction.window_end;
                assert!(window.contains(&prediction.position), "{prediction:?}");
            }
        }
        let one = survey("test", &[5]).expect("a model");
        assert_eq!((one.leaves, one.curve.len()), (1, 1));
    }
}
