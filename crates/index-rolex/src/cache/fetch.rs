//! Fetching: the directory that the root names, and images that its slots point to.
//!
//! Invariant: a directory or an image is installed only if two things are so. Every word of it is what its
//! writer wrote: the checksum says so. And it is the one requested: a directory's number says so, an image's
//! boundary and generation. So memory that is used anew while it is READ costs another try. No writer of
//! images, however fast, makes a reader believe half of one. A directory's slots are no part of that. What
//! one of them points to is believed if it is an image of the group's boundary, wherever the slot's words
//! came from.

use std::sync::Arc;
use std::time::Duration;

use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_layout::learned::{
    Directory, DirectoryShape, DirectorySlot, GroupPointer, ImageError, ROOT_WORD, RootWord,
};

use super::{CacheSession, CachedDirectory, Candidates, Group, GroupId, MetaRegion};
use crate::transfer::read_words;
use crate::{LeafPlace, PoolTable};

/// The memory node that holds the learned index.
pub(crate) const META_NODE: usize = 0;

/// Times that a directory or an image is fetched before the operation gives up.
const FETCHES_MAX: u32 = 64;
/// The pause behind the first of them that fails; each one after it is twice as long.
const PAUSE_MIN: Duration = Duration::from_micros(1);
/// The longest pause. All together are longer than trainers take to find that a slot names an image of
/// another group, and to train that group anew.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Why a compute node cannot say where to look.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LearnedError {
    /// The fabric failed.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// What was READ is no directory or no image, or another than the one requested: it was replaced
    /// meanwhile.
    #[error("what was READ of the learned index is stale: {0}")]
    Stale(#[from] ImageError),
    /// The same, every time.
    #[error("the learned index in the meta region did not come to rest in {tries} tries: {last}")]
    Unsettled {
        /// How often it was READ.
        tries: u32,
        /// What was wrong at last.
        last: ImageError,
    },
}

/// A split's count on its way.
#[derive(Clone, Copy, Debug)]
pub struct PostedSplit {
    first_verb: usize,
    directory: u32,
}

