//! Merges: a leaf that lost its last pair goes back to its memory node, and its keys to its left neighbour.
//!
//! Invariant: a trainer merges a leaf under both locks, taken from left to right. It does so only if the leaf
//! is empty and no group begins there, neither in the newest directory nor in one that is about to be
//! published ([`anchor`]). The leaf is this compute node's before it is locked, so that nobody else gives it
//! back. A trainer that dies leaves it to the trainers that look at its orphans. No processor is asked under
//! a lock.
//!
//! Protocol:
//! 1. A session that removes a leaf's last pair counts that as a split is counted.
//! 2. The trainer that looks at the group finds the leaf empty. It adds the merges to come to the counter, so
//!    that the group is trained again if the trainer dies on the way.
//! 3. It READs that the leaf is in the chain, and its incarnation. Then it adopts the leaf. The memory node
//!    refuses if any leaf of it has become free since the trainer heard of it last, before the READ.
//! 4. It merges the leaves one by one, unless somebody else holds a lock, or the incarnation is another.
//! 5. It gives the merged ones back, and publishes an image without them. So it does with those that it
//!    adopted and that another trainer was quicker to merge.
//!
//! Why the adoption takes nothing from anybody: no leaf of that node was free between the READ and the
//! adoption. So the leaf is in the chain then, or somebody has merged it and not given it back. Either way no
//! compute node has it that is about to link it. From then on it becomes free only under the new claim, or
//! behind another trainer's adoption. The incarnation excludes the latter: a leaf that came back to the chain
//! has another one.
//!
//! [`anchor`]: super::anchor

use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::learned::{ROOT_WORD, RootWord};
use farsight_layout::pool::{LockWord, LockedLeaf, Writes, lock_of};
use farsight_layout::{KEY_LINES, KeyLines};
use farsight_protocol::{Adopted, Blocks, Claim, Space};

use super::anchor::GroupAt;
use super::collect::Collected;
use super::{TrainError, Trainer};
use crate::cache::fetch::META_NODE;
#[cfg(injected)]
use crate::injected;
use crate::{LeafPlace, RolexError, RolexSession};

/// Leaves of a group that are merged at once.
const MERGES_MAX: usize = 64;
/// Attempts to adopt them. In front of each but the first another trainer was quicker to give some back.
const ADOPTIONS_MAX: u32 = 4;

/// A leaf that was in the chain, in this incarnation, when it was READ.
#[derive(Clone, Copy, Debug)]
struct Linked {
    place: LeafPlace,
    incarnation: u32,
}

/// A leaf that is this compute node's, or was, under a claim.
#[derive(Clone, Copy, Debug)]
struct Own {
    linked: Linked,
    claim: Claim,
}

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
        let mut own = self.adopt(slot, &empty).await?;
        let (group, mut left) = (self.group_at(group), leaves[0].place);
        let mut merged = Vec::new();
        for leaf in &leaves[1..] {
            let adopted = own.iter().position(|own| own.linked.place == leaf.place);
            match adopted {
                Some(index) if self.session.merge(slot, group, left, own[index].linked).await? => {
                    merged.push(own.swap_remove(index));
                }
                _ => left = leaf.place,
            }
        }
        leaves.retain(|leaf| !merged.iter().any(|own| own.linked.place == leaf.place));
        for own in own {
            // It is in the chain still, unless another trainer was quicker to merge it.
            let block = [own.linked.place.block()];
            let (unlinked, _) = self.sort_out(slot, own.linked.place.node(), &block).await?;
            merged.extend((!unlinked.is_empty()).then_some(own));
        }
        self.give_merged(merged)?;
        Ok(added)
    }

    /// Makes leaves this compute node's; those that are.
    async fn adopt<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        leaves: &[LeafPlace],
    ) -> Result<Vec<Own>, RolexError> {
        let mut own = Vec::new();
        for node in 0..self.table.nodes().len() {
            let of_node: Vec<LeafPlace> = leaves.iter().copied().filter(|leaf| leaf.node() == node).collect();
            let mut linked = self.linked(slot, node, &of_node).await?;
            for attempt in 0..ADOPTIONS_MAX {
                if attempt > 0 {
                    #[cfg(injected)]
                    let is_blind = injected::ADOPTED_BLIND.is_injected();
                    #[cfg(not(injected))]
                    let is_blind = false;
                    if !is_blind {
                        linked = self.linked(slot, node, &of_node).await?;
                    }
                }
                if linked.is_empty() {
                    break;
                }
                let blocks: Vec<Blocks> = linked.iter().map(|linked| linked.place.block()).collect();
                let adopted = self.session.calls.adopt(node, self.known[node], &blocks);
                let what = "taking over leaves that are to be merged";
                let Adopted { claim, is_done } =
                    adopted.map_err(|source| RolexError::of_call(what, source))?;
                self.known[node] = claim;
                if is_done {
                    own.extend(linked.into_iter().map(|linked| Own { linked, claim }));
                    break;
                }
            }
        }
        Ok(own)
    }

    /// Those of a memory node's leaves that are in the chain now: not closed, and consistent. All of them
    /// were in the chain before, so their lock words say so whatever is written to them.
    async fn linked<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        node: usize,
        leaves: &[LeafPlace],
    ) -> Result<Vec<Linked>, FabricError> {
        let mut linked = Vec::new();
        for leaves in leaves.chunks(slot.verbs()) {
            for (verb, place) in leaves.iter().enumerate() {
                slot.post_read(node, verb, self.table.address(*place, 0), KEY_LINES, ReadMode::Stamped);
            }
            slot.completed().await;
            for (verb, place) in leaves.iter().enumerate() {
                let mut lines = [Line::ZERO; KEY_LINES];
                slot.take_read(node, verb, &mut lines)?;
                let incarnation =
                    KeyLines(&lines).incarnation().filter(|_| lock_of(&lines) != LockWord::CLOSED);
                linked.extend(incarnation.map(|incarnation| Linked { place: *place, incarnation }));
            }
        }
        Ok(linked)
    }

    /// Gives leaves back that are in no chain any more.
    fn give_merged(&self, mut merged: Vec<Own>) -> Result<(), RolexError> {
        let of_call = |own: &Own| (own.linked.place.node(), own.claim);
        merged.sort_unstable_by_key(of_call);
        for merged in merged.chunk_by(|one, next| of_call(one) == of_call(next)) {
            let (node, claim) = of_call(&merged[0]);
            let blocks: Vec<Blocks> = merged.iter().map(|own| own.linked.place.block()).collect();
            self.give_back(node, (Space::Leaves, claim), &blocks)?;
        }
        Ok(())
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
}

impl RolexSession {
    /// Merges `right`, an empty leaf of this group but not its first, into its left sibling. It is this
    /// compute node's. False if they are not such leaves any more, if somebody holds one of them, or if a
    /// directory is being made.
    async fn merge<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        group: GroupAt,
        left: LeafPlace,
        Linked { place: right, incarnation }: Linked,
    ) -> Result<bool, RolexError> {
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
        let is_to_go =
            empty.is_consistent() && empty.is_empty() && is_sibling && empty.incarnation() == incarnation;
        if !is_to_go || empty.is_anchored() && !self.may_go(slot, group).await? {
            self.release(slot, right).await?;
            self.release(slot, left).await?;
            return Ok(false);
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
}

const _: () = assert!(ROOT_WORD < WORDS_PER_LINE);
