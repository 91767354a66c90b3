//! Bytes of a stream through TLS: ciphertext on one side, plaintext on the other. Nothing here blocks.
//!
//! Invariant: records are decrypted where the kernel put them and copied once, to the receiver. Records to be
//! sent stand in one buffer in the order in which the session made them, and leave in that order.
//!
//! Bounds: ciphertext that has arrived fills one buffer; plaintext that nobody has taken is no longer; what
//! waits to be sent is a few records.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustls::Error;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, InsufficientSizeError, UnbufferedStatus,
};

use crate::stream::Received;

/// Bytes of ciphertext that have arrived and not been decrypted: several records.
const ARRIVED_BYTES: usize = 64 << 10;
/// Looks for ciphertext of one [`Secure::receive`] at most: records may hold no plaintext at all, and come
/// without end.
const LOOKS_MAX: usize = 16;
/// Bytes of plaintext that are taken before the session is ready for them.
const EARLY_BYTES: usize = 64 << 10;
/// Bytes of plaintext in the longest record of TLS, and what a record needs besides.
const RECORD_BYTES: usize = 16 << 10;
const RECORD_OVERHEAD_BYTES: usize = 256 + 5;

const _: () = assert!(ARRIVED_BYTES > 2 * (RECORD_BYTES + RECORD_OVERHEAD_BYTES));

/// A TLS session of either side.
pub enum Session {
    /// Of the side that connects.
    Client(UnbufferedClientConnection),
    /// Of the side that listens.
    Server(UnbufferedServerConnection),
}

/// One side of a TLS connection.
pub(crate) struct Secure {
    session: Session,
    /// Ciphertext from the kernel, in `arrived[taken..filled]`.
    arrived: Box<[u8]>,
    taken: usize,
    filled: usize,
    /// Plaintext that its receiver had no room for, from `given` on.
    plaintext: Vec<u8>,
    given: usize,
    /// Plaintext that the session is not ready for.
    early: Vec<u8>,
    /// Ciphertext for the kernel, from `sent` on.
    outgoing: Vec<u8>,
    sent: usize,
    /// True once the peer has said that it ends.
    has_ended: bool,
    /// What ended the session; nothing more comes of it.
    fault: Option<Error>,
}

/// What a session wants next.
#[derive(PartialEq, Eq)]
enum Wants {
    /// To be asked again.
    Nothing,
    /// More ciphertext, before which it does not encrypt.
    Handshake,
    /// Ciphertext or plaintext, whichever there is.
    Traffic,
    /// The peer has ended.
    End,
}

impl fmt::Debug for Secure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Secure").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

impl Secure {
    pub(crate) fn new(session: Session) -> Self {
        Self {
            session,
            arrived: Box::default(),
            taken: 0,
            filled: 0,
            plaintext: Vec::new(),
            given: 0,
            early: Vec::new(),
            outgoing: Vec::new(),
            sent: 0,
            has_ended: false,
            fault: None,
        }
    }

    /// The peer's own certificate, once the handshake is through.
    pub(crate) fn peer_certificate(&self) -> Option<&[u8]> {
        let certificates = match &self.session {
            Session::Client(session) => session.peer_certificates(),
            Session::Server(session) => session.peer_certificates(),
        };
        certificates?.first().map(AsRef::as_ref)
    }

    /// Takes plaintext, as far as `into` has room, and goes on with the handshake. What of a busy peer's
    /// ciphertext is not taken stays with the kernel, which shows it.
    pub(crate) fn receive(&mut self, socket: &OwnedFd, into: &mut [u8]) -> io::Result<Received> {
        let (mut received, mut looks) = (self.take_plaintext(into), 0);
        while received < into.len() {
            let wants = match self.process(&mut into[received..]) {
                Ok((bytes, wants)) => {
                    received += bytes;
                    wants
                }
                Err(error) => {
                    // The peer is told why, if it listens.
                    let _ = self.flush(socket);
                    // What came before a fault is taken first: the fault shows again.
                    return if received > 0 { Ok(Received::Bytes(received)) } else { Err(error) };
                }
            };
            // The handshake's next flight.
            let flushed = self.flush(socket);
            let found = match wants {
                Wants::Nothing => continue,
                Wants::End => Ok(Received::End),
                Wants::Handshake | Wants::Traffic if looks == LOOKS_MAX => Ok(Received::Nothing),
                Wants::Handshake | Wants::Traffic => {
                    looks += 1;
                    flushed.and_then(|()| self.take_ciphertext(socket))
                }
            };
            match found {
                Ok(Received::Bytes(_)) => {}
                _ if received > 0 => return Ok(Received::Bytes(received)),
                otherwise => return otherwise,
            }
        }
        Ok(Received::Bytes(received))
    }

