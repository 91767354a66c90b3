//! Training: groups whose leaves have split get new images, and a table that has grown a new directory. Any
//! compute node may do it, or a memory node by loop-back; several at once do not hurt each other.
//!
//! Invariant: a trainer writes an image or a directory whole into lines that it alone writes. Then it
//! publishes it by one compare-and-swap of the word that names it. Lines are their trainer's as long as it
//! lives, published or not. It takes an image's lines back once the newest directory does not name the image,
//! whether another replaced it or it was never published. No record moves, so operations never wait.
//!
//! Protocol, group by group: the trainer READs the split counter before the leaves. Every split adds to it
//! while the leaf is locked, or after its right leaf is linked. So an image whose counter is the slot's knows
//! of every split that was counted, unless a leaf was locked when it was READ. Then the image says that it is
//! older, and is trained again, as is one that a split overtook. Empty leaves are merged on the way
//! ([`merge`]), but for the one at which the group begins ([`anchor`]).
//!
//! A new directory:
//! 1. The trainer freezes the old one's slots. Then nobody exchanges a pointer in it any more, and the images
//!    that both name have one owner, the new one. Frozen slots serve readers as before.
//! 2. It publishes the new directory.
//! 3. It counts the splits that were counted in the old slots meanwhile again in the new ones. A split's own
//!    doorbell READs the root behind its count, and counts again if there is a new directory, so none is
//!    missed.
//!
//! If a trainer dies after step 1, another one makes the new directory. A directory's memory is used for
//! directories alone ([`runs`]), because a compute node that does not know of the newest one yet still counts
//! splits in it. A trainer makes a directory when a group has grown, when many have shrunk ([`together`]),
//! and when a trainer that died has frozen a slot.

mod anchor;
mod collect;
mod coordinator;
mod directory;
mod merge;
mod reclaim;
mod runs;
mod space;
mod stale;
mod together;

use std::collections::HashSet;
use std::ops::Range;
use std::time::Duration;

use farsight_base::WORDS_PER_LINE;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair};
use farsight_layout::learned::{
    Directory, DirectoryShape, DirectorySlot, GROUP_HEADER_WORDS, GROUP_LEAVES_MAX, GroupPointer, GroupTime,
    ImageError, RootWord, SEGMENT_WORDS,
};
use farsight_protocol::Claim;

use crate::cache::fetch::{META_NODE, read_directory, read_group, read_root, read_slots};
use crate::cache::{Group, LearnedError, MetaRegion};
#[cfg(injected)]
use crate::injected;
use crate::transfer::write_words;
use crate::{LeafPlace, PoolTable, RolexError, RolexSession};
use collect::{Collected, Stretch, Tiled, collect};
use runs::Runs;
use space::FreeLines;

pub use coordinator::{CoordinatorLines, LinesError};
pub use reclaim::Reclaimed;
pub use space::LineSource;

/// How large groups are, and when small ones are put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSizes {
    /// Leaves of a group when it is cut or put together, at most. With twice as many it is cut, once the
    /// table has grown enough for a new directory.
    pub leaves: usize,
    /// Groups that have to be saved by putting others together.
    pub saved_min: usize,
}

impl GroupSizes {
    /// What suits tables of any size.
    pub const USUAL: Self = Self { leaves: 512, saved_min: 8 };
}

/// A new directory is worth its memory once one group has grown by this share of all leaves.
const GROWTH_SHARE: u64 = 8;

/// Steps that find slots frozen, and wait, before a trainer takes the other one's work over.
const FROZEN_STEPS_MAX: u32 = 4;
/// The pause of the first of them, and for each group, all of which that one may be at work on; each one
/// after it is four times as long.
const FROZEN_PAUSE: Duration = Duration::from_millis(1);
const FROZEN_PAUSE_PER_GROUP: Duration = Duration::from_micros(1);

/// Times that a trainer looks for the newest directory's slots: each failure is another new directory.
const LOOKS_MAX: u32 = 64;

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
    /// Whether there are more lines is not known.
    #[error("a trainer gets no lines of the meta region: {0}")]
    Lines(E),
    /// There are no more lines.
    #[error("directory and models lack {lines} lines in a row; give the pool's first node more memory")]
    Full {
        /// Lines that were wanted.
        lines: usize,
    },
}

