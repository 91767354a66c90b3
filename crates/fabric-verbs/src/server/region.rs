//! A region on the server's side: memory that the card may READ, or change too, for any client that has its
//! key.
//!
//! All of it is in memory before clients learn where it is, because it is registered as a whole: a card
//! cannot wait for a page.

use std::sync::Arc;

use farsight_base::RegionId;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::{FabricError, Region, RegionRights};

use crate::ibv::ffi::access;
use crate::ibv::memory::{HUGE_PAGE_BYTES, Holder, Memory, ProtectionDomain, Registered};

/// A region made by this host.
#[derive(Debug)]
pub(super) struct OwnRegion {
    id: RegionId,
    memory: Arc<Memory>,
    huge_page_bytes: AtomicU64,
}

impl OwnRegion {
    /// A region none of whose memory is taken yet.
    pub(super) fn create(id: RegionId, length_bytes: u64) -> Result<Self, FabricError> {
        let length_bytes = usize::try_from(length_bytes).unwrap_or(usize::MAX);
        let memory = Memory::zeroed(length_bytes, HUGE_PAGE_BYTES)?;
        Ok(Self { id, memory: Arc::new(memory), huge_page_bytes: AtomicU64::new(0) })
    }

    /// Takes all of its memory, on huge pages as far as the kernel will: before it is registered.
    pub(super) fn take_memory(&self) {
        self.memory.populate();
        // Relaxed: a figure for statistics.
        self.huge_page_bytes.store(self.memory.collapse(), Ordering::Relaxed);
    }
}

impl Region for OwnRegion {
    fn id(&self) -> RegionId {
        self.id
    }

    fn words(&self) -> &[AtomicU64] {
        self.memory.words()
    }

    fn huge_page_bytes(&self) -> u64 {
        // Relaxed: as in `take_memory`.
        self.huge_page_bytes.load(Ordering::Relaxed)
    }

    /// Registered pages stay what they were when they were registered.
    fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
        self.huge_page_bytes()
    }
}

/// A region as the clients of one tenant may name it.
#[derive(Debug)]
pub(super) struct ServedRegion {
    pub(super) rights: RegionRights,
    pub(super) memory: Registered,
}

impl ServedRegion {
    /// Registers `region` for clients with these rights.
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        region: Arc<dyn Region>,
        rights: RegionRights,
    ) -> Result<Self, FabricError> {
        let allowed = match rights {
            RegionRights::ReadOnly => access::REMOTE_READ,
            RegionRights::ReadWrite => {
                access::LOCAL_WRITE | access::REMOTE_READ | access::REMOTE_WRITE | access::REMOTE_ATOMIC
            }
        };
        let memory = Registered::new(domain, Holder::Region(region), allowed)?;
        Ok(Self { rights, memory })
    }

    pub(super) fn length_bytes(&self) -> u64 {
        self.memory.words().len() as u64 * 8
    }
}
