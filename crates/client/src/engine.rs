//! The engines that tables may be of, as this client works with them.
//!
//! Invariant: nothing else in this crate asks which engine a table has. An engine has one line in
//! [`sharing`], one in [`has_regions`], and a file here.

pub(crate) mod rolex;
mod x_store;

use std::sync::Arc;

use farsight_fabric::Connection;
use farsight_index::{Access, CacheStats};
use farsight_index_rolex::RolexCache;
use farsight_protocol::{Space, TableEngine, TableInfo, TableLayout};

use crate::CatalogueError;
use crate::attached::Operations;
use crate::backend::Training;
use crate::bulk_load::Load;
use crate::nodes::{Known, Nodes};

/// What the sessions of this process share of a table, and how they work with it.
pub(crate) trait Sharing<C: Connection>: Send + Sync {
    /// What the cache holds.
    fn cache_stats(&self) -> CacheStats;

    /// Queue pairs and an engine for one session.
    fn attach(
        &self,
        nodes: &Arc<Nodes<C>>,
        known: &Arc<Known<C>>,
        access: Access,
    ) -> Result<Box<dyn Operations>, CatalogueError>;

    /// Begins a bulk load.
    fn bulk_load(
        &self,
        nodes: &Arc<Nodes<C>>,
        known: &Arc<Known<C>>,
    ) -> Result<Box<dyn Load>, CatalogueError>;

    /// What trains the table from here; `None` for one that its nodes train.
    fn training(
        &self,
        _nodes: &Arc<Nodes<C>>,
        _known: &Arc<Known<C>>,
    ) -> Result<Option<Box<dyn Training>>, CatalogueError> {
        Ok(None)
    }

    /// The cache of a ROLEX table.
    fn rolex(&self) -> Option<&Arc<RolexCache>> {
        None
    }
}

/// An empty cache of a table of this layout, whose parts are described so.
pub(crate) fn sharing<C: Connection>(
    layout: &TableLayout,
    infos: &[TableInfo],
) -> Result<Arc<dyn Sharing<C>>, CatalogueError> {
    Ok(match &layout.engine {
        TableEngine::Rolex => Arc::new(rolex::Rolex::new::<C>(layout, infos)?),
        TableEngine::XStore { boundaries } => Arc::new(x_store::XStore::new(layout, boundaries, infos)?),
    })
}

/// True if a node names the regions that a table of its engine has there, each once.
pub(crate) fn has_regions(info: &TableInfo) -> bool {
    let expected: &[Space] = match info.engine {
        TableEngine::Rolex if info.place.index == 0 => &[Space::Leaves, Space::Meta],
        TableEngine::Rolex | TableEngine::XStore { .. } => &[Space::Leaves],
    };
    info.regions.iter().map(|region| region.space).eq(expected.iter().copied())
}
