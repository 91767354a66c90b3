//! A pool as what a client is connected to; a table's engine works over queue pairs to every node.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::Epoch;
use farsight_fabric::{Connection, FabricError};
use farsight_index::{Access, CacheStats};
use farsight_index_rolex::{GroupSizes, RolexEngine};
use farsight_index_xstore::client::XParts;
use farsight_layout::learned::SEGMENT_WORDS;
use farsight_protocol::{
    ControlRequest, Engine, MemoryNodeStats, PoolRequest, PoolTableInfo, TableEngine, TableInfo,
};

use super::bulk_load::RolexBulkLoad;
use super::nodes::{Caches, Known, Nodes};
use super::rolex::{self, CHUNK_LEAVES};
use super::trainer::PoolTrainer;
use crate::attached::{Attached, Operations};
use crate::backend::{Backend, NewTable, OpenTable, Training};
use crate::bulk_load::{Load, PartsLoad};
use crate::{CatalogueError, PoolError};

/// A pool's table.
struct PooledTable<C: Connection> {
    known: Arc<Known>,
    nodes: Arc<Nodes<C>>,
}

impl<C: Connection> Nodes<C> {
    fn table(self: Arc<Self>, known: Arc<Known>) -> Arc<dyn OpenTable> {
        Arc::new(PooledTable { known, nodes: self })
    }
}

impl<C: Connection> Backend for Nodes<C> {
    fn peer(&self) -> String {
        let peers: Vec<&str> = (0..self.count()).map(|node| self.connection(node).peer()).collect();
        peers.join(",")
    }

    fn epoch(&self) -> Epoch {
        self.connection(0).epoch()
    }

    fn connections(&self) -> Vec<&dyn Any> {
        (0..self.count()).map(|node| self.connection(node) as &dyn Any).collect()
    }

    /// After a fence, too: another compute node that waited for a lock of this one took it for dead. Its
    /// number is over, and what it was doing in doubt; under another it can go on.
    fn is_loss(&self, error: &FabricError) -> bool {
        matches!(error, FabricError::Disconnected { .. } | FabricError::Dismissed { .. })
    }

    fn check(&self) -> Result<(), FabricError> {
        self.standing()?;
        (0..self.count()).try_for_each(|node| self.connection(node).check())
    }

    fn standing(&self) -> Result<(), FabricError> {
        Nodes::standing(self)
    }

    fn reconnect(&self, timeout: Duration) -> Result<Arc<dyn Backend>, FabricError> {
        let connections = (0..self.count()).map(|node| self.connection(node).reconnect(timeout));
        Ok(Arc::new(Self::new(connections.collect::<Result<_, _>>()?)?))
    }

    fn create(self: Arc<Self>, table: &NewTable) -> Result<Arc<dyn OpenTable>, CatalogueError> {
        let engine = match table.engine.unwrap_or(Engine::Rolex) {
            Engine::Rolex => TableEngine::Rolex,
            Engine::XStoreD => TableEngine::x_store_d(table.sample.clone(), self.count()),
            Engine::XStore => return Err(PoolError::NoServer { peer: Backend::peer(&*self) }.into()),
        };
        let known = self.create_table(&table.definition, engine)?;
        Ok(self.table(known))
    }

    fn open(self: Arc<Self>, name: &str) -> Result<Arc<dyn OpenTable>, CatalogueError> {
        let known = self.open_table(name)?;
        Ok(self.table(known))
    }

    fn opened(self: Arc<Self>, name: &str) -> Option<Arc<dyn OpenTable>> {
        let known = self.known_table(name)?;
        Some(self.table(known))
    }

    fn describe(&self, name: &str) -> Result<TableInfo, CatalogueError> {
        Ok((*self.open_table(name)?.info).clone())
    }

    fn list(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.table_infos()
    }

    fn pending_training(&self) -> Result<u64, CatalogueError> {
        (0..self.count()).map(|node| self.control::<u64>(node, &ControlRequest::PendingTraining)).sum()
    }

    fn memory_node_stats(&self) -> Result<Option<Vec<MemoryNodeStats>>, CatalogueError> {
        (0..self.count()).map(|node| self.ask(node, &PoolRequest::Stats)).collect::<Result<_, _>>().map(Some)
    }

    fn training(self: Arc<Self>, name: &str) -> Result<Option<Box<dyn Training>>, CatalogueError> {
        match PoolTrainer::of(&self, name, GroupSizes::USUAL) {
            Ok(trainer) => Ok(Some(Box::new(trainer))),
            Err(CatalogueError::Pool(PoolError::NotRolex { .. })) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl<C: Connection> OpenTable for PooledTable<C> {
    fn info(&self) -> &Arc<TableInfo> {
        &self.known.info
    }

    fn cache_stats(&self) -> CacheStats {
        match &self.known.caches {
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

    fn attach(&self, access: Access) -> Result<Box<dyn Operations>, CatalogueError> {
        let queues = self.nodes.queues(&self.known)?;
        let backend: Arc<dyn Backend> = Arc::<Nodes<C>>::clone(&self.nodes);
        Ok(match &self.known.caches {
            Caches::Rolex(_) => {
                let engine = RolexEngine::new(rolex::session(&self.nodes, &self.known, CHUNK_LEAVES)?);
                Box::new(Attached { queues, engine, backend })
            }
            Caches::XStoreD(caches, boundaries) => {
                let engine = XParts::new(Arc::clone(boundaries), caches, access);
                Box::new(Attached { queues, engine, backend })
            }
        })
    }

    fn bulk_load(&self) -> Result<Box<dyn Load>, CatalogueError> {
        let Self { known, nodes } = self;
        Ok(match &known.caches {
            Caches::Rolex(_) => Box::new(RolexBulkLoad::new(nodes, known)?),
            Caches::XStoreD(_, boundaries) => {
                let parts: Vec<TableInfo> = known.infos.iter().map(PoolTableInfo::part).collect();
                let (queues, backend) = (nodes.queues(known)?, Arc::<Nodes<C>>::clone(nodes));
                Box::new(PartsLoad::new(&known.info, &parts, Arc::clone(boundaries), queues, backend))
            }
        })
    }
}
