//! Control packets: what travels over the TCP connection beside the queue pairs.
//!
//! Invariant: a packet decodes only if it is one that [`FromClient::encode`] or [`FromServer::encode`]
//! writes, but for texts that are not UTF-8, which are repaired. The bytes are specified in
//! `docs/protocol/verbs.md`.
//!
//! Protocol: the client opens with [`FromClient::Hello`]; the server answers [`FromServer::Welcome`], or
//! [`FromServer::Refusal`] and closes. Afterwards the client asks one thing at a time and is answered, but
//! for [`FromClient::CloseQueue`], which has no answer. Unasked the server sends [`FromServer::Goodbye`] when
//! it stops, or [`FromServer::Dismissal`] to a client that it wants nothing more of, before it closes.
//! Unasked, too, and at any time after the welcome, it sends [`FromServer::Withdrawn`] of a region that the
//! client attached, and [`FromServer::Notice`].

use farsight_base::RegionId;
use farsight_fabric::RegionRights;
use farsight_fabric_host::Farewell;
use farsight_fabric_host::message::{Reader, Unintelligible, Writer};
use farsight_fabric_net::packets::packet;

use crate::ibv::pair::{Endpoint, SEQUENCE_MASK};

/// Opens every Hello: "FARVERBS".
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"FARVERBS");
/// Version of the control packets and of the frames of calls.
pub(crate) const FABRIC_VERSION: u32 = 2;

/// What a client says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FromClient {
    Hello { magic: u64, fabric_version: u32, format_version: u32 },
    OpenQueue { endpoint: Endpoint },
    Attach { region: RegionId },
    CloseQueue { queue: u64 },
}

/// What a server says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FromServer {
    Welcome { epoch: u64, client: u64 },
    Refusal { text: String },
    QueueOpened { queue: u64, endpoint: Endpoint },
    Attached { region: RegionId, rights: RegionRights, length_bytes: u64, address: u64, key: u32 },
    NoSuchRegion { region: RegionId },
    Goodbye { text: String },
    Failed { text: String },
    Dismissal { text: String },
    Withdrawn { region: RegionId },
    Notice { number: u64 },
}

fn put_endpoint(packet: Writer, endpoint: &Endpoint) -> Writer {
    let small = [
        endpoint.path_unit,
        u8::from(endpoint.is_infiniband),
        endpoint.reads_begun_max,
        endpoint.reads_served_max,
    ];
    let numbers = packet.u32(endpoint.number).u32(endpoint.sequence).u32(u32::from(endpoint.lid));
    numbers.bytes(&small).bytes(&endpoint.gid)
}

fn take_endpoint(fields: &mut Reader<'_>) -> Result<Endpoint, Unintelligible> {
    let code = |what, code: u32| Unintelligible::Code { what, code };
    let (number, sequence, lid) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let [path_unit, link, reads_begun_max, reads_served_max] = fields.bytes()?;
    let sound = |value: u8, most: u8| (1..=most).contains(&value);
    if sequence > SEQUENCE_MASK {
        return Err(code("sequence number", sequence));
    }
    if !sound(path_unit, 5) {
        return Err(code("packet length", u32::from(path_unit)));
    }
    if link > 1 {
        return Err(code("link layer", u32::from(link)));
    }
    if !sound(reads_begun_max, u8::MAX) || !sound(reads_served_max, u8::MAX) {
        return Err(code("limit of READs", 0));
    }
    Ok(Endpoint {
        number,
        sequence,
        lid: u16::try_from(lid).map_err(|_| code("port address", lid))?,
        path_unit,
        is_infiniband: link == 1,
        reads_begun_max,
        reads_served_max,
        gid: fields.bytes()?,
    })
}

impl FromClient {
    /// The packet, with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        packet(match self {
            Self::Hello { magic, fabric_version, format_version } => {
                Writer::new(1).u64(*magic).u32(*fabric_version).u32(*format_version)
            }
            Self::OpenQueue { endpoint } => put_endpoint(Writer::new(2), endpoint),
            Self::Attach { region } => Writer::new(3).region(*region),
            Self::CloseQueue { queue } => Writer::new(4).u64(*queue),
        })
    }

    /// The message in a packet without its length.
    pub(crate) fn decode(packet: &[u8]) -> Result<Self, Unintelligible> {
        let mut fields = Reader::new(packet);
        let message = match fields.u32()? {
            1 => Self::Hello {
                magic: fields.u64()?,
                fabric_version: fields.u32()?,
                format_version: fields.u32()?,
            },
            2 => Self::OpenQueue { endpoint: take_endpoint(&mut fields)? },
            3 => Self::Attach { region: fields.region()? },
            4 => Self::CloseQueue { queue: fields.u64()? },
            kind => return Err(Unintelligible::Kind { kind }),
        };
        fields.end(message)
    }
}

