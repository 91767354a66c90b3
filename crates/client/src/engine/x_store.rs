//! XStore: on a node alone, or an ordered range of the keys on each of several.

use std::sync::Arc;

use farsight_fabric::Connection;
use farsight_index::{Access, CacheStats};
use farsight_index_xstore::client::{XBlocks, XCache, XParts, XStoreError};
use farsight_protocol::{Space, TableInfo, TableLayout};

use super::{Attachment, ClientEngine, OpenedTable, Sharing};
use crate::CatalogueError;
use crate::bulk_load::Load;

/// A cache a node, and where their ranges begin.
struct XStoreCaches {
    caches: Vec<Arc<XCache>>,
    boundaries: Arc<[u64]>,
}

impl ClientEngine for farsight_index::XStore {
    fn sharing<C: Connection>(
        layout: &TableLayout,
        parts: &[TableInfo],
    ) -> Result<Arc<dyn Sharing<C>>, CatalogueError> {
        let cache = |info: &TableInfo| {
            let bytes = info.region_of(Space::Leaves).map_or(0, |region| info.bytes_of(region));
            XCache::new(info, bytes)
        };
        let caches = parts.iter().map(cache).collect::<Result<_, _>>().map_err(|error| {
            CatalogueError::Engine { table: layout.definition.name.clone(), source: error.into() }
        })?;
        Ok(Arc::new(XStoreCaches { caches, boundaries: layout.engine.boundaries.as_slice().into() }))
    }
}

impl ClientEngine for farsight_index::XStoreD {
    fn sharing<C: Connection>(
        layout: &TableLayout,
        parts: &[TableInfo],
    ) -> Result<Arc<dyn Sharing<C>>, CatalogueError> {
        farsight_index::XStore::sharing(layout, parts)
    }
}

impl<C: Connection> Sharing<C> for XStoreCaches {
    fn cache_stats(&self) -> CacheStats {
        self.caches.iter().fold(CacheStats::default(), |mut sum, cache| {
            sum += cache.stats();
            sum
        })
    }

    fn set_cache_bytes(&self, bytes: u64, table: &TableInfo) -> Result<bool, CatalogueError> {
        let failed = |error: XStoreError| CatalogueError::Engine {
            table: table.definition.name.clone(),
            source: error.into(),
        };
        // Each node's part of the keys has as much.
        let part_bytes = if bytes == u64::MAX { bytes } else { bytes / self.caches.len() as u64 };
        self.caches.iter().try_for_each(|cache| cache.set_budget_bytes(part_bytes)).map_err(failed)?;
        Ok(true)
    }

    fn attach(&self, table: &OpenedTable<'_, C>, access: Access) -> Result<Attachment, CatalogueError> {
        if table.info().definition.values.are_blocks() {
            return table.attach(XBlocks::new(&self.boundaries, &self.caches, access));
        }
        table.attach(XParts::new(Arc::clone(&self.boundaries), &self.caches, access))
    }

    fn bulk_load(&self, table: &OpenedTable<'_, C>) -> Result<Box<dyn Load>, CatalogueError> {
        table.load_by_calls(Arc::clone(&self.boundaries))
    }
}
