//! Where and how a server listens, and what can stand against it.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};

use crate::net::Waiting;
use crate::tls::Tls;

/// How a server listens.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Version of the bytes in regions and calls, which both sides must share.
    pub format_version: u32,
    /// With it, only clients with a certificate are let in, and everything is encrypted.
    pub tls: Option<Tls>,
    /// Serves in the clear beyond this machine: whoever is on the way can read and change everything.
    pub allow_plaintext: bool,
    /// How workers wait for their clients.
    pub waiting: Waiting,
}

impl ListenOptions {
    /// In the clear, on this machine alone.
    #[must_use]
    pub fn new(format_version: u32) -> Self {
        Self { format_version, tls: None, allow_plaintext: false, waiting: Waiting::default() }
    }
}

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
    #[error("{address} is in use: stop the other server, or choose another port")]
    InUse {
        /// The address.
        address: SocketAddr,
    },
    /// The operating system said no.
    #[error("listening at {address}: {step} failed: {source}")]
    System {
        /// The address as it was given.
        address: String,
        /// What failed.
        step: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

/// Binds a listener that does not block.
pub(crate) fn bind(address: &str, options: &ListenOptions) -> Result<TcpListener, ListenError> {
    let unresolved = |source| ListenError::Address { address: address.to_owned(), source };
    let mut resolved = address.to_socket_addrs().map_err(unresolved)?;
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let resolved = resolved.next().ok_or_else(|| unresolved(none()))?;
    let is_exposed = options.tls.is_none() && !resolved.ip().to_canonical().is_loopback();
    if is_exposed && !options.allow_plaintext {
        return Err(ListenError::Plaintext { address: resolved });
    }
    let listener = TcpListener::bind(resolved).map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => ListenError::InUse { address: resolved },
        _ => ListenError::System { address: address.to_owned(), step: "binding", source },
    })?;
    let step = "setting it up";
    let failed = |source| ListenError::System { address: address.to_owned(), step, source };
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}
