//! A server process, a loaded table there, and the memory that both sides take.

use std::time::Duration;

use farsight::{Access, Client, ConnectOptions, Options, Session, Table};
use farsight_oracles::Identity;

use super::CacheFiller;
use crate::driver::load::rest;
use crate::driver::server_process::ServerProcess;
use crate::driver::{Age, Cancellation, DriverError, ServerCommand, Values};
use crate::machine::ResidentMemory;
use crate::report::ChangeMemory;

/// Bytes of a value.
pub(super) const VALUE_BYTES: usize = 8;
/// The client searches.
pub(super) const OPTIONS: Options = Options { access: Access::OneSided };

/// A table on a server of its own.
pub(super) struct ChangeBed {
    client: Client,
    table: Table<u64>,
    server_process_id: u32,
    /// Memory of the server before it had a table.
    empty_server_bytes: u64,
    // Behind the client, whose calls it answers.
    server: ServerProcess,
}

impl ChangeBed {
    /// Starts a server and loads `keys`, each with its first value; returns when the server is idle.
    pub(super) fn new(
        command: &ServerCommand,
        keys: &[Identity],
        cancellation: &Cancellation,
    ) -> Result<Self, DriverError> {
        let server = ServerProcess::start(command, None)?;
        // Nothing that was measured before would belong to a server that was started again.
        let options = ConnectOptions { reconnect_timeout: Duration::ZERO, ..ConnectOptions::default() };
        let client = Client::connect_with(server.url(), &options)?;
        let server_process_id = client.stats()?.process_id;
        let empty_server_bytes = ResidentMemory::of(server_process_id)?.all_bytes();
        let table = client.create_table::<u64>("change", VALUE_BYTES)?;
        Age::Fresh.fill((&table, Values::fixed(VALUE_BYTES)), OPTIONS, keys, cancellation)?;
        rest(&client, table.name(), Some(server_process_id), cancellation)?;
        Ok(Self { client, table, server_process_id, empty_server_bytes, server })
    }

    pub(super) fn session(&self) -> Result<Session<u64>, DriverError> {
        Ok(self.table.session(OPTIONS)?)
    }

    /// Bytes a key by which a new process grows that fills a cache.
    pub(super) fn process_bytes_per_key(&self, filler: &CacheFiller) -> Result<f64, DriverError> {
        let bytes = filler.measure(self.server.url(), self.table.name())?;
        Ok(bytes as f64 / self.memory()?.pairs.max(1) as f64)
    }

    /// What table and cache take now.
    pub(super) fn memory(&self) -> Result<ChangeMemory, DriverError> {
        let tables = self.client.stats()?.tables;
        let own = tables.iter().find(|table| table.info.definition.name == self.table.name());
        let own = own.expect("this run's table");
        let (tree, model) = (own.part().tree, own.part().model);
        let cache = self.table.cache_stats();
        let server = ResidentMemory::of(self.server_process_id)?;
        Ok(ChangeMemory {
            pairs: tree.pairs,
            leaves: tree.leaves,
            pending: model.pending,
            table_bytes: own.used_bytes(),
            server_bytes: server.all_bytes().saturating_sub(self.empty_server_bytes),
            cache_bytes: cache.model_bytes + cache.table_bytes,
        })
    }
}
