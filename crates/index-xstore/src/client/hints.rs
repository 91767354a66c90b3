//! Position hints for writes.
//!
//! Invariant: a hint is a guess that costs no READ; a write is right without one, or with a wrong one.

use farsight_base::LeafNumber;

use super::cache::{CachedModel, PageNumber, Place};
use super::refresh::Refreshes;

/// Hints for a batch: its keys, the pages of their sub-models, and their leaves.
pub(super) struct HintBatch<const KEYS: usize> {
    pub(super) keys: [u64; KEYS],
    pub(super) pages: [PageNumber; KEYS],
    pub(super) leaves: [LeafNumber; KEYS],
}

impl<const KEYS: usize> HintBatch<KEYS> {
    pub(super) fn new() -> Self {
        Self { keys: [0; KEYS], pages: [PageNumber::default(); KEYS], leaves: [LeafNumber::NONE; KEYS] }
    }

    /// Finds the leaves where the cache believes the first `count` keys to be: [`LeafNumber::NONE`] where it
    /// does not know. Each level of the model for all keys, so that the lines of one are on their way while
    /// another is looked at.
    pub(super) fn find(&mut self, count: usize, model: Option<&CachedModel>, refreshes: &mut Refreshes) {
        let Some(model) = model else {
            self.leaves[..count].fill(LeafNumber::NONE);
            refreshes.count_unrouted(count);
            return;
        };
        let keys = &self.keys[..count];
        refreshes.follow(model);
        let mut places = [Place::default(); KEYS];
        for ((key, page), place) in keys.iter().zip(&mut self.pages).zip(&mut places) {
            let number = model.top().dispatch(*key);
            (*place, *page) = (model.place(number), PageNumber::of_top(number));
            if !place.is_sub_model() {
                (*place, *page) = model.locate_or_before(*key, refreshes);
            }
            model.prefetch(*place);
        }
        let found = keys.iter().zip(places).zip(&mut self.leaves);
        for ((key, place), leaf) in found {
            *leaf = model.likeliest(place, *key);
        }
    }
}
