//! Connections as the control thread sees them: what they are to become, and the clients that come of them.
//!
//! Invariant: the server believes a connection nothing before a hello with the right magic and versions. It
//! believes a queue pair nothing before the key of the client that it claims to be of.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use farsight_base::ClientId;
use farsight_fabric::{Held, Share};
use farsight_fabric_net::packets::{Next, Packets};
use farsight_fabric_net::{Ending, Handshake, os};

use crate::control::{ClientMessage, Purpose, ServerMessage};
use crate::grants::{Grants, Token};
use crate::served_regions::ServedRegions;
use crate::server_queue::QueueHandle;

/// What a connection says that it is to become.
pub(crate) fn purpose(hello: &[u8], handshake: &Handshake) -> Result<Purpose, Ending> {
    match ClientMessage::decode(hello) {
        Ok(ClientMessage::Hello { magic, fabric_version, format_version, purpose }) => {
            handshake.check(magic, fabric_version, format_version)?;
            Ok(purpose)
        }
        Ok(_) => Err(Ending::Refused("the first message was no hello".to_owned())),
        Err(error) => Err(Ending::Refused(error.to_string())),
    }
}

/// Refuses one more descriptor to the clients at `address`, which have `held`. On loopback all clients have
/// the same address, which tells nothing of who they are: there each has a share of its own alone.
pub(crate) fn check_address(
    share: Share,
    address: IpAddr,
    held: impl FnOnce() -> Held,
) -> Result<(), String> {
    if address.to_canonical().is_loopback() {
        return Ok(());
    }
    share.check_descriptor(&format!("the address {address}"), held())
}

/// The packet of a refusal.
pub(crate) fn refusal(text: String) -> Vec<u8> {
    ServerMessage::Refusal { text }.encode()
}

/// A client that has been welcomed.
pub(crate) struct Client {
    pub(crate) packets: Packets,
    /// Where it comes from.
    pub(crate) address: IpAddr,
    /// What its queue pairs prove themselves by.
    key: Token,
    pub(crate) grants: Arc<Grants>,
    pub(crate) queues: Vec<Arc<QueueHandle>>,
}

impl Client {
    /// Welcomes a client.
    pub(crate) fn welcome(
        id: ClientId,
        address: IpAddr,
        mut packets: Packets,
        handshake: &Handshake,
        served: &Arc<ServedRegions>,
    ) -> io::Result<Self> {
        let key = os::random()?;
        let welcome = ServerMessage::Welcome { epoch: handshake.epoch.0, client: id.0, key };
        packets.send(&welcome.encode())?;
        let grants = Arc::new(Grants::new(Arc::clone(served)));
        Ok(Self { packets, address, key, grants, queues: Vec::new() })
    }

    /// What it has open.
    pub(crate) fn held(&self) -> Held {
        Held { connections: 1, queues: self.queues.iter().filter(|queue| queue.is_open()).count() }
    }

    /// True if the key is this client's. Takes the same time for every wrong one.
    pub(crate) fn is_proved_by(&self, key: &Token) -> bool {
        let different =
            self.key.iter().zip(key).fold(0, |different, (own, theirs)| different | (own ^ theirs));
        std::hint::black_box(different) == 0
    }

    /// The next question, `None` if there is none now.
    pub(crate) fn listen(&mut self) -> Result<Option<ClientMessage>, Ending> {
        let packet = match self.packets.receive() {
            Ok(Next::Packet(packet)) => packet,
            Ok(Next::Nothing) => return Ok(None),
            Ok(Next::Unintelligible(error)) => return Err(Ending::Dismissed(error.to_string())),
            Ok(Next::End) | Err(_) => return Err(Ending::Gone),
        };
        match ClientMessage::decode(&packet) {
            Ok(ClientMessage::Hello { .. }) => Err(Ending::Dismissed("a second hello".to_owned())),
            Ok(question) => Ok(Some(question)),
            Err(error) => Err(Ending::Dismissed(error.to_string())),
        }
    }

    /// Answers. A client that does not read its answers is gone.
    pub(crate) fn tell(&mut self, message: &ServerMessage) -> Result<(), Ending> {
        self.packets.send(&message.encode()).map_err(|_| Ending::Gone)
    }

    /// No request of the client executes any more but those that execute now.
    pub(crate) fn close_gates(&self) {
        for queue in &self.queues {
            queue.gate.close();
        }
    }

    /// True while a request of the client executes.
    pub(crate) fn is_being_served(&self) -> bool {
        self.queues.iter().any(|queue| queue.gate.is_being_served())
    }

    /// Says why, before the queues end: a client that sees one end asks here for the reason.
    pub(crate) fn end(mut self, ending: Ending) -> Vec<Arc<QueueHandle>> {
        self.close_gates();
        let message = match ending {
            Ending::Gone => None,
            Ending::Refused(text) => Some(ServerMessage::Refusal { text }),
            Ending::Dismissed(text) => Some(ServerMessage::Dismissal { text }),
            Ending::Broken(text) => Some(ServerMessage::Goodbye { text }),
            Ending::Stopped => Some(ServerMessage::Goodbye { text: "the peer stopped".to_owned() }),
        };
        // A client that does not read misses the reason, not the end.
        let _ = message.map(|message| self.tell(&message));
        os::hang_up(self.packets.socket());
        for queue in &self.queues {
            queue.end();
        }
        self.queues
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_of_one_address_share_unless_it_is_loopback() {
        let share = Share::new(Some(400), 1);
        let check = |address: &str, queues| {
            let address = address.parse().expect("an address");
            check_address(share, address, || Held { connections: 10, queues })
        };
        assert!(check("10.1.2.3", 89).is_ok());
        let refused = check("10.1.2.3", 90).expect_err("a hundred of a hundred");
        assert!(refused.contains("the address 10.1.2.3 has 10 connections and 90 queues"), "{refused}");
        assert!(check("fd00::7", 90).is_err());
        for loopback in ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"] {
            assert!(check(loopback, 1_000).is_ok(), "{loopback}");
        }
    }
}
