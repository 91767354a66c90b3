//! A server process in its namespace, or one that is all memory nodes of a pool. Clients work each in a
//! namespace of their own, while a test tells them what to do.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use farsight::{
    Addresses, Client, ConnectOptions, EngineKind, Options, ReadError, Server, Session, TableOptions,
    WriteError, WriteOutcome, with_causes,
};
use farsight_conformance::engine::harness::PATIENCE;
use farsight_conformance::engine::processes::{Player, argument, say};

use crate::namespaces::Network;

/// Where the server, or the first memory node, listens, in a namespace that has no other.
const PORT: u16 = 7474;
const MEMORY_NODES: u16 = 2;
const TABLE_BYTES: u64 = 64 << 20;
pub(crate) const VALUE_BYTES: usize = 16;
/// How long a call waits for a server that is gone: short, so that tests see both the loss and the return.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The ports of the server, or of the memory nodes.
fn ports(engine: &'static EngineKind) -> impl Iterator<Item = u16> {
    PORT..PORT + if engine == EngineKind::XSTORE { 1 } else { MEMORY_NODES }
}

/// The role: serves until it is killed.
pub(crate) fn serve() {
    let is_pool = argument::<bool>("IS_POOL");
    let engine = if is_pool { EngineKind::ROLEX } else { EngineKind::XSTORE };
    let builder = |port: u16| {
        let url = format!("tcp://0.0.0.0:{port}").parse().expect("an address");
        let builder = Server::builder().listen(url).allow_plaintext(true).workers(2);
        builder.table_memory_bytes(TABLE_BYTES)
    };
    if is_pool {
        let nodes = ports(engine).map(|port| builder(port).start().expect("a memory node"));
        stay(nodes.collect::<Vec<_>>());
    } else {
        stay(builder(PORT).start().expect("a server"));
    }
}

/// Keeps what serves; the test's end, or its kill, comes first.
fn stay<T>(serving: T) {
    say("serving");
    std::thread::sleep(10 * PATIENCE);
    drop(serving);
}

/// A process in the server's namespace that has tables of `engine`. Killed when it is dropped.
pub(crate) fn start_server(network: &Network, engine: &'static EngineKind) -> Player {
    network.on_server(|| {
        let is_pool = engine != EngineKind::XSTORE;
        let mut server = Player::start("server", &[("IS_POOL", is_pool.to_string())]);
        assert_eq!(server.hear().as_deref(), Some("serving"), "the server starts");
        server
    })
}

/// What a client works with: one session on one table.
pub(crate) struct Desk {
    pub(crate) client: Client,
    pub(crate) session: Session<u64>,
    engine: &'static EngineKind,
}

impl Desk {
    fn new(client: usize, engine: &'static EngineKind) -> Self {
        let address = Network::server_address(client);
        let urls = ports(engine).map(|port| format!("tcp://{address}:{port}").parse().expect("an address"));
        let options = ConnectOptions {
            reconnect_timeout: RECONNECT_TIMEOUT,
            allow_plaintext: true,
            ..ConnectOptions::default()
        };
        let client = Client::connect_with(Addresses::new(urls.collect()), &options).expect("a client");
        let session = make_session(&client, engine);
        Self { client, session, engine }
    }

    /// Puts a value that tells its key and `sequence`.
    pub(crate) fn put(&mut self, key: u64, sequence: u64) -> Result<WriteOutcome, WriteError> {
        self.session.put(key, &value_of(key, sequence))
    }

    /// The sequence in the value of `key`.
    pub(crate) fn get(&mut self, key: u64) -> Result<Option<u64>, ReadError> {
        let mut value = [0; VALUE_BYTES];
        let found = self.session.get_into(key, &mut value)?;
        Ok(found.map(|_| sequence_of(key, &value)))
    }

    /// Gets until that succeeds, as a program would whose server comes back.
    pub(crate) fn get_at_last(&mut self, key: u64) -> Option<u64> {
        let begun = Instant::now();
        loop {
            match self.get(key) {
                Ok(found) => return found,
                Err(error) => {
                    let error = with_causes(&error);
                    assert!(begun.elapsed() < PATIENCE, "the server was not found again: {error}");
                }
            }
        }
    }

    /// How many clients each node has.
    pub(crate) fn clients(&mut self) -> Vec<u64> {
        self.client.node_stats().expect("an answer").iter().map(|node| node.clients).collect()
    }

    /// Another session, on the same table made again if need be.
    pub(crate) fn begin_anew(&mut self) {
        self.session = make_session(&self.client, self.engine);
    }
}

fn make_session(client: &Client, engine: &'static EngineKind) -> Session<u64> {
    let options = TableOptions { engine: Some(engine), ..TableOptions::default() };
    let table = client.create_table_with::<u64>("t", VALUE_BYTES, &options).expect("a table");
    table.session(Options::default()).expect("a session")
}

pub(crate) fn value_of(key: u64, sequence: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value[8..].copy_from_slice(&sequence.to_le_bytes());
    value
}

/// The sequence in a value, which must be `key`'s.
pub(crate) fn sequence_of(key: u64, value: &[u8]) -> u64 {
    let word = |place: usize| u64::from_le_bytes(value[place..place + 8].try_into().expect("eight bytes"));
    assert_eq!(word(0), key, "the value of another key");
    word(8)
}

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// A client in its namespace, on a thread that ends when this is dropped.
pub(crate) struct Remote {
    jobs: Sender<Job>,
}

impl Remote {
    /// Connects to what [`start_server`] started.
    pub(crate) fn start(network: &Arc<Network>, client: usize, engine: &'static EngineKind) -> Self {
        let (jobs, orders) = mpsc::channel::<Job>();
        let network = Arc::clone(network);
        std::thread::spawn(move || {
            network.on_client(client, move || {
                let mut desk = Desk::new(client, engine);
                for job in orders {
                    job(&mut desk);
                }
            });
        });
        Self { jobs }
    }

    /// Lets it do something, and does not wait.
    pub(crate) fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Desk) -> T + Send + 'static,
    ) -> Pending<T> {
        let (sender, result) = mpsc::channel();
        let job = move |desk: &mut Desk| {
            // A test that failed waits for nothing more.
            let _ = sender.send(work(desk));
        };
        self.jobs.send(Box::new(job)).expect("the client has not failed");
        Pending { result }
    }

    /// Lets it do something, and waits for what comes of it.
    pub(crate) fn ask<T: Send + 'static>(&self, work: impl FnOnce(&mut Desk) -> T + Send + 'static) -> T {
        self.begin(work).wait()
    }
}

/// What a client is doing.
pub(crate) struct Pending<T> {
    result: Receiver<T>,
}

impl<T> Pending<T> {
    /// What came of it.
    pub(crate) fn wait(self) -> T {
        self.result.recv_timeout(2 * PATIENCE).expect("the client ends what it does, and does not fail")
    }
}
