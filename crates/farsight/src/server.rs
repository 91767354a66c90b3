//! A server inside the calling process.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use farsight_fabric::{FabricError, Listener};
use farsight_fabric_shm::ShmHost;
use farsight_fabric_tcp::{TcpHost, Tls, Waiting};
use farsight_layout::FORMAT_VERSION;
use farsight_memory_node::MemoryNodeOptions;
use farsight_protocol::ServerStats;
use farsight_server::{ServerHandle, ServerOptions, ShutdownError};

use crate::{DefaultSocketError, Endpoint, MemoryNode, NotBuilt, ServerUrl, default_socket};

/// A running server, with threads of its own. Dropping it stops it, and its tables are gone: they are memory.
pub struct Server {
    urls: Vec<ServerUrl>,
    handle: ServerHandle,
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
    options: ServerOptions,
    lease: Option<Duration>,
}

/// What listens at one address.
struct Listening {
    url: ServerUrl,
    listener: Arc<dyn Listener>,
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
    /// A memory node over RDMA and something else: atomics of network cards and processors do not see each
    /// other.
    #[error("a memory node at an rdma:// address has no other: not {other} beside {rdma}")]
    MixedAtomics {
        /// The one over RDMA.
        rdma: ServerUrl,
        /// Another.
        other: ServerUrl,
    },
    /// A memory node over RDMA by two network cards: atomics of different cards do not exclude each other.
    #[error(
        "a memory node's rdma:// addresses are of one network card: not {} of {} and {} of {}. Listen at addresses of \
         one of them, or name it: --rdma-device {}",
        first.0, first.1, second.0, second.1, first.1
    )]
    SeveralCards {
        /// One address, and its device.
        first: Box<(ServerUrl, String)>,
        /// Another, and its device.
        second: Box<(ServerUrl, String)>,
    },
    /// It cannot serve over RDMA.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// A fabric that this program does not contain.
    #[error(transparent)]
    NotBuilt(#[from] NotBuilt),
    /// Its threads cannot be started.
    #[error(transparent)]
    Serve(#[from] farsight_server::StartError),
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
            options: ServerOptions::default(),
            lease: None,
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

    /// Memory that the server takes at its start, on huge pages, instead of when it is first written. It
    /// takes so many bytes of the table made first, of the second, and so on, at most all of each. So no
    /// write waits for the system. Memory nodes take none.
    pub fn prefault(mut self, table_bytes: impl IntoIterator<Item = u64>) -> Self {
        self.options.prefault_bytes = table_bytes.into_iter().collect();
        self
    }

    /// How long a compute node may hold the lock of a leaf that others wait for, before a memory node fences
    /// it: 10 ms to a minute. Over shared memory that ends a process which has stopped; over networks it ends
    /// connections, which are made anew. Without it 5 s where there is shared memory, else 500 ms. Servers
    /// have no such locks.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = Some(lease);
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
        let options = self.options.clone();
        // At several cards, too: nothing that a server serves is changed by atomics, or by clients at all.
        let (urls, listeners) = apart(self.listen_at_all()?);
        let handle = farsight_server::Server::start_reporting(listeners, &options, &mut taken_bytes)?;
        Ok(Server { urls, handle })
    }

    /// Starts a memory node of a pool instead of a server, with the same settings. Compute nodes name it in
    /// their list of addresses ([`Addresses`](crate::Addresses)).
    ///
    /// # Errors
    /// As [`ServerBuilder::start`]; [`StartError::MixedAtomics`], [`StartError::SeveralCards`].
    pub fn start_memory_node(self) -> Result<MemoryNode, StartError> {
        let is_rdma = |url: &&ServerUrl| matches!(url, ServerUrl::Rdma(_));
        if let (Some(rdma), Some(other)) =
            (self.urls.iter().find(is_rdma), self.urls.iter().find(|url| !is_rdma(url)))
        {
            return Err(StartError::MixedAtomics { rdma: rdma.clone(), other: other.clone() });
        }
        let options = MemoryNodeOptions {
            workers: self.options.workers,
            table_memory_bytes: self.options.table_memory_bytes,
            lease: self.lease,
        };
        let listening = self.listen_at_all()?;
        check_one_card(listening.iter().filter_map(|at| Some((&at.url, at.device.as_deref()?))))?;
        let (urls, listeners) = apart(listening);
        Ok(MemoryNode::new(urls, farsight_memory_node::MemoryNode::start(listeners, &options)?))
    }

    fn listen_at_all(mut self) -> Result<Vec<Listening>, StartError> {
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
                if let Some(allowed_uids) = &self.allowed_uids {
                    options.allowed_uids.clone_from(allowed_uids);
                }
                Ok(by_processor(url.clone(), Arc::new(ShmHost::listen(socket, options)?)))
            }
            ServerUrl::Tcp(endpoint) => {
                let mut options = farsight_fabric_tcp::ListenOptions::new(FORMAT_VERSION);
                options.allow_plaintext = self.allow_plaintext;
                options.tls.clone_from(&self.tls);
                options.waiting = self.waiting;
                let host = TcpHost::listen(&endpoint.to_string(), &options)?;
                let endpoint = Endpoint { port: host.local_address().port(), ..endpoint.clone() };
                Ok(by_processor(ServerUrl::Tcp(endpoint), Arc::new(host)))
            }
            #[cfg(feature = "verbs")]
            ServerUrl::Rdma(endpoint) => {
                let mut options = farsight_fabric_verbs::ListenOptions::new(FORMAT_VERSION);
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
            #[cfg(not(feature = "verbs"))]
            ServerUrl::Rdma(_) => Err(NotBuilt { url: url.clone() }.into()),
        }
    }
}

fn apart(listening: Vec<Listening>) -> (Vec<ServerUrl>, Vec<Arc<dyn Listener>>) {
    listening.into_iter().map(|at| (at.url, at.listener)).unzip()
}

/// Fails unless all these addresses, each with its device, are of one network card. Two devices may be
/// ports of one card whose atomics exclude each other all the same; that cannot be told from here.
fn check_one_card<'a>(
    mut addresses: impl Iterator<Item = (&'a ServerUrl, &'a str)>,
) -> Result<(), StartError> {
    let Some((first, first_device)) = addresses.next() else { return Ok(()) };
    let Some((second, second_device)) = addresses.find(|(_, device)| *device != first_device) else {
        return Ok(());
    };
    let boxed = |url: &ServerUrl, device: &str| Box::new((url.clone(), device.to_owned()));
    Err(StartError::SeveralCards { first: boxed(first, first_device), second: boxed(second, second_device) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_node_has_one_card() {
        let [one, two, three] = [1, 2, 3].map(|host| {
            format!("rdma://10.0.0.{host}:7474").parse::<ServerUrl>().expect("a well-formed address")
        });
        let check = |addresses: &[(&ServerUrl, &str)]| check_one_card(addresses.iter().copied());
        assert!(check(&[]).is_ok());
        assert!(check(&[(&one, "mlx5_0"), (&two, "mlx5_0")]).is_ok());
        let error = check(&[(&one, "mlx5_0"), (&two, "mlx5_0"), (&three, "mlx5_1")]).unwrap_err().to_string();
        for word in
            ["rdma://10.0.0.1:7474 of mlx5_0", "rdma://10.0.0.3:7474 of mlx5_1", "--rdma-device mlx5_0"]
        {
            assert!(error.contains(word), "{error:?} lacks {word:?}");
        }
    }
}