impl CacheSession {
    /// Where `key` is looked for; fetches what is needed for that.
    ///
    /// # Errors
    /// [`LearnedError`].
    pub async fn candidates<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        key: u64,
    ) -> Result<Candidates, LearnedError> {
        loop {
            if let Some(candidates) = self.predict(key) {
                return Ok(candidates);
            }
            self.fetch(slot, key).await?;
        }
    }

    /// [`CacheSession::refresh`], again while what was READ is replaced.
    ///
    /// # Errors
    /// [`LearnedError::Fabric`]; [`LearnedError::Unsettled`].
    pub(crate) async fn fetch<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        key: u64,
    ) -> Result<(), LearnedError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.refresh(slot, key).await {
                Err(LearnedError::Stale(last)) if tries >= FETCHES_MAX => {
                    return Err(LearnedError::Unsettled { tries, last });
                }
                Err(LearnedError::Stale(_)) => {
                    slot.pause(PAUSE_MIN.saturating_mul(1 << (tries - 1).min(16)).min(PAUSE_MAX)).await;
                }
                done => return done,
            }
        }
    }

    /// Looks for a newer directory and a newer image of the group of `key`, and installs them.
    ///
    /// # Errors
    /// [`LearnedError::Fabric`]; [`LearnedError::Stale`] if what was READ was replaced meanwhile.
    pub async fn refresh<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        key: u64,
    ) -> Result<(), LearnedError> {
        let meta = self.cache.meta();
        let known = self.directory();
        let (root, pointer) = read_root_and_slot(slot, meta, &known, key).await?;
        if root.number() > known.number {
            let line = root.line().unwrap_or_default();
            let directory = read_directory(slot, meta, root).await?;
            self.cache.install_directory(line, &directory);
            let group = directory.boundaries.partition_point(|boundary| *boundary <= key) - 1;
            return self.fetch_group(slot, &self.directory(), group, directory.slots[group].pointer).await;
        }
        if let Some(pointer) = pointer {
            return self.fetch_group(slot, &known, known.group_of(key), pointer).await;
        }
        if known.groups[0].content().fetched.is_some() {
            return Ok(());
        }
        let first = LeafPlace::new(0, 0).expect("every pool has a first leaf");
        known.install(0, GroupPointer::default(), Group::of_first_leaf(first));
        Ok(())
    }

    /// Posts the count of a split of a leaf of `group` into a doorbell of the caller's, behind the split's
    /// own verbs. The count is up to two verbs at the first memory node, from `first_verb` on. What it
    /// returns is for [`CacheSession::is_counted`], once they are complete.
    pub fn post_split<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        first_verb: usize,
        group: GroupId,
    ) -> Option<PostedSplit> {
        let at = self.splits_address(group)?;
        slot.post_fetch_add(META_NODE, first_verb, at, 1);
        // Executed after the addition (`read_after_atomic`): a trainer that published a new directory before
        // that may have looked at the count for the last time.
        slot.post_read(META_NODE, first_verb + 1, self.cache.meta().address(0, 0), 1, ReadMode::Plain);
        Some(PostedSplit { first_verb, directory: group.directory })
    }

    /// Whether the split was counted where a trainer looks. If not, [`CacheSession::count_split`] does it.
    ///
    /// # Errors
    /// [`FabricError`].
    pub fn is_counted<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        posted: Option<PostedSplit>,
    ) -> Result<bool, FabricError> {
        let Some(PostedSplit { first_verb, directory }) = posted else { return Ok(false) };
        let mut line = [Line::ZERO];
        slot.take_word(META_NODE, first_verb)?;
        slot.take_read(META_NODE, first_verb + 1, &mut line)?;
        Ok(RootWord(line[0].0[ROOT_WORD]).number() == directory)
    }

    /// Counts a split of the leaf that held `key`, in the newest directory. Nothing may be under way.
    ///
    /// # Errors
    /// [`LearnedError`].
    pub async fn count_split<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        key: u64,
    ) -> Result<(), LearnedError> {
        let mut last = ImageError { piece: "directory", what: "number", expected: 0, got: 0 };
        for _ in 0..FETCHES_MAX {
            let directory = self.directory();
            let group = GroupId { directory: directory.number, group: directory.group_of(key) as u32 };
            let posted = self.post_split(slot, 0, group);
            slot.completed().await;
            if self.is_counted(slot, posted)? {
                return Ok(());
            }
            match self.refresh(slot, key).await {
                Ok(()) => {}
                Err(LearnedError::Stale(error)) => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(LearnedError::Unsettled { tries: FETCHES_MAX, last })
    }

    /// Fetches the image at `pointer`, unless it is here.
    async fn fetch_group<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        directory: &Arc<CachedDirectory>,
        group: usize,
        pointer: GroupPointer,
    ) -> Result<(), LearnedError> {
        // Another session may have installed a newer directory meanwhile.
        let Some(cell) = directory.groups.get(group) else { return Ok(()) };
        let content = cell.content();
        if content.pointer == pointer && content.fetched.is_some() {
            return Ok(());
        }
        let cache = &self.cache;
        let fetched =
            read_group(slot, cache.table(), cache.meta(), pointer, directory.boundaries[group]).await?;
        directory.install(group, pointer, fetched);
        Ok(())
    }
}

/// READs the root word and, in the same doorbell, the pointer of the group of `key`, if there is a directory.
async fn read_root_and_slot<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    meta: MetaRegion,
    known: &CachedDirectory,
    key: u64,
) -> Result<(RootWord, Option<GroupPointer>), FabricError> {
    slot.post_read(META_NODE, 0, meta.address(0, 0), 1, ReadMode::Plain);
    let at = (known.number != 0).then(|| known.slot_address(meta, known.group_of(key)));
    let line_bytes = (WORDS_PER_LINE * 8) as u64;
    let mut line = [Line::ZERO];
    if let Some(at) = at {
        let mut from = at;
        from.offset_bytes -= at.offset_bytes % line_bytes;
        slot.post_read(META_NODE, 1, from, 1, ReadMode::Plain);
    }
    slot.completed().await;
    slot.take_read(META_NODE, 0, &mut line)?;
    let root = RootWord(line[0].0[ROOT_WORD]);
    let Some(at) = at else { return Ok((root, None)) };
    slot.take_read(META_NODE, 1, &mut line)?;
    let word = (at.offset_bytes % line_bytes / 8) as usize;
    Ok((root, Some(GroupPointer(line[0].0[word]).thawed())))
}

