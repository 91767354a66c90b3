//! The smallest engine: a map behind a lock on one node, and calls. It shows what an engine has to be, and
//! that the contract of engines is enough to make one.
//!
//! Invariant: all pairs of a table lie in one `BTreeMap` ([`table`]). Each request holds its lock from begin
//! to end, so every operation takes place at one instant. A client ([`session`]) caches nothing and READs
//! nothing: what it says, a reply said.

pub mod later;
mod session;
mod table;

use std::sync::Arc;

use farsight_client::{
    Access, Attachment, CacheStats, CatalogueError, ClientEngine, EngineKind, Load, OpenedTable, Sharing,
};
use farsight_fabric::Connection;
use farsight_index::Registered;
use farsight_layout::Geometry;
use farsight_node::{HostedTable, NewTable, NodeEngine};
use farsight_protocol::{ServerError, TableInfo, TableLayout};

use session::ReferenceSession;
use table::ReferenceTable;

/// The registry with this engine, and with its [variant](later).
pub type Engines = (Reference, (later::AnsweringLater, farsight_index::Engines));

/// The engine.
pub struct Reference;

impl Registered for Reference {
    const KIND: &'static EngineKind = &EngineKind {
        name: "reference",
        about: "One node: a map behind a lock, and calls",
        nodes: 1..=1,
        elsewhere: "reference",
        has_ranges: false,
        answers_reads: true,
        is_ordered: true,
        block_value_bytes_max: 0,
        byte_pair_bytes_max: 0,
        has_replicas: false,
        nodes_train: true,
        // No leaves; the values are as long as others'.
        block_lines: |value_bytes| Geometry::new(value_bytes).map(|_| 0),
        spaces_of_first: &[],
        spaces: &[],
    };
}

impl NodeEngine for Reference {
    fn host(new: &NewTable<'_>) -> Result<Arc<dyn HostedTable>, ServerError> {
        Ok(Arc::new(ReferenceTable::new(new)))
    }
}

impl ClientEngine for Reference {
    fn sharing<C: Connection>(
        _: &TableLayout,
        _: &[TableInfo],
    ) -> Result<Arc<dyn Sharing<C>>, CatalogueError> {
        Ok(Arc::new(NothingShared))
    }
}

/// What sessions share: nothing.
struct NothingShared;

impl<C: Connection> Sharing<C> for NothingShared {
    fn cache_stats(&self) -> CacheStats {
        CacheStats::default()
    }

    fn attach(&self, table: &OpenedTable<'_, C>, _: Access) -> Result<Attachment, CatalogueError> {
        table.attach(ReferenceSession::new(table.info()))
    }

    fn bulk_load(&self, table: &OpenedTable<'_, C>) -> Result<Box<dyn Load>, CatalogueError> {
        table.load_by_calls(Arc::from([]))
    }
}
