//! Control messages: what travels over the Unix socket, one message a packet.
//!
//! Invariant: every message is a little-endian `u32` kind and a fixed layout; texts stand last and are
//! bounded. A packet that is not exactly one message of the expected direction is [`Unintelligible`],
//! whatever its bytes.
//!
//! Protocol: the client opens with [`FromClient::Hello`]; the server answers [`FromServer::Welcome`], or
//! [`FromServer::Refusal`] and closes. Afterwards the client asks one thing at a time and is answered.
//! A region comes file by file: a client says how many bytes it has of it, and gets the file behind those.
//! One that has all that there is gets none.
//!
//! Unasked the server sends only [`FromServer::Goodbye`] when it stops, or [`FromServer::Dismissal`] to a
//! client that it wants nothing more of, before it closes. While a client goes on it is told of
//! [`FromServer::Withdrawn`] and [`FromServer::Notice`], over a socket of its own that the welcome brings.
//! There news delay no answer, and an answer that nobody reads is not mistaken for news.
//!
//! | kind | message | fields after the kind |
//! |---|---|---|
//! | 1 | Hello | magic u64, fabric version u32, format version u32, pid u32, serves memory u32 (0, 1) |
//! | 2 | OpenQueue | none |
//! | 3 | Attach | region u32, from u64: bytes of it that the client has |
//! | 129 | Welcome (news socket) | epoch u64, client u64, server pid u32, notice u64 |
//! | 130 | Refusal | text |
//! | 131 | QueueOpened (memory file, wake socket) | file length u64 |
//! | 132 | Attached (memory file, if there is one) | region u32, rights u32, length u64, file length u64 |
//! | 133 | NoSuchRegion | region u32 |
//! | 134 | Goodbye | text |
//! | 135 | Failed | text |
//! | 136 | Dismissal | text |
//! | 137 | Withdrawn | region u32 |
//! | 138 | Notice | number u64 |

use farsight_base::RegionId;
use farsight_fabric::RegionRights;

/// Opens every Hello: "FARSHM" and two zero bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"FARSHM\0\0");
/// Version of the control messages and rings.
pub(crate) const FABRIC_VERSION: u32 = 4;
/// Bytes of the longest message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024;
const TEXT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 4;

/// What a client says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FromClient {
    Hello { magic: u64, fabric_version: u32, format_version: u32, pid: u32, serves: bool },
    OpenQueue,
    Attach { region: RegionId, from_bytes: u64 },
}

/// What a server says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FromServer {
    Welcome { epoch: u64, client: u64, server_pid: u32, notice: u64 },
    Refusal { text: String },
    QueueOpened { file_bytes: u64 },
    Attached { region: RegionId, rights: RegionRights, length_bytes: u64, file_bytes: u64 },
    NoSuchRegion { region: RegionId },
    Goodbye { text: String },
    Failed { text: String },
    Dismissal { text: String },
    Withdrawn { region: RegionId },
    Notice { number: u64 },
}

/// Why a packet is no message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unintelligible {
    #[error("a packet of {got} B ends inside a message")]
    Short { got: usize },
    #[error("a packet of {got} B is {excess} B longer than its message")]
    Long { got: usize, excess: usize },
    #[error("messages of kind {kind} do not exist in this direction")]
    Kind { kind: u32 },
    #[error("region rights {code} do not exist")]
    Rights { code: u32 },
    #[error("a flag is 0 or 1, not {code}")]
    Flag { code: u32 },
}

impl FromClient {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(32);
        match *self {
            Self::Hello { magic, fabric_version, format_version, pid, serves } => {
                bytes.extend(1_u32.to_le_bytes());
                bytes.extend(magic.to_le_bytes());
                bytes.extend(fabric_version.to_le_bytes());
                bytes.extend(format_version.to_le_bytes());
                bytes.extend(pid.to_le_bytes());
                bytes.extend(u32::from(serves).to_le_bytes());
            }
            Self::OpenQueue => bytes.extend(2_u32.to_le_bytes()),
            Self::Attach { region, from_bytes } => {
                bytes.extend(3_u32.to_le_bytes());
                bytes.extend(region.0.to_le_bytes());
                bytes.extend(from_bytes.to_le_bytes());
            }
        }
        bytes
    }

    pub(crate) fn decode(packet: &[u8]) -> Result<Self, Unintelligible> {
        let mut fields = Fields { packet, at: 0 };
        let message = match fields.u32()? {
            1 => Self::Hello {
                magic: fields.u64()?,
                fabric_version: fields.u32()?,
                format_version: fields.u32()?,
                pid: fields.u32()?,
                serves: fields.flag()?,
            },
            2 => Self::OpenQueue,
            3 => Self::Attach { region: RegionId(fields.u32()?), from_bytes: fields.u64()? },
            kind => return Err(Unintelligible::Kind { kind }),
        };
        fields.end()?;
        Ok(message)
    }
}

