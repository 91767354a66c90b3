//! Connections as the control thread sees them: what they are to become, and the clients that come of them.
//!
//! Invariant: the server believes a connection nothing before a hello with the right magic and versions. It
//! believes a queue pair nothing before the key of the client that it claims to be of.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use farsight_base::ClientId;
use farsight_fabric_host::{DisconnectReason, Handshake, Held, Quota, Session, os};
use farsight_fabric_net::packets::Packets;
use rustix::event::epoll;

use crate::control::{ClientMessage, Purpose, ServerMessage};
use crate::grants::{Grants, Token};
use crate::served_regions::ServedRegions;
use crate::server_queue::QueueHandle;

/// What a connection says that it is to become.
pub(crate) fn purpose(hello: &[u8], handshake: &Handshake) -> Result<Purpose, DisconnectReason> {
    match ClientMessage::decode(hello) {
        Ok(ClientMessage::Hello { magic, fabric_version, format_version, purpose }) => {
            handshake.check(magic, fabric_version, format_version)?;
            Ok(purpose)
        }
        Ok(_) => Err(DisconnectReason::Refused("the first message was no hello".to_owned())),
        Err(error) => Err(DisconnectReason::Refused(error.to_string())),
    }
}

/// Refuses one more descriptor to the clients at `address`, which have `held`. On loopback all clients have
/// the same address, which tells nothing of who they are: there each has a share of its own alone.
pub(crate) fn check_address(
    quota: Quota,
    address: IpAddr,
    held: impl FnOnce() -> Held,
) -> Result<(), String> {
    if address.to_canonical().is_loopback() {
        return Ok(());
    }
    quota.check_descriptor(&format!("the address {address}"), held())
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
    pub(crate) fn listen(&mut self) -> Result<Option<ClientMessage>, DisconnectReason> {
        let Some(packet) = self.packets.next_question()? else { return Ok(None) };
        match ClientMessage::decode(&packet) {
            Ok(ClientMessage::Hello { .. }) => Err(DisconnectReason::Dismissed("a second hello".to_owned())),
            Ok(question) => Ok(Some(question)),
            Err(error) => Err(DisconnectReason::Dismissed(error.to_string())),
        }
    }

    /// Answers. A client that does not read its answers is gone.
    pub(crate) fn tell(&mut self, message: &ServerMessage) -> Result<(), DisconnectReason> {
        self.packets.tell(&message.encode())
    }
}

impl Session for Client {
    type Queue = QueueHandle;

    fn queues(&self) -> &[Arc<QueueHandle>] {
        &self.queues
    }

    fn unwatch(&self, epoll: &OwnedFd) {
        let _ = epoll::delete(epoll, self.packets.socket());
    }

    /// Says why, before the queues end: a client that sees one end asks here for the reason.
    fn end(mut self, reason: DisconnectReason) {
        self.packets.end(reason, ServerMessage::encode_farewell);
        for queue in &self.queues {
            queue.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_of_one_address_share_unless_it_is_loopback() {
        let quota = Quota::new(Some(400), 1);
        let check = |address: &str, queues| {
            let address = address.parse().expect("an address");
            check_address(quota, address, || Held { connections: 10, queues })
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
