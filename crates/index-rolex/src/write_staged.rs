//! Writes in a staged batch: each step is a loop over the writes, with one doorbell a memory node between
//! them. Lock and READ, plan, WRITE and unlock: two round trips for all.
//!
//! Invariant: what this does to a leaf the lane's write ([`super::write`]) would, by the same plan of the
//! same locked copy. A write whose leaf is another, is locked, splits or is to be counted is left to the
//! lane. Any lock that was taken for it goes back in the second doorbell: no session holds a lock while it
//! waits for others. Nor does it hold a gate then: a write that queues at another session's is left to the
//! lane, too, with its ticket.

use std::ops::Range;

use farsight_base::Line;
use farsight_fabric::{FabricError, QueuePair, Slot};
use farsight_layout::OWNER_WORD;
use farsight_layout::pool::{BlockGeometry, LockWord, LockedLeaf, Writes};
use farsight_protocol::WriteOutcome;

use crate::gate::{Asked, Entered, Hold};
#[cfg(injected)]
use crate::injected;
use crate::overtaken::read_mode;
use crate::plan::Write;
use crate::session::{Batch, Written};
use crate::together::{Part, ends, plan_together};
use crate::transfer::PostedTo;
use crate::turns::{Turn, turn_of};
use crate::write::Waiting;
use crate::{LeafPlace, RolexSession};

/// Writes that are staged together at most.
const STAGED_MAX: usize = 32;
/// Doorbells of WRITEs. A lock that is held is tried again in each but the last.
const ROUNDS: u32 = 3;
/// Verbs of a write's first step: its lock, and the READ behind it.
const LOCK_VERBS: usize = 2;
/// WRITEs of a lock's release.
const UNLOCK_WRITES: usize = 1;

/// How a batch's verbs are shared out.
#[derive(Clone, Copy)]
struct Share {
    /// Writes of a batch.
    batch: usize,
    /// WRITEs of each at most.
    writes_max: usize,
}

impl Share {
    fn of<Q: QueuePair>(geometry: &BlockGeometry) -> Self {
        let writes_max = geometry.change_writes_max() + UNLOCK_WRITES;
        Self { batch: STAGED_MAX.min(Q::SLOTS / (LOCK_VERBS + writes_max)), writes_max }
    }

    /// The slot of a write's lock; that of its READ is the next.
    fn lock(index: usize) -> Slot {
        LOCK_VERBS * index
    }

    /// The first slot of WRITEs.
    fn first_write(self) -> Slot {
        LOCK_VERBS * self.batch
    }
}

/// What a batch has of the gates before its leaves.
pub(crate) struct AtGates<'g> {
    holds: [Option<Hold<'g>>; STAGED_MAX],
    /// How far the writes came that are left to the lane.
    pub(crate) waiting: [Waiting<'g>; STAGED_MAX],
}

/// What is planned for a leaf that was locked.
#[derive(Clone)]
struct LeafPlan {
    place: LeafPlace,
    /// Its WRITEs' slots.
    writes: Range<Slot>,
    /// What became of the session's own write, if that is done.
    outcome: Option<WriteOutcome>,
    /// The writes of other sessions among all that were taken.
    taken: Range<usize>,
}

impl AtGates<'_> {
    pub(crate) fn new() -> Self {
        Self { holds: [const { None }; STAGED_MAX], waiting: std::array::from_fn(|_| Waiting::default()) }
    }

    /// Leaves the gates of the leaves whose changes are on their way.
    fn pass_on(&mut self, planned: &[Option<LeafPlan>; STAGED_MAX]) {
        let of_planned = self.holds.iter_mut().zip(planned).filter(|(_, plan)| plan.is_some());
        of_planned.filter_map(|(hold, _)| hold.as_mut()).for_each(Hold::pass_on);
    }

    /// Looks how `write`, number `index`, which has a ticket, stands. True if it goes next: then its leaf is
    /// to be locked. Otherwise it waits on, is done, or is left to the lane without its leaf.
    fn look(
        &mut self,
        index: usize,
        write: &Write<'_>,
        (leaf, done): (&mut Option<LeafPlace>, &mut Option<Written>),
    ) -> bool {
        let Some(ticket) = &mut self.waiting[index].ticket else { return false };
        let Some(turn) = turn_of(ticket, write).transpose() else { return false };
        self.waiting[index].ticket = None;
        match turn {
            Ok(Turn::Go(hold, watch)) => {
                self.holds[index] = hold;
                self.waiting[index].watch = watch;
                return true;
            }
            Ok(Turn::Done(outcome)) => *done = Some(Ok(outcome)),
            Ok(Turn::Anew) => {}
            Err(error) => *done = Some(Err(error)),
        }
        *leaf = None;
        false
    }
}

