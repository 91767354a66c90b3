//! Anchors: a leaf at which a group begins says so itself, under its lock, before the group is published.
//!
//! Invariant: an anchored leaf is never merged into another, by whichever compute node, and however old the
//! directory is that this one knows. So the first leaf of every group of every directory is in the chain. A
//! leaf that was anchored for a directory that was not published stays so.

use farsight_base::Line;
use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_layout::pool::{LockWord, LockedLeaf, Writes};

use crate::walk::Walk;
use crate::{LeafPlace, RolexError, RolexSession};

impl RolexSession {
    /// Anchors the leaf at `place`, if it begins at `low`; false if it does not any more.
    pub(super) async fn anchor<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        place: LeafPlace,
        low: u64,
    ) -> Result<bool, RolexError> {
        let geometry = *self.table().geometry();
        let mut block = vec![Line::ZERO; geometry.lines()];
        let mut walk = Walk::new(self, low);
        loop {
            let found = self.lock_and_read(slot, place, self.locks.draw(), None, &mut block).await?;
            if found == LockWord::CLOSED {
                return Ok(false);
            }
            if found != LockWord::FREE {
                walk.wait(slot, place, found).await?;
                continue;
            }
            let mut leaf = LockedLeaf::new(&geometry, place.leaf_number(), &mut block);
            let is_it = leaf.is_at_rest() && leaf.fences().is_some_and(|fences| fences.low == low);
            let mut writes = Writes::default();
            if is_it && !leaf.is_anchored() {
                leaf.anchor(&mut writes);
            }
            leaf.unlock(LockWord::FREE, &mut writes);
            self.execute(slot, &writes).await?;
            return Ok(is_it);
        }
    }
}
