//! A connected client, whatever the fabric.

use std::mem::discriminant;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_client::{CatalogueError, ClientOptions, DialTo, FoundPool, NewTable, Training};
use farsight_fabric::{Connection, FabricError};
use farsight_fabric_shm::ShmConnection;
use farsight_fabric_tcp::{TcpConnection, Tls, Waiting};
use farsight_fabric_verbs::VerbsConnection;
use farsight_layout::{FORMAT_VERSION, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use farsight_protocol::{NodeStats, Proxy, TableDefinition, TableId, TableInfo, ValueKind};

use crate::{
    Addresses, ConnectError, Endpoint, KeyType, ServerUrl, Table, TableError, TableOptions, with_causes,
};

/// A client of one server. Cheap to clone and shared by threads; each thread opens a [`crate::Session`] of
/// its own.
///
/// When its server is gone, the next call connects again, for all clones, tables and sessions. It finds
/// tables by their names in the server's new epoch: see [Restarts](crate#restarts). A client belongs to one
/// process: calls in a forked child fail by name.
#[derive(Clone)]
pub struct Client {
    inner: farsight_client::Client,
}

/// How a client connects, and connects again.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// How long an operation that finds its server gone tries to reach it again, or the one that was started
    /// in its place.
    pub reconnect_timeout: Duration,
    /// Users whose servers are trusted over shared memory, by number, besides those of this process's own
    /// user and of root. Who listens at a path is asked of the kernel, each time before anything is sent.
    pub server_uids: Vec<u32>,
    /// Certificates for TCP and RDMA: the server must have one for the name or address in the URL, and this
    /// client shows its own. Over TCP everything is encrypted then; over RDMA that with which connections are
    /// set up, and not what the cards send. Without them both go to this machine alone.
    pub tls: Option<Tls>,
    /// The network card to use for RDMA, by its name; without one the one with this side's address.
    pub rdma_device: Option<String>,
    /// Connects without certificates to other machines, where anyone on the way can read and change
    /// everything; also to an etcd there, whose word it is where a pool's nodes are.
    pub allow_plaintext: bool,
    /// How sessions over TCP and RDMA wait for answers.
    pub waiting: Waiting,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            reconnect_timeout: ClientOptions::default().reconnect_timeout,
            server_uids: Vec::new(),
            tls: None,
            rdma_device: None,
            allow_plaintext: false,
            waiting: Waiting::default(),
        }
    }
}

/// Connects to the server at `url`, as in `shm:///run/farsight.sock`, or to a pool's memory nodes, as in
/// `tcp://a:7474,tcp://b:7474`, or to a pool by its name, as in `etcd://host:2379/users`.
///
/// # Errors
/// [`ConnectError`]: a URL that is none, no server at its path, another user's, or one of another version.
pub fn connect(url: &str) -> Result<Client, ConnectError> {
    Client::connect_with(&url.parse::<Addresses>()?, &ConnectOptions::default())
}

impl Client {
    /// Connects to the server at `url`.
    ///
    /// # Errors
    /// [`ConnectError::Fabric`].
    pub fn connect(url: &ServerUrl) -> Result<Self, ConnectError> {
        Self::connect_with(url, &ConnectOptions::default())
    }

    /// Connects to the server or to the pool at these addresses, with other settings than the default ones.
    ///
    /// # Errors
    /// [`ConnectError::Fabric`].
    pub fn connect_with(to: impl Into<Addresses>, options: &ConnectOptions) -> Result<Self, ConnectError> {
        let timeout = ClientOptions { reconnect_timeout: options.reconnect_timeout };
        with_ways(&to.into(), options, &mut Connecting(timeout)).map(|inner| Self { inner })
    }

    /// Makes a table for keys of type `K` and values of `value_bytes` (8 to 256), or opens the one that is
    /// already defined so.
    ///
    /// # Errors
    /// [`TableError`]: a bad name, a size out of range, a table of that name with another definition.
    pub fn create_table<K: KeyType + ?Sized>(
        &self,
        name: &str,
        value_bytes: usize,
    ) -> Result<Table<K>, TableError> {
        self.create_table_with(name, value_bytes, &TableOptions::default())
    }

