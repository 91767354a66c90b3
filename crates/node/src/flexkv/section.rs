//! A part of a region, as one of its own.

use std::sync::Arc;

use farsight_base::RegionId;
use farsight_base::sync::AtomicU64;
use farsight_fabric::Region;

/// So many words of a region that does not grow any more.
pub(super) struct Section {
    region: Arc<dyn Region>,
    first_word: usize,
    words: usize,
}

impl Section {
    /// The words from `first_word` on.
    ///
    /// # Panics
    /// If the region has not so many.
    pub(super) fn new(region: Arc<dyn Region>, first_word: usize, words: usize) -> Self {
        assert!(first_word + words <= region.words().len(), "{words} words at {first_word}");
        Self { region, first_word, words }
    }
}

impl Region for Section {
    fn id(&self) -> RegionId {
        self.region.id()
    }

    fn words(&self) -> &[AtomicU64] {
        &self.region.words()[self.first_word..self.first_word + self.words]
    }

    // The region has its pages: it counts them once.
    fn huge_page_bytes(&self) -> u64 {
        0
    }

    fn collapse_to_huge_pages(&self, _: u64) -> u64 {
        0
    }
}
