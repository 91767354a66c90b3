//! A worker: one port's calls, executed in order of arrival.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_fabric::{FabricError, ServerPort};

use crate::NodeState;
use crate::call::Calls;

/// One port and what executes its calls.
pub struct Worker {
    port: Box<dyn ServerPort>,
    calls: Calls,
}

impl Worker {
    /// A worker called `name`, with a port of its own at the node's listener of this number.
    ///
    /// # Errors
    /// As [`Host::open_port`](farsight_fabric::Host::open_port).
    pub fn open(state: &Arc<NodeState>, listener: usize, name: &str) -> Result<Self, FabricError> {
        let port = state.listeners.get(listener).open_port()?;
        Ok(Self { port, calls: Calls::new(Arc::clone(state), listener, name.to_owned()) })
    }

    /// Executes up to `budget_calls` waiting calls. Returns how many there were. Blocks in a fence alone, and
    /// then as long as the fabric bounds it.
    pub fn step(&mut self, now: MonotonicNs, budget_calls: usize) -> usize {
        self.calls.set_now(now);
        self.port.serve(budget_calls, &mut self.calls)
    }

    /// Sleeps until a call may be waiting, [`Host::wake`](farsight_fabric::Host::wake), or `timeout`.
    pub fn wait(&mut self, timeout: Duration) {
        self.port.wait(timeout);
    }
}
