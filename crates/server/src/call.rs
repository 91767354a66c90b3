//! Calls: from a request's bytes to a reply's, one operation a file.
//!
//! Invariant: [`Calls::handle`] leaves exactly one well-formed reply, no longer than the host carries: an
//! answer, or a refusal that says what, expected and got.

mod bulk_load;
mod control;
mod get;
mod lookup;
mod scan;
mod sub_models;
mod top_model;
mod write;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::CallHandler;
use farsight_index::{Answers, Pairs};
use farsight_index_xstore::server::SubModelImage;
use farsight_layout::SUB_MODEL_WORDS;
use farsight_protocol::{ErrorCode, ReplyWriter, Request, ServerError};

use crate::ServerState;

/// Bytes of a refusal's text at most: a peer's bytes quoted in it may be many.
const REFUSAL_BYTES_MAX: usize = 512;

/// What executes one worker's calls, with the buffers that it reuses.
pub(crate) struct Calls {
    state: Arc<ServerState>,
    /// The listener whose clients these are.
    listener: usize,
    /// The worker's name, for the report of a bug.
    name: String,
    now: MonotonicNs,
    keys: Vec<u64>,
    value: Vec<u8>,
    answers: Answers,
    pairs: Pairs,
}

impl Calls {
    pub(crate) fn new(state: Arc<ServerState>, listener: usize, name: String) -> Self {
        Self {
            state,
            listener,
            name,
            now: MonotonicNs(0),
            keys: Vec::new(),
            value: Vec::new(),
            answers: Answers::default(),
            pairs: Pairs::default(),
        }
    }

    /// Sets the time of the calls that follow.
    pub(crate) fn set_now(&mut self, now: MonotonicNs) {
        self.now = now;
    }

    /// Executes one request and returns the operations that it held.
    fn execute(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Result<u64, ServerError> {
        self.state.failure.check()?;
        let mut answer = ReplyWriter::new(reply);
        match Request::decode(request)? {
            Request::Control(body) => self.control(body, &mut answer),
            Request::Get { table, keys } => self.get(table, keys, &mut answer),
            Request::Scan { table, from, limit } => self.scan(table, from, limit, &mut answer),
            Request::Write { table, operation, entries } => {
                self.write(table, operation, entries, &mut answer)
            }
            Request::Lookup { table, key, .. } => self.lookup(table, key, &mut answer),
            Request::TopModel { table, first_word, .. } => self.top_model(table, first_word, &mut answer),
            Request::SubModels { table, first, limit, .. } => {
                self.sub_models(table, first, limit, &mut answer)
            }
            Request::BulkLoad { table, last, piece, entries } => {
                self.bulk_load(client, table, last, piece, entries, &mut answer)
            }
        }
    }

    fn check_length(&self, reply: &[u8]) -> Result<(), ServerError> {
        let limit_bytes = self.message_bytes_max();
        if reply.len() <= limit_bytes {
            return Ok(());
        }
        let text =
            format!("the answer has {} B, a message carries {limit_bytes} B: ask for less", reply.len());
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }

    /// Bytes that `answer` may still grow by.
    fn room_bytes(&self, answer: &ReplyWriter<'_>) -> usize {
        self.message_bytes_max() - answer.len()
    }

    fn message_bytes_max(&self) -> usize {
        self.state.listeners[self.listener].message_bytes_max()
    }
}

impl CallHandler for Calls {
    fn handle(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) {
        let client = ServerState::client_of(self.listener, client);
        // Sound to go on after a panic: latches and locks are released as it unwinds, the buffers are written
        // before they are read, and the failure that is recorded keeps every later call away from the tables.
        let executed = catch_unwind(AssertUnwindSafe(|| self.execute(client, request, reply)));
        let executed = executed.unwrap_or_else(|payload| {
            self.state.failure.record_panic(&self.name, payload.as_ref());
            self.state.failure.check().map(|()| 0)
        });
        let executed = executed.and_then(|operations| self.check_length(reply).map(|()| operations));
        self.state.count_call(*executed.as_ref().unwrap_or(&0));
        if let Err(mut error) = executed {
            let end = (0..=REFUSAL_BYTES_MAX).rev().find(|end| error.text.is_char_boundary(*end));
            error.text.truncate(end.unwrap_or(0));
            ReplyWriter::new(reply).refuse(&error);
        }
    }
}

/// Bytes of a sub-model in a reply.
fn sub_model_bytes(image: &SubModelImage) -> usize {
    8 * (1 + SUB_MODEL_WORDS + image.entries.len())
}
