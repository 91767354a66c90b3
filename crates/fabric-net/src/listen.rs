//! Where a server listens, and what can stand against it.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs as _};

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

/// Binds a listener that does not block. In the clear it takes in other machines only if `allow_plaintext`.
///
/// # Errors
/// [`ListenError`], which names the address and what stands against it.
pub fn bind(address: &str, is_encrypted: bool, allow_plaintext: bool) -> Result<TcpListener, ListenError> {
    let unresolved = |source| ListenError::Address { address: address.to_owned(), source };
    let mut resolved = address.to_socket_addrs().map_err(unresolved)?;
    let none = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let resolved = resolved.next().ok_or_else(|| unresolved(none()))?;
    let is_exposed = !is_encrypted && !resolved.ip().to_canonical().is_loopback();
    if is_exposed && !allow_plaintext {
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
