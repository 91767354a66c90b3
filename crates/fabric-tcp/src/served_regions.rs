//! The regions that a host serves, and the newest number that it tells its clients.
//!
//! Invariant: numbers only grow, so a number names one region for ever. One that is not in the table, and is
//! no greater than the last, was withdrawn.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::RegionId;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::{FabricError, Region, RegionRights};
use farsight_fabric_net::os;

use crate::REGIONS_MAX;
use crate::region::HeapRegion;

/// A region as a host serves it.
#[derive(Clone)]
pub(crate) struct ServedRegion {
    pub(crate) region: Arc<dyn Region>,
    pub(crate) rights: RegionRights,
}

/// All of them.
#[derive(Default)]
pub(crate) struct ServedRegions {
    table: Mutex<Table>,
    notice: AtomicU64,
}

#[derive(Default)]
struct Table {
    by_id: BTreeMap<RegionId, ServedRegion>,
    last: u32,
}

impl Table {
    fn check_room(&self) -> Result<(), FabricError> {
        if self.by_id.len() < REGIONS_MAX {
            return Ok(());
        }
        let error = std::io::Error::other(format!("there are {REGIONS_MAX} already"));
        Err(os::system_error("serving a region".to_owned(), &error, "Make fewer, larger regions"))
    }

    fn insert(&mut self, id: RegionId, served: ServedRegion) {
        self.by_id.insert(id, served);
        self.last = self.last.max(id.0);
    }
}

impl ServedRegions {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new region under a new number.
    pub(crate) fn create(
        &self,
        length_bytes: u64,
        rights: RegionRights,
    ) -> Result<Arc<dyn Region>, FabricError> {
        let mut table = self.lock();
        table.check_room()?;
        let id = table.last.checked_add(1).map(RegionId).ok_or_else(|| {
            let error = std::io::Error::other("all numbers of regions have been used");
            os::system_error("creating a region".to_owned(), &error, "Start the server again")
        })?;
        let region: Arc<dyn Region> = Arc::new(HeapRegion::create(id, length_bytes)?);
        table.insert(id, ServedRegion { region: Arc::clone(&region), rights });
        Ok(region)
    }

    /// A region of another host, under its number there.
    pub(crate) fn export(&self, region: &Arc<dyn Region>, rights: RegionRights) -> Result<(), FabricError> {
        let mut table = self.lock();
        table.check_room()?;
        let id = region.id();
        if table.by_id.contains_key(&id) {
            let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            let remedy = "Let one host create all regions, and export each once";
            return Err(os::system_error(format!("exporting {id}"), &error, remedy));
        }
        table.insert(id, ServedRegion { region: Arc::clone(region), rights });
        Ok(())
    }

    pub(crate) fn get(&self, region: RegionId) -> Option<ServedRegion> {
        self.lock().by_id.get(&region).cloned()
    }

    pub(crate) fn withdraw(&self, region: RegionId) -> Option<ServedRegion> {
        self.lock().by_id.remove(&region)
    }

    /// True of a number that had a region and has none any more.
    pub(crate) fn is_withdrawn(&self, region: RegionId) -> bool {
        let table = self.lock();
        (1..=table.last).contains(&region.0) && !table.by_id.contains_key(&region)
    }

    pub(crate) fn notify(&self, notice: u64) {
        // Relaxed: a number that stands for itself.
        self.notice.fetch_max(notice, Ordering::Relaxed);
    }

    /// The newest number that clients are told.
    pub(crate) fn notice(&self) -> u64 {
        // Relaxed: as above.
        self.notice.load(Ordering::Relaxed)
    }
}
