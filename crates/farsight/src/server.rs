//! A server inside the calling process.

use std::net::IpAddr;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use farsight_base::report::report;
use farsight_cluster::{ClusterError, ClusterUrl, EtcdOptions};
use farsight_durability::disk::RealDisk;
use farsight_fabric::{FabricError, Listener};
use farsight_fabric_shm::ShmHost;
use farsight_fabric_tcp::{TcpHost, Tls, Waiting};
use farsight_layout::FORMAT_VERSION;
use farsight_node::{DataOptions, Node, NodeHandle, NodeOptions, ShutdownError, process};
use farsight_protocol::{Ack, NodeStats, PoolAddresses};

use crate::registered::{Registered, Registering};
use crate::{
    Addresses, ConnectOptions, DefaultSocketError, Endpoint, Epoch, PoolTraining, ServerUrl, default_socket,
};

/// A running server, alone or a node of a pool, with threads of its own. Dropping it stops it. Its tables are
/// gone then, for they are memory, unless it keeps them in a directory ([`ServerBuilder::data`]).
pub struct Server {
    urls: Vec<ServerUrl>,
    /// Dropped before the node: nobody is led to it any more.
    registered: Option<Registered>,
    /// Dropped before the node: its client's last calls are answered.
    training: PoolTraining,
    handle: NodeHandle,
}

/// Settings of a server to be started.
#[derive(Clone, Debug)]
#[must_use = "a builder starts nothing before `start`"]
pub struct ServerBuilder {
    /// Empty for the default socket.
    urls: Vec<ServerUrl>,
    allowed_uids: Option<Vec<u32>>,
    tls: Option<Tls>,
    rdma_device: Option<String>,
    allow_plaintext: bool,
    waiting: Waiting,
    data: Option<(PathBuf, Ack)>,
    snapshot_bytes: Option<u64>,
    /// One a fabric.
    pools: Vec<Addresses>,
    /// The pool's name, and how many nodes it is to have.
    cluster: Option<(ClusterUrl, u8)>,
    options: NodeOptions,
}

/// What listens at one address.
pub(crate) struct Listening {
    pub(crate) url: ServerUrl,
    pub(crate) listener: Arc<dyn Listener>,
    /// The network card, by its device's name, if it is RDMA.
    device: Option<String>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It cannot listen at its socket.
    #[error(transparent)]
    Socket(#[from] farsight_fabric_shm::ListenError),
    /// It was given no address, and there is no default one.
    #[error(transparent)]
    DefaultSocket(#[from] DefaultSocketError),
    /// It cannot listen at its TCP port, be it for TCP or for setting up RDMA.
    #[error(transparent)]
    Tcp(#[from] farsight_fabric_tcp::ListenError),
    /// Several sockets, of which each would make regions of its own.
    #[error("a server listens at one shm:// address at most, not at {first} and {second}")]
    TwoSockets {
        /// One.
        first: ServerUrl,
        /// Another.
        second: ServerUrl,
    },
    /// Lists of a pool's nodes that have not as many nodes each.
    #[error("{first} and {second} are not as many nodes: each list has an address of each node of the pool")]
    UnequalPools {
        /// One list.
        first: Addresses,
        /// Another.
        second: Addresses,
    },
    /// It cannot be registered under its pool's name.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// It listens at an address at which nobody else can reach it.
    #[error(
        "{url} is no address for others, and a node that is registered has only such: let it listen at the address of this \
         host, or at its name"
    )]
    Everywhere {
        /// The address.
        url: ServerUrl,
    },
    /// It was told its pool's addresses, and where to find them.
    #[error(
        "the nodes of a pool are told its addresses (pool), or find them under its name (cluster): not both"
    )]
    PoolAndCluster,
    /// It cannot serve over RDMA.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// Its threads cannot be started.
    #[error(transparent)]
    Serve(#[from] farsight_node::StartError),
}

impl Server {
    /// Settings to start from: [`default_socket`](crate::default_socket()), one worker, a quarter of the
    /// machine's memory a table, clients of this process's user alone.
    pub fn builder() -> ServerBuilder {
        ServerBuilder {
            urls: Vec::new(),
            allowed_uids: None,
            tls: None,
            rdma_device: None,
            allow_plaintext: false,
            waiting: Waiting::default(),
            data: None,
            snapshot_bytes: None,
            pools: Vec::new(),
            cluster: None,
            options: NodeOptions::default(),
        }
    }

