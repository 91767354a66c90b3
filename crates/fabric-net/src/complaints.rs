//! What a host is told by its ports.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use farsight_base::ClientId;

use crate::{Ending, os};

/// Clients that have to go, and why; whoever files one wakes the host.
#[derive(Debug)]
pub struct Complaints {
    /// Wakes the host.
    pub wake: OwnedFd,
    list: Mutex<Vec<(ClientId, Ending)>>,
}

impl Complaints {
    /// None yet.
    #[must_use]
    pub fn new(wake: OwnedFd) -> Self {
        Self { wake, list: Mutex::default() }
    }

    /// Tells the host that `client` has to go.
    pub fn file(&self, client: ClientId, ending: Ending) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push((client, ending));
        os::signal(&self.wake);
    }

    /// What was filed since the last time.
    #[must_use]
    pub fn take(&self) -> Vec<(ClientId, Ending)> {
        std::mem::take(&mut self.list.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
