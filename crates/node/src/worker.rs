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

    /// Answers the calls that were put off and whose replies have come, and executes up to `budget_calls`
    /// waiting ones. Returns how many there were of both.
    pub fn step(&mut self, now: MonotonicNs, budget_calls: usize) -> usize {
        self.calls.begin(now);
        let late = self.calls.finish_late(&mut *self.port);
        let served = self.port.serve(budget_calls, &mut self.calls);
        late + served + self.calls.end(&mut *self.port, served)
    }

    /// Sleeps until a call or a late reply may be waiting, [`Host::wake`](farsight_fabric::Host::wake), or
    /// `timeout`.
    pub fn wait(&mut self, timeout: Duration) {
        if !self.calls.has_late() {
            self.port.wait(timeout);
        }
    }
}
