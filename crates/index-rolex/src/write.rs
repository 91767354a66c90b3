//! Insert, update, put, remove. Each locks the leaf and READs its block in one doorbell, plans the change,
//! and sends its WRITEs with the lock's release in the next.
//!
//! Protocol: the first doorbell locks the likeliest candidate and READs it whole behind the lock, beside the
//! key lines of the other candidates. Is the key another leaf's, that one is locked with the wrong one's
//! release. What the WRITEs are, in which order, and when the change takes effect is the plan's
//! ([`plan`](crate::plan)). A split, and a removal that leaves nothing, is counted for the trainer in the
//! doorbell of its last WRITE.
//!
//! A lock that cannot be had is waited for ([`Walk`]). Until the first WRITE is posted an error means that
//! nothing happened; from then on the outcome is unknown.

use farsight_base::Line;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::pool::{LockWord, LockedLeaf, Writes};
use farsight_layout::{KEY_LINES, KeyLines, KeySearch, OWNER_WORD};
use farsight_protocol::{ErrorCode, WriteOutcome};

use crate::cache::{Candidates, GroupId};
use crate::gate::{Asked, Hold, Ticket};
#[cfg(injected)]
use crate::injected;
use crate::locking::Counted;
use crate::overtaken::{Watch, read_mode};
use crate::plan::{Planned, Write, plan_locked};
use crate::together::{Part, ends, plan_together};
use crate::turns::Turn;
use crate::walk::{FoundLeaf, Seen, Walk};
use crate::{LeafPlace, RolexError, RolexSession};

/// Times that a write queues at its gate. Then it goes on without.
const ATTEMPTS_AT_GATE: u32 = 3;
/// WRITEs of one lock at most, of several writes together.
const WRITES_MAX: usize = 64;
/// Verbs that a count takes ([`CacheSession::post_split`](crate::CacheSession::post_split)).
const COUNT_VERBS: usize = 2;

/// How far a write came in a batch that left it.
#[derive(Default)]
pub(crate) struct Waiting<'g> {
    /// It waits at a gate.
    pub(crate) ticket: Option<Ticket<'g>>,
    /// What it saw of its key.
    pub(crate) watch: Watch,
}

/// The low fence and the place of a leaf that a split makes.
#[derive(Default)]
struct Born(Option<(u64, LeafPlace)>);

