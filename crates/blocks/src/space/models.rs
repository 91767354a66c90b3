//! Models of threads that share a space: none is refused while others have what it needs in quarantine.
//!
//! Loom would follow each word of a region; shuttle's cost nothing until they are touched.

use std::sync::OnceLock;

use farsight_base::injection::assert_found;
use farsight_base::sync::model::{check, thread};

use super::*;
use crate::BlockWriter;
use crate::sizes::SLAB_BLOCK_LINES_MAX;

/// The longest blocks in a slab; a writer takes one at a time.
const BLOCK_LINES: u32 = SLAB_BLOCK_LINES_MAX;
/// Pages of one slab, in which two of them stand.
const REGION_PAGES: u64 = 16;

/// A region whose words nobody touches.
struct Untouched;

impl Region for Untouched {
    fn id(&self) -> RegionId {
        RegionId(4)
    }
    fn words(&self) -> &[AtomicU64] {
        static WORDS: OnceLock<Vec<AtomicU64>> = OnceLock::new();
        WORDS.get_or_init(|| (0..REGION_PAGES * PAGE_BYTES / 8).map(|_| AtomicU64::new(0)).collect())
    }
    fn grow_to(&self, _used_bytes: u64) -> Result<(), FabricError> {
        Ok(())
    }
    fn huge_page_bytes(&self) -> u64 {
        0
    }
    fn collapse_to_huge_pages(&self, _used_bytes: u64) -> u64 {
        0
    }
}

/// Takes a place and retires it, three times. The first block's place waits while the second is taken.
fn write(space: &Arc<BlockSpace>) {
    let mut writer = BlockWriter::new(Arc::clone(space));
    for _ in 0..3 {
        let place = writer.allocate(BLOCK_LINES).expect("the other thread has one place at most");
        space.retire(place);
    }
}

fn two_writers_share_two_places() {
    let space = Arc::new(BlockSpace::new(Arc::new(Untouched), 0, u64::MAX));
    let other = Arc::clone(&space);
    let other = thread::spawn(move || write(&other));
    write(&space);
    other.join().expect("no panic");
    assert_eq!(space.stats().live_bytes, 0);
}

#[test]
fn nobody_is_refused_while_places_wait() {
    check(3, two_writers_share_two_places);
}

#[test]
fn what_leaves_the_quarantine_is_for_who_let_it_out() {
    assert_found(&crate::injected::EMPTIED_FOR_OTHERS, || check(3, two_writers_share_two_places));
}
