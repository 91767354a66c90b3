//! The regions that a connection has mapped, for all of its queue pairs.
//!
//! Invariant: a region is mapped once a connection. It leaves the table when it is withdrawn, or when the
//! last queue pair that has it detaches it. Its mapping ends with the last queue pair that keeps it. One that
//! ends without detaching leaves it mapped, for the next. When the link has ended the table gives all memory
//! and all descriptors back, whatever queue pairs keep.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::RegionId;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric::RegionRights;

use crate::extents::Extents;
use crate::huge_pages::HugePages;
use crate::known_region::KnownRegion;
use crate::mapping::{Mapping, PAGE_BYTES, SharedWords};
use crate::memory;
use crate::memory_map::MemoryMap;

/// What the queue pairs that have a region share with the table; each has it while it has the region.
#[derive(Default, Debug)]
pub(crate) struct Hold {
    withdrawn: AtomicBool,
}

impl Hold {
    pub(crate) fn withdraw(&self) {
        // Relaxed: the link's word, which is changed behind it, publishes it.
        self.withdrawn.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        // Relaxed: as above; queue pairs look here after they have found that word changed.
        self.withdrawn.load(Ordering::Relaxed)
    }
}

/// A region as a connection has it.
#[derive(Debug)]
pub(crate) struct AttachedRegion {
    words: SharedWords,
    rights: RegionRights,
    files: Extents,
    huge_pages: HugePages,
    hold: Arc<Hold>,
}

impl AttachedRegion {
    /// One that reads as zeros, until files are mapped.
    pub(crate) fn new(mapping: Mapping, rights: RegionRights) -> Self {
        let words = SharedWords::new(Arc::new(mapping));
        Self {
            words,
            rights,
            files: Extents::default(),
            huge_pages: HugePages::default(),
            hold: Arc::default(),
        }
    }

    /// Bytes that lie on files.
    pub(crate) fn grown_bytes(&self) -> u64 {
        self.files.grown_bytes()
    }

    /// Bytes that it may come to have.
    pub(crate) fn length_bytes(&self) -> u64 {
        self.words.words().len() as u64 * 8
    }

    /// Maps the file that the server sent as the next one, of so many bytes.
    pub(crate) fn map_next(&self, file: OwnedFd, length_bytes: u64) -> io::Result<()> {
        let (grown_bytes, most_bytes) = (self.grown_bytes(), self.length_bytes());
        let fits = length_bytes > 0 && length_bytes <= most_bytes - grown_bytes;
        let Some(mapping) =
            self.words.mapping().filter(|_| fits && length_bytes.is_multiple_of(PAGE_BYTES as u64))
        else {
            let text = format!("a file of {length_bytes} B behind {grown_bytes} of {most_bytes} B");
            return Err(io::Error::other(text));
        };
        self.files.grow(grown_bytes + length_bytes, |begin_bytes| {
            let place = (&**mapping, begin_bytes as usize);
            memory::open_at(file.as_fd(), place, length_bytes as usize, self.rights)?;
            Ok((file, length_bytes))
        })
    }

    /// The mapping, if this side may write there.
    pub(crate) fn writable(&self) -> Option<&Arc<Mapping>> {
        self.words.mapping().filter(|_| self.rights == RegionRights::ReadWrite)
    }

    fn collapse_to_huge_pages(&self) -> u64 {
        let mapping = self.words.mapping();
        mapping.map_or(0, |mapping| self.huge_pages.collapse(mapping, &self.files, u64::MAX))
    }

    fn vacate(&self) {
        let Some(mapping) = self.words.mapping() else { return };
        self.huge_pages.end(mapping, || {
            // Without room for one more mapping the memory stays until the last queue pair goes.
            let _ = mapping.vacate();
        });
    }

    /// For a queue pair.
    fn known(&self) -> KnownRegion {
        let known = KnownRegion::new(self.words.clone(), self.rights, Arc::clone(&self.hold));
        known.grow_to(self.grown_bytes());
        known
    }
}

