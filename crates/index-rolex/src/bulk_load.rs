//! Loading a table that never held a pair: leaves one after the other, spread over all memory nodes, then
//! their directory.
//!
//! Invariant: until the load is attached nothing leads to its leaves. The loader writes them into blocks that
//! no leaf was ever in, so no hint of anybody names them. It attaches the load by one change of the table's
//! first leaf, which then ends where the first loaded leaf begins and names it. That is when all of its pairs
//! appear, at once.
//!
//! A loader that dies before that leaves blocks that its memory nodes find out to be in no chain. One that
//! dies afterwards leaves a table without a directory, whose readers walk until a trainer makes one. The
//! loader counts a split before it attaches the load, so trainers have something to do. It counts another
//! with the attachment, where the newest directory counts. A directory that was made before knows of no
//! loaded leaf, though its image may claim the first count.

use std::collections::VecDeque;
use std::error::Error;

use farsight_base::words::next_incarnation;
use farsight_base::{LeafNumber, Line, WORDS_PER_LINE};
use farsight_fabric::lane::{PoolLane, PoolSlot};
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::learned::ROOT_SPLITS_WORD;
use farsight_layout::pool::{LockWord, LockedLeaf, Writes};
use farsight_layout::{Fences, LEAF_SLOTS, LeafImage};
use farsight_model::shortest_fence;

use crate::cache::fetch::META_NODE;
#[cfg(injected)]
use crate::injected;
use crate::{LeafPlace, LineSource, RolexError, RolexSession, TrainError, Trainer};

/// Pairs that a load puts into a leaf: three quarters, so that inserts find room.
const PAIRS_PER_LEAF: usize = LEAF_SLOTS * 3 / 4;
/// Blocks of each memory node that are looked at, and leaves that are written, in one go.
const BLOCKS_AT_ONCE: usize = 64;
/// Attempts at the first leaf's lock.
const LOCK_TRIES: u32 = 1_000;
/// The pause between them.
const LOCK_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);

/// Why a load ended.
#[derive(Debug, thiserror::Error)]
pub enum BulkLoadError {
    /// The table holds pairs, or held some.
    #[error("a bulk load needs a table that never held a pair")]
    NotEmpty,
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
    #[error("all pairs are loaded, but without a directory")]
    Directory(#[source] Box<dyn Error + Send + Sync>),
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
pub struct BulkLoader {
    session: RolexSession,
    /// The value of key 0, which belongs to the first leaf whatever else there is.
    of_zero: Option<Vec<u8>>,
    /// The leaf that is being filled; it ends where the next one begins.
    current: Option<(LeafPlace, LeafImage)>,
    /// Low fences and places of all leaves so far.
    leaves: Vec<(u64, LeafPlace)>,
    /// Leaves that are complete and not written.
    images: Vec<(LeafPlace, LeafImage)>,
    /// Blocks that never were leaves.
    fresh: VecDeque<LeafPlace>,
    last_key: Option<u64>,
    pairs: u64,
}

impl BulkLoader {
    /// Begins to load a table that never held a pair, by a session of its own. That session requests many
    /// blocks of memory nodes at once.
    #[must_use]
    pub fn new(session: RolexSession) -> Self {
        Self {
            session,
            of_zero: None,
            current: None,
            leaves: Vec::new(),
            images: Vec::new(),
            fresh: VecDeque::new(),
            last_key: None,
            pairs: 0,
        }
    }

    /// Pairs so far.
    #[must_use]
    pub fn pairs(&self) -> u64 {
        self.pairs
    }

    /// Appends a pair, above all before.
    ///
    /// # Errors
    /// [`BulkLoadError`]; the load cannot be continued after one.
    ///
    /// # Panics
    /// If the key is not greater than the one before, or the value not as long as the table's.
    pub fn push<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        key: u64,
        value: &[u8],
    ) -> Result<(), BulkLoadError> {
        assert!(self.last_key.is_none_or(|previous| previous < key), "keys ascend");
        assert_eq!(value.len(), self.session.table().geometry().leaf().value_bytes(), "bytes of a value");
        if key == 0 {
            self.of_zero = Some(value.to_vec());
        } else {
            if self.current.as_ref().is_none_or(|(_, image)| image.len() == PAIRS_PER_LEAF) {
                self.begin_leaf(queues, shortest_fence(self.last_key.unwrap_or_default(), key))?;
            }
            let (_, image) = self.current.as_mut().expect("a leaf was begun");
            image.push(key, 1, value);
        }
        self.last_key = Some(key);
        self.pairs += 1;
        Ok(())
    }

    /// Writes what is left, attaches the load, and publishes its directory.
    ///
    /// # Errors
    /// [`BulkLoadError`]: but for [`BulkLoadError::Directory`] nothing was loaded.
    pub fn finish<Q: QueuePair, S: LineSource<Error: Error + Send + Sync + 'static>>(
        mut self,
        queues: &mut [Q],
        trainer: &mut Trainer,
        source: &S,
    ) -> Result<BulkLoaded, BulkLoadError> {
        self.images.extend(self.current.take());
        let first = first_leaf();
        let lane = PoolLane::new(queues);
        let splits = lane
            .block_on(async |slot| {
                self.write_images(&slot).await?;
                let splits = self.session.count_load(&slot).await.map_err(RolexError::from)?;
                self.attach(&slot, first).await?;
                // The attachment was counted beside that. Who had made a directory by then keeps it.
                Ok::<_, BulkLoadError>(splits.wrapping_add(1))
            })
            .map_err(RolexError::from)??;
        let mut leaves = vec![(0, first)];
        leaves.append(&mut self.leaves);
        let published =
            lane.block_on(async |slot| trainer.publish_leaves(&slot, source, &leaves, splits).await);
        let directory = |error| BulkLoadError::Directory(Box::new(error));
        published.map_err(TrainError::from).flatten().map_err(directory)?;
        Ok(BulkLoaded { pairs: self.pairs, leaves: leaves.len() as u64 })
    }

