//! Predict and resolve: from a key to the leaves that may own it, without any READ.

use farsight_base::LeafNumber;

use super::block::CachedSubModel;
use super::cache::{CachedModel, Generation};

/// The positions of one sub-model's table that may own a key; the last is the likeliest.
#[derive(Clone, Copy)]
pub(super) struct Route<'a> {
    /// Whose sub-model it is, the newest generation's or that of the one before.
    pub(super) generation: &'a Generation,
    /// Of which key it is the route.
    key: u64,
    pub(super) sub_model: CachedSubModel<'a>,
    /// First candidate.
    pub(super) first: u32,
    /// Last candidate.
    pub(super) last: u32,
    /// The last candidate's leaf.
    pub(super) leaf: LeafNumber,
}

impl Generation {
    #[inline(always)]
    fn route(&self, key: u64) -> Option<Route<'_>> {
        let sub_model = self.at(self.locate(key).place)?;
        let candidates = sub_model.candidates(key);
        let last = candidates.end - 1;
        let leaf = sub_model.leaf(last);
        Some(Route { generation: self, key, sub_model, first: candidates.start, last, leaf })
    }
}

impl CachedModel {
    /// The route of `key`, or `None` if its sub-model has to be fetched first.
    #[inline(always)]
    pub(super) fn route(&self, key: u64) -> Option<Route<'_>> {
        for generation in self.generations() {
            if let Some(route) = generation.route(key) {
                return Some(route);
            }
        }
        None
    }
}

impl Route<'_> {
    /// The leaves from the first candidate on, over as many sub-models as are cached; a leaf that two
    /// sub-models share once.
    #[inline(always)]
    pub(super) fn leaves(self) -> impl Iterator<Item = LeafNumber> {
        let Self { generation, key, mut sub_model, first: mut position, .. } = self;
        // Found when they are wanted: most scans end in one sub-model.
        let mut behind = None;
        let mut previous = LeafNumber::NONE;
        std::iter::from_fn(
            #[inline(always)]
            move || {
                loop {
                    while position >= sub_model.leaf_count() {
                        sub_model = behind.get_or_insert_with(|| generation.sub_models_behind(key)).next()?;
                        position = 0;
                    }
                    let leaf = sub_model.leaf(position);
                    position += 1;
                    if leaf != previous {
                        previous = leaf;
                        return Some(leaf);
                    }
                }
            },
        )
    }

    /// The leaves from the last candidate on downwards, over as many sub-models as are cached; a leaf that
    /// two sub-models share once. It ends where a sub-model does not begin below the one before: its words
    /// are another's by now.
    pub(super) fn leaves_down(self) -> impl Iterator<Item = LeafNumber> {
        let Self { generation, key: mut first_key, mut sub_model, last, .. } = self;
        let mut end = last + 1;
        let mut previous = LeafNumber::NONE;
        std::iter::from_fn(move || {
            if end == 0 {
                first_key = sub_model.first_key().checked_sub(1).filter(|key| *key < first_key)?;
                sub_model = generation.at(generation.locate(first_key).place)?;
                end = sub_model.leaf_count();
                end -= u32::from(end > 1 && sub_model.leaf(end - 1) == previous);
            }
            end = end.checked_sub(1)?;
            previous = sub_model.leaf(end);
            Some(previous)
        })
    }
}
