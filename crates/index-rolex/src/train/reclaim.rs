//! What compute nodes that have ended left behind: leaves that they had taken and not linked, lines of images
//! that nobody names.
//!
//! Invariant: a block is given back only by the compute node that has it, and only once nothing leads to it
//! and nothing ever will. Whose blocks are looked at was fenced at *every* memory node before, so that none
//! of its WRITEs links one of them afterwards.
//!
//! Protocol: a block of leaves is linked if and only if a lookup of its low fence ends at it. The lookup ends
//! at a leaf whose lock nobody holds: a journal stands only under a lock, so no repair to come links anything
//! there. Lines are in use if and only if a slot of the newest directory names them. A directory is nobody's,
//! so it is never among them. They stay the looker's, which uses them again once they are replaced.
//!
//! A linked leaf becomes the table's own: nobody looks at it again. A trainer that merges it adopts it first.
//! If it was adopted meanwhile, it is not the looker's any more, at least not under the claim of the look: it
//! stays whose it is.

use farsight_base::Line;
use farsight_fabric::QueuePair;
use farsight_fabric::ReadMode;
use farsight_fabric::lane::PoolSlot;
use farsight_layout::learned::{DirectorySlot, GroupPointer};
use farsight_layout::pool::LockWord;
use farsight_layout::{KEY_LINES, LOW_FENCE_WORD};
use farsight_protocol::{Blocks, Claim, Fenced, POOL_BLOCKS_MAX, Space, TakenBlocks};

use super::space::rounded;
use super::{TrainError, Trainer};
use crate::cache::fetch::META_NODE;
use crate::get::search_leaf;
#[cfg(injected)]
use crate::injected;
use crate::walk::{Seen, Walk};
use crate::{LeafPlace, RolexError, RolexSession};

/// What a look at what ended compute nodes left came to, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reclaimed {
    /// Given back.
    pub freed: u64,
    /// In use.
    pub kept: u64,
}

impl Trainer {
    /// Looks at what ended compute nodes left of this table, at each memory node as much as one call gives.
    ///
    /// # Errors
    /// [`TrainError`]. What was not looked at stays this compute node's until it ends.
    pub async fn reclaim<Q: QueuePair, E>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
    ) -> Result<Reclaimed, TrainError<E>> {
        let mut found = Reclaimed::default();
        for node in 0..self.table.nodes().len() {
            let Some(TakenBlocks { claim, blocks }) = self.session.take_orphans(node, Space::Leaves)? else {
                continue;
            };
            let (free, linked) = self.sort_out(slot, node, &blocks).await?;
            found.note(&blocks, &free);
            self.settle(node, claim, &linked)?;
            self.give_back(node, (Space::Leaves, claim), &free)?;
        }
        if let Some(TakenBlocks { claim, blocks }) = self.session.take_orphans(META_NODE, Space::Meta)? {
            let free = self.unnamed(slot, &blocks).await?;
            found.note(&blocks, &free);
            self.give_back(META_NODE, (Space::Meta, claim), &free)?;
        }
        Ok(found)
    }

    /// Those of a memory node's blocks that are in no chain of leaves and never will be; and the others.
    pub(super) async fn sort_out<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        node: usize,
        orphans: &[Blocks],
    ) -> Result<(Vec<Blocks>, Vec<Blocks>), RolexError> {
        let numbers = orphans.iter().flat_map(|run| run.first..run.first.saturating_add(run.count));
        let places: Vec<LeafPlace> = numbers.filter_map(|number| LeafPlace::new(node, number)).collect();
        let (mut free, mut linked) = (Vec::new(), Vec::new());
        let mut lines = [Line::ZERO; KEY_LINES];
        for places in places.chunks(slot.verbs()) {
            for (verb, place) in places.iter().enumerate() {
                slot.post_read(node, verb, self.table.address(*place, 0), KEY_LINES, ReadMode::Plain);
            }
            slot.completed().await;
            let mut lows = Vec::with_capacity(places.len());
            for verb in 0..places.len() {
                slot.take_read(node, verb, &mut lines)?;
                lows.push(lines[0].0[LOW_FENCE_WORD]);
            }
            for (place, low) in places.iter().zip(lows) {
                let is_linked = self.session.consistent_owner(slot, low).await? == *place;
                #[cfg(injected)]
                let is_linked = is_linked && !injected::LINKED_FREED.is_injected();
                let found = if is_linked { &mut linked } else { &mut free };
                found.push(place.block());
            }
        }
        Ok((free, linked))
    }

    /// Those of these lines that the newest directory names no image in. Images of others are this trainer's
    /// from now on.
    async fn unnamed<Q: QueuePair, E>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        orphans: &[Blocks],
    ) -> Result<Vec<Blocks>, TrainError<E>> {
        let slots = self.look(slot).await?.unwrap_or_default();
        let mut named: Vec<GroupPointer> =
            slots.iter().map(|slot: &DirectorySlot| slot.pointer.thawed()).collect();
        named.sort_unstable_by_key(|pointer| pointer.line());
        let mut free = Vec::new();
        for run in orphans {
            let (mut next, end) = (run.first, run.first.saturating_add(run.count));
            for pointer in &named {
                let first = pointer.line();
                let behind = first.saturating_add(rounded(pointer.lines() as usize));
                if behind <= next || first >= end {
                    continue;
                }
                if first > next {
                    free.push(Blocks { first: next, count: first - next });
                }
                next = behind.min(end);
                // One that lies in two calls' lines may be two compute nodes' now: it stays until they end.
                if (run.first..=end).contains(&first) && behind <= end && !self.images.contains(pointer) {
                    self.images.push(*pointer);
                }
            }
            if next < end {
                free.push(Blocks { first: next, count: end - next });
            }
        }
        Ok(free)
    }

    /// Makes linked leaves the table's own.
    fn settle(&self, node: usize, claim: Claim, linked: &[Blocks]) -> Result<(), RolexError> {
        for runs in linked.chunks(POOL_BLOCKS_MAX) {
            let done = self.session.calls.pin(node, (Space::Leaves, claim), runs);
            done.map_err(|source| RolexError::of_call("settling leaves that are in use", source))?;
        }
        Ok(())
    }

    /// Gives blocks back that are this compute node's under a claim.
    pub(super) fn give_back(
        &self,
        node: usize,
        of: (Space, Claim),
        free: &[Blocks],
    ) -> Result<(), RolexError> {
        let what = "giving back what nothing leads to";
        for runs in free.chunks(POOL_BLOCKS_MAX) {
            let done = self.session.calls.free(node, of, runs);
            done.map_err(|source| RolexError::of_call(what, source))?;
        }
        Ok(())
    }
}

