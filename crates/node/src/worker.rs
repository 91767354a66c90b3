//! A worker: one port's calls, executed in order of arrival.
//!
//! Invariant: a call is executed by one worker from start to end; what a panic leaves behind is answered like
//! any other call and turns the process to refusing ([`crate::Failure`]).

use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_fabric::{FabricError, ServerPort};

use crate::{Executor as _, NodeState, Service};

/// One port and what executes its calls.
pub struct Worker<S: Service = NodeState> {
    port: Box<dyn ServerPort>,
    calls: S::Calls,
}

impl<S: Service> Worker<S> {
    /// A worker called `name`, with a port of its own at the listener of this number.
    ///
    /// # Errors
    /// As [`Host::open_port`](farsight_fabric::Host::open_port).
    pub fn open(service: &Arc<S>, listener: usize, name: &str) -> Result<Self, FabricError> {
        let port = service.listeners().get(listener).open_port()?;
        Ok(Self { port, calls: service.calls(listener, name) })
    }

    /// Executes up to `budget_calls` waiting calls. Returns how many there were. Blocks in a fence alone, and
    /// then as long as the fabric bounds it.
    pub fn step(&mut self, now: MonotonicNs, budget_calls: usize) -> usize {
        self.calls.begin(now);
        self.port.serve(budget_calls, &mut self.calls)
    }

    /// Sleeps until a call may be waiting, [`Host::wake`](farsight_fabric::Host::wake), or `timeout`.
    pub fn wait(&mut self, timeout: Duration) {
        self.port.wait(timeout);
    }
}
