//! When a silent peer counts as dead, and how long polling is cheaper than sleeping.

use std::time::Duration;

use farsight_fabric_net::KeepAlive;

/// When a silent peer counts as dead. Bytes may lie unacknowledged for longer than one operation waits (5 s),
/// so that a short cut costs that operation alone. They may not for much longer, because the kernel doubles
/// the time between its attempts. A connection that outlives a long cut comes to life again much later than a
/// new one could.
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

/// About as long as a sleep and a wake take, twice.
pub(crate) const BRIEF: Duration = Duration::from_micros(50);
