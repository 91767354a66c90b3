//! Messages of handshakes and control connections: packets, each behind its length (docs/protocol/tcp.md).
//!
//! Invariant: a packet decodes only if it is one that [`ClientMessage::encode`] or [`ServerMessage::encode`]
//! writes, but for texts that are not UTF-8, which are repaired.

use farsight_base::RegionId;
use farsight_fabric::RegionRights;
use farsight_fabric_host::Farewell;
use farsight_fabric_host::message::{Reader, Unintelligible, Writer};
use farsight_fabric_net::packets::packet;

use crate::grants::Token;

/// What a hello begins with: `farsight` in ASCII.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"farsight");
/// Version of everything in this crate that goes over the wire.
pub(crate) const FABRIC_VERSION: u32 = 4;

/// What a new connection is to become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// The control connection of a new client.
    Client,
    /// A queue pair of a client that has been welcomed, proved by the key that it was given.
    Queue { client: u64, key: Token },
}

/// What a client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClientMessage {
    /// First on each connection.
    Hello { magic: u64, fabric_version: u32, format_version: u32, purpose: Purpose },
    /// Asks for a region.
    Attach { region: RegionId },
}

/// What a server sends on a control connection, or in answer to a hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ServerMessage {
    /// To a new client.
    Welcome { epoch: u64, client: u64, key: Token },
    /// To a new queue pair: verbs follow.
    Ready,
    /// The connection is not taken in.
    Refusal { text: String },
    /// The region's token, and what there is behind it.
    Attached { region: RegionId, rights: RegionRights, length_bytes: u64, token: Token },
    /// There is no such region.
    NoSuchRegion { region: RegionId },
    /// What was requested cannot be done now.
    Failed { text: String },
    /// The server stops.
    Goodbye { text: String },
    /// The client has to go.
    Dismissal { text: String },
}

impl ClientMessage {
    /// The packet, with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        packet(match *self {
            Self::Hello { magic, fabric_version, format_version, purpose } => {
                let hello = Writer::new(1).u64(magic).u32(fabric_version).u32(format_version);
                match purpose {
                    Purpose::Client => hello.u32(1),
                    Purpose::Queue { client, key } => hello.u32(2).u64(client).bytes(&key),
                }
            }
            Self::Attach { region } => Writer::new(2).region(region),
        })
    }

    /// The message in a packet without its length.
    pub(crate) fn decode(packet: &[u8]) -> Result<Self, Unintelligible> {
        let mut fields = Reader::new(packet);
        let message = match fields.u32()? {
            1 => {
                let (magic, fabric_version) = (fields.u64()?, fields.u32()?);
                let format_version = fields.u32()?;
                let purpose = match fields.u32()? {
                    1 => Purpose::Client,
                    2 => Purpose::Queue { client: fields.u64()?, key: fields.bytes()? },
                    code => return Err(Unintelligible::Code { what: "purpose", code }),
                };
                Self::Hello { magic, fabric_version, format_version, purpose }
            }
            2 => Self::Attach { region: fields.region()? },
            kind => return Err(Unintelligible::Kind { kind }),
        };
        fields.end(message)
    }
}

impl ServerMessage {
    /// The packet of a farewell.
    pub(crate) fn encode_farewell(farewell: Farewell) -> Vec<u8> {
        match farewell {
            Farewell::Refusal(text) => Self::Refusal { text },
            Farewell::Dismissal(text) => Self::Dismissal { text },
            Farewell::Goodbye(text) => Self::Goodbye { text },
        }
        .encode()
    }

    /// The packet, with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        packet(match self {
            Self::Welcome { epoch, client, key } => Writer::new(129).u64(*epoch).u64(*client).bytes(key),
            Self::Ready => Writer::new(130),
            Self::Refusal { text } => Writer::new(131).text(text),
            Self::Attached { region, rights, length_bytes, token } => {
                Writer::new(132).region(*region).rights(*rights).u64(*length_bytes).bytes(token)
            }
            Self::NoSuchRegion { region } => Writer::new(133).region(*region),
            Self::Failed { text } => Writer::new(134).text(text),
            Self::Goodbye { text } => Writer::new(135).text(text),
            Self::Dismissal { text } => Writer::new(136).text(text),
        })
    }

    /// The message in a packet without its length.
    pub(crate) fn decode(packet: &[u8]) -> Result<Self, Unintelligible> {
        let mut fields = Reader::new(packet);
        let message = match fields.u32()? {
            129 => Self::Welcome { epoch: fields.u64()?, client: fields.u64()?, key: fields.bytes()? },
            130 => Self::Ready,
            131 => Self::Refusal { text: fields.text() },
            132 => {
                let region = fields.region()?;
                let rights = fields.rights()?;
                Self::Attached { region, rights, length_bytes: fields.u64()?, token: fields.bytes()? }
            }
            133 => Self::NoSuchRegion { region: fields.region()? },
            134 => Self::Failed { text: fields.text() },
            135 => Self::Goodbye { text: fields.text() },
            136 => Self::Dismissal { text: fields.text() },
            kind => return Err(Unintelligible::Kind { kind }),
        };
        fields.end(message)
    }
}
