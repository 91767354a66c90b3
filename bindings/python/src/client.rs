//! A connection.

use std::sync::{Mutex, PoisonError};

use farsight::{Addresses, ConnectOptions, EngineKind, KeyKind, TableInfo, UnknownEngine};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;
use crate::keys::ByteKeys;
use crate::server::ack_of;
use crate::table::{Table, copied};
use crate::typed_table::{self, Operations, Sizes};

/// A client of one server or pool, until it is closed.
#[pyclass(frozen)]
pub(crate) struct Client {
    url: String,
    open: Mutex<Option<farsight::Client>>,
}

/// Connects to the server at `url`, or to the memory nodes of a pool, with commas between.
#[pyfunction]
pub(crate) fn connect(
    py: Python<'_>,
    url: String,
    allow_plaintext: bool,
    server_uids: Vec<u32>,
) -> PyResult<Client> {
    let options = ConnectOptions { allow_plaintext, server_uids, ..ConnectOptions::default() };
    let addresses: Addresses = url.parse().map_err(|error| error::address(&error))?;
    let connected = py.detach(|| farsight::Client::connect_with(&addresses, &options));
    let client = connected.map_err(|error| error::connecting(&error))?;
    Ok(Client { url, open: Mutex::new(Some(client)) })
}

/// A table's name, the kind of its keys, bytes of its values, their type, and whether they have any length.
type TableRow = (String, String, usize, String, bool);

#[pymethods]
impl Client {
    #[getter]
    fn url(&self) -> &str {
        &self.url
    }

    /// Makes a table, or opens the one of the same definition. `sample` has the bits of keys. Values have so
    /// many bytes each, or any number up to that, perhaps of pairs that end after so many milliseconds.
    #[expect(clippy::too_many_arguments, reason = "what a table is, as the package has it")]
    fn create_table(
        &self,
        py: Python<'_>,
        name: &str,
        kind: &str,
        values: (usize, bool, Option<u64>),
        engine: Option<&str>,
        sample: &Bound<'_, PyAny>,
        value_type: &str,
        memory_bytes: Option<u64>,
        ack: Option<&str>,
        replicas: Option<u8>,
    ) -> PyResult<Table> {
        let client = self.client()?;
        let engine = engine.map(engine_of).transpose()?;
        let sample = copied::<u64>(py, sample)?;
        let ack = ack.map(ack_of).transpose()?;
        let create = match kind {
            "u64" => typed_table::create::<u64>,
            "i64" => typed_table::create::<i64>,
            "f64" => typed_table::create::<f64>,
            "bytes8" => typed_table::create::<[u8; 8]>,
            "bytes" | "str" => typed_table::create::<[u8]>,
            _ => return Err(PyValueError::new_err(format!("no such kind of keys: {kind:?}"))),
        };
        let (value_bytes, has_blocks, ttl_ms) = values;
        let sizes = if has_blocks { Sizes::UpTo(value_bytes, ttl_ms) } else { Sizes::Each(value_bytes) };
        let more = (memory_bytes, ack, replicas);
        let byte_keys = matches!(kind, "bytes" | "str").then(|| ByteKeys::named(Some(kind))).transpose()?;
        opened(py.detach(|| create(&client, name, sizes, engine, &sample, value_type, more)), byte_keys)
    }

    /// Opens a table, whatever its keys are. `keys` says what it takes for those of any length.
    fn table(&self, py: Python<'_>, name: &str, keys: Option<&str>) -> PyResult<Table> {
        let client = self.client()?;
        let info = py.detach(|| client.describe_table(name)).map_err(|error| error::catalogue(&error))?;
        let open = match info.definition.key_kind {
            KeyKind::U64 => typed_table::open::<u64>,
            KeyKind::I64 => typed_table::open::<i64>,
            KeyKind::F64 => typed_table::open::<f64>,
            KeyKind::Bytes8 => typed_table::open::<[u8; 8]>,
            KeyKind::Bytes => typed_table::open::<[u8]>,
        };
        let has_byte_keys = info.definition.key_kind == KeyKind::Bytes;
        let byte_keys = has_byte_keys.then(|| ByteKeys::named(keys)).transpose()?;
        opened(py.detach(|| open(&client, name)), byte_keys)
    }

    /// Name, kind of keys, bytes of a value, or of the longest, the name of their type, and whether they have
    /// any length, of each table.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<TableRow>> {
        let client = self.client()?;
        let tables = py.detach(|| client.tables()).map_err(|error| error::catalogue(&error))?;
        let row = |info: TableInfo| {
            let definition = info.definition;
            let kind = definition.key_kind.to_string();
            let values = definition.values;
            (definition.name, kind, values.bytes_max(), definition.value_type, values.are_blocks())
        };
        Ok(tables.into_iter().map(row).collect())
    }

    /// Drops a table.
    fn drop_table(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let client = self.client()?;
        py.detach(|| client.drop_table(name)).map_err(|error| error::catalogue(&error))
    }

    /// Gives a table another name.
    fn rename_table(&self, py: Python<'_>, old: &str, new: &str) -> PyResult<()> {
        let client = self.client()?;
        py.detach(|| client.rename_table(old, new)).map_err(|error| error::catalogue(&error))
    }

    /// Lets two tables exchange their names.
    fn swap_tables(&self, py: Python<'_>, first: &str, second: &str) -> PyResult<()> {
        let client = self.client()?;
        py.detach(|| client.swap_tables(first, second)).map_err(|error| error::catalogue(&error))
    }

    /// The statistics as JSON: a list of those of each node, the coordinator first.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let client = self.client()?;
        let nodes = py.detach(|| client.node_stats()).map_err(|error| error::catalogue(&error))?;
        serde_json::to_string(&nodes).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Makes a snapshot of each table in the server's directory, and waits until they are durable.
    fn snapshot(&self, py: Python<'_>) -> PyResult<()> {
        let client = self.client()?;
        py.detach(|| client.snapshot()).map_err(|error| error::catalogue(&error))
    }

    /// Ends the connection, once the last table of it is gone too.
    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.open.lock().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

impl Client {
    fn client(&self) -> PyResult<farsight::Client> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.clone()
            .ok_or_else(|| error::ConnectError::new_err(format!("the client of {} is closed", self.url)))
    }
}

fn engine_of(name: &str) -> PyResult<&'static EngineKind> {
    EngineKind::named(name).map_err(|error: UnknownEngine| PyValueError::new_err(error.to_string()))
}

fn opened(
    result: Result<Box<dyn Operations>, farsight::TableError>,
    byte_keys: Option<ByteKeys>,
) -> PyResult<Table> {
    let operations = result.map_err(|error| error::table(&error))?;
    Ok(Table::new(operations, byte_keys))
}
