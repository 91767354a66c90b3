//! What a process does for its clients, as its threads see it.

use std::sync::Arc;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::{CallHandler, ServerPort};

use crate::{Failure, Listeners};

/// What the threads of one process share: all that their clients ask for.
pub trait Service: Send + Sync + Sized + 'static {
    /// What executes one worker's calls.
    type Calls: Executor;

    /// Where its clients come from.
    fn listeners(&self) -> &Listeners;

    /// What ends all answers.
    fn failure(&self) -> &Arc<Failure>;

    /// What executes the calls of the worker of this name, for clients of the listener of this number.
    fn calls(self: &Arc<Self>, listener: usize, name: &str) -> Self::Calls;

    /// Notes clients that have ended: none of their requests executes any more.
    fn note_departed(&self, clients: Vec<ClientId>);
}

/// What executes one worker's calls.
pub trait Executor: CallHandler + Send + 'static {
    /// Begins a step: sets the time of its calls, and lets go of what has ended.
    fn begin(&mut self, now: MonotonicNs);

    /// Finishes calls that were put off and whose replies have come. Returns how many these were.
    fn finish_late(&mut self, port: &mut dyn ServerPort) -> usize;

    /// Ends a step, behind its calls, of which the port has `served` so many. Returns how many more were
    /// finished, or one if there are such replies.
    fn end(&mut self, port: &mut dyn ServerPort, served: usize) -> usize;

    /// True if there are such replies.
    fn has_late(&self) -> bool;
}
