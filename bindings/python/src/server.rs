//! A server inside the Python process.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::error;

/// A server with threads of its own.
#[pyclass(frozen)]
pub(crate) struct Server {
    urls: Vec<String>,
    /// `None` once it was stopped.
    running: std::sync::Mutex<Option<farsight::Server>>,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (socket, workers, table_memory_bytes, listen, allow_plaintext))]
    fn new(
        py: Python<'_>,
        socket: Option<PathBuf>,
        workers: Option<usize>,
        table_memory_bytes: Option<u64>,
        listen: Vec<String>,
        allow_plaintext: bool,
    ) -> PyResult<Self> {
        let mut builder = farsight::Server::builder().allow_plaintext(allow_plaintext);
        for url in listen {
            builder = builder.listen(url.parse().map_err(|error| error::address(&error))?);
        }
        if let Some(socket) = socket {
            builder = builder.socket(socket);
        }
        if let Some(workers) = workers {
            builder = builder.workers(workers);
        }
        if let Some(bytes) = table_memory_bytes {
            builder = builder.table_memory_bytes(bytes);
        }
        let server = py.detach(|| builder.start()).map_err(|error| error::starting(&error))?;
        let urls = server.urls().iter().map(ToString::to_string).collect();
        Ok(Self { urls, running: std::sync::Mutex::new(Some(server)) })
    }

    /// All addresses, the best first.
    #[getter]
    fn urls(&self) -> Vec<String> {
        self.urls.clone()
    }

    /// Stops it; nothing if it is stopped.
    fn shutdown(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let running = self.running.lock().expect("no holder of the lock panics").take();
            running.map_or(Ok(()), farsight::Server::shutdown)
        })
        .map_err(|error| error::Error::new_err(error.to_string()))
    }
}
