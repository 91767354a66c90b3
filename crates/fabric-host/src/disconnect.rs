//! Why clients have to go, and the clients that ports ask their host to disconnect.

use std::os::fd::OwnedFd;
use std::sync::Mutex;

use farsight_base::ClientId;

use crate::{lock, os};

/// Why a connection has to go.
#[derive(Debug)]
pub enum DisconnectReason {
    /// It closed, died, or stopped reading.
    Gone,
    /// It was not let in.
    Refused(String),
    /// It broke the protocol, or was fenced.
    Dismissed(String),
    /// What connects it broke, and neither side did it: it may come back.
    Broken(String),
    /// The server stops.
    Stopped,
}

/// What a client is told at its end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Farewell {
    /// It is not let in.
    Refusal(String),
    /// It has to go, and only a new client may come back.
    Dismissal(String),
    /// The server goes, or the way to it. The client may come back.
    Goodbye(String),
}

impl DisconnectReason {
    /// What the client is told; nothing if it has gone.
    #[must_use]
    pub fn farewell(self) -> Option<Farewell> {
        match self {
            Self::Gone => None,
            Self::Refused(text) => Some(Farewell::Refusal(text)),
            Self::Dismissed(text) => Some(Farewell::Dismissal(text)),
            Self::Broken(text) => Some(Farewell::Goodbye(text)),
            Self::Stopped => Some(Farewell::Goodbye("the peer stopped".to_owned())),
        }
    }
}

/// Clients that have to go, and why. Each push wakes the host.
#[derive(Debug)]
pub struct DisconnectQueue {
    /// Wakes the host.
    pub wake: OwnedFd,
    list: Mutex<Vec<(ClientId, DisconnectReason)>>,
}

impl DisconnectQueue {
    /// None yet.
    pub(crate) fn new(wake: OwnedFd) -> Self {
        Self { wake, list: Mutex::default() }
    }

    /// Tells the host that `client` has to go.
    pub fn push(&self, client: ClientId, reason: DisconnectReason) {
        lock(&self.list).push((client, reason));
        os::signal(&self.wake);
    }

    /// The clients pushed since the last time.
    pub(crate) fn take(&self) -> Vec<(ClientId, DisconnectReason)> {
        std::mem::take(&mut lock(&self.list))
    }
}