impl<E> TrainError<E> {
    /// `None` in place of [`TrainError::Full`].
    fn unless_full<T>(outcome: Result<T, Self>) -> Result<Option<T>, Self> {
        match outcome {
            #[cfg(injected)]
            Err(full) if injected::FULL_ENDS_STEP.is_injected() => Err(full),
            Err(Self::Full { .. }) => Ok(None),
            outcome => outcome.map(Some),
        }
    }
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
    /// Groups, and directories of small or frozen ones put together, for which there are no lines. They are
    /// tried again some steps later. Readers reach their keys by walking.
    pub full: usize,
    /// Empty leaves merged into their left neighbours.
    pub merged: usize,
}

impl std::ops::Add for Trained {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            groups: self.groups + other.groups,
            leaves: self.leaves + other.leaves,
            lost: self.lost + other.lost,
            directories: self.directories + other.directories,
            waiting: self.waiting + other.waiting,
            resting: self.resting + other.resting,
            full: self.full + other.full,
            merged: self.merged + other.merged,
        }
    }
}

impl Trained {
    /// A step for which there were no lines.
    const FULL: Self =
        Self { groups: 0, leaves: 0, lost: 0, directories: 0, waiting: 0, resting: 0, full: 1, merged: 0 };

    /// True if nothing was done and nothing is left to do.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.groups + self.lost + self.directories + self.waiting + self.resting + self.full == 0
    }
}

/// One trainer of one table.
pub struct Trainer {
    /// What locks leaves and asks memory nodes.
    session: RolexSession,
    table: PoolTable,
    meta: MetaRegion,
    sizes: GroupSizes,
    free: FreeLines,
    runs: Runs,
    /// By memory node: the newest claim on its leaves that this trainer has heard of.
    known: Vec<Claim>,
    /// Images in lines of this trainer's own: those that the newest directory named when it was looked at
    /// last, and those written since.
    images: Vec<GroupPointer>,
    current: Option<Current>,
}

/// The directory that a trainer works on.
#[derive(Debug)]
struct Current {
    root: RootWord,
    shape: DirectoryShape,
    boundaries: Vec<u64>,
    /// Leaves that its groups had when it was first seen, as far as their images' lines tell.
    leaves: u64,
    /// By group: the slot as it was when nothing was left to train.
    trained: Vec<Option<DirectorySlot>>,
    /// By group: whether its leaves come to rest.
    rests: Vec<Rest>,
    /// The group to look at next.
    turn: usize,
    /// Whether small groups are put together.
    together: Rest,
    /// Steps that found frozen slots: another trainer's unfinished directory.
    frozen_steps: u32,
}

/// Whether a group's leaves come to rest, and there are lines for it.
#[derive(Clone, Copy, Default, Debug)]
struct Rest {
    /// How often in a row they were inconsistent when they were READ.
    unsettled: u32,
    /// How often in a row there were no lines.
    full: u32,
    /// Steps for which the group is passed over.
    steps: u32,
    /// The pointer under which no image of the group was found, and how often in a row.
    stale: (GroupPointer, u32),
}

impl Rest {
    /// Notes that there are no lines: the next steps pass it over, twice as many each time.
    fn note_full(&mut self) {
        self.steps = 1 << self.full.min(REST_DOUBLINGS_MAX);
        self.full += 1;
    }

