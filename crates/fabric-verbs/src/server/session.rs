//! One client on the control connection: what it has said and not finished saying, and what it has open.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::{ClientId, RegionId};
use farsight_fabric_net::packets::{Next, Packets};
use farsight_fabric_net::{Ending, Manners, os};

use super::queue::{Receives, ServerQueue};
use super::tenants::{Tenant, Tenants};
use crate::control::{FromClient, FromServer};
use crate::ibv::pair::Endpoint;

/// How long a client may take to say hello. It looks for its device in between, which takes a busy machine a
/// while.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// By when it must have said hello; none once it has.
    pub(super) hello_due: Option<Instant>,
    pub(super) queues: Vec<Arc<ServerQueue>>,
    pub(super) receives: Option<Arc<Receives>>,
    pub(super) asked: Option<Asked>,
    /// Whose client it is, once it has said hello.
    pub(super) tenant: Option<Arc<Tenant>>,
    /// Its turn ended before all that it says was heard.
    pub(super) has_more: bool,
}

impl Session {
    pub(super) fn new(id: ClientId, packets: Packets) -> Self {
        Self {
            id,
            packets,
            hello_due: Some(Instant::now() + HELLO_TIMEOUT),
            queues: Vec::new(),
            receives: None,
            asked: None,
            tenant: None,
            has_more: false,
        }
    }

    /// The next question, `None` if there is none now. Greets a client that says hello.
    pub(super) fn listen(
        &mut self,
        manners: &Manners,
        tenants: &Tenants,
    ) -> Result<Option<FromClient>, Ending> {
        let packet = match self.packets.receive() {
            Ok(Next::Packet(packet)) => packet,
            Ok(Next::Nothing) => return Ok(None),
            Ok(Next::Unintelligible(error)) => return Err(self.turned_away(error.to_string())),
            Ok(Next::End) => return Err(Ending::Gone),
            // Before a hello it may be a client without a certificate, which is to know.
            Err(error) => return Err(self.turned_away(format!("the connection failed: {error}"))),
        };
        let message = FromClient::decode(&packet).map_err(|error| self.turned_away(error.to_string()))?;
        match (message, self.hello_due) {
            (FromClient::Hello { magic, fabric_version, format_version }, Some(_)) => {
                manners.check(magic, fabric_version, format_version)?;
                let tenant = tenants.of(self.packets.peer_certificate());
                self.tenant = Some(tenant.map_err(|error| Ending::Refused(error.to_string()))?);
                self.hello_due = None;
                self.tell(&FromServer::Welcome { epoch: manners.epoch.0, client: self.id.0 })?;
                Ok(None)
            }
            (FromClient::Hello { .. }, None) => Err(Ending::Dismissed("a second hello".to_owned())),
            (_, Some(_)) => Err(Ending::Refused("the first message was no hello".to_owned())),
            (question @ FromClient::CloseQueue { .. }, None) => Ok(Some(question)),
            (_, None) if self.asked.is_some() => {
                Err(Ending::Dismissed("a question before the last one was answered".to_owned()))
            }
            (question, None) => Ok(Some(question)),
        }
    }

    /// How a client ends that is not understood.
    fn turned_away(&self, why: String) -> Ending {
        if self.hello_due.is_some() { Ending::Refused(why) } else { Ending::Dismissed(why) }
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
