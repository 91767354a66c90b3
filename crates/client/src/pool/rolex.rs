//! What ROLEX asks of a pool.
//!
//! Invariant: what the engine asks of the nodes' processors (leaves, fences) goes over queue pairs of its
//! own, never over the session's, whose operations are under way meanwhile.

use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use farsight_fabric::{Connection, FabricError};
use farsight_index_rolex::{CacheSession, CallResult, LeafPlace, PoolCalls, RolexSession};
use farsight_layout::pool::LockWord;
use farsight_protocol::{Blocks, ComputeNode, ErrorCode, Fenced, LockSeen, PoolRequest, Space, TableId};
use serde::de::DeserializeOwned;

use super::nodes::{Known, Nodes};
use crate::CatalogueError;

/// Leaves that a session takes at once, so that it hardly ever asks.
pub(super) const CHUNK_LEAVES: u32 = 64;
/// What the engine asks of the nodes' processors.
struct Calls<C: Connection> {
    nodes: Arc<Nodes<C>>,
    table: TableId,
    /// Leaves that are asked for at once.
    chunk_leaves: u32,
}

/// A session of this compute node that asks for so many leaves at once.
pub(super) fn session<C: Connection>(
    nodes: &Arc<Nodes<C>>,
    open: &Known,
    chunk_leaves: u32,
) -> Result<RolexSession, CatalogueError> {
    let calls = Calls { nodes: Arc::clone(nodes), table: open.info.id, chunk_leaves };
    let hints = CacheSession::new(Arc::clone(open.rolex_cache()?));
    Ok(RolexSession::new(hints, nodes.locks()?, Box::new(calls)))
}

impl<C: Connection> Calls<C> {
    fn ask<T: DeserializeOwned>(&self, node: usize, request: &PoolRequest) -> CallResult<T> {
        self.nodes.ask(node, request).map_err(call_error)
    }
}

/// A failure of the fabric as it is, because the engine knows what it means for its operation.
fn call_error(error: CatalogueError) -> Box<dyn Error + Send + Sync> {
    match error {
        CatalogueError::Fabric(error) => error.into(),
        other => other.into(),
    }
}

impl<C: Connection> PoolCalls for Calls<C> {
    fn standing(&self) -> Result<(), FabricError> {
        self.nodes.standing()
    }

    fn more_leaves(&self, node: usize) -> CallResult<Range<u32>> {
        let (space, count) = (Space::Leaves, self.chunk_leaves);
        let request = PoolRequest::Allocate { table: self.table, space, count };
        match self.nodes.ask::<Blocks>(node, &request) {
            Ok(blocks) => Ok(blocks.first..blocks.first.saturating_add(blocks.count)),
            Err(CatalogueError::Refused { source, .. }) if source.code == ErrorCode::RegionFull => Ok(0..0),
            Err(error) => Err(call_error(error)),
        }
    }

    fn give_up(&self) {
        self.nodes.poisoned().raise();
    }

    /// Asks the leaf's own memory node first, which alone knows the lock's lease: where a process has to be
    /// ended, it does that, and the others find it gone.
    fn fence(&self, compute_node: u32, seen: Option<(LeafPlace, LockWord)>) -> CallResult<Fenced> {
        let home = self.nodes.epochs()?[0];
        let leaf_node = seen.map(|(place, _)| place.node());
        let others = (0..self.nodes.count()).filter(|node| Some(*node) != leaf_node);
        for node in leaf_node.into_iter().chain(others) {
            let (table, compute_node) = (self.table, ComputeNode(compute_node));
            let of_leaf = |(place, lock): (LeafPlace, LockWord)| {
                (place.node() == node).then(|| LockSeen { table, block: place.number(), word: lock.0 })
            };
            let request = PoolRequest::Fence { home, compute_node, seen: seen.and_then(of_leaf) };
            match self.ask(node, &request)? {
                Fenced::Done => {}
                wait @ Fenced::Wait { .. } => return Ok(wait),
            }
        }
        Ok(Fenced::Done)
    }

    fn adopt(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()> {
        self.ask(node, &PoolRequest::Adopt { table: self.table, space, blocks: blocks.to_vec() })
    }

    fn settle(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()> {
        self.ask(node, &PoolRequest::Settle { table: self.table, space, blocks: blocks.to_vec() })
    }

    fn free(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()> {
        let request = PoolRequest::Free { table: self.table, space, blocks: blocks.to_vec() };
        self.ask::<u64>(node, &request).map(drop)
    }

    fn ended(&self, node: usize, space: Space) -> CallResult<Vec<u32>> {
        let ended: Vec<ComputeNode> = self.ask(node, &PoolRequest::Ended { table: self.table, space })?;
        Ok(ended.into_iter().map(|compute_node| compute_node.0).collect())
    }

    fn take_orphans(&self, node: usize, space: Space, of: u32) -> CallResult<Vec<Blocks>> {
        self.ask(node, &PoolRequest::TakeOrphans { table: self.table, space, of: ComputeNode(of) })
    }
}
