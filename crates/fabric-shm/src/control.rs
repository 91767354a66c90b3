//! Control messages: what travels over the Unix socket, one message a packet.
//!
//! Invariant: a packet decodes only if it is one that [`FromClient::encode`] or [`FromServer::encode`]
//! writes, whatever its bytes ([`message`](farsight_fabric_host::message)).
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
//! | 4 | Guarded (userfaultfd, the first time) | region u32, address u64 at which the client has it |
//! | 5 | Unguarded | region u32 |
//! | 6 | Unmapped | region u32 |
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
//! | 139 | Noted | none |
//!
//! A client says of a region that it may write when the server can keep it from that
//! ([`write_guard`](crate::write_guard)). It says Guarded before it stores there, Unguarded before it changes
//! the mapping, and Unmapped behind its end. Each is answered by Noted. Failed says that the server has no
//! descriptor by which to do so.

use farsight_base::RegionId;
use farsight_fabric::RegionRights;
use farsight_fabric_host::message::{Reader, Unintelligible, Writer};

/// Opens every Hello: "FARSHM" and two zero bytes.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"FARSHM\0\0");
/// Version of the control messages and rings.
pub(crate) const FABRIC_VERSION: u32 = 5;
/// Bytes of the longest message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1024;

/// What a client says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FromClient {
    Hello { magic: u64, fabric_version: u32, format_version: u32, pid: u32, serves: bool },
    OpenQueue,
    Attach { region: RegionId, from_bytes: u64 },
    Guarded { region: RegionId, address: u64 },
    Unguarded { region: RegionId },
    Unmapped { region: RegionId },
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
    Noted,
}

impl FromClient {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match *self {
            Self::Hello { magic, fabric_version, format_version, pid, serves } => {
                let hello = Writer::new(1).u64(magic).u32(fabric_version).u32(format_version);
                hello.u32(pid).u32(serves.into())
            }
            Self::OpenQueue => Writer::new(2),
            Self::Attach { region, from_bytes } => Writer::new(3).region(region).u64(from_bytes),
            Self::Guarded { region, address } => Writer::new(4).region(region).u64(address),
            Self::Unguarded { region } => Writer::new(5).region(region),
            Self::Unmapped { region } => Writer::new(6).region(region),
        }
        .message()
    }

    pub(crate) fn decode(packet: &[u8]) -> Result<Self, Unintelligible> {
        let mut fields = Reader::new(packet);
        let message = match fields.u32()? {
            1 => Self::Hello {
                magic: fields.u64()?,
                fabric_version: fields.u32()?,
                format_version: fields.u32()?,
                pid: fields.u32()?,
                serves: match fields.u32()? {
                    0 => false,
                    1 => true,
                    code => return Err(Unintelligible::Code { what: "flag", code }),
                },
            },
            2 => Self::OpenQueue,
            3 => Self::Attach { region: fields.region()?, from_bytes: fields.u64()? },
            4 => Self::Guarded { region: fields.region()?, address: fields.u64()? },
            5 => Self::Unguarded { region: fields.region()? },
            6 => Self::Unmapped { region: fields.region()? },
            kind => return Err(Unintelligible::Kind { kind }),
        };
        fields.end(message)
    }
}

impl FromServer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome { epoch, client, server_pid, notice } => {
                Writer::new(129).u64(*epoch).u64(*client).u32(*server_pid).u64(*notice)
            }
            Self::Refusal { text } => Writer::new(130).text(text),
            Self::QueueOpened { file_bytes } => Writer::new(131).u64(*file_bytes),
            Self::Attached { region, rights, length_bytes, file_bytes } => {
                Writer::new(132).region(*region).rights(*rights).u64(*length_bytes).u64(*file_bytes)
            }
            Self::NoSuchRegion { region } => Writer::new(133).region(*region),
            Self::Goodbye { text } => Writer::new(134).text(text),
            Self::Failed { text } => Writer::new(135).text(text),
            Self::Dismissal { text } => Writer::new(136).text(text),
            Self::Withdrawn { region } => Writer::new(137).region(*region),
            Self::Notice { number } => Writer::new(138).u64(*number),
            Self::Noted => Writer::new(139),
        }
        .message()
    }

    pub(crate) fn decode(packet: &[u8]) -> Result<Self, Unintelligible> {
        let mut fields = Reader::new(packet);
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
                region: fields.region()?,
                rights: fields.rights()?,
                length_bytes: fields.u64()?,
                file_bytes: fields.u64()?,
            },
            133 => Self::NoSuchRegion { region: fields.region()? },
            134 => Self::Goodbye { text: fields.text() },
            135 => Self::Failed { text: fields.text() },
            136 => Self::Dismissal { text: fields.text() },
            137 => Self::Withdrawn { region: fields.region()? },
            138 => Self::Notice { number: fields.u64()? },
            139 => Self::Noted,
            kind => return Err(Unintelligible::Kind { kind }),
        };
        fields.end(message)
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;
    use farsight_fabric_host::message::TEXT_BYTES_MAX;

    use super::*;

    fn client_messages() -> Vec<FromClient> {
        vec![
            FromClient::Hello { magic: MAGIC, fabric_version: 1, format_version: 7, pid: 99, serves: false },
            FromClient::Hello { magic: MAGIC, fabric_version: 2, format_version: 7, pid: 99, serves: true },
            FromClient::OpenQueue,
            FromClient::Attach { region: RegionId(u32::MAX), from_bytes: 1 << 40 },
            FromClient::Guarded { region: RegionId(1), address: 0x7fff_0000_0000 },
            FromClient::Unguarded { region: RegionId(2) },
            FromClient::Unmapped { region: RegionId(3) },
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
            FromServer::Noted,
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
        assert!(packet.len() <= MESSAGE_BYTES_MAX);
        let text = "ä".repeat(TEXT_BYTES_MAX / 2);
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
            let expected = Unintelligible::Excess { got: padded.len(), excess: 1 };
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
