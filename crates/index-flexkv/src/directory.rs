//! What a compute node knows of the directories of a table's partitions.
//!
//! Invariant: a word is zero or what the partition's directory has for good. So what is known leads to a
//! subtable that was a key's once. If that was split since, its slots are sealed, and who READs them looks
//! the directory up ([`crate::split`]).

use std::sync::OnceLock;

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_layout::hash_index::{DIRECTORY_WORDS, HASH_PARTITIONS};

/// The directory of a partition.
type Words = [AtomicU64; DIRECTORY_WORDS];

/// The directories of all partitions, as far as any session of the compute node has READ them.
pub(crate) struct Directories(Box<[OnceLock<Box<Words>>]>);

impl Default for Directories {
    fn default() -> Self {
        Self((0..HASH_PARTITIONS).map(|_| OnceLock::new()).collect())
    }
}

impl Directories {
    /// A word of a partition's directory; zero if it is not known.
    pub(crate) fn word(&self, partition: usize, index: usize) -> u64 {
        // Relaxed: a word changes once, and who misses that finds sealed slots.
        self.0[partition].get().map_or(0, |words| words[index].load(Ordering::Relaxed))
    }

    /// Notes a word that was READ.
    pub(crate) fn note(&self, partition: usize, index: usize, word: u64) {
        if word != 0 {
            let words =
                self.0[partition].get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))));
            // Relaxed: as in `word`.
            words[index].store(word, Ordering::Relaxed);
        }
    }
}

impl std::fmt::Debug for Directories {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let known = self.0.iter().filter(|words| words.get().is_some()).count();
        write!(f, "Directories({known} known)")
    }
}
