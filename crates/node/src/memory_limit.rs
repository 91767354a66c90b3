//! The limit of a node's memory: what its process takes, all together.
//!
//! Invariant: no region of a table grows while the process has its limit. So a table that is filled gets
//! errors, and the system never ends the process for its memory.
//!
//! The system is asked what the process takes, instead of a count for each part. So everything is in it:
//! leaves and blocks, trees, models, rings. The system is asked once for each step of growth, which takes it
//! some ten microseconds. Over shared memory it does not count what clients alone have written. So the
//! process takes at least what its regions may have.
//!
//! Memory that a region may have for a part of a step counts when it is written. So the process exceeds its
//! limit by a step for each table that grows, at most.

use std::sync::{Arc, Mutex, PoisonError};

use farsight_base::RegionId;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::{FabricError, Region};

use crate::process;

/// By so many bytes a region grows: some thousand leaves.
const STEP_BYTES: u64 = 1 << 20;

/// The limit, and who knows what the process takes.
#[derive(Debug)]
pub(crate) struct MemoryLimit {
    limit_bytes: u64,
    /// What the process takes, by the system's word.
    measure: fn() -> Option<u64>,
    /// Bytes that all regions may have.
    granted_bytes: AtomicU64,
}

impl MemoryLimit {
    /// So many bytes for this process.
    pub(crate) fn of_process(limit_bytes: u64) -> Arc<Self> {
        let granted_bytes = AtomicU64::new(0);
        Arc::new(Self { limit_bytes, measure: process::memory_bytes, granted_bytes })
    }

    /// The limit in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// `region`, as long as there is memory for what grows.
    pub(crate) fn of_region(self: &Arc<Self>, region: Arc<dyn Region>) -> Arc<dyn Region> {
        let (limit, granted_bytes, growing) = (Arc::clone(self), AtomicU64::new(0), Mutex::default());
        Arc::new(LimitedRegion { region, limit, granted_bytes, growing })
    }

    /// Bytes that the process takes; what its regions may have where the system does not say it.
    pub(crate) fn used_bytes(&self) -> u64 {
        // Relaxed: a region that grows at this moment may count or not.
        self.granted_bytes.load(Ordering::Relaxed).max((self.measure)().unwrap_or(0))
    }

    /// Lets a region have `wanted_bytes` more, unless the process would have more than its limit.
    fn grant(&self, wanted_bytes: u64) -> Result<(), FabricError> {
        let used_bytes = self.used_bytes();
        if used_bytes.saturating_add(wanted_bytes) > self.limit_bytes {
            return Err(FabricError::MemoryLimit { limit_bytes: self.limit_bytes, used_bytes, wanted_bytes });
        }
        // Relaxed: see `used_bytes`.
        self.granted_bytes.fetch_add(wanted_bytes, Ordering::Relaxed);
        Ok(())
    }
}

/// A region that grows within its node's limit.
struct LimitedRegion {
    region: Arc<dyn Region>,
    limit: Arc<MemoryLimit>,
    /// Bytes from its start that it may have.
    granted_bytes: AtomicU64,
    /// Held by the thread that asks for more.
    growing: Mutex<()>,
}

impl LimitedRegion {
    #[cold]
    fn grow(&self, used_bytes: u64) -> Result<(), FabricError> {
        // Nothing is half done under it.
        let _growing = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        // Relaxed: it changes under the lock alone.
        let granted_bytes = self.granted_bytes.load(Ordering::Relaxed);
        if used_bytes <= granted_bytes {
            return Ok(());
        }
        let length_bytes = self.region.words().len() as u64 * 8;
        let end_bytes = used_bytes.next_multiple_of(STEP_BYTES).min(length_bytes).max(used_bytes);
        self.limit.grant(end_bytes - granted_bytes)?;
        self.granted_bytes.store(end_bytes, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for LimitedRegion {
    fn drop(&mut self) {
        // Relaxed: nobody else has the region; the sum as in `used_bytes`.
        let granted_bytes = self.granted_bytes.load(Ordering::Relaxed);
        self.limit.granted_bytes.fetch_sub(granted_bytes, Ordering::Relaxed);
    }
}

impl Region for LimitedRegion {
    fn id(&self) -> RegionId {
        self.region.id()
    }

    fn words(&self) -> &[AtomicU64] {
        self.region.words()
    }

    fn grow_to(&self, used_bytes: u64) -> Result<(), FabricError> {
        // Relaxed: a number that lags takes the lock, and meets the newest one there.
        if used_bytes > self.granted_bytes.load(Ordering::Relaxed) {
            self.grow(used_bytes)?;
        }
        self.region.grow_to(used_bytes)
    }

    fn huge_page_bytes(&self) -> u64 {
        self.region.huge_page_bytes()
    }

    fn collapse_to_huge_pages(&self, used_bytes: u64) -> u64 {
        self.region.collapse_to_huge_pages(used_bytes)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    struct Words(Vec<AtomicU64>);

    impl Region for Words {
        fn id(&self) -> RegionId {
            RegionId(4)
        }
        fn words(&self) -> &[AtomicU64] {
            &self.0
        }
        fn huge_page_bytes(&self) -> u64 {
            0
        }
        fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
            0
        }
    }

    fn limit(limit_bytes: u64, measure: fn() -> Option<u64>) -> Arc<MemoryLimit> {
        Arc::new(MemoryLimit { limit_bytes, measure, granted_bytes: AtomicU64::new(0) })
    }

    /// A region of 5 MiB.
    fn region(limit: &Arc<MemoryLimit>) -> Arc<dyn Region> {
        limit.of_region(Arc::new(Words((0..5 << 17).map(|_| AtomicU64::new(0)).collect())))
    }

    fn limited(measure: fn() -> Option<u64>) -> Arc<dyn Region> {
        region(&limit(100 << 20, measure))
    }

    #[test]
    fn a_region_grows_by_steps_within_the_limit() {
        let region = limited(|| Some(97 << 20));
        assert!(region.grow_to(1).is_ok() && region.grow_to(3 << 20).is_ok());
        let error = region.grow_to((3 << 20) + 1 + (4 << 20)).expect_err("beyond the limit").to_string();
        assert!(error.contains("104857600 B") && error.contains("101711872 B"), "{error}");
        assert!(region.grow_to(3 << 20).is_ok(), "what it has stays");
    }

    #[test]
    fn what_was_granted_is_not_asked_for_again() {
        static USED_BYTES: AtomicU64 = AtomicU64::new(0);
        let region = limited(|| Some(USED_BYTES.load(Ordering::Relaxed)));
        assert!(region.grow_to(1).is_ok());
        USED_BYTES.store(u64::MAX, Ordering::Relaxed);
        assert!(region.grow_to(STEP_BYTES).is_ok());
        assert!(region.grow_to(STEP_BYTES + 1).is_err());
        USED_BYTES.store(0, Ordering::Relaxed);
        assert!(region.grow_to(STEP_BYTES + 1).is_ok(), "there is memory again");
    }

    #[test]
    fn what_regions_may_have_counts_until_they_are_dropped() {
        let limit = limit(6 << 20, || Some(1));
        let (first, second) = (region(&limit), region(&limit));
        assert!(first.grow_to(5 << 20).is_ok() && second.grow_to(1 << 20).is_ok());
        assert!(second.grow_to(2 << 20).is_err());
        assert_eq!(limit.used_bytes(), 6 << 20);
        drop(first);
        assert!(second.grow_to(5 << 20).is_ok());
        assert_eq!(limit.used_bytes(), 5 << 20);
    }
}
