//! A load of ascending pairs into a ROLEX table that never held any.
//!
//! Invariant: its leaves are in no chain before the end, so the table shows none of its pairs
//! until then, and then all at once. It belongs to one epoch of every node and ends with that.

use std::sync::Arc;

use farsight_fabric::{Connection, QueuePair};
use farsight_index::EngineError;
use farsight_index_rolex::{BulkLoadError, BulkLoader, CoordinatorLines, RolexError, Trainer};
use farsight_protocol::{ErrorCode, ServerError, TableInfo};

use super::{meta_lines, session};
use crate::backend::Backend;
use crate::bulk_load::Load;
use crate::nodes::{Known, Nodes};
use crate::{CatalogueError, LoadError};

/// Leaves that a load asks a node for at once: the most that one call gives.
const CHUNK_LEAVES: u32 = 1024;

/// A load under way. Dropped before its end, it leaves the table empty.
pub(crate) struct RolexBulkLoad<Q> {
    queues: Vec<Q>,
    table: Arc<TableInfo>,
    loader: BulkLoader,
    trainer: Trainer,
    source: CoordinatorLines,
    /// The queue pairs end with it.
    _backend: Arc<dyn Backend>,
}

impl<Q: QueuePair> RolexBulkLoad<Q> {
    pub(crate) fn new<C: Connection<Queue = Q>>(
        nodes: &Arc<Nodes<C>>,
        known: &Known<C>,
    ) -> Result<Self, CatalogueError> {
        let session = || session(nodes, known, CHUNK_LEAVES);
        let [loader, trainer] = [session()?, session()?];
        let (queues, backend) = (nodes.queues(known)?, Arc::clone(nodes));
        Ok(Self {
            queues,
            loader: BulkLoader::new(loader),
            trainer: Trainer::new(trainer),
            source: CoordinatorLines::new(known.info.id, meta_lines(&known.infos[0])),
            table: Arc::clone(&known.info),
            _backend: backend,
        })
    }
}

impl<Q: QueuePair + Send> Load for RolexBulkLoad<Q> {
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        let Self { queues, table, loader, .. } = self;
        loader.push(queues, key, value).map_err(|error| failed(table, loader.pairs(), error))
    }

    fn finish(self: Box<Self>) -> Result<(), LoadError> {
        let Self { mut queues, table, loader, mut trainer, source, _backend } = *self;
        let pairs = loader.pairs();
        let loaded = loader.finish(&mut queues, &mut trainer, &source);
        loaded.map(drop).map_err(|error| failed(&table, pairs, error))
    }
}

/// A load's error, as loads of servers have it.
fn failed(table: &TableInfo, pairs: u64, error: BulkLoadError) -> LoadError {
    let table = table.definition.name.clone();
    match error {
        BulkLoadError::NotEmpty => LoadError::Used { table },
        BulkLoadError::Full { .. } => {
            LoadError::Refused { table, source: ServerError::new(ErrorCode::RegionFull, error.to_string()) }
        }
        BulkLoadError::Session(RolexError::Fabric(source)) => LoadError::Fabric { table, pairs, source },
        BulkLoadError::Session(source) => {
            LoadError::Engine { table, pairs, source: Box::new(EngineError::from(source)) }
        }
        BulkLoadError::Directory(source) => LoadError::Directory { table, pairs, source },
    }
}
