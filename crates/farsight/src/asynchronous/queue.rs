//! The requests of all futures of one table that are alive, and the answers that wait for them.
//!
//! Invariant: a slot belongs to one live future from its first poll to its end. Once the driver has taken the
//! request, the slot is the driver's until it has answered. A future that is dropped takes its waiting
//! request with it. So the queue is never longer than the futures that the program itself keeps. Requests
//! that nobody waits for any more are at most what the driver takes at once.
//!
//! Protocol: *free* → `submit` → *waiting* → `take` → *taken* → `complete` → *done* → `collect` → *free*.
//! `abandon` frees a slot that is waiting or done, and leaves one that is taken to `complete`. Nothing here
//! wakes or drops a waker: that runs code of other people, who may come back for the lock that this stands
//! behind. Wakers are handed to the caller for the time after.

use std::task::{Context, Waker};

use farsight_client::{Direction, Lifetime, ReadError, WriteError};
use farsight_index::{Answers, Pairs};
use farsight_protocol::{WriteOperation, WriteOutcome};

use super::held_key::HeldKey;

/// A slot's number.
pub(super) type SlotIndex = u32;

/// The end of a list of slots.
const NONE: SlotIndex = SlotIndex::MAX;

/// What a future asks for. The operand of a write is in its slot.
#[derive(Debug)]
pub(super) enum Request<H> {
    Get(H),
    MultiGet(Vec<H>),
    /// Of encoded keys, which have an order.
    Scan {
        direction: Direction,
        first: u64,
        last: u64,
        limit: usize,
    },
    Write(WriteOperation, H, Lifetime),
}

/// What became of a request. The value that a GET found, or that a write found and returns, is in its slot.
#[derive(Debug)]
pub(super) enum Completion {
    Get(Result<Option<u64>, ReadError>),
    MultiGet(Result<Answers, ReadError>),
    Scan(Result<Pairs, ReadError>),
    Write(Result<WriteOutcome, WriteError>),
}

/// The list in which a request waits, so that a long one keeps no short one waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lane {
    /// Of one key.
    Short = 0,
    /// Of as many keys as its future likes.
    Long = 1,
}

impl<H> Request<H> {
    fn lane(&self) -> Lane {
        match self {
            Self::Get(_) | Self::Write(..) => Lane::Short,
            Self::MultiGet(_) | Self::Scan { .. } => Lane::Long,
        }
    }
}

#[derive(Debug)]
enum SlotState<H> {
    Free,
    Waiting(Request<H>),
    Taken,
    Abandoned,
    Done(Completion),
}

#[derive(Debug)]
struct Slot<H> {
    state: SlotState<H>,
    waker: Option<Waker>,
    /// The value of a write or of a GET's answer: kept, so that it allocates once.
    value: Vec<u8>,
    /// Neighbours in a list of waiting slots; `next` also links the free ones.
    previous: SlotIndex,
    next: SlotIndex,
}

/// The ends of a list of waiting slots.
#[derive(Clone, Copy, Debug)]
struct List {
    oldest: SlotIndex,
    newest: SlotIndex,
}

/// Slots, with a list of waiting ones a lane, oldest first, and one of the free ones.
#[derive(Debug)]
pub(super) struct RequestQueue<H> {
    slots: Vec<Slot<H>>,
    lanes: [List; 2],
    free: SlotIndex,
}

impl<H: HeldKey> RequestQueue<H> {
    pub(super) fn new() -> Self {
        Self { slots: Vec::new(), lanes: [List { oldest: NONE, newest: NONE }; 2], free: NONE }
    }

    /// True if no request waits to be taken.
    pub(super) fn is_empty(&self) -> bool {
        self.lanes.iter().all(|list| list.oldest == NONE)
    }

    /// Puts a request, with the value that it writes, behind those that wait in its lane.
    pub(super) fn submit(&mut self, request: Request<H>, value: &[u8], waker: Waker) -> SlotIndex {
        let index = self.allocate();
        let lane = request.lane() as usize;
        let previous = self.lanes[lane].newest;
        let slot = self.slot(index);
        slot.state = SlotState::Waiting(request);
        slot.waker = Some(waker);
        slot.value.clear();
        slot.value.extend_from_slice(value);
        slot.previous = previous;
        slot.next = NONE;
        match previous {
            NONE => self.lanes[lane].oldest = index,
            _ => self.slot(previous).next = index,
        }
        self.lanes[lane].newest = index;
        index
    }

