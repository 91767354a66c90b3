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
//! Invariant: a thread will see to all that was appended or has landed. That is a worker before the end of
//! its step, or the sequencer's own.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use farsight_fabric::Listener;

use super::{Durable, Sequencer};

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
    pub(crate) fn end_step(&self, has_submitted: bool, listener: &Arc<dyn Listener>) {
        let has_landed = std::mem::take(&mut self.flight().has_landed);
        if (has_submitted || has_landed) && !self.try_to_help(listener) {
            self.queue.wake();
        }
    }

    fn try_to_help(&self, listener: &Arc<dyn Listener>) -> bool {
        let Some(sequencer) = self.help.sequencer.get().and_then(Weak::upgrade) else { return false };
        let _guard = WakesIfPanicking(self);
        let Ok(mut sequencer) = sequencer.try_lock() else { return false };
        sequencer.help(|| self.flight().told = Some(Arc::clone(listener)))
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
