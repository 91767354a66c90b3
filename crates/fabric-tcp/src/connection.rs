//! A client's way to its server: connecting, with errors that name peer, step and remedy.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch};
use farsight_fabric::{Connection, FabricError};

use crate::control::{ClientMessage, FABRIC_VERSION, MAGIC, Purpose, ServerMessage};
use crate::link::{ANSWER_TIMEOUT, Link, Welcome, await_packet};
use crate::net::{self, Waiting};
use crate::packets::{Next, Packets};
use crate::queue::TcpQueue;
use crate::stream::Stream;
use crate::tls::Tls;

const HANDSHAKE: &str = "the handshake";

/// How a client connects.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Version of the bytes in regions and calls, which both sides must share.
    pub format_version: u32,
    /// With it, the server must have a certificate for the name or address connected to, this client shows
    /// its own, and everything is encrypted.
    pub tls: Option<Tls>,
    /// Connects in the clear beyond this machine: whoever is on the way can read and change everything.
    pub allow_plaintext: bool,
    /// How sessions wait for the server.
    pub waiting: Waiting,
}

impl ConnectOptions {
    /// In the clear, to this machine alone.
    #[must_use]
    pub fn new(format_version: u32) -> Self {
        Self { format_version, tls: None, allow_plaintext: false, waiting: Waiting::default() }
    }
}

/// A connection to a server.
///
/// Dropping it disconnects every queue pair that was opened from it. It belongs to the process that made it:
/// in a forked child everything but dropping fails with [`FabricError::Forked`].
#[derive(Debug)]
pub struct TcpConnection {
    /// As the user gave it.
    address: String,
    /// Where the server was found: its queue pairs are there, too.
    server: SocketAddr,
    options: ConnectOptions,
    link: Arc<Link>,
}

impl TcpConnection {
    /// Connects to the server at `address`, as in `127.0.0.1:7474` or `[::1]:7474`.
    ///
    /// # Errors
    /// [`FabricError::System`] if nobody can be reached there, [`FabricError::Refused`] if the server refused
    /// this client (another format version) or the way there is in the clear, [`FabricError::TimedOut`] after
    /// 5 s.
    pub fn connect(address: &str, options: ConnectOptions) -> Result<Self, FabricError> {
        Self::connect_within(address, options, ANSWER_TIMEOUT)
    }

    fn connect_within(
        address: &str,
        options: ConnectOptions,
        timeout: Duration,
    ) -> Result<Self, FabricError> {
        let approach = Approach { peer: address, options: &options, started: Instant::now(), timeout };
        let mut failure = None;
        for server in approach.resolve()? {
            match approach.greet(server, Purpose::Client) {
                Ok((packets, ServerMessage::Welcome { epoch, client, key })) => {
                    let welcome = Welcome { epoch: Epoch(epoch), client, key };
                    let link = Arc::new(Link::new(address.to_owned(), packets, welcome));
                    return Ok(Self { address: address.to_owned(), server, options, link });
                }
                Ok((_, other)) => return Err(approach.protocol(format!("{other:?}"))),
                // A name may have an address at which nobody listens, and another.
                Err(error @ FabricError::System { .. }) => failure = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(failure.unwrap_or_else(|| approach.unresolved(&io::ErrorKind::NotFound.into())))
    }

    /// This client as the server counts it.
    #[must_use]
    pub fn client(&self) -> ClientId {
        ClientId(self.link.welcome().client)
    }
}

impl Connection for TcpConnection {
    type Queue = TcpQueue;

    fn peer(&self) -> &str {
        self.link.peer()
    }

    fn epoch(&self) -> Epoch {
        self.link.welcome().epoch
    }

    fn open_queue(&self) -> Result<TcpQueue, FabricError> {
        self.link.look()?;
        let Welcome { client, key, .. } = *self.link.welcome();
        let (peer, options) = (&self.address, &self.options);
        let approach = Approach { peer, options, started: Instant::now(), timeout: ANSWER_TIMEOUT };
        let opened =
            approach.greet(self.server, Purpose::Queue { client, key }).and_then(|opened| match opened {
                (packets, ServerMessage::Ready) => {
                    let early = || approach.protocol("bytes before any were asked for".to_owned());
                    packets.into_stream().ok_or_else(early)
                }
                (_, other) => Err(approach.protocol(format!("{other:?}"))),
            });
        match opened {
            Ok(stream) => Ok(TcpQueue::new(Arc::clone(&self.link), stream, self.options.waiting)),
            Err(error) => {
                // A server that is gone, or wants nothing more of this client, says so by ending the link.
                self.link.await_farewell();
                self.link.check()?;
                Err(error)
            }
        }
    }

    fn check(&self) -> Result<(), FabricError> {
        self.link.look()
    }

    fn reconnect(&self, timeout: Duration) -> Result<Self, FabricError> {
        if self.link.is_forked() {
            return Err(FabricError::Forked);
        }
        Self::connect_within(&self.address, self.options.clone(), timeout.min(ANSWER_TIMEOUT))
    }
}

impl Drop for TcpConnection {
    fn drop(&mut self) {
        // The sockets of a forked child are its parent's, who goes on with them.
        if !self.link.is_forked() {
            self.link.end(self.link.disconnected("this process closed the connection"));
        }
    }
}

/// One attempt to reach a server.
struct Approach<'a> {
    peer: &'a str,
    options: &'a ConnectOptions,
    started: Instant,
    timeout: Duration,
}

impl Approach<'_> {
    fn left(&self) -> Duration {
        self.timeout.saturating_sub(self.started.elapsed())
    }

