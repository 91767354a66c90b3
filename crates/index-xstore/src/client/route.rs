//! Predict and resolve: from a key to the leaves that may own it, without any READ.

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
    /// The last candidate's leaf.
    pub(super) leaf: LeafNumber,
}

impl CachedModel {
    /// The route of `key`, or `None` if its sub-model has to be fetched first.
    #[inline]
    pub(super) fn route(&self, key: u64) -> Option<Route> {
        self.route_by(self.top().dispatch(key), key)
    }

    /// The route of `key` by sub-model `index`, which is its own.
    #[inline(always)]
    pub(super) fn route_by(&self, index: u32, key: u64) -> Option<Route> {
        let sub_model = self.sub_model(index)?;
        let window = sub_model.model.predict(key);
        let entries = self.window(&sub_model, &window);
        let chosen = entries.choose(sub_model.model.key_hint(key));
        let last = chosen.end - 1;
        let leaf = entries.entry(last).leaf();
        Some(Route { sub_model, first: window.start + chosen.start, last: window.start + last, leaf })
    }

    /// The leaf of a position.
    pub(super) fn leaf(&self, sub_model: &CachedSubModel, position: u32) -> LeafNumber {
        self.window(sub_model, &(position..position + 1)).entry(0).leaf()
    }
}