/// All that a connection has mapped.
#[derive(Default, Debug)]
pub(crate) struct Attachments {
    regions: Mutex<BTreeMap<RegionId, Arc<AttachedRegion>>>,
}

impl Attachments {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<RegionId, Arc<AttachedRegion>>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The region, which `map` fetches if it is not there. A withdrawal meanwhile waits.
    pub(crate) fn attach<E>(
        &self,
        region: RegionId,
        map: impl FnOnce() -> Result<AttachedRegion, E>,
    ) -> Result<KnownRegion, E> {
        let mut regions = self.lock();
        if let Some(attached) = regions.get(&region) {
            return Ok(attached.known());
        }
        let attached = Arc::new(map()?);
        let known = attached.known();
        regions.insert(region, attached);
        Ok(known)
    }

    /// Bytes of the region that lie on files, after `fetch` has mapped what has come since. `None` if it is
    /// not there. A withdrawal meanwhile waits.
    pub(crate) fn grow<E>(
        &self,
        region: RegionId,
        fetch: impl FnOnce(&AttachedRegion) -> Result<(), E>,
    ) -> Option<Result<u64, E>> {
        let regions = self.lock();
        let attached = regions.get(&region)?;
        Some(fetch(attached).map(|()| attached.grown_bytes()))
    }

    /// Takes back what a queue pair had. If it was the last one, `unmap` gets the region. What that gives
    /// back is unmapped once others can go on: nobody attaches the region before `unmap` has ended.
    pub(crate) fn detach(
        &self,
        region: RegionId,
        known: KnownRegion,
        unmap: impl FnOnce(Arc<AttachedRegion>) -> Option<Arc<AttachedRegion>>,
    ) {
        let mut regions = self.lock();
        drop(known);
        let is_last = |attached: &Arc<AttachedRegion>| Arc::strong_count(&attached.hold) == 1;
        let last = if regions.get(&region).is_some_and(is_last) { regions.remove(&region) } else { None };
        let rest = last.and_then(unmap);
        drop(regions);
        drop(rest);
    }

    /// Forgets a region that the server has withdrawn. True if there was one: queue pairs are to be told.
    pub(crate) fn withdraw(&self, region: RegionId) -> bool {
        let mut regions = self.lock();
        let Some(attached) = regions.remove(&region) else { return false };
        // Before the lock is free: who does not find it in the table finds the mark.
        attached.hold.withdraw();
        true
    }

    /// Gives the memory of all regions back, although queue pairs still have them: their words read as zeros.
    /// The link has ended, and no doorbell changes memory any more.
    pub(crate) fn vacate(&self) {
        let regions = std::mem::take(&mut *self.lock());
        for region in regions.values() {
            region.vacate();
        }
    }

    /// The regions that are attached.
    pub(crate) fn regions(&self) -> Vec<RegionId> {
        self.lock().keys().copied().collect()
    }

    /// Collapses one region; the bytes of it that are. `around` runs what it gets, or nothing. A region that
    /// is written is neither detached nor withdrawn meanwhile.
    pub(crate) fn collapse_to_huge_pages(
        &self,
        region: RegionId,
        around: impl FnOnce(&AttachedRegion, &mut dyn FnMut()),
    ) -> u64 {
        let regions = self.lock();
        let Some(attached) = regions.get(&region).cloned() else { return 0 };
        if attached.writable().is_none() {
            drop(regions);
            return attached.collapse_to_huge_pages();
        }
        let mut bytes = 0;
        around(&attached, &mut || bytes = attached.collapse_to_huge_pages());
        bytes
    }

    pub(crate) fn huge_page_bytes(&self) -> u64 {
        let (all, map): (Vec<_>, _) = (self.lock().values().cloned().collect(), MemoryMap::read());
        let mappings = all.iter().filter_map(|region| region.words.mapping());
        mappings.map(|mapping| map.huge_page_bytes(mapping.address_range())).sum()
    }
}