    /// True in a step that passes it over.
    fn passes(&mut self) -> bool {
        let passes = self.steps > 0;
        self.steps = self.steps.saturating_sub(1);
        passes
    }
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
        Self::with_sizes(session, GroupSizes::USUAL)
    }

    /// The same, with other groups than the usual ones: so small, that a small table has many.
    #[must_use]
    pub fn with_sizes(session: RolexSession, sizes: GroupSizes) -> Self {
        let (table, meta) = (session.table().clone(), session.hints.cache().meta());
        let (free, runs) = (FreeLines::default(), Runs::default());
        let known = vec![Claim::ALLOCATED; table.nodes().len()];
        Self { session, table, meta, sizes, free, runs, known, images: Vec::new(), current: None }
    }

    /// Trains up to `budget` groups that need it, and puts small ones together if none is left.
    ///
    /// # Errors
    /// [`TrainError`]. What was published stays; the next step goes on.
    pub async fn step<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        budget: usize,
    ) -> Result<Trained, TrainError<S::Error>> {
        self.session.calls.check_usable()?;
        let Some(slots) = self.look(slot).await? else {
            let made = self.first_directory(slot, source).await;
            return Ok(TrainError::unless_full(made)?.unwrap_or(Trained::FULL));
        };
        take_back(&mut self.images, &mut self.free, &slots);
        let Some(current) = self.current.as_mut() else { return Ok(Trained::default()) };
        if slots.iter().any(|slot| slot.pointer.is_frozen()) {
            let Some(pause) = current.frozen_pause() else {
                let replaced = self.replace_directory(slot, source, Vec::new()).await;
                return Ok(TrainError::unless_full(replaced)?.unwrap_or(Trained::FULL));
            };
            slot.pause(pause).await;
            return Ok(Trained { lost: 1, ..Trained::default() });
        }
        let (mut due, mut trained) = current.due(&slots);
        trained.waiting = due.len().saturating_sub(budget);
        due.truncate(budget);
        for group in due {
            let outcome = self.train_group(slot, source, group, &slots).await;
            match TrainError::unless_full(outcome)? {
                None => self.note_full(group, &mut trained),
                Some(Outcome::Current) => {}
                Some(Outcome::Published { leaves, merged }) => {
                    trained.groups += 1;
                    trained.leaves += leaves;
                    trained.merged += merged;
                }
                Some(Outcome::Lost) => trained.lost += 1,
                Some(Outcome::Grown { leaves, rest }) => {
                    let cut = self.cut_group(slot, source, group, (leaves, rest), slots[group].splits).await;
                    match TrainError::unless_full(cut)? {
                        // Nothing was frozen: the others' slots are as they were READ.
                        None => self.note_full(group, &mut trained),
                        // The slots READ above are another directory's now.
                        Some(done) => return Ok(trained + done),
                    }
                }
            }
        }
        if trained.waiting > 0 {
            return Ok(trained);
        }
        Ok(trained + self.make_smaller(slot, source, &slots).await?)
    }

    /// Notes that a group waits for lines.
    fn note_full(&mut self, group: usize, trained: &mut Trained) {
        trained.full += 1;
        if let Some(current) = self.current.as_mut() {
            current.rests[group].note_full();
        }
    }

    /// The slots of the newest directory, which is the current one from then on; nothing if there is none.
    ///
    /// The root is READ behind them. A directory that is the newest then was the newest before. So its run
    /// held it, and not yet another, when the slots were READ. What they do not name is in use nowhere.
    async fn look<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
    ) -> Result<Option<Vec<DirectorySlot>>, LearnedError> {
        let mut last = ImageError { piece: "directory", what: "number", expected: 0, got: 0 };
        for _ in 0..LOOKS_MAX {
            let slots = match &self.current {
                Some(current) => read_slots(slot, self.meta, current.line(), current.shape).await?,
                None => Vec::new(),
            };
            let root = read_root(slot, self.meta).await?;
            if root.line().is_none() {
                return Ok(None);
            }
            if self.current.as_ref().is_some_and(|current| current.root == root) {
                return Ok(Some(slots));
            }
            match read_directory(slot, self.meta, root).await {
                Ok(directory) => self.current = Some(Current::of(root, directory)),
                Err(LearnedError::Stale(error)) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(LearnedError::Unsettled { tries: LOOKS_MAX, last })
    }

    /// True if the current directory is the newest.
    async fn is_newest<Q: QueuePair>(&self, slot: &PoolSlot<'_, '_, Q>) -> Result<bool, FabricError> {
        let root = read_root(slot, self.meta).await?;
        Ok(self.current.as_ref().is_some_and(|current| current.root == root))
    }

    async fn train_group<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        group: usize,
        slots: &[DirectorySlot],
    ) -> Result<Outcome, TrainError<S::Error>> {
        let seen = slots[group];
        let Some(current) = self.current.as_mut() else { return Ok(Outcome::Lost) };
        let boundary = current.boundaries[group];
        let image = match read_group(slot, &self.table, self.meta, seen.pointer, boundary).await {
            Ok(image) => image,
            Err(LearnedError::Stale(_)) => return self.note_stale(slot, source, group, slots).await,
            Err(error) => return Err(error.into()),
        };
        if image.time().splits == seen.splits as u32 {
            current.note_trained(group, seen);
            return Ok(Outcome::Current);
        }
        let known: Vec<LeafPlace> = image.places(&self.table).collect();
        let Some((mut leaves, rest)) = self.collect_groups(slot, group..group + 1, &known).await? else {
            return Ok(Outcome::Lost);
        };
        if rest.is_some() || self.is_too_large(leaves.len()) {
            return Ok(Outcome::Grown { leaves, rest });
        }
        #[cfg(injected)]
        {
            leaves = self.injected_leaves(leaves, &known, seen.pointer);
        }
        let found = leaves.len();
        let splits = seen.splits + self.merge_empty(slot, group, &mut leaves).await?;
        let merged = found - leaves.len();
        let is_current = self.note_leaves(group, &leaves, merged > 0);
        let trained_at = (splits as u32).wrapping_sub(u32::from(!is_current));
        let time = GroupTime { generation: image.time().generation.wrapping_add(1), splits: trained_at };
        let pointer = self.write_image(slot, source, time, &leaves).await?;
        if let Some(current) = self.current.as_mut() {
            current.rests[group].full = 0;
        }
        if !self.exchange(slot, group, seen.pointer, pointer).await? {
            return Ok(Outcome::Lost);
        }
        if let Some(current) = self.current.as_mut().filter(|_| is_current) {
            current.note_trained(group, DirectorySlot { pointer, splits });
        }
        Ok(Outcome::Published { leaves: leaves.len(), merged })
    }

    /// The leaves of neighbouring groups, of which these are known. Nothing if the directory is not the
    /// newest any more: the leaf at which one of its groups began may have been merged.
    async fn collect_groups<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        groups: Range<usize>,
        known: &[LeafPlace],
    ) -> Result<Option<Tiled>, RolexError> {
        let Some(Current { boundaries, .. }) = &self.current else { return Ok(None) };
        let (low, end) = (boundaries[groups.start], boundaries.get(groups.end).copied());
        let stretch = Stretch { first: known[0], low, end, known, leaves_max: GROUP_LEAVES_MAX };
        let collected = collect(slot, &self.session, &stretch).await;
        let is_unsettled = matches!(&collected, Err(RolexError::Learned(LearnedError::Unsettled { .. })));
        if is_unsettled && !self.is_newest(slot).await? {
            return Ok(None);
        }
        collected.map(Some)
    }

    /// Whether no leaf of a group was locked and none waits to be merged. If one was or does, step after
    /// step, and the trainer achieves nothing, it leaves the group alone for a while.
    fn note_leaves(&mut self, group: usize, leaves: &[Collected], is_progress: bool) -> bool {
        let is_consistent =
            leaves.iter().all(|leaf| !leaf.is_locked) && leaves[1..].iter().all(|leaf| !leaf.is_empty);
        let Some(current) = self.current.as_mut() else { return is_consistent };
        let rest = &mut current.rests[group];
        if is_consistent || is_progress {
            // Whether there are lines shows behind this.
            *rest = Rest { full: rest.full, ..Rest::default() };
            return is_consistent;
        }
        rest.unsettled += 1;
        if let Some(doublings) = rest.unsettled.checked_sub(UNSETTLED_MAX) {
            rest.steps = 1 << doublings.min(REST_DOUBLINGS_MAX);
        }
        is_consistent
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

    /// What an image is made of where a bug in that is injected.
    #[cfg(injected)]
    fn injected_leaves(
        &mut self,
        mut leaves: Vec<Collected>,
        known: &[LeafPlace],
        old: GroupPointer,
    ) -> Vec<Collected> {
        if injected::LEAVES_NOT_CARRIED_OVER.is_injected() {
            leaves.retain(|leaf| known.contains(&leaf.place));
        }
        if injected::LINES_REUSED_EARLY.is_injected() {
            self.images.retain(|image| *image != old);
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
        let lines = words.len() / WORDS_PER_LINE;
        let line = self.take_lines(slot, source, lines).await?;
        let pointer = GroupPointer::new(line, lines as u32, time.generation);
        self.images.push(pointer);
        write_words(slot, META_NODE, self.meta.address(line, 0), &words).await?;
        Ok(pointer)
    }

    /// Lines of this trainer's own that nothing stands in.
    async fn take_lines<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        lines: usize,
    ) -> Result<u32, TrainError<S::Error>> {
        let line = self.free.take_or_ask(slot, lines, source).await.map_err(TrainError::Lines)?;
        let line = line.ok_or(TrainError::Full { lines })?;
        if !self.meta.holds(line, lines) {
            let (expected, got) = (self.meta.lines.into(), line.into());
            let error = ImageError { piece: "lines given to a trainer", what: "first line", expected, got };
            return Err(LearnedError::Stale(error).into());
        }
        Ok(line)
    }

    /// Whether a group of so many leaves is to be cut.
    fn is_too_large(&self, leaves: usize) -> bool {
        let all = self.current.as_ref().map_or(0, |current| current.leaves);
        let is_grown = leaves as u64 > 2 * self.sizes.leaves as u64 + all / GROWTH_SHARE;
        is_grown || leaves > GROUP_LEAVES_MAX / 2
    }

    fn slot_address(&self, group: usize) -> farsight_base::RemoteAddress {
        let current = self.current.as_ref().expect("a group belongs to a directory");
        self.meta.address(current.line(), current.shape.slot_word(group))
    }
}

