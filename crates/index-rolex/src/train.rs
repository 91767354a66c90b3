//! Training: groups whose leaves have split get new images, and a table that has grown a new directory. Any
//! compute node may do it, or a memory node by loop-back; several at once do not hurt each other.
//!
//! Invariant: an image or a directory is written whole into lines that its trainer alone has, then
//! published by one compare-and-swap of the word that names it. Whoever exchanges a word owns the lines
//! that it named before; whoever loses keeps its own. No record moves and no leaf is written, so
//! operations never wait.
//!
//! Protocol, group by group: the split counter is READ before the leaves are; every split adds to it
//! after the right leaf is linked. So an image whose counter is the slot's knows of every split that was
//! counted, and one that a split overtook is trained again.
//!
//! A new directory: the old one's slots are frozen first, so that nobody exchanges a pointer in it any
//! more and the images that both name have one owner, the new one; then it is published; then splits that
//! were counted in the old slots meanwhile are counted again in the new ones. A split's own doorbell
//! READs the root behind its count, and counts again if there is a new directory, so none is missed.
//! Frozen slots serve readers as before; if their trainer died, another one makes the new directory. A
//! directory's memory is never used anew, because splits are counted in it by whoever does not know
//! better yet.

mod collect;
mod directory;
mod home;
mod space;

use farsight_base::WORDS_PER_LINE;
#[cfg(planted)]
use farsight_base::sync::planted::{Bug, is_planted};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair};
use farsight_layout::learned::{
    DIRECTORY_SLOT_WORDS, Directory, DirectorySlot, GROUP_LEAVES_MAX, GroupPointer, GroupTime, ImageError,
    RootWord,
};

use crate::cache::fetch::{META_NODE, read_directory, read_group, read_root, read_slots};
use crate::cache::{Group, LearnedError, MetaRegion};
use crate::transfer::write_words;
use crate::{LeafPlace, PoolTable};
use collect::{Collected, Stretch, collect};
use space::FreeLines;

pub use home::{HomeLines, LinesError};
pub use space::LineSource;

/// Leaves of a group when it is cut.
pub const GROUP_LEAVES: usize = 512;
/// A group with more leaves is cut, once the table has grown enough for a new directory.
const GROUP_LEAVES_GROWN: usize = 2 * GROUP_LEAVES;
/// A new directory is worth its memory once one group has grown by this share of all leaves.
const GROWTH_SHARE: u64 = 8;

/// Steps that find slots frozen before a trainer takes the other one's work over.
const FROZEN_STEPS_MAX: u32 = 4;

/// Why a step of training ended.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TrainError<E> {
    /// The learned index or the leaves could not be READ or written.
    #[error(transparent)]
    Learned(#[from] LearnedError),
    /// There are no more lines.
    #[error("a trainer gets no lines of the meta region: {0}")]
    Lines(E),
}

impl<E> From<FabricError> for TrainError<E> {
    fn from(error: FabricError) -> Self {
        Self::Learned(error.into())
    }
}

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trained {
    /// Images published.
    pub groups: usize,
    /// Leaves in them.
    pub leaves: usize,
    /// Images that another trainer was quicker to publish.
    pub lost: usize,
    /// Directories published.
    pub directories: usize,
    /// Groups that wait for their turn.
    pub waiting: usize,
}

/// One trainer of one table.
#[derive(Debug)]
pub struct Trainer {
    table: PoolTable,
    meta: MetaRegion,
    free: FreeLines,
    current: Option<Current>,
}

/// The directory that a trainer works on.
#[derive(Debug)]
struct Current {
    root: RootWord,
    boundaries: Vec<u64>,
    /// Leaves that its groups had when it was first seen, as far as their images' lines tell.
    leaves: u64,
    /// By group: the slot as it was when nothing was left to train.
    trained: Vec<Option<DirectorySlot>>,
    /// The group to look at next.
    turn: usize,
    /// Steps in a row that found frozen slots: another trainer's unfinished directory.
    frozen_steps: u32,
}

/// What became of one group.
enum Outcome {
    /// Its image knows of every split.
    Current,
    Published {
        leaves: usize,
    },
    Lost,
    /// It has too many leaves: these, and the first one behind them if there were more.
    Grown {
        leaves: Vec<Collected>,
        rest: Option<Collected>,
    },
}

impl Trainer {
    /// A trainer that knows nothing yet.
    #[must_use]
    pub fn new(table: PoolTable, meta: MetaRegion) -> Self {
        Self { table, meta, free: FreeLines::default(), current: None }
    }

