//! New directories: the first one, that of a bulk load, and those in which others take the place of groups.
//!
//! Invariant: when a directory is published, the leaf at which a new group begins is anchored, in the chain
//! ([`anchor`](super::anchor)). It was anchored after the freeze of the directory before. If a leaf of a
//! replacement is gone by then, the trainer drops the replacement and the old groups stay.

use std::ops::Range;

use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair};
use farsight_layout::learned::{
    Directory, DirectoryShape, DirectorySlot, GROUP_LEAVES_MAX, GroupPointer, GroupTime, ROOT_SPLITS_WORD,
    ROOT_WORD, RootWord,
};

use super::collect::{Collected, Stretch, collect};
use super::{Current, LineSource, TrainError, Trained, Trainer};
use crate::cache::LearnedError;
use crate::cache::fetch::{META_NODE, read_slots};
use crate::transfer::read_words;
use crate::{LeafPlace, RolexError};

/// Times that slots are tried to be frozen: each failure is another trainer's success there.
const FREEZES_MAX: u32 = 64;

/// A group to come, whose image is written.
pub(super) struct Piece {
    /// Its boundary.
    low: u64,
    /// The leaf that begins there.
    first: LeafPlace,
    leaves: usize,
    slot: DirectorySlot,
}

/// Neighbouring groups, and what takes their place.
pub(super) struct Replacement {
    pub(super) groups: Range<usize>,
    /// Each counts as many splits as all of the groups together did before their leaves were READ.
    pub(super) pieces: Vec<Piece>,
}

/// Groups of a directory to come.
#[derive(Default)]
struct Groups {
    boundaries: Vec<u64>,
    slots: Vec<DirectorySlot>,
    /// The groups of the directory before in which each one's splits were counted.
    origins: Vec<Range<usize>>,
}

impl Groups {
    fn push(&mut self, boundary: u64, slot: DirectorySlot, origin: Range<usize>) {
        self.boundaries.push(boundary);
        self.slots.push(slot);
        self.origins.push(origin);
    }

    /// The groups of the directory of these boundaries and slots, where `replacements`, ascending, take the
    /// place of some.
    fn replaced(boundaries: &[u64], slots: &[DirectorySlot], replacements: &[Replacement]) -> Self {
        let (mut groups, mut group) = (Self::default(), 0);
        let mut replacements = replacements.iter().peekable();
        while group < boundaries.len() {
            let Some(replaced) = replacements.next_if(|replaced| replaced.groups.start == group) else {
                groups.push(boundaries[group], slots[group], group..group + 1);
                group += 1;
                continue;
            };
            for piece in &replaced.pieces {
                groups.push(piece.low, piece.slot, replaced.groups.clone());
            }
            group = replaced.groups.end;
        }
        groups
    }
}

/// What all of these groups' slots count.
pub(super) fn splits_of(slots: &[DirectorySlot]) -> u64 {
    slots.iter().fold(0, |sum, slot| sum.wrapping_add(slot.splits))
}