impl FromServer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        match self {
            Self::Welcome { epoch, client, server_pid, notice } => {
                bytes.extend(129_u32.to_le_bytes());
                bytes.extend(epoch.to_le_bytes());
                bytes.extend(client.to_le_bytes());
                bytes.extend(server_pid.to_le_bytes());
                bytes.extend(notice.to_le_bytes());
            }
            Self::Refusal { text } => encode_text(&mut bytes, 130, text),
            Self::QueueOpened { file_bytes } => {
                bytes.extend(131_u32.to_le_bytes());
                bytes.extend(file_bytes.to_le_bytes());
            }
            Self::Attached { region, rights, length_bytes, file_bytes } => {
                bytes.extend(132_u32.to_le_bytes());
                bytes.extend(region.0.to_le_bytes());
                bytes.extend(encode_rights(*rights).to_le_bytes());
                bytes.extend(length_bytes.to_le_bytes());
                bytes.extend(file_bytes.to_le_bytes());
            }
            Self::NoSuchRegion { region } => {
                bytes.extend(133_u32.to_le_bytes());
                bytes.extend(region.0.to_le_bytes());
            }
            Self::Goodbye { text } => encode_text(&mut bytes, 134, text),
            Self::Failed { text } => encode_text(&mut bytes, 135, text),
            Self::Dismissal { text } => encode_text(&mut bytes, 136, text),
            Self::Withdrawn { region } => {
                bytes.extend(137_u32.to_le_bytes());
                bytes.extend(region.0.to_le_bytes());
            }
            Self::Notice { number } => {
                bytes.extend(138_u32.to_le_bytes());
                bytes.extend(number.to_le_bytes());
            }
        }
        bytes
    }

    pub(crate) fn decode(packet: &[u8]) -> Result<Self, Unintelligible> {
        let mut fields = Fields { packet, at: 0 };
        let message = match fields.u32()? {
            129 => Self::Welcome {
                epoch: fields.u64()?,
                client: fields.u64()?,
                server_pid: fields.u32()?,
                notice: fields.u64()?,
            },
            130 => Self::Refusal { text: fields.text() },
            131 => Self::QueueOpened { file_bytes: fields.u64()? },
            132 => Self::Attached {
                region: RegionId(fields.u32()?),
                rights: decode_rights(fields.u32()?)?,
                length_bytes: fields.u64()?,
                file_bytes: fields.u64()?,
            },
            133 => Self::NoSuchRegion { region: RegionId(fields.u32()?) },
            134 => Self::Goodbye { text: fields.text() },
            135 => Self::Failed { text: fields.text() },
            136 => Self::Dismissal { text: fields.text() },
            137 => Self::Withdrawn { region: RegionId(fields.u32()?) },
            138 => Self::Notice { number: fields.u64()? },
            kind => return Err(Unintelligible::Kind { kind }),
        };
        fields.end()?;
        Ok(message)
    }
}

fn encode_text(bytes: &mut Vec<u8>, kind: u32, text: &str) {
    bytes.extend(kind.to_le_bytes());
    let mut length_bytes = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(length_bytes) {
        length_bytes -= 1;
    }
    bytes.extend(&text.as_bytes()[..length_bytes]);
}

fn encode_rights(rights: RegionRights) -> u32 {
    match rights {
        RegionRights::ReadOnly => 1,
        RegionRights::ReadWrite => 2,
    }
}

fn decode_rights(code: u32) -> Result<RegionRights, Unintelligible> {
    match code {
        1 => Ok(RegionRights::ReadOnly),
        2 => Ok(RegionRights::ReadWrite),
        code => Err(Unintelligible::Rights { code }),
    }
}