    /// What clients connect to; of several addresses the best, shared memory before others.
    #[must_use]
    pub fn url(&self) -> &ServerUrl {
        &self.urls[0]
    }

    /// All addresses at which it listens, the best first. Where the system chose a port, it is named.
    #[must_use]
    pub fn urls(&self) -> &[ServerUrl] {
        &self.urls
    }

    /// This epoch of the server: another one has another, also at the same address.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.handle.epoch()
    }

    /// The server's statistics now.
    #[must_use]
    pub fn stats(&self) -> NodeStats {
        self.handle.stats()
    }

    /// Why the server refuses every call, if a bug in it made it so.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.handle.failure()
    }

    /// Calls `told` when a bug makes the server refuse every call, at once if one has: then
    /// [`Server::failure`] says which. A program ends the server then, or itself. `told` runs in the thread
    /// that met the bug, and must not block; to wait, let it send to a channel.
    pub fn on_failure(&self, told: impl FnOnce() + Send + 'static) {
        self.handle.on_failure(told);
    }

    /// Stops the server: its clients' calls fail within a second.
    ///
    /// # Errors
    /// [`ShutdownError`] if a thread does not end within 10 s.
    pub fn shutdown(self) -> Result<(), ShutdownError> {
        drop(self.registered);
        drop(self.training);
        self.handle.shutdown()
    }
}

impl ServerBuilder {
    /// Listens at `url`, too; the default socket is for servers that are told nothing else. A server has at
    /// most one `shm://` address and any number of others.
    pub fn listen(mut self, url: ServerUrl) -> Self {
        self.urls.push(url);
        self
    }

    /// [`ServerBuilder::listen`] at a socket of this path, for clients on this host. A dead server's socket
    /// is replaced.
    pub fn socket(self, path: impl AsRef<Path>) -> Self {
        // A relative path is no URL.
        let path = path.as_ref();
        self.listen(ServerUrl::shm(std::path::absolute(path).unwrap_or_else(|_| path.to_owned())))
    }

    /// Serves TCP and RDMA to clients with a certificate alone. Over TCP everything is encrypted; over RDMA
    /// that with which connections are set up, and not what the cards send.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// How workers wait for what clients send over TCP and RDMA.
    pub fn waiting(mut self, waiting: Waiting) -> Self {
        self.waiting = waiting;
        self
    }

    /// The network card to use for RDMA, by its name, instead of the one with the address listened at.
    pub fn rdma_device(mut self, name: &str) -> Self {
        self.rdma_device = Some(name.to_owned());
        self
    }

    /// Serves other machines in the clear, where anyone on the way can read and change everything.
    /// Without it TCP and RDMA need certificates for that.
    pub fn allow_plaintext(mut self, is_allowed: bool) -> Self {
        self.allow_plaintext = is_allowed;
        self
    }

    /// Worker threads at each address: they execute writes and the calls of clients, and READs where the
    /// fabric is TCP; other clients' READs need none.
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

    /// Bytes that the server's process may have, all together: leaves, trees, models and what clients have
    /// open. A table that would grow beyond refuses what it would grow for. A session that would be opened
    /// beyond is refused, but for a few that are always let in. Without it nine tenths of what the machine,
    /// or the process's control group, has left at the start.
    pub fn memory_limit_bytes(mut self, bytes: u64) -> Self {
        self.options.memory_limit_bytes = Some(bytes);
        self
    }

    /// Memory that the server takes at its start, on huge pages, instead of when it is first written. So many
    /// bytes of the first XStore table, of the second, and so on; at most all of each. So no write waits for
    /// the system.
    pub fn prefault(mut self, table_bytes: impl IntoIterator<Item = u64>) -> Self {
        self.options.prefault_bytes = table_bytes.into_iter().collect();
        self
    }

