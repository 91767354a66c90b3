//! Registered memory on the server's side: words that the server writes and clients READ.

use std::sync::Arc;

use farsight_base::RegionId;
use farsight_base::sync::AtomicU64;

use crate::FabricError;

/// Who may do what to a region, besides the server that owns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionRights {
    /// Clients READ; nothing they do can write it.
    ReadOnly,
    /// Clients READ, WRITE and use atomics.
    ReadWrite,
}

/// A region as its owner sees it. Zero at creation; its size never changes.
pub trait Region: Send + Sync {
    /// The number by which clients name it.
    fn id(&self) -> RegionId;

    /// All of its words; line-aligned.
    fn words(&self) -> &[AtomicU64];

    /// Sees to it that the first `used_bytes` can be written, before they are. Of a region that grows nobody
    /// writes more; what is beyond reads as zeros. Free for what can be written already, hence for regions
    /// that do not grow.
    ///
    /// # Errors
    /// [`FabricError::System`] if the memory cannot be had.
    fn grow_to(&self, used_bytes: u64) -> Result<(), FabricError> {
        let _ = used_bytes;
        Ok(())
    }

    /// Bytes of it that lie on huge pages now.
    fn huge_page_bytes(&self) -> u64;

    /// Asks for huge pages under the first `used_bytes`, all of which have been written. Returns the bytes
    /// that lie on huge pages afterwards. Costs up to milliseconds a 2 MiB piece: background work.
    fn collapse_to_huge_pages(&self, used_bytes: u64) -> u64;
}

impl<R: Region + ?Sized> Region for Arc<R> {
    fn id(&self) -> RegionId {
        (**self).id()
    }

    fn words(&self) -> &[AtomicU64] {
        (**self).words()
    }

    fn grow_to(&self, used_bytes: u64) -> Result<(), FabricError> {
        (**self).grow_to(used_bytes)
    }

    fn huge_page_bytes(&self) -> u64 {
        (**self).huge_page_bytes()
    }

    fn collapse_to_huge_pages(&self, used_bytes: u64) -> u64 {
        (**self).collapse_to_huge_pages(used_bytes)
    }
}
