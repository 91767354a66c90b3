//! Memory that tables have before they need it.
//!
//! Memory that was never touched is dear to touch: the kernel clears it. In a virtual machine its host may
//! have to find it first, for milliseconds. A write that splits a leaf would wait for that.

use std::ops::{ControlFlow, Range};

use farsight_base::sync::Ordering;
use farsight_fabric::Region;

use crate::{NodeOptions, NodeState, StartError, process};

/// Bytes that huge pages cover: the unit of collapsing.
pub(crate) const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Bytes of other pages.
const PAGE_BYTES: u64 = 4096;
/// Bytes taken between two words about it.
const STEP_BYTES: u64 = 32 * HUGE_PAGE_BYTES;

/// Takes what `options` say for the tables to come, before the first client, unless `taken_bytes` ends it.
pub(crate) fn take(
    state: &NodeState,
    options: &NodeOptions,
    taken_bytes: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), StartError> {
    let length_bytes = options.table_memory_bytes;
    let sizes = || options.prefault_bytes.iter().map(|bytes| *bytes.min(&length_bytes));
    let wanted_bytes = sizes().fold(0, u64::saturating_add);
    if let Some(available_bytes) = process::available_memory_bytes().filter(|bytes| *bytes < wanted_bytes) {
        return Err(StartError::Memory { wanted_bytes, available_bytes });
    }
    let mut before = 0;
    for bytes in sizes() {
        let region = state.tables.prepare(&state.listeners);
        let region = region.and_then(|region| region.grow_to(bytes).map(|()| region));
        let region = region.map_err(|source| StartError::Region { length_bytes, source })?;
        let mut all = before;
        let ended = populate(&*region, bytes, &mut |taken| {
            all = before + taken;
            taken_bytes(all)
        });
        if ended.is_break() {
            return Err(StartError::Ended { taken_bytes: all, wanted_bytes });
        }
        before += bytes;
    }
    Ok(())
}

/// Takes memory for the first `bytes` of a region that nobody uses yet, unless `taken_bytes` ends it.
fn populate(
    region: &dyn Region,
    bytes: u64,
    taken_bytes: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let mut has_huge_pages = true;
    for begin in (0..bytes).step_by(STEP_BYTES as usize) {
        let end = bytes.min(begin + STEP_BYTES);
        // Where one step found no huge pages, the next one requests none.
        has_huge_pages = has_huge_pages && on_huge_pages(region, begin..end) >= end;
        touch(region, begin..end, PAGE_BYTES);
        taken_bytes(end)?;
    }
    ControlFlow::Continue(())
}

/// Puts a piece of `region` that begins at a huge page's border on huge pages, whether anything was written
/// there or not. Returns the bytes of the region that are on them.
pub(crate) fn on_huge_pages(region: &dyn Region, piece_bytes: Range<u64>) -> u64 {
    if region.grow_to(piece_bytes.end).is_err() {
        // The leaf that has to have it says so.
        return region.huge_page_bytes();
    }
    // Only where there is a page already are they collapsed.
    touch(region, piece_bytes.clone(), HUGE_PAGE_BYTES);
    region.collapse_to_huge_pages(piece_bytes.end)
}

/// Makes every page of `bytes` the region's own.
fn touch(region: &dyn Region, bytes: Range<u64>, page_bytes: u64) {
    for begin in bytes.step_by(page_bytes as usize) {
        // A store that changes nothing, beside writers too; of a load, or an addition of nothing, compilers
        // know that it can be left out. Relaxed: nothing is published.
        let word = &region.words()[begin as usize / 8];
        let _ = word.compare_exchange(0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::RegionId;
    use farsight_base::sync::{AtomicU64, Mutex};

    use super::*;

    /// What was collapsed, of a system with huge pages or without.
    struct Counting {
        words: Vec<AtomicU64>,
        has_huge_pages: bool,
        asked_bytes: Mutex<Vec<u64>>,
    }

    impl Region for Counting {
        fn id(&self) -> RegionId {
            RegionId(1)
        }
        fn words(&self) -> &[AtomicU64] {
            &self.words
        }
        fn huge_page_bytes(&self) -> u64 {
            0
        }
        fn collapse_to_huge_pages(&self, used_bytes: u64) -> u64 {
            self.asked_bytes.lock().unwrap().push(used_bytes);
            if self.has_huge_pages { used_bytes.next_multiple_of(HUGE_PAGE_BYTES) } else { 0 }
        }
    }

    #[test]
    fn memory_is_taken_in_steps_and_a_system_without_huge_pages_is_asked_once() {
        let bytes = 2 * STEP_BYTES + 5 * PAGE_BYTES;
        for (has_huge_pages, expected) in
            [(true, vec![STEP_BYTES, 2 * STEP_BYTES, bytes]), (false, vec![STEP_BYTES])]
        {
            let words = (0..3 * STEP_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
            let region = Counting { words, has_huge_pages, asked_bytes: Mutex::default() };
            let mut said = Vec::new();
            let all = populate(&region, bytes, &mut |taken| {
                said.push(taken);
                ControlFlow::Continue(())
            });
            assert!(all.is_continue());
            assert_eq!(said, [STEP_BYTES, 2 * STEP_BYTES, bytes]);
            assert_eq!(*region.asked_bytes.lock().unwrap(), expected);
        }
    }
}
