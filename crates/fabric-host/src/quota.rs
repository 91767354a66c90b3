//! What one client may hold of a server: descriptors and queues.
//!
//! Invariant: no holder has more than a quarter of the descriptors that the server may have open, so that one
//! that asks without end leaves room for the others. Who is a holder is the provider's to say: a process
//! where the kernel names it, otherwise a connection, or an address.

use std::iter::Sum;

use rustix::process::{Resource, getrlimit};

/// Queues that one client may have open: over shared memory half a gigabyte of rings.
const QUEUES_MAX: usize = 1024;
/// Of the server's descriptors, one in so many may be one holder's.
const PARTS: u64 = 4;
/// What a holder may have however few descriptors there are.
const DESCRIPTORS_MIN: u64 = 32;

/// The quota of one holder.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    descriptors: usize,
    descriptors_per_connection: usize,
}

/// What a holder has open.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Held {
    /// Connections of clients.
    pub connections: usize,
    /// Queues of all of them, each of which takes a descriptor.
    pub queues: usize,
}

/// How many descriptors this process may have open; `None`: as many as it likes.
#[must_use]
pub fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

impl Sum for Held {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, held| Self {
            connections: sum.connections + held.connections,
            queues: sum.queues + held.queues,
        })
    }
}

impl Quota {
    /// Of a server whose clients take so many descriptors each besides those of its queues, by this process's
    /// limit of now.
    #[must_use]
    pub fn of_limit(descriptors_per_connection: usize) -> Self {
        Self::new(descriptor_limit(), descriptors_per_connection)
    }

    /// Of a server that may have `limit` descriptors open (`None`: as many as it likes), of which each client
    /// takes so many besides those of its queues.
    #[must_use]
    pub fn new(limit: Option<u64>, descriptors_per_connection: usize) -> Self {
        let descriptors = (limit.unwrap_or(u64::MAX) / PARTS).max(DESCRIPTORS_MIN);
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        Self { descriptors, descriptors_per_connection }
    }

    /// Descriptors of one quota.
    #[must_use]
    pub fn descriptors(self) -> usize {
        self.descriptors
    }

    /// Refuses one more connection to `holder` (as in "this process"), who has `held`.
    ///
    /// # Errors
    /// What it has, what it may have, and what to do.
    pub fn check_connection(self, holder: &str, held: Held) -> Result<(), String> {
        self.check(holder, held, self.descriptors_per_connection)
    }

    /// Refuses one more queue to a client.
    ///
    /// # Errors
    /// As [`Quota::check_connection`].
    pub fn check_queue(self, client: &str, held: Held) -> Result<(), String> {
        let queues = held.queues;
        if queues >= QUEUES_MAX {
            return Err(format!("{client} has {queues} queues open, and no client may have more"));
        }
        self.check_descriptor(client, held)
    }

    /// Refuses a descriptor for one more queue, however many queues there are.
    ///
    /// # Errors
    /// As [`Quota::check_connection`].
    pub fn check_descriptor(self, holder: &str, held: Held) -> Result<(), String> {
        self.check(holder, held, 1)
    }

    fn check(self, holder: &str, held: Held, wanted: usize) -> Result<(), String> {
        let Held { connections, queues } = held;
        let descriptors = connections * self.descriptors_per_connection + queues;
        if descriptors + wanted <= self.descriptors {
            return Ok(());
        }
        Err(format!(
            "{holder} has {connections} connections and {queues} queues, which take {descriptors} of the server's \
             descriptors, and {} is one client's share: close some, or raise the server's limit (ulimit -n)",
            self.descriptors
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_has_a_quarter_and_not_one_more() {
        let quota = Quota::new(Some(400), 2);
        let held = |connections, queues| Held { connections, queues };
        assert!(quota.check_connection("it", held(49, 0)).is_ok());
        assert!(quota.check_connection("it", held(49, 1)).is_err());
        assert!(quota.check_queue("it", held(1, 97)).is_ok());
        let refused = quota.check_queue("it", held(1, 98)).expect_err("100 of 100");
        assert!(refused.contains("it has 1 connections and 98 queues, which take 100"), "{refused}");
    }

    #[test]
    fn queues_have_a_bound_of_their_own() {
        let quota = Quota::new(None, 1);
        let held = |queues| Held { connections: 1, queues };
        assert!(quota.check_queue("it", held(QUEUES_MAX - 1)).is_ok());
        assert!(quota.check_queue("it", held(QUEUES_MAX)).is_err());
        assert!(quota.check_descriptor("it", held(QUEUES_MAX)).is_ok());
        assert_eq!(Quota::new(Some(4), 1).descriptors(), DESCRIPTORS_MIN as usize);
    }
}
