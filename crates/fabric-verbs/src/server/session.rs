//! One client on the control connection: what it has said and not finished saying, and what it has open.
//!
//! Invariant: a session begins with a hello that was understood. Before that there is a connection, which is
//! no client. A session holds each queue whose queue pair its client's card may use, closed or not: with the
//! session they all end.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use farsight_base::{ClientId, RegionId};
use farsight_fabric_host::{DisconnectReason, Handshake};
use farsight_fabric_net::packets::Packets;
use rustix::event::epoll;

use super::queue::{Receives, ServerQueue};
use super::tenants::Tenant;
use crate::control::{FromClient, FromServer};
use crate::ibv::pair::Endpoint;

/// A question that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked {
    /// A queue, while there is no port.
    Queue(Endpoint),
    /// A region, while it is being registered.
    Region(RegionId),
}

/// One client.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: ClientId,
    pub(super) packets: Packets,
    pub(super) queues: Vec<Arc<ServerQueue>>,
    /// Some of the queues are closed.
    has_closed: bool,
    pub(super) receives: Option<Arc<Receives>>,
    pub(super) asked: Option<Asked>,
    /// Whose client it is.
    pub(super) tenant: Arc<Tenant>,
    /// Regions that it was told of and that are not withdrawn.
    pub(super) attached: BTreeSet<RegionId>,
    /// Its turn ended before all that it says was heard.
    pub(super) has_more: bool,
}

/// Checks a hello.
pub(super) fn check_hello(hello: &[u8], handshake: &Handshake) -> Result<(), DisconnectReason> {
    match FromClient::decode(hello) {
        Ok(FromClient::Hello { magic, fabric_version, format_version }) => {
            handshake.check(magic, fabric_version, format_version)
        }
        Ok(_) => Err(DisconnectReason::Refused("the first message was no hello".to_owned())),
        Err(error) => Err(DisconnectReason::Refused(error.to_string())),
    }
}

impl Session {
    /// Welcomes a client of `tenant`.
    pub(super) fn welcome(
        id: ClientId,
        packets: Packets,
        tenant: Arc<Tenant>,
        handshake: &Handshake,
        notice: u64,
    ) -> Result<Self, DisconnectReason> {
        let (queues, receives, asked) = (Vec::new(), None, None);
        let (attached, has_more) = (BTreeSet::new(), false);
        let has_closed = false;
        let mut session =
            Self { id, packets, queues, has_closed, receives, asked, tenant, attached, has_more };
        session.tell(&FromServer::Welcome { epoch: handshake.epoch.0, client: id.0 })?;
        if notice > 0 {
            session.tell(&FromServer::Notice { number: notice })?;
        }
        Ok(session)
    }

    /// The next question, `None` if there is none now.
    pub(super) fn listen(&mut self) -> Result<Option<FromClient>, DisconnectReason> {
        let dismissed = |why: String| Err(DisconnectReason::Dismissed(why));
        let Some(packet) = self.packets.next_question()? else { return Ok(None) };
        match FromClient::decode(&packet) {
            Ok(FromClient::Hello { .. }) => dismissed("a second hello".to_owned()),
            Ok(question @ FromClient::CloseQueue { .. }) => Ok(Some(question)),
            Ok(_) if self.asked.is_some() => {
                dismissed("a question before the last one was answered".to_owned())
            }
            Ok(question) => Ok(Some(question)),
            Err(error) => dismissed(error.to_string()),
        }
    }

    /// Closes the queue of this number.
    pub(super) fn close_queue(&mut self, number: u64) {
        if let Some(queue) = self.queues.iter().find(|queue| queue.number == number) {
            queue.gate.close();
            self.has_closed = true;
        }
    }

    /// Lets go of the closed queues that no port has any more: their queue pairs are gone, or go with them.
    pub(super) fn forget_closed(&mut self) {
        if self.has_closed {
            self.queues.retain(|queue| !queue.gate.is_closed() || Arc::strong_count(queue) > 1);
            self.has_closed = self.queues.iter().any(|queue| queue.gate.is_closed());
        }
    }

    /// Answers. A client that does not read its answers is gone.
    pub(super) fn tell(&mut self, message: &FromServer) -> Result<(), DisconnectReason> {
        self.packets.tell(&message.encode())
    }
}

impl farsight_fabric_host::Session for Session {
    type Queue = ServerQueue;

    fn queues(&self) -> &[Arc<ServerQueue>] {
        &self.queues
    }

    fn unwatch(&self, epoll: &OwnedFd) {
        let _ = epoll::delete(epoll, self.packets.socket());
    }

    /// Ends its queue pairs, then says why.
    fn end(mut self, reason: DisconnectReason) {
        for queue in &self.queues {
            queue.destroy();
        }
        self.packets.end(reason, FromServer::encode_farewell);
    }
}
