//! Which leaves a scan READs next: those that the model names from the cursor on, upwards or downwards,
//! behind the sibling that the leaf before named.
//!
//! Invariant: a plan is a guess. Each leaf posted stands within the region.

use std::ops::ControlFlow;

use farsight_base::LeafNumber;
use farsight_fabric::mapped::Mapped;
use farsight_fabric::{CostClass, FabricError, QueuePair, Slot};
use farsight_index::{Direction, ScanRequest};
use farsight_protocol::SubModelsWanted;

use super::super::{XClient, XStoreError};
use super::progress::Progress;
use super::{leaves_from, leaves_wanted};

/// Leaves of a plan for which one sub-model is fetched. For longer ones those beside it will be wanted next.
const PATH_LEAVES_MAX: usize = 32;

impl XClient {
    /// Posts the READs of the leaves that a scan should need, or as many as it has slots for, from the first
    /// on. Returns how many: none without a route.
    #[inline(never)]
    pub(super) fn plan<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        (first_slot, slots): (Slot, usize),
        direction: Direction,
        scan: ScanRequest,
    ) -> usize {
        let Some(model) = &self.model else { return 0 };
        let Some(route) = model.route(scan.from) else { return 0 };
        if !model.is_newest(route.generation) {
            let _ = model.locate_or_before(scan.from, &mut self.refreshes);
        }
        // From the outermost candidate: on a tie one leaf more is read, and skipped if it is before the
        // cursor.
        let mut wanted = leaves_wanted(scan.limit);
        // A leaf that is not wanted costs a socket its bytes, and a floor as much as the leaf that it is in.
        let is_dear =
            matches!(Q::GUARANTEES.cost_class, CostClass::Socket) || direction == Direction::Descending;
        if is_dear && route.first == route.last {
            let part_before = route.sub_model.part_before(route.last, scan.from);
            wanted = wanted.min(leaves_from(direction, part_before, scan.limit));
        }
        let (region, reader, line_count) = (self.cache.region(), self.cache.reader(), self.scan_lines());
        let leaves = &mut self.leaves[first_slot..][..wanted.min(slots)];
        let mut posted = 0;
        let mut next = |leaf| {
            let of_slot = leaves.get_mut(posted)?;
            *of_slot = leaf;
            posted += 1;
            Some(first_slot + posted - 1)
        };
        let _ = if let Some(mapped) = queue.mapped() {
            let lines = mapped.lines(region);
            route.each_leaf(direction, |leaf| {
                let Some(_) = next(leaf) else { return ControlFlow::Break(()) };
                reader.ask_in_place(lines, leaf, line_count);
                ControlFlow::Continue(())
            })
        } else {
            route.each_leaf(direction, |leaf| {
                let Some(slot) = next(leaf) else { return ControlFlow::Break(()) };
                reader.post(queue, slot, (region, leaf), line_count);
                ControlFlow::Continue(())
            })
        };
        posted
    }

    /// Rings for so many leaves that were posted. In place there is nothing to be sent.
    pub(super) fn ring_for_leaves<Q: QueuePair>(
        &self,
        queue: &mut Q,
        posted: usize,
    ) -> Result<(), FabricError> {
        let Some(mapped) = queue.mapped() else { return queue.doorbell() };
        let line_count = posted * self.scan_lines();
        mapped.count_reads(posted as u64, line_count as u64, u64::from(posted > 0));
        Ok(())
    }

    /// Plans from the cursor on, with nothing in flight, and rings. Fetches the sub-model that is missing.
    /// False: the server has no model for this key.
    pub(super) fn plan_anew<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        progress: &mut Progress,
    ) -> Result<bool, XStoreError> {
        progress.fruitless += 1;
        let count = progress.window.next_plan(progress.leaves_wanted());
        let is_known = progress.cursor.leaf.is_some_and(|leaf| self.cache.is_leaf(leaf));
        // One leaf that is known takes less than to ask for the way to it.
        if count > 1 || !is_known {
            let key = progress.cursor.key;
            let has_route =
                |client: &Self| client.model.as_ref().is_some_and(|model| model.route(key).is_some());
            if !has_route(self) {
                let wanted =
                    if count > PATH_LEAVES_MAX { SubModelsWanted::Neighbours } else { SubModelsWanted::Path };
                self.fetch_route(queue, key, wanted)?;
                if !has_route(self) {
                    return Ok(false);
                }
            }
        }
        self.post_ahead(queue, progress, count)?;
        Ok(!progress.window.is_empty())
    }

    /// Posts what is wanted behind the leaves in flight, and rings, before these are looked at.
    #[cold]
    pub(super) fn top_up<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        progress: &mut Progress,
    ) -> Result<(), XStoreError> {
        let missing = progress.window.next_half(progress.leaves_wanted());
        if missing > 0 {
            self.post_ahead(queue, progress, missing)?;
        }
        Ok(())
    }

    /// Posts `count` leaves behind those in flight, or as many as are known, and rings.
    fn post_ahead<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        progress: &mut Progress,
        count: usize,
    ) -> Result<(), FabricError> {
        begin_leaves(queue)?;
        let before = progress.window.in_flight();
        let (region, reader, line_count) = (self.cache.region(), *self.cache.reader(), self.scan_lines());
        if let Some(mapped) = queue.mapped() {
            let lines = mapped.lines(region);
            self.choose_ahead(progress, count, |_, leaf| {
                reader.ask_in_place(lines, leaf, line_count);
            });
        } else {
            self.choose_ahead(progress, count, |slot, leaf| {
                reader.post(queue, slot, (region, leaf), line_count);
            });
        }
        self.ring_for_leaves(queue, progress.window.in_flight() - before)
    }

    /// Chooses `count` leaves behind those in flight, or as many as are known, and has each of them posted.
    fn choose_ahead(
        &mut self,
        progress: &mut Progress,
        count: usize,
        mut post_in: impl FnMut(Slot, LeafNumber),
    ) {
        let Progress { direction, cursor, window, last, .. } = progress;
        let known = cursor.leaf.filter(|leaf| self.cache.is_leaf(*leaf));
        let is_in_flight = !window.is_empty();
        // The model names those in flight first, from the cursor on. The cursor's leaf is left out anyway.
        let is_known_first = is_in_flight && known == Some(self.leaves[window.oldest()]);
        let mut behind = window.in_flight() - usize::from(is_known_first);
        let (slots, mut missing) = (&mut self.leaves, count);
        let mut post = |leaf| {
            if missing == 0 {
                return ControlFlow::Break(());
            }
            missing -= 1;
            let slot = window.push();
            slots[slot] = leaf;
            post_in(slot, leaf);
            ControlFlow::Continue(())
        };
        if let Some(leaf) = known.filter(|_| !is_in_flight) {
            let _ = post(leaf);
        }
        let Some(route) = self.model.as_ref().and_then(|model| model.route(cursor.key)) else { return };
        let mut is_passed = true;
        let _ = route.each_leaf(*direction, |leaf| {
            is_passed &= leaf == *last || Some(leaf) == known;
            if is_passed {
                return ControlFlow::Continue(());
            }
            if behind > 0 {
                behind -= 1;
                return ControlFlow::Continue(());
            }
            post(leaf)
        });
    }
}

/// Begins a batch of READs of leaves, before any of them is posted.
pub(super) fn begin_leaves<Q: QueuePair>(queue: &mut Q) -> Result<(), FabricError> {
    queue.mapped().map_or(Ok(()), Mapped::begin)
}