/// Leaves of the group of an image of one segment, at most; of more segments, about.
fn leaves_of(image: GroupPointer) -> usize {
    (image.lines() as usize * WORDS_PER_LINE).saturating_sub(GROUP_HEADER_WORDS + SEGMENT_WORDS)
}

/// Gives those lines of images to the free ones that no slot of the newest directory names.
fn take_back(images: &mut Vec<GroupPointer>, free: &mut FreeLines, slots: &[DirectorySlot]) {
    if images.is_empty() {
        return;
    }
    let named: HashSet<u64> = slots.iter().map(|slot| slot.pointer.thawed().0).collect();
    images.retain(|pointer| {
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
        Self {
            root,
            shape: directory.shape(),
            leaves: directory.slots.iter().map(|slot| leaves_of(slot.pointer) as u64).sum(),
            boundaries: directory.boundaries,
            trained: vec![None; groups],
            rests: vec![Rest::default(); groups],
            turn: 0,
            together: Rest::default(),
            frozen_steps: 0,
        }
    }

    /// The first line of its run.
    fn line(&self) -> u32 {
        self.root.line().expect("a directory stands somewhere")
    }

    /// The groups that are not known to be trained, in turn; and how many of them are passed over, and why.
    fn due(&mut self, slots: &[DirectorySlot]) -> (Vec<usize>, Trained) {
        let groups = slots.len();
        let (mut due, mut passed) = (Vec::new(), Trained::default());
        for group in (self.turn..groups).chain(0..self.turn) {
            let rest = &mut self.rests[group];
            if self.trained[group] == Some(slots[group]) {
                continue;
            }
            match (rest.passes(), rest.full) {
                (false, _) => due.push(group),
                (true, 0) => passed.resting += 1,
                (true, _) => passed.full += 1,
            }
        }
        self.turn = due.first().map_or(0, |group| (group + 1) % groups);
        (due, passed)
    }

    /// How long to wait for the trainer that has frozen slots; nothing if that was long enough.
    fn frozen_pause(&mut self) -> Option<Duration> {
        let step = self.frozen_steps;
        self.frozen_steps += 1;
        let groups = self.boundaries.len() as u32;
        let first = FROZEN_PAUSE + FROZEN_PAUSE_PER_GROUP.saturating_mul(groups);
        (step < FROZEN_STEPS_MAX).then(|| first.saturating_mul(1 << (2 * step)))
    }

    fn note_trained(&mut self, group: usize, slot: DirectorySlot) {
        self.trained[group] = Some(slot);
    }
}

const _: () = assert!(2 * GroupSizes::USUAL.leaves < GROUP_LEAVES_MAX);
