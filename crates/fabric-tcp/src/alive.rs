//! How sides wait for each other, and when a silent one counts as dead.

use std::sync::OnceLock;
use std::time::Duration;

use farsight_fabric_net::os::KeepAlive;

/// When a silent peer counts as dead. Bytes may lie unacknowledged for longer than one operation waits (5 s),
/// so that a short cut costs that operation alone; for no longer, because the kernel doubles the time between
/// its attempts: a connection that outlives a long cut comes to life again much later than a new one could.
pub(crate) const ALIVE: KeepAlive = KeepAlive {
    idle: Duration::from_secs(4),
    pause: Duration::from_secs(3),
    probes: 2,
    unacknowledged_max: Duration::from_secs(10),
};

/// A silent peer counts as dead no later than one that does not acknowledge.
const _: () = assert!(
    ALIVE.idle.as_secs() + ALIVE.pause.as_secs() * ALIVE.probes as u64 == ALIVE.unacknowledged_max.as_secs()
);

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
    /// How much of a wait of `timeout` passes awake.
    pub(crate) fn awake(self, timeout: Duration) -> Duration {
        match self {
            Self::Briefly => spin_time().min(timeout),
            Self::Asleep => Duration::ZERO,
            Self::Spinning => timeout,
        }
    }
}

/// About as long as a sleep and a wake take, twice. On a machine of one core there is nobody to look out for.
/// The cores that this thread may run on do not count: each side may be bound to one of its own.
fn spin_time() -> Duration {
    static SPIN: OnceLock<Duration> = OnceLock::new();
    *SPIN.get_or_init(|| {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
        let is_single = online.is_ok_and(|cores| cores.trim() == "0");
        if is_single { Duration::ZERO } else { Duration::from_micros(50) }
    })
}
