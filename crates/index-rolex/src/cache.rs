//! What a compute node knows of a table's learned index: a directory, the groups that were fetched, and
//! leaves found by walking that no group names yet (*synonyms*). One cache a process, shared by its
//! sessions.
//!
//! Invariant: everything here is a hint. A group is decoded and checked whole before it is put in, so every
//! place in it is one of the table's. The leaf decides whether it holds a key.
//!
//! Protocol: a directory and a group, with its synonyms, are immutable. A session that changes one puts
//! another in its place, under a lock, and raises its version. A session keeps what it saw last and loads the
//! version alone, a word that hardly ever changes. So a prediction takes no lock and writes nothing that is
//! shared.

pub(crate) mod fetch;
mod group;
#[cfg(all(test, any(loom, shuttle)))]
mod models;
mod session;

use std::sync::{Arc, OnceLock, PoisonError};

use farsight_base::sync::{AtomicU64, Mutex, Ordering};
use farsight_base::{LINE_BYTES, RegionId, RemoteAddress, WORDS_PER_LINE};
use farsight_layout::learned::{Directory, DirectoryShape, DirectorySlot, GroupPointer, ROOT_SPLITS_WORD};

pub use fetch::{LearnedError, PostedSplit};
pub use group::{CANDIDATES_MAX, ERROR_BOUND, Group};
pub(crate) use session::BATCH;
pub use session::{CacheSession, Candidates};

use crate::gate::Gates;
#[cfg(any(loom, shuttle, injected))]
use crate::injected;
use crate::walk::FoundLeaf;
use crate::{LeafPlace, PoolTable};
use group::CachedGroup;

/// Where a table's learned index stands: a region of the first memory node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MetaRegion {
    /// The region.
    pub region: RegionId,
    /// Its lines.
    pub lines: u32,
}

impl MetaRegion {
    /// The address of `word` behind the start of `line`.
    #[must_use]
    pub fn address(&self, line: u32, word: usize) -> RemoteAddress {
        let offset_bytes = u64::from(line) * LINE_BYTES as u64 + word as u64 * 8;
        RemoteAddress { region: self.region, offset_bytes }
    }

    /// Whether all of `count` lines from `first` on are the region's.
    #[must_use]
    pub fn holds(&self, first: u32, count: usize) -> bool {
        u64::from(first) + count as u64 <= u64::from(self.lines)
    }
}

/// A group, by its directory and its number there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupId {
    /// The directory's number.
    pub directory: u32,
    /// The group's.
    pub group: u32,
}

/// What a compute node knows of one table.
#[derive(Debug)]
pub struct RolexCache {
    table: PoolTable,
    meta: MetaRegion,
    directory: Mutex<Arc<CachedDirectory>>,
    /// The directory's number.
    number: AtomicU64,
    /// Where its sessions queue that write.
    gates: OnceLock<Gates>,
}

/// A directory and what was fetched of its groups. Directory 0 stands for none: one group, which the table's
/// first leaf leads to.
#[derive(Debug)]
struct CachedDirectory {
    number: u32,
    /// Its first line in the meta region.
    line: u32,
    shape: DirectoryShape,
    boundaries: Vec<u64>,
    groups: Vec<GroupCell>,
}

/// A group's place in the cache.
#[derive(Debug)]
struct GroupCell {
    version: AtomicU64,
    content: Mutex<GroupContent>,
}

#[derive(Clone, Debug)]
struct GroupContent {
    /// Where the newest image was when last heard of.
    pointer: GroupPointer,
    fetched: Option<CachedGroup>,
    /// Until it is fetched: what was known of its leaves in the directory before.
    inherited: Arc<[Leaf]>,
    /// Of leaves that walks find, those are remembered that are a multiple of so many steps from a known one.
    /// It doubles each time that half of them are forgotten. So what is remembered comes to rest.
    stride: u32,
}

/// A leaf that was found: its low fence and its place.
type Leaf = (u64, LeafPlace);

/// What a cache holds, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheBytes {
    /// Leaves that fetched groups name.
    pub leaves: u64,
    /// Their segments.
    pub segments: u64,
    /// Bytes of the directory and of the fetched groups' models and tables.
    pub learned: u64,
    /// Bytes of synonyms.
    pub synonyms: u64,
}

