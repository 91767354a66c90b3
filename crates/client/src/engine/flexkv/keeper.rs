//! What one node tells this compute node of values that it keeps: which of them count no more.
//!
//! Invariant: it says that it has let go of values only when no GET that begins afterwards is answered by
//! one of them.
//!
//! Protocol: one call is under way at a time, which the node answers once something is recalled. The next
//! call says what was let go of. A call that is lost is one that says less: the node tells it again.

use std::sync::Arc;
use std::time::Duration;

use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index_flexkv::Values;
use farsight_protocol::{ControlRequest, Recalls, Reply, Request, TableId};

use crate::CatalogueError;
use crate::call::{SENT_SLOT, send};
use crate::engine::AwaitRecalls;
#[cfg(injected)]
use crate::injected;
use crate::nodes::Nodes;

/// The way to one node's recalls.
pub(super) struct NodeRecalls<C: Connection> {
    /// Ends before its connection.
    queue: C::Queue,
    connection: Arc<C>,
    table: TableId,
    values: Arc<Values>,
    is_sent: bool,
    /// The number of the last recall that it has let go of.
    let_go: u64,
    frame: Vec<u8>,
    reply: Vec<u8>,
}

impl<C: Connection> NodeRecalls<C> {
    pub(super) fn new(
        nodes: &Nodes<C>,
        node: usize,
        table: TableId,
        values: Arc<Values>,
    ) -> Result<Self, FabricError> {
        let connection = nodes.shared_connection(node);
        let queue = connection.open_queue()?;
        let (is_sent, let_go, frame, reply) = (false, 0, Vec::new(), Vec::new());
        Ok(Self { queue, connection, table, values, is_sent, let_go, frame, reply })
    }

    fn answered(&self) -> Result<Recalls, CatalogueError> {
        let peer = || self.connection.peer().to_owned();
        let unintelligible = |source| CatalogueError::Decode { peer: peer(), source };
        let refused = |source| CatalogueError::Refused { peer: peer(), source };
        Reply::decode(&self.reply)
            .map_err(unintelligible)
            .and_then(|reply| reply.map_err(refused)?.control().map_err(unintelligible))
    }
}

impl<C: Connection> AwaitRecalls for NodeRecalls<C> {
    fn attend(&mut self, within: Duration) -> Result<bool, CatalogueError> {
        if !self.is_sent {
            let request = ControlRequest::AwaitRecalls { table: self.table, let_go: self.let_go };
            Request::control(&mut self.frame, &request);
            send(&mut self.queue, &self.frame)?;
            self.is_sent = true;
        }
        let begun = self.queue.now();
        loop {
            self.queue.poll()?;
            if self.queue.is_complete(SENT_SLOT) {
                break;
            }
            let left = within.saturating_sub(self.queue.now().since(begun));
            if left.is_zero() {
                return Ok(false);
            }
            self.queue.wait(left)?;
        }
        self.queue.take_reply(SENT_SLOT, &mut self.reply)?;
        let recalls = self.answered()?;
        #[cfg(injected)]
        if injected::LET_GO_LATER.is_injected() {
            let request = ControlRequest::AwaitRecalls { table: self.table, let_go: recalls.number };
            Request::control(&mut self.frame, &request);
            send(&mut self.queue, &self.frame)?;
            self.connection.clock().sleep(Duration::from_millis(1));
            self.values.let_go(&recalls.recalled);
            self.let_go = recalls.number;
            return Ok(true);
        }
        self.values.let_go(&recalls.recalled);
        (self.let_go, self.is_sent) = (self.let_go.max(recalls.number), false);
        Ok(true)
    }
}
