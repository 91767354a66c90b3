//! A client process's connection: connecting, with errors that name path, step and remedy, and the watcher.
//!
//! Invariant: a connection has one watcher thread, blocked on the control socket; it ends with the
//! connection. Nothing is sent to a server before the kernel has named its user and that user is trusted.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use farsight_base::{ClientId, Epoch, serving};
use farsight_fabric::{Connection, FabricError};
use rustix::io::Errno;

use crate::control::{FABRIC_VERSION, FromClient, FromServer, MAGIC};
use crate::link::{ANSWER_TIMEOUT, Link, Welcome};
use crate::queue::ShmQueue;
use crate::{os, ring, socket};

/// The uid of root.
const ROOT: u32 = 0;

/// How a client connects.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// Version of the bytes in regions and calls, which both sides must share.
    pub format_version: u32,
    /// Users whose servers are trusted besides those of this process's own user and of root.
    pub server_uids: Vec<u32>,
}

impl ConnectOptions {
    /// Trusts the servers of this process's user and of root alone.
    #[must_use]
    pub fn new(format_version: u32) -> Self {
        Self { format_version, server_uids: Vec::new() }
    }
}

/// A connection to a server on this host.
///
/// Dropping it disconnects every queue pair that was opened from it. It belongs to the process that made it:
/// in a forked child everything but dropping fails with [`FabricError::Forked`].
#[derive(Debug)]
pub struct ShmConnection {
    path: PathBuf,
    options: ConnectOptions,
    link: Arc<Link>,
    watcher: Option<JoinHandle<()>>,
}

impl ShmConnection {
    /// Connects to the server that listens at `path`.
    ///
    /// # Errors
    /// [`FabricError::System`] if nobody can be reached there. [`FabricError::UntrustedServer`] if the server
    /// is of a user that is not trusted. [`FabricError::Refused`] if the server refused this client (another
    /// format version, another user). [`FabricError::TimedOut`] after 5 s.
    pub fn connect(path: impl AsRef<Path>, options: ConnectOptions) -> Result<Self, FabricError> {
        Self::connect_within(path.as_ref(), options, ANSWER_TIMEOUT)
    }

    fn connect_within(path: &Path, options: ConnectOptions, timeout: Duration) -> Result<Self, FabricError> {
        let peer = path.display().to_string();
        let started = Instant::now();
        let socket = reach(path, started + timeout)?;
        check_user(&socket, &peer, &options.server_uids)?;
        let (welcome, news) = greet(&socket, &peer, options.format_version, started, timeout)?;
        let failed = |error: std::io::Error| {
            os::system_error(format!("connecting to {peer}"), &error, &os::descriptors_remedy())
        };
        let link = Arc::new(Link::new(peer.clone(), socket, news, welcome).map_err(failed)?);
        let thread_link = Arc::clone(&link);
        let watcher = std::thread::Builder::new()
            .name("farsight-watch".to_owned())
            .spawn(move || thread_link.watch())
            .map_err(failed)?;
        Ok(Self { path: path.to_owned(), options, link, watcher: Some(watcher) })
    }

    /// This client as the server counts it.
    #[must_use]
    pub fn client(&self) -> ClientId {
        ClientId(self.link.welcome().client)
    }

    /// The server's process, as the server named it.
    #[must_use]
    pub fn server_pid(&self) -> u32 {
        self.link.welcome().server_pid
    }

    /// Asks for huge pages under every populated piece of the attached regions, in this process's own mapping
    /// of them. What the server has grown them by is mapped first. Returns the bytes that lie on huge pages
    /// afterwards. Costs up to milliseconds a 2 MiB piece that the server has not collapsed before.
    #[expect(clippy::must_use_candidate, reason = "called for what it does")]
    pub fn collapse_to_huge_pages(&self) -> u64 {
        let attachments = self.link.attachments();
        let collapse = |region| {
            // A region that does not grow now is collapsed as far as it is mapped.
            let _ = self.link.grow(region);
            attachments.collapse_to_huge_pages(region, |attached, collapse| {
                // Without an answer the link has ended.
                let _ = self.link.unguarded(region, attached, collapse);
            })
        };
        attachments.regions().into_iter().map(collapse).sum()
    }

    /// Bytes of the attached regions that this process maps by huge pages now.
    #[must_use]
    pub fn huge_page_bytes(&self) -> u64 {
        self.link.attachments().huge_page_bytes()
    }
}

