//! The regions that a connection has mapped, for all of its queue pairs.
//!
//! Invariant: a region is mapped once a connection. It leaves the table when it is withdrawn, or when the
//! last queue pair that has it detaches it. Its mapping ends with the last queue pair that keeps it. One that
//! ends without detaching leaves it mapped, for the next.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::RegionId;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric::RegionRights;

use crate::huge_pages::{HugePages, mapped_bytes};
use crate::known_region::KnownRegion;
use crate::mapping::SharedWords;

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
    file: OwnedFd,
    huge_pages: HugePages,
    hold: Arc<Hold>,
}

impl AttachedRegion {
    pub(crate) fn new(words: SharedWords, rights: RegionRights, file: OwnedFd) -> Self {
        Self { words, rights, file, huge_pages: HugePages::default(), hold: Arc::default() }
    }

    /// For a queue pair.
    fn known(&self) -> KnownRegion {
        KnownRegion::new(self.words.clone(), self.rights, Arc::clone(&self.hold))
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

    /// Takes back what a queue pair had.
    pub(crate) fn detach(&self, region: RegionId, known: KnownRegion) {
        let mut regions = self.lock();
        drop(known);
        let is_last = |attached: &Arc<AttachedRegion>| Arc::strong_count(&attached.hold) == 1;
        let last = if regions.get(&region).is_some_and(is_last) { regions.remove(&region) } else { None };
        drop(regions);
        // Unmapped here, where nobody waits for it.
        drop(last);
    }

    /// Forgets a region that the server has withdrawn. True if there was one: queue pairs are to be told.
    pub(crate) fn withdraw(&self, region: RegionId) -> bool {
        let Some(attached) = self.lock().remove(&region) else { return false };
        attached.hold.withdraw();
        true
    }

    fn all(&self) -> Vec<Arc<AttachedRegion>> {
        self.lock().values().cloned().collect()
    }

    pub(crate) fn collapse_to_huge_pages(&self) -> u64 {
        let collapse = |region: Arc<AttachedRegion>| {
            let mapping = region.words.mapping();
            mapping.map_or(0, |mapping| region.huge_pages.collapse(mapping, region.file.as_fd(), u64::MAX))
        };
        self.all().into_iter().map(collapse).sum()
    }

    pub(crate) fn huge_page_bytes(&self) -> u64 {
        let mapped = |region: &Arc<AttachedRegion>| region.words.mapping().map_or(0, |own| mapped_bytes(own));
        self.all().iter().map(mapped).sum()
    }
}