    /// Takes the oldest request that waits in a lane: its slot, itself, and the value that it writes.
    pub(super) fn take(&mut self, lane: Lane) -> Option<(SlotIndex, Request<H>, &[u8])> {
        let index = self.lanes[lane as usize].oldest;
        if index == NONE {
            return None;
        }
        self.unlink(index, lane);
        let slot = self.slot(index);
        match std::mem::replace(&mut slot.state, SlotState::Taken) {
            SlotState::Waiting(request) => Some((index, request, &slot.value)),
            other => unreachable!("slot {index} is in the list of waiting ones and {other:?}"),
        }
    }

    /// True if the future of a request that was taken is gone.
    pub(super) fn is_abandoned(&self, index: SlotIndex) -> bool {
        matches!(self.slots[index as usize].state, SlotState::Abandoned)
    }

    /// Answers a request that was taken, and returns its future's waker; `value` is what it found, or empty.
    pub(super) fn complete(
        &mut self,
        index: SlotIndex,
        completion: Completion,
        value: &[u8],
    ) -> Option<Waker> {
        let slot = self.slot(index);
        match slot.state {
            SlotState::Taken => {
                slot.state = SlotState::Done(completion);
                slot.value.clear();
                slot.value.extend_from_slice(value);
                slot.waker.take()
            }
            SlotState::Abandoned => {
                self.release(index);
                None
            }
            ref other => unreachable!("slot {index} is answered and {other:?}"),
        }
    }