impl Reclaimed {
    fn note(&mut self, orphans: &[Blocks], free: &[Blocks]) {
        let blocks = |runs: &[Blocks]| runs.iter().map(|run| u64::from(run.count)).sum::<u64>();
        self.freed += blocks(free);
        self.kept += blocks(orphans) - blocks(free);
    }
}

impl RolexSession {
    /// Blocks of one compute node that has ended and is fenced now, as many as one call gives. One that
    /// lives on at another memory node, and cannot be fenced there yet, is left for later.
    fn take_orphans(&self, node: usize, space: Space) -> Result<Option<TakenBlocks>, RolexError> {
        let what = "looking at what compute nodes that have ended left";
        let failed = |source| RolexError::of_call(what, source);
        for owner in self.calls.ended(node, space).map_err(failed)? {
            #[cfg(injected)]
            if injected::ORPHAN_FENCED_AT_HOME.is_injected() {
                // Its home is where it has ended: no fence there would do more.
                return self.calls.take_orphans(node, space, owner).map(Some).map_err(failed);
            }
            if self.fence(owner, None)? == Fenced::Done {
                return self.calls.take_orphans(node, space, owner).map(Some).map_err(failed);
            }
        }
        Ok(None)
    }

    /// The leaf that owns `key`, once nobody holds its lock.
    async fn consistent_owner<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        key: u64,
    ) -> Result<LeafPlace, RolexError> {
        let geometry = *self.table().geometry();
        let candidates = self.candidates(slot, key).await?;
        let mut place = candidates.leaves()[candidates.likeliest()];
        let mut walk = Walk::new(self, key);
        let mut lines = vec![Line::ZERO; geometry.leaf().leaf_lines()];
        let mut value = vec![0; geometry.leaf().value_bytes()];
        loop {
            self.post_leaves(slot, &[place], lines.len());
            slot.completed().await;
            slot.take_read(place.node(), 0, &mut lines)?;
            let (lock, found) = search_leaf(&geometry, &lines, key, &mut value);
            let seen = match found {
                Ok(_) if lock == LockWord::FREE => return Ok(place),
                Ok(_) => Seen::Busy,
                Err(seen) => seen,
            };
            place = walk.next(slot, place, lock, seen).await?;
        }
    }
}
