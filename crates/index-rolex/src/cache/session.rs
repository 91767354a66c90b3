//! One session's view of the shared cache.

use std::cell::RefCell;
use std::sync::Arc;

use farsight_base::words::prefetch;
use farsight_base::{LINE_BYTES, RemoteAddress};
use farsight_index::Direction;

use super::group::{CANDIDATES_MAX, CachedGroup, Window};
use super::{CachedDirectory, GroupId, RolexCache};
use crate::LeafPlace;
use crate::walk::FoundLeaf;

/// Walks in a group after which one of its sessions asks for a newer image.
const WALKS_PER_REFRESH: u32 = 8;

/// Keys that are predicted together.
pub(crate) const BATCH: usize = 64;

/// Where to look for a key first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidates {
    /// The group that said so.
    pub group: GroupId,
    leaves: [LeafPlace; CANDIDATES_MAX],
    count: usize,
}

impl Candidates {
    /// The leaves, in key order; never none.
    #[must_use]
    pub fn leaves(&self) -> &[LeafPlace] {
        &self.leaves[..self.count]
    }

    /// Which of them most likely holds the key: the last, for where hints leave two, the key often is the
    /// last one's very fence.
    #[must_use]
    pub fn likeliest(&self) -> usize {
        self.count - 1
    }
}

/// One session's view of the cache; single-threaded.
#[derive(Debug)]
pub struct CacheSession {
    pub(super) cache: Arc<RolexCache>,
    view: RefCell<View>,
}

#[derive(Debug)]
struct View {
    directory: Arc<CachedDirectory>,
    groups: Vec<SeenGroup>,
}

/// What was seen of one group; one line of memory.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct SeenGroup {
    version: u64,
    group: Option<CachedGroup>,
    walks: u32,
}

const _: () = assert!(size_of::<SeenGroup>() == LINE_BYTES);

impl CacheSession {
    /// A view of `cache`.
    #[must_use]
    pub fn new(cache: Arc<RolexCache>) -> Self {
        let view = RefCell::new(View::of(cache.directory()));
        Self { cache, view }
    }

    /// The cache.
    #[must_use]
    pub fn cache(&self) -> &Arc<RolexCache> {
        &self.cache
    }

    /// Where `key` is looked for; `None` if its group must be fetched first ([`CacheSession::candidates`]).
    #[inline]
    #[must_use]
    pub fn predict(&self, key: u64) -> Option<Candidates> {
        let mut view = self.view.borrow_mut();
        view.catch_up(&self.cache);
        let number = view.directory.group_of(key);
        let directory = view.directory.number;
        let group = view.group(number)?;
        let positions = group.group.positions(key);
        let place = |position| group.place(&self.cache.table, position, key);
        let mut leaves = [place(positions.start); CANDIDATES_MAX];
        for (leaf, position) in leaves.iter_mut().zip(positions.clone()).skip(1) {
            *leaf = place(position);
        }
        Some(Candidates {
            group: GroupId { directory, group: number as u32 },
            leaves,
            count: positions.len(),
        })
    }

    /// The leaf that the group of `key` names so many positions left of where it predicts the key. With fewer
    /// there, the group's first leaf: in the newest directory the chain leads from it to every leaf of the
    /// group. `None` as in [`CacheSession::predict`].
    #[must_use]
    pub fn leaf_left_of(&self, key: u64, positions: u32) -> Option<LeafPlace> {
        let mut view = self.view.borrow_mut();
        view.catch_up(&self.cache);
        let number = view.directory.group_of(key);
        let group = &view.group(number)?.group;
        let position = (group.positions(key).end - 1).saturating_sub(positions);
        group.places(&self.cache.table).nth(position as usize)
    }

    /// True if `place` is a leaf that is predicted for `key`.
    pub(crate) fn names(&self, key: u64, place: LeafPlace) -> bool {
        self.predict(key).is_some_and(|candidates| candidates.leaves().contains(&place))
    }

    /// The leaf of each of `keys` into `leaves`, as long; none where [`CacheSession::predict`] says nothing,
    /// or names several. Each step is taken for all keys before the next, so that lines which one of them
    /// waits for come while others are worked on.
    ///
    /// # Panics
    /// With more than [`BATCH`] keys.
    pub(crate) fn predict_each(&self, keys: &[u64], leaves: &mut [Option<LeafPlace>]) {
        let view = &mut *self.view.borrow_mut();
        view.catch_up(&self.cache);
        let mut numbers = [0; BATCH];
        for (number, key) in numbers[..keys.len()].iter_mut().zip(keys) {
            *number = view.directory.group_of(*key);
            prefetch(&view.groups[*number]);
            prefetch(&view.directory.groups[*number].version);
        }
        for number in &numbers[..keys.len()] {
            if let Some(group) = view.group(*number) {
                group.group.prefetch_segments();
            }
        }
        let group = |number: usize| view.groups[number].group.as_ref();
        let mut windows = [const { Window::NONE }; BATCH];
        for ((window, number), key) in windows.iter_mut().zip(&numbers).zip(keys) {
            if let Some(cached) = group(*number) {
                *window = cached.group.window(*key);
                cached.group.prefetch_entries(window);
            }
        }
        for (((leaf, window), number), key) in leaves.iter_mut().zip(&windows).zip(&numbers).zip(keys) {
            *leaf = group(*number).and_then(|cached| {
                let positions = cached.group.choose(window);
                (positions.len() == 1).then(|| cached.place(&self.cache.table, positions.start, *key))
            });
        }
    }

