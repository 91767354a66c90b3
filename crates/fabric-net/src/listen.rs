//! Where a server listens, and what can stand against it.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Text that names no address.
    #[error("{address:?} names no address to listen at: {source}. Write HOST:PORT, as in 127.0.0.1:7474")]
    Address {
        /// The text.
        address: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Clear text where others could read it.
    #[error(
        "{address} can be reached from other machines, and no certificate is given: {}",
        crate::PLAINTEXT_REMEDY
    )]
    Plaintext {
        /// The address.
        address: SocketAddr,
    },
    /// Somebody listens there.
    #[error("{address} is in use: stop what listens there, or choose another port")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The operating system said no.
    #[error(
        "listening at {address}: {step} failed: {source}. Is the address this machine's (`ip address`), and may \
         this user have the port?"
    )]
    System {
        /// The address as it was given.
        address: String,
        /// What failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl ListenError {
    /// The error of a step that the system refused.
    pub fn of_step(address: &str, step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { address: address.to_owned(), step, source }
    }
}

/// Binds a socket that does not block; [`Admission::open`](crate::Admission::open) lets it listen. In the
/// clear it takes in other machines only if `allow_plaintext`.
pub(crate) fn bind(
    address: &str,
    is_encrypted: bool,
    allow_plaintext: bool,
) -> Result<TcpListener, ListenError> {
    let unresolved = |source| ListenError::Address { address: address.to_owned(), source };
    let mut resolved = address.to_socket_addrs().map_err(unresolved)?;
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let resolved = resolved.next().ok_or_else(|| unresolved(none()))?;
    let is_exposed = !is_encrypted && !resolved.ip().to_canonical().is_loopback();
    if is_exposed && !allow_plaintext {
        return Err(ListenError::Plaintext { address: resolved });
    }
    bind_to(&resolved).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address: resolved },
        _ => ListenError::System { address: address.to_owned(), step: "binding", source },
    })
}

/// A socket at `address` that does not listen yet. A port whose last connections are ending is free.
fn bind_to(address: &SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, address)?;
    Ok(TcpListener::from(socket))
}
