//! The lane over several nodes: an operation has several verbs in flight at once, at any of them.
//!
//! Invariant: each queue pair's slots are shared out evenly among the places of the lane. So the verbs of an
//! operation at a node are numbered from zero, and no operation touches another's. A verb's number may be
//! used again once the verb was awaited.
//!
//! Protocol: an operation posts what it has to each node in turn, then awaits [`PoolSlot::completed`]. One
//! doorbell a node rings for all that all operations have posted there. So verbs that do not depend on each
//! other are one round trip. Verbs of one node keep the order of their posting as far as the fabric's
//! guarantees go. Verbs of different nodes have none.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::pinned::PinnedMemory;
use farsight_base::{Line, RemoteAddress};

use super::NODES_MAX;
use super::rounds::{Nodes, Rounds};
use crate::{FabricError, QueuePair, ReadMode, Slot};

/// Verbs that an operation has in flight at one node at most.
pub const VERBS_PER_NODE_MAX: usize = 64;

/// Queue pairs, one a node, lent to operations that run side by side.
pub struct PoolLane<'q, Q> {
    rounds: Rounds<'q, Q>,
}

/// One operation's place in a lane over several nodes.
pub struct PoolSlot<'l, 'q, Q> {
    rounds: &'l Rounds<'q, Q>,
    /// The slot of its verb zero, in each queue.
    first: Slot,
    verbs: usize,
    nodes: Cell<Nodes>,
    /// By node: its verbs that have not been seen complete, by the bits of their numbers.
    under_way: [Cell<u64>; NODES_MAX],
}

impl<'q, Q: QueuePair> PoolLane<'q, Q> {
    /// A lane over `queues`, one a node and none with an open batch.
    ///
    /// # Panics
    /// Without a queue, or with more than [`NODES_MAX`].
    pub fn new(queues: &'q mut [Q]) -> Self {
        Self { rounds: Rounds::new(queues) }
    }

    /// Verbs that each of `width` operations may have in flight at one node.
    #[must_use]
    pub const fn verbs_per_node(width: usize) -> usize {
        let share = Q::SLOTS / width;
        if share < VERBS_PER_NODE_MAX { share } else { VERBS_PER_NODE_MAX }
    }

    /// Runs `start(slot, operation)` for every one of `operations`, at most `width` at once, in `memory`.
    /// Each has [`PoolLane::verbs_per_node`] verbs at each node.
    ///
    /// # Errors
    /// What the fabric reported of any node: then operations that had not finished have an unknown outcome.
    ///
    /// # Panics
    /// If `width` is zero or exceeds the slots of a queue pair.
    pub fn run<'l, Operation, Started>(
        &'l self,
        memory: &mut PinnedMemory,
        width: usize,
        operations: impl IntoIterator<Item = Operation>,
        mut start: impl FnMut(PoolSlot<'l, 'q, Q>, Operation) -> Started,
    ) -> Result<(), FabricError>
    where
        Started: Future<Output = ()>,
    {
        self.rounds
            .run(memory, width, operations, |place, operation| start(self.slot(place, width), operation))
    }

    /// Runs one operation to its end.
    ///
    /// # Errors
    /// As [`PoolLane::run`].
    pub fn block_on<'l, Started, T>(
        &'l self,
        start: impl FnOnce(PoolSlot<'l, 'q, Q>) -> Started,
    ) -> Result<T, FabricError>
    where
        Started: Future<Output = T>,
    {
        self.rounds.block_on(start(self.slot(0, 1)))
    }

    fn slot(&self, place: usize, width: usize) -> PoolSlot<'_, 'q, Q> {
        let verbs = Self::verbs_per_node(width);
        let under_way = [const { Cell::new(0) }; NODES_MAX];
        PoolSlot { rounds: &self.rounds, first: place * verbs, verbs, nodes: Cell::default(), under_way }
    }
}

impl<Q: QueuePair> PoolSlot<'_, '_, Q> {
    /// Verbs that this operation may have in flight at each node.
    #[must_use]
    pub fn verbs(&self) -> usize {
        self.verbs
    }

    /// The time on the clock of the first node's fabric.
    #[must_use]
    pub fn now(&self) -> MonotonicNs {
        self.rounds.queues.borrow()[0].now()
    }

    /// Posts a READ of `line_count` lines of `node` at `from`, as verb number `verb`.
    ///
    /// # Panics
    /// Here and below: if there is no such node or verb, or the verb is still under way.
    pub fn post_read(
        &self,
        node: usize,
        verb: usize,
        from: RemoteAddress,
        line_count: usize,
        mode: ReadMode,
    ) {
        self.post(node, verb, |queue, slot| queue.post_read(slot, from, line_count, mode));
    }

    /// Posts a WRITE of `words` to `node`.
    pub fn post_write(&self, node: usize, verb: usize, to: RemoteAddress, words: &[u64]) {
        self.post(node, verb, |queue, slot| queue.post_write(slot, to, words));
    }

    /// Posts a compare-and-swap of a word of `node`; the verb yields the word as it was.
    pub fn post_compare_swap(&self, node: usize, verb: usize, at: RemoteAddress, expected: u64, new: u64) {
        self.post(node, verb, |queue, slot| queue.post_compare_swap(slot, at, expected, new));
    }

