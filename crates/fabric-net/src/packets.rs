//! A stream of packets: handshakes and control connections, on both sides. Nothing here blocks but
//! [`Packets::await_next`].
//!
//! Invariant: a packet is its length (`u32`, little-endian like all numbers, at most [`PACKET_BYTES_MAX`]),
//! then a `u32` kind, then a fixed layout; a text is whatever is left.
//!
//! Bounds: bytes that have arrived and are no whole packet yet are shorter than two of the longest packets.
//! If the kernel does not take all bytes of a packet at once, the peer counts as one that does not read.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use farsight_fabric_host::{DisconnectReason, Farewell, os};
use rustix::event::PollFlags;

use crate::stream::{Received, Stream};

/// Bytes of the longest packet behind its length.
pub const PACKET_BYTES_MAX: usize = 1024;
/// Bytes of the longest text: what else a packet holds leaves room for it.
pub const TEXT_BYTES_MAX: usize = 1000;
/// Bytes of a packet's length.
const LENGTH_BYTES: usize = 4;

/// Why a packet is no message.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unintelligible {
    /// No packet is that long.
    #[error("a packet announces {got} B, and the limit is {PACKET_BYTES_MAX}")]
    TooLong {
        /// What it announces.
        got: u32,
    },
    /// Fields are missing.
    #[error("a packet of {got} B ends inside a message")]
    Short {
        /// Bytes of the packet.
        got: usize,
    },
    /// Something stands behind the fields.
    #[error("a packet of {got} B is {excess} B longer than its message")]
    Excess {
        /// Bytes of the packet.
        got: usize,
        /// Bytes behind the fields.
        excess: usize,
    },
    /// No message of that kind.
    #[error("messages of kind {kind} do not exist in this direction")]
    Kind {
        /// The kind.
        kind: u32,
    },
    /// A field with a value that means nothing.
    #[error("{what} {code} does not exist")]
    Code {
        /// The field.
        what: &'static str,
        /// Its value.
        code: u32,
    },
    /// The beginning of a TLS session.
    #[error("this is TLS, and the other side speaks none: give or omit certificates on both sides")]
    Tls,
}

