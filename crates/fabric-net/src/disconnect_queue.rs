//! The clients that ports ask their host to disconnect.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use farsight_base::ClientId;

use crate::{Ending, os};

/// Clients that have to go, and why. Each push wakes the host.
#[derive(Debug)]
pub struct DisconnectQueue {
    /// Wakes the host.
    pub wake: OwnedFd,
    list: Mutex<Vec<(ClientId, Ending)>>,
}

impl DisconnectQueue {
    /// None yet.
    #[must_use]
    pub fn new(wake: OwnedFd) -> Self {
        Self { wake, list: Mutex::default() }
    }

    /// Tells the host that `client` has to go.
    pub fn push(&self, client: ClientId, ending: Ending) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push((client, ending));
        os::signal(&self.wake);
    }

    /// The clients pushed since the last time.
    #[must_use]
    pub fn take(&self) -> Vec<(ClientId, Ending)> {
        std::mem::take(&mut self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
