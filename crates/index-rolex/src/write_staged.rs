//! Writes in a staged batch: each step is a loop over the writes, with one doorbell a memory node between
//! them. Lock and READ, plan, WRITE and unlock: two round trips for all.
//!
//! Invariant: what this does to a leaf the lane's write ([`super::write`]) would, by the same plan of the
//! same locked copy. A write whose leaf is another, is locked, splits or is to be counted is left to the
//! lane. Any lock that was taken for it goes back in the second doorbell: no session holds a lock while it
//! waits for others.

use farsight_base::Line;
use farsight_fabric::{FabricError, QueuePair, ReadMode, Slot};
use farsight_index as index;
use farsight_layout::OWNER_WORD;
use farsight_layout::pool::{LockWord, LockedLeaf, Writes};
use farsight_protocol::WriteOutcome;

use crate::cache::BATCH;
#[cfg(injected)]
use crate::injected;
use crate::plan::{Planned, Write, plan};
use crate::session::Written;
use crate::transfer::PostedTo;
use crate::write::is_to_be_merged;
use crate::{LeafPlace, RolexSession};

/// Verbs of a write's first step: its lock, and the READ behind it.
const LOCK_VERBS: usize = 2;
/// WRITEs of a change besides those of the value's lines: journal or permutation, key and its stamp, and the
/// lock's release.
const OTHER_WRITES: usize = 4;

/// How a batch's verbs are shared out.
#[derive(Clone, Copy)]
struct Share {
    /// Writes of a batch.
    batch: usize,
    /// WRITEs of each at most.
    writes_max: usize,
}

impl Share {
    fn of<Q: QueuePair>(value_lines: usize) -> Self {
        let writes_max = 3 * value_lines + OTHER_WRITES;
        Self { batch: BATCH.min(Q::SLOTS / (LOCK_VERBS + writes_max)), writes_max }
    }

    /// The slot of a write's lock; that of its READ is the next.
    fn lock(index: usize) -> Slot {
        LOCK_VERBS * index
    }

    /// The slot of a write's first WRITE.
    fn first_write(self, index: usize) -> Slot {
        LOCK_VERBS * self.batch + self.writes_max * index
    }
}

impl RolexSession {
    /// Executes writes of different keys; what became of each into `done`, nothing for those that are left to
    /// the lane.
    ///
    /// # Errors
    /// What the fabric reported: then writes without an outcome may or may not have been done.
    pub(crate) fn write_staged<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        mut writes: index::Writes<'_>,
        done: &mut [Option<Written>],
    ) -> Result<(), FabricError> {
        let share = Share::of::<Q>(self.table().geometry().leaf().lines_per_value());
        for done in done.chunks_mut(share.batch) {
            let (now, later) = writes.split_at(done.len());
            writes = later;
            let mut leaves = [None; BATCH];
            let leaves = &mut leaves[..done.len()];
            self.lock_leaves(queues, now.keys, leaves)?;
            let mut planned = [None; BATCH];
            self.change_leaves(queues, share, (now, leaves), &mut planned)?;
            for ((index, planned), done) in planned.iter().enumerate().zip(done) {
                let Some((place, count, outcome)) = planned else { continue };
                for verb in 0..*count {
                    queues[place.node()].take_word(share.first_write(index) + verb)?;
                }
                *done = outcome.map(Ok);
            }
        }
        Ok(())
    }

    /// Locks each write's leaf, if the model names one alone, and READs its block behind that.
    fn lock_leaves<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[u64],
        leaves: &mut [Option<LeafPlace>],
    ) -> Result<(), FabricError> {
        self.hints.predict_each(keys, leaves);
        let table = self.table();
        #[cfg(injected)]
        let is_read_first = injected::NO_REREAD_UNDER_LOCK.is_injected();
        #[cfg(not(injected))]
        let is_read_first = false;
        let mut posted = PostedTo::default();
        for (index, place) in leaves.iter().enumerate() {
            let Some(place) = *place else { continue };
            let (queue, slot) = (&mut queues[place.node()], Share::lock(index));
            let (from, lines) = (table.address(place, 0), table.geometry().lines());
            if is_read_first {
                queue.post_read(slot + 1, from, lines, ReadMode::Plain);
            }
            let lock = self.locks.draw();
            queue.post_compare_swap(slot, table.address(place, OWNER_WORD), LockWord::FREE.0, lock.0);
            if !is_read_first {
                queue.post_read(slot + 1, from, lines, ReadMode::Plain);
            }
            posted.note(place);
        }
        posted.ring(queues)
    }

    /// Plans the change of every leaf that is locked now, and executes all of them. Of each leaf that was
    /// locked: where it stands, its WRITEs, and the outcome, if the write is done.
    fn change_leaves<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        share: Share,
        (writes, leaves): (index::Writes<'_>, &[Option<LeafPlace>]),
        planned: &mut [Option<(LeafPlace, usize, Option<WriteOutcome>)>; BATCH],
    ) -> Result<(), FabricError> {
        let table = self.table();
        let mut block = self.block();
        let mut plans = self.buffers.plans.lend();
        let mut posted = PostedTo::default();
        for (index, ((key, value), place)) in writes.iter().zip(leaves).enumerate() {
            let Some(place) = *place else { continue };
            let (queue, slot) = (&mut queues[place.node()], Share::lock(index));
            let is_locked = LockWord(queue.take_word(slot)?) == LockWord::FREE;
            queue.take_read(slot + 1, &mut block)?;
            if !is_locked {
                continue;
            }
            plans.clear();
            let write = Write { operation: writes.operation, key, value };
            let outcome = self.plan_alone(place, &write, share.writes_max, &mut block, &mut plans);
            #[cfg(injected)]
            if injected::UNLOCKED_FIRST.is_injected() {
                plans.put_last_first();
            }
            for (verb, (_, word, words)) in plans.iter().enumerate() {
                queue.post_write(share.first_write(index) + verb, table.address(place, word), words);
            }
            posted.note(place);
            planned[index] = Some((place, plans.len(), outcome));
        }
        posted.ring(queues)
    }

    /// Plans a write that concerns no other leaf and no trainer; of others, the lock's release alone.
    fn plan_alone(
        &self,
        place: LeafPlace,
        write: &Write<'_>,
        writes_max: usize,
        block: &mut [Line],
        plans: &mut Writes,
    ) -> Option<WriteOutcome> {
        let mut leaf = LockedLeaf::new(self.table().geometry(), place.leaf_number(), block);
        let planned =
            if leaf.is_consistent() { plan(&mut leaf, None, write, plans) } else { Planned::Elsewhere };
        match planned {
            Planned::Done(WriteOutcome::Removed(_)) if is_to_be_merged(&leaf) => {}
            Planned::Done(outcome) if plans.len() <= writes_max => return Some(outcome),
            _ => {}
        }
        plans.clear();
        leaf.unlock(LockWord::FREE, plans);
        None
    }
}