    /// [`Client::create_table`] with more to say of the table if it is new. One that is there must be of the
    /// same engine.
    ///
    /// # Errors
    /// As [`Client::create_table`].
    pub fn create_table_with<K: KeyType + ?Sized>(
        &self,
        name: &str,
        value_bytes: usize,
        options: &TableOptions<K>,
    ) -> Result<Table<K>, TableError> {
        let bounds = VALUE_BYTES_MIN..=VALUE_BYTES_MAX;
        let Some(values) = u16::try_from(value_bytes).ok().filter(|_| bounds.contains(&value_bytes)) else {
            return Err(TableError::ValueSize {
                table: name.to_owned(),
                got_bytes: value_bytes,
                min_bytes: VALUE_BYTES_MIN,
                max_bytes: VALUE_BYTES_MAX,
            });
        };
        self.create_table_of(name, ValueKind::Fixed(values), options)
    }

    /// Makes a table for keys of type `K` and values of any length up to the limit of
    /// [`KeyType::longest_values`], or opens the one that is already defined so.
    ///
    /// ```
    /// # use farsight::{Options, Server};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let socket = directory.path().join("example.sock");
    /// # let server = Server::builder().socket(&socket).table_memory_bytes(64 << 20).start()?;
    /// # let client = farsight::connect(&server.url().to_string())?;
    /// let mut texts = client.create_blocks_table::<u64>("texts")?.session(Options::default())?;
    /// texts.put(1, b"")?;
    /// texts.put(2, &[b'x'; 10_000])?;
    /// let mut text = Vec::new();
    /// assert!(texts.get_vec(2, &mut text)?.is_some());
    /// assert_eq!(text.len(), 10_000);
    /// assert_eq!(texts.get(1)?.unwrap().value, b"");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`TableError`]: a bad name, an engine without such values, a table of that name with another
    /// definition.
    pub fn create_blocks_table<K: KeyType + ?Sized>(&self, name: &str) -> Result<Table<K>, TableError> {
        self.create_table_of(name, K::longest_values(), &TableOptions::default())
    }

    /// Makes a table for keys of type `K` and such values, or opens the one that is already defined so, of
    /// the same engine.
    ///
    /// # Errors
    /// As [`Client::create_table`] and [`Client::create_blocks_table`]; a limit of values beyond what the
    /// node's messages carry.
    pub fn create_table_of<K: KeyType + ?Sized>(
        &self,
        name: &str,
        values: ValueKind,
        options: &TableOptions<K>,
    ) -> Result<Table<K>, TableError> {
        let value_type = options.value_type.clone();
        let TableOptions { memory_bytes, ack, replicas, .. } = *options;
        let (name, key_kind) = (name.to_owned(), K::KEY_KIND);
        let definition = TableDefinition { name, key_kind, values, value_type, memory_bytes, ack, replicas };
        let sample = K::sample(&options.sample);
        Table::new(self.inner.create_table(NewTable { definition, engine: options.engine, sample })?)
    }

    /// Opens the table of this name.
    ///
    /// # Errors
    /// [`TableError::Catalogue`] if there is none, [`TableError::KeyKind`] if its keys are not `K`.
    pub fn table<K: KeyType + ?Sized>(&self, name: &str) -> Result<Table<K>, TableError> {
        Table::new(self.inner.open_table(name)?)
    }

    /// Drops the table of this name. All that it holds is gone at once, its memory once nobody has it open
    /// any more. Sessions on it, in this program and in others, fail within a second
    /// ([`OpenError::TableGone`](crate::OpenError::TableGone)), unless a table is made under its name.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none. After a failure of the fabric it may be dropped or not.
    pub fn drop_table(&self, name: &str) -> Result<(), CatalogueError> {
        self.inner.drop_table(name)
    }

