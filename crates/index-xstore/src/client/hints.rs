//! Position hints for writes.
//!
//! Invariant: a hint is a guess that costs no READ; a write is right without one, or with a wrong one.

use farsight_base::LeafNumber;

use super::cache::{CachedModel, Place};
use super::refresh::Refreshes;

/// Hints for a batch: the keys' sub-models, and their leaves.
pub(super) struct HintBatch<const KEYS: usize> {
    pub(super) sub_models: [u32; KEYS],
    pub(super) leaves: [LeafNumber; KEYS],
}

impl<const KEYS: usize> HintBatch<KEYS> {
    pub(super) fn new() -> Self {
        Self { sub_models: [0; KEYS], leaves: [LeafNumber::NONE; KEYS] }
    }

    /// Finds the leaves where the cache believes `keys` to be: [`LeafNumber::NONE`] where it does not know.
    /// Each level of the model for all keys, so that the lines of one are on their way while another is
    /// looked at.
    pub(super) fn find(&mut self, keys: &[u64], model: Option<&CachedModel>, refreshes: &mut Refreshes) {
        let Some(model) = model else {
            self.leaves[..keys.len()].fill(LeafNumber::NONE);
            refreshes.count_unrouted(keys.len());
            return;
        };
        refreshes.follow(model);
        let mut places = [Place::default(); KEYS];
        for ((key, sub_model), place) in keys.iter().zip(&mut self.sub_models).zip(&mut places) {
            *sub_model = model.top().dispatch(*key);
            *place = model.place(*sub_model);
            if place.is_nowhere() {
                refreshes.count_unfetched(model, *sub_model);
                *place = model.place_before(*key);
            }
            model.prefetch(*place);
        }
        let found = keys.iter().zip(places).zip(&mut self.leaves);
        for ((key, place), leaf) in found {
            *leaf = model.likeliest(place, *key);
        }
    }
}
