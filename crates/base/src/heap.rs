//! Zeroed words on the heap: memory that may never be touched costs nothing, and memory that cannot be had
//! is an error and no abort.
//!
//! Invariant: the words begin at a line, and live as long as their [`HeapWords`]. Words that fill a huge page
//! begin at one, and lie on huge pages where the system grants them. So words read at random cost a walk of
//! the page table less. Of memory that may stay nearly empty the first huge page is none: it costs what is
//! written.
//!
//! Words that fill a few pages are a mapping of their own. An allocator would clear what it has used before,
//! all of it and what lies beside it, and would keep what comes back. A mapping costs what is touched, and
//! ends with its words.

use std::alloc::Layout;
use std::ptr::NonNull;

use crate::sync::AtomicU64;
use crate::{LINE_BYTES, WORDS_PER_LINE};

/// The unit in which the processor maps huge pages.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of a mapping at least.
const MAPPED_BYTES_MIN: usize = 32 << 10;

/// A line-aligned piece of the heap as words, zero at first.
#[derive(Debug)]
pub struct HeapWords {
    /// Owns the memory of the words.
    _allocation: Allocation,
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

    /// Words without huge pages in the first `small_bytes`.
    fn with_small_pages(line_count: usize, small_bytes: usize) -> Option<Self> {
        let length_bytes = line_count.checked_mul(LINE_BYTES).filter(|bytes| *bytes > 0)?;
        let alignment_bytes = if length_bytes < HUGE_PAGE_BYTES { LINE_BYTES } else { HUGE_PAGE_BYTES };
        // As much more, of which the first aligned place is looked for.
        let allocation = Allocation::zeroed(length_bytes.checked_add(alignment_bytes)?)?;
        let skipped_bytes = allocation.first.align_offset(alignment_bytes);
        assert!(skipped_bytes < alignment_bytes, "memory has places of every alignment");
        // SAFETY: the allocation is longer than `skipped_bytes`, which are less than the alignment.
        let first = unsafe { allocation.first.byte_add(skipped_bytes) }.cast::<AtomicU64>();
        ask_for_huge_pages(first, small_bytes, length_bytes);
        Some(Self { _allocation: allocation, first, count: line_count * WORDS_PER_LINE })
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

    /// Bytes of memory that the words take by now: of those never touched none.
    #[must_use]
    pub fn touched_bytes(&self) -> u64 {
        touched_bytes(self.first.cast(), self.count * size_of::<AtomicU64>()) as u64
    }
}

/// Memory of the allocator, or a mapping.
#[derive(Debug)]
struct Allocation {
    first: NonNull<u8>,
    length_bytes: usize,
}

impl Allocation {
    /// So many bytes of zeros, at least one, from a word's boundary on.
    fn zeroed(length_bytes: usize) -> Option<Self> {
        let first = if is_mapping(length_bytes) { map(length_bytes) } else { allocate(length_bytes) }?;
        Some(Self { first, length_bytes })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if is_mapping(self.length_bytes) {
            unmap(self.first, self.length_bytes);
        } else {
            let layout = layout_of(self.length_bytes).expect("it was allocated with this layout");
            // SAFETY: `first` was made with this layout. Nothing refers to it any more: the words that do
            // live as long as what owns this.
            unsafe { std::alloc::dealloc(self.first.as_ptr(), layout) };
        }
    }
}

/// True if so many bytes are a mapping of their own.
fn is_mapping(length_bytes: usize) -> bool {
    cfg!(all(target_os = "linux", not(miri))) && length_bytes >= MAPPED_BYTES_MIN
}

fn layout_of(length_bytes: usize) -> Option<Layout> {
    Layout::from_size_align(length_bytes, align_of::<AtomicU64>()).ok()
}

fn allocate(length_bytes: usize) -> Option<NonNull<u8>> {
    let layout = layout_of(length_bytes).filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout's size is not zero.
    NonNull::new(unsafe { std::alloc::alloc_zeroed(layout) })
}

/// A private mapping of zeros.
#[cfg(all(target_os = "linux", not(miri)))]
fn map(length_bytes: usize) -> Option<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping where the kernel finds room: no address of this process's is touched.
    let first = unsafe { libc::mmap(std::ptr::null_mut(), length_bytes, protection, flags, -1, 0) };
    NonNull::new(first.cast()).filter(|_| first != libc::MAP_FAILED)
}

