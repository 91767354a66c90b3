//! Time as the project sees it: a monotonic instant from a [`Clock`], so that a simulator can own it.

use std::time::{Duration, Instant};

/// Nanoseconds on a monotonic clock whose zero is the clock's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct MonotonicNs(pub u64);

impl MonotonicNs {
    /// The instant `after` later; saturates.
    #[must_use]
    pub fn plus(self, after: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time since `earlier`; zero if that is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Where monotonic time comes from.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> MonotonicNs;
}

/// The operating system's monotonic clock, zero at construction.
#[derive(Debug, Clone)]
pub struct SystemClock {
    zero: Instant,
}

impl SystemClock {
    /// A clock that reads zero now.
    #[must_use]
    pub fn new() -> Self {
        Self { zero: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> MonotonicNs {
        MonotonicNs(u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}
