//! By what time passes for what keeps a node's tables.
//!
//! That is the machine's clock, by which threads wait for each other. Or the node is given a clock, and one
//! thread takes all steps in turns.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use farsight_base::clock::{Clock, MonotonicNs, SystemClock};

/// The first pause between two looks for an answer; it doubles.
const PAUSE_MIN: Duration = Duration::from_micros(1);
/// The longest.
const PAUSE_MAX: Duration = Duration::from_micros(64);

/// By what time passes.
pub(super) struct Pace {
    clock: Arc<dyn Clock>,
    has_threads: bool,
}

impl Pace {
    /// By this clock, or by the machine's.
    pub(super) fn new(one_thread: Option<&Arc<dyn Clock>>) -> Self {
        let clock = one_thread.map_or_else(|| Arc::new(SystemClock::of_process()) as _, Arc::clone);
        Self { clock, has_threads: one_thread.is_none() }
    }

    /// The time.
    pub(super) fn now(&self) -> MonotonicNs {
        self.clock.now()
    }

    /// The answer, if it comes within this time. `None` also if nobody will give it.
    pub(super) fn answer<T>(&self, answer: &Receiver<T>, timeout: Duration) -> Option<T> {
        if self.has_threads {
            return answer.recv_timeout(timeout).ok();
        }
        let until = self.now().plus(timeout);
        let mut pause = PAUSE_MIN;
        loop {
            match answer.try_recv() {
                Err(TryRecvError::Empty) if self.now() < until => self.clock.sleep(pause),
                answered => return answered.ok(),
            }
            pause = PAUSE_MAX.min(2 * pause);
        }
    }
}
