//! Counters of what went over a queue pair: the currency in which `docs/costs.md` prices each operation.

use std::ops::{AddAssign, Sub};

/// Verbs, bytes and round trips since the queue pair was opened: all that was posted, by the caller or by the
/// fabric to do a caller's verb.
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
    /// Of `reads`, those that only check others: where lines do not come whole, a stamped READ takes one of
    /// the stamps before and one after.
    pub check_reads: u64,
    /// Of `read_bytes`, those of such READs.
    pub check_read_bytes: u64,
    /// Of `doorbells`, those of such READs.
    pub check_doorbells: u64,
}

impl Meters {
    /// What callers posted, without what the fabric had to add to it: the same on every fabric.
    #[must_use]
    pub fn without_checks(self) -> Self {
        let checks = Self {
            reads: self.check_reads,
            read_bytes: self.check_read_bytes,
            doorbells: self.check_doorbells,
            check_reads: self.check_reads,
            check_read_bytes: self.check_read_bytes,
            check_doorbells: self.check_doorbells,
            ..Self::default()
        };
        self - checks
    }
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
        self.check_reads += other.check_reads;
        self.check_read_bytes += other.check_read_bytes;
        self.check_doorbells += other.check_doorbells;
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
            check_reads: self.check_reads - earlier.check_reads,
            check_read_bytes: self.check_read_bytes - earlier.check_read_bytes,
            check_doorbells: self.check_doorbells - earlier.check_doorbells,
        }
    }
}
