//! Anchors: a leaf at which a group begins says so itself, under its lock.
//!
//! Invariant: the first leaf of every group of the newest directory is in the chain.
//!
//! Protocol of a trainer that makes a directory:
//! 1. It freezes all slots of the one before.
//! 2. It anchors the leaves at which new groups begin, each under its lock.
//! 3. It publishes, if all of them still are leaves of the chain.
//!
//! Protocol of a trainer that merges an anchored leaf which is not the first of its group:
//! 1. It holds the leaf's lock.
//! 2. It READs its group's slot. The slot must not be frozen.
//! 3. Behind that it READs the root. The root must name the directory in which the leaf is not a first one.
//!
//! Why that suffices: that directory was the newest when the root was READ, hence also when the slot was, and
//! the slot was READ in it. No maker of the next directory had frozen all slots then. So each maker comes to
//! this leaf's lock later. The maker for which the leaf would be a first one finds it merged. Or the merge's
//! holder died before the merge began: then the maker repairs the leaf and anchors it again, and there is no
//! merge.
//!
//! A leaf that is not anchored is no group's first yet. A maker that is about to make it one comes to its
//! lock before the merge or after it. Before, the merging trainer sees the anchor; after, the maker sees the
//! leaf merged. Nobody merges the first leaves of groups that stay: they are first ones in the directory that
//! is frozen, too.
//!
//! An anchor goes with its leaf. One that was made for a directory that was not published, or is superseded,
//! costs the trainer that merges the leaf those two READs.

use farsight_base::{LINE_BYTES, Line, RemoteAddress};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::learned::{GroupPointer, RootWord};
use farsight_layout::pool::{LockWord, LockedLeaf, Writes};

use super::Trainer;
use crate::cache::fetch::{META_NODE, read_root};
#[cfg(injected)]
use crate::injected;
use crate::walk::Walk;
use crate::{LeafPlace, RolexError, RolexSession};

/// Where a group's slot is, of which directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupAt {
    root: RootWord,
    slot: RemoteAddress,
}

impl Trainer {
    /// Where this group of the current directory has its slot.
    pub(super) fn group_at(&self, group: usize) -> GroupAt {
        let root = self.current.as_ref().expect("a group belongs to a directory").root;
        GroupAt { root, slot: self.slot_address(group) }
    }
}

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
            let found = self
                .lock_and_read(slot, (place, ReadMode::Plain), self.locks.draw(), None, &mut block)
                .await?;
            if found == LockWord::CLOSED {
                return Ok(false);
            }
            if found != LockWord::FREE {
                walk.wait(slot, place, found).await?;
                continue;
            }
            let mut leaf = LockedLeaf::new(&geometry, place.leaf_number(), &mut block);
            let is_it = leaf.is_consistent() && leaf.fences().is_some_and(|fences| fences.low == low);
            let mut writes = Writes::default();
            if is_it && !leaf.is_anchored() {
                leaf.anchor(&mut writes);
            }
            leaf.unlock(LockWord::FREE, &mut writes);
            self.execute(slot, &writes).await?;
            return Ok(is_it);
        }
    }

    /// Whether a leaf of this group that is anchored, and not its first, may be merged; its lock is this
    /// session's.
    pub(super) async fn may_go<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        group: GroupAt,
    ) -> Result<bool, FabricError> {
        #[cfg(injected)]
        if injected::ANCHOR_TAKEN_BLIND.is_injected() {
            return Ok(true);
        }
        let mut line = [Line::ZERO];
        let word = group.slot.offset_bytes % LINE_BYTES as u64;
        let from = RemoteAddress { offset_bytes: group.slot.offset_bytes - word, ..group.slot };
        slot.read(META_NODE, from, &mut line, ReadMode::Plain).await?;
        let pointer = GroupPointer(line[0].0[word as usize / 8]);
        // Not before the slot: once another directory is the newest, the slot may be that of any group.
        let root = read_root(slot, self.hints.cache().meta()).await?;
        Ok(!pointer.is_frozen() && root == group.root)
    }
}
