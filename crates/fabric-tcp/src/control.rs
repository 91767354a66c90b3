//! Messages of greetings and control connections: packets, each behind its length (docs/protocol/tcp.md).
//!
//! Invariant: a packet decodes only if it is one that [`ClientMessage::encode`] or [`ServerMessage::encode`]
//! writes, but for texts that are not UTF-8, which are mended.

use farsight_base::RegionId;
use farsight_fabric::RegionRights;

use crate::grants::{TOKEN_BYTES, Token};

/// What a hello begins with: `farsight` in ASCII.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"farsight");
/// Version of everything in this crate that goes over the wire.
pub(crate) const FABRIC_VERSION: u32 = 1;
/// Bytes of the longest packet behind its length.
pub(crate) const PACKET_BYTES_MAX: usize = 1024;
/// Bytes of the longest text: what else a packet holds leaves room for it.
const TEXT_BYTES_MAX: usize = 1000;
/// Bytes of a packet's length.
const LENGTH_BYTES: usize = 4;

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
    /// What was asked for cannot be done now.
    Failed { text: String },
    /// The server stops.
    Goodbye { text: String },
    /// The client has to go.
    Dismissal { text: String },
}

/// Why a packet is no message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Unintelligible {
    #[error("a packet announces {got} B, and the limit is {PACKET_BYTES_MAX}")]
    TooLong { got: u32 },
    #[error("a packet of {got} B ends inside a message")]
    Short { got: usize },
    #[error("a packet of {got} B is {excess} B longer than its message")]
    Excess { got: usize, excess: usize },
    #[error("messages of kind {kind} do not exist in this direction")]
    Kind { kind: u32 },
    #[error("{what} {code} does not exist")]
    Code { what: &'static str, code: u32 },
    #[error("this is TLS, and the other side speaks none: give or omit certificates on both sides")]
    Tls,
}

/// The first packet of `bytes` and how long it is with its length; `None` if it has not arrived whole.
pub(crate) fn first_packet(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Unintelligible> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length_bytes = u32::from_le_bytes(*length);
    if length_bytes as usize > PACKET_BYTES_MAX {
        // A record of TLS begins with its kind, 20 to 23, and the version 3.x.
        let is_tls = (20..24).contains(&length[0]) && length[1] == 3;
        let error = Unintelligible::TooLong { got: length_bytes };
        return Err(if is_tls { Unintelligible::Tls } else { error });
    }
    let packet = rest.get(..length_bytes as usize);
    Ok(packet.map(|packet| (packet, LENGTH_BYTES + packet.len())))
}

/// As much of a text as a packet holds.
fn cut(text: &str) -> &str {
    let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// A packet being written: length, kind, fields.
struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u32) -> Self {
        let mut bytes = vec![0; LENGTH_BYTES];
        bytes.extend(kind.to_le_bytes());
        Self(bytes)
    }

    fn u32(mut self, field: u32) -> Self {
        self.0.extend(field.to_le_bytes());
        self
    }

    fn u64(mut self, field: u64) -> Self {
        self.0.extend(field.to_le_bytes());
        self
    }

    fn token(mut self, token: &Token) -> Self {
        self.0.extend(token);
        self
    }

    fn text(mut self, text: &str) -> Self {
        self.0.extend(cut(text).as_bytes());
        self
    }

    fn packet(mut self) -> Vec<u8> {
        let length_bytes = (self.0.len() - LENGTH_BYTES) as u32;
        self.0[..LENGTH_BYTES].copy_from_slice(&length_bytes.to_le_bytes());
        self.0
    }
}

/// A packet being read.
struct Reader<'p> {
    packet: &'p [u8],
    rest: &'p [u8],
}

impl<'p> Reader<'p> {
    fn new(packet: &'p [u8]) -> Self {
        Self { packet, rest: packet }
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Unintelligible> {
        let split = self.rest.split_first_chunk::<N>();
        let (bytes, rest) = split.ok_or(Unintelligible::Short { got: self.packet.len() })?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn u32(&mut self) -> Result<u32, Unintelligible> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Unintelligible> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn token(&mut self) -> Result<Token, Unintelligible> {
        self.bytes::<TOKEN_BYTES>()
    }

    /// The rest, mended and cut as a writer would have written it.
    fn text(&mut self) -> String {
        let rest = std::mem::take(&mut self.rest);
        cut(&String::from_utf8_lossy(rest)).to_owned()
    }

    fn end<T>(self, message: T) -> Result<T, Unintelligible> {
        match self.rest.len() {
            0 => Ok(message),
            excess => Err(Unintelligible::Excess { got: self.packet.len(), excess }),
        }
    }
}

impl ClientMessage {
    /// The packet, with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Hello { magic, fabric_version, format_version, purpose } => {
                let hello = Writer::new(1).u64(magic).u32(fabric_version).u32(format_version);
                match purpose {
                    Purpose::Client => hello.u32(1),
                    Purpose::Queue { client, key } => hello.u32(2).u64(client).token(&key),
                }
            }
            Self::Attach { region } => Writer::new(2).u32(region.0),
        }
        .packet()
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
                    2 => Purpose::Queue { client: fields.u64()?, key: fields.token()? },
                    code => return Err(Unintelligible::Code { what: "purpose", code }),
                };
                Self::Hello { magic, fabric_version, format_version, purpose }
            }
            2 => Self::Attach { region: RegionId(fields.u32()?) },
            kind => return Err(Unintelligible::Kind { kind }),
        };
        fields.end(message)
    }
}

impl ServerMessage {
    /// The packet, with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome { epoch, client, key } => Writer::new(129).u64(*epoch).u64(*client).token(key),
            Self::Ready => Writer::new(130),
            Self::Refusal { text } => Writer::new(131).text(text),
            Self::Attached { region, rights, length_bytes, token } => {
                let rights = match rights {
                    RegionRights::ReadOnly => 1,
                    RegionRights::ReadWrite => 2,
                };
                Writer::new(132).u32(region.0).u32(rights).u64(*length_bytes).token(token)
            }
            Self::NoSuchRegion { region } => Writer::new(133).u32(region.0),
            Self::Failed { text } => Writer::new(134).text(text),
            Self::Goodbye { text } => Writer::new(135).text(text),
            Self::Dismissal { text } => Writer::new(136).text(text),
        }
        .packet()
    }

    /// The message in a packet without its length.
    pub(crate) fn decode(packet: &[u8]) -> Result<Self, Unintelligible> {
        let mut fields = Reader::new(packet);
        let message = match fields.u32()? {
            129 => Self::Welcome { epoch: fields.u64()?, client: fields.u64()?, key: fields.token()? },
            130 => Self::Ready,
            131 => Self::Refusal { text: fields.text() },
            132 => {
                let region = RegionId(fields.u32()?);
                let rights = match fields.u32()? {
                    1 => RegionRights::ReadOnly,
                    2 => RegionRights::ReadWrite,
                    code => return Err(Unintelligible::Code { what: "rights", code }),
                };
                Self::Attached { region, rights, length_bytes: fields.u64()?, token: fields.token()? }
            }
            133 => Self::NoSuchRegion { region: RegionId(fields.u32()?) },
            134 => Self::Failed { text: fields.text() },
            135 => Self::Goodbye { text: fields.text() },
            136 => Self::Dismissal { text: fields.text() },
            kind => return Err(Unintelligible::Kind { kind }),
        };
        fields.end(message)
    }
}