    /// How long a compute node may hold the lock of a ROLEX table's leaf that others wait for, before this
    /// node fences it: 10 ms to a minute. Over shared memory that ends a process which has stopped. Over
    /// networks it ends connections, which are made anew. Without it 5 s where there is shared memory, else
    /// 500 ms.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = Some(lease);
        self
    }

    /// The addresses by which clients reach the nodes of the server's pool, itself among them, in their
    /// order. Clients that know one of them learn the others. Called again it adds those of another fabric.
    /// Without it nodes are told by the client that makes the first table.
    pub fn pool(mut self, addresses: impl Into<Addresses>) -> Self {
        self.pools.push(addresses.into());
        self
    }

    /// Registers the server under its pool's name in an etcd, as long as it runs, and keeps the pool's map
    /// there. Clients find the pool by that name. Before the first table they wait for `nodes` nodes, 1 to
    /// 16, and those that came first are the pool.
    ///
    /// While etcd is away the pool goes on with the map that its nodes have. On another host it is reached
    /// unprotected, which [`ServerBuilder::allow_plaintext`] allows.
    pub fn cluster(mut self, name: ClusterUrl, nodes: u8) -> Self {
        self.cluster = Some((name, nodes));
        self
    }

    /// Keeps the tables in this directory, which belongs to one server at a time: a server that is started
    /// there later has them, with all that `ack` promises. Tables are of XStore then, or of XStore-D over
    /// nodes that have a directory each.
    pub fn data(mut self, directory: impl AsRef<Path>, ack: Ack) -> Self {
        self.data = Some((directory.as_ref().to_owned(), ack));
        self
    }

    /// Snapshots begin when the log has grown by so many bytes ([`ServerBuilder::data`]), and a restart may
    /// have to read as many. Default: 256 MiB.
    pub fn snapshot_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_bytes = Some(bytes);
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
    /// [`StartError`]: an address in use, a socket path too long or in no directory, an address that others
    /// can reach without protection, a number of workers that makes no sense.
    pub fn start(self) -> Result<Server, StartError> {
        self.start_reporting(|_| ControlFlow::Continue(()))
    }

    /// [`ServerBuilder::start`] that says how many bytes it has taken of those that it is to take first
    /// ([`ServerBuilder::prefault`]), and asks whether to go on.
    ///
    /// # Errors
    /// As [`ServerBuilder::start`]; [`StartError::Serve`] if it shall not go on.
    pub fn start_reporting(
        self,
        mut taken_bytes: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<Server, StartError> {
        let mut options = self.options.clone();
        options.memory_limit_bytes = options.memory_limit_bytes.or_else(process::default_memory_limit_bytes);
        if let Some((directory, ack)) = &self.data {
            let disk = RealDisk::make(directory).map_err(farsight_node::StartError::Data)?;
            let data = DataOptions::new(Arc::new(disk));
            let snapshot_bytes = self.snapshot_bytes.unwrap_or(data.snapshot_bytes);
            options.data = Some(DataOptions { ack: *ack, snapshot_bytes, ..data });
        }
        options.pool = pool_addresses(&self.pools)?;
        if self.cluster.is_some() && !self.pools.is_empty() {
            return Err(StartError::PoolAndCluster);
        }
        let is_durable = self.data.is_some();
        let etcd = EtcdOptions { allow_plaintext: self.allow_plaintext };
        let cluster = self.cluster.clone();
        let connect = self.connect_options();
        let pools = self.pools.clone();
        let listening = self.listen_at_all()?;
        options.read_only = why_read_only(listening.iter().map(|at| (&at.url, at.device.as_deref())));
        let (urls, listeners): (Vec<_>, _) = listening.into_iter().map(|at| (at.url, at.listener)).unzip();
        let handle = Node::start_reporting(listeners, &options, &mut taken_bytes)?;
        if let Some(warning) = why_not_of_pool(&urls, &pools) {
            report(warning);
        }
        let training = PoolTraining::of_own(urls[0].clone().into(), connect, handle.own_pool());
        let training = training.map_err(|source| {
            let thread = PoolTraining::THREAD.to_owned();
            farsight_node::StartError::Thread { thread, source }
        })?;
        let register = |(name, pool_nodes): (ClusterUrl, u8)| {
            Registering { name, etcd, urls: &urls, pool_nodes, is_durable }.start(handle.own_map())
        };
        let registered = cluster.map(register).transpose()?;
        Ok(Server { urls, registered, training, handle })
    }

    /// How this process reaches the server that it is.
    fn connect_options(&self) -> ConnectOptions {
        ConnectOptions {
            tls: self.tls.clone(),
            rdma_device: self.rdma_device.clone(),
            allow_plaintext: self.allow_plaintext,
            ..ConnectOptions::default()
        }
    }

    /// Worker threads at each address.
    pub(crate) fn workers_of_each(&self) -> usize {
        self.options.workers
    }

    pub(crate) fn listen_at_all(mut self) -> Result<Vec<Listening>, StartError> {
        if self.urls.is_empty() {
            self.urls.push(ServerUrl::shm(default_socket::make()?));
        }
        // The first listener creates the regions, and shared memory can serve none but its own.
        self.urls.sort_by_key(|url| !matches!(url, ServerUrl::Shm(_)));
        if let [first @ ServerUrl::Shm(_), second @ ServerUrl::Shm(_), ..] = &self.urls[..] {
            return Err(StartError::TwoSockets { first: first.clone(), second: second.clone() });
        }
        self.urls.iter().map(|url| self.listen_at(url)).collect()
    }

    fn listen_at(&self, url: &ServerUrl) -> Result<Listening, StartError> {
        let by_processor = |url, listener| Listening { url, listener, device: None };
        match url {
            ServerUrl::Shm(socket) => {
                let mut options = farsight_fabric_shm::ListenOptions::new(FORMAT_VERSION);
                options.opens_later = true;
                if let Some(allowed_uids) = &self.allowed_uids {
                    options.allowed_uids.clone_from(allowed_uids);
                }
                Ok(by_processor(url.clone(), Arc::new(ShmHost::listen(socket, options)?)))
            }
            ServerUrl::Tcp(endpoint) => {
                let mut options = farsight_fabric_tcp::ListenOptions::new(FORMAT_VERSION);
                options.opens_later = true;
                options.allow_plaintext = self.allow_plaintext;
                options.tls.clone_from(&self.tls);
                options.waiting = self.waiting;
                let host = TcpHost::listen(&endpoint.to_string(), &options)?;
                let endpoint = Endpoint { port: host.local_address().port(), ..endpoint.clone() };
                Ok(by_processor(ServerUrl::Tcp(endpoint), Arc::new(host)))
            }
            ServerUrl::Rdma(endpoint) => {
                let mut options = farsight_fabric_verbs::ListenOptions::new(FORMAT_VERSION);
                options.opens_later = true;
                options.device.clone_from(&self.rdma_device);
                options.allow_plaintext = self.allow_plaintext;
                options.tls.clone_from(&self.tls);
                options.waiting = self.waiting;
                let listening = farsight_fabric_verbs::VerbsHost::listen(&endpoint.to_string(), &options);
                let host = listening.map_err(|error| match error {
                    farsight_fabric_verbs::ListenError::Address(error) => StartError::Tcp(error),
                    farsight_fabric_verbs::ListenError::Device(error) => StartError::Fabric(error),
                })?;
                let endpoint = Endpoint { port: host.socket_address().port(), ..endpoint.clone() };
                let device = Some(host.device().to_owned());
                Ok(Listening { url: ServerUrl::Rdma(endpoint), listener: Arc::new(host), device })
            }
        }
    }
}