impl RolexSession {
    /// Executes one write that has come so far.
    pub(crate) async fn write<'g, Q: QueuePair>(
        &'g self,
        slot: &PoolSlot<'_, '_, Q>,
        write: &Write<'_>,
        Waiting { mut ticket, mut watch }: Waiting<'g>,
    ) -> Result<WriteOutcome, RolexError> {
        let begun = slot.now();
        let mut attempts = 0;
        loop {
            let candidates = self.candidates(slot, write.key).await?;
            let place = candidates.leaves()[candidates.likeliest()];
            attempts += 1;
            let hold = if attempts > ATTEMPTS_AT_GATE {
                None
            } else {
                match self.turn(slot, place, write, ticket.take()).await? {
                    Turn::Done(outcome) => return Ok(outcome),
                    Turn::Anew => continue,
                    Turn::Go(hold, meanwhile) => {
                        watch = watch.or(meanwhile);
                        hold
                    }
                }
            };
            let way = (candidates, hold, &mut watch);
            if let Some(outcome) = self.write_alone(slot, write, way, begun).await? {
                return Ok(outcome);
            }
        }
    }

    /// Executes one write that goes first at its gate, or past it. `None`: nothing of it is done, but the
    /// session has room for a split now.
    async fn write_alone<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        write: &Write<'_>,
        (candidates, mut hold, watch): (Candidates, Option<Hold<'_>>, &mut Watch),
        begun: MonotonicNs,
    ) -> Result<Option<WriteOutcome>, RolexError> {
        let mut walk = Walk::new(self, write.key);
        walk.began_at(begun);
        let mut block = self.block();
        let mut place = candidates.leaves()[candidates.likeliest()];
        let mut wrong = None;
        let mut others = candidates.leaves();
        let mut locking = None;
        loop {
            hold = hold.filter(|hold| hold.is_of(place));
            let counted = match locking.take() {
                Some(counted) => counted,
                None => self.before_lock(slot).await,
            };
            let lock = self.locks.draw();
            self.post_key_lines(slot, others, place);
            if let Some(hold) = &mut hold {
                hold.note_waiting();
            }
            let mode = read_mode(write.operation);
            let found = self.lock_and_read(slot, (place, mode), lock, wrong.take(), &mut block).await?;
            if found == LockWord::FREE {
                let geometry = *self.table().geometry();
                let leaf = LockedLeaf::new(&geometry, place.leaf_number(), &mut block);
                let seen = match leaf.search(write.key) {
                    _ if !leaf.is_consistent() || !leaf.is_held() => Seen::Closed,
                    KeySearch::Hit { .. } | KeySearch::Absent => {
                        let at = (&candidates, (place, walk.steps_right()), hold.as_mut());
                        let outcome = self.change(slot, at, leaf, write, counted).await?;
                        if outcome.is_some() {
                            self.learn(slot, &walk, &candidates, &block, place, write.key).await;
                        }
                        return Ok(outcome);
                    }
                    KeySearch::Right(next) => Seen::right_of(leaf.fences(), next),
                    KeySearch::Left => Seen::Left,
                    KeySearch::Changing | KeySearch::Foreign => Seen::Closed,
                };
                self.count(|counters| counters.slow_path += 1);
                let other = other_owner(slot, others, place, write.key)?;
                if other.is_some() || walk.goes_on_at_once(place, seen) {
                    (wrong, locking) = (Some(place), Some(counted));
                } else {
                    // What comes next may take its time, and nobody waits while it holds a lock.
                    self.release(slot, place).await?;
                    drop(counted);
                }
                place = match other {
                    Some(other) => other,
                    None => self.next_of_write(slot, &mut walk, (place, wrong), lock, seen).await?,
                };
            } else {
                drop(counted);
                let overtaken = self.look(write, (watch, hold.as_mut()), (place, &block));
                if overtaken.is_some() {
                    return Ok(overtaken);
                }
                let seen = if found == LockWord::CLOSED { Seen::Closed } else { Seen::Busy };
                place = walk.next(slot, place, found, seen).await?;
            }
            others = &[];
        }
    }

    /// Looks at the block of a leaf that was not to be had. The outcome of `write`, if another has overtaken
    /// it; of those that wait at its gate, such as are overtaken end.
    pub(crate) fn look(
        &self,
        write: &Write<'_>,
        (watch, hold): (&mut Watch, Option<&mut Hold<'_>>),
        leaf: (LeafPlace, &[Line]),
    ) -> Option<WriteOutcome> {
        let geometry = self.table().geometry();
        if let Some(hold) =
            hold.filter(|hold| read_mode(write.operation) == ReadMode::Stamped && hold.is_of(leaf.0))
        {
            hold.look(|watch, write| watch.look(write, geometry, leaf));
        }
        watch.look(write, geometry, leaf)
    }

    /// [`Walk::next`] of a write that may hold the lock of the wrong leaf, which an error releases.
    async fn next_of_write<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        walk: &mut Walk<'_>,
        (at, held): (LeafPlace, Option<LeafPlace>),
        lock: LockWord,
        seen: Seen,
    ) -> Result<LeafPlace, RolexError> {
        let next = walk.next(slot, at, lock, seen).await;
        if let (Err(_), Some(held)) = (&next, held) {
            self.release(slot, held).await?;
        }
        next
    }

    /// Locks a leaf, if it is free, and READs its block behind that; releases `wrong` in the same doorbell.
    /// Returns the lock word that it found.
    pub(crate) async fn lock_and_read<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (place, mode): (LeafPlace, ReadMode),
        lock: LockWord,
        wrong: Option<LeafPlace>,
        block: &mut [Line],
    ) -> Result<LockWord, FabricError> {
        let (table, node) = (self.table(), place.node());
        if let Some(wrong) = wrong {
            slot.post_write(wrong.node(), 0, table.address(wrong, OWNER_WORD), &[LockWord::FREE.0]);
        }
        let (from, lines) = (table.address(place, 0), block.len());
        let read = || slot.post_read(node, 2, from, lines, mode);
        #[cfg(injected)]
        let read = first_if(injected::NO_REREAD_UNDER_LOCK.is_injected(), read);
        slot.post_compare_swap(node, 1, table.address(place, OWNER_WORD), LockWord::FREE.0, lock.0);
        read();
        slot.completed().await;
        if let Some(wrong) = wrong {
            slot.take_word(wrong.node(), 0)?;
        }
        let found = LockWord(slot.take_word(node, 1)?);
        slot.take_read(node, 2, block)?;
        Ok(found)
    }

    /// Posts READs of the key lines of candidates but `locked`.
    fn post_key_lines<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        candidates: &[LeafPlace],
        locked: LeafPlace,
    ) {
        for (index, place) in candidates.iter().enumerate().filter(|(_, place)| **place != locked) {
            let from = self.table().address(*place, 0);
            slot.post_read(place.node(), 3 + index, from, KEY_LINES, ReadMode::Stamped);
        }
    }

    /// Changes the leaf, which is consistent, locked and the key's, and releases it; with the session's own
    /// write, those that wait at its gate. It was found so many steps to the right. `None`: its own is not
    /// done, and there is room for a split now.
    async fn change<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (candidates, (place, steps), hold): (&Candidates, (LeafPlace, u32), Option<&mut Hold<'_>>),
        mut leaf: LockedLeaf<'_>,
        write: &Write<'_>,
        locking: Counted<'_>,
    ) -> Result<Option<WriteOutcome>, RolexError> {
        let mut writes = self.buffers.plans.lend();
        writes.clear();
        let mut taken = self.buffers.taken.lend();
        let (taken, parts) = &mut *taken;
        taken.clear();
        parts.clear();
        let mut hold = hold;
        if let Some(hold) = &mut hold {
            hold.take(taken);
        }
        let mut born = Born::default();
        let planned = self.plan_leaf(&mut leaf, (write, taken), (&mut writes, parts), (place, &mut born));
        #[cfg(injected)]
        if injected::UNLOCKED_FIRST.is_injected() {
            writes.put_last_first();
        }
        let is_removed = matches!(planned, Planned::Done(WriteOutcome::Removed(_)));
        let is_news = born.0.is_some() || is_removed && is_to_be_merged(&leaf);
        let counted_in = is_news.then_some(candidates.group);
        let executed = self.execute_and_count(slot, &writes, counted_in).await;
        drop(locking);
        if let Some(hold) = hold.filter(|_| !taken.is_empty()) {
            match &executed {
                Ok(_) => hold.end(ends(taken, parts)),
                Err(error) => hold.lose(error),
            }
        }
        let key = write.key;
        let is_counted = executed.map_err(|source| RolexError::Indeterminate { key, source })?;
        if let Some((low, place)) = born.0 {
            let found = FoundLeaf { steps: steps + 1, low, place };
            self.hints.note_found(candidates.group, [found].into_iter());
        }
        if is_news && !is_counted {
            // The write is done. A split that nobody counts costs walks; a fabric that failed says so to the
            // next operation.
            let _ = self.hints.count_split(slot, key).await;
        }
        match planned {
            Planned::Done(outcome) => Ok(Some(outcome)),
            Planned::NeedsBlock if self.stock_room(slot, place.node()).await? => Ok(None),
            Planned::NeedsBlock => Ok(Some(WriteOutcome::Failed(ErrorCode::RegionFull))),
            Planned::Elsewhere | Planned::Damaged => {
                Err(RolexError::Astray { key, place, steps: 1, found: "a leaf that no writer leaves" })
            }
        }
    }

    /// Plans the session's own write and those that it took, and the release of the lock. What becomes of
    /// the own one; if it splits the leaf, what was `born`.
    fn plan_leaf(
        &self,
        leaf: &mut LockedLeaf<'_>,
        (write, taken): (&Write<'_>, &[Asked]),
        (writes, parts): (&mut Writes, &mut Vec<Part>),
        (place, born): (LeafPlace, &mut Born),
    ) -> Planned {
        let own = plan_together(leaf, (write, taken), WRITES_MAX, writes, parts);
        let others = writes.len();
        let mut planned = match own {
            Part::Done(outcome) => Planned::Done(outcome),
            Part::Own | Part::Later | Part::Open => plan_locked(leaf, None, write, writes),
        };
        let room = || self.rooms.borrow_mut().take_ready(place.node());
        if let Some(room) = (planned == Planned::NeedsBlock).then(room).flatten() {
            let geometry = *self.table().geometry();
            let (place, mut lines) = (room.place, room.into_lines(geometry.lines()));
            let mut right = LockedLeaf::new(&geometry, place.leaf_number(), &mut lines);
            planned = plan_locked(leaf, Some(&mut right), write, writes);
            *born = Born(right.fences().map(|fences| (fences.low, place)));
        }
        if !matches!(planned, Planned::Done(_)) {
            writes.truncate(others);
            *born = Born::default();
        }
        leaf.unlock(LockWord::FREE, writes);
        planned
    }

    /// Releases a lock under which nothing was changed.
    pub(crate) async fn release<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        place: LeafPlace,
    ) -> Result<(), FabricError> {
        slot.post_write(place.node(), 0, self.table().address(place, OWNER_WORD), &[LockWord::FREE.0]);
        slot.completed().await;
        slot.take_word(place.node(), 0).map(|_| ())
    }

    /// Executes WRITEs in their order: those of one memory node in as few doorbells as the operation's verbs
    /// allow. Before the first of another node all before it are complete.
    pub(crate) async fn execute<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        writes: &Writes,
    ) -> Result<(), FabricError> {
        self.execute_and_count(slot, writes, None).await.map(drop)
    }

    /// [`RolexSession::execute`]; counts a change in `counted_in` in the last doorbell. True if that is
    /// where a trainer looks.
    ///
    /// The count may execute before the WRITEs, which may go to another memory node. A trainer that sees the
    /// count and not the WRITEs sees the leaf locked, and looks again.
    pub(crate) async fn execute_and_count<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        writes: &Writes,
        counted_in: Option<GroupId>,
    ) -> Result<bool, FabricError> {
        let place_of = |index| self.table().place(writes.get(index).0).expect("a leaf of the table");
        let verbs = slot.verbs() - if counted_in.is_some() { COUNT_VERBS } else { 0 };
        let (mut begin, mut posted) = (0, None);
        while begin < writes.len() {
            let node = place_of(begin).node();
            let end = (begin..writes.len())
                .take(verbs)
                .find(|index| place_of(*index).node() != node)
                .unwrap_or((begin + verbs).min(writes.len()));
            for (verb, index) in (begin..end).enumerate() {
                let (_, word, words) = writes.get(index);
                slot.post_write(node, verb, self.table().address(place_of(index), word), words);
            }
            if end == writes.len() {
                posted = counted_in.and_then(|group| self.hints.post_split(slot, verbs, group));
            }
            slot.completed().await;
            for verb in 0..end - begin {
                slot.take_word(node, verb)?;
            }
            begin = end;
        }
        self.hints.is_counted(slot, posted)
    }
}