    /// Forgets, for all sessions of the process, that the leaf at `place` split off in the group of `key`. It
    /// is no leaf any more, or another one.
    pub(crate) fn forget_synonym(&self, key: u64, place: LeafPlace) {
        let view = self.view.borrow();
        let number = view.directory.group_of(key);
        view.directory.groups[number].change(|content| content.replace(|fetched| fetched.without(place)));
    }

    /// Puts into `leaves` those that most likely hold the keys from `key` on, in the order of the way: up to
    /// `count` of the group of `key`. There are none as in [`CacheSession::predict`].
    pub(crate) fn predict_range(
        &self,
        direction: Direction,
        key: u64,
        count: usize,
        leaves: &mut Vec<LeafPlace>,
    ) {
        let mut view = self.view.borrow_mut();
        view.catch_up(&self.cache);
        let number = view.directory.group_of(key);
        leaves.clear();
        if let Some(group) = view.group(number) {
            match direction {
                Direction::Ascending => group.range(&self.cache.table, key, count, leaves),
                Direction::Descending => group.range_down(&self.cache.table, key, count, leaves),
            }
        }
    }

    /// The address, at the first memory node, of the word that a split of a leaf of `group` adds 1 to.
    /// `None`: there is a newer directory, in whose group of the same key the split must be counted.
    pub(super) fn splits_address(&self, group: GroupId) -> Option<RemoteAddress> {
        let view = self.view.borrow();
        let is_known = view.directory.number == group.directory;
        is_known.then(|| view.directory.splits_address(self.cache.meta, group.group as usize))
    }

    /// Notes for all sessions of the process leaves that were `found` by walking from a leaf of `group`. True
    /// if it is time to ask for a newer image of the group ([`CacheSession::refresh`]).
    pub fn note_found(&self, group: GroupId, found: impl Iterator<Item = FoundLeaf>) -> bool {
        let mut view = self.view.borrow_mut();
        if view.directory.number != group.directory {
            return false;
        }
        let number = group.group as usize;
        // One that begins left of the group is another group's.
        let boundary = view.directory.boundaries[number];
        view.directory.groups[number].change(|content| {
            let mut is_changed = false;
            for leaf in found.filter(|leaf| leaf.low >= boundary) {
                is_changed |= content.note(leaf);
            }
            is_changed
        });
        let walks = &mut view.groups[number].walks;
        *walks += 1;
        let is_time = *walks >= WALKS_PER_REFRESH;
        if is_time {
            *walks = 0;
        }
        is_time
    }

    /// The least key of the group of `key`.
    pub(crate) fn boundary_of(&self, key: u64) -> u64 {
        let mut view = self.view.borrow_mut();
        view.catch_up(&self.cache);
        view.directory.boundaries[view.directory.group_of(key)]
    }

    /// The least key of each group.
    pub(crate) fn boundaries(&self) -> Vec<u64> {
        self.directory().boundaries.clone()
    }

    /// The directory that the view holds.
    pub(super) fn directory(&self) -> Arc<CachedDirectory> {
        let mut view = self.view.borrow_mut();
        view.catch_up(&self.cache);
        Arc::clone(&view.directory)
    }
}

impl View {
    fn of(directory: Arc<CachedDirectory>) -> Self {
        let groups = vec![SeenGroup::default(); directory.groups.len()];
        Self { directory, groups }
    }

    /// Takes up a newer directory.
    #[inline]
    fn catch_up(&mut self, cache: &RolexCache) {
        if cache.number() != u64::from(self.directory.number) {
            let newest = cache.directory();
            if newest.number > self.directory.number {
                *self = Self::of(newest);
            }
        }
    }

    /// The newest content of a group.
    #[inline]
    fn group(&mut self, number: usize) -> Option<&CachedGroup> {
        let (cell, seen) = (&self.directory.groups[number], &mut self.groups[number]);
        if cell.version() != seen.version {
            let (version, content) = cell.versioned();
            (seen.version, seen.group) = (version, content.fetched);
        }
        seen.group.as_ref()
    }
}
