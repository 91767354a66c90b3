//! A connected client, whatever the fabric.

use std::time::Duration;

use farsight_base::Epoch;
use farsight_client::{
    CatalogueError, ClientOptions, Connected, GroupSizes, PoolClient, PoolError, PoolTrainer, Reclaimed,
    Trained,
};
use farsight_fabric::{Connection, QueuePair};
use farsight_fabric_shm::ShmConnection;
use farsight_fabric_tcp::{TcpConnection, Tls, Waiting};
#[cfg(feature = "verbs")]
use farsight_fabric_verbs::VerbsConnection;
use farsight_layout::{FORMAT_VERSION, VALUE_BYTES_MAX, VALUE_BYTES_MIN};
use farsight_protocol::{MemoryNodeStats, ServerStats, TableDefinition, TableInfo};

#[cfg(not(feature = "verbs"))]
use crate::NotBuilt;
use crate::provider::{ProviderClient, ProviderTable, on_fabric, same_fabric};
use crate::{Addresses, ConnectError, Engine, Key, ServerUrl, Table, TableError, TableOptions};

/// A client of one server. Cheap to clone and shared by threads; each thread opens a [`crate::Session`] of
/// its own.
///
/// When its server is gone, the next call connects again, for all clones, tables and sessions, and tables are
/// found by their names in the server's new life: see [Restarts](crate#restarts). A client belongs to one
/// process: calls in a forked child fail by name.
#[derive(Clone)]
pub struct Client {
    provider: ProviderClient,
}