/// Whether the trainer is to look at a leaf that lost a pair: it is empty, and may be merged into another.
/// Any leaf but the table's first one may, if not in this directory then in a later one.
pub(crate) fn is_to_be_merged(leaf: &LockedLeaf<'_>) -> bool {
    leaf.is_empty() && may_be_merged(leaf)
}

/// Whether the leaf may be merged into another once it is empty.
pub(crate) fn may_be_merged(leaf: &LockedLeaf<'_>) -> bool {
    leaf.fences().is_some_and(|fences| fences.low > 0)
}

/// The candidate whose fences, as READ, hold the key.
fn other_owner<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    candidates: &[LeafPlace],
    locked: LeafPlace,
    key: u64,
) -> Result<Option<LeafPlace>, FabricError> {
    let mut lines = [Line::ZERO; KEY_LINES];
    for (index, place) in candidates.iter().enumerate().filter(|(_, place)| **place != locked) {
        slot.take_read(place.node(), 3 + index, &mut lines)?;
        if matches!(KeyLines(&lines).search(key), KeySearch::Hit { .. } | KeySearch::Absent) {
            return Ok(Some(*place));
        }
    }
    Ok(None)
}

/// `act`, or done already.
#[cfg(injected)]
fn first_if(is_first: bool, act: impl Fn()) -> impl Fn() {
    if is_first {
        act();
    }
    move || {
        if !is_first {
            act();
        }
    }
}
