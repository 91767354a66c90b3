//! Training: groups whose leaves have split get new images, and a table that has grown a new directory. Any
//! compute node may do it, or a memory node by loop-back; several at once do not hurt each other.
//!
//! Invariant: an image or a directory is written whole into lines that its trainer alone has, then
//! published by one compare-and-swap of the word that names it. Lines are their trainer's as long as it
//! lives, published or not: it takes an image's back once the newest directory does not name it any more,
//! whoever replaced it. No record moves, so operations never wait.
//!
//! Protocol, group by group: the split counter is READ before the leaves are; every split adds to it
//! while the leaf is locked, or after its right leaf is linked. So an image whose counter is the slot's knows
//! of every split that was counted, unless a leaf was locked when it was READ: then the image says that it is
//! older, and is trained again, as is one that a split overtook. Empty leaves are merged on the way
//! ([`merge`]); a group's first leaf is anchored before the group is published ([`anchor`]).
//!
//! A new directory: the old one's slots are frozen first, so that nobody exchanges a pointer in it any
//! more and the images that both name have one owner, the new one; then it is published; then splits that
//! were counted in the old slots meanwhile are counted again in the new ones. A split's own doorbell
//! READs the root behind its count, and counts again if there is a new directory, so none is missed.
//! Frozen slots serve readers as before; if their trainer died, another one makes the new directory. A
//! directory's memory is never used anew, because splits are counted in it by whoever does not know
//! better yet: it is the table's own before it is published.

mod anchor;
mod collect;
mod directory;
mod home;
mod merge;
mod reclaim;
mod space;

use std::collections::HashSet;

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
use crate::{LeafPlace, PoolTable, RolexError, RolexSession};
use collect::{Collected, Stretch, collect};
use space::FreeLines;

pub use home::{HomeLines, LinesError};
pub use reclaim::Reclaimed;
pub use space::LineSource;

/// Leaves of a group when it is cut.
pub const GROUP_LEAVES: usize = 512;
/// A group with more leaves is cut, once the table has grown enough for a new directory.
const GROUP_LEAVES_GROWN: usize = 2 * GROUP_LEAVES;
/// A new directory is worth its memory once one group has grown by this share of all leaves.
const GROWTH_SHARE: u64 = 8;

/// Steps that find slots frozen before a trainer takes the other one's work over.
const FROZEN_STEPS_MAX: u32 = 4;

/// Times in a row that a group is trained whose leaves do not come to rest, without a pause.
const UNSETTLED_MAX: u32 = 4;
/// Doublings of the steps that such a group is passed over for from then on.
const REST_DOUBLINGS_MAX: u32 = 6;

