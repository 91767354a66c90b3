//! Operations of one session side by side: some hold locks, and some ask a memory node's processor.
//!
//! Invariant: while one asks, none has a lock, for the answer holds all of them up. An operation that is
//! about to ask holds no lock itself.
//!
//! Protocol: who is about to ask says so, and waits until nobody has a lock. Meanwhile nobody takes a first
//! one. Who has one waits for nothing but its verbs, so the wait ends.

use std::cell::Cell;
use std::time::Duration;

use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;

use crate::RolexSession;

/// When an operation looks again whether the others are done: about the time of a doorbell, and later the
/// longer it has waited. A thread that looks all the time takes the core from those that the others wait for.
const LOOK_AFTER_MIN: Duration = Duration::from_micros(1);
const LOOK_AFTER_MAX: Duration = Duration::from_millis(1);
/// It waits for this part of what it has waited.
const LOOKS_PER_WAIT: u32 = 4;

/// How many of a session's operations do either.
#[derive(Default)]
pub(crate) struct Locking {
    lockers: Cell<usize>,
    askers: Cell<usize>,
}

/// An operation that counts as one that does either, until it is dropped.
pub(crate) struct Counted<'s>(&'s Cell<usize>);

impl<'s> Counted<'s> {
    fn among(count: &'s Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

async fn wait_for_none<Q: QueuePair>(slot: &PoolSlot<'_, '_, Q>, count: &Cell<usize>) {
    let begun = slot.now();
    while count.get() > 0 {
        let waited = slot.now().since(begun);
        slot.pause((waited / LOOKS_PER_WAIT).clamp(LOOK_AFTER_MIN, LOOK_AFTER_MAX)).await;
    }
}

impl RolexSession {
    /// Comes before an operation's first lock; is dropped once its last one is released.
    pub(crate) async fn before_lock<Q: QueuePair>(&self, slot: &PoolSlot<'_, '_, Q>) -> Counted<'_> {
        wait_for_none(slot, &self.locking.askers).await;
        Counted::among(&self.locking.lockers)
    }

    /// Comes before an operation that has no lock asks a processor; is dropped once that has answered.
    pub(crate) async fn before_asking<Q: QueuePair>(&self, slot: &PoolSlot<'_, '_, Q>) -> Counted<'_> {
        let asking = Counted::among(&self.locking.askers);
        #[cfg(injected)]
        if crate::injected::ASKED_BESIDE_LOCKS.is_injected() {
            return asking;
        }
        wait_for_none(slot, &self.locking.lockers).await;
        asking
    }
}
