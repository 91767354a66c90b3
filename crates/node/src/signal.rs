//! How threads wake one that sleeps until there is work: raised by many, awaited by one.
//!
//! Invariant: work published before [`Signal::raise`] is seen by the thread that returns from
//! [`Signal::wait`] after it. A signal raised while nobody waits ends the next wait at once.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use farsight_base::sync::{AtomicBool, Ordering};

/// A flag to sleep on.
#[derive(Debug, Default)]
pub struct Signal {
    raised: AtomicBool,
    sleeper: Mutex<()>,
    changed: Condvar,
}

impl Signal {
    /// Ends the current wait, or the next. One atomic exchange while the last raise has not been noticed yet.
    pub fn raise(&self) {
        // An exchange even if the flag is up, never a plain load: then the waiter's exchange that takes the
        // flag down follows this one and sees the work. AcqRel; partner: the exchange in `take`.
        if !self.raised.swap(true, Ordering::AcqRel) {
            // The waiter looks at the flag under this lock before it sleeps, so it cannot miss the notice.
            drop(self.sleeper.lock().unwrap_or_else(PoisonError::into_inner));
            self.changed.notify_one();
        }
    }

    /// Sleeps until the signal is raised or `timeout` passes. Returns whether it was raised.
    pub fn wait(&self, timeout: Duration) -> bool {
        let guard = self.sleeper.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = self.changed.wait_timeout_while(guard, timeout, |()| !self.is_raised());
        drop(waiting.unwrap_or_else(PoisonError::into_inner));
        self.take()
    }

    fn is_raised(&self) -> bool {
        // Relaxed: `take` does the ordering.
        self.raised.load(Ordering::Relaxed)
    }

    fn take(&self) -> bool {
        // Acquire: what was done before the raise is seen. Partner: the exchange in `raise`.
        self.raised.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_raise_is_kept_for_the_next_wait_and_used_up_by_it() {
        let signal = Signal::default();
        signal.raise();
        signal.raise();
        assert!(signal.wait(Duration::from_secs(60)));
        assert!(!signal.wait(Duration::from_millis(1)));
    }

    #[test]
    fn a_sleeper_is_woken() {
        let signal = Arc::new(Signal::default());
        let raiser = Arc::clone(&signal);
        let start = Instant::now();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            raiser.raise();
        });
        assert!(signal.wait(Duration::from_secs(60)));
        assert!(start.elapsed() < Duration::from_secs(30));
        thread.join().unwrap();
    }
}
