//! Blocks for the right halves of splits: a session's own, taken from memory nodes many at a time.
//!
//! Invariant: a block in here is in no chain, and no other session has it. So what was READ when it came
//! stays true, and a split need not look. When the session ends they are its compute node's still; its memory
//! nodes give them out again once that has ended.

use std::collections::VecDeque;

use farsight_base::{Line, Stamp};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};

use crate::{LeafPlace, RolexError, RolexSession};

/// One split in so many puts its right half on another memory node, so that leaves spread over all of them.
const SPLITS_PER_MOVE: u32 = 8;

/// A free block.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) place: LeafPlace,
    /// What stands in it; nothing if it was never a leaf.
    lines: Vec<Line>,
}

impl Room {
    /// True if the block was never a leaf: nobody has a hint of it.
    pub(crate) fn is_untouched(&self) -> bool {
        self.lines.is_empty()
    }

    /// What stands in the block, which has so many lines.
    pub(crate) fn into_lines(self, lines: usize) -> Vec<Line> {
        if self.is_untouched() { vec![Line::ZERO; lines] } else { self.lines }
    }
}

/// Free blocks, by memory node.
#[derive(Debug)]
pub(crate) struct Rooms {
    free: Vec<VecDeque<Room>>,
    /// Taken out for splits to come.
    ready: Vec<Room>,
    splits: u32,
}

impl Rooms {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { free: (0..nodes).map(|_| VecDeque::new()).collect(), ready: Vec::new(), splits: 0 }
    }

    /// A block for the right half of a leaf of `node`, if the session has one where it should be.
    pub(crate) fn take_ready(&mut self, node: usize) -> Option<Room> {
        if let Some(room) = self.ready.pop() {
            return Some(room);
        }
        let splits = self.splits;
        let first = self.order(node).next()?;
        let room = self.free[first].pop_front();
        if room.is_none() {
            self.splits = splits;
        }
        room
    }

    /// The memory nodes in the order in which a block for a leaf of `node` is requested of them.
    fn order(&mut self, node: usize) -> impl Iterator<Item = usize> + use<> {
        let nodes = self.free.len();
        self.splits = self.splits.wrapping_add(1);
        let moves = self.splits / SPLITS_PER_MOVE;
        let first = if self.splits.is_multiple_of(SPLITS_PER_MOVE) { moves as usize % nodes } else { node };
        (0..nodes).map(move |step| (first + step) % nodes)
    }
}

impl RolexSession {
    /// A block for the right half of a leaf of `node`; `None` if all memory nodes are full.
    async fn take_room<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        node: usize,
    ) -> Result<Option<Room>, RolexError> {
        let order = self.rooms.borrow_mut().order(node);
        for node in order {
            if let Some(room) = self.free_room(slot, node).await? {
                return Ok(Some(room));
            }
        }
        Ok(None)
    }

    /// Gets a block ready for the right half of a leaf of `node`; false if all memory nodes are full. The
    /// caller holds no lock: a memory node's processor is asked.
    pub(crate) async fn stock_room<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        node: usize,
    ) -> Result<bool, RolexError> {
        let room = self.take_room(slot, node).await?;
        let is_there = room.is_some();
        self.rooms.borrow_mut().ready.extend(room);
        Ok(is_there)
    }

    /// A free block of a memory node, if it has one.
    pub(crate) async fn free_room<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        node: usize,
    ) -> Result<Option<Room>, RolexError> {
        if let Some(room) = self.rooms.borrow_mut().free[node].pop_front() {
            return Ok(Some(room));
        }
        let what = "leaves for splits";
        let asking = self.before_asking(slot).await;
        let numbers = self.calls.more_leaves(node).map_err(|source| RolexError::of_call(what, source))?;
        drop(asking);
        let places: Vec<LeafPlace> = numbers.filter_map(|number| LeafPlace::new(node, number)).collect();
        let lines = self.table().geometry().lines();
        let mut block = vec![Line::ZERO; lines];
        for places in places.chunks(slot.verbs()) {
            for (verb, place) in places.iter().enumerate() {
                slot.post_read(node, verb, self.table().address(*place, 0), lines, ReadMode::Plain);
            }
            slot.completed().await;
            for (verb, place) in places.iter().enumerate() {
                slot.take_read(node, verb, &mut block)?;
                let is_untouched = block.iter().all(|line| line.stamp() == Stamp(0));
                let lines = if is_untouched { Vec::new() } else { block.clone() };
                self.rooms.borrow_mut().free[node].push_back(Room { place: *place, lines });
            }
        }
        Ok(self.rooms.borrow_mut().free[node].pop_front())
    }

    /// Puts a block back that [`RolexSession::free_room`] gave.
    pub(crate) fn give_room(&self, room: Room) {
        self.rooms.borrow_mut().free[room.place.node()].push_back(room);
    }
}
