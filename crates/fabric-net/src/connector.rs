//! A client's way to a server: looking it up, connecting, saying hello, with errors that name peer, step and
//! remedy.
//!
//! Invariant: nothing is said in the clear to another machine unless that was allowed.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use farsight_fabric::FabricError;
use farsight_fabric_host::os;

use crate::keep_alive::{KeepAlive, prepare};
use crate::packets::{Next, Packets};
use crate::stream::Stream;
use crate::tls::Tls;

const HANDSHAKE: &str = "the handshake";

/// One attempt to reach a server.
#[derive(Clone, Copy, Debug)]
pub struct Connector<'a> {
    /// `HOST:PORT`, as the user gave it.
    pub peer: &'a str,
    /// The URL's scheme, for remedies.
    pub scheme: &'static str,
    /// Certificates; without them everything is in the clear.
    pub tls: Option<&'a Tls>,
    /// Goes to other machines in the clear.
    pub allow_plaintext: bool,
    /// When a silent server counts as dead.
    pub alive: &'a KeepAlive,
    /// When the attempt began.
    pub started: Instant,
    /// How long it may take in all.
    pub timeout: Duration,
}

impl Connector<'_> {
    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed())
    }

    fn timed_out(&self, what: &'static str) -> FabricError {
        FabricError::TimedOut { peer: self.peer.to_owned(), what, waited: self.started.elapsed() }
    }

    /// The error of a server that answers a hello with something else.
    #[must_use]
    pub fn protocol(&self, got: String) -> FabricError {
        let expected = "an answer to a hello".to_owned();
        FabricError::Protocol { peer: self.peer.to_owned(), what: HANDSHAKE, expected, got }
    }

    /// The error of a name that leads nowhere.
    #[must_use]
    pub fn unresolved(&self, error: &io::Error) -> FabricError {
        let remedy = "Write HOST:PORT, as in 127.0.0.1:7474, with a name that this machine can resolve";
        os::system_error(format!("looking up {}", self.peer), error, remedy)
    }

    /// The server's addresses.
    ///
    /// # Errors
    /// A name that leads nowhere, or to another machine although nothing is encrypted.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, FabricError> {
        let found = self.peer.to_socket_addrs().map_err(|error| self.unresolved(&error))?;
        let found: Vec<SocketAddr> = found.collect();
        let outside = found.iter().find(|address| !address.ip().to_canonical().is_loopback());
        match outside {
            Some(address) if self.tls.is_none() && !self.allow_plaintext => Err(FabricError::Refused {
                peer: self.peer.to_owned(),
                reason: format!(
                    "{address} is another machine, and no certificate is given: {}. Nothing was sent",
                    crate::PLAINTEXT_REMEDY
                ),
            }),
            _ => Ok(found),
        }
    }

    /// Tries the server's addresses with `attempt` until one answers, or refuses: a name may have an address
    /// at which nobody listens, and another.
    ///
    /// # Errors
    /// As [`Connector::resolve`], and as the last attempt.
    pub fn at_any_address<T>(
        &self,
        mut attempt: impl FnMut(SocketAddr) -> Result<T, FabricError>,
    ) -> Result<T, FabricError> {
        let mut failure = None;
        for server in self.resolve()? {
            match attempt(server) {
                Err(error @ FabricError::System { .. }) => failure = Some(error),
                outcome => return outcome,
            }
        }
        Err(failure.unwrap_or_else(|| self.unresolved(&io::ErrorKind::NotFound.into())))
    }

    /// What TLS has against the peer, or the peer against this client.
    fn distrusted(&self, error: &io::Error) -> FabricError {
        let fault = error.get_ref().and_then(|source| source.downcast_ref::<rustls::Error>());
        let remedy = match fault {
            Some(rustls::Error::AlertReceived(_)) => {
                "the server refuses this client's certificate: is it signed by an authority that the server was \
                 given, and valid now?"
            }
            Some(rustls::Error::InvalidCertificate(_)) => {
                "is the server's certificate signed by an authority that this client was given, for the name in its \
                 address, and valid now?"
            }
            _ => "does the server speak TLS? Give or omit certificates on both sides",
        };
        FabricError::Refused { peer: self.peer.to_owned(), reason: format!("TLS: {error}; {remedy}") }
    }

    /// A connected socket.
    ///
    /// # Errors
    /// Why there is none, with a remedy.
    pub fn connect(&self, server: SocketAddr) -> Result<OwnedFd, FabricError> {
        let peer = self.peer;
        let failed = |error: io::Error| {
            let refused = || {
                let scheme = self.scheme;
                format!(
                    "Nobody listens there: is the server running? Start it with: \
                     farsight serve --listen {scheme}://{peer}"
                )
            };
            let remedy = match error.kind() {
                io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => return self.timed_out("a connection"),
                io::ErrorKind::ConnectionRefused => refused(),
                _ => "Check the address, the network between, and firewalls".to_owned(),
            };
            os::system_error(format!("connecting to {peer} ({server})"), &error, &remedy)
        };
        let left = self.left();
        if left.is_zero() {
            return Err(self.timed_out("a connection"));
        }
        let socket = TcpStream::connect_timeout(&server, left).map_err(failed)?;
        prepare(socket, self.alive).map_err(failed)
    }

    /// Says hello on a connected socket. Returns the connection and the server's first packet.
    ///
    /// # Errors
    /// A server that does not answer in time, or hangs up; a certificate that is not believed.
    pub fn greet(&self, socket: OwnedFd, hello: &[u8]) -> Result<(Packets, Vec<u8>), FabricError> {
        let peer = self.peer;
        let session = self.tls.map(|tls| tls.connect(host(peer))).transpose();
        let session = session.map_err(|error| {
            os::system_error(format!("TLS with {peer}"), &error, "Connect to a name or address")
        })?;
        let mut packets = Packets::new(Stream::new(socket, session));
        // A server that refuses at once may have closed already, with its reason waiting to be read.
        let sent = packets.send(hello);
        let lost = |reason: String| FabricError::Disconnected {
            peer: peer.to_owned(),
            reason: format!(
                "{reason}, during {HANDSHAKE} (is it a farsight server, and does it listen for {}:// there?)",
                self.scheme
            ),
        };
        match packets.await_next(self.started + self.timeout) {
            Ok(Next::Packet(packet)) => Ok((packets, packet)),
            Ok(Next::Nothing) => Err(self.timed_out(HANDSHAKE)),
            Ok(Next::Unintelligible(error)) => Err(self.protocol(error.to_string())),
            Ok(Next::End) => {
                let reason = sent.err().map_or("the server closed it".to_owned(), |error| error.to_string());
                Err(lost(reason))
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(self.distrusted(&error)),
            Err(error) => Err(lost(error.to_string())),
        }
    }
}

/// The name or address in `HOST:PORT`.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}
