//! A client process's connection: connecting, with errors that name address, step and remedy, and the
//! watcher.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch};
use farsight_fabric::{Connection, FabricError};
use farsight_fabric_host::os;
use farsight_fabric_net::packets::Packets;
use farsight_fabric_net::{Connector, Tls, Waiting};

use super::link::{ANSWER_TIMEOUT, Link, Welcome};
use super::queue::VerbsQueue;
use crate::CONTROL_ALIVE;
use crate::control::{FABRIC_VERSION, FromClient, FromServer, MAGIC};
use crate::ibv::device::Device;
use crate::ibv::memory::ProtectionDomain;

/// How a client connects.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Version of the bytes in regions and calls, which both sides must share.
    pub format_version: u32,
    /// The RDMA device to use; by default the one with the address of the control connection.
    pub device: Option<String>,
    /// With it, the server must have a certificate for the name or address connected to, this client shows
    /// its own, and keys are told in secret. What the cards then send is in the clear all the same.
    pub tls: Option<Tls>,
    /// Connects to other machines without certificates: anyone on the way learns the keys, or plays the
    /// server.
    pub allow_plaintext: bool,
    /// How sessions wait for completions.
    pub waiting: Waiting,
}

impl ConnectOptions {
    /// The device that fits, to this machine alone.
    #[must_use]
    pub fn new(format_version: u32) -> Self {
        Self { format_version, device: None, tls: None, allow_plaintext: false, waiting: Waiting::default() }
    }
}

/// A connection to a server by RDMA.
///
/// Dropping it ends every queue that was opened from it. It belongs to the process that made it: in a forked
/// child doorbells and new queues fail with [`FabricError::Forked`].
#[derive(Debug)]
pub struct VerbsConnection {
    address: String,
    options: ConnectOptions,
    link: Arc<Link>,
    watcher: Option<JoinHandle<()>>,
}

impl VerbsConnection {
    /// Connects to the server whose control connection listens at `address`, `host:port`.
    ///
    /// # Errors
    /// [`FabricError::System`] if nobody can be reached there or there is no device,
    /// [`FabricError::Refused`] if the server refused this client, [`FabricError::TimedOut`] after 5 s.
    pub fn connect(address: &str, options: ConnectOptions) -> Result<Self, FabricError> {
        Self::connect_within(address, options, ANSWER_TIMEOUT)
    }

    fn connect_within(
        address: &str,
        options: ConnectOptions,
        timeout: Duration,
    ) -> Result<Self, FabricError> {
        let connector = Connector {
            peer: address,
            scheme: "rdma",
            tls: options.tls.as_ref(),
            allow_plaintext: options.allow_plaintext,
            alive: &CONTROL_ALIVE,
            started: Instant::now(),
            timeout,
        };
        let connecting = os::during(format!("connecting to {address}"));
        let (domain, packets, welcome) = connector.at_any_address(|server| {
            let socket = connector.connect(server)?;
            // Before anything is said: a server need not hear of a client that has no device.
            let own = own_address(&socket, server)?;
            let device = Device::choose(options.device.as_deref(), own).map_err(&connecting)?;
            let domain = ProtectionDomain::new(device).map_err(&connecting)?;
            let (packets, welcome) = greet(&connector, socket, options.format_version)?;
            Ok((domain, packets, welcome))
        })?;
        let (sender, answers) = mpsc::channel();
        let link = Arc::new(Link::new(address.to_owned(), packets, welcome, domain, answers));
        let thread_link = Arc::clone(&link);
        let watcher = std::thread::Builder::new()
            .name("farsight-watch".to_owned())
            .spawn(move || thread_link.watch(&sender))
            .map_err(|error| {
                os::system_error(format!("connecting to {address}"), &error, "Are threads left (ulimit -u)?")
            })?;
        Ok(Self { address: address.to_owned(), options, link, watcher: Some(watcher) })
    }

    /// This client as the server counts it.
    #[must_use]
    pub fn client(&self) -> ClientId {
        ClientId(self.link.welcome().client)
    }

    /// The RDMA device in use.
    #[must_use]
    pub fn device(&self) -> &str {
        &self.link.domain.device.name
    }
}

impl Connection for VerbsConnection {
    type Queue = VerbsQueue;

    fn peer(&self) -> &str {
        self.link.peer()
    }

    fn epoch(&self) -> Epoch {
        self.link.welcome().epoch
    }

    fn open_queue(&self) -> Result<VerbsQueue, FabricError> {
        self.check()?;
        let opening = os::during(format!("opening a queue to {}", self.address));
        VerbsQueue::open(&self.link, self.options.waiting).map_err(opening)
    }

    fn check(&self) -> Result<(), FabricError> {
        self.link.check_owner()?;
        self.link.check()
    }

    fn reconnect(&self, timeout: Duration) -> Result<Self, FabricError> {
        self.link.check_owner()?;
        Self::connect_within(&self.address, self.options.clone(), timeout.min(ANSWER_TIMEOUT))
    }

    fn connect_beside(&self, url: &str, timeout: Duration) -> Result<Option<Self>, FabricError> {
        self.link.check_owner()?;
        let Some(address) = url.strip_prefix("rdma://") else { return Ok(None) };
        Self::connect_within(address, self.options.clone(), timeout.min(ANSWER_TIMEOUT)).map(Some)
    }

    fn has_urls(&self) -> bool {
        true
    }
}

impl Drop for VerbsConnection {
    fn drop(&mut self) {
        let Some(watcher) = self.watcher.take() else { return };
        if self.link.check_owner().is_err() {
            // The thread is the parent's, and so is the connection: a join would wait for ever.
            std::mem::forget(watcher);
            return;
        }
        self.link.end("this process closed the connection");
        // A watcher that panicked has nothing left to say.
        let _ = watcher.join();
    }
}

/// This side's address on the way to `server`.
fn own_address(socket: &OwnedFd, server: SocketAddr) -> Result<IpAddr, FabricError> {
    let failed = |error: io::Error| os::system_error(format!("connecting to {server}"), &error, "A bug");
    let address = rustix::net::getsockname(socket).map_err(|error| failed(error.into()))?;
    let address = SocketAddr::try_from(address).map_err(|error| failed(error.into()))?;
    Ok(address.ip())
}

/// The handshake.
fn greet(
    connector: &Connector<'_>,
    socket: OwnedFd,
    format_version: u32,
) -> Result<(Packets, Welcome), FabricError> {
    let hello = FromClient::Hello { magic: MAGIC, fabric_version: FABRIC_VERSION, format_version };
    let (packets, answer) = connector.greet(socket, &hello.encode())?;
    let peer = connector.peer.to_owned();
    match FromServer::decode(&answer) {
        Ok(FromServer::Welcome { epoch, client }) => Ok((packets, Welcome { epoch: Epoch(epoch), client })),
        Ok(FromServer::Refusal { text } | FromServer::Dismissal { text }) => {
            Err(FabricError::Refused { peer, reason: text })
        }
        Ok(FromServer::Goodbye { text }) => Err(FabricError::Disconnected { peer, reason: text }),
        Ok(other) => Err(connector.protocol(format!("{other:?}"))),
        Err(error) => Err(connector.protocol(error.to_string())),
    }
}
