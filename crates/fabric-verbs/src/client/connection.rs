//! A client process's connection: connecting, with errors that name address, step and remedy, and the
//! watcher.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch};
use farsight_fabric::{Connection, FabricError};

use super::link::{ANSWER_TIMEOUT, Link, Welcome, read_frame};
use super::queue::VerbsQueue;
use crate::control::{FABRIC_VERSION, FromClient, FromServer, MAGIC};
use crate::ibv::device::Device;
use crate::ibv::memory::ProtectionDomain;
use crate::os;

/// How a client connects.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Version of the bytes in regions and calls, which both sides must share.
    pub format_version: u32,
    /// The RDMA device to use; by default the one with the address of the control connection.
    pub device: Option<String>,
}

impl ConnectOptions {
    /// The device that fits.
    #[must_use]
    pub fn new(format_version: u32) -> Self {
        Self { format_version, device: None }
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
        let started = Instant::now();
        let stream = reach(address, timeout)?;
        let failed =
            |error: io::Error| os::system_error(format!("connecting to {address}"), &error, "ulimit -n?");
        os::settle_control_socket(&stream).map_err(failed)?;
        let own_address = stream.local_addr().map_err(failed)?.ip();
        let domain = ProtectionDomain::new(Device::choose(options.device.as_deref(), own_address)?)?;
        let left = timeout.saturating_sub(started.elapsed()).max(Duration::from_millis(1));
        stream.set_write_timeout(Some(left)).map_err(failed)?;
        stream.set_read_timeout(Some(left)).map_err(failed)?;
        let welcome = greet(&stream, address, options.format_version, started)?;
        stream.set_read_timeout(None).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT)).map_err(failed)?;
        let (sender, answers) = mpsc::channel();
        let link = Arc::new(Link::new(address.to_owned(), stream, welcome, domain, answers));
        let thread_link = Arc::clone(&link);
        let watcher = std::thread::Builder::new()
            .name("farsight-watch".to_owned())
            .spawn(move || thread_link.watch(&sender))
            .map_err(failed)?;
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
        VerbsQueue::open(&self.link)
    }

    fn check(&self) -> Result<(), FabricError> {
        self.link.check_owner()?;
        self.link.check()
    }

    fn reconnect(&self, timeout: Duration) -> Result<Self, FabricError> {
        self.link.check_owner()?;
        Self::connect_within(&self.address, self.options.clone(), timeout.min(ANSWER_TIMEOUT))
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

/// A connected socket.
fn reach(address: &str, timeout: Duration) -> Result<TcpStream, FabricError> {
    let failed =
        |error: &io::Error, remedy: &str| os::system_error(format!("connecting to {address}"), error, remedy);
    let found: Vec<SocketAddr> =
        address.to_socket_addrs().map_err(|error| failed(&error, "The address is host:port"))?.collect();
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in found {
        match TcpStream::connect_timeout(&address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    let remedy = match last.kind() {
        io::ErrorKind::ConnectionRefused => {
            "Nobody listens there: is the server running, with an rdma:// address?"
        }
        io::ErrorKind::TimedOut => "No answer: is the machine up, and does a firewall drop the port?",
        _ => "Check the address",
    };
    Err(failed(&last, remedy))
}

/// The handshake.
fn greet(
    mut stream: &TcpStream,
    peer: &str,
    format_version: u32,
    started: Instant,
) -> Result<Welcome, FabricError> {
    const WHAT: &str = "the handshake";
    let hello = FromClient::Hello { magic: MAGIC, fabric_version: FABRIC_VERSION, format_version };
    // A server that refuses at once may have closed already, with its reason waiting to be read.
    let sent = stream.write_all(&hello.encode());
    let disconnected = |reason: String| FabricError::Disconnected { peer: peer.to_owned(), reason };
    let protocol = |got: String| FabricError::Protocol {
        peer: peer.to_owned(),
        what: WHAT,
        expected: "a welcome or a refusal".to_owned(),
        got,
    };
    match read_frame(stream) {
        Ok(Some(FromServer::Welcome { epoch, client })) => Ok(Welcome { epoch: Epoch(epoch), client }),
        Ok(Some(FromServer::Refusal { text } | FromServer::Dismissal { text })) => {
            Err(FabricError::Refused { peer: peer.to_owned(), reason: text })
        }
        Ok(Some(FromServer::Goodbye { text })) => Err(disconnected(text)),
        Ok(Some(other)) => Err(protocol(format!("{other:?}"))),
        Ok(None) => Err(disconnected("the server closed it during the handshake".to_owned())),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Err(FabricError::TimedOut { peer: peer.to_owned(), what: WHAT, waited: started.elapsed() })
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(protocol(error.to_string())),
        Err(error) => {
            let error = sent.err().unwrap_or(error);
            Err(disconnected(format!("{error}, during the handshake")))
        }
    }
}
