//! A region that this host creates: lines on the heap.

use farsight_base::heap::HeapWords;
use farsight_base::sync::AtomicU64;
use farsight_base::{LINE_BYTES, RegionId};
use farsight_fabric::{FabricError, Region};

use farsight_fabric_host::os;

/// A region on the heap.
#[derive(Debug)]
pub(crate) struct HeapRegion {
    id: RegionId,
    words: HeapWords,
}

impl HeapRegion {
    /// A zeroed region of `length_bytes`, rounded up to lines.
    pub(crate) fn create(id: RegionId, length_bytes: u64) -> Result<Self, FabricError> {
        let line_count = length_bytes.max(1).div_ceil(LINE_BYTES as u64);
        let words = usize::try_from(line_count).ok().and_then(HeapWords::zeroed_for_growth);
        let words = words.ok_or_else(|| {
            let what = format!("creating a region of {length_bytes} B");
            os::system_error(what, &std::io::ErrorKind::OutOfMemory.into(), "Is there enough memory?")
        })?;
        Ok(Self { id, words })
    }
}

impl Region for HeapRegion {
    fn id(&self) -> RegionId {
        self.id
    }

    fn words(&self) -> &[AtomicU64] {
        self.words.words()
    }

    /// The heap's pages are the system's choice, which does not tell.
    fn huge_page_bytes(&self) -> u64 {
        0
    }

    fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
        0
    }
}
