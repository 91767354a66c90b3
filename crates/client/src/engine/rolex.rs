//! ROLEX: what its sessions share, and what it asks of the nodes' processors.
//!
//! Invariant: what the engine asks of the nodes' processors (leaves, fences) goes over queue pairs of its
//! own, never over the session's, whose operations are under way meanwhile.

mod bulk_load;
mod trainer;

use std::any::Any;
use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_index::{Access, CacheStats};
use farsight_index_rolex::{
    CacheSession, CallResult, GroupSizes, LeafPlace, MetaRegion, PoolCalls, PoolTable, RolexCache,
    RolexEngine, RolexSession,
};
use farsight_layout::learned::SEGMENT_WORDS;
use farsight_layout::pool::{BlockGeometry, LockWord};
use farsight_protocol::{
    Adopted, Blocks, Claim, ComputeNode, ControlRequest, ErrorCode, Fenced, LockSeen, Space, TableId,
    TableInfo, TableLayout, TakenBlocks,
};
use serde::de::DeserializeOwned;

use super::{Attachment, ClientEngine, OpenedTable, Sharing};
use crate::backend::Training;
use crate::bulk_load::Load;
use crate::nodes::{Known, Nodes};
use crate::{CatalogueError, PoolError};
use bulk_load::RolexBulkLoad;
pub use trainer::PoolTrainer;

/// Leaves that a session takes at once, so that it hardly ever asks.
const CHUNK_LEAVES: u32 = 64;

/// One cache of all nodes' leaves.
struct SharedCache(Arc<RolexCache>);

impl ClientEngine for farsight_index::Rolex {
    fn sharing<C: Connection>(
        layout: &TableLayout,
        infos: &[TableInfo],
    ) -> Result<Arc<dyn Sharing<C>>, CatalogueError> {
        if !RolexSession::is_served_by(&C::Queue::GUARANTEES) {
            return Err(PoolError::Fabric { name: C::Queue::GUARANTEES.name }.into());
        }
        let definition = &layout.definition;
        let geometry = BlockGeometry::new(definition.values.leaf_bytes()).map_err(|source| {
            CatalogueError::Unfit { table: definition.name.clone(), source: source.into() }
        })?;
        let leaves = |info: &TableInfo| {
            let region = info.region_of(Space::Leaves)?;
            Some((region.id(), info.bytes_of(region)))
        };
        let leaves: Vec<_> = infos.iter().filter_map(leaves).collect();
        let meta = infos[0].region_of(Space::Meta);
        let meta = meta.map(|region| MetaRegion { region: region.id(), lines: region.capacity });
        let meta = meta.expect("checked: the coordinator has directory and models");
        Ok(Arc::new(SharedCache(RolexCache::new(PoolTable::new(geometry, &leaves), meta))))
    }
}

impl<C: Connection> Sharing<C> for SharedCache {
    fn cache_stats(&self) -> CacheStats {
        let bytes = self.0.bytes();
        let model_bytes = bytes.segments * (SEGMENT_WORDS * size_of::<u64>()) as u64;
        CacheStats {
            sub_models: bytes.segments,
            sub_models_filled: bytes.segments,
            model_bytes,
            table_bytes: bytes.learned - model_bytes + bytes.synonyms,
            memory_bytes: bytes.learned + bytes.synonyms,
            ..CacheStats::default()
        }
    }

    fn outlives_connections(&self) -> bool {
        true
    }

    fn attach(&self, table: &OpenedTable<'_, C>, _: Access) -> Result<Attachment, CatalogueError> {
        table.attach(RolexEngine::new(session(table.nodes, table.known, CHUNK_LEAVES)?))
    }

    fn bulk_load(&self, table: &OpenedTable<'_, C>) -> Result<Box<dyn Load>, CatalogueError> {
        Ok(Box::new(RolexBulkLoad::new(table.nodes, table.known)?))
    }

    fn training(&self, table: &OpenedTable<'_, C>) -> Result<Option<Box<dyn Training>>, CatalogueError> {
        Ok(Some(Box::new(PoolTrainer::of(table.nodes, table.known, GroupSizes::USUAL)?)))
    }
}

/// The cache of a ROLEX table.
pub(crate) fn cache_of<C: Connection>(known: &Known<C>) -> Result<&Arc<RolexCache>, PoolError> {
    let any: &dyn Any = &*known.sharing;
    let cache = any.downcast_ref().map(|SharedCache(cache)| cache);
    cache.ok_or_else(|| PoolError::NotRolex { table: known.info.definition.name.clone() })
}

