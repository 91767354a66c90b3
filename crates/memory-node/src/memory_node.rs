//! The runner of a memory node's threads.

use std::sync::Arc;

use farsight_base::Epoch;
use farsight_base::clock::{Clock, SystemClock};
use farsight_base::report::report;
use farsight_fabric::Listener;
use farsight_node::{ShutdownError, StartError, Threads};
use farsight_protocol::MemoryNodeStats;

use crate::{MemoryNodeOptions, NodeState};

/// The way to start a memory node.
pub struct MemoryNode;

/// A running memory node; dropping it stops it, and its memory is gone.
pub struct MemoryNodeHandle {
    state: Arc<NodeState>,
    clock: SystemClock,
    threads: Threads,
}

impl MemoryNode {
    /// Starts a memory node that listens at all `listeners`, of which the first creates its regions: for each
    /// a control thread and workers, and one thread that trains its parts of XStore-D tables.
    ///
    /// # Errors
    /// [`StartError`]; whatever was started before is stopped again.
    pub fn start(
        listeners: Vec<Arc<dyn Listener>>,
        options: &MemoryNodeOptions,
    ) -> Result<MemoryNodeHandle, StartError> {
        let clock = SystemClock::new();
        let state = NodeState::new(listeners, options, clock.now())?;
        let waking = Arc::clone(&state);
        let mut threads = Threads::new(Arc::clone(&state.failure), move || {
            waking.listeners.wake();
            waking.parts.wake_background();
        });
        threads.serve(&state, options.workers, &clock)?;
        farsight_server::spawn_training(&mut threads, &state.parts, &clock)?;
        if let Some(lease) = state.lease_of_processes() {
            report(format_args!(
                "a process over shared memory that holds a lock for {lease:?} (--lease) while others wait for it, and \
                 then does not answer, is killed"
            ));
        }
        Ok(MemoryNodeHandle { state, clock, threads })
    }
}

impl MemoryNodeHandle {
    /// This life of the memory node, whichever address it is reached by.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.state.epoch()
    }

    /// The node's statistics now.
    #[must_use]
    pub fn stats(&self) -> MemoryNodeStats {
        self.state.stats(self.clock.now())
    }

    /// Why the node refuses every call, if a bug made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.state.failure()
    }

    /// Calls `told` when a bug makes the node refuse every call, at once if one has: then
    /// [`MemoryNodeHandle::failure`] says which. It runs in the thread that met the bug, and must not block.
    pub fn on_failure(&self, told: impl FnOnce() + Send + 'static) {
        self.state.failure.on_record(told);
    }

    /// Stops the threads and waits for them. Clients notice it when the host is dropped by its last owner.
    ///
    /// # Errors
    /// [`ShutdownError`] if a thread does not end within 10 s.
    pub fn shutdown(mut self) -> Result<(), ShutdownError> {
        self.threads.stop()
    }
}
