//! How workers take steps of the sequencer.
//!
//! A worker that hands calls over could wake the sequencer's thread for them, and be woken by it. It takes
//! longer to wake a thread than to decide a hundred writes. So at the end of its step a worker takes the
//! sequencer's place, if that is free and the step is short ([`Sequencer::help`]). The others remain to the
//! thread.
//!
//! Protocol:
//! 1. The thread of the sequencer offers it, under a lock. It holds the lock while it takes a step.
//! 2. A worker appends calls to the queue. At its step's end it tries the lock, and helps.
//! 3. If it cannot, it wakes the thread. That looks at the queue after the wake, and waits for the lock.
//! 4. The worker whose group flies is told when the sync has ended, and helps again. If nobody is to be told,
//!    the thread is woken.
//!
//! A write alone is the exception to short steps: nothing else goes on while it is synced, so who waits for
//! it is all that counts. A helper would have to be woken, and the worker again. So a worker does a short
//! sync itself, under the lock, if it has met [`ALONE_MIN`] writes in a row that were alone. Such a one is
//! the only call that its worker has served since the write before ([`Company`]), and the only one of its
//! group, with none under way. What comes meanwhile waits for one sync, and then the count begins anew. So of
//! [`ALONE_MIN`] writes one at most keeps others waiting, and none on a disk whose syncs are long.
//!
//! Invariant: a thread will see to all that was appended or has landed. That is a worker before the end of
//! its step, or the sequencer's own.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use farsight_durability::Who;
use farsight_fabric::Listener;

use super::{Durable, Sequencer};

/// Writes alone from which on a worker does their syncs.
const ALONE_MIN: u32 = 8;

/// How many times in a row something was alone.
#[derive(Default)]
pub(super) struct Alone(u32);

impl Alone {
    pub(super) fn note(&mut self, is_alone: bool) {
        self.0 = if is_alone { ALONE_MIN.min(self.0 + 1) } else { 0 };
    }

    /// Who does a sync, if nothing else counts.
    pub(super) fn who(&self) -> Who {
        if self.0 == ALONE_MIN { Who::Idle } else { Who::Busy }
    }
}

/// What a worker has to do beside the writes that it hands over.
#[derive(Default)]
pub(crate) struct Company {
    /// What it has served since it handed over the last one.
    served: usize,
    alone: Alone,
}

impl Company {
    /// Notes a step that has served so many calls. Says whether the worker may sync at its end.
    pub(crate) fn note(&mut self, served: usize, has_submitted: bool) -> Who {
        self.served += served;
        if !has_submitted {
            return Who::Busy;
        }
        self.alone.note(std::mem::take(&mut self.served) == 1);
        self.alone.who()
    }
}

/// The sequencer, as far as workers may help it.
#[derive(Default)]
pub(super) struct Help {
    /// Its thread owns it.
    sequencer: OnceLock<Weak<Mutex<Sequencer>>>,
    flight: Mutex<Flight>,
}

/// What workers know of the sync that is under way.
#[derive(Default)]
struct Flight {
    /// Whose workers are woken when it ends.
    told: Option<Arc<dyn Listener>>,
    /// One has ended since a worker looked last.
    has_landed: bool,
}

impl Help {
    /// Lets workers help from now on.
    pub(super) fn offer(&self, sequencer: &Arc<Mutex<Sequencer>>) {
        // A second one would be another node's.
        let _ = self.sequencer.set(Arc::downgrade(sequencer));
    }
}

/// Wakes the sequencer's thread if a worker's panic leaves its work undone.
struct WakesIfPanicking<'d>(&'d Durable);

impl Drop for WakesIfPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.queue.wake();
        }
    }
}

impl Durable {
    /// Sees to it that what a worker has handed over in its step is done, and what has landed. The worker's
    /// clients come from this listener.
    pub(crate) fn end_step(&self, has_submitted: bool, who: Who, listener: &Arc<dyn Listener>) {
        let has_landed = std::mem::take(&mut self.flight().has_landed);
        if (has_submitted || has_landed) && !self.try_to_help(who, listener) {
            self.queue.wake();
        }
    }

    fn try_to_help(&self, who: Who, listener: &Arc<dyn Listener>) -> bool {
        let Some(sequencer) = self.help.sequencer.get().and_then(Weak::upgrade) else { return false };
        let _guard = WakesIfPanicking(self);
        let Ok(mut sequencer) = sequencer.try_lock() else { return false };
        sequencer.help(who, || self.flight().told = Some(Arc::clone(listener)))
    }

    /// Has it seen to that a sync has ended.
    pub(super) fn end_sync(&self) {
        let told = {
            let mut flight = self.flight();
            flight.has_landed |= flight.told.is_some();
            flight.told.take()
        };
        match told {
            // A worker that does not sleep looks at its step's end.
            Some(listener) => listener.wake_ports(),
            None => self.queue.wake(),
        }
    }

    fn flight(&self) -> MutexGuard<'_, Flight> {
        // A change of it is never half done.
        self.help.flight.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_in_a_row_are_alone_until_a_worker_serves_something_else() {
        let mut company = Company::default();
        for write in 1..ALONE_MIN {
            assert_eq!(company.note(1, true), Who::Busy, "write {write}");
            assert_eq!(company.note(0, false), Who::Busy, "no write");
        }
        assert_eq!(company.note(1, true), Who::Idle);
        assert_eq!(company.note(1, false), Who::Busy, "a read in between");
        assert_eq!(company.note(1, true), Who::Busy);
        for _ in 1..ALONE_MIN {
            assert_eq!(company.note(1, true), Who::Busy, "the count begins anew");
        }
        assert_eq!(company.note(1, true), Who::Idle);
        assert_eq!(company.note(2, true), Who::Busy, "two in a step");
    }
}
