//! What fabrics that meet over TCP share: admission, streams in the clear or through TLS, and packets on
//! them. Also the part of connecting and listening that is the same for all.
//!
//! Invariant: clear text leaves this machine, or is taken in from another, only where that was allowed by
//! name. Nothing that a peer sends, or fails to send, makes this side wait without a bound or hold memory
//! without a bound.
//!
//! Protocol:
//! 1. A server's [`Admission`] listens, and takes connections in up to their hello.
//! 2. A client makes a [`Connector`], which connects and sends its hello as the first [packet](packets) of a
//!    [`Stream`].
//! 3. The server compares the hello's magic and versions with its
//!    [`Handshake`](farsight_fabric_host::Handshake). What else packets hold is the fabric's matter.

#![forbid(unsafe_code)]

mod admission;
mod connector;
mod keep_alive;
mod listen;
pub mod packets;
mod secure;
mod stream;
mod tls;
mod waiting;

pub use admission::{Admission, AdmissionOptions, Newcomer};
pub use connector::Connector;
pub use keep_alive::KeepAlive;
pub use listen::ListenError;
pub use secure::Session;
pub use stream::{Received, Stream};
pub use tls::{Tls, TlsError};
pub use waiting::Waiting;

// Numbers go over the wire as they lie in memory.
const _: () = assert!(cfg!(target_endian = "little"), "these fabrics' bytes are little-endian");

/// What helps who may not speak in the clear, in programs and on command lines.
const PLAINTEXT_REMEDY: &str = "give certificates (`tls`; on a command line --tls-certificate, --tls-key and \
     --tls-authorities), or allow clear text (`allow_plaintext`; --allow-plaintext) if the network is trusted";
