//! A pool as what a client is connected to; a table's engine works over queue pairs to every node.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index::{Access, CacheStats, Ordered};
use farsight_index_rolex::RolexEngine;
use farsight_index_xstore::client::XParts;
use farsight_layout::learned::SEGMENT_WORDS;
use farsight_protocol::{TableDefinition, TableEngine, TableInfo};

use super::nodes::{Caches, Nodes, OpenTable};
use super::rolex::{self, CHUNK_LEAVES};
use crate::CatalogueError;
use crate::backend::Backend;

impl<C: Connection + 'static> Backend for Nodes<C> {
    type Open = OpenTable;
    type Queue = C::Queue;

    fn peer(&self) -> String {
        let peers: Vec<&str> = (0..self.count()).map(|node| self.connection(node).peer()).collect();
        peers.join(",")
    }

    fn epoch(&self) -> Epoch {
        self.connection(0).epoch()
    }

    /// After a fence, too: whoever waited for a lock of this compute node took it for dead. Its number is
    /// over, and what it was doing in doubt; under another it can go on.
    fn is_loss(error: &FabricError) -> bool {
        matches!(error, FabricError::Disconnected { .. } | FabricError::Dismissed { .. })
    }

    fn check(&self) -> Result<(), FabricError> {
        self.standing()?;
        (0..self.count()).try_for_each(|node| self.connection(node).check())
    }

    fn reconnect(&self, timeout: Duration) -> Result<Self, FabricError> {
        let connections = (0..self.count()).map(|node| self.connection(node).reconnect(timeout));
        Self::new(connections.collect::<Result<_, _>>()?)
    }

    fn create(&self, definition: &TableDefinition) -> Result<Arc<OpenTable>, CatalogueError> {
        self.create_table(definition, TableEngine::Rolex)
    }

    fn open(&self, name: &str) -> Result<Arc<OpenTable>, CatalogueError> {
        self.open_table(name)
    }

    fn opened(&self, name: &str) -> Option<Arc<OpenTable>> {
        self.known_table(name)
    }

    fn describe(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        Ok((*self.open_table(name)?.info).clone())
    }

    fn list(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.table_infos()
    }

    fn info(open: &OpenTable) -> &Arc<TableInfo> {
        &open.info
    }

    fn cache_stats(open: &OpenTable) -> CacheStats {
        match &open.caches {
            Caches::Rolex(cache) => {
                let bytes = cache.bytes();
                let model_bytes = bytes.segments * (SEGMENT_WORDS * size_of::<u64>()) as u64;
                CacheStats {
                    sub_models: bytes.segments,
                    sub_models_filled: bytes.segments,
                    model_bytes,
                    table_bytes: bytes.learned - model_bytes + bytes.synonyms,
                    ..CacheStats::default()
                }
            }
            Caches::XStoreD(caches, _) => caches.iter().fold(CacheStats::default(), |mut sum, cache| {
                sum += cache.stats();
                sum
            }),
        }
    }

    fn queues(&self, open: &OpenTable) -> Result<Vec<C::Queue>, FabricError> {
        self.queues_to_all(open)
    }

    fn engine(
        self: &Arc<Self>,
        open: &Arc<OpenTable>,
        access: Access,
    ) -> Result<Box<dyn Ordered<C::Queue>>, CatalogueError> {
        Ok(match &open.caches {
            Caches::Rolex(_) => Box::new(RolexEngine::new(rolex::session(self, open, CHUNK_LEAVES)?)),
            Caches::XStoreD(caches, boundaries) => {
                Box::new(XParts::new(Arc::clone(boundaries), caches, access))
            }
        })
    }

    fn poll(&self, queues: &mut [C::Queue]) -> Result<(), FabricError> {
        self.standing()?;
        queues.iter_mut().try_for_each(|queue| queue.poll().map(drop))
    }
}