/// Any failure of training.
pub(crate) type BoxedError = Box<dyn std::error::Error + Send + Sync>;
/// Trains a little; true if there was something to train.
pub(crate) type TrainTable = Box<dyn FnMut() -> Result<bool, BoxedError> + Send>;

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
    /// Connects without certificates to other machines, where whoever is on the way can read and change
    /// everything.
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
/// `tcp://a:7474,tcp://b:7474`.
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
        let to = to.into();
        let provider = match &to.urls()[0] {
            ServerUrl::Shm(_) => {
                let mut shm_options = farsight_fabric_shm::ConnectOptions::new(FORMAT_VERSION);
                shm_options.server_uids.clone_from(&options.server_uids);
                let connected = connect_to(&to, options, |url| match url {
                    ServerUrl::Shm(socket) => Ok(Some(ShmConnection::connect(socket, shm_options.clone())?)),
                    _ => Ok(None),
                })?;
                match connected {
                    Connected::Server(client) => ProviderClient::Shm(client),
                    Connected::Pool(client) => ProviderClient::PoolShm(client),
                }
            }
            ServerUrl::Tcp(_) => {
                let mut tcp_options = farsight_fabric_tcp::ConnectOptions::new(FORMAT_VERSION);
                tcp_options.allow_plaintext = options.allow_plaintext;
                tcp_options.waiting = options.waiting;
                tcp_options.tls.clone_from(&options.tls);
                let connected = connect_to(&to, options, |url| match url {
                    ServerUrl::Tcp(endpoint) => {
                        Ok(Some(TcpConnection::connect(&endpoint.to_string(), tcp_options.clone())?))
                    }
                    _ => Ok(None),
                })?;
                match connected {
                    Connected::Server(client) => ProviderClient::Tcp(client),
                    Connected::Pool(client) => ProviderClient::PoolTcp(client),
                }
            }
            #[cfg(feature = "verbs")]
            ServerUrl::Rdma(_) => {
                let mut verbs_options = farsight_fabric_verbs::ConnectOptions::new(FORMAT_VERSION);
                verbs_options.device.clone_from(&options.rdma_device);
                verbs_options.allow_plaintext = options.allow_plaintext;
                verbs_options.waiting = options.waiting;
                verbs_options.tls.clone_from(&options.tls);
                let connected = connect_to(&to, options, |url| match url {
                    ServerUrl::Rdma(endpoint) => {
                        Ok(Some(VerbsConnection::connect(&endpoint.to_string(), verbs_options.clone())?))
                    }
                    _ => Ok(None),
                })?;
                match connected {
                    Connected::Server(client) => ProviderClient::Rdma(client),
                    Connected::Pool(client) => ProviderClient::PoolRdma(client),
                }
            }
            #[cfg(not(feature = "verbs"))]
            url @ ServerUrl::Rdma(_) => return Err(NotBuilt { url: url.clone() }.into()),
        };
        Ok(Self { provider })
    }

    /// Makes a table for keys of type `K` and values of `value_bytes` (8 to 256), or opens the one that is
    /// already defined so.
    ///
    /// # Errors
    /// [`TableError`]: a bad name, a size out of range, a table of that name with another definition.
    pub fn create_table<K: Key>(&self, name: &str, value_bytes: usize) -> Result<Table<K>, TableError> {
        self.create_table_with(name, value_bytes, &TableOptions::default())
    }

    /// [`Client::create_table`] with more to say of the table if it is new. One that is there must be of the
    /// same engine.
    ///
    /// # Errors
    /// As [`Client::create_table`]; [`PoolError::NoPool`] or [`PoolError::NoServer`] for an engine
    /// that is not at hand.
    pub fn create_table_with<K: Key>(
        &self,
        name: &str,
        value_bytes: usize,
        options: &TableOptions<K>,
    ) -> Result<Table<K>, TableError> {
        if !(VALUE_BYTES_MIN..=VALUE_BYTES_MAX).contains(&value_bytes) {
            return Err(TableError::ValueSize {
                table: name.to_owned(),
                got_bytes: value_bytes,
                min_bytes: VALUE_BYTES_MIN,
                max_bytes: VALUE_BYTES_MAX,
            });
        }
        let value_type = options.value_type.clone();
        let definition =
            TableDefinition { value_type, ..TableDefinition::new(name, K::KIND, value_bytes as u16) };
        let is_pool = self.is_pool();
        let provider = match options.engine {
            Some(Engine::XStoreD) => {
                let sample: Vec<u64> = options.sample.iter().map(|key| key.encode()).collect();
                self.create_x_store_d(&definition, &sample)?
            }
            Some(Engine::XStore) if is_pool => return Err(self.no_server().into()),
            Some(Engine::Rolex) if !is_pool => return Err(self.no_pool().into()),
            _ => same_fabric!(ProviderClient => ProviderTable, &self.provider, client => {
                client.create_table(definition)?
            }),
        };
        Table::new(provider)
    }

    fn create_x_store_d(
        &self,
        definition: &TableDefinition,
        sample: &[u64],
    ) -> Result<ProviderTable, CatalogueError> {
        Ok(match &self.provider {
            ProviderClient::PoolShm(client) => {
                ProviderTable::PoolShm(client.create_x_store_d(definition, sample)?)
            }
            ProviderClient::PoolTcp(client) => {
                ProviderTable::PoolTcp(client.create_x_store_d(definition, sample)?)
            }
            #[cfg(feature = "verbs")]
            ProviderClient::PoolRdma(client) => {
                ProviderTable::PoolRdma(client.create_x_store_d(definition, sample)?)
            }
            _ => return Err(self.no_pool()),
        })
    }

    /// True for a client of a pool's memory nodes.
    fn is_pool(&self) -> bool {
        match &self.provider {
            ProviderClient::Shm(_) | ProviderClient::Tcp(_) => false,
            #[cfg(feature = "verbs")]
            ProviderClient::Rdma(_) => false,
            _ => true,
        }
    }

    fn no_server(&self) -> CatalogueError {
        PoolError::NoServer { peer: self.peer().to_owned() }.into()
    }

    fn no_pool(&self) -> CatalogueError {
        PoolError::NoPool { peer: self.peer().to_owned() }.into()
    }

    /// Opens the table of this name.
    ///
    /// # Errors
    /// [`TableError::Catalogue`] if there is none, [`TableError::KeyKind`] if its keys are not `K`.
    pub fn table<K: Key>(&self, name: &str) -> Result<Table<K>, TableError> {
        let provider =
            same_fabric!(ProviderClient => ProviderTable, &self.provider, client => client.open_table(name)?);
        Table::new(provider)
    }

    /// What the server says of the table of this name: for programs that do not know its kind beforehand.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] if there is none.
    pub fn describe_table(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        on_fabric!(ProviderClient, &self.provider, client => client.describe_table(name))
    }

    /// All tables of the server.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn tables(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        on_fabric!(ProviderClient, &self.provider, client => client.tables())
    }

    /// The server's statistics.
    ///
    /// # Errors
    /// Failures of the fabric; [`PoolError::NoServer`] for a pool ([`Client::memory_node_stats`]).
    pub fn stats(&self) -> Result<ServerStats, CatalogueError> {
        match &self.provider {
            ProviderClient::Shm(client) => client.stats(),
            ProviderClient::Tcp(client) => client.stats(),
            #[cfg(feature = "verbs")]
            ProviderClient::Rdma(client) => client.stats(),
            _ => Err(self.no_server()),
        }
    }

    /// The statistics of each memory node of a pool, home first; `None` for a server.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn memory_node_stats(&self) -> Result<Option<Vec<MemoryNodeStats>>, CatalogueError> {
        match &self.provider {
            ProviderClient::PoolShm(client) => client.stats().map(Some),
            ProviderClient::PoolTcp(client) => client.stats().map(Some),
            #[cfg(feature = "verbs")]
            ProviderClient::PoolRdma(client) => client.stats().map(Some),
            _ => Ok(None),
        }
    }

    /// Sub-models that wait to be retrained by the server or the memory nodes, over all tables: zero when the
    /// models have caught up with the writes. ROLEX's tables are not among them: who trains those keeps no
    /// queue.
    ///
    /// # Errors
    /// Failures of the fabric.
    pub fn pending_training(&self) -> Result<u64, CatalogueError> {
        on_fabric!(ProviderClient, &self.provider, client => client.pending_training())
    }

    /// A step of training of a pool's table of this name; `None` for one that its memory nodes train.
    pub(crate) fn train_table(&self, name: &str) -> Result<Option<TrainTable>, CatalogueError> {
        let trainer = match &self.provider {
            ProviderClient::PoolShm(client) => client.trainer(name, GroupSizes::USUAL).map(train_table),
            ProviderClient::PoolTcp(client) => client.trainer(name, GroupSizes::USUAL).map(train_table),
            #[cfg(feature = "verbs")]
            ProviderClient::PoolRdma(client) => client.trainer(name, GroupSizes::USUAL).map(train_table),
            _ => Err(self.no_pool()),
        };
        match trainer {
            Err(CatalogueError::Pool(PoolError::NotRolex { .. })) => Ok(None),
            trainer => trainer.map(Some),
        }
    }

    /// Asks for huge pages under the tables that this process has opened, in its own mapping of them, so that
    /// READs miss the TLB less. Returns the bytes that lie on huge pages afterwards. Costs up to milliseconds
    /// a 2 MiB piece, once.
    #[must_use]
    pub fn collapse_to_huge_pages(&self) -> u64 {
        match &self.provider {
            ProviderClient::Shm(client) => client.with_connection(ShmConnection::collapse_to_huge_pages),
            ProviderClient::PoolShm(client) => {
                client.with_connections(ShmConnection::collapse_to_huge_pages).iter().sum()
            }
            // The regions are another machine's memory.
            _ => 0,
        }
    }

    /// The life of the server that this client is connected to, or was last. It differs after the server was
    /// started again and the client has connected again.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        on_fabric!(ProviderClient, &self.provider, client => client.epoch())
    }

    /// The server's address, as it was given.
    #[must_use]
    pub fn peer(&self) -> &str {
        on_fabric!(ProviderClient, &self.provider, client => client.peer())
    }
}

