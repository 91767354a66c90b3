//! Predictions alone, by a whole model that lies as a client caches it: for walks that prove nothing, with
//! which GETs are compared.
//!
//! Invariant: a prediction is made of the lines that a GET makes it of, by the same code.

use std::sync::Arc;

use farsight_base::LeafNumber;
use farsight_base::words::Widest;
use farsight_index::{CacheStats, record_of};
use farsight_layout::TableEntry;
use farsight_model::{TrainedModel, TrainedSubModel};

use super::{ASKED_LINES, CachedModel, Generation, LONG_ASKED_LINES, Place};

/// A model over leaves that are numbered in key order, as a bulk load leaves them.
pub struct Predictor(CachedModel);

/// Where a key's sub-model is.
#[derive(Clone, Copy, Default)]
pub struct Asked(Place);

impl Predictor {
    /// The model that was `trained` on these fences; `None` if there is no memory for it.
    ///
    /// # Panics
    /// If it was trained on fewer fences.
    #[must_use]
    pub fn new(trained: &TrainedModel, fences: &[u64]) -> Option<Self> {
        let newest = Generation::new(1, trained.top.clone(), fences.len() as u64, 0, u64::MAX)?;
        for (index, TrainedSubModel { model, first_leaf, .. }) in (0..).zip(&trained.sub_models) {
            let leaves = (*first_leaf as u32..).zip(&fences[*first_leaf..]);
            let entry =
                |(leaf, fence): (u32, &u64)| TableEntry::new(LeafNumber(leaf), model.leaf_hint(*fence)).0;
            let entries: Vec<u64> = leaves.take(model.leaf_count as usize).map(entry).collect();
            if !entries.is_empty() {
                newest.put(index, &record_of(model), &entries);
            }
        }
        Some(Self(CachedModel::new(Arc::new(newest), None)))
    }

    /// Asks for the lines of the sub-model of `key`.
    #[inline(always)]
    #[must_use]
    pub fn ask(&self, key: u64) -> Asked {
        let place = self.0.place(self.0.top().dispatch(key));
        self.0.prefetch(place);
        Asked(place)
    }

    /// The likeliest leaf of `key`, whose sub-model was prefetched.
    #[inline(always)]
    #[must_use]
    pub fn leaf(&self, asked: Asked, key: u64) -> LeafNumber {
        self.0.likeliest(asked.0, key)
    }

    /// The likeliest leaf of `key`, alone.
    #[inline(always)]
    #[must_use]
    pub fn leaf_now(&self, key: u64) -> LeafNumber {
        // No closures: they are not inlined for sure.
        let leaf = match Widest::if_known() {
            Some(widest) => self.0.predict_at_once(key, widest),
            None => LeafNumber::NONE,
        };
        if leaf == LeafNumber::NONE { self.0.predict(key) } else { leaf }
    }

    /// How many lines of the sub-model of `key` are prefetched.
    #[must_use]
    pub fn lines_asked(&self, key: u64) -> usize {
        match self.0.place(self.0.top().dispatch(key)) {
            place if place.is_nowhere() => 0,
            place if place.is_own_line() => 1,
            place if place.is_long() => LONG_ASKED_LINES,
            _ => ASKED_LINES,
        }
    }

    /// As of a client's cache that holds this model and no other.
    #[must_use]
    pub fn stats(&self) -> CacheStats {
        self.0.stats()
    }
}