impl RolexCache {
    /// A cache that knows nothing yet.
    #[must_use]
    pub fn new(table: PoolTable, meta: MetaRegion) -> Arc<Self> {
        let slots = vec![DirectorySlot::default()];
        let none = Directory { number: 0, capacity: 0, boundaries: vec![0], slots };
        let directory = CachedDirectory::new(0, &none, None);
        let (directory, number) = (Mutex::new(Arc::new(directory)), AtomicU64::new(0));
        Arc::new(Self { table, meta, directory, number, gates: OnceLock::new() })
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &PoolTable {
        &self.table
    }

    /// Where its learned index stands.
    #[must_use]
    pub fn meta(&self) -> MetaRegion {
        self.meta
    }

    /// Where sessions of this process queue that write to one leaf.
    pub(crate) fn gates(&self) -> &Gates {
        self.gates.get_or_init(Gates::new)
    }

    /// What the cache holds.
    #[must_use]
    pub fn bytes(&self) -> CacheBytes {
        let directory = self.directory();
        let learned = (directory.groups.len() * (size_of::<GroupCell>() + size_of::<u64>())) as u64;
        let mut bytes = CacheBytes { learned, ..CacheBytes::default() };
        for cell in &directory.groups {
            let GroupContent { fetched, inherited, .. } = cell.content();
            bytes.synonyms += size_of_val(&*inherited) as u64;
            if let Some(group) = fetched {
                bytes.leaves += group.group.leaf_count() as u64;
                bytes.segments += group.group.segment_count() as u64;
                // Beside what is shared stand two counts of those who share it.
                bytes.learned += (size_of::<[usize; 2]>() + group.group.heap_bytes()) as u64;
                bytes.synonyms += group.synonym_bytes() as u64;
            }
        }
        bytes
    }

    /// The number of the directory installed.
    #[inline]
    fn number(&self) -> u64 {
        // Relaxed: only a hint to look; `directory` synchronizes by its lock.
        self.number.load(Ordering::Relaxed)
    }

    fn directory(&self) -> Arc<CachedDirectory> {
        Arc::clone(&self.directory.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a directory that begins at `line` the newest, unless that or a newer one is there already.
    fn install_directory(&self, line: u32, directory: &Directory) {
        let mut current = self.directory.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number < directory.number {
            *current = Arc::new(CachedDirectory::new(line, directory, Some(&current)));
            self.number.store(directory.number.into(), Ordering::Relaxed);
        }
    }
}

impl CachedDirectory {
    /// A directory of which nothing is fetched but what it has in common with the one before. A group that
    /// takes the place of others knows the leaves that split off theirs.
    fn new(line: u32, directory: &Directory, former: Option<&Self>) -> Self {
        let known: Vec<Leaf> = former.map(Self::synonyms).unwrap_or_default();
        let ends = directory.boundaries[1..].iter().map(Some).chain([None]);
        let groups = directory.boundaries.iter().zip(ends).zip(&directory.slots);
        let cell = |((boundary, end), slot): ((&u64, Option<&u64>), &DirectorySlot)| {
            let same = former.and_then(|former| former.same_group(*boundary, slot.pointer));
            let from = known.partition_point(|(low, _)| low < boundary);
            let to = end.map_or(known.len(), |end| known.partition_point(|(low, _)| low < end));
            let content = same.unwrap_or_else(|| GroupContent {
                pointer: slot.pointer,
                fetched: None,
                inherited: known[from..to].into(),
                stride: 1,
            });
            // A session that has seen nothing has seen version 0.
            let version = u64::from(content.fetched.is_some());
            GroupCell { version: AtomicU64::new(version), content: Mutex::new(content) }
        };
        Self {
            number: directory.number,
            line,
            shape: directory.shape(),
            boundaries: directory.boundaries.clone(),
            groups: groups.map(cell).collect(),
        }
    }

    /// All leaves that were found beside its groups' images, in key order.
    fn synonyms(&self) -> Vec<Leaf> {
        let mut all = Vec::new();
        for cell in &self.groups {
            let GroupContent { fetched, inherited, .. } = cell.content();
            all.extend(inherited.iter().copied());
            all.extend(fetched.iter().flat_map(CachedGroup::synonyms));
        }
        all
    }

    /// What is known of the group that begins at `boundary`, if its image is that which stands at `pointer`.
    fn same_group(&self, boundary: u64, pointer: GroupPointer) -> Option<GroupContent> {
        let group = self.boundaries.binary_search(&boundary).ok()?;
        let content = self.groups[group].content();
        (content.pointer == pointer.thawed() && content.fetched.is_some()).then_some(content)
    }

    /// The group of `key`.
    #[inline]
    fn group_of(&self, key: u64) -> usize {
        self.boundaries.partition_point(|boundary| *boundary <= key) - 1
    }

    /// The address of a group's slot in the meta region.
    fn slot_address(&self, meta: MetaRegion, group: usize) -> RemoteAddress {
        meta.address(self.line, self.shape.slot_word(group))
    }

    /// The address of the word that counts the splits of a group's leaves.
    fn splits_address(&self, meta: MetaRegion, group: usize) -> RemoteAddress {
        if self.number == 0 {
            return meta.address(0, ROOT_SPLITS_WORD);
        }
        meta.address(self.line, self.shape.slot_word(group) + 1)
    }

    /// Puts a group in that stands at `pointer`, unless as new a one is there. Synonyms that it does not name
    /// stay known.
    fn install(&self, group: usize, pointer: GroupPointer, fetched: Group) {
        self.groups[group].change(|content| {
            let old = content.fetched.as_ref();
            #[cfg(injected)]
            if injected::IMAGE_KEPT.is_injected() && old.is_some() {
                return false;
            }
            if old.is_some_and(|old| old.group.time().generation >= fetched.time().generation) {
                return false;
            }
            let next = match old {
                Some(old) => CachedGroup::new(fetched, old.synonyms()),
                None => CachedGroup::new(fetched, content.inherited.iter().copied()),
            };
            *content = GroupContent { pointer, fetched: Some(next), inherited: Arc::default(), stride: 1 };
            true
        });
    }
}

impl GroupContent {
    /// Puts what `change` makes of the group in its place; false if that is nothing.
    fn replace(&mut self, change: impl FnOnce(&CachedGroup) -> Option<CachedGroup>) -> bool {
        let changed = self.fetched.as_ref().and_then(change);
        self.take(changed)
    }

    /// Remembers a leaf that was found; false if nothing is new.
    fn note(&mut self, leaf: FoundLeaf) -> bool {
        let changed = self.fetched.as_ref().and_then(|fetched| fetched.with(leaf, &mut self.stride));
        self.take(changed)
    }

    fn take(&mut self, changed: Option<CachedGroup>) -> bool {
        let is_changed = changed.is_some();
        self.fetched = changed.or_else(|| self.fetched.take());
        is_changed
    }
}

impl GroupCell {
    /// How often its content has changed.
    #[inline]
    fn version(&self) -> u64 {
        // Relaxed: only a hint to look; `content` synchronizes by its lock.
        self.version.load(Ordering::Relaxed)
    }

    /// What is there now, and its version.
    fn content(&self) -> GroupContent {
        self.content.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn versioned(&self) -> (u64, GroupContent) {
        #[cfg(any(loom, shuttle))]
        if injected::VERSION_TAKEN_LATE.is_injected() {
            let content = self.content();
            return (self.version(), content);
        }
        let content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        (self.version(), content.clone())
    }

    fn change(&self, change: impl FnOnce(&mut GroupContent) -> bool) {
        #[cfg(any(loom, shuttle))]
        if injected::CHANGED_UNLOCKED.is_injected() {
            let mut changed = self.content();
            if change(&mut changed) {
                *self.content.lock().unwrap_or_else(PoisonError::into_inner) = changed;
                self.version.store(self.version() + 1, Ordering::Relaxed);
            }
            return;
        }
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if change(&mut content) {
            // Relaxed: readers take the lock before they rely on it.
            self.version.store(self.version() + 1, Ordering::Relaxed);
        }
    }
}

const _: () = assert!(WORDS_PER_LINE * 8 == LINE_BYTES);