/// Steps of training from one look at what compute nodes left that have ended to the next.
const STEPS_A_LOOK: u32 = 16;
/// Groups of one step of training.
const TRAIN_BUDGET: usize = 64;

fn train_table<Q: QueuePair + Send + 'static>(mut trainer: PoolTrainer<Q>) -> TrainTable {
    let mut steps = 0_u32;
    let mut has_reclaimed = false;
    Box::new(move || {
        // First, for training may want the very lines that dead trainers left.
        if has_reclaimed || steps.is_multiple_of(STEPS_A_LOOK) {
            let found = trainer.reclaim()?;
            has_reclaimed = found != Reclaimed::default();
        }
        let step = trainer.step(TRAIN_BUDGET)?;
        steps = steps.wrapping_add(1);
        // Nobody hurries for leaves that do not come to rest.
        Ok(Trained { resting: 0, ..step } != Trained::default() || has_reclaimed)
    })
}

/// Connects to each of the addresses with `connect`, which answers `None` to one of another fabric.
fn connect_to<C: Connection + 'static>(
    to: &Addresses,
    options: &ConnectOptions,
    connect: impl Fn(&ServerUrl) -> Result<Option<C>, ConnectError>,
) -> Result<Connected<C>, ConnectError> {
    let options = ClientOptions { reconnect_timeout: options.reconnect_timeout };
    let mut connections = Vec::new();
    for url in to.urls() {
        let first = || to.urls()[0].clone();
        let other = || ConnectError::MixedFabrics { first: first(), second: url.clone() };
        connections.push(connect(url)?.ok_or_else(other)?);
    }
    match <[C; 1]>::try_from(connections) {
        Ok([connection]) => Ok(farsight_client::connect(connection, options)?),
        Err(connections) => Ok(Connected::Pool(PoolClient::of_pool(connections, options)?)),
    }
}
