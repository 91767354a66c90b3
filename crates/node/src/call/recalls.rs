//! Calls of compute nodes that keep values, and of those that have them let go: answered later, mostly.

use std::sync::Arc;

use farsight_base::ClientId;
use farsight_fabric::{Answer, Ticket};
use farsight_protocol::{ControlRequest, Recalled, Recalls, ReplyWriter, ServerError, TableId};
use serde::Serialize;

use super::Calls;
use crate::LateReply;

impl Calls {
    /// Executes a control request. Returns when it is answered.
    pub(super) fn control_now_or_later(
        &mut self,
        (client, ticket): (ClientId, Ticket),
        body: &[u8],
        answer: &mut ReplyWriter<'_>,
    ) -> Result<Answer, ServerError> {
        match ControlRequest::decode(body)? {
            ControlRequest::AwaitRecalls { table, let_go } => {
                self.await_recalls((client, ticket), (table, let_go), answer)
            }
            ControlRequest::Recall { table, recalled } => {
                self.recall((client, ticket), (table, recalled), answer)
            }
            request => self.control(client, request, answer).map(|()| Answer::Now),
        }
    }

    /// Notes what a compute node has let go of. Answers it by what is recalled, now or later.
    fn await_recalls(
        &self,
        (client, ticket): (ClientId, Ticket),
        (table, let_go): (TableId, u64),
        answer: &mut ReplyWriter<'_>,
    ) -> Result<Answer, ServerError> {
        let (who, objects) = (self.state.owner(client)?, self.view.get(table)?.objects()?);
        let (mut when, longest) = (Answer::Now, Recalls::longest());
        let park = || self.put_off(ticket, &longest, &mut when);
        if let Some(recalls) = objects.await_recalls((who, let_go), self.now, park)? {
            answer.push_control(&recalls);
        }
        Ok(when)
    }

    /// Has those let go who keep values. Answers whether they have, now or later.
    fn recall(
        &self,
        (client, ticket): (ClientId, Ticket),
        (table, recalled): (TableId, Recalled),
        answer: &mut ReplyWriter<'_>,
    ) -> Result<Answer, ServerError> {
        let (who, objects) = (self.state.owner(client)?, self.view.get(table)?.objects()?);
        let mut when = Answer::Now;
        let park = || self.put_off(ticket, &false, &mut when);
        if let Some(is_done) = objects.recall((who, recalled), self.now, park) {
            answer.push_control(&is_done);
        }
        Ok(when)
    }

    /// The reply of a call that is answered later, by nothing longer than this.
    fn put_off(&self, ticket: Ticket, longest: &impl Serialize, when: &mut Answer) -> LateReply {
        let mut reply = Vec::new();
        ReplyWriter::new(&mut reply).push_control(longest);
        let reply = LateReply::new(ticket, reply, Arc::clone(&self.late_replies), None);
        *when = Answer::Later { reply_bytes_max: reply.bytes_max() };
        reply
    }
}