    /// The answer in a slot, with the value that was found, and the end of the slot. Until there is one,
    /// the waker of `context` is kept for it; `replaced` gets the one kept before.
    pub(super) fn collect(
        &mut self,
        index: SlotIndex,
        context: &Context<'_>,
        replaced: &mut Option<Waker>,
    ) -> Option<(Completion, Vec<u8>)> {
        let slot = self.slot(index);
        match std::mem::replace(&mut slot.state, SlotState::Free) {
            SlotState::Done(completion) => {
                let value = slot.value.clone();
                self.release(index);
                Some((completion, value))
            }
            unfinished => {
                slot.state = unfinished;
                if !slot.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                    *replaced = slot.waker.replace(context.waker().clone());
                }
                None
            }
        }
    }

    /// Ends a future's interest in its slot, and returns its waker. A request that still waited never
    /// happens.
    pub(super) fn abandon(&mut self, index: SlotIndex) -> Option<Waker> {
        let slot = self.slot(index);
        let waker = slot.waker.take();
        match slot.state {
            SlotState::Taken => slot.state = SlotState::Abandoned,
            SlotState::Waiting(ref request) => {
                let lane = request.lane();
                self.unlink(index, lane);
                self.release(index);
            }
            SlotState::Done(_) => self.release(index),
            SlotState::Free | SlotState::Abandoned => unreachable!("slot {index} is abandoned twice"),
        }
        waker
    }

    /// All wakers, for futures that will never be answered.
    pub(super) fn take_wakers(&mut self) -> Vec<Waker> {
        self.slots.iter_mut().filter_map(|slot| slot.waker.take()).collect()
    }

    fn slot(&mut self, index: SlotIndex) -> &mut Slot<H> {
        &mut self.slots[index as usize]
    }

    fn allocate(&mut self) -> SlotIndex {
        if self.free == NONE {
            let index = SlotIndex::try_from(self.slots.len()).expect("fewer than 2^32 futures");
            self.slots.push(Slot {
                state: SlotState::Free,
                waker: None,
                value: Vec::new(),
                previous: NONE,
                next: NONE,
            });
            return index;
        }
        let index = self.free;
        self.free = self.slot(index).next;
        index
    }

    fn release(&mut self, index: SlotIndex) {
        let next = self.free;
        let slot = self.slot(index);
        slot.state = SlotState::Free;
        slot.next = next;
        self.free = index;
    }

    /// Takes a slot out of the list of its lane.
    fn unlink(&mut self, index: SlotIndex, lane: Lane) {
        let Slot { previous, next, .. } = *self.slot(index);
        match previous {
            NONE => self.lanes[lane as usize].oldest = next,
            _ => self.slot(previous).next = next,
        }
        match next {
            NONE => self.lanes[lane as usize].newest = previous,
            _ => self.slot(next).previous = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn submit(queue: &mut RequestQueue<u64>, key: u64) -> SlotIndex {
        queue.submit(Request::Get(key), &[], Waker::noop().clone())
    }

    fn take(queue: &mut RequestQueue<u64>) -> Option<(SlotIndex, u64)> {
        queue.take(Lane::Short).map(|(index, request, _)| match request {
            Request::Get(key) => (index, key),
            other => panic!("only GETs were submitted, not {other:?}"),
        })
    }

    fn collect(queue: &mut RequestQueue<u64>, index: SlotIndex) -> Option<(Completion, Vec<u8>)> {
        queue.collect(index, &Context::from_waker(Waker::noop()), &mut None)
    }

    #[test]
    fn requests_are_taken_in_their_order_and_answered() {
        let mut queue = RequestQueue::new();
        let slots: Vec<_> = (0..3).map(|key| submit(&mut queue, key)).collect();
        assert!(collect(&mut queue, slots[0]).is_none());
        for (key, slot) in slots.iter().enumerate() {
            assert_eq!(take(&mut queue), Some((*slot, key as u64)));
        }
        assert!(queue.is_empty() && take(&mut queue).is_none());
        assert!(queue.complete(slots[1], Completion::Get(Ok(Some(7))), b"value").is_some());
        let (completion, value) = collect(&mut queue, slots[1]).expect("it was answered");
        assert!(matches!(completion, Completion::Get(Ok(Some(7)))));
        assert_eq!(value, b"value");
        assert!(collect(&mut queue, slots[2]).is_none());
    }

    #[test]
    fn lanes_do_not_wait_for_each_other() {
        let mut queue = RequestQueue::new();
        let long = queue.submit(Request::MultiGet(vec![1, 2]), &[], Waker::noop().clone());
        let short = submit(&mut queue, 3);
        assert_eq!(take(&mut queue), Some((short, 3)));
        assert!(!queue.is_empty());
        let (index, request, _) = queue.take(Lane::Long).expect("it waits");
        assert!(index == long && matches!(request, Request::MultiGet(keys) if keys == [1, 2]));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_waiting_request_leaves_with_its_future() {
        // First, last, in the middle, and the only one.
        for (count, gone) in [(3, 0), (3, 2), (3, 1), (1, 0)] {
            let mut queue = RequestQueue::new();
            let slots: Vec<_> = (0..count).map(|key| submit(&mut queue, key)).collect();
            assert!(queue.abandon(slots[gone as usize]).is_some());
            let taken: Vec<u64> = std::iter::from_fn(|| take(&mut queue)).map(|(_, key)| key).collect();
            let expected: Vec<u64> = (0..count).filter(|key| *key != gone).collect();
            assert_eq!(taken, expected, "{gone} of {count} is gone");
        }
    }

    #[test]
    fn a_taken_slot_stays_the_drivers_until_it_has_answered() {
        let mut queue = RequestQueue::new();
        let first = submit(&mut queue, 1);
        take(&mut queue);
        assert!(!queue.is_abandoned(first));
        queue.abandon(first);
        assert!(queue.is_abandoned(first));
        let second = submit(&mut queue, 2);
        assert_ne!(first, second, "the driver still holds the first");
        assert!(queue.complete(first, Completion::Get(Ok(None)), &[]).is_none(), "nobody to wake");
        assert_eq!(submit(&mut queue, 3), first, "a slot is used again");
    }

    #[test]
    fn slots_number_the_futures_alive_at_once() {
        let mut queue = RequestQueue::new();
        for round in 0..1_000 {
            let slots: Vec<_> = (0..10).map(|key| submit(&mut queue, key)).collect();
            for _ in 0..5 {
                take(&mut queue);
            }
            for (at, slot) in slots.into_iter().enumerate() {
                match (at < 5, round % 2) {
                    (true, 0) => {
                        queue.complete(slot, Completion::Get(Ok(None)), &[]);
                        queue.abandon(slot);
                    }
                    (true, _) => {
                        queue.abandon(slot);
                        queue.complete(slot, Completion::Get(Ok(None)), &[]);
                    }
                    (false, _) => drop(queue.abandon(slot)),
                }
            }
        }
        assert!(queue.is_empty());
        assert_eq!(queue.slots.len(), 10);
    }
}
