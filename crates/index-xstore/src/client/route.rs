//! Predict and resolve: from a key to the leaves that may own it, without any READ.

use std::ops::Range;

use farsight_base::LeafNumber;

use super::cache::{CachedModel, CachedSubModel};

/// The positions of one sub-model's table that may own a key; the last is the likeliest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) sub_model: CachedSubModel,
    /// First candidate.
    pub(super) first: u32,
    /// Last candidate.
    pub(super) last: u32,
}

impl CachedModel {
    /// The route of `key`, or the number of the sub-model that has to be fetched first.
    pub(super) fn route(&self, key: u64) -> Result<Route, u32> {
        let index = self.top().dispatch(key);
        let sub_model = self.sub_model(index).ok_or(index)?;
        let window = sub_model.model.predict(key);
        Ok(self.resolve(key, sub_model, window))
    }

    /// Narrows a prediction by the hints of the table's entries.
    #[inline(always)]
    pub(super) fn resolve(&self, key: u64, sub_model: CachedSubModel, window: Range<u32>) -> Route {
        let chosen = sub_model.model.choose(key, window, |position| self.entry(&sub_model, position).hint());
        Route { sub_model, first: chosen.start, last: chosen.end - 1 }
    }

    /// The leaf of a position.
    #[inline(always)]
    pub(super) fn leaf(&self, sub_model: &CachedSubModel, position: u32) -> LeafNumber {
        self.entry(sub_model, position).leaf()
    }
}