    /// Hands over as much of `bytes` as the session and the kernel take now.
    pub(crate) fn send(&mut self, socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
        let mut taken = 0;
        loop {
            self.flush(socket)?;
            if self.has_outgoing() || taken == bytes.len() {
                return Ok(taken);
            }
            // Record by record: the peer decrypts one while the next is encrypted.
            let end = bytes.len().min(taken + RECORD_BYTES);
            let before = taken;
            taken += self.encrypt(&bytes[taken..end])?;
            if taken == before && !self.has_outgoing() {
                return Ok(taken);
            }
        }
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.has_outgoing() || !self.early.is_empty()
    }

    fn has_outgoing(&self) -> bool {
        self.sent < self.outgoing.len()
    }

    /// Makes a record of `bytes`, of at most one record's length, or keeps them until the handshake is done.
    fn encrypt(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.process(&mut [])?.1 {
                Wants::Nothing => {}
                Wants::Traffic => break,
                Wants::End => return Err(io::ErrorKind::BrokenPipe.into()),
                Wants::Handshake => {
                    let count = bytes.len().min(EARLY_BYTES - self.early.len());
                    self.early.extend_from_slice(&bytes[..count]);
                    return Ok(count);
                }
            }
        }
        self.make_record(bytes)?;
        Ok(bytes.len())
    }

    /// Encrypts, when the session is ready for it.
    fn make_record(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { session, arrived, taken, filled, outgoing, .. } = self;
        let incoming = &mut arrived[*taken..*filled];
        let (discard, outcome) = match session {
            Session::Client(session) => encrypt_into(session.process_tls_records(incoming), bytes, outgoing),
            Session::Server(session) => encrypt_into(session.process_tls_records(incoming), bytes, outgoing),
        };
        *taken += discard;
        outcome.map_err(invalid)
    }

    /// Does one thing that the session wants. Returns the bytes of plaintext put into `into`; what has no
    /// room there is kept.
    fn process(&mut self, into: &mut [u8]) -> io::Result<(usize, Wants)> {
        if let Some(fault) = &self.fault {
            return Err(invalid(fault.clone()));
        }
        match self.step(into) {
            Ok((bytes, wants)) => {
                self.has_ended |= wants == Wants::End;
                if wants == Wants::Traffic && !self.early.is_empty() {
                    let early = std::mem::take(&mut self.early);
                    early.chunks(RECORD_BYTES).try_for_each(|bytes| self.make_record(bytes))?;
                }
                Ok((bytes, if self.has_ended { Wants::End } else { wants }))
            }
            Err(fault) => {
                self.fault = Some(fault.clone());
                // It has a last word for its peer, or nothing that matters any more.
                let _ = self.step(&mut []);
                Err(invalid(fault))
            }
        }
    }

    fn step(&mut self, into: &mut [u8]) -> Result<(usize, Wants), Error> {
        let Self { session, arrived, taken, filled, plaintext, outgoing, .. } = self;
        let incoming = &mut arrived[*taken..*filled];
        let (discard, outcome) = match session {
            Session::Client(session) => {
                step(session.process_tls_records(incoming), outgoing, into, plaintext)
            }
            Session::Server(session) => {
                step(session.process_tls_records(incoming), outgoing, into, plaintext)
            }
        };
        *taken += discard;
        outcome
    }

    fn take_plaintext(&mut self, into: &mut [u8]) -> usize {
        let rest = &self.plaintext[self.given..];
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.given += count;
        if self.given == self.plaintext.len() {
            self.plaintext.clear();
            self.given = 0;
        }
        count
    }

    /// Takes more from the kernel, behind what is there.
    fn take_ciphertext(&mut self, socket: &OwnedFd) -> io::Result<Received> {
        if self.arrived.is_empty() {
            self.arrived = vec![0; ARRIVED_BYTES].into();
        }
        if self.taken > 0 {
            self.arrived.copy_within(self.taken..self.filled, 0);
            self.filled -= std::mem::take(&mut self.taken);
        }
        if self.filled == self.arrived.len() {
            let text = "a record that is longer than any";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        match rustix::net::recv(socket, &mut self.arrived[self.filled..], RecvFlags::DONTWAIT) {
            // Without a word before: the peer died.
            Ok((0, _)) => Ok(Received::End),
            Ok((length_bytes, _)) => {
                self.filled += length_bytes;
                Ok(Received::Bytes(length_bytes))
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    fn flush(&mut self, socket: &OwnedFd) -> io::Result<()> {
        while self.has_outgoing() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(socket, &self.outgoing[self.sent..], flags) {
                Ok(length_bytes) => self.sent += length_bytes,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.outgoing.clear();
        self.sent = 0;
        Ok(())
    }
}

/// Does what a session's state asks for. Returns the bytes of ciphertext that are done with; those of
/// plaintext, and what is next.
fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut Vec<u8>,
    into: &mut [u8],
    plaintext: &mut Vec<u8>,
) -> (usize, Result<(usize, Wants), Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let outcome = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut traffic)) => {
            let (mut bytes, mut outcome) = (0, Ok(()));
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        discard += record.discard;
                        let room = &mut into[bytes..];
                        let (now, later) = record.payload.split_at(record.payload.len().min(room.len()));
                        room[..now.len()].copy_from_slice(now);
                        plaintext.extend_from_slice(later);
                        bytes += now.len();
                    }
                    Err(error) => outcome = Err(error),
                }
            }
            outcome.map(|()| (bytes, Wants::Nothing))
        }
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let encoded = append(outgoing, RECORD_BYTES, |room| {
                data.encode(room).map_err(|error| match error {
                    EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => {
                        Some(required_size)
                    }
                    EncodeError::AlreadyEncoded => None,
                })
            });
            encoded.map(|()| (0, Wants::Nothing))
        }
        Ok(ConnectionState::TransmitTlsData(data)) => {
            // It stands in `outgoing`, before anything else that will.
            data.done();
            Ok((0, Wants::Nothing))
        }
        Ok(ConnectionState::BlockedHandshake) => Ok((0, Wants::Handshake)),
        Ok(ConnectionState::WriteTraffic(_)) => Ok((0, Wants::Traffic)),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok((0, Wants::End)),
        Ok(other) => Err(Error::General(format!("an unexpected state: {other:?}"))),
    };
    (discard, outcome)
}

