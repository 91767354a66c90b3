//! A region for tests, whose words are zero at first.

use farsight_base::sync::AtomicU64;
use farsight_base::{RegionId, WORDS_PER_LINE};
use farsight_fabric::Region;

pub(super) struct ZeroedRegion(Vec<AtomicU64>);

impl ZeroedRegion {
    pub(super) fn of_lines(lines: usize) -> Self {
        Self((0..lines * WORDS_PER_LINE).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Region for ZeroedRegion {
    fn id(&self) -> RegionId {
        RegionId(1)
    }
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
    fn huge_page_bytes(&self) -> u64 {
        0
    }
    fn collapse_to_huge_pages(&self, _: u64) -> u64 {
        0
    }
}
