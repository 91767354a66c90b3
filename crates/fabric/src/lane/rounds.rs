//! What both lanes are made of: operations polled in rounds, and between two rounds doorbells and
//! completions.
//!
//! Invariant: an operation that is not ready has named, since it was last polled, every queue for which it
//! waits. So no round sleeps while a queue that an operation waits for holds a completion.
//!
//! Protocol: a round polls each operation once, rings the queues that were posted to, and polls the queues
//! that are waited for. If none of them has a completion, the round sleeps on one of them. It sleeps on a
//! single one for [`WAIT_STEP`], on several in turns for a time that begins short and doubles, because it
//! must notice whichever completes first. A queue that is waited for and completes nothing for
//! [`STALL_TIMEOUT`] ends the lane.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::pinned::{PinnedMemory, Places};

use super::{NODES_MAX, STALL_TIMEOUT};
use crate::{FabricError, QueuePair};

/// How long one sleep of a waiting lane lasts at most, so that stalls are noticed.
const WAIT_STEP: Duration = Duration::from_millis(100);
/// The first sleep on one of several queues; it doubles while nothing completes.
const TURN_MIN: Duration = Duration::from_micros(20);
/// The longest sleep on one of several queues.
const TURN_MAX: Duration = Duration::from_millis(5);

/// Some of the queues, by the bits of their numbers.
#[derive(Clone, Copy, Default)]
pub(super) struct Nodes(u32);

impl Nodes {
    pub(super) fn with(self, node: usize) -> Self {
        Self(self.0 | 1 << node)
    }

    pub(super) fn without(self, node: usize) -> Self {
        Self(self.0 & !(1 << node))
    }

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn are_several(self) -> bool {
        self.0 & self.0.wrapping_sub(1) != 0
    }

    /// Their numbers, ascending.
    pub(super) fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let node = (left != 0).then(|| left.trailing_zeros() as usize);
            left &= left.wrapping_sub(1);
            node
        })
    }

    /// The first of them at `turn` or behind it, or else the first of all.
    fn at_turn(self, turn: usize) -> usize {
        let behind = self.0 & (u32::MAX << turn);
        (if behind != 0 { behind } else { self.0 }).trailing_zeros() as usize
    }
}

/// Queue pairs, one a node, and what the operations of a lane said about them.
pub(super) struct Rounds<'q, Q> {
    pub(super) queues: RefCell<&'q mut [Q]>,
    posted: Cell<Nodes>,
    awaited: Cell<Nodes>,
    /// The earliest end of the operations' pauses.
    paused_until: Cell<Option<MonotonicNs>>,
}

/// How long nothing has completed.
#[derive(Default)]
pub(super) struct Stillness {
    /// By node: when it was first found without a completion that somebody waits for.
    since: [Option<MonotonicNs>; NODES_MAX],
    /// Rounds in a row in which nothing completed.
    rounds: u32,
}

impl<'q, Q: QueuePair> Rounds<'q, Q> {
    pub(super) fn new(queues: &'q mut [Q]) -> Self {
        assert!((1..=NODES_MAX).contains(&queues.len()), "a lane over {} nodes", queues.len());
        let queues = RefCell::new(queues);
        Self { queues, posted: Cell::default(), awaited: Cell::default(), paused_until: Cell::default() }
    }

    /// Notes that something was posted to the queue of `node`.
    pub(super) fn note_posted(&self, node: usize) {
        self.posted.set(self.posted.get().with(node));
    }

    /// Notes that the operation that is being polled waits for these queues.
    pub(super) fn note_awaited(&self, nodes: Nodes) {
        self.awaited.set(Nodes(self.awaited.get().0 | nodes.0));
    }

    /// Notes that the operation that is being polled goes on at `until`, whatever completes.
    pub(super) fn note_pause(&self, until: MonotonicNs) {
        let earliest = self.paused_until.get().map_or(until, |other| other.min(until));
        self.paused_until.set(Some(earliest));
    }