/// Appends a record of `bytes` to `outgoing`. The session must be ready for it and have nothing else to say.
/// Returns the bytes of ciphertext that are done with, too.
fn encrypt_into<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    bytes: &[u8],
    outgoing: &mut Vec<u8>,
) -> (usize, Result<(), Error>) {
    let UnbufferedStatus { discard, state } = status;
    let Ok(ConnectionState::WriteTraffic(mut traffic)) = state else {
        return (discard, Err(Error::General("it is not ready to encrypt".to_owned())));
    };
    let appended = append(outgoing, bytes.len() + RECORD_OVERHEAD_BYTES, |room| {
        traffic.encrypt(bytes, room).map_err(|error| match error {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => Some(required_size),
            EncryptError::EncryptExhausted => None,
        })
    });
    (discard, appended)
}

/// Appends what `fill` puts into room of `expected_bytes`, or of as many as it says that it needs.
fn append(
    outgoing: &mut Vec<u8>,
    expected_bytes: usize,
    mut fill: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), Error> {
    let begin = outgoing.len();
    outgoing.resize(begin + expected_bytes, 0);
    let filled = match fill(&mut outgoing[begin..]) {
        Err(Some(needed_bytes)) => {
            outgoing.resize(begin + needed_bytes, 0);
            fill(&mut outgoing[begin..])
        }
        filled => filled,
    };
    outgoing.truncate(begin + *filled.as_ref().unwrap_or(&0));
    filled.map(drop).map_err(|_| Error::EncryptError)
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
