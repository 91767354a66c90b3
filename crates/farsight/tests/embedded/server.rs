//! A server of its own for each test.

use farsight::{Client, Server};
use tempfile::TempDir;

/// A running server in a directory that ends with it.
pub(crate) struct TestServer {
    // Dropped in this order: the server before its directory.
    pub(crate) server: Server,
    pub(crate) directory: TempDir,
}

impl TestServer {
    /// A server with `table_memory_bytes` a table.
    pub(crate) fn start(table_memory_bytes: u64) -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary directory"), table_memory_bytes)
    }

    /// Stops the server and starts another in its place, without tables.
    pub(crate) fn restart(self) -> Self {
        let Self { server, directory } = self;
        server.shutdown().expect("the server stops");
        Self::start_in(directory, 1 << 20)
    }

    pub(crate) fn start_in(directory: TempDir, table_memory_bytes: u64) -> Self {
        let socket = directory.path().join("test.sock");
        let server = Server::builder().socket(socket).table_memory_bytes(table_memory_bytes).start();
        Self { server: server.expect("a server starts"), directory }
    }

    pub(crate) fn connect(&self) -> Client {
        farsight::connect(&self.server.url().to_string()).expect("a client connects")
    }
}
