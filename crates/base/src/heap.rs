//! Zeroed words on the heap: memory that may never be touched costs nothing, and memory that cannot be had
//! is an error and no abort.
//!
//! Invariant: the words begin at a line, and live as long as their [`HeapWords`].

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use crate::sync::AtomicU64;
use crate::{LINE_BYTES, WORDS_PER_LINE};

/// A line-aligned piece of the heap as words, zero at first.
#[derive(Debug)]
pub struct HeapWords {
    base: NonNull<AtomicU64>,
    layout: Layout,
    /// Where the first line begins, and how many words there are from it on.
    first: usize,
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
        // The allocator leaves memory of its own alignment alone that comes zeroed from the system, and
        // clears any other by hand: so a line more, and the first line looked for.
        let count = line_count.checked_mul(WORDS_PER_LINE).filter(|count| *count > 0)?;
        let layout = Layout::array::<AtomicU64>(count.checked_add(WORDS_PER_LINE)?).ok()?;
        // SAFETY: the layout's size is not zero, because `count` is not.
        let memory = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(memory)?.cast::<AtomicU64>();
        let first = base.as_ptr().align_offset(LINE_BYTES);
        assert!(first < WORDS_PER_LINE, "words are aligned to their size");
        Some(Self { base, layout, first, count })
    }

    /// All words.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `first < WORDS_PER_LINE`, and the allocation has that many words more than `count`.
        let start = unsafe { self.base.as_ptr().add(self.first) };
        // SAFETY: `count` words from `start` lie in the allocation, which lives as long as `self`; zeroed
        // memory is valid for atomics, and nobody reaches it but through these.
        unsafe { std::slice::from_raw_parts(start, self.count) }
    }
}

impl Drop for HeapWords {
    fn drop(&mut self) {
        // SAFETY: `base` was allocated with this layout, and nothing refers to it any more.
        unsafe { dealloc(self.base.as_ptr().cast(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Ordering;

    #[test]
    fn words_are_zero_and_begin_at_a_line() {
        for line_count in [1, 2, 5, 1000] {
            let heap = HeapWords::zeroed(line_count).expect("memory");
            let words = heap.words();
            assert_eq!(words.len(), line_count * WORDS_PER_LINE);
            assert!((words.as_ptr() as usize).is_multiple_of(LINE_BYTES));
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