impl FromServer {
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
            Self::Welcome { epoch, client } => Writer::new(129).u64(*epoch).u64(*client),
            Self::Refusal { text } => Writer::new(130).text(text),
            Self::QueueOpened { queue, endpoint } => put_endpoint(Writer::new(131).u64(*queue), endpoint),
            Self::Attached { region, rights, length_bytes, address, key } => {
                Writer::new(132).region(*region).rights(*rights).u64(*length_bytes).u64(*address).u32(*key)
            }
            Self::NoSuchRegion { region } => Writer::new(133).region(*region),
            Self::Goodbye { text } => Writer::new(134).text(text),
            Self::Failed { text } => Writer::new(135).text(text),
            Self::Dismissal { text } => Writer::new(136).text(text),
            Self::Withdrawn { region } => Writer::new(137).region(*region),
            Self::Notice { number } => Writer::new(138).u64(*number),
        })
    }

    /// The message in a packet without its length.
    pub(crate) fn decode(packet: &[u8]) -> Result<Self, Unintelligible> {
        let mut fields = Reader::new(packet);
        let message = match fields.u32()? {
            129 => Self::Welcome { epoch: fields.u64()?, client: fields.u64()? },
            130 => Self::Refusal { text: fields.text() },
            131 => Self::QueueOpened { queue: fields.u64()?, endpoint: take_endpoint(&mut fields)? },
            132 => Self::Attached {
                region: fields.region()?,
                rights: fields.rights()?,
                length_bytes: fields.u64()?,
                address: fields.u64()?,
                key: fields.u32()?,
            },
            133 => Self::NoSuchRegion { region: fields.region()? },
            134 => Self::Goodbye { text: fields.text() },
            135 => Self::Failed { text: fields.text() },
            136 => Self::Dismissal { text: fields.text() },
            137 => Self::Withdrawn { region: fields.region()? },
            138 => Self::Notice { number: fields.u64()? },
            kind => return Err(Unintelligible::Kind { kind }),
        };
        fields.end(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Endpoint {
        Endpoint {
            number: 0x12_3456,
            sequence: SEQUENCE_MASK,
            lid: u16::MAX,
            path_unit: 5,
            is_infiniband: true,
            reads_begun_max: 255,
            reads_served_max: 1,
            gid: std::array::from_fn(|index| index as u8),
        }
    }

    fn of_clients() -> Vec<FromClient> {
        vec![
            FromClient::Hello { magic: MAGIC, fabric_version: 1, format_version: u32::MAX },
            FromClient::OpenQueue { endpoint: endpoint() },
            FromClient::Attach { region: RegionId(7) },
            FromClient::CloseQueue { queue: u64::MAX },
        ]
    }

    fn of_servers() -> Vec<FromServer> {
        let text = || "why \u{e4}".to_owned();
        let attached = |rights| FromServer::Attached {
            region: RegionId(1),
            rights,
            length_bytes: 1 << 40,
            address: u64::MAX,
            key: 3,
        };
        vec![
            FromServer::Welcome { epoch: 1, client: 2 },
            FromServer::Refusal { text: text() },
            FromServer::QueueOpened { queue: 5, endpoint: endpoint() },
            attached(RegionRights::ReadOnly),
            attached(RegionRights::ReadWrite),
            FromServer::NoSuchRegion { region: RegionId(0) },
            FromServer::Goodbye { text: text() },
            FromServer::Failed { text: String::new() },
            FromServer::Dismissal { text: text() },
            FromServer::Withdrawn { region: RegionId(9) },
            FromServer::Notice { number: u64::MAX },
        ]
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for message in of_clients() {
            assert_eq!(FromClient::decode(&message.encode()[4..]), Ok(message));
        }
        for message in of_servers() {
            assert_eq!(FromServer::decode(&message.encode()[4..]), Ok(message));
        }
    }

    #[test]
    fn a_frame_cut_short_or_too_long_is_no_message() {
        for message in of_clients() {
            let frame = &message.encode()[4..];
            for length in 0..frame.len() {
                assert!(FromClient::decode(&frame[..length]).is_err(), "{message:?} cut to {length}");
            }
            assert_eq!(
                FromClient::decode(&[frame, &[0]].concat()),
                Err(Unintelligible::Excess { got: frame.len() + 1, excess: 1 })
            );
        }
    }

    #[test]
    fn wrong_codes_are_named() {
        let mut frame = FromClient::OpenQueue { endpoint: endpoint() }.encode();
        let places = [
            (15, 1, "sequence number"),
            (19, 1, "port address"),
            (20, 6, "packet length"),
            (21, 2, "link layer"),
            (22, 0, "limit of READs"),
            (23, 0, "limit of READs"),
        ];
        for (place, wrong, what) in places {
            let sound = frame[place];
            frame[place] = wrong;
            match FromClient::decode(&frame[4..]) {
                Err(Unintelligible::Code { what: named, .. }) => assert_eq!(named, what),
                other => panic!("{what}: {other:?}"),
            }
            frame[place] = sound;
        }
        assert_eq!(FromServer::decode(&1_u32.to_le_bytes()), Err(Unintelligible::Kind { kind: 1 }));
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let text = "\u{e4}".repeat(600);
        match FromServer::decode(&FromServer::Refusal { text }.encode()[4..]) {
            Ok(FromServer::Refusal { text }) => assert_eq!(text, "\u{e4}".repeat(500)),
            other => panic!("{other:?}"),
        }
    }
}
