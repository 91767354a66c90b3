//! A simulated node's memory: ordinary words, which its processor reads and writes as they are.

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{LINE_BYTES, RegionId, WORDS_PER_LINE};
use farsight_fabric::{Region, RegionRights};

/// A region of a simulated node.
#[derive(Debug)]
pub struct SimRegion {
    id: RegionId,
    rights: RegionRights,
    words: Vec<AtomicU64>,
    /// Where the first whole line begins.
    first: usize,
    length: usize,
    collapsed_bytes: AtomicU64,
}

impl SimRegion {
    /// A region of zeros, but for the first word of each line.
    pub(crate) fn new(id: RegionId, length_bytes: u64, rights: RegionRights, stamp: u64) -> Self {
        let length = (length_bytes.max(1).next_multiple_of(LINE_BYTES as u64) / 8) as usize;
        let words: Vec<AtomicU64> = (0..length + WORDS_PER_LINE).map(|_| AtomicU64::new(0)).collect();
        let address = words.as_ptr().addr();
        let first = (address.next_multiple_of(LINE_BYTES) - address) / 8;
        for line in words[first..first + length].iter().step_by(WORDS_PER_LINE).filter(|_| stamp != 0) {
            line.store(stamp, Ordering::Relaxed);
        }
        Self { id, rights, words, first, length, collapsed_bytes: AtomicU64::new(0) }
    }

    /// What clients may do to it.
    #[must_use]
    pub fn rights(&self) -> RegionRights {
        self.rights
    }
}

impl Region for SimRegion {
    fn id(&self) -> RegionId {
        self.id
    }

    fn words(&self) -> &[AtomicU64] {
        &self.words[self.first..self.first + self.length]
    }

    fn huge_page_bytes(&self) -> u64 {
        // Relaxed: a statistic.
        self.collapsed_bytes.load(Ordering::Relaxed)
    }

    fn collapse_to_huge_pages(&self, used_bytes: u64) -> u64 {
        self.collapsed_bytes.fetch_max(used_bytes, Ordering::Relaxed).max(used_bytes)
    }
}