    /// Ends the leaf before, if there is one, where the next one begins.
    fn begin_leaf<Q: QueuePair>(&mut self, queues: &mut [Q], low: u64) -> Result<(), BulkLoadError> {
        if self.fresh.is_empty() {
            let lane = PoolLane::new(queues);
            lane.block_on(async |slot| {
                if self.leaves.is_empty() {
                    // What cannot be attached need not be written.
                    self.look_at_first(&slot).await?;
                }
                self.write_images(&slot).await?;
                Ok::<_, BulkLoadError>(self.find_blocks(&slot).await?)
            })
            .map_err(RolexError::from)??;
        }
        let place = self.fresh.pop_front().ok_or(BulkLoadError::Full { pairs: self.pairs })?;
        let geometry = self.session.table().geometry().leaf();
        let fences = Fences { low, high: None };
        let image = LeafImage::new(geometry, next_incarnation(0), LeafNumber::NONE, fences);
        if let Some((before, mut ended)) = self.current.replace((place, image)) {
            ended.fences.high = Some(low);
            ended.next = place.leaf_number();
            self.images.push((before, ended));
        }
        self.leaves.push((low, place));
        Ok(())
    }

    /// Takes blocks of every memory node and keeps those that never were leaves: of others somebody may have
    /// a hint. In turns, so that neighbouring leaves are on different nodes.
    async fn find_blocks<Q: QueuePair>(&mut self, slot: &PoolSlot<'_, '_, Q>) -> Result<(), RolexError> {
        let nodes = self.session.table().nodes().len();
        let (mut fresh, mut touched) = (vec![Vec::new(); nodes], Vec::new());
        for (node, fresh) in fresh.iter_mut().enumerate() {
            for _ in 0..BLOCKS_AT_ONCE {
                match self.session.free_room(slot, node).await? {
                    Some(room) if room.is_untouched() => fresh.push(room.place),
                    Some(room) => touched.push(room),
                    None => break,
                }
            }
        }
        for room in touched {
            self.session.give_room(room);
        }
        for turn in 0..BLOCKS_AT_ONCE {
            self.fresh.extend(fresh.iter().filter_map(|fresh| fresh.get(turn)));
        }
        Ok(())
    }

    /// Writes the leaves that are complete, as many to each memory node at once as an operation has verbs
    /// there. Nothing leads to them, so their order is all the same.
    async fn write_images<Q: QueuePair>(&mut self, slot: &PoolSlot<'_, '_, Q>) -> Result<(), RolexError> {
        let table = self.session.table();
        let geometry = table.geometry();
        let mut block = vec![Line::ZERO; geometry.lines()];
        let mut words = Vec::with_capacity(geometry.lines() * WORDS_PER_LINE);
        let mut posted = vec![0; table.nodes().len()];
        for (place, image) in self.images.drain(..) {
            block.fill(Line::ZERO);
            let mut leaf = LockedLeaf::new(geometry, place.leaf_number(), &mut block);
            // What is kept is the whole block, open.
            let mut apart = Writes::default();
            leaf.create(&image, 0, &mut apart);
            leaf.unlock(LockWord::FREE, &mut apart);
            words.clear();
            words.extend(block.iter().flat_map(|line| line.0));
            let node = place.node();
            if posted[node] == slot.verbs() {
                complete(slot, &mut posted).await?;
            }
            slot.post_write(node, posted[node], table.address(place, 0), &words);
            posted[node] += 1;
        }
        Ok(complete(slot, &mut posted).await?)
    }