impl Connection for ShmConnection {
    type Queue = ShmQueue;

    fn peer(&self) -> &str {
        self.link.peer()
    }

    fn epoch(&self) -> Epoch {
        self.link.welcome().epoch
    }

    fn open_queue(&self) -> Result<ShmQueue, FabricError> {
        const WHAT: &str = "opening a queue";
        let remedy = "Are descriptors left on both sides (ulimit -n)?";
        let (answer, descriptors) = self.link.ask(FromClient::OpenQueue, WHAT)?;
        match answer {
            FromServer::QueueOpened { file_bytes } if file_bytes == ring::FILE_BYTES as u64 => {}
            FromServer::Failed { text } => {
                return Err(os::system_error(WHAT.to_owned(), &std::io::Error::other(text), remedy));
            }
            other => return Err(self.link.unintelligible(WHAT, format!("{other:?}"))),
        }
        let Ok([file, wakes]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(self.link.unintelligible(WHAT, "not two descriptors".to_owned()));
        };
        ShmQueue::new(Arc::clone(&self.link), file.as_fd(), wakes)
            .map_err(|error| os::system_error(WHAT.to_owned(), &error, remedy))
    }

    fn check(&self) -> Result<(), FabricError> {
        self.link.check()
    }

    fn reconnect(&self, timeout: Duration) -> Result<Self, FabricError> {
        if self.link.is_forked() {
            return Err(FabricError::Forked);
        }
        Self::connect_within(&self.path, self.options.clone(), timeout.min(ANSWER_TIMEOUT))
    }

    fn connect_beside(&self, url: &str, timeout: Duration) -> Result<Option<Self>, FabricError> {
        if self.link.is_forked() {
            return Err(FabricError::Forked);
        }
        let Some(path) = url.strip_prefix("shm://") else { return Ok(None) };
        Self::connect_within(Path::new(path), self.options.clone(), timeout.min(ANSWER_TIMEOUT)).map(Some)
    }

    fn has_urls(&self) -> bool {
        true
    }
}

impl Drop for ShmConnection {
    fn drop(&mut self) {
        let Some(watcher) = self.watcher.take() else { return };
        if self.link.is_forked() {
            // The thread is the parent's, and so is the connection: a join would wait for ever.
            std::mem::forget(watcher);
            return;
        }
        self.link.stop_watching();
        self.link.end("this process closed the connection");
        // A watcher that panicked has nothing left to say.
        let _ = watcher.join();
        self.link.vacate();
    }
}

/// A connected socket.
fn reach(path: &Path, deadline: Instant) -> Result<OwnedFd, FabricError> {
    let shown = path.display();
    let failed = |error: Errno, remedy: String| {
        os::system_error(format!("connecting to {shown}"), &error.into(), &remedy)
    };
    let length_bytes = path.as_os_str().len();
    if length_bytes > socket::PATH_BYTES_MAX {
        let limit = socket::PATH_BYTES_MAX;
        let remedy = format!("The path has {length_bytes} B and the limit is {limit}: use a shorter one");
        return Err(failed(Errno::NAMETOOLONG, remedy));
    }
    let address = socket::address(path)
        .map_err(|error| os::system_error(format!("connecting to {shown}"), &error, "Use another path"))?;
    let socket = socket::new()
        .map_err(|error| os::system_error("making a socket".to_owned(), &error, &os::descriptors_remedy()))?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            // The server's backlog is full: it lives, and is busy.
            Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error, remedy_of(error, path))),
        }
    }
}

fn remedy_of(error: Errno, path: &Path) -> String {
    use std::os::unix::fs::FileTypeExt as _;
    let shown = path.display();
    let is_other = std::fs::metadata(path).is_ok_and(|metadata| !metadata.file_type().is_socket());
    match error {
        // Of a file or a directory the system says the same as of a socket without a listener.
        Errno::CONNREFUSED if is_other => {
            "What is there is not a socket: give the path that `farsight serve` printed".to_owned()
        }
        Errno::NOENT => {
            format!("No such socket: is the server running? Start it with: farsight serve --socket {shown}")
        }
        Errno::CONNREFUSED => format!(
            "The socket is stale, nobody listens there any more. Start the server again: \
             farsight serve --socket {shown}; and with a pool's node all others of the pool"
        ),
        Errno::ACCESS | Errno::PERM => {
            use std::os::unix::fs::MetadataExt as _;
            let owner = std::fs::metadata(path)
                .map_or("another user".to_owned(), |metadata| format!("uid {}", metadata.uid()));
            let own = os::own_uid();
            format!(
                "The socket belongs to {owner}, this process to uid {own}: the server must allow that uid"
            )
        }
        Errno::PROTOTYPE | Errno::NOTSOCK => "What is there is not a socket of this fabric".to_owned(),
        Errno::AGAIN => "The server accepts nobody: is it stopped or overloaded?".to_owned(),
        _ => "Check the path".to_owned(),
    }
}