/// READs the root word.
pub(crate) async fn read_root<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    meta: MetaRegion,
) -> Result<RootWord, FabricError> {
    let mut line = [Line::ZERO];
    slot.read(META_NODE, meta.address(0, 0), &mut line, ReadMode::Plain).await?;
    Ok(RootWord(line[0].0[ROOT_WORD]))
}

/// READs the directory that `root` names.
pub(crate) async fn read_directory<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    meta: MetaRegion,
    root: RootWord,
) -> Result<Directory, LearnedError> {
    let first = root.line().unwrap_or_default();
    let outside = |lines: usize| ImageError {
        piece: "directory",
        what: "last line in the meta region",
        expected: meta.lines.into(),
        got: u64::from(first) + lines as u64,
    };
    if !meta.holds(first, Directory::HEADER_LINES) {
        return Err(outside(Directory::HEADER_LINES).into());
    }
    let header = read_words(slot, META_NODE, meta.address(first, 0), Directory::HEADER_LINES).await?;
    let shape = DirectoryShape::of_header(&header)?;
    if !meta.holds(first, shape.run_lines()) {
        return Err(outside(shape.run_lines()).into());
    }
    let head = read_words(slot, META_NODE, meta.address(first, 0), shape.head_lines()).await?;
    let slots = read_slot_words(slot, meta, first, shape).await?;
    let directory = Directory::from_words(&head, &slots)?;
    if directory.number != root.number() {
        let (expected, got) = (root.number().into(), directory.number.into());
        return Err(ImageError { piece: "directory", what: "number", expected, got }.into());
    }
    Ok(directory)
}

/// READs the slots of the directory of this shape that begins at `first_line`, as they are now.
pub(crate) async fn read_slots<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    meta: MetaRegion,
    first_line: u32,
    shape: DirectoryShape,
) -> Result<Vec<DirectorySlot>, FabricError> {
    let words = read_slot_words(slot, meta, first_line, shape).await?;
    Ok(DirectorySlot::of_words(&words, shape.groups()))
}

async fn read_slot_words<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    meta: MetaRegion,
    first_line: u32,
    shape: DirectoryShape,
) -> Result<Vec<u64>, FabricError> {
    let from = meta.address(first_line, shape.slot_word(0));
    read_words(slot, META_NODE, from, shape.slot_lines()).await
}

/// READs the image of the group of this boundary that stands at `pointer`.
pub(crate) async fn read_group<Q: QueuePair>(
    slot: &PoolSlot<'_, '_, Q>,
    table: &PoolTable,
    meta: MetaRegion,
    pointer: GroupPointer,
    boundary: u64,
) -> Result<Group, LearnedError> {
    let stale = |what, expected: u64, got: u64| ImageError { piece: "group image", what, expected, got };
    let lines = pointer.lines() as usize;
    if lines == 0 || !meta.holds(pointer.line(), lines) {
        let end = u64::from(pointer.line()) + lines as u64;
        return Err(stale("last line", meta.lines.into(), end).into());
    }
    let words = read_words(slot, META_NODE, meta.address(pointer.line(), 0), lines).await?;
    let group = Group::from_words(&words, table)?;
    if group.boundary() != boundary {
        return Err(stale("boundary", boundary, group.boundary()).into());
    }
    let generation = group.time().generation;
    if !pointer.names(generation) {
        return Err(stale("generation", pointer.generation().into(), generation.into()).into());
    }
    Ok(group)
}
