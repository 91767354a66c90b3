//! What an engine's client counts besides the fabric's meters: how often the straight way was left, and why.

use std::ops::AddAssign;

/// Counters of one session.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// GETs answered.
    pub gets: u64,
    /// SCANs answered.
    pub scans: u64,
    /// Writes answered.
    pub writes: u64,
    /// Operations that the first try did not answer: another candidate or the lane did.
    pub slow_path: u64,
    /// READs repeated because lines were changing or of another incarnation.
    pub retries: u64,
    /// Steps to a right sibling.
    pub sibling_steps: u64,
    /// Operations that the server's processor had to do for a client that reads one-sided.
    pub fallbacks: u64,
    /// Sub-models fetched into the cache.
    pub sub_models_fetched: u64,
    /// Operations whose key's address the cache had, and it still held.
    pub address_hits: u64,
    /// GETs answered by values that this process keeps, without a verb.
    pub value_hits: u64,
    /// Calls to other compute nodes, which write and find keys for this one.
    pub calls_to_others: u64,
    /// Keys of GETs that they found, or read.
    pub found_by_others: u64,
    /// Writes, and splits, that waited until nobody gave out a value that was kept.
    pub closings: u64,
    /// Of those, the ones that waited for who keeps values, and not until all leases were over.
    pub recalls: u64,
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.gets += other.gets;
        self.scans += other.scans;
        self.writes += other.writes;
        self.slow_path += other.slow_path;
        self.retries += other.retries;
        self.sibling_steps += other.sibling_steps;
        self.fallbacks += other.fallbacks;
        self.sub_models_fetched += other.sub_models_fetched;
        self.address_hits += other.address_hits;
        self.value_hits += other.value_hits;
        self.calls_to_others += other.calls_to_others;
        self.found_by_others += other.found_by_others;
        self.closings += other.closings;
        self.recalls += other.recalls;
    }
}
