//! A pool as what a client is connected to: an engine over queue pairs to every node, by the table.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError, Meters, QueuePair};
use farsight_index::{Answers, Counters, Pairs};
use farsight_index_xstore::client::{Access, CacheStats, ScanRequest, XParts};
use farsight_layout::learned::SEGMENT_WORDS;
use farsight_protocol::{TableDefinition, TableEngine, TableInfo, WriteOperation, WriteOutcome};

use super::nodes::{Caches, Nodes, OpenTable};
use super::rolex::RolexEngine;
use crate::peers::Peers;
use crate::{CatalogueError, EngineError};

/// One session's engine.
pub enum PoolEngine {
    /// Everything one-sided.
    Rolex(Box<RolexEngine>),
    /// XStore at each node.
    XStoreD(XParts),
}

/// Evaluates an expression with whichever engine it is.
macro_rules! on_engine {
    ($engine:expr, $it:ident => $body:expr) => {
        match $engine {
            PoolEngine::Rolex($it) => $body,
            PoolEngine::XStoreD($it) => $body,
        }
    };
}

impl<C: Connection + 'static> Peers for Nodes<C> {
    type Open = OpenTable;
    type Links = Vec<C::Queue>;
    type Engine = PoolEngine;

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

    fn again(&self, timeout: Duration) -> Result<Self, FabricError> {
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

    fn links(&self, open: &OpenTable) -> Result<Vec<C::Queue>, FabricError> {
        self.queues(open)
    }

    fn engine(self: &Arc<Self>, open: &Arc<OpenTable>, access: Access) -> Result<PoolEngine, CatalogueError> {
        Ok(match &open.caches {
            Caches::Rolex(_) => PoolEngine::Rolex(Box::new(RolexEngine::new(self, open)?)),
            Caches::XStoreD(caches, boundaries) => {
                PoolEngine::XStoreD(XParts::new(Arc::clone(boundaries), caches, access))
            }
        })
    }

    fn poll(&self, queues: &mut Vec<C::Queue>) -> Result<(), FabricError> {
        self.standing()?;
        queues.iter_mut().try_for_each(|queue| queue.poll().map(drop))
    }

    fn meters(queues: &Vec<C::Queue>) -> Meters {
        queues.iter().fold(Meters::default(), |mut sum, queue| {
            sum += queue.meters();
            sum
        })
    }

    fn counters(engine: &PoolEngine) -> Counters {
        on_engine!(engine, engine => engine.counters())
    }

    fn get(
        engine: &mut PoolEngine,
        queues: &mut Vec<C::Queue>,
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, EngineError> {
        on_engine!(engine, engine => engine.get(queues, key, value).map_err(EngineError::from))
    }

    fn multi_get(
        engine: &mut PoolEngine,
        queues: &mut Vec<C::Queue>,
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), EngineError> {
        on_engine!(engine, engine => engine.multi_get(queues, keys, answers).map_err(EngineError::from))
    }

    fn scan_batch(
        engine: &mut PoolEngine,
        queues: &mut Vec<C::Queue>,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        on_engine!(engine, engine => engine.scan_batch(queues, scans, pairs).map_err(EngineError::from))
    }

    fn write<'v>(
        engine: &mut PoolEngine,
        queues: &mut Vec<C::Queue>,
        operation: WriteOperation,
        entries: impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), EngineError> {
        match engine {
            PoolEngine::Rolex(engine) => engine.write(queues, operation, entries, outcomes),
            PoolEngine::XStoreD(parts) => Ok(parts.write(queues, operation, entries, outcomes)?),
        }
    }

    fn prefill(engine: &mut PoolEngine, queues: &mut Vec<C::Queue>) -> Result<(), EngineError> {
        on_engine!(engine, engine => engine.prefill(queues).map_err(EngineError::from))
    }
}
