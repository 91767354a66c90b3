//! A server process in its namespace, and clients that work each in theirs while a test tells them what to
//! do.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use farsight_client::{Access, Client, ClientOptions, ReadError, Session, WriteError};
use farsight_conformance::engine::harness::PATIENCE;
use farsight_conformance::engine::processes::{Player, say};
use farsight_fabric_tcp::{ConnectOptions, ListenOptions, TcpConnection, TcpHost};
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{KeyKind, TableDefinition, WriteOperation, WriteOutcome};
use farsight_server::{Server, ServerOptions};

use crate::namespaces::Network;

/// Where the server listens, in a namespace that has no other.
const PORT: u16 = 7474;
pub(crate) const VALUE_BYTES: usize = 16;
/// How long a call waits for a server that is gone: short, so that tests see both the loss and the return.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The role: serves until it is killed.
pub(crate) fn serve() {
    let mut listen = ListenOptions::new(FORMAT_VERSION);
    listen.allow_plaintext = true;
    let host = TcpHost::listen(&format!("0.0.0.0:{PORT}"), &listen).expect("its port");
    let options = ServerOptions { workers: 2, table_memory_bytes: 64 << 20, ..ServerOptions::default() };
    let server = Server::start(vec![Arc::new(host)], &options).expect("a server");
    say("serving");
    // The test's end, or its kill, comes first.
    std::thread::sleep(10 * PATIENCE);
    drop(server);
}

/// A server process in the server's namespace. Killed when it is dropped.
pub(crate) fn start_server(network: &Network) -> Player {
    network.on_server(|| {
        let mut server = Player::start("server", &[]);
        assert_eq!(server.hear().as_deref(), Some("serving"), "the server starts");
        server
    })
}

/// What a client works with: one session on one table.
pub(crate) struct Desk {
    pub(crate) client: Client<TcpConnection>,
    pub(crate) session: Session<TcpConnection>,
}

impl Desk {
    fn new(client: usize) -> Self {
        let mut options = ConnectOptions::new(FORMAT_VERSION);
        options.allow_plaintext = true;
        let address = format!("{}:{PORT}", Network::server_address(client));
        let connection = TcpConnection::connect(&address, options).expect("a connection");
        let options = ClientOptions { reconnect_timeout: RECONNECT_TIMEOUT };
        let client = Client::new(connection, options).expect("a client");
        let session = make_session(&client);
        Self { client, session }
    }

    /// Puts a value that tells its key and `sequence`.
    pub(crate) fn put(&mut self, key: u64, sequence: u64) -> Result<WriteOutcome, WriteError> {
        self.session.write_one(WriteOperation::Put, key, &value_of(key, sequence))
    }

    /// The sequence in the value of `key`.
    pub(crate) fn get(&mut self, key: u64) -> Result<Option<u64>, ReadError> {
        let mut value = [0; VALUE_BYTES];
        let found = self.session.get(key, &mut value)?;
        Ok(found.map(|_| sequence_of(key, &value)))
    }

    /// Gets until that succeeds, as a program would whose server comes back.
    pub(crate) fn get_at_last(&mut self, key: u64) -> Option<u64> {
        let begun = Instant::now();
        loop {
            match self.get(key) {
                Ok(found) => return found,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "the server was not found again: {error}"),
            }
        }
    }

    /// Another session, on the same table made again if need be.
    pub(crate) fn begin_anew(&mut self) {
        self.session = make_session(&self.client);
    }
}

fn make_session(client: &Client<TcpConnection>) -> Session<TcpConnection> {
    let (name, value_bytes) = ("t".to_owned(), VALUE_BYTES as u16);
    let definition = TableDefinition { name, key_kind: KeyKind::U64, value_bytes };
    let table = client.create_table(definition).expect("a table");
    table.session(Access::OneSided).expect("a session")
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
    /// Connects to the server.
    pub(crate) fn start(network: &Arc<Network>, client: usize) -> Self {
        let (jobs, orders) = mpsc::channel::<Job>();
        let network = Arc::clone(network);
        std::thread::spawn(move || {
            network.on_client(client, move || {
                let mut desk = Desk::new(client);
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
