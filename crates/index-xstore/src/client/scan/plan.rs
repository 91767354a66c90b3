//! Which leaves a scan READs next: those that the model names from the cursor on, behind the sibling that the
//! leaf before named.
//!
//! Invariant: a plan is a guess. Each leaf posted stands within the region.

use farsight_base::LeafNumber;
use farsight_fabric::{CostClass, QueuePair};
use farsight_index::ScanRequest;
use farsight_protocol::SubModelsWanted;

use super::super::route::Route;
use super::super::{XClient, XStoreError};
use super::progress::{Progress, Window};
use super::{leaves_from, leaves_wanted};

/// Leaves of a plan for which one sub-model is fetched. For longer ones those beside it will be wanted next.
const PATH_LEAVES_MAX: usize = 32;

impl XClient {
    /// Posts the READs of the leaves that a scan should need, or as many as the window has room for: none
    /// without a route.
    #[inline(never)]
    pub(super) fn plan<Q: QueuePair>(&mut self, queue: &mut Q, window: &mut Window, scan: ScanRequest) {
        let Some(model) = &self.model else { return };
        let Some(route) = model.route(scan.from) else { return };
        if !model.is_newest(route.generation) {
            let _ = model.locate_or_before(scan.from, &mut self.refreshes);
        }
        // From the first candidate: on a tie one leaf more is read, and skipped if it ends before the cursor.
        let mut wanted = leaves_wanted(scan.limit);
        if matches!(Q::GUARANTEES.cost_class, CostClass::Socket) && route.first == route.last {
            wanted = wanted.min(leaves_from(route.sub_model.part_before(route.last, scan.from), scan.limit));
        }
        let (region, reader) = (self.cache.region(), self.cache.reader());
        for leaf in route.leaves().take(window.missing(wanted)) {
            let slot = window.push();
            self.leaves[slot] = leaf;
            reader.post(queue, slot, region, leaf);
        }
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
        self.post_ahead(queue, progress, count);
        queue.doorbell()?;
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
            self.post_ahead(queue, progress, missing);
            queue.doorbell()?;
        }
        Ok(())
    }

    /// Posts `count` leaves behind those in flight, or as many as are known.
    fn post_ahead<Q: QueuePair>(&mut self, queue: &mut Q, progress: &mut Progress, count: usize) {
        let Progress { cursor, window, last, .. } = progress;
        let (region, reader) = (self.cache.region(), self.cache.reader());
        let known = cursor.leaf.filter(|leaf| self.cache.is_leaf(*leaf));
        let is_in_flight = !window.is_empty();
        // The model names those in flight first, from the cursor on. The cursor's leaf is left out anyway.
        let is_known_first = is_in_flight && known == Some(self.leaves[window.oldest()]);
        let behind = window.in_flight() - usize::from(is_known_first);
        let first = known.filter(|_| !is_in_flight);
        let route = self.model.as_ref().and_then(|model| model.route(cursor.key));
        let named = route.map(Route::leaves).into_iter().flatten();
        let is_passed = |leaf: &LeafNumber| leaf == last || Some(*leaf) == known;
        let named = named.skip_while(is_passed).skip(behind);
        for leaf in first.into_iter().chain(named).take(count) {
            let slot = window.push();
            self.leaves[slot] = leaf;
            reader.post(queue, slot, region, leaf);
        }
    }
}