    fn timed_out(&self, what: &'static str) -> FabricError {
        FabricError::TimedOut { peer: self.peer.to_owned(), what, waited: self.started.elapsed() }
    }

    fn protocol(&self, got: String) -> FabricError {
        let expected = "an answer to a hello".to_owned();
        FabricError::Protocol { peer: self.peer.to_owned(), what: HANDSHAKE, expected, got }
    }

    fn unresolved(&self, error: &io::Error) -> FabricError {
        let remedy = "Write HOST:PORT, as in 127.0.0.1:7474, with a name that this machine can resolve";
        net::system_error(format!("looking up {}", self.peer), error, remedy)
    }

    fn resolve(&self) -> Result<Vec<SocketAddr>, FabricError> {
        let found = self.peer.to_socket_addrs().map_err(|error| self.unresolved(&error))?;
        let found: Vec<SocketAddr> = found.collect();
        let outside = found.iter().find(|address| !address.ip().to_canonical().is_loopback());
        match outside {
            Some(address) if self.options.tls.is_none() && !self.options.allow_plaintext => {
                Err(FabricError::Refused {
                    peer: self.peer.to_owned(),
                    reason: format!(
                        "{address} is another machine, and no certificate is given: {}. Nothing was sent",
                        crate::PLAINTEXT_REMEDY
                    ),
                })
            }
            _ => Ok(found),
        }
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

    /// Connects and says hello. Returns the connection and the server's answer, which is no refusal.
    fn greet(&self, server: SocketAddr, purpose: Purpose) -> Result<(Packets, ServerMessage), FabricError> {
        let (peer, format_version) = (self.peer, self.options.format_version);
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => self.timed_out("a connection"),
            io::ErrorKind::ConnectionRefused => {
                let remedy = format!(
                    "Nobody listens there: is the server running? Start it with: farsight serve --listen tcp://{peer}"
                );
                net::system_error(format!("connecting to {peer} ({server})"), &error, &remedy)
            }
            _ => {
                let remedy = "Check the address, the network between, and firewalls";
                net::system_error(format!("connecting to {peer} ({server})"), &error, remedy)
            }
        };
        let left = self.left();
        if left.is_zero() {
            return Err(self.timed_out("a connection"));
        }
        let socket = TcpStream::connect_timeout(&server, left).and_then(net::prepare).map_err(failed)?;
        let session = self.options.tls.as_ref().map(|tls| tls.connect(host(peer))).transpose();
        let session = session.map_err(|error| {
            net::system_error(format!("TLS with {peer}"), &error, "Connect to a name or address")
        })?;
        let mut packets = Packets::new(Stream::new(socket, session));
        let hello =
            ClientMessage::Hello { magic: MAGIC, fabric_version: FABRIC_VERSION, format_version, purpose };
        // A server that refuses at once may have closed already, with its reason waiting to be read.
        let sent = packets.send(&hello.encode());
        let lost = |reason: String| FabricError::Disconnected {
            peer: peer.to_owned(),
            reason: format!("{reason}, during {HANDSHAKE}"),
        };
        let packet = match await_packet(&mut packets, self.started + self.timeout) {
            Ok(Next::Packet(packet)) => packet,
            Ok(Next::Nothing) => return Err(self.timed_out(HANDSHAKE)),
            Ok(Next::Unintelligible(error)) => return Err(self.protocol(error.to_string())),
            Ok(Next::End) => {
                let reason = sent.err().map_or("the server closed it".to_owned(), |error| error.to_string());
                return Err(lost(reason));
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(self.distrusted(&error)),
            Err(error) => return Err(lost(error.to_string())),
        };
        match ServerMessage::decode(&packet) {
            Ok(ServerMessage::Refusal { text } | ServerMessage::Dismissal { text }) => {
                Err(FabricError::Refused { peer: peer.to_owned(), reason: text })
            }
            Ok(ServerMessage::Goodbye { text }) => {
                Err(FabricError::Disconnected { peer: peer.to_owned(), reason: text })
            }
            Ok(message) => Ok((packets, message)),
            Err(error) => Err(self.protocol(error.to_string())),
        }
    }
}

/// The name or address in `HOST:PORT`.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}
