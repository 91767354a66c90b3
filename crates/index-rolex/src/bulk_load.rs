//! Loading a table that never held a pair: leaves one after the other, spread over all memory nodes, then
//! their directory.
//!
//! Invariant: until the load is attached nothing leads to its leaves: they are written into blocks that
//! no leaf was ever in, so no hint of anybody names them. It is attached by one change of the table's
//! first leaf, which ends where the first loaded leaf begins and names it; that is when all of its pairs
//! appear, at once.
//!
//! A loader that dies before leaves blocks that its memory nodes find out to be in no chain; one that dies
//! behind, a table without a directory, whose readers walk until a leaf splits and a trainer makes one.

use std::collections::VecDeque;

use farsight_base::words::next_incarnation;
use farsight_base::{LeafNumber, Line, Stamp};
use farsight_fabric::lane::{PoolLane, PoolSlot};
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::pool::{LockWord, LockedLeaf, Writes};
use farsight_layout::{Fences, LEAF_SLOTS, LeafImage};
use farsight_model::shortest_fence;

use crate::{LeafPlace, LineSource, RolexError, RolexSession, TrainError, Trainer};

/// Pairs that a load puts into a leaf: three quarters, so that inserts find room.
const PAIRS_PER_LEAF: usize = LEAF_SLOTS * 3 / 4;
/// Leaves that are written in one go.
const LEAVES_AT_ONCE: usize = 64;
/// Blocks of each memory node that are looked at in one go.
const BLOCKS_AT_ONCE: usize = 16;
/// Times that the first leaf's lock is asked for.
const LOCK_TRIES: u32 = 1_000;
/// The pause between them.
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// Why a load ended.
#[derive(Debug, thiserror::Error)]
pub enum BulkLoadError<E: std::error::Error> {
    /// The table holds pairs, or held some.
    #[error("a bulk load needs a table that never held a pair")]
    NotEmpty,
    /// Keys must ascend.
    #[error("pair {index}: key {key} does not ascend after {previous}")]
    Unsorted {
        /// Which pair.
        index: u64,
        /// Its key.
        key: u64,
        /// The key before.
        previous: u64,
    },
    /// A value of another size than the table's.
    #[error("pair {index}: the value has {got} B; the table's values have {expected} B")]
    ValueSize {
        /// Which pair.
        index: u64,
        /// The table's size.
        expected: usize,
        /// The value's.
        got: usize,
    },
    /// All memory nodes are full.
    #[error("the memory nodes have no more blocks for leaves, after {pairs} pairs: give them more memory")]
    Full {
        /// Pairs that had been taken.
        pairs: u64,
    },
    /// A READ, WRITE or call failed.
    #[error(transparent)]
    Session(#[from] RolexError),
    /// The pairs are loaded; their directory could not be made.
    #[error("all pairs are loaded, but without a directory: {0}")]
    Directory(TrainError<E>),
}

/// What a load stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BulkLoaded {
    /// Pairs.
    pub pairs: u64,
    /// Leaves that hold them.
    pub leaves: u64,
}

/// A load under way.
pub struct BulkLoader<'s> {
    session: &'s RolexSession,
    /// The value of key 0, which belongs to the first leaf whatever else there is.
    of_zero: Option<Vec<u8>>,
    /// The pairs of the leaf that is being collected.
    current: Vec<(u64, Vec<u8>)>,
    /// Low fences and places of the leaves so far; the last one is being collected.
    leaves: Vec<(u64, LeafPlace)>,
    /// Leaves that are complete and not written.
    images: Vec<(LeafPlace, LeafImage)>,
    /// Blocks that never were leaves.
    fresh: VecDeque<LeafPlace>,
    last_key: Option<u64>,
    pairs: u64,
}

impl RolexSession {
    /// Begins to load a table that never held a pair.
    #[must_use]
    pub fn bulk_load(&self) -> BulkLoader<'_> {
        BulkLoader {
            session: self,
            of_zero: None,
            current: Vec::new(),
            leaves: Vec::new(),
            images: Vec::new(),
            fresh: VecDeque::new(),
            last_key: None,
            pairs: 0,
        }
    }
}

