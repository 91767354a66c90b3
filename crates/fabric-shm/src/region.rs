//! A region on the server's side: a sealed memory file and the one mapping of it that can write.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use farsight_base::RegionId;
use farsight_base::sync::AtomicU64;
use farsight_fabric::{FabricError, Region, RegionRights};

use crate::huge_pages::HugePages;
use crate::mapping::{HUGE_PAGE_BYTES, Mapping};
use crate::{memory, os};

/// A region that this process serves.
#[derive(Debug)]
pub struct MappedRegion {
    id: RegionId,
    rights: RegionRights,
    file: OwnedFd,
    mapping: Mapping,
    huge_pages: HugePages,
}

impl MappedRegion {
    /// A zeroed region of `length_bytes`, rounded up to 2 MiB so that huge pages can cover all of it. Memory
    /// is taken when it is first written.
    pub(crate) fn create(id: RegionId, length_bytes: u64, rights: RegionRights) -> Result<Self, FabricError> {
        let failed = |error: std::io::Error| {
            let remedy = "Is there enough memory, and are descriptors left (ulimit -n)?";
            os::system_error(format!("creating a region of {length_bytes} B"), &error, remedy)
        };
        let rounded = usize::try_from(length_bytes.max(1)).ok();
        let rounded = rounded.and_then(|bytes| bytes.checked_next_multiple_of(HUGE_PAGE_BYTES));
        let rounded = rounded.ok_or_else(|| failed(std::io::ErrorKind::OutOfMemory.into()))?;
        let (file, mapping) =
            memory::create("farsight-region", rounded, rights, HUGE_PAGE_BYTES).map_err(failed)?;
        Ok(Self { id, rights, file, mapping, huge_pages: HugePages::default() })
    }

    /// What clients may do to it.
    #[must_use]
    pub fn rights(&self) -> RegionRights {
        self.rights
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        self.mapping.words().len() as u64 * 8
    }
}

impl Region for MappedRegion {
    fn id(&self) -> RegionId {
        self.id
    }

    fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    fn huge_page_bytes(&self) -> u64 {
        self.huge_pages.mapped_bytes(&self.mapping)
    }

    fn collapse_to_huge_pages(&self, used_bytes: u64) -> u64 {
        self.huge_pages.collapse(&self.mapping, self.file.as_fd(), used_bytes)
    }
}
