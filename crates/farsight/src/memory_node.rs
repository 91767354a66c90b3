//! A memory node of a pool inside the calling process.

use farsight_base::Epoch;
use farsight_memory_node::MemoryNodeHandle;
use farsight_protocol::MemoryNodeStats;

use crate::{ServerUrl, ShutdownError};

/// A running memory node, with threads of its own. Dropping it stops it, and its part of every table is gone.
pub struct MemoryNode {
    urls: Vec<ServerUrl>,
    handle: MemoryNodeHandle,
}

impl MemoryNode {
    pub(crate) fn new(urls: Vec<ServerUrl>, handle: MemoryNodeHandle) -> Self {
        Self { urls, handle }
    }

    /// What compute nodes connect to; of several addresses the best, shared memory before others.
    #[must_use]
    pub fn url(&self) -> &ServerUrl {
        &self.urls[0]
    }

    /// All addresses at which it listens, the best first. Where the system chose a port, it is named.
    #[must_use]
    pub fn urls(&self) -> &[ServerUrl] {
        &self.urls
    }

    /// This life of the memory node.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.handle.epoch()
    }

    /// The memory node's statistics now.
    #[must_use]
    pub fn stats(&self) -> MemoryNodeStats {
        self.handle.stats()
    }

    /// Why the node refuses every call, if a bug in it made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.handle.failure()
    }

    /// Calls `told` when a bug makes the node refuse every call, at once if one has: then
    /// [`MemoryNode::failure`] says which. A program ends the node then, or itself. `told` runs in the thread
    /// that met the bug, and must not block; to wait, let it send to a channel.
    pub fn on_failure(&self, told: impl FnOnce() + Send + 'static) {
        self.handle.on_failure(told);
    }

    /// Stops the memory node: its clients' operations fail within a second.
    ///
    /// # Errors
    /// [`ShutdownError`] if a thread does not end within 10 s.
    pub fn shutdown(self) -> Result<(), ShutdownError> {
        self.handle.shutdown()
    }
}