    /// Refuses a table whose first leaf shows that it holds pairs, or held some. Its lock is not taken:
    /// [`Self::attach`] looks again.
    async fn look_at_first<Q: QueuePair>(&self, slot: &PoolSlot<'_, '_, Q>) -> Result<(), BulkLoadError> {
        let (first, table) = (first_leaf(), self.session.table());
        let mut block = vec![Line::ZERO; table.geometry().lines()];
        let read = slot.read(first.node(), table.address(first, 0), &mut block, ReadMode::Plain).await;
        read.map_err(RolexError::from)?;
        refuse_used(&LockedLeaf::new(table.geometry(), first.leaf_number(), &mut block))
    }

    /// Ends the table's first leaf where the load begins, and counts that as a split. For there may be a
    /// directory of the first leaf alone, made since the load was counted or long before.
    async fn attach<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        first: LeafPlace,
    ) -> Result<(), BulkLoadError> {
        let geometry = *self.session.table().geometry();
        let mut block = vec![Line::ZERO; geometry.lines()];
        // Before the lock, under which nothing is fetched.
        let counted_in = self.session.candidates(slot, 0).await?.group;
        self.lock_first(slot, first, &mut block).await?;
        let mut leaf = LockedLeaf::new(&geometry, first.leaf_number(), &mut block);
        if let Err(refused) = refuse_used(&leaf) {
            self.session.release(slot, first).await.map_err(RolexError::from)?;
            return Err(refused);
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
        let counted_in = Some(counted_in);
        #[cfg(injected)]
        let counted_in = counted_in.filter(|_| !injected::LOAD_COUNTED_AHEAD.is_injected());
        let executed = self.session.execute_and_count(slot, &writes, counted_in).await;
        let is_counted = executed.map_err(|source| RolexError::Indeterminate { key: 0, source })?;
        #[cfg(injected)]
        let is_counted = is_counted || injected::LOAD_COUNTED_AHEAD.is_injected();
        if !is_counted {
            // All pairs are there. A fabric that failed says so to the directory's verbs.
            let _ = self.session.hints.count_split(slot, 0).await;
        }
        Ok(())
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
            if self.session.lock_and_read(slot, (first, ReadMode::Plain), lock, None, block).await?
                == LockWord::FREE
            {
                return Ok(());
            }
            slot.pause(LOCK_PAUSE).await;
        }
        Err(RolexError::Contended { key: 0, place: first, waited: slot.now().since(begun), holder: None })
    }
}

impl RolexSession {
    /// Counts a load that is about to be attached, so that trainers see to the table if the loader dies then;
    /// how many splits are counted with it. Those of loaded leaves will come on top.
    async fn count_load<Q: QueuePair>(&self, slot: &PoolSlot<'_, '_, Q>) -> Result<u64, FabricError> {
        let at = self.hints.cache().meta().address(0, ROOT_SPLITS_WORD);
        slot.post_fetch_add(META_NODE, 0, at, 1);
        slot.completed().await;
        Ok(slot.take_word(META_NODE, 0)?.wrapping_add(1))
    }
}

/// Refuses a first leaf that is not alone, or that ever had a pair.
fn refuse_used(leaf: &LockedLeaf<'_>) -> Result<(), BulkLoadError> {
    let is_alone = leaf.fences() == Some(Fences { low: 0, high: None });
    if is_alone && leaf.newest_version() == 0 { Ok(()) } else { Err(BulkLoadError::NotEmpty) }
}

fn first_leaf() -> LeafPlace {
    LeafPlace::new(0, 0).expect("every pool has a first leaf")
}

/// Waits for the WRITEs posted at each node.
async fn complete<Q: QueuePair>(slot: &PoolSlot<'_, '_, Q>, posted: &mut [usize]) -> Result<(), FabricError> {
    slot.completed().await;
    for (node, posted) in posted.iter_mut().enumerate() {
        for verb in 0..std::mem::take(posted) {
            slot.take_word(node, verb)?;
        }
    }
    Ok(())
}