/// The addresses of a pool's nodes, of which each list has one of each.
fn pool_addresses(lists: &[Addresses]) -> Result<PoolAddresses, StartError> {
    let Some((first, others)) = lists.split_first() else { return Ok(PoolAddresses::default()) };
    let nodes = first.urls().len();
    if let Some(other) = others.iter().find(|other| other.urls().len() != nodes) {
        return Err(StartError::UnequalPools { first: first.clone(), second: other.clone() });
    }
    let node = |place: usize| lists.iter().map(|list| list.urls()[place].to_string()).collect();
    Ok(PoolAddresses((0..nodes).map(node).collect()))
}

/// Why clients would not find a node that listens at `urls` by what it was told of its pool's addresses. A
/// name may lead to any address, and another host's to this one.
fn why_not_of_pool(urls: &[ServerUrl], pools: &[Addresses]) -> Option<String> {
    let ip = |endpoint: &Endpoint| endpoint.host.parse::<IpAddr>().ok();
    let may_lead = |told: &Endpoint, own: &Endpoint| {
        let is_other =
            matches!((ip(told), ip(own)), (Some(told), Some(own)) if told != own && !own.is_unspecified());
        told.port == own.port && !is_other
    };
    let is_own = |told: &ServerUrl| {
        urls.iter().any(|own| match (told, own) {
            (ServerUrl::Tcp(told), ServerUrl::Tcp(own)) | (ServerUrl::Rdma(told), ServerUrl::Rdma(own)) => {
                may_lead(told, own)
            }
            (told, own) => told == own,
        })
    };
    if pools.is_empty() || pools.iter().flat_map(Addresses::urls).any(is_own) {
        return None;
    }
    let shown = |urls: &[ServerUrl]| urls.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let told = pools.iter().map(|pool| shown(pool.urls())).collect::<Vec<_>>().join(", ");
    Some(format!(
        "this node listens at {}, and its pool's nodes are said to be at {told}: clients find it only if one of these \
         leads here. Give all nodes the addresses of all (--pool)",
        shown(urls)
    ))
}

