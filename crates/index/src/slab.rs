//! Blocks for leaves in one region.
//!
//! Invariant: a block has one size and only ever holds leaves (it is *type-stable*). So one that was freed
//! may be used again at once. A reader that comes late meets another leaf's fences or none, never another
//! kind of bytes. A block that was never allocated is all zeros, which is no leaf.

use std::sync::{Arc, PoisonError};

use farsight_base::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use farsight_base::{LeafNumber, RegionId, WORDS_PER_LINE};
use farsight_fabric::Region;

/// No block is left.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{region} {}", match no_memory {
        None => format!("is full: all of its {capacity_leaves} leaves of {leaf_bytes} B are in use"),
        Some(why) => format!("has room for {capacity_leaves} leaves of {leaf_bytes} B, but no memory: {why}"),
    }
)]
pub struct RegionFull {
    /// The region.
    pub region: RegionId,
    /// Leaves that it can hold.
    pub capacity_leaves: u32,
    /// Bytes of one leaf.
    pub leaf_bytes: usize,
    /// Why there is no memory for a leaf that the region could hold, if that is it.
    pub no_memory: Option<Box<str>>,
}

/// The allocator of one region's leaf blocks. Leaf `n` stands at word `n * block_words`.
pub struct Slab {
    region: Arc<dyn Region>,
    block_words: usize,
    capacity_leaves: u32,
    next_unused: AtomicU32,
    /// How many blocks `freed` holds; lets an allocation pass by its lock.
    freed_count: AtomicU32,
    freed: Mutex<Vec<LeafNumber>>,
}

impl Slab {
    /// A slab over an unused `region`, of blocks of `block_words`.
    ///
    /// # Panics
    /// If a block is not whole lines.
    #[must_use]
    pub fn new(region: Arc<dyn Region>, block_words: usize) -> Self {
        assert!(block_words > 0 && block_words.is_multiple_of(WORDS_PER_LINE), "{block_words} words a block");
        let blocks = region.words().len() / block_words;
        // The last number means "no leaf", so it is a count, too.
        const { assert!(LeafNumber::NONE.0 == u32::MAX) };
        let capacity_leaves = u32::try_from(blocks).unwrap_or(u32::MAX);
        Self {
            region,
            block_words,
            capacity_leaves,
            next_unused: AtomicU32::new(0),
            freed_count: AtomicU32::new(0),
            freed: Mutex::new(Vec::new()),
        }
    }

    /// The region underneath.
    #[must_use]
    pub fn region(&self) -> &Arc<dyn Region> {
        &self.region
    }

    /// Takes a block: a freed one if there is one, else the next that was never used. It can be written.
    ///
    /// # Errors
    /// [`RegionFull`], also if the system gives no memory for a block that the region could hold.
    pub fn allocate(&self) -> Result<LeafNumber, RegionFull> {
        let leaf = self.take()?;
        let end_bytes = (u64::from(leaf.0) + 1) * self.block_bytes();
        if let Err(error) = self.region.grow_to(end_bytes) {
            self.free(leaf);
            return Err(RegionFull { no_memory: Some(error.to_string().into()), ..self.full() });
        }
        Ok(leaf)
    }

