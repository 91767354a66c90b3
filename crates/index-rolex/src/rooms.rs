//! Blocks for the right halves of splits: a session's own, taken from memory nodes many at a time.
//!
//! Invariant: a block in here is in no chain, and no other session has it. When the session ends they are its
//! compute node's still; its memory nodes give them out again once that has ended.

use std::ops::Range;

use farsight_base::Line;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};

use crate::{LeafPlace, RolexError, RolexSession};

/// One split in so many puts its right half on another memory node, so that leaves spread over all of them.
const SPLITS_PER_MOVE: u32 = 8;

/// Free blocks, by memory node.
#[derive(Debug)]
pub(crate) struct Rooms {
    free: Vec<Range<u32>>,
    splits: u32,
}

impl Rooms {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { free: vec![0..0; nodes], splits: 0 }
    }

    /// The memory nodes in the order in which they are asked for a block, for a leaf of `node`.
    fn order(&mut self, node: usize) -> impl Iterator<Item = usize> + use<> {
        let nodes = self.free.len();
        self.splits = self.splits.wrapping_add(1);
        let moves = self.splits / SPLITS_PER_MOVE;
        let first = if self.splits.is_multiple_of(SPLITS_PER_MOVE) { moves as usize % nodes } else { node };
        (0..nodes).map(move |step| (first + step) % nodes)
    }
}

impl RolexSession {
    /// A block for the right half of a leaf of `node`, and what stands in it; `None` if all memory nodes are
    /// full.
    pub(crate) async fn take_room<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        node: usize,
    ) -> Result<Option<(LeafPlace, Vec<Line>)>, RolexError> {
        let order = self.rooms.borrow_mut().order(node);
        for node in order {
            let Some(place) = self.free_block(node)? else { continue };
            let mut lines = vec![Line::ZERO; self.table().geometry().lines()];
            slot.read(node, self.table().address(place, 0), &mut lines, ReadMode::Plain).await?;
            return Ok(Some((place, lines)));
        }
        Ok(None)
    }

    /// A free block of a memory node, if it has one.
    pub(crate) fn free_block(&self, node: usize) -> Result<Option<LeafPlace>, RolexError> {
        let mut rooms = self.rooms.borrow_mut();
        let free = &mut rooms.free[node];
        if free.start == free.end {
            let what = "leaves for splits";
            *free = self.calls.more_leaves(node).map_err(|source| RolexError::of_call(what, source))?;
        }
        Ok(free.next().and_then(|number| LeafPlace::new(node, number)))
    }
}