#[cfg(all(target_os = "linux", not(miri)))]
fn unmap(first: NonNull<u8>, length_bytes: usize) {
    // SAFETY: the range is a mapping that `map` made, whole. Nothing refers to it any more, as above.
    let unmapped = unsafe { libc::munmap(first.as_ptr().cast(), length_bytes) };
    debug_assert_eq!(unmapped, 0, "a mapping of its own can be ended");
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn map(_length_bytes: usize) -> Option<NonNull<u8>> {
    unreachable!("nothing is mapped here")
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn unmap(_first: NonNull<u8>, _length_bytes: usize) {
    unreachable!("nothing is mapped here")
}

/// How many of these bytes lie on pages that the process has touched; all of them where nobody tells.
#[cfg(all(target_os = "linux", not(miri)))]
fn touched_bytes(first: NonNull<u8>, length_bytes: usize) -> usize {
    /// Pages that are asked about together.
    const PAGES: usize = 1 << 12;
    // SAFETY: it looks up a constant of the system.
    let page_bytes = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
    let (begin, end) = (first.addr().get(), first.addr().get() + length_bytes);
    let mut is_touched = [0; PAGES];
    let mut touched_bytes = 0;
    let mut at = begin - begin % page_bytes;
    while at < end {
        let pages = (end - at).div_ceil(page_bytes).min(PAGES);
        let address = first.as_ptr().with_addr(at);
        // SAFETY: the call reads no memory. It writes a byte for each of `pages` pages, for which there is
        // room.
        let told = unsafe { libc::mincore(address.cast(), pages * page_bytes, is_touched.as_mut_ptr()) };
        if told != 0 {
            return length_bytes;
        }
        for is_touched in &is_touched[..pages] {
            let next = at + page_bytes;
            touched_bytes += usize::from(is_touched & 1) * (next.min(end) - at.max(begin));
            at = next;
        }
    }
    touched_bytes
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn touched_bytes(_first: NonNull<u8>, length_bytes: usize) -> usize {
    length_bytes
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
    fn words_take_the_pages_that_were_touched() {
        const LINES: usize = 4 * HUGE_PAGE_BYTES / LINE_BYTES;
        let heap = HeapWords::zeroed_for_growth(LINES).expect("memory");
        let all_bytes = (LINES * LINE_BYTES) as u64;
        if heap.touched_bytes() == all_bytes {
            println!("skipped: nobody tells which pages were touched");
            return;
        }
        assert_eq!(heap.touched_bytes(), 0);
        heap.words()[0].store(1, Ordering::Relaxed);
        let first = heap.touched_bytes();
        assert!(first > 0 && first < HUGE_PAGE_BYTES as u64, "{first} B for a word");
        heap.words().iter().for_each(|word| word.store(1, Ordering::Relaxed));
        assert_eq!(heap.touched_bytes(), all_bytes);
        let few = HeapWords::zeroed(3).expect("memory");
        few.words()[0].store(1, Ordering::Relaxed);
        assert!((LINE_BYTES as u64..=3 * LINE_BYTES as u64).contains(&few.touched_bytes()));
    }

    #[test]
    fn what_cannot_be_had_is_no_abort() {
        assert!(HeapWords::zeroed(0).is_none());
        assert!(HeapWords::zeroed(usize::MAX).is_none());
        assert!(HeapWords::zeroed(1 << 56).is_none(), "no machine has an exbibyte");
    }
}
