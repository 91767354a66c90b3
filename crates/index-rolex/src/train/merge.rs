//! Merges: a leaf that lost its last pair goes back to its memory node, and its keys to its left neighbour.
//!
//! Invariant: a trainer merges a leaf under both locks, taken from left to right. It does so only if the leaf
//! is empty and no group begins there, neither in the newest directory nor in one that is about to be
//! published ([`anchor`]). The leaf is this compute node's before it is closed, so that nobody else gives it
//! back. A trainer that dies leaves it to the trainers that look at its orphans. The trainer takes it over
//! under both locks. For a block that was a leaf when somebody looked may be another compute node's now,
//! which has not linked it yet.
//!
//! Protocol:
//! 1. A session that removes a leaf's last pair counts that as a split is counted.
//! 2. The trainer that looks at the group finds the leaf empty. It adds the merges to come to the counter, so
//!    that the group is trained again if the trainer dies on the way.
//! 3. It merges the leaves one by one, unless somebody else holds a lock.
//! 4. It gives the merged ones back, and publishes an image without them.
//!
//! [`anchor`]: super::anchor

use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_layout::learned::{ROOT_WORD, RootWord};
use farsight_layout::pool::{LockWord, LockedLeaf, Writes};
use farsight_protocol::{Blocks, Space};

use super::anchor::GroupAt;
use super::collect::Collected;
use super::{TrainError, Trainer};
use crate::cache::fetch::META_NODE;
#[cfg(injected)]
use crate::injected;
use crate::{LeafPlace, RolexError, RolexSession};

/// Leaves of a group that are merged at once.
const MERGES_MAX: usize = 64;

impl Trainer {
    /// Merges empty ones of a group's leaves into their left neighbours, and takes them out of the list.
    /// Returns what was added to the group's counter for that.
    pub(super) async fn merge_empty<Q: QueuePair, E>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        group: usize,
        leaves: &mut Vec<Collected>,
    ) -> Result<u64, TrainError<E>> {
        let is_empty = |leaf: &&Collected| leaf.is_empty && !leaf.is_locked;
        let empty: Vec<LeafPlace> =
            leaves[1..].iter().filter(is_empty).map(|leaf| leaf.place).take(MERGES_MAX).collect();
        if empty.is_empty() {
            return Ok(0);
        }
        let added = empty.len() as u64;
        if !self.count_ahead(slot, group, added).await? {
            return Ok(added);
        }
        let group = self.group_at(group);
        let mut merged = Vec::new();
        let mut left = leaves[0].place;
        for leaf in &leaves[1..] {
            if empty.contains(&leaf.place) && self.session.merge(slot, group, left, leaf.place).await? {
                merged.push(leaf.place);
            } else {
                left = leaf.place;
            }
        }
        self.of_each_node(&merged, |node, blocks| self.session.calls.free(node, Space::Leaves, blocks))?;
        leaves.retain(|leaf| !merged.contains(&leaf.place));
        Ok(added)
    }

    /// Adds to a group's counter. False if there is a newer directory meanwhile, where nobody counted it.
    async fn count_ahead<Q: QueuePair, E>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        group: usize,
        splits: u64,
    ) -> Result<bool, TrainError<E>> {
        let mut at = self.slot_address(group);
        at.offset_bytes += 8;
        slot.post_fetch_add(META_NODE, 0, at, splits);
        let root = self.meta.address(0, 0);
        slot.post_read(META_NODE, 1, root, 1, ReadMode::Plain);
        slot.completed().await;
        slot.take_word(META_NODE, 0)?;
        let mut line = [Line::ZERO];
        slot.take_read(META_NODE, 1, &mut line)?;
        Ok(self.current.as_ref().is_some_and(|current| current.root == RootWord(line[0].0[ROOT_WORD])))
    }

    /// Calls each memory node of these leaves with its own.
    pub(super) fn of_each_node(
        &self,
        leaves: &[LeafPlace],
        call: impl Fn(usize, &[Blocks]) -> crate::CallResult<()>,
    ) -> Result<(), RolexError> {
        for node in 0..self.table.nodes().len() {
            let own = leaves.iter().filter(|place| place.node() == node);
            let blocks: Vec<Blocks> = own.map(|place| Blocks { first: place.number(), count: 1 }).collect();
            if !blocks.is_empty() {
                let what = "giving merged leaves back";
                call(node, &blocks).map_err(|source| RolexError::of_call(what, source))?;
            }
        }
        Ok(())
    }
}

impl RolexSession {
    /// Merges `right`, an empty leaf of this group but not its first, into its left sibling. False if they
    /// are not such leaves any more, if somebody holds one of them, or if a directory is being made.
    pub(super) async fn merge<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        group: GroupAt,
        left: LeafPlace,
        right: LeafPlace,
    ) -> Result<bool, RolexError> {
        #[cfg(injected)]
        if injected::ADOPTED_UNLOCKED.is_injected() {
            self.take_over(right)?;
        }
        let geometry = *self.table().geometry();
        let mut left_block = vec![Line::ZERO; geometry.lines()];
        if self.lock_and_read(slot, (left, ReadMode::Plain), self.locks.draw(), None, &mut left_block).await?
            != LockWord::FREE
        {
            return Ok(false);
        }
        let mut leaf = LockedLeaf::new(&geometry, left.leaf_number(), &mut left_block);
        if !leaf.is_consistent() || leaf.next() != right.leaf_number() {
            self.release(slot, left).await?;
            return Ok(false);
        }
        let holder = self.locks.draw();
        let mut right_block = vec![Line::ZERO; geometry.lines()];
        if self.lock_and_read(slot, (right, ReadMode::Plain), holder, None, &mut right_block).await?
            != LockWord::FREE
        {
            self.release(slot, left).await?;
            return Ok(false);
        }
        let mut empty = LockedLeaf::new(&geometry, right.leaf_number(), &mut right_block);
        let ends = |fences: farsight_layout::Fences| fences.high;
        let is_sibling = leaf.fences().and_then(ends) == empty.fences().map(|fences| fences.low);
        let is_to_go = empty.is_consistent() && empty.is_empty() && is_sibling;
        if !is_to_go || empty.is_anchored() && !self.may_go(slot, group).await? {
            self.release(slot, right).await?;
            self.release(slot, left).await?;
            return Ok(false);
        }
        if let Err(error) = self.take_over(right) {
            self.release(slot, right).await?;
            self.release(slot, left).await?;
            return Err(error);
        }
        let mut writes = Writes::default();
        leaf.merge(&mut empty, holder, &mut writes);
        #[cfg(injected)]
        if injected::MERGED_UNCLOSED.is_injected() {
            empty.unlock(LockWord::FREE, &mut writes);
        }
        leaf.clear_journal(&mut writes);
        leaf.unlock(LockWord::FREE, &mut writes);
        self.execute(slot, &writes).await?;
        Ok(true)
    }

    /// Makes a leaf this compute node's, which holds its lock.
    fn take_over(&self, leaf: LeafPlace) -> Result<(), RolexError> {
        let block = Blocks { first: leaf.number(), count: 1 };
        let taken = self.calls.adopt(leaf.node(), Space::Leaves, &[block]);
        taken.map_err(|source| RolexError::of_call("taking over a leaf that is to be merged", source))
    }
}

const _: () = assert!(ROOT_WORD < WORDS_PER_LINE);
