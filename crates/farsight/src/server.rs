//! A server inside the calling process.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use farsight_fabric_shm::{ListenError, ListenOptions, ShmHost};
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::ServerStats;
use farsight_server::{ServerHandle, ServerOptions, ShutdownError};

use crate::ServerUrl;

/// A running server, with threads of its own. Dropping it stops it, and its tables are gone: they are memory.
pub struct Server {
    url: ServerUrl,
    handle: ServerHandle,
}

/// Settings of a server to be started.
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing before `start`"]
pub struct ServerBuilder {
    socket: PathBuf,
    allowed_uids: Option<Vec<u32>>,
    options: ServerOptions,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot listen at its socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// Its threads cannot be started.
    #[error(transparent)]
    Serve(#[from] farsight_server::StartError),
}

/// Where servers listen and programs connect unless they are told otherwise: `farsight.sock` in
/// `$XDG_RUNTIME_DIR`, or `/tmp/farsight-UID.sock` without that.
#[must_use]
pub fn default_socket() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|directory| !directory.is_empty()) {
        Some(directory) => Path::new(&directory).join("farsight.sock"),
        None => PathBuf::from(format!("/tmp/farsight-{}.sock", rustix::process::geteuid().as_raw())),
    }
}

impl Server {
    /// Settings to start from: [`default_socket`], one worker, a quarter of the machine's memory a table,
    /// clients of this process's user alone.
    pub fn builder() -> ServerBuilder {
        ServerBuilder { socket: default_socket(), allowed_uids: None, options: ServerOptions::default() }
    }

    /// What clients connect to.
    #[must_use]
    pub fn url(&self) -> &ServerUrl {
        &self.url
    }

    /// The server's statistics now.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        self.handle.stats()
    }

    /// Why the server refuses every call, if a bug in it made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.handle.failure()
    }

    /// Stops the server: its clients' calls fail within a second.
    ///
    /// # Errors
    /// [`ShutdownError`] if a thread does not end within 10 s.
    pub fn shutdown(self) -> Result<(), ShutdownError> {
        self.handle.shutdown()
    }
}

impl ServerBuilder {
    /// The path of the socket at which to listen. A dead server's socket is replaced.
    pub fn socket(mut self, path: impl AsRef<Path>) -> Self {
        path.as_ref().clone_into(&mut self.socket);
        self
    }

    /// Worker threads: they execute writes and the calls of clients; clients' READs need none.
    pub fn workers(mut self, count: usize) -> Self {
        self.options.workers = count;
        self
    }

    /// Bytes of each table's leaves: the most that the table can ever hold. Pages cost nothing until they are
    /// written.
    pub fn table_memory_bytes(mut self, bytes: u64) -> Self {
        self.options.table_memory_bytes = bytes;
        self
    }

    /// The users that may connect, instead of this process's own.
    pub fn allowed_uids(mut self, uids: impl IntoIterator<Item = u32>) -> Self {
        self.allowed_uids = Some(uids.into_iter().collect());
        self
    }

    /// Starts the server. It accepts clients when this returns.
    ///
    /// # Errors
    /// [`StartError`]: a socket path in use, too long, or in no directory; a number of workers that makes no
    /// sense.
    pub fn start(self) -> Result<Server, StartError> {
        // A relative path is no URL.
        let socket = std::path::absolute(&self.socket).unwrap_or(self.socket);
        let url = ServerUrl::shm(&socket);
        let mut listen = ListenOptions::new(FORMAT_VERSION);
        if let Some(allowed_uids) = self.allowed_uids {
            listen.allowed_uids = allowed_uids;
        }
        let host = Arc::new(ShmHost::listen(&socket, listen)?);
        Ok(Server { url, handle: farsight_server::Server::start(vec![host], &self.options)? })
    }
}