/// Lines of the region of directory and models.
fn meta_lines(info: &TableInfo) -> u32 {
    info.region_of(Space::Meta).map_or(0, |region| region.capacity)
}

/// What the engine asks of the nodes' processors.
struct Calls<C: Connection> {
    nodes: Arc<Nodes<C>>,
    table: TableId,
    /// Leaves that one call requests.
    chunk_leaves: u32,
}

/// A session of this compute node that asks for so many leaves at once.
fn session<C: Connection>(
    nodes: &Arc<Nodes<C>>,
    known: &Known<C>,
    chunk_leaves: u32,
) -> Result<RolexSession, CatalogueError> {
    let calls = Calls { nodes: Arc::clone(nodes), table: known.info.id, chunk_leaves };
    let hints = CacheSession::new(Arc::clone(cache_of(known)?));
    Ok(RolexSession::new(hints, nodes.locks()?, Box::new(calls)))
}

impl<C: Connection> Calls<C> {
    fn ask<T: DeserializeOwned>(&self, node: usize, request: &ControlRequest) -> CallResult<T> {
        self.nodes.ask(node, request).map_err(call_error)
    }
}

/// A failure of the fabric as it is, because the engine knows what it means for its operation.
pub(super) fn call_error(error: CatalogueError) -> Box<dyn Error + Send + Sync> {
    match error {
        CatalogueError::Fabric(error) => error.into(),
        other => other.into(),
    }
}

impl<C: Connection> PoolCalls for Calls<C> {
    fn check_usable(&self) -> Result<(), FabricError> {
        self.nodes.prepare_to_write()
    }

    fn more_leaves(&self, node: usize) -> CallResult<Range<u32>> {
        let (space, count) = (Space::Leaves, self.chunk_leaves);
        let request = ControlRequest::Allocate { table: self.table, space, count };
        match self.nodes.ask::<Blocks>(node, &request) {
            Ok(blocks) => Ok(blocks.first..blocks.first.saturating_add(blocks.count)),
            Err(CatalogueError::Refused { source, .. })
                if matches!(source.code, ErrorCode::RegionFull | ErrorCode::NoMemory) =>
            {
                Ok(0..0)
            }
            Err(error) => Err(call_error(error)),
        }
    }

    fn give_up(&self) {
        self.nodes.poisoned().raise();
    }

    /// Asks the leaf's own memory node first, which alone knows the lock's lease: where a process has to be
    /// ended, it does that, and the others find it gone.
    fn fence(&self, compute_node: u32, seen: Option<(LeafPlace, LockWord)>) -> CallResult<Fenced> {
        let table = self.table;
        let of_leaf = |(place, lock): (LeafPlace, LockWord)| {
            (place.node(), LockSeen { table, block: place.number(), word: lock.0 })
        };
        self.nodes.fence(ComputeNode(compute_node), seen.map(of_leaf)).map_err(call_error)
    }

    fn adopt(&self, node: usize, known: Claim, leaves: &[Blocks]) -> CallResult<Adopted> {
        let (table, space, blocks) = (self.table, Space::Leaves, leaves.to_vec());
        self.ask(node, &ControlRequest::Adopt { table, space, known, blocks })
    }

    fn pin(&self, node: usize, (space, claim): (Space, Claim), blocks: &[Blocks]) -> CallResult<()> {
        self.ask(node, &ControlRequest::Pin { table: self.table, space, claim, blocks: blocks.to_vec() })
    }

    fn free(&self, node: usize, (space, claim): (Space, Claim), blocks: &[Blocks]) -> CallResult<()> {
        let request = ControlRequest::Free { table: self.table, space, claim, blocks: blocks.to_vec() };
        self.ask::<u64>(node, &request).map(drop)
    }

    fn ended(&self, node: usize, space: Space) -> CallResult<Vec<u32>> {
        let ended: Vec<ComputeNode> = self.ask(node, &ControlRequest::Ended { table: self.table, space })?;
        Ok(ended.into_iter().map(|compute_node| compute_node.0).collect())
    }

    fn take_orphans(&self, node: usize, space: Space, of: u32) -> CallResult<TakenBlocks> {
        self.ask(node, &ControlRequest::TakeOrphans { table: self.table, space, of: ComputeNode(of) })
    }
}