/// Why clients cannot write this node's memory one-sided, if they cannot: their atomics must see each other.
/// Two devices may be ports of one card whose atomics do; that cannot be told from here.
fn why_read_only<'a>(addresses: impl Iterator<Item = (&'a ServerUrl, Option<&'a str>)>) -> Option<String> {
    let addresses: Vec<_> = addresses.collect();
    let (rdma, device) = addresses.iter().find_map(|(url, device)| Some((url, (*device)?)))?;
    let (other, other_device) = addresses.iter().find(|(_, other)| *other != Some(device))?;
    Some(match other_device {
        None => format!(
            "atomics of network cards and of processors do not see each other, and this node listens at {rdma} and \
             {other}. Let it listen at rdma:// addresses alone, or at none"
        ),
        Some(other_device) => format!(
            "atomics of different cards do not exclude each other, and this node listens at {rdma} of {device} and \
             {other} of {other_device}. Let it listen at addresses of one card, or name it: --rdma-device {device}"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_none_of_its_pool_is_told_so() {
        let urls = |texts: &[&str]| -> Vec<ServerUrl> {
            texts.iter().map(|text| text.parse().expect("a well-formed address")).collect()
        };
        let why = |own: &[&str], pools: &[&[&str]]| {
            let pools: Vec<_> = pools.iter().map(|pool| Addresses::new(urls(pool))).collect();
            why_not_of_pool(&urls(own), &pools)
        };
        let own = ["shm:///run/a", "tcp://10.0.0.1:7474"];
        assert_eq!(why(&own, &[]), None, "it was told nothing");
        for pool in ["shm:///run/a", "tcp://10.0.0.1:7474", "tcp://a.example:7474"] {
            assert_eq!(why(&own, &[&["tcp://10.0.0.9:1", pool]]), None, "{pool}");
            assert_eq!(why(&own, &[&["tcp://10.0.0.9:1"], &[pool]]), None, "{pool}");
        }
        assert_eq!(why(&["tcp://0.0.0.0:7474"], &[&["tcp://10.0.0.1:7474"]]), None);
        assert_eq!(why(&["tcp://a.example:7474"], &[&["tcp://10.0.0.1:7474"]]), None);
        for pool in [
            "shm:///run/b",
            "tcp://10.0.0.1:7475",
            "tcp://10.0.0.2:7474",
            "tcp://a.example:1",
            "rdma://10.0.0.1:7474",
        ] {
            let text = why(&own, &[&[pool]]).expect(pool);
            for part in [pool, own[0], own[1], "--pool"] {
                assert!(text.contains(part), "{text:?} lacks {part:?}");
            }
        }
    }

    #[test]
    fn tables_that_clients_write_want_one_card_or_none() {
        let [one, two, three] = [1, 2, 3].map(|host| {
            format!("rdma://10.0.0.{host}:7474").parse::<ServerUrl>().expect("a well-formed address")
        });
        let tcp: ServerUrl = "tcp://10.0.0.1:7474".parse().expect("a well-formed address");
        let why = |addresses: &[(&ServerUrl, Option<&str>)]| why_read_only(addresses.iter().copied());
        assert_eq!(why(&[(&tcp, None), (&tcp, None)]), None);
        assert_eq!(why(&[(&one, Some("mlx5_0")), (&two, Some("mlx5_0"))]), None);
        let cards = [(&one, Some("mlx5_0")), (&two, Some("mlx5_0")), (&three, Some("mlx5_1"))];
        let text = why(&cards).expect("two cards");
        for word in
            ["rdma://10.0.0.1:7474 of mlx5_0", "rdma://10.0.0.3:7474 of mlx5_1", "--rdma-device mlx5_0"]
        {
            assert!(text.contains(word), "{text:?} lacks {word:?}");
        }
        let text = why(&[(&tcp, None), (&one, Some("mlx5_0"))]).expect("processors and a card");
        assert!(text.contains("rdma://10.0.0.1:7474 and tcp://10.0.0.1:7474"), "{text}");
    }
}
