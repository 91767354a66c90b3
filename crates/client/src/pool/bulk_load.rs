//! A load of ascending pairs into a ROLEX table that never held any.
//!
//! Invariant: its leaves are in no chain before [`RolexBulkLoad::finish`], so the table shows none of its
//! pairs until then, and then all at once. It belongs to one life of every node and ends with that.

use farsight_fabric::Connection;
use farsight_index_rolex::{BulkLoadError, BulkLoader, HomeLines, RolexError, Trainer};
use farsight_protocol::{ErrorCode, ServerError};

use super::{Nodes, rolex};
use crate::table::Place;
use crate::{CatalogueError, EngineError, LoadError};

/// Leaves that a load asks a node for at once: the most that one call gives.
const CHUNK_LEAVES: u32 = 1024;

/// A load under way. Dropped before [`RolexBulkLoad::finish`], it leaves the table empty.
pub(crate) struct RolexBulkLoad<C: Connection + 'static> {
    place: Place<Nodes<C>>,
    loader: BulkLoader,
    trainer: Trainer,
    source: HomeLines,
}

impl<C: Connection + 'static> RolexBulkLoad<C> {
    pub(crate) fn new(place: Place<Nodes<C>>) -> Result<Self, CatalogueError> {
        let session = || rolex::session(&place.life, &place.open, CHUNK_LEAVES);
        let [loader, trainer] = [session()?, session()?];
        Ok(Self {
            loader: BulkLoader::new(loader),
            trainer: Trainer::new(trainer),
            source: HomeLines::new(place.open.info.id, place.open.infos[0].meta_lines),
            place,
        })
    }

    /// Adds a pair, whose key must be greater than that of the pair before.
    pub(crate) fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        let Self { place, loader, .. } = self;
        loader.push(&mut place.queues, key, value).map_err(|error| failed(place, loader.pairs(), error))
    }

    /// Writes what is left and makes the pairs visible, all at once. Returns their number.
    pub(crate) fn finish(self) -> Result<u64, LoadError> {
        let Self { mut place, loader, mut trainer, source } = self;
        let pairs = loader.pairs();
        let loaded = loader.finish(&mut place.queues, &mut trainer, &source);
        loaded.map(|loaded| loaded.pairs).map_err(|error| failed(&place, pairs, error))
    }
}

/// A load's error, as loads of servers have it.
fn failed<C: Connection + 'static>(place: &Place<Nodes<C>>, pairs: u64, error: BulkLoadError) -> LoadError {
    let table = place.open.info.definition.name.clone();
    match error {
        BulkLoadError::NotEmpty => LoadError::Used { table },
        BulkLoadError::Full { .. } => {
            LoadError::Refused { table, source: ServerError::new(ErrorCode::RegionFull, error.to_string()) }
        }
        BulkLoadError::Unsorted { index, key, previous } => LoadError::NotAscending { index, previous, key },
        BulkLoadError::ValueSize { index, expected, got } => {
            LoadError::WrongValueSize { table, index, expected_bytes: expected, got_bytes: got }
        }
        BulkLoadError::Session(RolexError::Fabric(source)) => LoadError::Fabric { table, pairs, source },
        BulkLoadError::Session(source) => {
            LoadError::Engine { table, pairs, source: Box::new(EngineError::from(source)) }
        }
        BulkLoadError::Directory(source) => LoadError::Directory { table, pairs, source },
    }
}