/// Fails unless the server is of a user that this client trusts. Any user that may write the socket's
/// directory may listen there first, and would be told every write.
fn check_user(socket: &OwnedFd, peer: &str, server_uids: &[u32]) -> Result<(), FabricError> {
    let credentials = os::peer_credentials(socket.as_fd()).map_err(|error| {
        os::system_error(format!("asking for the user who listens at {peer}"), &error, "Use another path")
    })?;
    let trusted = trusted_uids(os::own_uid(), server_uids);
    if trusted.contains(&credentials.uid) {
        return Ok(());
    }
    Err(FabricError::UntrustedServer { peer: peer.to_owned(), uid: credentials.uid, trusted })
}

/// The client's own user, root, who could read and change the client's memory anyway, and `others`.
fn trusted_uids(own: u32, others: &[u32]) -> Vec<u32> {
    let mut trusted = vec![own];
    for uid in [ROOT].iter().chain(others) {
        if !trusted.contains(uid) {
            trusted.push(*uid);
        }
    }
    trusted
}

/// The handshake: what the server says of itself, and the socket for its news.
fn greet(
    socket: &OwnedFd,
    peer: &str,
    format_version: u32,
    started: Instant,
    timeout: Duration,
) -> Result<(Welcome, OwnedFd), FabricError> {
    const WHAT: &str = "the handshake";
    let hello = FromClient::Hello {
        magic: MAGIC,
        fabric_version: FABRIC_VERSION,
        format_version,
        pid: std::process::id(),
        serves: serving::has_begun(),
    };
    // A server that refuses at once may have closed already, with its reason waiting to be read.
    let sent = socket::send(socket, &hello.encode(), &[]);
    let parcel = match socket::receive(socket, started + timeout) {
        Ok(Some(parcel)) => parcel,
        Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
            let waited = started.elapsed();
            return Err(FabricError::TimedOut { peer: peer.to_owned(), what: WHAT, waited });
        }
        other => {
            let error = other.err().or(sent.err());
            let reason = error.map_or("the server closed it".to_owned(), |error| error.to_string());
            let reason = format!("{reason}, during the handshake (is it a farsight server?)");
            return Err(FabricError::Disconnected { peer: peer.to_owned(), reason });
        }
    };
    let protocol = |got: String| FabricError::Protocol {
        peer: peer.to_owned(),
        what: WHAT,
        expected: "a welcome or a refusal".to_owned(),
        got,
    };
    match FromServer::decode(&parcel.bytes) {
        Ok(FromServer::Welcome { .. }) if parcel.has_lost_descriptors => {
            let error = std::io::Error::from(Errno::MFILE);
            Err(os::system_error(format!("connecting to {peer}"), &error, &os::descriptors_remedy()))
        }
        Ok(FromServer::Welcome { epoch, client, server_pid, notice }) => {
            let welcome = Welcome { epoch: Epoch(epoch), client, server_pid, notice };
            let news = <[OwnedFd; 1]>::try_from(parcel.descriptors);
            news.map(|[news]| (welcome, news)).map_err(|_| protocol("not one descriptor".to_owned()))
        }
        Ok(FromServer::Refusal { text } | FromServer::Dismissal { text }) => {
            Err(FabricError::Refused { peer: peer.to_owned(), reason: text })
        }
        Ok(FromServer::Goodbye { text }) => {
            Err(FabricError::Disconnected { peer: peer.to_owned(), reason: text })
        }
        Ok(other) => Err(protocol(format!("{other:?}"))),
        Err(error) => Err(protocol(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_user_root_and_those_given_are_trusted() {
        assert_eq!(trusted_uids(1000, &[]), [1000, 0]);
        assert_eq!(trusted_uids(0, &[]), [0]);
        assert_eq!(trusted_uids(1000, &[7, 1000, 0, 7]), [1000, 0, 7]);
    }
}
