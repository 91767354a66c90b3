//! A server inside the Python process.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::error;

/// A server with threads of its own.
#[pyclass(frozen)]
pub(crate) struct Server {
    url: String,
    /// `None` once it was stopped.
    running: std::sync::Mutex<Option<farsight::Server>>,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (socket=None, workers=None, table_memory_bytes=None))]
    fn new(
        py: Python<'_>,
        socket: Option<PathBuf>,
        workers: Option<usize>,
        table_memory_bytes: Option<u64>,
    ) -> PyResult<Self> {
        let mut builder = farsight::Server::builder();
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
        Ok(Self { url: server.url().to_string(), running: std::sync::Mutex::new(Some(server)) })
    }

    #[getter]
    fn url(&self) -> &str {
        &self.url
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
