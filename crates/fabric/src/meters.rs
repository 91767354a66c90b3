//! Counters of what went over a queue pair: the currency in which `docs/costs.md` prices each operation.

use std::ops::{AddAssign, Sub};

/// Verbs, bytes and round trips since the queue pair was opened.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Meters {
    /// READs posted and rung.
    pub reads: u64,
    /// Bytes that those READs fetched.
    pub read_bytes: u64,
    /// WRITEs posted and rung.
    pub writes: u64,
    /// Bytes that those WRITEs carried.
    pub write_bytes: u64,
    /// `compare_swap` and `fetch_add`.
    pub atomics: u64,
    /// Calls to the peer's processor.
    pub calls: u64,
    /// Bytes of those calls' requests.
    pub call_bytes: u64,
    /// Doorbells rung with at least one verb: round trips of the whole batch.
    pub doorbells: u64,
}

impl AddAssign for Meters {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
        self.atomics += other.atomics;
        self.calls += other.calls;
        self.call_bytes += other.call_bytes;
        self.doorbells += other.doorbells;
    }
}

impl Sub for Meters {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            writes: self.writes - earlier.writes,
            write_bytes: self.write_bytes - earlier.write_bytes,
            atomics: self.atomics - earlier.atomics,
            calls: self.calls - earlier.calls,
            call_bytes: self.call_bytes - earlier.call_bytes,
            doorbells: self.doorbells - earlier.doorbells,
        }
    }
}