    /// Gives the table called `from` the name `to`. Sessions follow the name under which they were opened:
    /// those of `from` find it gone within a second.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none, if `to` is no name, or another table's. After a failure
    /// of the fabric it may be renamed or not.
    pub fn rename_table(&self, from: &str, to: &str) -> Result<(), CatalogueError> {
        self.inner.rename_table(from, to)
    }

    /// Lets two tables exchange their names, at one instant: so a table that was loaded anew takes the place
    /// of the one in use. Sessions follow the name under which they were opened. Each of their batches is of
    /// one table, and of the new one within a second.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if one of them is no table. After a failure of the fabric they may be
    /// swapped or not.
    pub fn swap_tables(&self, first: &str, second: &str) -> Result<(), CatalogueError> {
        self.inner.swap_tables(first, second)
    }

    /// What the server says of the table of this name: for programs that do not know its kind beforehand.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn describe_table(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        self.inner.describe_table(name)
    }

    /// All tables of the server.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn tables(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.inner.tables()
    }

    /// The statistics of the first node: of a server, all there are.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn stats(&self) -> Result<NodeStats, CatalogueError> {
        self.inner.stats()
    }

    /// The statistics of each node, the coordinator first.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn node_stats(&self) -> Result<Vec<NodeStats>, CatalogueError> {
        self.inner.node_stats()
    }

    /// Makes a snapshot of each table in the server's directory of data, and waits until they are durable.
    /// Recovery begins with them; the log before them goes. Writers and readers go on meanwhile.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] by a server without a directory, or where that failed.
    pub fn snapshot(&self) -> Result<(), CatalogueError> {
        self.inner.snapshot()
    }

    /// Sub-models that wait to be retrained by the server or the memory nodes, over all tables: zero when the
    /// models have caught up with the writes. ROLEX's tables are not among them: who trains those keeps no
    /// queue.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn pending_training(&self) -> Result<u64, CatalogueError> {
        self.inner.pending_training()
    }

    /// The compute nodes that write for others in the FlexKV table of this number, and their partitions.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is no such table, or it is of another engine.
    pub fn proxies(&self, table: TableId) -> Result<Vec<Proxy>, CatalogueError> {
        self.inner.proxies(table)
    }

    /// The client below.
    pub(crate) fn inner(&self) -> &farsight_client::Client {
        &self.inner
    }

    /// The number of the table of this name, and what trains it from here; `None` for one that its nodes
    /// train.
    pub(crate) fn training(
        &self,
        name: &str,
    ) -> Result<(TableId, Option<Box<dyn Training>>), CatalogueError> {
        self.inner.training(name)
    }

    /// Asks for huge pages under the tables that this process has opened, in its own mapping of them, so that
    /// READs miss the TLB less. Returns the bytes that lie on huge pages afterwards. Costs up to milliseconds
    /// a 2 MiB piece, once.
    #[must_use]
    pub fn collapse_to_huge_pages(&self) -> u64 {
        // Over other fabrics the regions are another machine's memory.
        self.inner.with_connections(ShmConnection::collapse_to_huge_pages).iter().sum()
    }

    /// The epoch of the server that this client is connected to, or was last. It differs after the server was
    /// started again and the client has connected again.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.inner.epoch()
    }

    /// By which addresses this client reaches the nodes of its pool, in their order; also one that is lost.
    /// Those that were given are among them, where nothing else was learned.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.inner.addresses()
    }

    /// The server's address, as it was given.
    #[must_use]
    pub fn peer(&self) -> &str {
        self.inner.peer()
    }
}

/// What is done over the fabric that addresses name.
pub(crate) trait OverFabric {
    type Done;
    /// Nodes are wanted, too, that are registered under the pool's name and belong to no pool.
    const WITH_STRANGERS: bool = false;

    /// Does it with these addresses, and a way to any address of that fabric.
    fn run<C: Connection>(&mut self, given: Vec<String>, to: DialTo<C>) -> Result<Self::Done, ConnectError>;
}

struct Connecting(ClientOptions);

impl OverFabric for Connecting {
    type Done = farsight_client::Client;

