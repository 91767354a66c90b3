//! Where futures and driver meet: the queue of requests behind a lock, and the driver's sleep.
//!
//! Invariant: while a request waits, the driver is awake or has been notified since it fell asleep, because
//! both are decided under the lock. No waker is woken, and none dropped, under it. The driver lets go of the
//! lock every few requests. A future that has to wait for it for longer than a short spin goes to sleep, and
//! with it all tasks of its thread.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::task::{Context, Waker};

use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric::Meters;
use farsight_fabric_shm::OwnProcess;
use farsight_index::Counters;

use super::held_key::HeldKey;
use super::queue::{Completion, Request, RequestQueue, SlotIndex};
use super::round::Round;

/// Tries for the lock before the driver sleeps until it is free: some tens of microseconds.
const TRIES: usize = 1_000;

/// What the handles of one table and its driver share.
#[derive(Debug)]
pub(super) struct Shared<H> {
    state: Mutex<SharedState<H>>,
    /// Notified when a request arrives while the driver sleeps, and when the table is closed.
    arrival: Condvar,
    /// True if a request waits: a hint for a driver that looks before it sleeps. Relaxed, because the lock
    /// orders everything that it hints at.
    is_waiting: AtomicBool,
    /// A forked child has no driver.
    process: OwnProcess,
}

#[derive(Debug)]
struct SharedState<H> {
    queue: RequestQueue<H>,
    driver: Driver,
    /// Set when the last handle goes.
    is_closing: bool,
    counters: Counters,
    meters: Meters,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Driver {
    Awake,
    Asleep,
    /// It panicked.
    Gone,
}

/// What the driver does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Execute,
    Sleep,
    End,
}

/// Where a future's request is.
#[derive(Debug)]
pub(super) enum Submission {
    /// In this slot.
    Queued(SlotIndex),
    /// Nowhere: this process is a child of the one that opened the table.
    Forked,
}

impl<H: HeldKey> Shared<H> {
    pub(super) fn new() -> io::Result<Self> {
        let process = OwnProcess::mark()?;
        let state = SharedState {
            queue: RequestQueue::new(),
            driver: Driver::Awake,
            is_closing: false,
            counters: Counters::default(),
            meters: Meters::default(),
        };
        let is_waiting = AtomicBool::new(false);
        Ok(Self { state: Mutex::new(state), arrival: Condvar::new(), is_waiting, process })
    }

    /// True in a forked child, which has neither the driver nor, perhaps, the holder of the lock: to be asked
    /// before the lock is taken.
    pub(super) fn is_forked(&self) -> bool {
        !self.process.is_this()
    }

    /// Queues a request and wakes the driver if it sleeps.
    pub(super) fn submit(&self, request: Request<H>, value: &[u8], waker: Waker) -> Submission {
        if self.is_forked() {
            return Submission::Forked;
        }
        let mut state = self.lock_for_future();
        let slot = state.queue.submit(request, value, waker);
        self.is_waiting.store(true, Ordering::Relaxed);
        let was_asleep = std::mem::replace(&mut state.driver, Driver::Awake) == Driver::Asleep;
        drop(state);
        if was_asleep {
            self.arrival.notify_one();
        }
        Submission::Queued(slot)
    }

    /// The answer to the request in `slot`, if it is there.
    pub(super) fn collect(&self, slot: SlotIndex, context: &Context<'_>) -> Option<(Completion, Vec<u8>)> {
        let mut replaced = None;
        let answer = self.lock_for_future().queue.collect(slot, context, &mut replaced);
        drop(replaced);
        answer
    }

    /// A future that was not answered is gone.
    pub(super) fn abandon(&self, slot: SlotIndex) {
        if self.is_forked() {
            return;
        }
        let waker = self.lock().queue.abandon(slot);
        drop(waker);
    }

    /// Hands in what `round` has answered, and wakes those who wait for it. `wakers` is scratch.
    pub(super) fn deliver(
        &self,
        round: &mut Round<H>,
        wakers: &mut Vec<Waker>,
        counters: Counters,
        meters: Meters,
    ) {
        let mut state = self.lock_for_driver();
        (state.counters, state.meters) = (counters, meters);
        while round.deliver_some(&mut state.queue, wakers) {
            drop(state);
            state = self.lock_for_driver();
        }
        drop(state);
        // All at the end: woken one by one, a thread would come back for the next request alone, and find
        // nothing to do and sleep in between.
        // One by one out of the list: if one panics, the others are still in it.
        while let Some(waker) = wakers.pop() {
            waker.wake();
        }
    }

    /// Begins a round: with what waits, and without what nobody waits for any more.
    pub(super) fn begin(&self, round: &mut Round<H>) -> Next {
        let mut state = self.lock_for_driver();
        if state.is_closing {
            return Next::End;
        }
        round.forget_abandoned(&mut state.queue);
        drop(state);
        self.take(round);
        if round.is_empty() { Next::Sleep } else { Next::Execute }
    }

    /// Takes what waits into `round`. False if that was nothing, or nothing that it has room for.
    pub(super) fn take(&self, round: &mut Round<H>) -> bool {
        let before = round.len();
        while round.take_some(&mut self.lock_for_driver().queue) {}
        let state = self.lock_for_driver();
        self.is_waiting.store(!state.queue.is_empty(), Ordering::Relaxed);
        drop(state);
        round.len() > before
    }

    /// True if a request has probably arrived.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Sleeps until a request waits or the table is closed.
    pub(super) fn sleep(&self) {
        let mut state = self.lock();
        while state.queue.is_empty() && !state.is_closing {
            state.driver = Driver::Asleep;
            state = self.arrival.wait(state).expect("no holder of the lock panics");
        }
        state.driver = Driver::Awake;
    }

    /// Lets the driver end.
    pub(super) fn close(&self) {
        self.lock().is_closing = true;
        self.arrival.notify_one();
    }

    /// Tells all futures, now and later, that the driver has panicked.
    pub(super) fn driver_is_gone(&self) {
        // It may have panicked with the lock held.
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.driver = Driver::Gone;
        let wakers = state.queue.take_wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(super) fn counters(&self) -> Counters {
        self.lock().counters
    }

    pub(super) fn meters(&self) -> Meters {
        self.lock().meters
    }

    fn lock(&self) -> MutexGuard<'_, SharedState<H>> {
        self.state.lock().expect("no holder of the lock panics")
    }

    /// The lock, for the one thread that can afford to try for it. If the driver waited for it asleep, each
    /// future that lets go of it would have to wake the driver, by a system call.
    fn lock_for_driver(&self) -> MutexGuard<'_, SharedState<H>> {
        for _ in 0..TRIES {
            if let Ok(state) = self.state.try_lock() {
                return state;
            }
            std::hint::spin_loop();
        }
        self.lock()
    }

    fn lock_for_future(&self) -> MutexGuard<'_, SharedState<H>> {
        let state = self.lock();
        if state.driver == Driver::Gone {
            // Not with the lock held, which would poison it for the next one.
            drop(state);
            panic!("the driver of this table has panicked");
        }
        state
    }
}
