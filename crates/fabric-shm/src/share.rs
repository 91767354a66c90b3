//! What one client process may hold of the server: descriptors and queues, over all of its connections.
//!
//! Invariant: no process holds more than a quarter of the descriptors that the server may have open, so that
//! one that asks without end leaves room for the others. A process, not a connection, because connections
//! cost nothing. A user with many processes can still have many shares: against its own user a server has no
//! defence anyway, for such processes may kill it.

use rustix::process::{Resource, getrlimit};

use crate::session::Session;

/// Queues that one client process may have open: half a gigabyte of rings.
pub(crate) const QUEUES_MAX: usize = 1024;
/// A connection's descriptors: its socket and its process.
const DESCRIPTORS_PER_CONNECTION: usize = 2;
/// Of the server's descriptors, one in so many may be one process's.
const PARTS: u64 = 4;
/// What a process may hold however few descriptors there are.
const DESCRIPTORS_MIN: u64 = 32;

/// The share of one process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    descriptors: usize,
}

impl Share {
    /// By this process's limit of now.
    pub(crate) fn new() -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let descriptors = (limit / PARTS).max(DESCRIPTORS_MIN);
        Self { descriptors: usize::try_from(descriptors).unwrap_or(usize::MAX) }
    }

    /// Refuses one more connection to a process that has `sessions`.
    pub(crate) fn check_connection<'s>(
        self,
        sessions: impl Iterator<Item = &'s Session>,
    ) -> Result<(), String> {
        let (connections, queues) = held(sessions);
        self.check(connections, queues, DESCRIPTORS_PER_CONNECTION)
    }

    /// Refuses one more queue to a process that has `sessions`.
    pub(crate) fn check_queue<'s>(self, sessions: impl Iterator<Item = &'s Session>) -> Result<(), String> {
        let (connections, queues) = held(sessions);
        if queues >= QUEUES_MAX {
            return Err(format!("this process has {queues} queues open, and no client may have more"));
        }
        self.check(connections, queues, 1)
    }

    fn check(self, connections: usize, queues: usize, wanted: usize) -> Result<(), String> {
        let held = connections * DESCRIPTORS_PER_CONNECTION + queues;
        if held + wanted <= self.descriptors {
            return Ok(());
        }
        Err(format!(
            "this process has {connections} connections and {queues} queues, which take {held} of the server's \
             descriptors, and {} is one client's share: close some, or raise the server's limit (ulimit -n)",
            self.descriptors
        ))
    }
}

fn held<'s>(sessions: impl Iterator<Item = &'s Session>) -> (usize, usize) {
    sessions.fold((0, 0), |(connections, queues), session| (connections + 1, queues + session.gates.len()))
}