/// A packet and how far it has been read.
struct Fields<'p> {
    packet: &'p [u8],
    at: usize,
}

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unintelligible> {
        let bytes = self.packet.get(self.at..).and_then(|rest| rest.first_chunk());
        let bytes = bytes.ok_or(Unintelligible::Short { got: self.packet.len() })?;
        self.at += N;
        Ok(*bytes)
    }

    fn u32(&mut self) -> Result<u32, Unintelligible> {
        self.take().map(u32::from_le_bytes)
    }

    fn flag(&mut self) -> Result<bool, Unintelligible> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            code => Err(Unintelligible::Flag { code }),
        }
    }

    fn u64(&mut self) -> Result<u64, Unintelligible> {
        self.take().map(u64::from_le_bytes)
    }

    /// The rest of the packet.
    fn text(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.packet[self.at..]).into_owned();
        self.at = self.packet.len();
        text
    }

    fn end(&self) -> Result<(), Unintelligible> {
        let excess = self.packet.len() - self.at;
        if excess == 0 { Ok(()) } else { Err(Unintelligible::Long { got: self.packet.len(), excess }) }
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;

    use super::*;

    fn client_messages() -> Vec<FromClient> {
        vec![
            FromClient::Hello { magic: MAGIC, fabric_version: 1, format_version: 7, pid: 99, serves: false },
            FromClient::Hello { magic: MAGIC, fabric_version: 2, format_version: 7, pid: 99, serves: true },
            FromClient::OpenQueue,
            FromClient::Attach { region: RegionId(u32::MAX), from_bytes: 1 << 40 },
        ]
    }

    fn server_messages() -> Vec<FromServer> {
        let region = RegionId(3);
        vec![
            FromServer::Welcome { epoch: u64::MAX, client: 1, server_pid: 2, notice: 9 },
            FromServer::Refusal { text: "no".into() },
            FromServer::QueueOpened { file_bytes: 5 },
            FromServer::Attached { region, rights: RegionRights::ReadOnly, length_bytes: 8, file_bytes: 8 },
            FromServer::Attached { region, rights: RegionRights::ReadWrite, length_bytes: 8, file_bytes: 0 },
            FromServer::NoSuchRegion { region },
            FromServer::Goodbye { text: String::new() },
            FromServer::Failed { text: "ä".repeat(30) },
            FromServer::Dismissal { text: "enough".into() },
            FromServer::Withdrawn { region },
            FromServer::Notice { number: u64::MAX },
        ]
    }

    #[test]
    fn messages_come_back_as_they_went() {
        for message in client_messages() {
            assert_eq!(FromClient::decode(&message.encode()), Ok(message));
        }
        for message in server_messages() {
            assert_eq!(FromServer::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn texts_are_cut_at_a_character() {
        let packet = FromServer::Goodbye { text: "ä".repeat(600) }.encode();
        assert_eq!(packet.len(), MESSAGE_BYTES_MAX);
        let text = "ä".repeat(510);
        assert_eq!(FromServer::decode(&packet), Ok(FromServer::Goodbye { text }));
    }

    #[test]
    fn cut_and_padded_packets_are_refused() {
        for message in client_messages() {
            let packet = message.encode();
            for length in 0..packet.len() {
                let cut = FromClient::decode(&packet[..length]);
                assert_eq!(cut, Err(Unintelligible::Short { got: length }), "{message:?}");
            }
            let padded = [packet.as_slice(), &[0]].concat();
            let expected = Unintelligible::Long { got: padded.len(), excess: 1 };
            assert_eq!(FromClient::decode(&padded), Err(expected), "{message:?}");
        }
        assert_eq!(FromClient::decode(&129_u32.to_le_bytes()), Err(Unintelligible::Kind { kind: 129 }));
    }

    #[test]
    fn garbage_never_panics() {
        let mut random = SplitMix64::new(3);
        for _ in 0..20_000 {
            let mut packet: Vec<u8> = (0..random.below(64)).map(|_| random.next_u64() as u8).collect();
            if let Some(kind) = packet.first_chunk_mut::<4>() {
                *kind = (random.below(140) as u32).to_le_bytes();
            }
            let _ = FromClient::decode(&packet);
            let _ = FromServer::decode(&packet);
        }
    }
}
