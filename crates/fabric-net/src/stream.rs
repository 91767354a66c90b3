//! A connected socket as a stream of bytes, in the clear or through TLS. Nothing here blocks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

use crate::secure::{Secure, Session};

/// What a look for bytes found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received {
    /// So many bytes are in the buffer.
    Bytes(usize),
    /// None are there now.
    Nothing,
    /// The peer has ended its side.
    End,
}

/// One side of a connection.
#[derive(Debug)]
pub struct Stream {
    socket: Arc<OwnedFd>,
    secure: Option<Box<Secure>>,
}

impl Stream {
    /// A stream in the clear, or through a TLS session that begins.
    #[must_use]
    pub fn new(socket: OwnedFd, session: Option<Session>) -> Self {
        let secure = session.map(|session| Box::new(Secure::new(session)));
        Self { socket: Arc::new(socket), secure }
    }

    /// The socket, for the thread that may have to hang it up.
    #[must_use]
    pub fn socket(&self) -> &Arc<OwnedFd> {
        &self.socket
    }

    /// The certificate that the peer has shown, once the handshake is through; none in the clear.
    #[must_use]
    pub fn peer_certificate(&self) -> Option<&[u8]> {
        self.secure.as_ref().and_then(|secure| secure.peer_certificate())
    }

    /// Takes what has arrived, as far as `into` has room.
    ///
    /// # Errors
    /// The system's or TLS's.
    pub fn receive(&mut self, into: &mut [u8]) -> io::Result<Received> {
        if let Some(secure) = &mut self.secure {
            return secure.receive(&self.socket, into);
        }
        match rustix::net::recv(&self.socket, into, RecvFlags::DONTWAIT) {
            Ok((0, _)) => Ok(Received::End),
            Ok((length_bytes, _)) => Ok(Received::Bytes(length_bytes)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(Received::Nothing),
            Err(error) => Err(error.into()),
        }
    }

    /// Hands over as much of `bytes` as is taken now; returns how many that were.
    ///
    /// # Errors
    /// The system's or TLS's.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(secure) = &mut self.secure {
            return secure.send(&self.socket, bytes);
        }
        let mut sent = 0;
        while sent < bytes.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.socket, &bytes[sent..], flags) {
                Ok(length_bytes) => sent += length_bytes,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(sent)
    }

    /// True while bytes that were handed over wait for the kernel to take them.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.secure.as_ref().is_some_and(|secure| secure.has_unsent())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