    /// Trains up to `budget` groups that need it.
    ///
    /// # Errors
    /// [`TrainError`]. What was published stays; the next step goes on.
    pub async fn step<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        budget: usize,
    ) -> Result<Trained, TrainError<S::Error>> {
        let root = read_root(slot, self.meta).await?;
        let Some(line) = root.line() else { return self.first_directory(slot, source).await };
        if self.current.as_ref().is_none_or(|current| current.root != root) {
            let directory = read_directory(slot, self.meta, root).await?;
            self.current = Some(Current::of(root, directory));
        }
        let Some(current) = self.current.as_mut() else { return Ok(Trained::default()) };
        let slots = read_slots(slot, self.meta, line, current.boundaries.len()).await?;
        if current.is_abandoned(&slots) {
            let published = self.replace_directory(slot, source, None).await?;
            return Ok(Trained { directories: usize::from(published), ..Trained::default() });
        }
        let mut due = current.due(&slots);
        let mut trained = Trained { waiting: due.len().saturating_sub(budget), ..Trained::default() };
        due.truncate(budget);
        for group in due {
            match self.train_group(slot, source, group, slots[group]).await? {
                Outcome::Current => {}
                Outcome::Published { leaves } => {
                    trained.groups += 1;
                    trained.leaves += leaves;
                }
                Outcome::Lost => trained.lost += 1,
                Outcome::Grown { leaves, rest } => {
                    let splits = slots[group].splits;
                    let pieces = self.cut(slot, source, &leaves, rest, splits).await?;
                    let published = self.replace_directory(slot, source, Some((group, pieces))).await?;
                    trained.directories += usize::from(published);
                    trained.groups += usize::from(published);
                    trained.leaves += leaves.len();
                    // The slots READ above are another directory's now.
                    break;
                }
            }
        }
        Ok(trained)
    }

    async fn train_group<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        group: usize,
        seen: DirectorySlot,
    ) -> Result<Outcome, TrainError<S::Error>> {
        let Some(current) = self.current.as_mut() else { return Ok(Outcome::Current) };
        if seen.pointer.is_frozen() {
            return Ok(Outcome::Lost);
        }
        let boundary = current.boundaries[group];
        let image = match read_group(slot, &self.table, self.meta, seen.pointer, boundary).await {
            Ok(image) => image,
            // Another trainer has put another in its place meanwhile.
            Err(LearnedError::Stale(_)) => return Ok(Outcome::Lost),
            Err(error) => return Err(error.into()),
        };
        if image.time().splits == seen.splits as u32 {
            current.note_trained(group, seen);
            return Ok(Outcome::Current);
        }
        let known: Vec<LeafPlace> = image.places(&self.table).collect();
        let end = current.boundaries.get(group + 1).copied();
        let stretch =
            Stretch { first: known[0], low: boundary, end, known: &known, leaves_max: GROUP_LEAVES_MAX };
        let (leaves, rest) = collect(slot, &self.table, &stretch).await?;
        if rest.is_some() || current.is_too_large(leaves.len()) {
            return Ok(Outcome::Grown { leaves, rest });
        }
        #[cfg(planted)]
        let leaves = self.planted_leaves(leaves, &known, seen.pointer);
        let time =
            GroupTime { generation: image.time().generation.wrapping_add(1), splits: seen.splits as u32 };
        let pointer = self.write_image(slot, source, time, &leaves).await?;
        if !self.exchange(slot, group, seen.pointer, pointer).await? {
            self.free.give(pointer.line(), pointer.lines() as usize);
            return Ok(Outcome::Lost);
        }
        #[cfg(planted)]
        let gives = !is_planted(Bug::LinesReusedEarly);
        #[cfg(not(planted))]
        let gives = true;
        if gives {
            self.free.give(seen.pointer.line(), seen.pointer.lines() as usize);
        }
        if let Some(current) = self.current.as_mut() {
            current.note_trained(group, DirectorySlot { pointer, ..seen });
        }
        Ok(Outcome::Published { leaves: leaves.len() })
    }

    /// Publishes the image of a group in the place of `old`; false if another trainer was quicker.
    async fn exchange<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        group: usize,
        old: GroupPointer,
        new: GroupPointer,
    ) -> Result<bool, FabricError> {
        let at = self.slot_address(group);
        #[cfg(planted)]
        if is_planted(Bug::PublishedByWrite) {
            slot.post_write(META_NODE, 0, at, &[new.0]);
            slot.completed().await;
            return slot.take_word(META_NODE, 0).map(|_| true);
        }
        slot.post_compare_swap(META_NODE, 0, at, old.0, new.0);
        slot.completed().await;
        Ok(slot.take_word(META_NODE, 0)? == old.0)
    }

    /// What an image is made of where a bug in that is planted.
    #[cfg(planted)]
    fn planted_leaves(
        &mut self,
        mut leaves: Vec<Collected>,
        known: &[LeafPlace],
        old: GroupPointer,
    ) -> Vec<Collected> {
        if is_planted(Bug::LeavesNotCarriedOver) {
            leaves.retain(|leaf| known.contains(&leaf.place));
        }
        if is_planted(Bug::LinesReusedEarly) {
            self.free.give(old.line(), old.lines() as usize);
        }
        leaves
    }

    /// Writes the image of a group of these leaves into lines of this trainer's own.
    async fn write_image<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        time: GroupTime,
        leaves: &[Collected],
    ) -> Result<GroupPointer, TrainError<S::Error>> {
        let leaves: Vec<(u64, LeafPlace)> = leaves.iter().map(|leaf| (leaf.low, leaf.place)).collect();
        let words = Group::train(time, &leaves).to_words();
        let line = self.write_lines(slot, source, &words).await?;
        Ok(GroupPointer::new(line, (words.len() / WORDS_PER_LINE) as u32, time.generation))
    }

    /// Writes whole lines into lines of this trainer's own; they stand there when this returns.
    async fn write_lines<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        words: &[u64],
    ) -> Result<u32, TrainError<S::Error>> {
        let lines = words.len() / WORDS_PER_LINE;
        let line = self.free.take_or_ask(slot, lines, source).await.map_err(TrainError::Lines)?;
        if !self.meta.holds(line, lines) {
            let (expected, got) = (self.meta.lines.into(), line.into());
            let error = ImageError { piece: "lines given to a trainer", what: "first line", expected, got };
            return Err(LearnedError::Stale(error).into());
        }
        write_words(slot, META_NODE, self.meta.address(line, 0), words).await?;
        Ok(line)
    }

    fn slot_address(&self, group: usize) -> farsight_base::RemoteAddress {
        let current = self.current.as_ref().expect("a group belongs to a directory");
        let line = current.root.line().expect("a directory stands somewhere");
        self.meta.address(line, Directory::slot_word(current.boundaries.len(), group))
    }
}

