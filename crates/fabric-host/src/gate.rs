//! The gate of a queue on the server's side: how serving it is ended for good.
//!
//! Invariant: once [`Gate::close`] has returned and [`Gate::is_being_served`] has said no, no request of the
//! queue executes any more.

use std::sync::{PoisonError, TryLockError};

use farsight_base::sync::{AtomicBool, Mutex, MutexGuard, Ordering};

#[cfg(any(loom, shuttle))]
use crate::injected;

/// Whether a queue may be served; shared by the port that serves it and the host that ends it.
#[derive(Debug, Default)]
pub struct Gate {
    closed: AtomicBool,
    /// Held while requests of this queue execute.
    serving: Mutex<()>,
}

/// What is served under a gate.
pub trait Gated {
    /// Its gate.
    fn gate(&self) -> &Gate;
}

impl Gated for Gate {
    fn gate(&self) -> &Self {
        self
    }
}

impl<G: Gated> Gated for std::sync::Arc<G> {
    fn gate(&self) -> &Gate {
        (**self).gate()
    }
}

impl Gate {
    /// No request executes any more, but for the one that executes now.
    pub fn close(&self) {
        // Release, and Acquire in `is_closed`: nothing is handed over; the mutex orders what matters.
        self.closed.store(true, Ordering::Release);
    }

    /// True once no further request executes.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Held while requests execute; `None` once the gate is closed.
    #[must_use]
    pub fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        #[cfg(any(loom, shuttle))]
        let is_open = !self.is_closed();
        let serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(any(loom, shuttle))]
        if injected::GATE_CHECKED_BEFORE.is_injected() {
            return is_open.then_some(serving);
        }
        (!self.is_closed()).then_some(serving)
    }

    /// True while requests of this queue execute. Once false on a closed gate, it stays so: a thread that
    /// takes the mutex after this look sees the gate closed.
    #[must_use]
    pub fn is_being_served(&self) -> bool {
        matches!(self.serving.try_lock(), Err(TryLockError::WouldBlock))
    }
}

#[cfg(all(test, any(loom, shuttle)))]
mod models {
    use std::sync::Arc;

    use farsight_base::injection::assert_found;
    use farsight_base::sync::model::{check, thread};

    use super::*;

    /// Requests that execute while two workers' visits meet a fence: none once the fence is through.
    fn nothing_executes_behind_a_closed_gate() {
        let gate = Arc::new(Gate::default());
        let fenced = Arc::new(AtomicBool::new(false));
        let visited = (Arc::clone(&gate), Arc::clone(&fenced));
        let worker = thread::spawn(move || {
            let (gate, fenced) = visited;
            for _ in 0..2 {
                let Some(_serving) = gate.enter() else { return };
                // SeqCst, to see the fence as early as can be.
                assert!(!fenced.load(Ordering::SeqCst), "a request executes behind a fence");
            }
        });
        gate.close();
        if !gate.is_being_served() {
            fenced.store(true, Ordering::SeqCst);
        }
        worker.join().unwrap();
    }

    #[test]
    fn a_closed_gate_stays_shut() {
        check(3, nothing_executes_behind_a_closed_gate);
    }

    #[test]
    fn a_look_before_the_lock_is_too_early() {
        assert_found(&injected::GATE_CHECKED_BEFORE, || check(3, nothing_executes_behind_a_closed_gate));
    }
}