    fn take(&self) -> Result<LeafNumber, RegionFull> {
        // Relaxed: a count that lags sends this allocation to a fresh block, or to an empty list and from
        // there to a fresh block. The list itself is under its lock.
        if self.freed_count.load(Ordering::Relaxed) > 0
            && let Some(leaf) = self.take_freed()
        {
            return Ok(leaf);
        }
        // Relaxed: a number is all that is taken; the thread that publishes the block orders its contents.
        let taken = self.next_unused.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < self.capacity_leaves).then_some(next + 1)
        });
        match taken {
            Ok(number) => Ok(LeafNumber(number)),
            Err(_) => self.take_freed().ok_or_else(|| self.full()),
        }
    }

    fn full(&self) -> RegionFull {
        RegionFull {
            region: self.region.id(),
            capacity_leaves: self.capacity_leaves,
            leaf_bytes: self.block_words * 8,
            no_memory: None,
        }
    }

    /// Makes certain of so many blocks: as many allocations in a row succeed, if nobody else allocates.
    ///
    /// # Errors
    /// As [`Slab::allocate`].
    pub fn reserve(&self, blocks: u64) -> Result<(), RegionFull> {
        // Relaxed: the caller is the only one that allocates.
        let freed = u64::from(self.freed_count.load(Ordering::Relaxed));
        let end = u64::from(self.next_unused.load(Ordering::Relaxed)) + blocks.saturating_sub(freed);
        if end > u64::from(self.capacity_leaves) {
            return Err(self.full());
        }
        let grown = self.region.grow_to(end * self.block_bytes());
        grown.map_err(|error| RegionFull { no_memory: Some(error.to_string().into()), ..self.full() })
    }

    /// The block that the allocation after `ahead` others would take, if no freed block is used before: to
    /// ask for its lines in time.
    #[inline]
    #[must_use]
    pub fn peek(&self, ahead: u32) -> Option<&[AtomicU64]> {
        // Relaxed: a guess.
        self.block(LeafNumber(self.next_unused.load(Ordering::Relaxed).saturating_add(ahead)))
    }

    /// Gives a block back. It must hold no leaf any more, by its own bytes.
    pub fn free(&self, leaf: LeafNumber) {
        debug_assert!(leaf.0 < self.capacity_leaves, "{leaf} was never allocated");
        let mut freed = self.lock_freed();
        debug_assert!(freed.len() > 64 || !freed.contains(&leaf), "{leaf} is freed twice");
        freed.push(leaf);
        self.freed_count.store(freed.len() as u32, Ordering::Relaxed);
    }

    /// The words of `leaf`'s block, in use or not; `None` beyond the region's end.
    #[inline]
    #[must_use]
    pub fn block(&self, leaf: LeafNumber) -> Option<&[AtomicU64]> {
        if leaf.0 >= self.capacity_leaves {
            return None;
        }
        let first = leaf.0 as usize * self.block_words;
        self.region.words().get(first..first + self.block_words)
    }

    /// True if `leaf` was allocated at some time. A caller that has its number from a client asks first, or a
    /// hostile client could make the whole region resident.
    #[inline]
    #[must_use]
    pub fn was_ever_used(&self, leaf: LeafNumber) -> bool {
        // Relaxed: a number that was given out was given out after its allocation.
        leaf.0 < self.next_unused.load(Ordering::Relaxed)
    }

    /// Leaves that the region can hold.
    #[must_use]
    pub fn capacity_leaves(&self) -> u32 {
        self.capacity_leaves
    }

    /// Bytes of one block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.block_words as u64 * 8
    }

    /// Leaves in use.
    #[must_use]
    pub fn used_leaves(&self) -> u32 {
        // Relaxed: two counts of about the same moment; statistics.
        let ever = self.next_unused.load(Ordering::Relaxed);
        ever.saturating_sub(self.freed_count.load(Ordering::Relaxed))
    }

    /// Bytes from the region's start to the end of the last block ever used: what has been written.
    #[must_use]
    pub fn touched_bytes(&self) -> u64 {
        // Relaxed: statistics.
        u64::from(self.next_unused.load(Ordering::Relaxed)) * self.block_bytes()
    }

    fn take_freed(&self) -> Option<LeafNumber> {
        let mut freed = self.lock_freed();
        let leaf = freed.pop();
        self.freed_count.store(freed.len() as u32, Ordering::Relaxed);
        leaf
    }

    fn lock_freed(&self) -> MutexGuard<'_, Vec<LeafNumber>> {
        // A push or a pop leaves a list that is whole, even if a thread panics beside it.
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use farsight_fabric::FabricError;

    use super::*;

    /// Words, of which so many bytes can be written at most, and so many were to be.
    struct Words(Vec<AtomicU64>, u64, AtomicU64);

    impl Region for Words {
        fn id(&self) -> RegionId {
            RegionId(4)
        }
        fn words(&self) -> &[AtomicU64] {
            &self.0
        }
        fn grow_to(&self, used_bytes: u64) -> Result<(), FabricError> {
            if used_bytes > self.1 {
                return Err(FabricError::Forked);
            }
            self.2.fetch_max(used_bytes, Ordering::Relaxed);
            Ok(())
        }
        fn huge_page_bytes(&self) -> u64 {
            0
        }
        fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
            0
        }
    }

    fn words(count: usize, most_bytes: u64) -> Arc<Words> {
        let words = (0..count).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Words(words, most_bytes, AtomicU64::new(0)))
    }

    fn slab(count: usize) -> Slab {
        Slab::new(words(count, u64::MAX), 56)
    }

    #[test]
    fn a_block_can_be_written_or_is_not_given() {
        let region = words(56 * 8, 448 * 2);
        let slab = Slab::new(Arc::clone(&region) as Arc<dyn Region>, 56);
        for number in 0..2 {
            assert_eq!(slab.allocate(), Ok(LeafNumber(number)));
            assert_eq!(region.2.load(Ordering::Relaxed), 448 * (u64::from(number) + 1));
        }
        for _ in 0..3 {
            let error = slab.allocate().expect_err("no memory for a third").to_string();
            assert!(error.starts_with("region 4 has room for 8 leaves of 448 B, but no memory: "), "{error}");
        }
        slab.free(LeafNumber(0));
        assert_eq!(slab.used_leaves(), 1);
    }

    #[test]
    fn a_freed_block_is_used_before_a_new_one() {
        let slab = slab(56 * 4);
        assert_eq!([slab.allocate(), slab.allocate()], [Ok(LeafNumber(0)), Ok(LeafNumber(1))]);
        slab.free(LeafNumber(0));
        assert_eq!(slab.used_leaves(), 1);
        assert_eq!([slab.allocate(), slab.allocate()], [Ok(LeafNumber(0)), Ok(LeafNumber(2))]);
        assert_eq!((slab.used_leaves(), slab.touched_bytes()), (3, 3 * 448));
    }

    #[test]
    fn a_full_region_names_itself_and_its_size() {
        let slab = slab(56 * 2 + 55);
        assert_eq!(slab.capacity_leaves(), 2);
        assert!(slab.allocate().is_ok() && slab.allocate().is_ok());
        let full = slab.allocate().unwrap_err();
        assert_eq!(full.to_string(), "region 4 is full: all of its 2 leaves of 448 B are in use");
        slab.free(LeafNumber(1));
        assert_eq!(slab.allocate(), Ok(LeafNumber(1)));
    }

    #[test]
    fn blocks_end_where_the_region_does() {
        let slab = slab(56 * 2 + 55);
        assert_eq!(slab.block(LeafNumber(1)).map(<[_]>::len), Some(56));
        assert!(slab.block(LeafNumber(2)).is_none() && slab.block(LeafNumber::NONE).is_none());
    }
}
