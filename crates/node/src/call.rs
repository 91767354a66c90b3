//! Calls: from a request's bytes to a reply's. The node executes control requests, a table's engine the
//! others.
//!
//! Invariant: [`Calls::handle`] leaves exactly one well-formed reply, no longer than the host carries: an
//! answer, or a refusal that says what, expected and got.

mod control;
mod pool;

use std::sync::Arc;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::{Answer, CallHandler, Ticket};
use farsight_protocol::{ReplyWriter, Request, ServerError};

use crate::engine::{Call, Scratch};
use crate::tables::View;
use crate::{Executor, Listeners, NodeState, answer};

/// What executes one worker's calls, with the buffers that it reuses.
pub struct Calls {
    state: Arc<NodeState>,
    /// The listener whose clients these are.
    listener: usize,
    /// The worker's name, for the report of a bug.
    name: String,
    now: MonotonicNs,
    view: View,
    scratch: Scratch,
}

impl Calls {
    pub(crate) fn new(state: Arc<NodeState>, listener: usize, name: String) -> Self {
        Self {
            state,
            listener,
            name,
            now: MonotonicNs(0),
            view: View::default(),
            scratch: Scratch::default(),
        }
    }

    /// Executes one request of a client, by the number of [`Listeners::client_of`], and returns the
    /// operations that it held.
    fn execute(
        &mut self,
        client: ClientId,
        request: Request<'_>,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<u64, ServerError> {
        self.view.refresh(&self.state.tables);
        let table = match request {
            Request::Control(body) => return self.control(client, body, answer),
            Request::Get { table, .. }
            | Request::Scan { table, .. }
            | Request::Write { table, .. }
            | Request::Lookup { table, .. }
            | Request::TopModel { table, .. }
            | Request::SubModels { table, .. }
            | Request::BulkLoad { table, .. } => table,
        };
        let message_bytes_max = self.message_bytes_max();
        let mut call = Call { client, scratch: &mut self.scratch, answer, message_bytes_max };
        let table = self.view.get(table)?;
        table.check(&request, call.room_bytes())?;
        let executed = table.hosted().execute(&request, &mut call)?;
        if executed.wakes_background {
            self.state.background.raise();
        }
        Ok(executed.operations)
    }

    /// Bytes that `answer` may still grow by.
    fn room_bytes(&self, answer: &ReplyWriter<'_>) -> usize {
        self.message_bytes_max() - answer.len()
    }

    fn message_bytes_max(&self) -> usize {
        self.state.listeners.get(self.listener).message_bytes_max()
    }
}

impl CallHandler for Calls {
    fn handle(&mut self, client: ClientId, _: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        let client = Listeners::client_of(self.listener, client);
        let (state, name) = (Arc::clone(&self.state), std::mem::take(&mut self.name));
        let limit_bytes = self.message_bytes_max();
        let operations = answer(&state.failure, &name, limit_bytes, reply, |reply| {
            self.execute(client, Request::decode(request)?, &mut ReplyWriter::new(reply))
        });
        self.name = name;
        state.count_call(operations);
        Answer::Now
    }
}

impl Executor for Calls {
    fn begin(&mut self, now: MonotonicNs) {
        self.now = now;
        self.view.refresh(&self.state.tables);
    }
}
