//! Bytes of a stream through TLS: ciphertext on one side, plaintext on the other. Nothing here blocks.
//!
//! Bounds: ciphertext that has arrived fills one buffer; what waits to be sent is a few records.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::stream::Received;

/// Bytes of ciphertext taken from the kernel at a time.
const ARRIVED_BYTES: usize = 64 << 10;
/// Bytes of plaintext and ciphertext that TLS keeps for the kernel.
const UNSENT_BYTES: usize = 64 << 10;
/// Bytes of plaintext in the longest record of TLS.
const RECORD_BYTES: usize = 16 << 10;

/// One side of a TLS session.
#[derive(Debug)]
pub(crate) struct Secure {
    session: rustls::Connection,
    arrived: Box<[u8]>,
    /// What of `arrived` the session has not taken.
    untaken: std::ops::Range<usize>,
}

impl Secure {
    pub(crate) fn new(mut session: rustls::Connection) -> Self {
        session.set_buffer_limit(Some(UNSENT_BYTES));
        Self { session, arrived: Box::default(), untaken: 0..0 }
    }

    /// The peer's own certificate, once the handshake is through.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        self.session.peer_certificates()?.first().map(AsRef::as_ref)
    }

    /// Takes plaintext, as far as `into` has room, and goes on with the handshake.
    pub(crate) fn receive(&mut self, socket: &OwnedFd, into: &mut [u8]) -> io::Result<Received> {
        let mut filled = 0;
        loop {
            match self.session.reader().read(&mut into[filled..]) {
                Ok(0) if filled < into.len() => return Ok(done(filled, Received::End)),
                Ok(length_bytes) => filled += length_bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.advance(socket) {
                        Ok(Received::Bytes(_)) => continue,
                        // What came before an end or a fault is taken first: either shows again.
                        Ok(other) => return Ok(done(filled, other)),
                        Err(_) if filled > 0 => return Ok(Received::Bytes(filled)),
                        Err(error) => return Err(error),
                    }
                }
                Err(_) if filled > 0 => return Ok(Received::Bytes(filled)),
                // The peer ended without saying so: it died.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Received::End),
                Err(error) => return Err(error),
            }
            if filled == into.len() {
                return Ok(Received::Bytes(filled));
            }
        }
    }

    /// Hands ciphertext to the session. [`Received::Bytes`] if there was any.
    fn advance(&mut self, socket: &OwnedFd) -> io::Result<Received> {
        if self.untaken.is_empty() {
            if self.arrived.is_empty() {
                self.arrived = vec![0; ARRIVED_BYTES].into();
            }
            match rustix::net::recv(socket, &mut self.arrived[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Ok(Received::End),
                Ok((length_bytes, _)) => self.untaken = 0..length_bytes,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(Received::Nothing),
                Err(error) => return Err(error.into()),
            }
        }
        let mut untaken = &self.arrived[self.untaken.clone()];
        let taken = self.session.read_tls(&mut untaken)?;
        self.untaken.start += taken;
        let processed = self.session.process_new_packets();
        // The handshake's next flight, or what is wrong with the peer's.
        let flushed = self.flush(socket);
        if let Err(error) = processed {
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        flushed?;
        Ok(Received::Bytes(taken))
    }

    /// Hands over as much of `bytes` as the session and the kernel take now.
    pub(crate) fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        let mut sent = 0;
        loop {
            self.flush(socket)?;
            if self.session.wants_write() || sent == bytes.len() {
                return Ok(sent);
            }
            // Record by record: the peer decrypts one while the next is encrypted.
            let end = bytes.len().min(sent + RECORD_BYTES);
            let taken = self.session.writer().write(&bytes[sent..end])?;
            if taken == 0 {
                return Ok(sent);
            }
            sent += taken;
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.session.wants_write()
    }

    fn flush(&mut self, socket: &OwnedFd) -> io::Result<()> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Socket(socket)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn done(filled: usize, otherwise: Received) -> Received {
    if filled > 0 { Received::Bytes(filled) } else { otherwise }
}

/// A socket to be written to without waiting and without signals.
struct Socket<'s>(&'s OwnedFd);

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        Ok(rustix::net::sendmsg(self.0, parts, &mut SendAncillaryBuffer::default(), flags)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