impl BulkLoader<'_> {
    /// Appends a pair, above all before.
    ///
    /// # Errors
    /// [`BulkLoadError`]; the load cannot be continued after one.
    pub fn push<Q: QueuePair, E: std::error::Error>(
        &mut self,
        queues: &mut [Q],
        key: u64,
        value: &[u8],
    ) -> Result<(), BulkLoadError<E>> {
        let (index, expected) = (self.pairs, self.session.table().geometry().leaf().value_bytes());
        if let Some(previous) = self.last_key.filter(|previous| *previous >= key) {
            return Err(BulkLoadError::Unsorted { index, key, previous });
        }
        if value.len() != expected {
            return Err(BulkLoadError::ValueSize { index, expected, got: value.len() });
        }
        if key == 0 {
            self.of_zero = Some(value.to_vec());
        } else {
            if self.leaves.is_empty() || self.current.len() == PAIRS_PER_LEAF {
                self.begin_leaf(queues, shortest_fence(self.last_key.unwrap_or_default(), key))?;
            }
            self.current.push((key, value.to_vec()));
        }
        self.last_key = Some(key);
        self.pairs += 1;
        Ok(())
    }

    /// Writes what is left, attaches the load, and publishes its directory.
    ///
    /// # Errors
    /// [`BulkLoadError`]: but for [`BulkLoadError::Directory`] nothing was loaded.
    pub fn finish<Q: QueuePair, S: LineSource<Error: std::error::Error>>(
        mut self,
        queues: &mut [Q],
        trainer: &mut Trainer,
        source: &S,
    ) -> Result<BulkLoaded, BulkLoadError<S::Error>> {
        self.end_leaf(None);
        self.write_images(queues)?;
        let first = LeafPlace::new(0, 0).expect("every pool has a first leaf");
        let lane = PoolLane::new(queues);
        lane.block_on(async |slot| self.attach(&slot, first).await).map_err(RolexError::from)??;
        let mut leaves = vec![(0, first)];
        leaves.append(&mut self.leaves);
        let published = lane.block_on(async |slot| trainer.publish_leaves(&slot, source, &leaves).await);
        published.map_err(RolexError::from)?.map_err(BulkLoadError::Directory)?;
        Ok(BulkLoaded { pairs: self.pairs, leaves: leaves.len() as u64 })
    }

    /// Ends the leaf before, if there is one, where the next one begins.
    fn begin_leaf<Q: QueuePair, E: std::error::Error>(
        &mut self,
        queues: &mut [Q],
        low: u64,
    ) -> Result<(), BulkLoadError<E>> {
        if self.fresh.is_empty() {
            let lane = PoolLane::new(queues);
            lane.block_on(async |slot| self.find_blocks(&slot).await).map_err(RolexError::from)??;
        }
        let place = self.fresh.pop_front().ok_or(BulkLoadError::Full { pairs: self.pairs })?;
        self.end_leaf(Some((low, place)));
        self.leaves.push((low, place));
        if self.images.len() >= LEAVES_AT_ONCE {
            self.write_images(queues)?;
        }
        Ok(())
    }

    /// Completes the leaf that is being collected; behind it comes `next`.
    fn end_leaf(&mut self, next: Option<(u64, LeafPlace)>) {
        let Some(&(low, place)) = self.leaves.last() else { return };
        let fences = Fences { low, high: next.map(|(low, _)| low) };
        let sibling = next.map_or(LeafNumber::NONE, |(_, place)| place.leaf_number());
        let geometry = self.session.table().geometry().leaf();
        let mut image = LeafImage::new(geometry, next_incarnation(0), sibling, fences);
        for (key, value) in self.current.drain(..) {
            image.push(key, 1, &value);
        }
        self.images.push((place, image));
    }

    /// Takes blocks of every memory node and keeps those that never were leaves: of others somebody may have
    /// a hint. In turns, so that neighbouring leaves are on different nodes.
    async fn find_blocks<Q: QueuePair>(&mut self, slot: &PoolSlot<'_, '_, Q>) -> Result<(), RolexError> {
        let table = self.session.table();
        let lines = table.geometry().lines();
        let mut found: Vec<Vec<LeafPlace>> = vec![Vec::new(); table.nodes().len()];
        for (node, found) in found.iter_mut().enumerate() {
            while found.len() < BLOCKS_AT_ONCE.min(slot.verbs()) {
                let Some(place) = self.session.free_block(node)? else { break };
                slot.post_read(node, found.len(), table.address(place, 0), lines, ReadMode::Plain);
                found.push(place);
            }
        }
        slot.completed().await;
        let mut block = vec![Line::ZERO; lines];
        for (node, found) in found.iter_mut().enumerate() {
            let mut fresh = Vec::new();
            for (verb, place) in found.iter().enumerate() {
                slot.take_read(node, verb, &mut block)?;
                if block.iter().all(|line| line.stamp() == Stamp(0)) {
                    fresh.push(*place);
                }
            }
            *found = fresh;
        }
        for turn in 0..BLOCKS_AT_ONCE {
            self.fresh.extend(found.iter().filter_map(|found| found.get(turn)));
        }
        Ok(())
    }

    /// Writes the leaves that are complete.
    fn write_images<Q: QueuePair>(&mut self, queues: &mut [Q]) -> Result<(), RolexError> {
        let geometry = *self.session.table().geometry();
        let mut images = std::mem::take(&mut self.images);
        // WRITEs of one memory node share a doorbell.
        images.sort_by_key(|(place, _)| place.node());
        let mut writes = Writes::default();
        let mut block = vec![Line::ZERO; geometry.lines()];
        for (place, image) in images {
            block.fill(Line::ZERO);
            let mut leaf = LockedLeaf::new(&geometry, place.leaf_number(), &mut block);
            leaf.create(&image, 0, &mut writes);
            leaf.unlock(LockWord::FREE, &mut writes);
        }
        let lane = PoolLane::new(queues);
        let done = lane.block_on(async |slot| self.session.execute(&slot, &writes).await);
        Ok(done??)
    }

    /// Ends the table's first leaf where the load begins.
    async fn attach<Q: QueuePair, E: std::error::Error>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        first: LeafPlace,
    ) -> Result<(), BulkLoadError<E>> {
        let geometry = *self.session.table().geometry();
        let mut block = vec![Line::ZERO; geometry.lines()];
        self.lock_first(slot, first, &mut block).await?;
        let mut leaf = LockedLeaf::new(&geometry, first.leaf_number(), &mut block);
        let is_alone = leaf.fences() == Some(Fences { low: 0, high: None });
        if !is_alone || leaf.newest_version() != 0 {
            self.session.release(slot, first).await.map_err(RolexError::from)?;
            return Err(BulkLoadError::NotEmpty);
        }
        let mut writes = Writes::default();
        if let (Some(value), Some(room)) = (&self.of_zero, leaf.free_slot()) {
            leaf.insert(room, 0, 1, value, &mut writes);
        }
        if let Some(&(low, place)) = self.leaves.first() {
            leaf.end_at(low, place.leaf_number(), &mut writes);
            leaf.clear_journal(&mut writes);
        }
        leaf.unlock(LockWord::FREE, &mut writes);
        let done: Result<(), FabricError> = self.session.execute(slot, &writes).await;
        Ok(done.map_err(|source| RolexError::Indeterminate { key: 0, source })?)
    }

    async fn lock_first<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        first: LeafPlace,
        block: &mut [Line],
    ) -> Result<(), RolexError> {
        let begun = slot.now();
        for _ in 0..LOCK_TRIES {
            let lock = self.session.locks.draw();
            if self.session.lock_and_read(slot, first, lock, None, block).await? == LockWord::FREE {
                return Ok(());
            }
            slot.pause(LOCK_PAUSE).await;
        }
        Err(RolexError::Contended { key: 0, place: first, waited: slot.now().since(begun) })
    }
}
