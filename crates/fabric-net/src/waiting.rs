//! How sides wait for each other.

use std::sync::OnceLock;
use std::time::Duration;

/// How a side waits for the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Waiting {
    /// Looks for some tens of microseconds, then sleeps: for machines that have other things to do.
    #[default]
    Briefly,
    /// Sleeps at once: the least processor time, and the slowest answer.
    Asleep,
    /// Never sleeps before its time is over: the quickest answer, for a whole core.
    Spinning,
}

impl Waiting {
    /// How much of a wait of `timeout` passes awake, where `brief` is about as long as a sleep and a wake
    /// take. On a machine of one core there is nobody to look out for: only who spins stays awake.
    #[must_use]
    pub fn awake(self, timeout: Duration, brief: Duration) -> Duration {
        match self {
            Self::Briefly if is_single_core() => Duration::ZERO,
            Self::Briefly => brief.min(timeout),
            Self::Asleep => Duration::ZERO,
            Self::Spinning => timeout,
        }
    }
}

/// True if the machine has one core. The cores that this thread may run on do not count: each side may be
/// bound to one of its own.
fn is_single_core() -> bool {
    static IS_SINGLE: OnceLock<bool> = OnceLock::new();
    *IS_SINGLE.get_or_init(|| {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        online.is_ok_and(|cores| cores.trim() == "0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_spins_is_awake_all_the_time_and_who_sleeps_never() {
        let [brief, timeout] = [1, 2].map(Duration::from_millis);
        assert_eq!(Waiting::Spinning.awake(timeout, brief), timeout);
        assert_eq!(Waiting::Asleep.awake(timeout, brief), Duration::ZERO);
        let briefly = if is_single_core() { Duration::ZERO } else { brief };
        assert_eq!(Waiting::Briefly.awake(timeout, brief), briefly);
        assert!(Waiting::Briefly.awake(Duration::ZERO, brief).is_zero());
    }
}