/// Why a step of training ended.
#[derive(Debug, thiserror::Error)]
pub enum TrainError<E> {
    /// The learned index or the leaves could not be READ or written.
    #[error(transparent)]
    Learned(#[from] LearnedError),
    /// A leaf could not be merged or anchored.
    #[error(transparent)]
    Session(#[from] RolexError),
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
    /// Groups some of whose leaves do not come to rest: they are trained again some steps later.
    pub resting: usize,
    /// Empty leaves merged into their left neighbours.
    pub merged: usize,
}

impl Trained {
    /// True if nothing was done and nothing is left to do.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.groups + self.lost + self.directories + self.waiting + self.resting == 0
    }
}

/// One trainer of one table.
pub struct Trainer {
    /// What locks leaves and asks memory nodes.
    session: RolexSession,
    table: PoolTable,
    meta: MetaRegion,
    free: FreeLines,
    /// Images in lines of this trainer's own, as the newest directory named them when it was looked at last.
    published: Vec<GroupPointer>,
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
    /// By group: whether its leaves come to rest.
    rests: Vec<Rest>,
    /// The group to look at next.
    turn: usize,
    /// Steps in a row that found frozen slots: another trainer's unfinished directory.
    frozen_steps: u32,
}

/// Whether a group's leaves come to rest.
#[derive(Clone, Copy, Default, Debug)]
struct Rest {
    /// How often in a row they were not at rest when they were READ.
    unsettled: u32,
    /// Steps for which the group is passed over.
    steps: u32,
}

/// What became of one group.
enum Outcome {
    /// Its image knows of every split.
    Current,
    Published {
        leaves: usize,
        merged: usize,
    },
    Lost,
    /// It has too many leaves: these, and the first one behind them if there were more.
    Grown {
        leaves: Vec<Collected>,
        rest: Option<Collected>,
    },
}

impl Trainer {
    /// A trainer that knows nothing yet, of the session's table.
    #[must_use]
    pub fn new(session: RolexSession) -> Self {
        let (table, meta) = (session.table().clone(), session.hints.cache().meta());
        Self { session, table, meta, free: FreeLines::default(), published: Vec::new(), current: None }
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
        self.session.calls.standing()?;
        let root = read_root(slot, self.meta).await?;
        let Some(line) = root.line() else { return self.first_directory(slot, source).await };
        if self.current.as_ref().is_none_or(|current| current.root != root) {
            let directory = read_directory(slot, self.meta, root).await?;
            self.current = Some(Current::of(root, directory));
        }
        let Some(current) = self.current.as_mut() else { return Ok(Trained::default()) };
        let slots = read_slots(slot, self.meta, line, current.boundaries.len()).await?;
        take_back(&mut self.published, &mut self.free, &slots);
        if current.is_abandoned(&slots) {
            let published = self.replace_directory(slot, source, None).await?;
            return Ok(Trained { directories: usize::from(published), ..Trained::default() });
        }
        let (mut due, resting) = current.due(&slots);
        let waiting = due.len().saturating_sub(budget);
        let mut trained = Trained { waiting, resting, ..Trained::default() };
        due.truncate(budget);
        for group in due {
            match self.train_group(slot, source, group, slots[group]).await? {
                Outcome::Current => {}
                Outcome::Published { leaves, merged } => {
                    trained.groups += 1;
                    trained.leaves += leaves;
                    trained.merged += merged;
                }
                Outcome::Lost => trained.lost += 1,
                Outcome::Grown { leaves, rest } => {
                    let splits = slots[group].splits;
                    let Some(pieces) = self.cut(slot, source, &leaves, rest, splits).await? else {
                        trained.lost += 1;
                        continue;
                    };
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
        let (mut leaves, rest) = collect(slot, &self.session, &stretch).await?;
        if rest.is_some() || current.is_too_large(leaves.len()) {
            return Ok(Outcome::Grown { leaves, rest });
        }
        #[cfg(planted)]
        {
            leaves = self.planted_leaves(leaves, &known, seen.pointer);
        }
        let found = leaves.len();
        let splits = seen.splits + self.merge_empty(slot, group, &mut leaves).await?;
        let merged = found - leaves.len();
        let is_settled = self.note_leaves(group, &leaves, merged > 0);
        let trained_at = (splits as u32).wrapping_sub(u32::from(!is_settled));
        let time = GroupTime { generation: image.time().generation.wrapping_add(1), splits: trained_at };
        let pointer = self.write_image(slot, source, time, &leaves).await?;
        if !self.exchange(slot, group, seen.pointer, pointer).await? {
            self.free.give(pointer.line(), pointer.lines() as usize);
            return Ok(Outcome::Lost);
        }
        self.published.push(pointer);
        if let Some(current) = self.current.as_mut().filter(|_| is_settled) {
            current.note_trained(group, DirectorySlot { pointer, splits });
        }
        Ok(Outcome::Published { leaves: leaves.len(), merged })
    }

    /// Whether these leaves of a group were at rest, and none waits to be merged. If that is so again and
    /// again, without anything having been achieved, the group is left alone for a while.
    fn note_leaves(&mut self, group: usize, leaves: &[Collected], is_progress: bool) -> bool {
        let is_at_rest =
            leaves.iter().all(|leaf| !leaf.is_locked) && leaves[1..].iter().all(|leaf| !leaf.is_empty);
        let Some(current) = self.current.as_mut() else { return is_at_rest };
        let rest = &mut current.rests[group];
        if is_at_rest || is_progress {
            *rest = Rest::default();
            return is_at_rest;
        }
        rest.unsettled += 1;
        if let Some(doublings) = rest.unsettled.checked_sub(UNSETTLED_MAX) {
            rest.steps = 1 << doublings.min(REST_DOUBLINGS_MAX);
        }
        is_at_rest
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
            self.published.retain(|published| *published != old);
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

/// Gives those lines of published images to the free ones that no slot of the newest directory names.
fn take_back(published: &mut Vec<GroupPointer>, free: &mut FreeLines, slots: &[DirectorySlot]) {
    if published.is_empty() {
        return;
    }
    let named: HashSet<u64> = slots.iter().map(|slot| slot.pointer.thawed().0).collect();
    published.retain(|pointer| {
        let is_named = named.contains(&pointer.0);
        if !is_named {
            free.give(pointer.line(), pointer.lines() as usize);
        }
        is_named
    });
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
            rests: vec![Rest::default(); groups],
            turn: 0,
            frozen_steps: 0,
        }
    }

    /// The groups that are not known to be trained, in turn; and how many of them are passed over.
    fn due(&mut self, slots: &[DirectorySlot]) -> (Vec<usize>, usize) {
        let groups = slots.len();
        let (mut due, mut resting) = (Vec::new(), 0);
        for group in (self.turn..groups).chain(0..self.turn) {
            let rest = &mut self.rests[group];
            if self.trained[group] == Some(slots[group]) {
                continue;
            }
            if rest.steps > 0 {
                rest.steps -= 1;
                resting += 1;
            } else {
                due.push(group);
            }
        }
        self.turn = due.first().map_or(0, |group| (group + 1) % groups);
        (due, resting)
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
