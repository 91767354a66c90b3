//! New directories: the first one, that of a bulk load, and one in which a group that has grown is several.

use farsight_base::WORDS_PER_LINE;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair};
use farsight_layout::learned::{
    Directory, DirectorySlot, GROUP_LEAVES_MAX, GroupPointer, GroupTime, ROOT_SPLITS_WORD, ROOT_WORD,
    RootWord,
};
use farsight_protocol::{Blocks, Space};

use super::collect::{Collected, Stretch, collect};
use super::{Current, GROUP_LEAVES, LineSource, TrainError, Trained, Trainer};
use crate::cache::fetch::{META_NODE, read_slots};
use crate::transfer::read_words;
use crate::{LeafPlace, RolexError};

/// Times that slots are tried to be frozen: each failure is another trainer's success there.
const FREEZES_MAX: u32 = 64;

/// Groups of a directory to come: boundaries and slots.
pub(super) type Groups = Vec<(u64, DirectorySlot)>;

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
        let published = match self.cut(slot, source, &leaves, rest, splits).await? {
            Some(groups) => usize::from(self.publish_first(slot, source, groups, splits).await?),
            None => 0,
        };
        let (groups, leaves, lost) = (published, leaves.len(), 1 - published);
        Ok(Trained { groups, leaves, lost, directories: published, ..Trained::default() })
    }

    /// Publishes the directory of a table that has none and whose leaves, all of them, are these. False if
    /// another trainer was quicker.
    ///
    /// # Errors
    /// [`TrainError`].
    pub async fn publish_leaves<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        leaves: &[(u64, LeafPlace)],
    ) -> Result<bool, TrainError<S::Error>> {
        let splits = self.root_splits(slot).await?;
        let leaves: Vec<Collected> = leaves.iter().map(|&(low, place)| Collected::at(place, low)).collect();
        match self.cut(slot, source, &leaves, None, splits).await? {
            Some(groups) => self.publish_first(slot, source, groups, splits).await,
            None => Ok(false),
        }
    }

    async fn publish_first<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        groups: Groups,
        splits: u64,
    ) -> Result<bool, TrainError<S::Error>> {
        let count = groups.len();
        let pointers: Vec<GroupPointer> = groups.iter().map(|(_, slot)| slot.pointer).collect();
        let published = self.publish(slot, source, RootWord::default(), groups).await?;
        if published {
            self.published.extend(pointers);
            let missed = self.root_splits(slot).await?.wrapping_sub(splits);
            self.count_again(slot, (0..count).map(|group| (group, missed))).await?;
        } else {
            self.give_images(&pointers);
        }
        Ok(published)
    }

    /// Publishes a directory in the place of the one known: the same groups, but for one of them these.
    pub(super) async fn replace_directory<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        cut: Option<(usize, Groups)>,
    ) -> Result<bool, TrainError<S::Error>> {
        let Some(Current { root, boundaries, .. }) = self.current.take() else { return Ok(false) };
        let Some(line) = root.line() else { return Ok(false) };
        let (cut_group, mut cut_pieces) = cut.map_or((None, Groups::new()), |(group, it)| (Some(group), it));
        let pieces: Vec<GroupPointer> = cut_pieces.iter().map(|(_, slot)| slot.pointer).collect();
        let Some(old) = self.freeze(slot, line, boundaries.len()).await? else {
            self.give_images(&pieces);
            return Ok(false);
        };
        // The groups of the new directory, and where each was counted in the old one.
        let (mut groups, mut origin) = (Groups::new(), Vec::new());
        for (group, (boundary, slot)) in boundaries.iter().zip(&old).enumerate() {
            if cut_group == Some(group) {
                origin.extend(cut_pieces.iter().map(|_| group));
                groups.append(&mut cut_pieces);
            } else {
                origin.push(group);
                groups.push((*boundary, *slot));
            }
        }
        let counted: Vec<u64> = groups.iter().map(|(_, slot)| slot.splits).collect();
        if !self.publish(slot, source, root, groups).await? {
            self.give_images(&pieces);
            return Ok(false);
        }
        self.published.extend(pieces);
        let now = read_slots(slot, self.meta, line, boundaries.len()).await?;
        let missed = origin.iter().zip(counted).map(|(old, counted)| now[*old].splits.wrapping_sub(counted));
        self.count_again(slot, missed.enumerate()).await?;
        Ok(true)
    }

    /// Writes images of about [`GROUP_LEAVES`] leaves each; the leaf behind them begins a group whose other
    /// leaves are to be found out. Nothing if a leaf at which a group would begin is none any more.
    pub(super) async fn cut<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        leaves: &[Collected],
        rest: Option<Collected>,
        splits: u64,
    ) -> Result<Option<Groups>, TrainError<S::Error>> {
        let count = leaves.len().div_ceil(GROUP_LEAVES).max(1);
        let size = leaves.len().div_ceil(count).max(1);
        let mut groups = Groups::new();
        // An image that says it is older than the counter is trained again.
        let before = (splits as u32).wrapping_sub(1);
        let is_at_rest = |leaf: &Collected| !leaf.is_locked && !leaf.is_empty;
        let time_of = |piece: &[Collected]| if piece.iter().all(is_at_rest) { splits as u32 } else { before };
        let known = leaves.chunks(size).map(|piece| (piece, time_of(piece)));
        let unknown = rest.as_ref().map(|leaf| (std::slice::from_ref(leaf), before));
        for (piece, trained_at) in known.chain(unknown) {
            if !self.session.anchor(slot, piece[0].place, piece[0].low).await? {
                let pointers: Vec<GroupPointer> = groups.iter().map(|(_, slot)| slot.pointer).collect();
                self.give_images(&pointers);
                return Ok(None);
            }
            let time = GroupTime { generation: 1, splits: trained_at };
            let pointer = self.write_image(slot, source, time, piece).await?;
            groups.push((piece[0].low, DirectorySlot { pointer, splits }));
        }
        Ok(Some(groups))
    }

    /// Publishes a directory in the place of the one that `old` names; false if another trainer was quicker.
    async fn publish<Q: QueuePair, S: LineSource>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        source: &S,
        old: RootWord,
        groups: Groups,
    ) -> Result<bool, TrainError<S::Error>> {
        let number = old.number() + 1;
        let (boundaries, slots) = groups.into_iter().unzip();
        let directory = Directory { number, boundaries, slots };
        let words = directory.to_words();
        let line = self.write_lines(slot, source, &words).await?;
        let lines = [Blocks { first: line, count: (words.len() / WORDS_PER_LINE) as u32 }];
        let failed = |source| RolexError::of_call("lines of a directory", source);
        self.session.calls.settle(META_NODE, Space::Meta, &lines).map_err(failed)?;
        let root = RootWord::new(line, number);
        slot.post_compare_swap(META_NODE, 0, self.meta.address(0, ROOT_WORD), old.0, root.0);
        slot.completed().await;
        if slot.take_word(META_NODE, 0)? != old.0 {
            // It was never published, so nobody counts in it.
            self.session.calls.adopt(META_NODE, Space::Meta, &lines).map_err(failed)?;
            self.free.give(line, words.len() / WORDS_PER_LINE);
            return Ok(false);
        }
        self.current = Some(Current::of(root, directory));
        Ok(true)
    }

    /// Freezes all slots of the directory at `line`; gives them as they were last, thawed. Nothing if other
    /// trainers go on publishing there.
    async fn freeze<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        line: u32,
        groups: usize,
    ) -> Result<Option<Vec<DirectorySlot>>, FabricError> {
        let mut slots = read_slots(slot, self.meta, line, groups).await?;
        for _ in 0..FREEZES_MAX {
            let open = (0..groups).filter(|group| !slots[*group].pointer.is_frozen());
            let open: Vec<usize> = open.collect();
            if open.is_empty() {
                for slot in &mut slots {
                    slot.pointer = slot.pointer.thawed();
                }
                return Ok(Some(slots));
            }
            for piece in open.chunks(slot.verbs()) {
                for (verb, &group) in piece.iter().enumerate() {
                    let (at, old) = (Directory::slot_word(groups, group), slots[group].pointer);
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

    /// Adds splits to groups of the directory that this trainer has just published.
    async fn count_again<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        missed: impl Iterator<Item = (usize, u64)>,
    ) -> Result<(), FabricError> {
        let missed: Vec<(usize, u64)> = missed.filter(|(_, splits)| *splits > 0).collect();
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
        Ok(())
    }

    /// The splits that were counted while there was no directory.
    async fn root_splits<Q: QueuePair>(&self, slot: &PoolSlot<'_, '_, Q>) -> Result<u64, FabricError> {
        let line = read_words(slot, META_NODE, self.meta.address(0, 0), 1).await?;
        Ok(line[ROOT_SPLITS_WORD])
    }

    /// Takes back the lines of images that no directory names.
    fn give_images(&mut self, pointers: &[GroupPointer]) {
        for pointer in pointers {
            self.free.give(pointer.line(), pointer.lines() as usize);
        }
    }
}