    /// Runs `start(place, operation)` for each operation, in `width` places of `memory`.
    pub(super) fn run<Operation, Started>(
        &self,
        memory: &mut PinnedMemory,
        width: usize,
        operations: impl IntoIterator<Item = Operation>,
        mut start: impl FnMut(usize, Operation) -> Started,
    ) -> Result<(), FabricError>
    where
        Started: Future<Output = ()>,
    {
        assert!((1..=Q::SLOTS).contains(&width), "a lane of {width} over {} slots", Q::SLOTS);
        let mut operations = operations.into_iter();
        memory.with_places(width, |places| {
            for (place, operation) in (0..width).zip(&mut operations) {
                places.add(start(place, operation));
            }
            let mut running = places.count();
            let mut stillness = Stillness::default();
            while running > 0 {
                for place in 0..places.count() {
                    // A finished operation makes room for the next, which posts at once; bounded by the
                    // operations.
                    while poll_once(places, place) == Some(Poll::Ready(())) {
                        let next = operations.next().map(|operation| start(place, operation));
                        running -= usize::from(next.is_none());
                        places.place(place).set(next);
                    }
                }
                if running > 0 {
                    self.ring_and_collect(&mut stillness)?;
                }
            }
            Ok(())
        })
    }

    /// Runs one operation to its end.
    pub(super) fn block_on<T>(&self, operation: impl Future<Output = T>) -> Result<T, FabricError> {
        let mut operation = std::pin::pin!(operation);
        let mut context = Context::from_waker(Waker::noop());
        let mut stillness = Stillness::default();
        loop {
            if let Poll::Ready(result) = operation.as_mut().poll(&mut context) {
                return Ok(result);
            }
            self.ring_and_collect(&mut stillness)?;
        }
    }

    /// Sends what was posted, and sees to it that something completes.
    pub(super) fn ring_and_collect(&self, stillness: &mut Stillness) -> Result<(), FabricError> {
        let mut queues = self.queues.borrow_mut();
        let (awaited, paused_until) = (self.awaited.take(), self.paused_until.take());
        for node in self.posted.take().iter() {
            queues[node].doorbell()?;
        }
        let mut completed = 0;
        for node in awaited.iter() {
            let of_node = queues[node].poll()?;
            if of_node > 0 {
                stillness.since[node] = None;
            }
            completed += of_node;
        }
        if completed > 0 {
            stillness.rounds = 0;
            return Ok(());
        }
        if awaited.is_empty() {
            // All operations pause: a completion that one of them saw before it was polled would end the
            // sleep at once, again and again.
            queues[0].poll()?;
        }
        stillness.wait(&mut queues, awaited, paused_until)
    }
}

impl Stillness {
    fn wait<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        awaited: Nodes,
        paused_until: Option<MonotonicNs>,
    ) -> Result<(), FabricError> {
        for (node, since) in self.since.iter_mut().enumerate().take(queues.len()) {
            if awaited.0 >> node & 1 == 0 {
                *since = None;
                continue;
            }
            let now = queues[node].now();
            let waited = now.since(*since.get_or_insert(now));
            if waited > STALL_TIMEOUT {
                let peer = queues[node].peer().to_owned();
                return Err(FabricError::TimedOut { peer, what: "a verb", waited });
            }
        }
        let turn = self.rounds as usize % queues.len();
        // Where all operations pause, any queue's clock will do; a completion that came behind its last poll
        // would end each sleep on it at once.
        let node = if awaited.is_empty() { 0 } else { awaited.at_turn(turn) };
        if awaited.is_empty() && queues[node].poll()? > 0 {
            return Ok(());
        }
        let mut step = if awaited.are_several() {
            TURN_MAX.min(TURN_MIN * (1 << (self.rounds / queues.len() as u32).min(10)))
        } else {
            WAIT_STEP
        };
        if let Some(until) = paused_until {
            step = step.min(until.since(queues[node].now()));
        }
        self.rounds = self.rounds.wrapping_add(1);
        queues[node].wait(step)
    }
}

fn poll_once<F: Future<Output = ()>>(places: &mut Places<'_, F>, place: usize) -> Option<Poll<()>> {
    let operation = places.place(place).as_pin_mut()?;
    Some(operation.poll(&mut Context::from_waker(Waker::noop())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_come_in_turns() {
        let nodes = Nodes::default().with(1).with(3).with(15);
        assert_eq!(nodes.iter().collect::<Vec<_>>(), [1, 3, 15]);
        assert_eq!([0, 1, 2, 3, 4, 15].map(|turn| nodes.at_turn(turn)), [1, 1, 3, 3, 15, 15]);
        assert_eq!(nodes.without(15).at_turn(4), 1);
        assert!(nodes.are_several() && !Nodes::default().with(7).are_several());
        assert!(!nodes.is_empty() && nodes.without(1).without(3).without(15).is_empty());
    }
}
