//! How long locks of leaves have stood: what a memory node has seen itself before it fences anybody.
//!
//! Invariant: a lock counts as held for as long as this node knows, by its own clock, that its word stands.
//! No two locks of a compute node have one word, so a word found twice is one lock, held all the while.
//!
//! Only locks that somebody waits for are known. What is remembered of them is bounded: who asks for more
//! than [`LOCKS_MAX`] at a time waits for longer.

use std::collections::HashMap;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_protocol::{LockSeen, TableId};

/// Locks that a node watches at a time.
const LOCKS_MAX: usize = 1 << 10;
/// A lock that nobody has asked about for so many leases is waited for by nobody.
const LEASES_UNASKED: u32 = 4;

#[derive(Debug)]
struct Watched {
    word: u64,
    /// When it was first found here.
    since: MonotonicNs,
    /// When a client last requested it.
    asked: MonotonicNs,
}

/// The locks that are waited for, by table and block.
#[derive(Debug)]
pub(crate) struct Leases {
    lease: Duration,
    watched: HashMap<(TableId, u32), Watched>,
}

impl Leases {
    pub(crate) fn new(lease: Duration) -> Self {
        Self { lease, watched: HashMap::new() }
    }

    /// How long a lock must have stood.
    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// How long the lock that `seen` names is known to have stood, `now` that its leaf has the word `found`;
    /// `None` if that is another one.
    pub(crate) fn held_for(&mut self, seen: LockSeen, found: u64, now: MonotonicNs) -> Option<Duration> {
        let leaf = (seen.table, seen.block);
        if found != seen.word {
            self.watched.remove(&leaf);
            return None;
        }
        if !self.watched.contains_key(&leaf) && self.watched.len() >= LOCKS_MAX {
            let unasked = self.lease.saturating_mul(LEASES_UNASKED);
            self.watched.retain(|_, watched| now.since(watched.asked) < unasked);
            if self.watched.len() >= LOCKS_MAX {
                return Some(Duration::ZERO);
            }
        }
        let watched = self.watched.entry(leaf).or_insert(Watched { word: found, since: now, asked: now });
        if watched.word != found {
            *watched = Watched { word: found, since: now, asked: now };
        }
        watched.asked = now;
        Some(now.since(watched.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_millis(500);

    fn lock(block: u32, word: u64) -> LockSeen {
        LockSeen { table: TableId(0), block, word }
    }

    fn at(milliseconds: u64) -> MonotonicNs {
        MonotonicNs(milliseconds * 1_000_000)
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_lock_is_held_for_as_long_as_its_word_was_seen_to_stand() {
        let mut leases = Leases::new(LEASE);
        assert_eq!(leases.held_for(lock(7, 9), 9, at(1_000)), Some(ms(0)));
        assert_eq!(leases.held_for(lock(7, 9), 9, at(1_400)), Some(ms(400)));
        assert_eq!(leases.held_for(lock(8, 9), 9, at(1_400)), Some(ms(0)), "another leaf");
        // Another lock of the same leaf: who waits for the old one is late, and the new one begins anew.
        assert_eq!(leases.held_for(lock(7, 9), 10, at(1_450)), None);
        assert_eq!(leases.held_for(lock(7, 10), 10, at(1_600)), Some(ms(0)));
        assert_eq!(leases.held_for(lock(7, 11), 11, at(1_700)), Some(ms(0)));
        assert_eq!(leases.held_for(lock(7, 11), 11, at(2_300)), Some(ms(600)));
    }

    #[test]
    fn few_locks_are_watched_at_a_time_and_those_that_nobody_waits_for_are_forgotten() {
        let mut leases = Leases::new(LEASE);
        let many = LOCKS_MAX as u32;
        for block in 0..many {
            assert_eq!(leases.held_for(lock(block, 1), 1, at(0)), Some(ms(0)));
        }
        assert_eq!(leases.held_for(lock(many, 1), 1, at(1_000)), Some(ms(0)));
        assert_eq!(leases.held_for(lock(many, 1), 1, at(1_900)), Some(ms(0)), "there is no room for it");
        assert_eq!(leases.held_for(lock(3, 1), 1, at(1_900)), Some(ms(1_900)));
        assert_eq!(leases.held_for(lock(many, 1), 1, at(2_100)), Some(ms(0)), "the others made room");
        assert_eq!(leases.held_for(lock(many, 1), 1, at(2_700)), Some(ms(600)));
        assert_eq!(leases.watched.len(), 2);
    }
}