impl Trainer {
    /// Makes a directory for a table that has none, once a leaf of it has split.
    pub(super) async fn first_directory<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
    ) -> Result<Trained, TrainError<S::Error>> {
        let splits = self.root_splits(slot).await?;
        if splits == 0 {
            return Ok(Trained::default());
        }
        let first = LeafPlace::new(0, 0).expect("every pool has a first leaf");
        let stretch = Stretch { first, low: 0, end: None, known: &[], leaves_max: GROUP_LEAVES_MAX };
        let (leaves, rest) = collect(slot, &self.session, &stretch).await?;
        let pieces = self.cut(slot, source, &leaves, rest, splits).await?;
        let is_published = self.publish_first(slot, source, &pieces, splits).await?;
        Ok(Trained::directory(is_published, &pieces))
    }

    /// Publishes the directory of a table that has none and whose leaves, all of them, are these, but for
    /// those that were split since `splits` were counted. False if another trainer was quicker.
    ///
    /// # Errors
    /// [`TrainError`].
    pub async fn publish_leaves<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        leaves: &[(u64, LeafPlace)],
        splits: u64,
    ) -> Result<bool, TrainError<S::Error>> {
        let leaves: Vec<Collected> = leaves.iter().map(|&(low, place)| Collected::at(place, low)).collect();
        let pieces = self.cut(slot, source, &leaves, None, splits).await?;
        self.publish_first(slot, source, &pieces, splits).await
    }

    async fn publish_first<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        pieces: &[Piece],
        splits: u64,
    ) -> Result<bool, TrainError<S::Error>> {
        // As long as there is no directory nobody merges what is anchored, so there is nothing to freeze.
        if !self.anchor_all(slot, pieces).await? {
            return Ok(false);
        }
        let mut groups = Groups::default();
        for piece in pieces {
            groups.push(piece.low, piece.slot, 0..0);
        }
        let published = self.publish(slot, source, RootWord::default(), 0, groups).await;
        if matches!(published, Err(TrainError::Full { .. })) {
            self.discard(pieces);
        }
        if !published? {
            return Ok(false);
        }
        let missed = self.root_splits(slot).await?.wrapping_sub(splits);
        self.count_again(slot, (0..pieces.len()).map(|group| (group, missed))).await?;
        Ok(true)
    }

    /// Cuts a group that has grown. Gets a run for the directory first: without one, images are of no use.
    pub(super) async fn cut_group<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        group: usize,
        (leaves, rest): (Vec<Collected>, Option<Collected>),
        splits: u64,
    ) -> Result<Trained, TrainError<S::Error>> {
        let pieces = leaves.len().div_ceil(self.piece_leaves(leaves.len())) + usize::from(rest.is_some());
        self.run_ahead(slot, source, pieces).await?;
        let pieces = self.cut(slot, source, &leaves, rest, splits).await?;
        let grown = Replacement { groups: group..group + 1, pieces };
        self.replace_directory(slot, source, vec![grown]).await
    }

    /// Gets a run for the directory that follows the one known, with so many pieces more. Its shape at most;
    /// none if no directory is known.
    async fn run_ahead<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        pieces: usize,
    ) -> Result<Option<DirectoryShape>, TrainError<S::Error>> {
        let Some(Current { root, shape, boundaries, .. }) = &self.current else { return Ok(None) };
        let number = root.number() + 1;
        let shape = DirectoryShape::new(boundaries.len() + pieces, shape.capacity());
        self.run_for(slot, source, number, shape).await?;
        Ok(Some(shape))
    }

    /// Gives back the lines of images that were not published and will not be.
    fn discard(&mut self, pieces: &[Piece]) {
        #[cfg(injected)]
        if crate::injected::UNUSED_IMAGES_KEPT.is_injected() {
            return;
        }
        for Piece { slot: DirectorySlot { pointer, .. }, .. } in pieces {
            self.images.retain(|image| image != pointer);
            self.free.give(pointer.line(), pointer.lines() as usize);
        }
    }

    /// Publishes a directory in the place of the one known: the same groups, but for these replacements.
    pub(super) async fn replace_directory<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        replacements: Vec<Replacement>,
    ) -> Result<Trained, TrainError<S::Error>> {
        let lost = Trained::directory(false, &[]);
        // Before anything is frozen: a trainer that gets no lines leaves the others to go on.
        let pieces = replacements.iter().map(|replacement| replacement.pieces.len()).sum();
        let ahead = self.run_ahead(slot, source, pieces).await;
        if matches!(ahead, Err(TrainError::Full { .. })) {
            for replacement in &replacements {
                self.discard(&replacement.pieces);
            }
        }
        let Some(shape_max) = ahead? else { return Ok(lost) };
        let Some(Current { root, shape, boundaries, .. }) = self.current.take() else { return Ok(lost) };
        let Some(line) = root.line() else { return Ok(lost) };
        let Some(old) = self.freeze(slot, line, shape).await? else { return Ok(lost) };
        let mut kept = Vec::new();
        for replacement in replacements {
            if self.anchor_all(slot, &replacement.pieces).await? {
                kept.push(replacement);
            }
        }
        let groups = Groups::replaced(&boundaries, &old, &kept);
        let origins = groups.origins.clone();
        let counted: Vec<u64> = groups.slots.iter().map(|slot| slot.splits).collect();
        if !self.publish(slot, source, root, shape_max.capacity(), groups).await? {
            return Ok(lost);
        }
        let now = read_slots(slot, self.meta, line, shape).await?;
        // The old run is reused after two newer directories, at the earliest. If this directory is still the
        // newest behind the READ, the old run was READ as it was left.
        let is_newest = self.is_newest(slot).await?;
        let missed = origins.into_iter().zip(counted).map(|(origin, counted)| {
            if is_newest { splits_of(&now[origin]).wrapping_sub(counted) } else { 1 }
        });
        self.count_again(slot, missed.enumerate()).await?;
        let pieces: Vec<Piece> = kept.into_iter().flat_map(|replacement| replacement.pieces).collect();
        Ok(Trained::directory(true, &pieces))
    }

    /// Writes images of about as many leaves each as groups shall have. The leaf behind them begins a group
    /// whose other leaves are to be found out.
    pub(super) async fn cut<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        leaves: &[Collected],
        rest: Option<Collected>,
        splits: u64,
    ) -> Result<Vec<Piece>, TrainError<S::Error>> {
        let size = self.piece_leaves(leaves.len());
        // An image that says it is older than the counter is trained again.
        let before = (splits as u32).wrapping_sub(1);
        let is_consistent = |leaf: &Collected| !leaf.is_locked && !leaf.is_empty;
        let time_of =
            |piece: &[Collected]| if piece.iter().all(is_consistent) { splits as u32 } else { before };
        let known = leaves.chunks(size).map(|piece| (piece, time_of(piece)));
        let unknown = rest.as_ref().map(|leaf| (std::slice::from_ref(leaf), before));
        let mut pieces = Vec::new();
        for (leaves, trained_at) in known.chain(unknown) {
            let time = GroupTime { generation: 1, splits: trained_at };
            let pointer = self.write_image(slot, source, time, leaves).await;
            if matches!(pointer, Err(TrainError::Full { .. })) {
                self.discard(&pieces);
            }
            let pointer = pointer?;
            let Collected { place: first, low, .. } = leaves[0];
            pieces.push(Piece { low, first, leaves: leaves.len(), slot: DirectorySlot { pointer, splits } });
        }
        Ok(pieces)
    }

    /// Leaves of each group but the last, of so many that are cut.
    fn piece_leaves(&self, leaves: usize) -> usize {
        let count = leaves.div_ceil(self.sizes.leaves).max(1);
        leaves.div_ceil(count).max(1)
    }

    /// Anchors the leaf at which each of these groups begins; false if one of them is none any more.
    async fn anchor_all<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        pieces: &[Piece],
    ) -> Result<bool, RolexError> {
        for piece in pieces {
            if !self.session.anchor(slot, piece.first, piece.low).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Publishes a directory in the place of the one that `old` names, whose run has this capacity; false if
    /// another trainer was quicker.
    async fn publish<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        old: RootWord,
        capacity: u32,
        groups: Groups,
    ) -> Result<bool, TrainError<S::Error>> {
        let number = old.number() + 1;
        let capacity = DirectoryShape::new(groups.boundaries.len(), capacity).capacity();
        let directory = Directory { number, capacity, boundaries: groups.boundaries, slots: groups.slots };
        let line = self.write_directory(slot, source, &directory).await?;
        let root = RootWord::new(line, number);
        slot.post_compare_swap(META_NODE, 0, self.meta.address(0, ROOT_WORD), old.0, root.0);
        slot.completed().await;
        if slot.take_word(META_NODE, 0)? != old.0 {
            return Ok(false);
        }
        self.runs.note_published(root);
        self.current = Some(Current::of(root, directory));
        Ok(true)
    }

    /// Freezes all slots of the directory at `line`; gives them as they were last, thawed. Nothing if other
    /// trainers go on publishing there.
    async fn freeze<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        line: u32,
        shape: DirectoryShape,
    ) -> Result<Option<Vec<DirectorySlot>>, FabricError> {
        let mut slots = read_slots(slot, self.meta, line, shape).await?;
        for _ in 0..FREEZES_MAX {
            let open = (0..slots.len()).filter(|group| !slots[*group].pointer.is_frozen());
            let open: Vec<usize> = open.collect();
            if open.is_empty() {
                for slot in &mut slots {
                    slot.pointer = slot.pointer.thawed();
                }
                return Ok(Some(slots));
            }
            for piece in open.chunks(slot.verbs()) {
                for (verb, &group) in piece.iter().enumerate() {
                    let (at, old) = (shape.slot_word(group), slots[group].pointer);
                    slot.post_compare_swap(
                        META_NODE,
                        verb,
                        self.meta.address(line, at),
                        old.0,
                        old.frozen().0,
                    );
                }
                slot.completed().await;
                for (verb, &group) in piece.iter().enumerate() {
                    let found = GroupPointer(slot.take_word(META_NODE, verb)?);
                    let is_ours = found == slots[group].pointer;
                    slots[group].pointer = if is_ours { found.frozen() } else { found };
                }
            }
        }
        Ok(None)
    }

    /// Adds splits to groups of the directory that this trainer has published; if another one has its maker's
    /// last look behind it, in that one.
    async fn count_again<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        missed: impl Iterator<Item = (usize, u64)>,
    ) -> Result<(), LearnedError> {
        let missed: Vec<(usize, u64)> = missed.filter(|(_, splits)| *splits > 0).collect();
        #[cfg(injected)]
        if crate::injected::RECOUNT_SKIPPED.is_injected() {
            return Ok(());
        }
        if missed.is_empty() {
            return Ok(());
        }
        for piece in missed.chunks(slot.verbs()) {
            for (verb, &(group, splits)) in piece.iter().enumerate() {
                let mut at = self.slot_address(group);
                at.offset_bytes += 8;
                slot.post_fetch_add(META_NODE, verb, at, splits);
            }
            slot.completed().await;
            for verb in 0..piece.len() {
                slot.take_word(META_NODE, verb)?;
            }
        }
        if self.is_newest(slot).await? {
            return Ok(());
        }
        let Some(Current { boundaries, .. }) = &self.current else { return Ok(()) };
        for (group, _) in missed {
            self.session.hints.count_split(slot, boundaries[group]).await?;
        }
        Ok(())
    }

    /// The splits that were counted while there was no directory.
    async fn root_splits<Q: QueuePair>(&self, slot: &PoolSlot<'_, '_, Q>) -> Result<u64, FabricError> {
        let line = read_words(slot, META_NODE, self.meta.address(0, 0), 1).await?;
        Ok(line[ROOT_SPLITS_WORD])
    }
}

impl Trained {
    /// A directory with these groups new in it, published or lost.
    fn directory(is_published: bool, pieces: &[Piece]) -> Self {
        if !is_published {
            return Self { lost: 1, ..Self::default() };
        }
        let leaves = pieces.iter().map(|piece| piece.leaves).sum();
        Self { groups: pieces.len(), leaves, directories: 1, ..Self::default() }
    }
}
