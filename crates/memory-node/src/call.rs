//! Calls: from a request's bytes to a reply's.

use std::sync::Arc;

use farsight_base::clock::MonotonicNs;
use farsight_base::{ClientId, Epoch};
use farsight_fabric::{Answer, CallHandler, Ticket};
use farsight_node::{Listeners, Service, answer};
use farsight_protocol::{
    ControlRequest, ErrorCode, NodeKind, PoolHello, PoolRequest, PoolTableInfo, ReplyWriter, Request,
    ServerError,
};

use crate::NodeState;
use crate::compute_nodes::Identity;
use crate::table::Table;

/// What executes one worker's calls.
pub struct Calls {
    state: Arc<NodeState>,
    /// What executes those on parts of XStore-D tables.
    parts: farsight_server::Calls,
    /// The listener whose clients these are.
    listener: usize,
    /// The worker's name, for the report of a bug.
    name: String,
    now: MonotonicNs,
}

impl Calls {
    pub(crate) fn new(state: Arc<NodeState>, listener: usize, name: String) -> Self {
        let parts = state.parts.calls(listener, &name);
        Self { state, parts, listener, name, now: MonotonicNs(0) }
    }

    fn execute(&mut self, client: ClientId, request: &[u8], reply: &mut Vec<u8>) -> Result<(), ServerError> {
        let mut answer = ReplyWriter::new(reply);
        let request = Request::decode(request)?;
        match request {
            Request::Pool(body) => {
                let request = PoolRequest::decode(body)?;
                request.check()?;
                self.pool(client, request, &mut answer)
            }
            Request::Control(body) => match ControlRequest::decode(body)? {
                ControlRequest::Identify => {
                    answer.push_control(&NodeKind::MemoryNode);
                    Ok(())
                }
                ControlRequest::PendingTraining => self.parts.execute(client, request, &mut answer).map(drop),
                _ => {
                    let text = "this is a memory node of a pool, not a server: it makes and describes no tables of \
                                its own";
                    Err(ServerError::new(ErrorCode::BadRequest, text))
                }
            },
            of_a_part => self.parts.execute(client, of_a_part, &mut answer).map(drop),
        }
    }

    fn pool(
        &self,
        client: ClientId,
        request: PoolRequest,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<(), ServerError> {
        let state = &self.state;
        let tables = &state.tables;
        let owner = || state.owner(client);
        match request {
            PoolRequest::Hello => {
                answer.push_control(&PoolHello { epoch: state.epoch().0, place: tables.place().cloned() });
            }
            PoolRequest::Register => {
                answer.push_control(&state.compute_nodes().register(state.epoch(), client)?);
            }
            PoolRequest::Announce { home, compute_node } => {
                let identity = Identity { home: Epoch(home), compute_node };
                state.check_home(identity.home)?;
                let is_home = identity.home == state.epoch();
                state.compute_nodes().announce(client, identity, is_home)?;
            }
            PoolRequest::CreateTable { definition, place, id } => {
                answer.push_control(tables.create(state, definition, place, id)?.info());
            }
            PoolRequest::OpenTable(name) => answer.push_control(tables.open(&name)?.info()),
            PoolRequest::ListTables => {
                let infos: Vec<&PoolTableInfo> = tables.iter().map(Table::info).collect();
                answer.push_control(&infos);
            }
            PoolRequest::Allocate { table, space, count } => {
                answer.push_control(&tables.get(table)?.allocate(owner()?, space, count)?);
            }
            PoolRequest::Free { table, space, blocks } => {
                answer.push_control(&tables.get(table)?.free(owner()?, space, &blocks)?);
            }
            PoolRequest::Adopt { table, space, blocks } => {
                tables.get(table)?.adopt(owner()?, space, &blocks)?;
            }
            PoolRequest::Settle { table, space, blocks } => {
                tables.get(table)?.settle(owner()?, space, &blocks)?;
            }
            PoolRequest::Ended { table, space } => {
                answer.push_control(&tables.get(table)?.ended(space)?);
            }
            PoolRequest::TakeOrphans { table, space, of } => {
                answer.push_control(&tables.get(table)?.take_orphans(owner()?, space, of)?);
            }
            PoolRequest::Fence { home, compute_node, seen } => {
                let identity = Identity { home: Epoch(home), compute_node };
                if state.compute_nodes().of(client)? == identity {
                    let text = format!("{compute_node} asks to be fenced itself: it need only disconnect");
                    return Err(ServerError::new(ErrorCode::BadRequest, text));
                }
                answer.push_control(&state.fence(identity, seen, self.now)?);
            }
            PoolRequest::Stats => answer.push_control(&state.stats(self.now)),
        }
        Ok(())
    }
}

impl CallHandler for Calls {
    fn handle(&mut self, client: ClientId, _: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        let client = Listeners::client_of(self.listener, client);
        let (state, name) = (Arc::clone(&self.state), std::mem::take(&mut self.name));
        let limit_bytes = state.listeners.get(self.listener).message_bytes_max();
        answer(&state.failure, &name, limit_bytes, reply, |reply| {
            self.execute(client, request, reply).map(|()| 0)
        });
        self.name = name;
        state.count_call();
        Answer::Now
    }
}

impl farsight_node::Calls for Calls {
    fn set_now(&mut self, now: MonotonicNs) {
        self.now = now;
        self.parts.set_now(now);
    }
}
