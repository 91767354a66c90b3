//! Predict and resolve: from a key to the leaves that may own it, without any READ.

use std::ops::ControlFlow;

use farsight_base::LeafNumber;
use farsight_index::Direction;

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
        let mut place = self.place(self.top.dispatch(key));
        if !place.is_sub_model() {
            place = self.locate(key).place;
        }
        Some(Route::of(self, self.at(place)?, key))
    }
}

impl<'a> Route<'a> {
    /// The route of `key` by its sub-model, which is one of this generation.
    #[inline(always)]
    pub(super) fn of(generation: &'a Generation, sub_model: CachedSubModel<'a>, key: u64) -> Self {
        let candidates = sub_model.candidates(key);
        let last = candidates.end - 1;
        let leaf = sub_model.leaf(last);
        Self { generation, key, sub_model, first: candidates.start, last, leaf }
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
    /// Shows the leaves on a scan's way, over as many sub-models as are cached, until `visit` breaks. A leaf
    /// that two sub-models share comes once.
    #[inline(always)]
    pub(super) fn each_leaf(
        self,
        direction: Direction,
        visit: impl FnMut(LeafNumber) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match direction {
            Direction::Ascending => self.each_leaf_up(visit),
            Direction::Descending => self.each_leaf_down(visit),
        }
    }

    /// From the first candidate on.
    #[inline(always)]
    fn each_leaf_up(self, mut visit: impl FnMut(LeafNumber) -> ControlFlow<()>) -> ControlFlow<()> {
        let Self { generation, key, mut sub_model, first, .. } = self;
        let mut positions = first..sub_model.leaf_count();
        let mut previous = LeafNumber::NONE;
        // Found when they are wanted: most scans end in one sub-model.
        let mut behind = None;
        loop {
            for position in positions {
                let leaf = sub_model.leaf(position);
                if leaf != previous {
                    previous = leaf;
                    visit(leaf)?;
                }
            }
            let behind = behind.get_or_insert_with(|| generation.sub_models_behind(key));
            let Some(next) = behind.next() else { return ControlFlow::Continue(()) };
            sub_model = next;
            positions = 0..sub_model.leaf_count();
        }
    }

    /// From the last candidate on. It ends where a sub-model does not begin below the one before: its words
    /// are another's by now.
    #[inline(never)]
    fn each_leaf_down(self, mut visit: impl FnMut(LeafNumber) -> ControlFlow<()>) -> ControlFlow<()> {
        let Self { generation, key: mut first_key, mut sub_model, last, .. } = self;
        let mut end = last + 1;
        let mut previous = LeafNumber::NONE;
        loop {
            for position in (0..end).rev() {
                let leaf = sub_model.leaf(position);
                if leaf != previous {
                    previous = leaf;
                    visit(leaf)?;
                }
            }
            let before = sub_model.first_key().checked_sub(1).filter(|key| *key < first_key);
            let Some(before) = before else { return ControlFlow::Continue(()) };
            first_key = before;
            let Some(next) = generation.at(generation.locate(first_key).place) else {
                return ControlFlow::Continue(());
            };
            sub_model = next;
            end = sub_model.leaf_count();
        }
    }
}