    fn run<C: Connection>(&mut self, given: Vec<String>, to: DialTo<C>) -> Result<Self::Done, ConnectError> {
        // Nodes that belong to no pool may stand at addresses where one of the pool's was.
        let FoundPool { reached, dial, strangers: _ } = found(farsight_client::find_pool(given, to))?;
        found(farsight_client::connect(reached, Some(dial), self.0))
    }
}

/// A failure of the fabric is one of connecting.
pub(crate) fn found<T>(found: Result<T, CatalogueError>) -> Result<T, ConnectError> {
    found.map_err(|error| match error {
        CatalogueError::Fabric(error) => error.into(),
        error => error.into(),
    })
}

/// Does something over the fabric of these addresses.
pub(crate) fn with_ways<O: OverFabric>(
    to: &Addresses,
    options: &ConnectOptions,
    over: &mut O,
) -> Result<O::Done, ConnectError> {
    let to = &to.resolved(options, O::WITH_STRANGERS)?;
    let first = &to.urls()[0];
    let is_other = |url: &&ServerUrl| discriminant(*url) != discriminant(first);
    if let Some(second) = to.urls().iter().find(is_other) {
        return Err(ConnectError::MixedFabrics { first: first.clone(), second: second.clone() });
    }
    let given = to.urls().iter().map(ServerUrl::to_string).collect();
    match first {
        ServerUrl::Shm(_) => {
            let mut shm_options = farsight_fabric_shm::ConnectOptions::new(FORMAT_VERSION);
            shm_options.server_uids.clone_from(&options.server_uids);
            let way = move |socket: &PathBuf| ShmConnection::connect(socket, shm_options.clone());
            over.run(
                given,
                by_url(to, move |url| if let ServerUrl::Shm(at) = url { Some(way(at)) } else { None }),
            )
        }
        ServerUrl::Tcp(_) => {
            let mut tcp_options = farsight_fabric_tcp::ConnectOptions::new(FORMAT_VERSION);
            tcp_options.allow_plaintext = options.allow_plaintext;
            tcp_options.waiting = options.waiting;
            tcp_options.tls.clone_from(&options.tls);
            let way = move |at: &Endpoint| TcpConnection::connect(&at.to_string(), tcp_options.clone());
            over.run(
                given,
                by_url(to, move |url| if let ServerUrl::Tcp(at) = url { Some(way(at)) } else { None }),
            )
        }
        ServerUrl::Rdma(_) => {
            let mut verbs_options = farsight_fabric_verbs::ConnectOptions::new(FORMAT_VERSION);
            verbs_options.device.clone_from(&options.rdma_device);
            verbs_options.allow_plaintext = options.allow_plaintext;
            verbs_options.waiting = options.waiting;
            verbs_options.tls.clone_from(&options.tls);
            let way = move |at: &Endpoint| VerbsConnection::connect(&at.to_string(), verbs_options.clone());
            over.run(
                given,
                by_url(to, move |url| if let ServerUrl::Rdma(at) = url { Some(way(at)) } else { None }),
            )
        }
    }
}

/// A way to any address of a fabric: those that were given, or one that a node tells. That may be none, or
/// another fabric's.
fn by_url<C: Connection>(
    given: &Addresses,
    way: impl Fn(&ServerUrl) -> Option<Result<C, FabricError>> + Send + Sync + 'static,
) -> DialTo<C> {
    // A path need not be text.
    let given: Vec<(String, ServerUrl)> =
        given.urls().iter().map(|url| (url.to_string(), url.clone())).collect();
    Arc::new(move |address| {
        let known = given.iter().find(|(text, _)| text == address).map(|(_, url)| Ok(url.clone()));
        let refused = |reason| Err(FabricError::Refused { peer: address.to_owned(), reason });
        match known.unwrap_or_else(|| address.parse()) {
            Ok(url) => way(&url).unwrap_or_else(|| refused("it is of another fabric".to_owned())),
            Err(error) => refused(with_causes(&error)),
        }
    })
}
