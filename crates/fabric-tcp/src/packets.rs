//! A stream of packets: greetings and control connections, on both sides. Nothing here blocks.
//!
//! Bounds: what has arrived and is no whole packet yet is shorter than the longest packet; what the kernel
//! does not take at once is a peer that does not read.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::control::{PACKET_BYTES_MAX, Unintelligible, first_packet};
use crate::stream::{Received, Stream};

/// What a look for a packet found.
#[derive(Debug)]
pub(crate) enum Next {
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
pub(crate) struct Packets {
    stream: Stream,
    arrived: Vec<u8>,
}

impl Packets {
    pub(crate) fn new(stream: Stream) -> Self {
        Self { stream, arrived: Vec::new() }
    }

    pub(crate) fn socket(&self) -> &Arc<OwnedFd> {
        self.stream.socket()
    }

    /// The next packet.
    pub(crate) fn receive(&mut self) -> io::Result<Next> {
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

    /// Sends a packet, which the kernel must take whole.
    pub(crate) fn send(&mut self, packet: &[u8]) -> io::Result<()> {
        let sent = self.stream.send(packet)?;
        if sent == packet.len() && !self.stream.has_unsent() {
            return Ok(());
        }
        Err(io::Error::other("the peer does not read what it is sent"))
    }

    /// The stream, if nothing of a further packet has arrived.
    pub(crate) fn into_stream(self) -> Option<Stream> {
        self.arrived.is_empty().then_some(self.stream)
    }
}
