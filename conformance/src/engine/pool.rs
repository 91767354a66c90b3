//! Memory nodes of a pool in a test's own process, as the facade starts them, over any of its fabrics.

use std::path::PathBuf;
use std::time::Duration;

use farsight::{Addresses, Client, ConnectOptions, PoolTraining, Server, ServerUrl, TableStats};

use super::harness::Directory;

/// How long calls wait for a memory node that is gone.
const RECONNECT_TIMEOUT: Duration = Duration::from_millis(300);

/// The memory nodes.
pub struct Pool {
    nodes: Vec<Option<Server>>,
    urls: Vec<ServerUrl>,
    table_bytes: u64,
    directory: Directory,
}

impl Pool {
    /// So many nodes at places that `url` names, each with up to `table_bytes` of a table.
    ///
    /// # Panics
    /// If one does not start.
    pub fn start(count: usize, table_bytes: u64, url: impl Fn(&Directory, usize) -> ServerUrl) -> Self {
        let directory = Directory::new();
        let start = |node| start_node(url(&directory, node), table_bytes);
        let nodes: Vec<Server> = (0..count).map(start).collect();
        let urls = nodes.iter().map(|node| node.url().clone()).collect();
        Self { nodes: nodes.into_iter().map(Some).collect(), urls, table_bytes, directory }
    }

    /// Stops a node.
    ///
    /// # Panics
    /// If it does not run, or does not end.
    pub fn stop(&mut self, node: usize) {
        self.nodes[node].take().expect("it runs").shutdown().expect("it ends");
    }

    /// Starts a node again that was stopped, at its place.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self, node: usize) {
        self.nodes[node] = Some(start_node(self.urls[node].clone(), self.table_bytes));
    }

    /// The nodes that run.
    pub fn nodes(&self) -> impl Iterator<Item = &Server> {
        self.nodes.iter().flatten()
    }

    /// Where a node is, or was.
    #[must_use]
    pub fn url(&self, node: usize) -> &ServerUrl {
        &self.urls[node]
    }

    /// All nodes, the coordinator first.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        Addresses::new(self.urls.clone())
    }

    /// A path for a file of the test.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.file(name)
    }

    /// A client of its own, which does not wait long for nodes that are gone.
    ///
    /// # Panics
    /// If it cannot connect.
    #[must_use]
    pub fn connect(&self) -> Client {
        let options = ConnectOptions { reconnect_timeout: RECONNECT_TIMEOUT, ..ConnectOptions::default() };
        Client::connect_with(self.addresses(), &options).expect("a client")
    }

    /// Trains all tables, until what this returns is dropped.
    ///
    /// # Panics
    /// If there is no thread.
    #[must_use]
    pub fn train(&self) -> PoolTraining {
        PoolTraining::start(self.addresses(), ConnectOptions::default()).expect("a thread")
    }

    /// What the nodes that run count of their parts of all tables.
    pub fn sum(&self, count: impl Fn(&TableStats) -> u64) -> u64 {
        self.nodes().flat_map(|node| node.stats().tables).map(|table| count(&table)).sum()
    }
}

fn start_node(url: ServerUrl, table_bytes: u64) -> Server {
    let builder = Server::builder().listen(url).table_memory_bytes(table_bytes);
    builder.start().expect("a memory node")
}

/// A place of shared memory's for node `node`.
#[must_use]
pub fn over_shared_memory(directory: &Directory, node: usize) -> ServerUrl {
    ServerUrl::shm(directory.file(&format!("node-{node}")))
}

/// A port of the system's choice.
///
/// # Panics
/// Never.
#[must_use]
pub fn over_tcp(_directory: &Directory, _node: usize) -> ServerUrl {
    "tcp://127.0.0.1:0".parse().expect("an address")
}
