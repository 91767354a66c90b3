//! The way to a latched leaf: by a client's hint, by the write before, or down the tree and along the chain.
//!
//! Invariant: a leaf is held only if its own fences, read under its latch, contain the key. How it was found
//! does not matter, so a hint may be any number. The writer checks that it is a block that was used, and
//! tries its latch; the fences decide.

use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_index::{Backoff, Contended, LatchedLeaf, LeafFormat, Place, Waited};

use super::descend::DescentEnd;
use super::tree::{LATCH_ATTEMPTS, XTree};
use super::write_many::AccessPath;
#[cfg(injected)]
use crate::injected;

/// Siblings that a writer steps over before it descends again.
const SIBLING_STEPS_MAX: usize = 8;

/// A latched leaf whose fences contain the key.
pub(super) struct LatchedPlace<'t, F: LeafFormat + 't> {
    pub(super) number: LeafNumber,
    pub(super) leaf: F::Latched<'t>,
    /// The key's place: [`Place::Here`] or [`Place::Vacant`].
    pub(super) place: Place,
    /// A descent for the key, if there was one.
    pub(super) route: Option<DescentEnd>,
    /// Whether the hint led here.
    pub(super) is_hinted: bool,
}

impl<F: LeafFormat> XTree<F> {
    /// Latches the leaf of `key`: the hinted one if it is, else the last one written, else that of the route,
    /// else by a descent. The route stays with the leaf in any case: a split wants the parent.
    #[inline(always)]
    pub(super) fn latch(
        &self,
        key: u64,
        path: AccessPath,
        last_leaf: LeafNumber,
    ) -> Result<LatchedPlace<'_, F>, Contended> {
        if let Some(latched) = self.latch_guessed(key, path, true) {
            return Ok(latched);
        }
        // Ascending keys fill a leaf, split it and go on in its right half: where a descent from before the
        // split does not lead.
        if self.hinted_block(last_leaf).is_some_and(|words| self.format.may_hold(words, key))
            && let Some(latched) =
                self.latch_guessed(key, AccessPath { hint: last_leaf, slot: None, ..path }, false)
        {
            return Ok(latched);
        }
        let mut backoff = Backoff::new();
        let mut next_route = path.route;
        loop {
            let route = match next_route.take() {
                Some(route) => route,
                None => self.descend(key)?,
            };
            if let Some(latched) = self.latch_from(key, route) {
                return Ok(latched);
            }
            if backoff.is_time_to_look() {
                self.scrub(route.leaf);
            }
            backoff.pause(key, Waited::Leaf(route.leaf))?;
        }
    }

    #[inline(always)]
    fn latch_guessed(&self, key: u64, path: AccessPath, is_hinted: bool) -> Option<LatchedPlace<'_, F>> {
        let AccessPath { hint: number, slot, route } = path;
        let leaf = self.format.latch(self.hinted_block(number)?, LATCH_ATTEMPTS)?;
        // A leaf of an unfinished bulk load is complete and not in the tree. The load was counted before it
        // filled any leaf, and the leaf's latch hands that on. Acquire: without a load its leaves are cleared
        // or in the tree. Partner: the Release decrement of a loader that is dropped.
        if self.loads.load(Ordering::Acquire) > 0 {
            return None;
        }
        // A pair that is there says as much as fences do: the leaf is its key's.
        let seen = slot.filter(|slot| leaf.is_at(key, *slot));
        let place = seen.map_or_else(|| leaf.find(key), Place::Here);
        #[cfg(injected)]
        let place = if matches!(place, Place::Right(_)) && injected::HINT_TRUSTED.is_injected() {
            Place::Vacant
        } else {
            place
        };
        matches!(place, Place::Here(_) | Place::Vacant).then_some(LatchedPlace {
            number,
            leaf,
            place,
            route,
            is_hinted,
        })
    }

    /// Latches the leaf of `route`, or of its right siblings, that contains `key`.
    #[inline]
    fn latch_from(&self, key: u64, route: DescentEnd) -> Option<LatchedPlace<'_, F>> {
        let mut number = route.leaf;
        for _ in 0..=SIBLING_STEPS_MAX {
            let leaf = self.format.latch(self.slab.block(number)?, LATCH_ATTEMPTS)?;
            match leaf.find(key) {
                Place::Right(next) => number = next,
                Place::Elsewhere => return None,
                place => {
                    return Some(LatchedPlace { number, leaf, place, route: Some(route), is_hinted: false });
                }
            }
        }
        None
    }
}
