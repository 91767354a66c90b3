//! A client's way to its server: connecting, with errors that name peer, step and remedy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch};
use farsight_fabric::{Connection, FabricError};
use farsight_fabric_net::packets::Packets;
use farsight_fabric_net::{Connector, Tls, Waiting};

use crate::alive::ALIVE;
use crate::control::{ClientMessage, FABRIC_VERSION, MAGIC, Purpose, ServerMessage};
use crate::link::{ANSWER_TIMEOUT, Link, Welcome};
use crate::queue::TcpQueue;

/// How a client connects.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Version of the bytes in regions and calls, which both sides must share.
    pub format_version: u32,
    /// With it, the server must have a certificate for the name or address connected to, this client shows
    /// its own, and everything is encrypted.
    pub tls: Option<Tls>,
    /// Connects in the clear beyond this machine: anyone on the way can read and change everything.
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
        let connector = connector(address, &options, timeout);
        let (server, packets, answer) = connector.at_any_address(|server| {
            let greeted = greet(&connector, server, options.format_version, Purpose::Client);
            greeted.map(|(packets, answer)| (server, packets, answer))
        })?;
        let ServerMessage::Welcome { epoch, client, key } = answer else {
            return Err(connector.protocol(format!("{answer:?}")));
        };
        let welcome = Welcome { epoch: Epoch(epoch), client, key };
        let link = Arc::new(Link::new(address.to_owned(), packets, welcome));
        Ok(Self { address: address.to_owned(), server, options, link })
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
        let connector = connector(&self.address, &self.options, ANSWER_TIMEOUT);
        let purpose = Purpose::Queue { client, key };
        let opened =
            greet(&connector, self.server, self.options.format_version, purpose).and_then(|opened| {
                match opened {
                    (packets, ServerMessage::Ready) => {
                        let early = || connector.protocol("bytes before any were requested".to_owned());
                        packets.into_stream().ok_or_else(early)
                    }
                    (_, other) => Err(connector.protocol(format!("{other:?}"))),
                }
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

    fn connect_beside(&self, url: &str, timeout: Duration) -> Result<Option<Self>, FabricError> {
        if self.link.is_forked() {
            return Err(FabricError::Forked);
        }
        let Some(address) = url.strip_prefix("tcp://") else { return Ok(None) };
        Self::connect_within(address, self.options.clone(), timeout.min(ANSWER_TIMEOUT)).map(Some)
    }

    fn has_urls(&self) -> bool {
        true
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

/// A way to the server that begins now.
fn connector<'a>(peer: &'a str, options: &'a ConnectOptions, timeout: Duration) -> Connector<'a> {
    Connector {
        peer,
        scheme: "tcp",
        tls: options.tls.as_ref(),
        allow_plaintext: options.allow_plaintext,
        alive: &ALIVE,
        started: Instant::now(),
        timeout,
    }
}

/// Connects and says hello. Returns the connection and the server's answer, which is no refusal.
fn greet(
    connector: &Connector<'_>,
    server: SocketAddr,
    format_version: u32,
    purpose: Purpose,
) -> Result<(Packets, ServerMessage), FabricError> {
    let hello =
        ClientMessage::Hello { magic: MAGIC, fabric_version: FABRIC_VERSION, format_version, purpose };
    let (packets, answer) = connector.greet(connector.connect(server)?, &hello.encode())?;
    let peer = connector.peer.to_owned();
    match ServerMessage::decode(&answer) {
        Ok(ServerMessage::Refusal { text } | ServerMessage::Dismissal { text }) => {
            Err(FabricError::Refused { peer, reason: text })
        }
        Ok(ServerMessage::Goodbye { text }) => Err(FabricError::Disconnected { peer, reason: text }),
        Ok(message) => Ok((packets, message)),
        Err(error) => Err(connector.protocol(error.to_string())),
    }
}
