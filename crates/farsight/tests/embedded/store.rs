//! A server or a pool of its own for each test of what is alike in both.

use farsight::{Addresses, Client, ConnectOptions, EngineKind, Key, Server, Table, TableOptions};
use tempfile::TempDir;

/// Memory nodes of a pool.
const MEMORY_NODES: usize = 2;

/// Something with tables, in a directory that ends with it.
pub(crate) struct TestStore {
    // Dropped in this order: what runs before its directory.
    running: Running,
    directory: TempDir,
    engine: &'static EngineKind,
    table_memory_bytes: u64,
}

enum Running {
    Server(Server),
    Pool(Vec<Server>),
}

impl TestStore {
    /// One whose tables are of `engine`, with `table_memory_bytes` a table and node.
    pub(crate) fn start(engine: &'static EngineKind, table_memory_bytes: u64) -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary directory"), engine, table_memory_bytes)
    }

    fn start_in(directory: TempDir, engine: &'static EngineKind, table_memory_bytes: u64) -> Self {
        let builder = |name: String| {
            Server::builder().socket(directory.path().join(name)).table_memory_bytes(table_memory_bytes)
        };
        let running = if engine.nodes.contains(&MEMORY_NODES) {
            let start = |node| builder(format!("node-{node}")).start();
            Running::Pool((0..MEMORY_NODES).map(|node| start(node).expect("a node starts")).collect())
        } else {
            Running::Server(builder("test.sock".to_owned()).start().expect("a server starts"))
        };
        Self { running, directory, engine, table_memory_bytes }
    }

    /// Stops it and starts another in its place, without tables.
    pub(crate) fn restart(self) -> Self {
        let Self { running, directory, engine, table_memory_bytes } = self;
        match running {
            Running::Server(server) => server.shutdown().expect("the server stops"),
            Running::Pool(nodes) => {
                for node in nodes {
                    node.shutdown().expect("the node stops");
                }
            }
        }
        Self::start_in(directory, engine, table_memory_bytes)
    }

    pub(crate) fn addresses(&self) -> Addresses {
        match &self.running {
            Running::Server(server) => server.url().clone().into(),
            Running::Pool(nodes) => Addresses::new(nodes.iter().map(|node| node.url().clone()).collect()),
        }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect_with(self.addresses(), &ConnectOptions::default()).expect("a client connects")
    }

    /// A table, made by a client of its own.
    pub(crate) fn create_table<K: Key>(&self, name: &str, value_bytes: usize) -> Table<K> {
        self.create_table_by(&self.connect(), name, value_bytes)
    }

    /// A table, made by `client`.
    pub(crate) fn create_table_by<K: Key>(
        &self,
        client: &Client,
        name: &str,
        value_bytes: usize,
    ) -> Table<K> {
        let options = TableOptions { engine: Some(self.engine), ..TableOptions::default() };
        client.create_table_with(name, value_bytes, &options).expect("a table")
    }

    /// Clients of the server, or of each node.
    pub(crate) fn clients(&self) -> Vec<u64> {
        match &self.running {
            Running::Server(server) => vec![server.stats().clients],
            Running::Pool(nodes) => {
                let clients = |node: &Server| node.stats().listeners.iter().map(|one| one.clients).sum();
                nodes.iter().map(clients).collect()
            }
        }
    }
}

/// Makes a test of each of these functions for each engine.
macro_rules! on_every_engine {
    ($($test:ident),+ $(,)?) => {
        crate::store::on_every_engine!(@of xstore, XSTORE, $($test),+);
        crate::store::on_every_engine!(@of rolex, ROLEX, $($test),+);
        crate::store::on_every_engine!(@of xstore_d, XSTORE_D, $($test),+);
    };
    (@of $name:ident, $engine:ident, $($test:ident),+) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    super::$test(farsight::EngineKind::$engine);
                }
            )+
        }
    };
}

pub(crate) use on_every_engine;
