//! What one client process may hold of the server, over all of its connections.
//!
//! Invariant: a share is a process's, not a connection's, because connections cost nothing. A user with many
//! processes can still have many shares: against its own user a server has no defence anyway, for such
//! processes may kill it.

use farsight_fabric::{Held, Share};
use rustix::process::{Resource, getrlimit};

use crate::session::Session;

/// A connection's descriptors: its socket, the one for its news, and its process.
const DESCRIPTORS_PER_CONNECTION: usize = 3;
/// Whose share it is, in texts.
pub(crate) const HOLDER: &str = "this process";

/// A process's share, by this process's limit of now.
pub(crate) fn of_limit() -> Share {
    Share::new(getrlimit(Resource::Nofile).current, DESCRIPTORS_PER_CONNECTION)
}

/// What a process has that has these sessions.
pub(crate) fn held<'s>(sessions: impl Iterator<Item = &'s Session>) -> Held {
    sessions.fold(Held::default(), |held, session| Held {
        connections: held.connections + 1,
        queues: held.queues + session.gates.len(),
    })
}
