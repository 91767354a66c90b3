//! A region on the server's side: sealed memory files and the one mapping of them that can write.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use farsight_base::RegionId;
use farsight_base::sync::AtomicU64;
use farsight_fabric::{FabricError, Region, RegionRights};

use crate::extents::{Extent, Extents};
use crate::huge_pages::HugePages;
use crate::mapping::{HUGE_PAGE_BYTES, Mapping};
use crate::{memory, os};

/// A region grows by so much of what it has, or by one unit if that is more.
const GROWTH_PART: u64 = 4;

/// A region that this process serves.
#[derive(Debug)]
pub struct MappedRegion {
    id: RegionId,
    rights: RegionRights,
    mapping: Mapping,
    files: Extents,
    huge_pages: HugePages,
}

impl MappedRegion {
    /// A zeroed region of `length_bytes`, rounded up to 2 MiB so that huge pages can cover all of it, of
    /// which the first `grown_bytes` can be written. Memory is taken when it is first written.
    pub(crate) fn create(
        id: RegionId,
        length_bytes: u64,
        rights: RegionRights,
        grown_bytes: u64,
    ) -> Result<Self, FabricError> {
        let rounded = usize::try_from(length_bytes.max(1)).ok();
        let rounded = rounded.and_then(|bytes| bytes.checked_next_multiple_of(HUGE_PAGE_BYTES));
        let mapping = match rounded {
            Some(rounded) => Mapping::zeros(rounded, HUGE_PAGE_BYTES),
            None => Err(io::ErrorKind::OutOfMemory.into()),
        };
        let mapping = mapping.map_err(|error| failed(length_bytes, &error))?;
        let (files, huge_pages) = (Extents::default(), HugePages::default());
        let region = Self { id, rights, mapping, files, huge_pages };
        region.grow_to(grown_bytes.clamp(1, region.length_bytes()))?;
        Ok(region)
    }

    /// What clients may do to it.
    #[must_use]
    pub fn rights(&self) -> RegionRights {
        self.rights
    }

    /// The file that begins at so many bytes of it; `None` if none does.
    pub(crate) fn file_at(&self, begin_bytes: u64) -> Option<Arc<Extent>> {
        self.files.beginning_at(begin_bytes)
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        self.mapping.words().len() as u64 * 8
    }

    /// The next file, which begins at `begin_bytes` and reaches `wanted_bytes` at least; with its length.
    fn next_file(&self, begin_bytes: u64, wanted_bytes: u64) -> io::Result<(OwnedFd, u64)> {
        let unit = HUGE_PAGE_BYTES as u64;
        let end_bytes = (begin_bytes + begin_bytes / GROWTH_PART).max(wanted_bytes).next_multiple_of(unit);
        let length_bytes = end_bytes.min(self.length_bytes()) - begin_bytes;
        let place = (&self.mapping, begin_bytes as usize);
        let file = memory::create_at("farsight-region", place, length_bytes as usize, self.rights)?;
        Ok((file, length_bytes))
    }
}

fn failed(length_bytes: u64, error: &io::Error) -> FabricError {
    let remedy = "Is there enough memory, and are descriptors left (ulimit -n)?";
    os::system_error(format!("creating a region of {length_bytes} B"), error, remedy)
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
        self.huge_pages.collapse(&self.mapping, &self.files, used_bytes)
    }

    fn grow_to(&self, used_bytes: u64) -> Result<(), FabricError> {
        let used_bytes = used_bytes.min(self.length_bytes());
        let grown = self.files.grow(used_bytes, |begin_bytes| self.next_file(begin_bytes, used_bytes));
        grown.map_err(|error| failed(used_bytes, &error))
    }
}