/// The first packet of `bytes` and how long it is with its length; `None` if it has not arrived whole.
///
/// # Errors
/// [`Unintelligible::TooLong`] and [`Unintelligible::Tls`].
pub fn first_packet(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, Unintelligible> {
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
#[must_use]
pub struct Writer(Vec<u8>);

impl Writer {
    /// A packet of this kind.
    pub fn new(kind: u32) -> Self {
        let mut bytes = vec![0; LENGTH_BYTES];
        bytes.extend(kind.to_le_bytes());
        Self(bytes)
    }

    /// A number.
    pub fn u32(self, field: u32) -> Self {
        self.bytes(&field.to_le_bytes())
    }

    /// A number.
    pub fn u64(self, field: u64) -> Self {
        self.bytes(&field.to_le_bytes())
    }

    /// Bytes, as they are.
    pub fn bytes(mut self, field: &[u8]) -> Self {
        self.0.extend(field);
        self
    }

    /// A text, cut at a character if it is too long; nothing may follow it.
    pub fn text(self, text: &str) -> Self {
        self.bytes(cut(text).as_bytes())
    }

    /// The packet, with its length.
    ///
    /// # Panics
    /// If it is longer than any packet.
    #[must_use]
    pub fn packet(mut self) -> Vec<u8> {
        let length_bytes = self.0.len() - LENGTH_BYTES;
        assert!(length_bytes <= PACKET_BYTES_MAX, "a packet of {length_bytes} B");
        self.0[..LENGTH_BYTES].copy_from_slice(&(length_bytes as u32).to_le_bytes());
        self.0
    }
}

/// A packet being read.
pub struct Reader<'p> {
    packet: &'p [u8],
    rest: &'p [u8],
}

impl<'p> Reader<'p> {
    /// Of a packet without its length.
    #[must_use]
    pub fn new(packet: &'p [u8]) -> Self {
        Self { packet, rest: packet }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// [`Unintelligible::Short`].
    pub fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Unintelligible> {
        let split = self.rest.split_first_chunk::<N>();
        let (bytes, rest) = split.ok_or(Unintelligible::Short { got: self.packet.len() })?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// The next number.
    ///
    /// # Errors
    /// [`Unintelligible::Short`].
    pub fn u32(&mut self) -> Result<u32, Unintelligible> {
        self.bytes().map(u32::from_le_bytes)
    }

    /// The next number.
    ///
    /// # Errors
    /// [`Unintelligible::Short`].
    pub fn u64(&mut self) -> Result<u64, Unintelligible> {
        self.bytes().map(u64::from_le_bytes)
    }

    /// The rest, repaired and cut as a writer would have written it.
    pub fn text(&mut self) -> String {
        let rest = std::mem::take(&mut self.rest);
        cut(&String::from_utf8_lossy(rest)).to_owned()
    }

    /// The message that was read, behind which nothing may stand.
    ///
    /// # Errors
    /// [`Unintelligible::Excess`].
    pub fn end<T>(self, message: T) -> Result<T, Unintelligible> {
        match self.rest.len() {
            0 => Ok(message),
            excess => Err(Unintelligible::Excess { got: self.packet.len(), excess }),
        }
    }
}

/// What a look for a packet found.
#[derive(Debug)]
pub enum Next {
    /// A packet without its length.
    Packet(Vec<u8>),
    /// None has arrived whole.
    Nothing,
    /// The peer has ended its side.
    End,
    /// What arrived is no packet.
    Unintelligible(Unintelligible),
}

/// A stream, and what of a packet has arrived.
#[derive(Debug)]
pub struct Packets {
    stream: Stream,
    arrived: Vec<u8>,
}

impl Packets {
    /// Nothing has arrived yet.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self { stream, arrived: Vec::new() }
    }

    /// The socket, for the thread that may have to hang it up.
    #[must_use]
    pub fn socket(&self) -> &Arc<OwnedFd> {
        self.stream.socket()
    }

    /// The certificate that the peer has shown, once it has said something; none in the clear.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.stream.peer_certificate()
    }

    /// The next packet.
    ///
    /// # Errors
    /// The system's or TLS's.
    pub fn receive(&mut self) -> io::Result<Next> {
        loop {
            match first_packet(&self.arrived) {
                Ok(Some((packet, length_bytes))) => {
                    let packet = packet.to_vec();
                    self.arrived.drain(..length_bytes);
                    return Ok(Next::Packet(packet));
                }
                Ok(None) => {}
                Err(error) => return Ok(Next::Unintelligible(error)),
            }
            let mut buffer = [0; PACKET_BYTES_MAX];
            match self.stream.receive(&mut buffer)? {
                Received::Bytes(length_bytes) => self.arrived.extend_from_slice(&buffer[..length_bytes]),
                Received::Nothing => return Ok(Next::Nothing),
                Received::End => return Ok(Next::End),
            }
        }
    }

    /// The next packet, waited for until `deadline`; [`Next::Nothing`] if none has come by then.
    ///
    /// # Errors
    /// As [`Packets::receive`].
    pub fn await_next(&mut self, deadline: Instant) -> io::Result<Next> {
        loop {
            match self.receive()? {
                Next::Nothing => {}
                found => return Ok(found),
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Next::Nothing);
            }
            os::poll([(self.socket().as_fd(), PollFlags::IN)], left)?;
        }
    }

    /// Sends a packet, which the kernel must take whole.
    ///
    /// # Errors
    /// The system's or TLS's, and that the peer does not read.
    pub fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        let sent = self.stream.send(packet)?;
        if sent == packet.len() && !self.stream.has_unsent() {
            return Ok(());
        }
        Err(io::Error::other("the peer does not read what it is sent"))
    }

    /// The next packet that a client sends; `None` if there is none now.
    ///
    /// # Errors
    /// Why the client has to go.
    pub fn next_question(&mut self) -> Result<Option<Vec<u8>>, DisconnectReason> {
        match self.receive() {
            Ok(Next::Packet(packet)) => Ok(Some(packet)),
            Ok(Next::Nothing) => Ok(None),
            Ok(Next::Unintelligible(error)) => Err(DisconnectReason::Dismissed(error.to_string())),
            Ok(Next::End) | Err(_) => Err(DisconnectReason::Gone),
        }
    }

    /// Answers a client.
    ///
    /// # Errors
    /// A client that does not read its answers is gone.
    pub fn tell(&mut self, packet: &[u8]) -> Result<(), DisconnectReason> {
        self.send(packet).map_err(|_| DisconnectReason::Gone)
    }

    /// Tells a client why it ends, if there is something to tell, and hangs up.
    pub fn end(&mut self, reason: DisconnectReason, encode: impl FnOnce(Farewell) -> Vec<u8>) {
        if let Some(farewell) = reason.farewell() {
            // A client that does not read misses the reason, not the end.
            let _ = self.send(&encode(farewell));
        }
        os::hang_up(self.socket());
    }

    /// The stream, if nothing of a further packet has arrived.
    #[must_use]
    pub fn into_stream(self) -> Option<Stream> {
        self.arrived.is_empty().then_some(self.stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_taken_once_it_is_whole() {
        let packet = Writer::new(7).u64(9).text("why").packet();
        for length in 0..packet.len() {
            assert_eq!(first_packet(&packet[..length]), Ok(None), "{length} B of it");
        }
        let two = [&packet[..], &packet[..3]].concat();
        let (first, length_bytes) = first_packet(&two).expect("a packet").expect("a whole one");
        assert_eq!((first, length_bytes), (&packet[4..], packet.len()));
        let mut fields = Reader::new(first);
        assert_eq!((fields.u32(), fields.u64(), fields.text()), (Ok(7), Ok(9), "why".to_owned()));
        assert_eq!(fields.end(()), Ok(()));
    }

    #[test]
    fn what_is_no_packet_is_named() {
        assert_eq!(first_packet(&1025_u32.to_le_bytes()), Err(Unintelligible::TooLong { got: 1025 }));
        assert_eq!(first_packet(&[22, 3, 1, 2, 0]), Err(Unintelligible::Tls));
        let mut fields = Reader::new(&[1, 2, 3]);
        assert_eq!(fields.u32(), Err(Unintelligible::Short { got: 3 }));
        assert_eq!(fields.end(()), Err(Unintelligible::Excess { got: 3, excess: 3 }));
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let packet = Writer::new(1).text(&"\u{20ac}".repeat(400)).packet();
        assert_eq!(Reader::new(&packet[8..]).text(), "\u{20ac}".repeat(333));
    }
}
