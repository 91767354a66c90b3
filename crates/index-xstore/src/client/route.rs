//! Predict and resolve: from a key to the leaves that may own it, without any READ.

use farsight_base::LeafNumber;

use super::block::CachedSubModel;
use super::cache::CachedModel;

/// The positions of one sub-model's table that may own a key; the last is the likeliest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route<'a> {
    pub(super) sub_model: CachedSubModel<'a>,
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
    pub(super) fn route(&self, key: u64) -> Option<Route<'_>> {
        self.route_by(self.top().dispatch(key), key)
    }

    /// The route of `key` by sub-model `index`, which is its own.
    #[inline(always)]
    pub(super) fn route_by(&self, index: u32, key: u64) -> Option<Route<'_>> {
        let sub_model = self.sub_model(index)?;
        let candidates = sub_model.candidates(key);
        let last = candidates.end - 1;
        Some(Route { sub_model, first: candidates.start, last, leaf: sub_model.leaf(last) })
    }
}
