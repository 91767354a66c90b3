//! Calls: from a request's bytes to a reply's. The node executes control requests, a table's engine the
//! others.
//!
//! Invariant: [`Calls::handle`] leaves exactly one well-formed reply, no longer than the host carries: an
//! answer, or a refusal that says what, expected and got. A call that has an identity is executed at most
//! once ([`authors`](crate::authors)).

mod control;
mod pool;
mod recalls;
mod taking_in;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::{Answer, CallHandler, ServerPort, Ticket};
use farsight_protocol::{CallId, ControlRequest, ErrorCode, ReplyWriter, Request, ServerError};

use crate::authors::{Begun, Noting};
use crate::durable::Company;
use crate::engine::{Call, Scratch};
use crate::late_reply::LateReplies;
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
    late_replies: Arc<LateReplies>,
    /// Calls were handed to the log in this step.
    has_submitted: bool,
    company: Company,
}

impl Calls {
    pub(crate) fn new(state: Arc<NodeState>, listener: usize, name: String) -> Self {
        let late_replies = LateReplies::new(Arc::clone(state.listeners.get(listener)));
        Self {
            state,
            listener,
            name,
            now: MonotonicNs(0),
            view: View::default(),
            scratch: Scratch::default(),
            late_replies,
            has_submitted: false,
            company: Company::default(),
        }
    }

    /// Executes one request of a client, by the number of [`Listeners::client_of`], and returns the
    /// operations that it held, and when it is answered.
    fn execute(
        &mut self,
        client: ClientId,
        ticket: Ticket,
        (frame, noting): (&[u8], Option<&Noting>),
        answer: &mut ReplyWriter<'_>,
    ) -> Result<(u64, Answer), ServerError> {
        let request = Request::decode(frame)?;
        self.view.refresh(&self.state.tables);
        let table = match request {
            Request::Control(body) if self.begins_logged_author(body) => {
                return Ok((0, self.begin_logged_author(client, ticket, answer)));
            }
            Request::Control(body) => {
                return Ok((0, self.control_now_or_later((client, ticket), body, answer)?));
            }
            Request::Delegate { .. } | Request::Find { .. } => {
                let text = "this is a memory node: compute nodes that serve write and look for others";
                return Err(ServerError::new(ErrorCode::BadRequest, text));
            }
            Request::Get { table, .. }
            | Request::Scan { table, .. }
            | Request::Write { table, .. }
            | Request::Lookup { table, .. }
            | Request::TopModel { table, .. }
            | Request::SubModels { table, .. }
            | Request::BulkLoad { table, .. }
            | Request::GetValues { table, .. }
            | Request::ScanValues { table, .. }
            | Request::WriteValues { table, .. }
            | Request::StageValue { table, .. }
            | Request::WriteStaged { table, .. }
            | Request::FetchValue { table, .. }
            | Request::LetGo { table, .. }
            | Request::LoadValues { table, .. }
            | Request::LoadLong { table, .. } => table,
        };
        let message_bytes_max = self.message_bytes_max();
        let (scratch, late_replies) = (&mut self.scratch, &self.late_replies);
        let when = Answer::Now;
        let mut call =
            Call { client, scratch, answer, message_bytes_max, ticket, late_replies, noting, when };
        let table = self.view.get(table)?;
        table.check(&request, call.room_bytes())?;
        let submitted =
            self.state.durable.as_ref().and_then(|log| log.submit(&request, frame, table.ack(), &mut call));
        self.has_submitted |= matches!(submitted, Some(Ok(_)));
        let executed = submitted.unwrap_or_else(|| table.hosted().execute(&request, &mut call));
        if executed.as_ref().is_err_and(|error| error.code == ErrorCode::Damaged) {
            self.state.want_repairs();
        }
        let executed = executed?;
        if executed.wakes_background {
            self.state.background.raise();
        }
        Ok((executed.operations, call.when))
    }

    /// True for an author that begins at a node with a log.
    fn begins_logged_author(&self, body: &[u8]) -> bool {
        self.state.durable.is_some()
            && matches!(ControlRequest::decode(body), Ok(ControlRequest::BeginAuthor))
    }

    /// Begins an author, which is answered once the log has it. Returns when that is.
    fn begin_logged_author(
        &mut self,
        client: ClientId,
        ticket: Ticket,
        answer: &mut ReplyWriter<'_>,
    ) -> Answer {
        let author = self.state.authors.add();
        answer.push_control(&author);
        let message_bytes_max = self.message_bytes_max();
        let (scratch, late_replies) = (&mut self.scratch, &self.late_replies);
        let (noting, when) = (None, Answer::Now);
        let mut call =
            Call { client, scratch, answer, message_bytes_max, ticket, late_replies, noting, when };
        let (reply, when) = (call.answer_later(), call.when);
        if let Some(durable) = &self.state.durable {
            durable.begin_author(author, reply);
        }
        self.has_submitted = true;
        when
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
    fn handle(&mut self, client: ClientId, ticket: Ticket, frame: &[u8], reply: &mut Vec<u8>) -> Answer {
        let client = Listeners::client_of(self.listener, client);
        let (state, name) = (Arc::clone(&self.state), std::mem::take(&mut self.name));
        let limit_bytes = self.message_bytes_max();
        let (mut when, mut noting) = (Answer::Now, None);
        let operations = answer(&state.failure, &name, limit_bytes, reply, |reply| {
            let (id, request) = CallId::open(frame)?;
            if let Some(id) = id {
                match state.authors.begin(id)? {
                    Begun::First(own) => noting = Some(own),
                    Begun::Again(known) => {
                        reply.extend_from_slice(&known);
                        return Ok(0);
                    }
                }
            }
            let reply = &mut ReplyWriter::new(reply);
            let (operations, own) = self.execute(client, ticket, (request, noting.as_ref()), reply)?;
            when = own;
            Ok(operations)
        });
        if let (Some(noting), Answer::Now) = (noting, when) {
            noting.note(reply);
        }
        self.name = name;
        state.count_call(operations);
        when
    }
}

impl Executor for Calls {
    fn begin(&mut self, now: MonotonicNs) {
        self.now = now;
        self.view.refresh(&self.state.tables);
        // Without a log an engine may put calls off, too; that it wakes the worker once more costs it little.
        if self.state.durable.is_some() {
            self.late_replies.begin_step();
        }
    }

    fn finish_late(&mut self, port: &mut dyn ServerPort) -> usize {
        self.late_replies.finish(port)
    }

    fn end(&mut self, port: &mut dyn ServerPort, served: usize) -> usize {
        let Some(durable) = &self.state.durable else { return 0 };
        let has_submitted = std::mem::take(&mut self.has_submitted);
        let listener = self.state.listeners.get(self.listener);
        let who = self.company.note(served, has_submitted);
        let ended = catch_unwind(AssertUnwindSafe(|| durable.end_step(has_submitted, who, listener)));
        if let Err(payload) = ended {
            // The sequencer's thread refuses what waits, and this worker every call from now on.
            self.state.failure.record_panic("log", payload.as_ref());
        }
        let finished = self.late_replies.finish(port);
        finished + usize::from(self.late_replies.end_step())
    }

    fn has_late(&self) -> bool {
        self.late_replies.is_any()
    }
}
