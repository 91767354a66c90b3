//! XStore: on a node alone, or an ordered range of the keys on each of several.

use std::sync::Arc;

use farsight_fabric::Connection;
use farsight_index::{Access, CacheStats};
use farsight_index_xstore::client::{XCache, XParts};
use farsight_protocol::{Space, TableInfo, TableLayout};

use super::Sharing;
use crate::CatalogueError;
use crate::attached::{Attached, Operations};
use crate::bulk_load::{Load, PartsLoad};
use crate::nodes::{Known, Nodes};

/// A cache a node, and where their ranges begin.
pub(super) struct XStore {
    caches: Vec<Arc<XCache>>,
    boundaries: Arc<[u64]>,
}

impl XStore {
    pub(super) fn new(
        layout: &TableLayout,
        boundaries: &[u64],
        infos: &[TableInfo],
    ) -> Result<Self, CatalogueError> {
        let cache = |info: &TableInfo| {
            let bytes = info.region_of(Space::Leaves).map_or(0, |region| info.bytes_of(region));
            XCache::new(info, bytes)
        };
        let caches = infos.iter().map(cache).collect::<Result<_, _>>().map_err(|error| {
            CatalogueError::Engine { table: layout.definition.name.clone(), source: error.into() }
        })?;
        Ok(Self { caches, boundaries: boundaries.into() })
    }
}

impl<C: Connection> Sharing<C> for XStore {
    fn cache_stats(&self) -> CacheStats {
        self.caches.iter().fold(CacheStats::default(), |mut sum, cache| {
            sum += cache.stats();
            sum
        })
    }

    fn attach(
        &self,
        nodes: &Arc<Nodes<C>>,
        known: &Arc<Known<C>>,
        access: Access,
    ) -> Result<Box<dyn Operations>, CatalogueError> {
        let engine = XParts::new(Arc::clone(&self.boundaries), &self.caches, access);
        let (queues, nodes) = (nodes.queues(known)?, Arc::clone(nodes));
        Ok(Box::new(Attached { queues, engine, backend: nodes }))
    }

    fn bulk_load(
        &self,
        nodes: &Arc<Nodes<C>>,
        known: &Arc<Known<C>>,
    ) -> Result<Box<dyn Load>, CatalogueError> {
        let (queues, nodes) = (nodes.queues(known)?, Arc::clone(nodes));
        Ok(Box::new(PartsLoad::new(&known.info, &known.infos, Arc::clone(&self.boundaries), queues, nodes)))
    }
}
