//! Servers inside the Python process.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use farsight::{Ack, Addresses, ClusterUrl, ConnectOptions, PoolTraining, ServerBuilder, ServerUrl};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;

/// A server, alone or a node of a pool, with threads of its own.
#[pyclass(frozen)]
pub(crate) struct Server {
    urls: Vec<String>,
    connect: ConnectOptions,
    /// `None` once it was stopped. What trains goes before the server does.
    running: Mutex<Option<(Vec<PoolTraining>, farsight::Server)>>,
}

/// What is said of a server in numbers.
struct Limits {
    workers: Option<usize>,
    table_memory_bytes: Option<u64>,
    memory_limit_bytes: Option<u64>,
}

/// Which pool a server is a node of.
struct Membership {
    /// The addresses of its nodes, a list for each fabric.
    pool: Vec<String>,
    /// Its name in etcd, and how many nodes it has.
    cluster: Option<(String, u8)>,
}

fn builder(
    socket: Option<PathBuf>,
    limits: &Limits,
    data: Option<(PathBuf, &str)>,
    listen: Vec<String>,
    allow_plaintext: bool,
    membership: Membership,
) -> PyResult<ServerBuilder> {
    let mut builder = farsight::Server::builder().allow_plaintext(allow_plaintext);
    for addresses in membership.pool {
        builder = builder.pool(addresses.parse::<Addresses>().map_err(|error| error::address(&error))?);
    }
    if let Some((name, nodes)) = membership.cluster {
        let name: ClusterUrl = name.parse().map_err(|error| error::cluster(&error))?;
        builder = builder.cluster(name, nodes);
    }
    for url in listen {
        builder = builder.listen(url.parse().map_err(|error| error::address(&error))?);
    }
    if let Some(socket) = socket {
        builder = builder.socket(socket);
    }
    if let Some(workers) = limits.workers {
        builder = builder.workers(workers);
    }
    if let Some(bytes) = limits.table_memory_bytes {
        builder = builder.table_memory_bytes(bytes);
    }
    if let Some(bytes) = limits.memory_limit_bytes {
        builder = builder.memory_limit_bytes(bytes);
    }
    if let Some((directory, ack)) = data {
        builder = builder.data(directory, ack_of(ack)?);
    }
    Ok(builder)
}

pub(crate) fn ack_of(name: &str) -> PyResult<Ack> {
    match name {
        "durable" => Ok(Ack::Durable),
        "memory" => Ok(Ack::Memory),
        _ => Err(PyValueError::new_err(format!("ack is \"durable\" or \"memory\", got {name:?}"))),
    }
}

fn texts(urls: &[ServerUrl]) -> Vec<String> {
    urls.iter().map(ToString::to_string).collect()
}

fn stopped(result: Result<(), farsight::ShutdownError>) -> PyResult<()> {
    result.map_err(|error| error::Error::new_err(error.to_string()))
}

#[pymethods]
impl Server {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "what a server is, as the package has it")]
    fn new(
        py: Python<'_>,
        socket: Option<PathBuf>,
        workers: Option<usize>,
        table_memory_bytes: Option<u64>,
        memory_limit_bytes: Option<u64>,
        data: Option<PathBuf>,
        ack: &str,
        listen: Vec<String>,
        allow_plaintext: bool,
        pool: Vec<String>,
        cluster: Option<(String, u8)>,
    ) -> PyResult<Self> {
        let limits = Limits { workers, table_memory_bytes, memory_limit_bytes };
        let data = data.map(|directory| (directory, ack));
        let builder = builder(socket, &limits, data, listen, allow_plaintext, Membership { pool, cluster })?;
        let server = py.detach(|| builder.start()).map_err(|error| error::starting(&error))?;
        let connect = ConnectOptions { allow_plaintext, ..ConnectOptions::default() };
        Ok(Self { urls: texts(server.urls()), connect, running: Mutex::new(Some((Vec::new(), server))) })
    }

    /// All addresses, the best first.
    #[getter]
    fn urls(&self) -> Vec<String> {
        self.urls.clone()
    }

    /// Trains the tables of the pool at these addresses, on a thread that ends with the server.
    fn train(&self, pool: &str) -> PyResult<()> {
        let pool: Addresses = pool.parse().map_err(|error| error::address(&error))?;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((trainings, _)) = running.as_mut() else {
            return Err(error::ConnectError::new_err(format!("the server at {} is stopped", self.urls[0])));
        };
        trainings.push(PoolTraining::start(pool, self.connect.clone())?);
        Ok(())
    }

    /// Stops it; nothing if it is stopped.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        stopped(py.detach(|| {
            let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
            running.map_or(Ok(()), |(trainings, server)| {
                drop(trainings);
                server.shutdown()
            })
        }))
    }
}
