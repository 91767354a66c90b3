//! One client on the control connection: what it has said and not finished saying, and what it has open.
//!
//! Invariant: a session begins with a hello that was understood. Before that there is a connection, which is
//! no client.

use std::collections::BTreeSet;
use std::sync::Arc;

use farsight_base::{ClientId, RegionId};
use farsight_fabric_net::packets::{Next, Packets};
use farsight_fabric_net::{Ending, Handshake, os};

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
pub(super) fn check_hello(hello: &[u8], handshake: &Handshake) -> Result<(), Ending> {
    match FromClient::decode(hello) {
        Ok(FromClient::Hello { magic, fabric_version, format_version }) => {
            handshake.check(magic, fabric_version, format_version)
        }
        Ok(_) => Err(Ending::Refused("the first message was no hello".to_owned())),
        Err(error) => Err(Ending::Refused(error.to_string())),
    }
}

/// The packet of a refusal.
pub(super) fn refusal(text: String) -> Vec<u8> {
    FromServer::Refusal { text }.encode()
}

impl Session {
    /// Welcomes a client of `tenant`.
    pub(super) fn welcome(
        id: ClientId,
        packets: Packets,
        tenant: Arc<Tenant>,
        handshake: &Handshake,
        notice: u64,
    ) -> Result<Self, Ending> {
        let (queues, receives, asked) = (Vec::new(), None, None);
        let (attached, has_more) = (BTreeSet::new(), false);
        let mut session = Self { id, packets, queues, receives, asked, tenant, attached, has_more };
        session.tell(&FromServer::Welcome { epoch: handshake.epoch.0, client: id.0 })?;
        if notice > 0 {
            session.tell(&FromServer::Notice { number: notice })?;
        }
        Ok(session)
    }

    /// The next question, `None` if there is none now.
    pub(super) fn listen(&mut self) -> Result<Option<FromClient>, Ending> {
        let dismissed = |why: String| Err(Ending::Dismissed(why));
        let packet = match self.packets.receive() {
            Ok(Next::Packet(packet)) => packet,
            Ok(Next::Nothing) => return Ok(None),
            Ok(Next::Unintelligible(error)) => return dismissed(error.to_string()),
            Ok(Next::End) => return Err(Ending::Gone),
            Err(error) => return dismissed(format!("the connection failed: {error}")),
        };
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

    /// Answers. A client that does not read its answers is gone.
    pub(super) fn tell(&mut self, message: &FromServer) -> Result<(), Ending> {
        self.packets.send(&message.encode()).map_err(|_| Ending::Gone)
    }

    /// Ends its queues, says why, and hangs up.
    pub(super) fn end(mut self, ending: Ending) {
        for queue in &self.queues {
            queue.destroy();
        }
        let message = match ending {
            Ending::Gone => None,
            Ending::Refused(text) => Some(FromServer::Refusal { text }),
            Ending::Dismissed(text) => Some(FromServer::Dismissal { text }),
            Ending::Broken(text) => Some(FromServer::Goodbye { text }),
            Ending::Stopped => Some(FromServer::Goodbye { text: "the peer stopped".to_owned() }),
        };
        // A client that does not read misses the reason, not the end.
        let _ = message.map(|message| self.tell(&message));
        os::hang_up(self.packets.socket());
    }
}
