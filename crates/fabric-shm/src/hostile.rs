//! Fuzz targets of what this crate keeps to itself: control messages, the handshake, the rings.
//!
//! For tests alone (feature `hostile`). Each target is a function of its bytes that panics exactly if a
//! promise is broken; `conformance` runs them among those of the other crates.

mod ring_target;

use std::os::fd::{AsFd, OwnedFd};

use farsight_base::{ClientId, Epoch, RegionId};
use farsight_fabric_host::{DisconnectReason, Handshake, Session as _};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use crate::control::{FABRIC_VERSION, FromClient, FromServer, MAGIC, MESSAGE_BYTES_MAX};
use crate::os;
use crate::session::Session;
use crate::socket::{self, Packet};

pub use ring_target::{ring, ring_seeds};

const FORMAT: u32 = 7;

/// A packet that decodes as a message is the one that the message encodes to; texts are repaired once.
pub fn control(data: &[u8]) {
    if let Ok(message) = FromClient::decode(data) {
        assert_eq!(message.encode(), data, "{message:?}");
    }
    if data.len() <= MESSAGE_BYTES_MAX
        && let Ok(message) = FromServer::decode(data)
    {
        let packet = message.encode();
        let text_is_plain = std::str::from_utf8(data.get(4..).unwrap_or_default()).is_ok();
        let has_text = matches!(
            message,
            FromServer::Refusal { .. }
                | FromServer::Goodbye { .. }
                | FromServer::Failed { .. }
                | FromServer::Dismissal { .. }
        );
        if text_is_plain || !has_text {
            assert_eq!(packet, data, "{message:?}");
        }
        let again = FromServer::decode(&packet).expect("what was encoded decodes");
        assert_eq!(again.encode(), packet, "{message:?}");
    }
}

/// Messages of every kind.
#[must_use]
pub fn control_seeds() -> Vec<Vec<u8>> {
    let region = RegionId(3);
    let rights = farsight_fabric::RegionRights::ReadOnly;
    let from_server = [
        FromServer::Welcome { epoch: 5, client: 1, server_pid: 2, notice: 4 },
        FromServer::Refusal { text: "no".into() },
        FromServer::QueueOpened { file_bytes: 5 },
        FromServer::Attached { region, rights, length_bytes: 8, file_bytes: 8 },
        FromServer::NoSuchRegion { region },
        FromServer::Goodbye { text: "grüße".into() },
        FromServer::Failed { text: String::new() },
        FromServer::Dismissal { text: "out".into() },
        FromServer::Withdrawn { region },
        FromServer::Notice { number: 4 },
        FromServer::Noted,
    ];
    from_client().iter().map(FromClient::encode).chain(from_server.iter().map(FromServer::encode)).collect()
}

fn from_client() -> [FromClient; 6] {
    let hello = FromClient::Hello {
        magic: MAGIC,
        fabric_version: FABRIC_VERSION,
        format_version: FORMAT,
        pid: std::process::id(),
        serves: false,
    };
    let region = RegionId(3);
    [
        hello,
        FromClient::OpenQueue,
        FromClient::Attach { region, from_bytes: 0 },
        FromClient::Guarded { region, address: 1 << 40 },
        FromClient::Unguarded { region },
        FromClient::Unmapped { region },
    ]
}

/// A session that is sent any packets, cut from `data` by their length bytes. It takes one good hello, then
/// questions. At the first other packet it ends with a reason that its client can read.
pub fn handshake(data: &[u8]) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (server, client) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    let handshake =
        Handshake { epoch: Epoch(9), magic: MAGIC, fabric_version: FABRIC_VERSION, format_version: FORMAT };
    let mut session = Session::accept(ClientId(1), server, &[os::own_uid()]).expect("this user is let in");
    let mut greeted = false;
    for packet in packets(data) {
        if packet.is_empty() {
            // Nothing is sent: a packet of no bytes would be the end.
            assert!(matches!(session.listen(&handshake, 4), Ok(None)), "a message out of nothing");
            continue;
        }
        rustix::net::send(&client, &packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).expect("room for one");
        let is_hello = packet == from_client()[0].encode();
        match (session.listen(&handshake, 4), FromClient::decode(&packet)) {
            (Ok(None), Ok(FromClient::Hello { .. })) if !greeted => {
                let welcome = receive(&client).expect("a welcome");
                assert!(matches!(welcome, FromServer::Welcome { epoch: 9, client: 1, .. }), "{welcome:?}");
                greeted = true;
            }
            (Ok(Some((question, None))), Ok(sent)) if greeted => assert_eq!(question, sent),
            (Err(reason), decoded) => {
                assert!(greeted || !is_hello, "a good hello ended its client: {reason:?}");
                assert!(!matches!(decoded, Ok(FromClient::OpenQueue)) || !greeted, "{reason:?}");
                return check_farewell(session, reason, &client);
            }
            (outcome, decoded) => panic!("{decoded:?}, greeted {greeted}, came to {outcome:?}"),
        }
    }
}

/// The client is told why, and sees the end.
fn check_farewell(session: Session, reason: DisconnectReason, client: &OwnedFd) {
    let has_words = !matches!(reason, DisconnectReason::Gone);
    session.end(reason);
    if has_words {
        let farewell = receive(client).expect("a farewell");
        assert!(
            matches!(farewell, FromServer::Refusal { .. } | FromServer::Dismissal { .. }),
            "an ending is told by {farewell:?}"
        );
    }
    let mut buffer = [0; MESSAGE_BYTES_MAX + 1];
    assert!(matches!(socket::receive_now(client, &mut buffer), Ok(Packet::End)), "the socket is closed");
}

fn receive(client: &impl AsFd) -> Option<FromServer> {
    let mut buffer = [0; MESSAGE_BYTES_MAX + 1];
    match socket::receive_now(client, &mut buffer) {
        Ok(Packet::Bytes(length_bytes)) => FromServer::decode(&buffer[..length_bytes]).ok(),
        _ => None,
    }
}

/// The packets that a recipe asks for: a good message of each kind, or raw bytes after their number.
fn packets(data: &[u8]) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    let mut rest = data;
    while let Some((choice, tail)) = rest.split_first() {
        rest = tail;
        match *choice {
            kind @ 0..3 => packets.push(from_client()[usize::from(kind)].encode()),
            length => {
                let (packet, tail) = rest.split_at(usize::from(length - 3).min(rest.len()));
                packets.push(packet.to_vec());
                rest = tail;
            }
        }
    }
    packets
}

/// Conversations that go well for a while.
#[must_use]
pub fn handshake_seeds() -> Vec<Vec<u8>> {
    let hello = from_client()[0].encode();
    let raw_hello = [&[hello.len() as u8 + 3][..], &hello].concat();
    vec![vec![0, 1, 2, 1, 2], vec![1], vec![0, 0], [raw_hello.as_slice(), &[2, 7, 9, 0, 0, 0]].concat()]
}
