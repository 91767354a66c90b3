//! The runner of a memory node's threads.

use std::sync::Arc;

use farsight_base::Epoch;
use farsight_base::clock::{Clock, SystemClock};
use farsight_fabric::Listener;
use farsight_node::{ShutdownError, StartError, Threads};
use farsight_protocol::MemoryNodeStats;

use crate::{MemoryNodeOptions, NodeState, Worker};

/// Calls of one worker step.
const STEP_CALLS: usize = 64;

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
    /// a control thread and workers.
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
        let mut threads = Threads::new(Arc::clone(&state.failure), move || waking.listeners.wake());
        // All ports before the first client: clients are spread over the ports that exist.
        let mut workers = Vec::new();
        for listener in 0..state.listeners.len() {
            for _ in 0..options.workers {
                let name = format!("worker {}", workers.len());
                let worker = Worker::open(&state, listener, &name)
                    .map_err(|source| StartError::Port { worker: name.clone(), source })?;
                workers.push((name, worker));
            }
        }
        for (name, mut worker) in workers {
            let clock = clock.clone();
            let step = move |worker: &mut Worker| worker.step(clock.now(), STEP_CALLS);
            threads.spawn(&name, move |stop| stop.work(&mut worker, step, Worker::wait))?;
        }
        for listener in 0..state.listeners.len() {
            let state = Arc::clone(&state);
            threads.spawn(&format!("control {listener}"), move |stop| {
                let departed = |clients: Vec<_>| state.note_departed(&clients);
                stop.control(&state.listeners, listener, &state.failure, departed);
            })?;
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

    /// Stops the threads and waits for them. Clients notice it when the host is dropped by its last owner.
    ///
    /// # Errors
    /// [`ShutdownError`] if a thread does not end within 10 s.
    pub fn shutdown(mut self) -> Result<(), ShutdownError> {
        self.threads.stop()
    }
}
