//! Repair: what is done about a leaf whose lock's holder is dead, or cannot be told from it.
//!
//! Protocol: the holder's compute node is fenced at every memory node, so none of its WRITEs can execute any
//! more. The leaf's own memory node is asked first: it alone sees whether the lock's lease is over. Then the
//! lock word that was waited for is exchanged for one's own: of several that repair, one wins.
//! The journal says what had begun ([`LockedLeaf::repair`]); a repairer that dies leaves that to the next.
//! A holder that was only slow finds its connections ended, and what became of its write unknown.

use std::time::Duration;

use farsight_base::Line;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::OWNER_WORD;
use farsight_layout::pool::{LockWord, LockedLeaf, Neighbour, Writes};
use farsight_protocol::Fenced;

#[cfg(injected)]
use crate::injected;
use crate::{LeafPlace, RolexError, RolexSession};

/// Fenced compute nodes that a session remembers; to fence one again costs a call and is done at once.
const FENCED_KNOWN_MAX: usize = 1 << 16;

/// When a lock of this very compute node is looked at again.
const OWN_LOCK_PAUSE: Duration = Duration::from_millis(50);

/// What came of a repair.
pub(crate) enum Repair {
    /// The leaf was repaired, here or by somebody else.
    Done,
    /// The lock's holder is not fenced yet.
    Later {
        /// When to try again.
        pause: Duration,
        /// What that waits for.
        why: String,
    },
}

impl RolexSession {
    /// Takes the leaf over from `owner`, the holder of `lock`, once that is fenced, and brings it to rest.
    pub(crate) async fn repair<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        place: LeafPlace,
        lock: LockWord,
        owner: u32,
    ) -> Result<Repair, RolexError> {
        if self.locks.are_of(owner) {
            // Nobody fences itself. It is another session of this process, which is slow; or an operation
            // that broke off: then this one ends before it began, to begin again as another compute node's.
            let asking = self.before_asking(slot).await;
            self.calls.check_usable()?;
            drop(asking);
            let why = "that is this process, in another session".to_owned();
            return Ok(Repair::Later { pause: OWN_LOCK_PAUSE, why });
        }
        let asking = self.before_asking(slot).await;
        let fenced = self.fence(owner, Some((place, lock)))?;
        drop(asking);
        if let Fenced::Wait { pause_ms, why } = fenced {
            return Ok(Repair::Later { pause: Duration::from_millis(pause_ms.into()), why });
        }
        let _locking = self.before_lock(slot).await;
        let own = self.locks.draw();
        let mut block = vec![Line::ZERO; self.table().geometry().lines()];
        if self.exchange_and_read(slot, place, [lock, own], &mut block).await? != lock {
            return Ok(Repair::Done);
        }
        let geometry = *self.table().geometry();
        let mut leaf = LockedLeaf::new(&geometry, place.leaf_number(), &mut block);
        let mut writes = Writes::default();
        let neighbour = leaf.neighbour();
        if self.is_going_on(slot, neighbour).await? {
            leaf.repair(&mut writes);
        } else {
            leaf.abandon(&mut writes);
        }
        self.execute(slot, &writes).await?;
        if neighbour == Neighbour::Born
            && let Some(born) = self.table().place(leaf.next())
        {
            self.open(slot, born, own).await?;
        }
        writes.clear();
        leaf.clear_journal(&mut writes);
        leaf.unlock(LockWord::FREE, &mut writes);
        self.execute(slot, &writes).await?;
        if neighbour == Neighbour::Born {
            // The holder may have died before it counted the split. If it had counted it, a group is trained
            // once too often. The leaf is repaired: a fabric that failed says so to the next operation.
            let separator = leaf.fences().and_then(|fences| fences.high).unwrap_or(u64::MAX);
            let _ = self.hints.count_split(slot, separator).await;
        }
        Ok(Repair::Done)
    }

    /// Fences a compute node, unless that was done: because of a lock that it holds, or since it has ended
    /// at a memory node.
    pub(crate) fn fence(
        &self,
        owner: u32,
        seen: Option<(LeafPlace, LockWord)>,
    ) -> Result<Fenced, RolexError> {
        if !self.fenced.borrow().contains(&owner) {
            let what = "fencing a compute node that is taken for dead";
            #[cfg(injected)]
            let is_skipped = injected::STOLEN_UNFENCED.is_injected();
            #[cfg(not(injected))]
            let is_skipped = false;
            if !is_skipped {
                let done =
                    self.calls.fence(owner, seen).map_err(|source| RolexError::of_call(what, source))?;
                if done != Fenced::Done {
                    return Ok(done);
                }
            }
            let mut fenced = self.fenced.borrow_mut();
            if fenced.len() >= FENCED_KNOWN_MAX {
                fenced.clear();
            }
            fenced.insert(owner);
        }
        Ok(Fenced::Done)
    }

    /// False if the change was a merge that had not begun, or is long done: its right leaf is neither closed
    /// nor held for it.
    async fn is_going_on<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        neighbour: Neighbour,
    ) -> Result<bool, FabricError> {
        let Neighbour::Merged { leaf, holder } = neighbour else { return Ok(true) };
        let Some(merged) = self.table().place(leaf) else { return Ok(false) };
        let at = self.table().address(merged, OWNER_WORD);
        slot.post_compare_swap(merged.node(), 0, at, holder.0, LockWord::CLOSED.0);
        slot.completed().await;
        let found = LockWord(slot.take_word(merged.node(), 0)?);
        Ok(found == holder || found == LockWord::CLOSED)
    }

    /// Opens the leaf that a split made, unless that was done.
    async fn open<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        born: LeafPlace,
        own: LockWord,
    ) -> Result<(), FabricError> {
        let geometry = *self.table().geometry();
        let mut block = vec![Line::ZERO; geometry.lines()];
        let found = self.exchange_and_read(slot, born, [LockWord::CLOSED, own], &mut block).await?;
        if found != LockWord::CLOSED {
            return Ok(());
        }
        let mut leaf = LockedLeaf::new(&geometry, born.leaf_number(), &mut block);
        let mut writes = Writes::default();
        leaf.repair(&mut writes);
        leaf.unlock(LockWord::FREE, &mut writes);
        self.execute(slot, &writes).await
    }

    /// Exchanges a leaf's lock word, if it is the first of the two, for the second, and READs its block
    /// behind that. Returns the lock word that it found.
    async fn exchange_and_read<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        place: LeafPlace,
        [from, to]: [LockWord; 2],
        block: &mut [Line],
    ) -> Result<LockWord, FabricError> {
        let (table, node) = (self.table(), place.node());
        slot.post_compare_swap(node, 0, table.address(place, OWNER_WORD), from.0, to.0);
        slot.post_read(node, 1, table.address(place, 0), block.len(), ReadMode::Plain);
        slot.completed().await;
        let found = LockWord(slot.take_word(node, 0)?);
        slot.take_read(node, 1, block)?;
        Ok(found)
    }
}