    /// Posts a fetch-and-add on a word of `node`; the verb yields the word as it was.
    pub fn post_fetch_add(&self, node: usize, verb: usize, at: RemoteAddress, delta: u64) {
        self.post(node, verb, |queue, slot| queue.post_fetch_add(slot, at, delta));
    }

    /// Waits until everything that this operation has posted is complete.
    pub async fn completed(&self) {
        let mut rung = false;
        poll_fn(|_| {
            // Never complete before the doorbell: the first poll only waits for it.
            if rung {
                self.look();
            }
            rung = true;
            if self.nodes.get().is_empty() {
                return Poll::Ready(());
            }
            self.rounds.note_awaited(self.nodes.get());
            Poll::Pending
        })
        .await;
    }

    /// Lets `duration` pass, while other operations go on.
    pub async fn pause(&self, duration: Duration) {
        let until = self.now().plus(duration);
        poll_fn(|_| {
            if self.now() >= until {
                return Poll::Ready(());
            }
            self.rounds.note_pause(until);
            Poll::Pending
        })
        .await;
    }

    /// Copies the lines that a completed READ fetched; as many as were posted.
    ///
    /// # Errors
    /// As [`QueuePair::take_read`].
    pub fn take_read(&self, node: usize, verb: usize, into: &mut [Line]) -> Result<(), FabricError> {
        self.rounds.queues.borrow_mut()[node].take_read(self.slot_of(verb), into)
    }

    /// The word that a completed atomic found, or zero for a completed WRITE.
    ///
    /// # Errors
    /// As [`QueuePair::take_word`].
    pub fn take_word(&self, node: usize, verb: usize) -> Result<u64, FabricError> {
        self.rounds.queues.borrow_mut()[node].take_word(self.slot_of(verb))
    }

    /// READs `into.len()` lines of `node` at `from`, as verb zero, and waits for all that was posted.
    ///
    /// # Errors
    /// As [`QueuePair::take_read`].
    pub async fn read(
        &self,
        node: usize,
        from: RemoteAddress,
        into: &mut [Line],
        mode: ReadMode,
    ) -> Result<(), FabricError> {
        self.post_read(node, 0, from, into.len(), mode);
        self.completed().await;
        self.take_read(node, 0, into)
    }

    /// Calls the processor of `node` with `request`, as verb zero, and moves its answer into `reply`; waits
    /// for all that was posted.
    ///
    /// # Errors
    /// As [`QueuePair::post_call`] and [`QueuePair::take_reply`].
    pub async fn call(&self, node: usize, request: &[u8], reply: &mut Vec<u8>) -> Result<(), FabricError> {
        self.rounds.queues.borrow_mut()[node].post_call(self.slot_of(0), request)?;
        self.note(node, 0);
        self.completed().await;
        self.rounds.queues.borrow_mut()[node].take_reply(self.slot_of(0), reply)
    }

    /// [`PoolSlot::call`] that is awaited until `until` at most: false then. Nobody takes its answer then.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If anything else is under way.
    pub async fn call_until(
        &self,
        node: usize,
        request: &[u8],
        reply: &mut Vec<u8>,
        until: MonotonicNs,
    ) -> Result<bool, FabricError> {
        assert!(self.nodes.get().is_empty(), "verbs that are not awaited beside a call that may be left");
        self.rounds.queues.borrow_mut()[node].post_call(self.slot_of(0), request)?;
        self.note(node, 0);
        if !self.completed_until(until).await {
            return Ok(false);
        }
        self.rounds.queues.borrow_mut()[node].take_reply(self.slot_of(0), reply).map(|()| true)
    }

    /// As [`PoolSlot::completed`], until `until` at most. False: what is not complete by then is forgotten.
    async fn completed_until(&self, until: MonotonicNs) -> bool {
        let mut rung = false;
        poll_fn(|_| {
            // As there.
            if rung {
                self.look();
            }
            rung = true;
            if self.nodes.get().is_empty() {
                return Poll::Ready(true);
            }
            if self.now() >= until {
                // A slot may be posted to again while its call is under way.
                self.under_way.iter().for_each(|of_node| of_node.set(0));
                self.nodes.set(Nodes::default());
                return Poll::Ready(false);
            }
            self.rounds.note_awaited(self.nodes.get());
            self.rounds.note_pause(until);
            Poll::Pending
        })
        .await
    }

    fn post(&self, node: usize, verb: usize, post: impl FnOnce(&mut Q, Slot)) {
        post(&mut self.rounds.queues.borrow_mut()[node], self.slot_of(verb));
        self.note(node, verb);
    }

    fn slot_of(&self, verb: usize) -> Slot {
        assert!(verb < self.verbs, "verb {verb} of an operation that has {} at a node", self.verbs);
        self.first + verb
    }

    fn note(&self, node: usize, verb: usize) {
        let others = self.under_way[node].get();
        assert!(others >> verb & 1 == 0, "verb {verb} at node {node} is still under way");
        self.under_way[node].set(others | 1 << verb);
        self.nodes.set(self.nodes.get().with(node));
        self.rounds.note_posted(node);
    }

    /// Forgets what has become complete.
    fn look(&self) {
        let queues = self.rounds.queues.borrow();
        for node in self.nodes.get().iter() {
            let mut left = self.under_way[node].get();
            while left != 0 && queues[node].is_complete(self.first + left.trailing_zeros() as usize) {
                left &= left - 1;
            }
            self.under_way[node].set(left);
            if left == 0 {
                self.nodes.set(self.nodes.get().without(node));
            }
        }
    }
}
