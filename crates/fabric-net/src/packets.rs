//! A stream of packets: handshakes and control connections, on both sides. Nothing here blocks but
//! [`Packets::await_next`].
//!
//! Invariant: a packet is its length (`u32`, little-endian like all numbers, at most [`PACKET_BYTES_MAX`]),
//! then a [message](farsight_fabric_host::message).
//!
//! Bounds: bytes that have arrived and are no whole packet yet are shorter than two of the longest packets.
//! If the kernel does not take all bytes of a packet at once, the peer counts as one that does not read.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use farsight_fabric_host::message::Writer;
use farsight_fabric_host::{DisconnectReason, Farewell, os};
use rustix::event::PollFlags;

use crate::stream::{Received, Stream};

/// Bytes of the longest packet behind its length.
pub const PACKET_BYTES_MAX: usize = 1024;
/// Bytes of a packet's length.
const LENGTH_BYTES: usize = 4;

/// Why bytes are no packet.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadPacket {
    /// No packet is that long.
    #[error("a packet announces {got} B, and the limit is {PACKET_BYTES_MAX}")]
    TooLong {
        /// What it announces.
        got: u32,
    },
    /// The beginning of a TLS session.
    #[error("this is TLS, and the other side speaks none: give or omit certificates on both sides")]
    Tls,
}

/// The first packet of `bytes` and how long it is with its length; `None` if it has not arrived whole.
///
/// # Errors
/// [`BadPacket`].
pub fn first_packet(bytes: &[u8]) -> Result<Option<(&[u8], usize)>, BadPacket> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length_bytes = u32::from_le_bytes(*length);
    if length_bytes as usize > PACKET_BYTES_MAX {
        // A record of TLS begins with its kind, 20 to 23, and the version 3.x.
        let is_tls = (20..24).contains(&length[0]) && length[1] == 3;
        let error = BadPacket::TooLong { got: length_bytes };
        return Err(if is_tls { BadPacket::Tls } else { error });
    }
    let packet = rest.get(..length_bytes as usize);
    Ok(packet.map(|packet| (packet, LENGTH_BYTES + packet.len())))
}

/// A message's packet, with its length.
///
/// # Panics
/// If it is longer than any packet.
#[must_use]
pub fn packet(message: Writer) -> Vec<u8> {
    let message = message.message();
    assert!(message.len() <= PACKET_BYTES_MAX, "a packet of {} B", message.len());
    [&(message.len() as u32).to_le_bytes(), &message[..]].concat()
}

/// What was found of a packet.
#[derive(Debug)]
pub enum Next {
    /// A packet without its length.
    Packet(Vec<u8>),
    /// None has arrived whole.
    Nothing,
    /// The peer has ended its side.
    End,
    /// What arrived is no packet.
    Unintelligible(BadPacket),
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
        let packet = packet(Writer::new(7).u64(9));
        for length in 0..packet.len() {
            assert_eq!(first_packet(&packet[..length]), Ok(None), "{length} B of it");
        }
        let two = [&packet[..], &packet[..3]].concat();
        let (first, length_bytes) = first_packet(&two).expect("a packet").expect("a whole one");
        assert_eq!((first, length_bytes), (&packet[4..], packet.len()));
    }

    #[test]
    fn what_is_no_packet_is_named() {
        assert_eq!(first_packet(&1025_u32.to_le_bytes()), Err(BadPacket::TooLong { got: 1025 }));
        assert_eq!(first_packet(&[22, 3, 1, 2, 0]), Err(BadPacket::Tls));
    }
}
