//! How long a side spins over its ring before it sleeps.
//!
//! To sleep and be woken takes both sides longer than most waits are. But a side that spins in vain wastes a
//! core, and the peer's time if the peer has no other core. So a side spins as long as spinning has paid
//! lately, and otherwise hardly ever.
//!
//! It does not yield meanwhile, for a busy machine's scheduler gives a yielded core away for milliseconds. On
//! a machine of one core there is nobody to look out for. The cores that this thread may run on do not count:
//! each side may be bound to one of its own.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The longest spin: a call of as many writes as fit one, and the way there and back.
const SPIN_MAX: Duration = Duration::from_micros(60);
/// Polls between two readings of the clock.
const POLLS_PER_TURN: usize = 32;
/// What spins that paid have earned at most; one in vain costs [`VAIN_COST`] of it.
const CREDIT_MAX: u8 = 8;
const VAIN_COST: u8 = 2;
/// Without credit, one wait of so many begins with a spin, to find out whether it would pay again.
const WAITS_PER_TRIAL: u8 = 32;

/// A side's experience with spinning.
#[derive(Debug)]
pub(crate) struct AdaptiveSpin {
    credit: u8,
    waits: u8,
}

impl Default for AdaptiveSpin {
    fn default() -> Self {
        Self { credit: CREDIT_MAX, waits: 0 }
    }
}

impl AdaptiveSpin {
    /// Looks for up to `timeout` whether there `is_work`, as long as that makes sense. True if there is.
    pub(crate) fn spin(&mut self, timeout: Duration, mut is_work: impl FnMut() -> bool) -> bool {
        self.spin_for(self.time().min(timeout), &mut is_work)
    }

    fn spin_for(&mut self, time: Duration, is_work: &mut impl FnMut() -> bool) -> bool {
        self.waits = (self.waits + 1) % WAITS_PER_TRIAL;
        if time.is_zero() {
            return is_work();
        }
        let started = Instant::now();
        while !(0..POLLS_PER_TURN).any(|_| {
            let found = is_work();
            if !found {
                std::hint::spin_loop();
            }
            found
        }) {
            if started.elapsed() >= time {
                self.credit = self.credit.saturating_sub(VAIN_COST);
                return false;
            }
        }
        self.credit = CREDIT_MAX.min(self.credit + 1);
        true
    }

    fn time(&self) -> Duration {
        let is_worth_it = self.credit > 0 || self.waits == 0;
        if is_worth_it && has_cores() { SPIN_MAX } else { Duration::ZERO }
    }
}

/// True on a machine of several cores.
fn has_cores() -> bool {
    static HAS_CORES: OnceLock<bool> = OnceLock::new();
    // SAFETY: the call takes a plain number and touches no memory of ours.
    *HAS_CORES.get_or_init(|| unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) } != 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_micros(1);

    fn is_long(spin: &AdaptiveSpin) -> bool {
        spin.credit > 0 || spin.waits == 0
    }

    #[test]
    fn polling_in_vain_ends_and_is_tried_again() {
        let mut spin = AdaptiveSpin::default();
        let mut long = 0;
        for _ in 0..10 * u32::from(WAITS_PER_TRIAL) {
            let time = if is_long(&spin) { SHORT } else { Duration::ZERO };
            long += u32::from(!time.is_zero());
            assert!(!spin.spin_for(time, &mut || false));
        }
        assert_eq!(long, u32::from(CREDIT_MAX / VAIN_COST) + 9, "then once in {WAITS_PER_TRIAL} waits");
        while !is_long(&spin) {
            spin.spin_for(Duration::ZERO, &mut || false);
        }
        assert!(spin.spin_for(SHORT, &mut || true));
        assert!(is_long(&spin), "it paid");
    }

    #[test]
    fn now_and_then_in_vain_changes_nothing() {
        let mut spin = AdaptiveSpin::default();
        for wait in 0..1_000 {
            assert!(is_long(&spin), "wait {wait}");
            spin.spin_for(SHORT, &mut || wait % 4 != 0);
        }
    }

    #[test]
    fn work_that_is_there_is_found_without_a_spin() {
        let mut spin = AdaptiveSpin::default();
        assert!(spin.spin(Duration::ZERO, || true));
    }
}
