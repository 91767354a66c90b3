//! Calls: from a request's bytes to a reply's, one operation a file.
//!
//! Invariant: [`Calls::handle`] leaves exactly one well-formed reply, no longer than the host carries: an
//! answer, or a refusal that says what, expected and got.

mod bulk_load;
mod control;
mod get;
mod lookup;
mod pool;
mod scan;
mod sub_models;
mod top_model;
mod write;

use std::sync::Arc;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::{Answer, CallHandler, Ticket};
use farsight_index::{Answers, Pairs};
use farsight_index_xstore::server::SubModelImage;
use farsight_layout::SUB_MODEL_WORDS;
use farsight_protocol::{ReplyWriter, Request, ServerError};

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
    keys: Vec<u64>,
    value: Vec<u8>,
    answers: Answers,
    pairs: Pairs,
}

impl Calls {
    pub(crate) fn new(state: Arc<NodeState>, listener: usize, name: String) -> Self {
        Self {
            state,
            listener,
            name,
            now: MonotonicNs(0),
            view: View::default(),
            keys: Vec::new(),
            value: Vec::new(),
            answers: Answers::default(),
            pairs: Pairs::default(),
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
        match request {
            Request::Control(body) => self.control(client, body, answer),
            Request::Get { table, keys } => self.get(table, keys, answer),
            Request::Scan { table, from, limit } => self.scan(table, from, limit, answer),
            Request::Write { table, operation, entries } => self.write(table, operation, entries, answer),
            Request::Lookup { table, key, .. } => self.lookup(table, key, answer),
            Request::TopModel { table, first_word, .. } => self.top_model(table, first_word, answer),
            Request::SubModels { table, first, limit, .. } => self.sub_models(table, first, limit, answer),
            Request::BulkLoad { table, last, piece, entries } => {
                self.bulk_load(client, table, last, piece, entries, answer)
            }
        }
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

/// Bytes of a sub-model in a reply.
fn sub_model_bytes(image: &SubModelImage) -> usize {
    8 * (1 + SUB_MODEL_WORDS + image.entries.len())
}
