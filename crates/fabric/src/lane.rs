//! The lane: many operations at once on one thread, each a small future, for everything that does not fit a
//! straight batch (walks, retries, calls). [`Lane`] goes to one node, with one verb an operation in flight;
//! [`PoolLane`] to several, with several verbs.
//!
//! Invariant: an operation owns its slots of the queue pairs while it runs.
//!
//! Protocol: the lane polls its operations round-robin. A verb's future posts on its first poll and is ready
//! once its slot is complete. When every operation waits, the lane rings one doorbell a node for all that was
//! posted there and polls completions. Operations live in memory that the caller keeps from lane to lane, so
//! none of them is allocated. There are no wakers: the queue pair knows who is ready. A lane that sees no
//! completion for [`STALL_TIMEOUT`] ends with [`FabricError::TimedOut`].

mod pool;
mod rounds;

use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::pinned::PinnedMemory;
use farsight_base::{Line, RemoteAddress};

use crate::{FabricError, QueuePair, ReadMode, Slot};

pub use pool::{PoolLane, PoolSlot, VERBS_PER_NODE_MAX};
use rounds::{Nodes, Rounds, Stillness};

/// How long a lane waits without any completion before it gives up.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(5);
/// Nodes that one lane goes to at most.
pub const NODES_MAX: usize = 16;

/// A queue pair lent to operations that run side by side.
pub struct Lane<'q, Q> {
    rounds: Rounds<'q, Q>,
}

/// One operation's place in a lane.
pub struct LaneSlot<'l, 'q, Q> {
    rounds: &'l Rounds<'q, Q>,
    slot: Slot,
}

impl<'q, Q: QueuePair> Lane<'q, Q> {
    /// A lane over `queue`, whose batch must be empty.
    pub fn new(queue: &'q mut Q) -> Self {
        Self { rounds: Rounds::new(std::slice::from_mut(queue)) }
    }

    /// Runs `start(slot, operation)` for every one of `operations`, at most `width` at once, in `memory`.
    ///
    /// # Errors
    /// What the fabric reported: then operations that had not finished have an unknown outcome.
    ///
    /// # Panics
    /// If `width` is zero or exceeds the queue pair's slots.
    pub fn run<'l, Operation, Started>(
        &'l self,
        memory: &mut PinnedMemory,
        width: usize,
        operations: impl IntoIterator<Item = Operation>,
        mut start: impl FnMut(LaneSlot<'l, 'q, Q>, Operation) -> Started,
    ) -> Result<(), FabricError>
    where
        Started: Future<Output = ()>,
    {
        self.rounds.run(memory, width, operations, |slot, operation| start(self.slot(slot), operation))
    }

    /// Runs one operation to its end.
    ///
    /// # Errors
    /// As [`Lane::run`].
    pub fn block_on<'l, Started, T>(
        &'l self,
        start: impl FnOnce(LaneSlot<'l, 'q, Q>) -> Started,
    ) -> Result<T, FabricError>
    where
        Started: Future<Output = T>,
    {
        self.rounds.block_on(start(self.slot(0)))
    }

    /// Waits for the reply to a call that was posted in `slot` and rung.
    ///
    /// # Errors
    /// As [`QueuePair::take_reply`]; [`FabricError::TimedOut`].
    pub fn await_reply(&self, slot: Slot, reply: &mut Vec<u8>) -> Result<(), FabricError> {
        let mut stillness = Stillness::default();
        while !self.rounds.queues.borrow()[0].is_complete(slot) {
            self.rounds.note_awaited(Nodes::default().with(0));
            self.rounds.ring_and_collect(&mut stillness)?;
        }
        self.rounds.queues.borrow_mut()[0].take_reply(slot, reply)
    }

    fn slot(&self, slot: Slot) -> LaneSlot<'_, 'q, Q> {
        LaneSlot { rounds: &self.rounds, slot }
    }
}

impl<Q: QueuePair> LaneSlot<'_, '_, Q> {
    /// The time on the fabric's clock.
    #[must_use]
    pub fn now(&self) -> MonotonicNs {
        self.rounds.queues.borrow()[0].now()
    }

    /// READs `into.len()` lines at `from`.
    ///
    /// # Errors
    /// As [`QueuePair::take_read`].
    pub async fn read(
        &self,
        from: RemoteAddress,
        into: &mut [Line],
        mode: ReadMode,
    ) -> Result<(), FabricError> {
        self.rounds.queues.borrow_mut()[0].post_read(self.slot, from, into.len(), mode);
        self.completion().await;
        self.rounds.queues.borrow_mut()[0].take_read(self.slot, into)
    }

    /// Calls the peer's processor with `request` and moves its answer into `reply`.
    ///
    /// # Errors
    /// As [`QueuePair::post_call`] and [`QueuePair::take_reply`].
    pub async fn call(&self, request: &[u8], reply: &mut Vec<u8>) -> Result<(), FabricError> {
        self.rounds.queues.borrow_mut()[0].post_call(self.slot, request)?;
        self.completion().await;
        self.rounds.queues.borrow_mut()[0].take_reply(self.slot, reply)
    }

    async fn completion(&self) {
        self.rounds.note_posted(0);
        let mut rung = false;
        poll_fn(|_| {
            // Never complete before the doorbell: the first poll only waits for it.
            if rung && self.rounds.queues.borrow()[0].is_complete(self.slot) {
                return Poll::Ready(());
            }
            rung = true;
            self.rounds.note_awaited(Nodes::default().with(0));
            Poll::Pending
        })
        .await;
    }
}
