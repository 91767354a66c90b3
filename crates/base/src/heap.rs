//! Zeroed words on the heap: memory that may never be touched costs nothing, and memory that cannot be had
//! is an error and no abort.
//!
//! Invariant: the words begin at a line, and live as long as their [`HeapWords`]. Words that fill a huge page
//! begin at one, and lie on huge pages where the system grants them. So words read at random cost a walk of
//! the page table less. Of memory that may stay nearly empty the first huge page is none: it costs what is
//! written.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::sync::AtomicU64;
use crate::{LINE_BYTES, WORDS_PER_LINE};

/// The unit in which the processor maps huge pages.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A line-aligned piece of the heap as words, zero at first.
#[derive(Debug)]
pub struct HeapWords {
    allocation: NonNull<u8>,
    layout: Layout,
    /// Where the first line begins, and how many words there are from it on.
    first: NonNull<AtomicU64>,
    count: usize,
}

// SAFETY: the memory belongs to the value, not to a thread, and is reached through atomics only.
unsafe impl Send for HeapWords {}
// SAFETY: as above: `&HeapWords` gives out `&[AtomicU64]`, which is `Sync`.
unsafe impl Sync for HeapWords {}

impl HeapWords {
    /// `line_count` lines of zeros; `None` if there are none to be had. Pages are taken when they are first
    /// written.
    #[must_use]
    pub fn zeroed(line_count: usize) -> Option<Self> {
        Self::with_small_pages(line_count, 0)
    }

    /// [`HeapWords::zeroed`] for what may stay nearly empty.
    #[must_use]
    pub fn zeroed_for_growth(line_count: usize) -> Option<Self> {
        Self::with_small_pages(line_count, HUGE_PAGE_BYTES)
    }

    /// Words of which no huge pages are asked for in the first `small_bytes`.
    fn with_small_pages(line_count: usize, small_bytes: usize) -> Option<Self> {
        let length_bytes = line_count.checked_mul(LINE_BYTES).filter(|bytes| *bytes > 0)?;
        let alignment_bytes = if length_bytes < HUGE_PAGE_BYTES { LINE_BYTES } else { HUGE_PAGE_BYTES };
        // The allocator leaves memory of its own alignment alone that comes zeroed from the system, and
        // clears any other by hand. So this allocates as much more, and looks for the first aligned place.
        let layout = Layout::array::<u8>(length_bytes.checked_add(alignment_bytes)?).ok()?;
        let layout = layout.align_to(align_of::<AtomicU64>()).ok()?;
        // SAFETY: the layout's size is not zero, because `length_bytes` is not.
        let allocation = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let skipped_bytes = allocation.align_offset(alignment_bytes);
        assert!(skipped_bytes < alignment_bytes, "memory has places of every alignment");
        // SAFETY: the allocation is longer than `skipped_bytes`, which are less than the alignment.
        let first = unsafe { allocation.byte_add(skipped_bytes) }.cast::<AtomicU64>();
        ask_for_huge_pages(first, small_bytes, length_bytes);
        Some(Self { allocation, layout, first, count: line_count * WORDS_PER_LINE })
    }

    /// All words.
    #[inline(always)]
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `count` words from `first` on lie in the allocation: it is longer than they are by the
        // alignment, and less than that was skipped. It lives as long as `self`. Zeroed memory is valid for
        // atomics, and nobody reaches it but through these.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }
}

/// Asks for huge pages under this memory from `small_bytes` on, a number of whole ones. Whether there are
/// any is the system's choice.
fn ask_for_huge_pages(first: NonNull<AtomicU64>, small_bytes: usize, length_bytes: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if let whole_bytes @ 1.. = (length_bytes / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES).saturating_sub(small_bytes)
    {
        // SAFETY: `small_bytes` are less than the length, so the place lies inside the allocation.
        let begin = unsafe { first.byte_add(small_bytes) };
        // SAFETY: the range lies inside one allocation of the caller's; the advice changes which pages hold
        // it and not what they hold.
        let advised = unsafe { libc::madvise(begin.as_ptr().cast(), whole_bytes, libc::MADV_HUGEPAGE) };
        // Without huge pages, everything works more slowly.
        let _ = advised;
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (first, small_bytes, length_bytes);
}

impl Drop for HeapWords {
    fn drop(&mut self) {
        // SAFETY: `allocation` was made with this layout, and nothing refers to it any more.
        unsafe { dealloc(self.allocation.as_ptr(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn words_are_zero_and_begin_at_a_line() {
        for line_count in [1, 2, 5, 1000, HUGE_PAGE_BYTES / LINE_BYTES, 40_000] {
            let heap = HeapWords::zeroed(line_count).expect("memory");
            let words = heap.words();
            assert_eq!(words.len(), line_count * WORDS_PER_LINE);
            let is_huge = line_count * LINE_BYTES >= HUGE_PAGE_BYTES;
            let alignment_bytes = if is_huge { HUGE_PAGE_BYTES } else { LINE_BYTES };
            assert!((words.as_ptr() as usize).is_multiple_of(alignment_bytes));
            assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
            words[words.len() - 1].store(7, Ordering::Relaxed);
            assert_eq!(heap.words()[words.len() - 1].load(Ordering::Relaxed), 7);
        }
    }

    #[test]
    fn what_cannot_be_had_is_no_abort() {
        assert!(HeapWords::zeroed(0).is_none());
        assert!(HeapWords::zeroed(usize::MAX).is_none());
        assert!(HeapWords::zeroed(1 << 56).is_none(), "no machine has an exbibyte");
    }
}
