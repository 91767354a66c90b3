//! A bulk load of a table that a log keeps: its pairs are a snapshot before they are visible.

use std::sync::Arc;

use farsight_durability::SnapshotWriter;
use farsight_fabric::Reserved;
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
    ) -> Self {
        let snapshot = durable.begin_snapshot(table, 0, durable.piece_bytes);
        Self { durable, failure, table, load, snapshot, version }
    }
}

impl Loader for LoggedLoad {
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), ServerError> {
        self.version += 1;
        self.load.push(key, self.version, value)?;
        let take_number = || self.durable.store().take_snapshot_number();
        self.snapshot.push(take_number, self.version, key, value).map_err(|error| refused(&error))
    }

    fn set_aside(&self, value_bytes: u64) -> Result<Option<Reserved>, ServerError> {
        self.load.set_aside(value_bytes)
    }

    /// The table is empty, and what the log says of it so far is that. So the pairs are a snapshot of it at
    /// the log's end. Nobody sees it named and the pairs not: a snapshot that began there would lack them.
    fn finish(self) -> Result<u64, ServerError> {
        let Self { durable, failure, table, load, snapshot, version } = self;
        let take_number = || durable.store().take_snapshot_number();
        let pieces = snapshot.finish(take_number, durable.position(), version);
        let mut pieces = pieces.map_err(|error| refused(&error))?;
        let mut store = durable.store();
        let former = store.pieces_of(table).to_vec();
        // A snapshot of the empty table may have been named since, of a later position.
        let newest = former.iter().map(|piece| piece.position).max().unwrap_or_default();
        for piece in &mut pieces {
            piece.position = piece.position.max(newest);
        }
        durable.name_pieces(&mut store, table, &former, &pieces).map_err(|error| refused(&error))?;
        load.finish().map_err(|error| {
            // It is durable: a restart shows it.
            failure.record("a bulk load", &error.to_string());
            ServerError::new(ErrorCode::Bug, error.text)
        })
    }
}