impl Current {
    fn of(root: RootWord, directory: Directory) -> Self {
        let groups = directory.boundaries.len();
        // An image has hardly more than a word a leaf.
        let lines: u64 = directory.slots.iter().map(|slot| u64::from(slot.pointer.lines())).sum();
        let leaves = lines * WORDS_PER_LINE as u64;
        Self {
            root,
            boundaries: directory.boundaries,
            leaves,
            trained: vec![None; groups],
            turn: 0,
            frozen_steps: 0,
        }
    }

    /// The groups that are not known to be trained, in turn.
    fn due(&mut self, slots: &[DirectorySlot]) -> Vec<usize> {
        let groups = slots.len();
        let order = (self.turn..groups).chain(0..self.turn);
        let due: Vec<usize> = order.filter(|group| self.trained[*group] != Some(slots[*group])).collect();
        self.turn = due.first().map_or(0, |group| (group + 1) % groups);
        due
    }

    /// Whether slots stay frozen for longer than a trainer that lives needs for its directory.
    fn is_abandoned(&mut self, slots: &[DirectorySlot]) -> bool {
        let is_frozen = slots.iter().any(|slot| slot.pointer.is_frozen());
        self.frozen_steps = if is_frozen { self.frozen_steps + 1 } else { 0 };
        self.frozen_steps > FROZEN_STEPS_MAX
    }

    fn note_trained(&mut self, group: usize, slot: DirectorySlot) {
        self.trained[group] = Some(slot);
    }

    /// Whether a group of so many leaves is to be cut.
    fn is_too_large(&self, leaves: usize) -> bool {
        let is_grown = leaves as u64 > GROUP_LEAVES_GROWN as u64 + self.leaves / GROWTH_SHARE;
        is_grown || leaves > GROUP_LEAVES_MAX / 2
    }
}

const _: () = assert!(DIRECTORY_SLOT_WORDS == 2 && GROUP_LEAVES_GROWN < GROUP_LEAVES_MAX);
