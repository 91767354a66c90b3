//! Time as the project sees it: a monotonic instant from a [`Clock`], so that a simulator can own it.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

    /// Has the caller wait until so much time has passed.
    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A moment on a clock, by which something has to be done.
#[derive(Clone)]
pub struct Deadline {
    clock: Arc<dyn Clock>,
    at: MonotonicNs,
}

impl Deadline {
    /// The moment at which `clock` shows `at`.
    #[must_use]
    pub fn new(clock: &Arc<dyn Clock>, at: MonotonicNs) -> Self {
        Self { clock: Arc::clone(clock), at }
    }

    /// True once it is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.clock.now() > self.at
    }
}

/// The operating system's monotonic clock: zero at construction, or when the process first made its one.
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

    /// The one clock of this process: all of them have the same zero.
    #[must_use]
    pub fn of_process() -> Self {
        static ZERO: OnceLock<Instant> = OnceLock::new();
        Self { zero: *ZERO.get_or_init(Instant::now) }
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

/// Where the time of day comes from, by which pairs end. It never goes back.
pub trait UnixTime: Debug + Send + Sync {
    /// Milliseconds since 1970 began.
    fn now_ms(&self) -> u64;
}

/// The machine's time of day when this was made, and from then on its monotonic clock. So no pair ends sooner
/// or later because the machine's clock is set meanwhile.
#[derive(Debug, Clone)]
pub struct SystemUnixTime {
    clock: SystemClock,
    zero_ms: u64,
}

impl SystemUnixTime {
    /// A clock that agrees with the machine's now.
    #[must_use]
    pub fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { clock: SystemClock::new(), zero_ms: since_1970.as_millis() as u64 }
    }
}

/// A time of day that begins where another ended, or later: a clock that was set back in between sets nobody
/// back who goes by this one.
#[derive(Debug, Clone)]
pub struct LaterUnixTime {
    inner: Arc<dyn UnixTime>,
    least_ms: u64,
    /// Since when that grows.
    clock: SystemClock,
}

impl LaterUnixTime {
    /// `inner`, but at least `least_ms` now, and from then on as much more as time passes.
    pub fn new(inner: Arc<dyn UnixTime>, least_ms: u64) -> Self {
        Self { inner, least_ms, clock: SystemClock::new() }
    }
}

impl UnixTime for LaterUnixTime {
    fn now_ms(&self) -> u64 {
        self.inner.now_ms().max(self.least_ms + self.clock.now().0 / 1_000_000)
    }
}

impl Default for SystemUnixTime {
    fn default() -> Self {
        Self::new()
    }
}

impl UnixTime for SystemUnixTime {
    fn now_ms(&self) -> u64 {
        self.zero_ms + self.clock.now().0 / 1_000_000
    }
}
