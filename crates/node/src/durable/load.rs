//! A bulk load of a table that a log keeps: its pairs are a snapshot before they are visible.

use std::sync::Arc;

use farsight_durability::SnapshotWriter;
use farsight_protocol::{ErrorCode, ServerError};

use super::{Durable, refused};
use crate::Failure;
use crate::bulk_load::Loader;
use crate::logged::VersionedLoad;

/// The load. Its pairs have the versions behind those that the table gave before it.
pub(super) struct LoggedLoad {
    durable: Arc<Durable>,
    failure: Arc<Failure>,
    table: u32,
    load: Box<dyn VersionedLoad>,
    snapshot: SnapshotWriter,
    version: u64,
}

impl LoggedLoad {
    /// A load of the table of this number, whose greatest version is `version`.
    pub(super) fn begin(
        durable: Arc<Durable>,
        failure: Arc<Failure>,
        table: u32,
        load: Box<dyn VersionedLoad>,
        version: u64,
    ) -> Result<Self, ServerError> {
        let snapshot = durable.begin_snapshot(table).map_err(|error| refused(&error))?;
        Ok(Self { durable, failure, table, load, snapshot, version })
    }
}

impl Loader for LoggedLoad {
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), ServerError> {
        self.version += 1;
        self.load.push(key, self.version, value)?;
        self.snapshot.push(self.version, &key.to_le_bytes(), value).map_err(|error| refused(&error))
    }

    /// The table is empty, and what the log says of it so far is that. So the pairs are a snapshot of it at
    /// the log's end. Nobody sees it named and the pairs not: a snapshot that began there would lack them.
    fn finish(self) -> Result<u64, ServerError> {
        let Self { durable, failure, table, load, snapshot, version } = self;
        let mut name = snapshot.finish(durable.position(), version).map_err(|error| refused(&error))?;
        let mut store = durable.store();
        let former = store.snapshot_of(table);
        // A snapshot of the empty table may have been named since, of a later position.
        name.position = former.map_or(name.position, |former| former.position.max(name.position));
        store.name_snapshot(table, former, name).map_err(|error| refused(&error))?;
        load.finish().map_err(|error| {
            // It is durable: a restart shows it.
            failure.record("a bulk load", &error.to_string());
            ServerError::new(ErrorCode::Bug, error.text)
        })
    }
}
