//! The lane: many operations at once on one thread, each a small future, for everything that does not fit a
//! straight batch (walks, retries, calls).
//!
//! Invariant: an operation owns one slot of the queue pair while it runs, and has at most one verb in flight.
//!
//! Protocol: the lane polls its operations round-robin. A verb's future posts on its first poll and is ready
//! once its slot is complete. When every operation waits, the lane rings one doorbell for all that was posted
//! and polls completions. No allocation an operation, no wakers: who is ready is the queue pair's knowledge.
//! A lane that sees no completion for [`STALL_TIMEOUT`] ends with [`FabricError::TimedOut`].

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::{Line, RemoteAddress};

use crate::{FabricError, QueuePair, ReadMode, Slot};

/// How long a lane waits without any completion before it gives up.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long one sleep of a waiting lane lasts at most, so that stalls are noticed.
const WAIT_STEP: Duration = Duration::from_millis(100);

/// A queue pair lent to operations that run side by side.
pub struct Lane<'q, Q> {
    queue: RefCell<&'q mut Q>,
    posted: Cell<bool>,
}

/// One operation's place in a lane.
pub struct LaneSlot<'l, 'q, Q> {
    queue: &'l RefCell<&'q mut Q>,
    posted: &'l Cell<bool>,
    slot: Slot,
}

impl<'q, Q: QueuePair> Lane<'q, Q> {
    /// A lane over `queue`, whose batch must be empty.
    pub fn new(queue: &'q mut Q) -> Self {
        Self { queue: RefCell::new(queue), posted: Cell::new(false) }
    }

    /// Runs `start(slot, operation)` for every one of `operations`, at most `width` at once.
    ///
    /// # Errors
    /// What the fabric reported: then operations that had not finished have an unknown outcome.
    ///
    /// # Panics
    /// If `width` is zero or exceeds the queue pair's slots.
    pub fn run<'l, Operation, Started>(
        &'l self,
        width: usize,
        operations: impl IntoIterator<Item = Operation>,
        mut start: impl FnMut(LaneSlot<'l, 'q, Q>, Operation) -> Started,
    ) -> Result<(), FabricError>
    where
        Started: Future<Output = ()>,
    {
        assert!((1..=Q::SLOTS).contains(&width), "a lane of {width} over {} slots", Q::SLOTS);
        let mut operations = operations.into_iter();
        let mut places: Vec<Pin<Box<Option<Started>>>> = Vec::new();
        for slot in 0..width {
            let Some(operation) = operations.next() else { break };
            places.push(Box::pin(Some(start(self.slot(slot), operation))));
        }
        let mut running = places.len();
        let mut progress_at = self.now();
        while running > 0 {
            for (slot, place) in places.iter_mut().enumerate() {
                // A finished operation makes room for the next, which posts at once; bounded by the
                // operations.
                while poll_once(place) == Some(Poll::Ready(())) {
                    if let Some(operation) = operations.next() {
                        place.set(Some(start(self.slot(slot), operation)));
                    } else {
                        place.set(None);
                        running -= 1;
                    }
                }
            }
            if running > 0 {
                self.ring_and_collect(&mut progress_at)?;
            }
        }
        Ok(())
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
        let mut operation = std::pin::pin!(start(self.slot(0)));
        let mut context = Context::from_waker(Waker::noop());
        let mut progress_at = self.now();
        loop {
            if let Poll::Ready(result) = operation.as_mut().poll(&mut context) {
                return Ok(result);
            }
            self.ring_and_collect(&mut progress_at)?;
        }
    }

    /// Waits for the reply to a call that was posted in `slot` and rung.
    ///
    /// # Errors
    /// As [`QueuePair::take_reply`]; [`FabricError::TimedOut`].
    pub fn await_reply(&self, slot: Slot, reply: &mut Vec<u8>) -> Result<(), FabricError> {
        let mut progress_at = self.now();
        while !self.queue.borrow().is_complete(slot) {
            self.ring_and_collect(&mut progress_at)?;
        }
        self.queue.borrow_mut().take_reply(slot, reply)
    }

    fn now(&self) -> MonotonicNs {
        self.queue.borrow().now()
    }

    fn slot(&self, slot: Slot) -> LaneSlot<'_, 'q, Q> {
        LaneSlot { queue: &self.queue, posted: &self.posted, slot }
    }

    fn ring_and_collect(&self, progress_at: &mut MonotonicNs) -> Result<(), FabricError> {
        let mut queue = self.queue.borrow_mut();
        if self.posted.replace(false) {
            queue.doorbell()?;
        }
        if queue.poll()? > 0 {
            *progress_at = queue.now();
            return Ok(());
        }
        let waited = queue.now().since(*progress_at);
        if waited > STALL_TIMEOUT {
            return Err(FabricError::TimedOut { peer: queue.peer().to_owned(), what: "a verb", waited });
        }
        queue.wait(WAIT_STEP)
    }
}

fn poll_once<F: Future<Output = ()>>(place: &mut Pin<Box<Option<F>>>) -> Option<Poll<()>> {
    let operation = place.as_mut().as_pin_mut()?;
    Some(operation.poll(&mut Context::from_waker(Waker::noop())))
}

impl<Q: QueuePair> LaneSlot<'_, '_, Q> {
    /// The time on the fabric's clock.
    #[must_use]
    pub fn now(&self) -> MonotonicNs {
        self.queue.borrow().now()
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
        self.queue.borrow_mut().post_read(self.slot, from, into.len(), mode);
        self.completion().await;
        self.queue.borrow_mut().take_read(self.slot, into)
    }

    /// Calls the peer's processor with `request` and moves its answer into `reply`.
    ///
    /// # Errors
    /// As [`QueuePair::post_call`] and [`QueuePair::take_reply`].
    pub async fn call(&self, request: &[u8], reply: &mut Vec<u8>) -> Result<(), FabricError> {
        self.queue.borrow_mut().post_call(self.slot, request)?;
        self.completion().await;
        self.queue.borrow_mut().take_reply(self.slot, reply)
    }

    async fn completion(&self) {
        self.posted.set(true);
        let mut rung = false;
        poll_fn(|_| {
            // Never complete before the doorbell: the first poll only waits for it.
            if rung && self.queue.borrow().is_complete(self.slot) {
                return Poll::Ready(());
            }
            rung = true;
            Poll::Pending
        })
        .await;
    }
}