impl RolexSession {
    /// Executes writes of different keys, at most [`RolexSession::staged_max`]; what became of each into
    /// `done`, nothing for those that are left to the lane.
    ///
    /// # Errors
    /// What the fabric reported: then writes without an outcome may or may not have been done.
    pub(crate) fn write_staged<'g, Q: QueuePair>(
        &'g self,
        queues: &mut [Q],
        writes: Batch<'_>,
        gates: &mut AtGates<'g>,
        done: &mut [Option<Written>],
    ) -> Result<(), FabricError> {
        let mut leaves = [None; STAGED_MAX];
        let leaves = &mut leaves[..done.len()];
        self.lock_leaves(queues, writes, gates, leaves)?;
        let mut outcome = Ok(());
        for round in 0..ROUNDS {
            let are_left = leaves.iter().any(Option::is_some);
            if outcome.is_ok() && are_left {
                outcome = self.write_round(queues, (writes, leaves), gates, done, round + 1 < ROUNDS);
            }
        }
        gates.holds.fill_with(|| None);
        outcome
    }

    /// Executes the writes whose leaves are locked now. Tries the locks of the others again in the same
    /// doorbell, if there is another round.
    fn write_round<'g, Q: QueuePair>(
        &'g self,
        queues: &mut [Q],
        (writes, leaves): (Batch<'_>, &mut [Option<LeafPlace>]),
        gates: &mut AtGates<'g>,
        done: &mut [Option<Written>],
        is_another: bool,
    ) -> Result<(), FabricError> {
        let mut taken = self.buffers.taken.lend();
        let (taken, parts) = &mut *taken;
        taken.clear();
        parts.clear();
        let mut planned = [const { None }; STAGED_MAX];
        let writes = (writes, leaves, is_another);
        let executed = self.execute_plans(queues, writes, gates, (taken, parts), &mut planned, done);
        for (index, plan) in planned.into_iter().enumerate() {
            let Some(plan) = plan.filter(|_| executed.is_ok()) else { continue };
            done[index] = plan.outcome.map(Ok);
            let hold = gates.holds[index].take();
            if let Some(mut hold) = hold.filter(|_| !plan.taken.is_empty()) {
                hold.end(ends(&taken[plan.taken.clone()], &parts[plan.taken]));
            }
        }
        if let Err(error) = &executed {
            gates.holds.iter_mut().flatten().for_each(|hold| hold.lose(error));
        }
        executed
    }

    /// How many writes are staged together.
    pub(crate) fn staged_max<Q: QueuePair>(&self) -> usize {
        Share::of::<Q>(self.table().geometry()).batch
    }

    /// Locks each write's leaf, if the model names one alone whose gate is not another's, and READs its block
    /// behind that.
    fn lock_leaves<'g, Q: QueuePair>(
        &'g self,
        queues: &mut [Q],
        writes: Batch<'_>,
        gates: &mut AtGates<'g>,
        leaves: &mut [Option<LeafPlace>],
    ) -> Result<(), FabricError> {
        self.hints.predict_each(writes.keys(), leaves);
        let mut posted = PostedTo::default();
        for (index, (write, leaf)) in writes.iter().zip(leaves).enumerate() {
            let Some(place) = *leaf else { continue };
            match self.hints.cache().gates().enter(place, &write) {
                Entered::Held(hold) => gates.holds[index] = Some(hold),
                Entered::Queued(ticket) => {
                    gates.waiting[index].ticket = Some(ticket);
                    continue;
                }
                Entered::Passed => {}
            }
            self.post_lock(&mut queues[place.node()], (index, &write), place, gates);
            posted.note(place);
        }
        posted.doorbells(queues)
    }

    /// Posts a leaf's lock, and the READ of its block behind it.
    fn post_lock<Q: QueuePair>(
        &self,
        queue: &mut Q,
        (index, write): (usize, &Write<'_>),
        place: LeafPlace,
        gates: &mut AtGates<'_>,
    ) {
        if let Some(hold) = &mut gates.holds[index] {
            hold.note_waiting();
        }
        let mode = read_mode(write.operation);
        let (table, slot) = (self.table(), Share::lock(index));
        let (from, lines) = (table.address(place, 0), table.geometry().lines());
        #[cfg(injected)]
        let is_read_first = injected::NO_REREAD_UNDER_LOCK.is_injected();
        #[cfg(not(injected))]
        let is_read_first = false;
        if is_read_first {
            queue.post_read(slot + 1, from, lines, mode);
        }
        let lock = self.locks.draw();
        queue.post_compare_swap(slot, table.address(place, OWNER_WORD), LockWord::FREE.0, lock.0);
        if !is_read_first {
            queue.post_read(slot + 1, from, lines, mode);
        }
    }

    /// Plans the change of every leaf that is locked now, and executes all of them. Of each leaf that was
    /// locked, what was planned; of the writes taken along, a part each. What stays among `leaves` is tried
    /// again.
    ///
    /// One memory node after the other: no leaf stays locked until other nodes have answered.
    fn execute_plans<'g, Q: QueuePair>(
        &'g self,
        queues: &mut [Q],
        (writes, leaves, is_another): (Batch<'_>, &mut [Option<LeafPlace>], bool),
        gates: &mut AtGates<'g>,
        (taken, parts): (&mut Vec<Asked>, &mut Vec<Part>),
        planned: &mut [Option<LeafPlan>; STAGED_MAX],
        done: &mut [Option<Written>],
    ) -> Result<(), FabricError> {
        let share = Share::of::<Q>(self.table().geometry());
        let mut posted = PostedTo::default();
        let (mut slot, mut left) = (share.first_write(), leaves.iter().flatten().count());
        for (node, queue) in queues.iter_mut().enumerate() {
            let is_of = |leaf: &LeafPlace| leaf.node() == node;
            if !leaves.iter().flatten().any(is_of) {
                continue;
            }
            queue.drain()?;
            for (index, (write, leaf)) in writes.iter().zip(&mut *leaves).enumerate() {
                let Some(place) = leaf.filter(is_of) else { continue };
                left -= 1;
                posted.note(place);
                if gates.waiting[index].ticket.is_some() {
                    if is_another && gates.look(index, &write, (leaf, &mut done[index])) {
                        self.post_lock(queue, (index, &write), place, gates);
                    }
                    continue;
                }
                let found = LockWord(queue.take_word(Share::lock(index))?);
                if found.owner().is_some() {
                    done[index] = self.look_staged(queue, (index, &write), place, gates)?;
                    if is_another && done[index].is_none() {
                        self.post_lock(queue, (index, &write), place, gates);
                        continue;
                    }
                }
                *leaf = None;
                if found != LockWord::FREE {
                    gates.holds[index] = None;
                    continue;
                }
                let first = taken.len();
                if let Some(hold) = &mut gates.holds[index] {
                    hold.take(taken);
                }
                let writes_max = Q::SLOTS - slot - left * share.writes_max;
                let of_leaf = (&write, &taken[first..], &mut *parts);
                let (outcome, count) = self.change_alone(queue, (index, place), of_leaf, slot, writes_max)?;
                let (writes, taken) = (slot..slot + count, first..taken.len());
                slot += count;
                planned[index] = Some(LeafPlan { place, writes, outcome, taken });
            }
            queue.doorbell()?;
            gates.pass_on(planned);
        }
        posted.drain(queues)?;
        for plan in planned.iter().flatten() {
            for slot in plan.writes.clone() {
                queues[plan.place.node()].take_word(slot)?;
            }
        }
        Ok(())
    }

    /// Looks at the leaf of write `index`, whose lock is somebody else's. Says what became of the write, if
    /// another has overtaken it.
    fn look_staged<Q: QueuePair>(
        &self,
        queue: &mut Q,
        (index, write): (usize, &Write<'_>),
        place: LeafPlace,
        gates: &mut AtGates<'_>,
    ) -> Result<Option<Written>, FabricError> {
        let mut block = self.block();
        queue.take_read(Share::lock(index) + 1, &mut block)?;
        let seen_by = (&mut gates.waiting[index].watch, gates.holds[index].as_mut());
        Ok(self.look(write, seen_by, (place, &block)).map(Ok))
    }

    /// Plans writes to the leaf of write `index`, which is locked, and posts at most `writes_max` WRITEs from
    /// `slot` on; the outcome of the own write, if it is done, and how many WRITEs there are.
    fn change_alone<Q: QueuePair>(
        &self,
        queue: &mut Q,
        (index, place): (usize, LeafPlace),
        (write, taken, parts): (&Write<'_>, &[Asked], &mut Vec<Part>),
        slot: Slot,
        writes_max: usize,
    ) -> Result<(Option<WriteOutcome>, usize), FabricError> {
        let mut block = self.block();
        queue.take_read(Share::lock(index) + 1, &mut block)?;
        let mut plans = self.buffers.plans.lend();
        plans.clear();
        let outcome = self.plan_alone(place, (write, taken), writes_max, &mut block, (&mut plans, parts));
        for (verb, (_, word, words)) in plans.iter().enumerate() {
            queue.post_write(slot + verb, self.table().address(place, word), words);
        }
        Ok((outcome, plans.len()))
    }

    /// Plans writes that concern no other leaf and no trainer, and the lock's release; the outcome of the
    /// first if it is one. A part of each other one is added to `parts`.
    fn plan_alone(
        &self,
        place: LeafPlace,
        (write, taken): (&Write<'_>, &[Asked]),
        writes_max: usize,
        block: &mut [Line],
        (plans, parts): (&mut Writes, &mut Vec<Part>),
    ) -> Option<WriteOutcome> {
        let mut leaf = LockedLeaf::new(self.table().geometry(), place.leaf_number(), block);
        let own = if leaf.is_consistent() && leaf.is_held() {
            plan_together(&mut leaf, (write, taken), writes_max - 1, plans, parts)
        } else {
            parts.extend(taken.iter().map(|_| Part::Own));
            Part::Own
        };
        leaf.unlock(LockWord::FREE, plans);
        #[cfg(injected)]
        if injected::UNLOCKED_FIRST.is_injected() {
            plans.put_last_first();
        }
        match own {
            Part::Done(outcome) => Some(outcome),
            Part::Own | Part::Later | Part::Open => None,
        }
    }
}
