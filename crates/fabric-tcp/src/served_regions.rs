//! The regions that a host serves, and the newest number that it tells its clients.

use std::sync::{Arc, Mutex, MutexGuard};

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::{FabricError, Region, RegionRights};
use farsight_fabric_host::{RegionTable, lock};

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
    table: Mutex<RegionTable<ServedRegion>>,
    notice: AtomicU64,
}

impl ServedRegions {
    pub(crate) fn lock(&self) -> MutexGuard<'_, RegionTable<ServedRegion>> {
        lock(&self.table)
    }

    /// A new region under a new number.
    pub(crate) fn create(
        &self,
        length_bytes: u64,
        rights: RegionRights,
    ) -> Result<Arc<dyn Region>, FabricError> {
        let mut table = self.lock();
        let id = table.next_id()?;
        let region: Arc<dyn Region> = Arc::new(HeapRegion::create(id, length_bytes)?);
        table.insert(id, ServedRegion { region: Arc::clone(&region), rights });
        Ok(region)
    }

    /// A region of another host, under its number there.
    pub(crate) fn export(&self, region: &Arc<dyn Region>, rights: RegionRights) -> Result<(), FabricError> {
        let mut table = self.lock();
        table.check_export(region.id())?;
        table.insert(region.id(), ServedRegion { region: Arc::clone(region), rights });
        Ok(())
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
