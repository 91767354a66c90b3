//! Mapped memory: the one place that calls `mmap`.
//!
//! Invariant: a [`Mapping`] covers exactly `length_bytes` mapped bytes from its base until it is dropped, and
//! its memory is reached as `&[AtomicU64]` alone. Shared ones lie on a file whose size is sealed before
//! anyone relies on it, so no peer can take the pages away beneath a reader.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use farsight_base::sync::AtomicU64;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The unit in which the processor maps huge pages, and to which region mappings are aligned.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

const PAGE_BYTES: usize = 4096;

/// What a mapping lets its own process do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Loads only: a store faults.
    Read,
    /// Loads, stores and atomics.
    ReadWrite,
}

impl Access {
    fn protection(self) -> ProtFlags {
        match self {
            Self::Read => ProtFlags::READ,
            Self::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }
}

/// Mapped memory, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<AtomicU64>,
    length_bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread; its memory is reached through atomics only.
unsafe impl Send for Mapping {}
// SAFETY: as above: `&Mapping` gives out `&[AtomicU64]`, which is `Sync`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `length_bytes` (a multiple of the page size) of `file`, whose size must be sealed at
    /// that or more, at an address that is a multiple of `alignment_bytes`.
    pub(crate) fn shared(
        file: BorrowedFd<'_>,
        length_bytes: usize,
        access: Access,
        alignment_bytes: usize,
    ) -> io::Result<Self> {
        assert!(length_bytes > 0 && length_bytes.is_multiple_of(PAGE_BYTES), "a mapping of {length_bytes} B");
        let too_long = || io::Error::from(io::ErrorKind::OutOfMemory);
        let reserved_bytes = length_bytes.checked_add(alignment_bytes).ok_or_else(too_long)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice replaces nothing.
        let reserved =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), reserved_bytes, ProtFlags::empty(), flags) }?;
        let skipped_bytes = reserved.align_offset(alignment_bytes);
        // SAFETY: `skipped_bytes < alignment_bytes`, so the sum stays inside the reservation.
        let aligned = unsafe { reserved.byte_add(skipped_bytes) };
        // SAFETY: the range lies inside the reservation made above, which nothing else knows of.
        let mapped = unsafe {
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            rustix::mm::mmap(aligned, length_bytes, access.protection(), flags, file, 0)
        };
        let used_bytes = if mapped.is_ok() { length_bytes } else { 0 };
        unmap(reserved, skipped_bytes);
        // SAFETY: `skipped + used <= reserved_bytes`: the sum stays inside the reservation or at its end.
        let rest = unsafe { aligned.byte_add(used_bytes) };
        unmap(rest, reserved_bytes - skipped_bytes - used_bytes);
        let base = NonNull::new(mapped?.cast()).expect("mmap does not return null");
        Ok(Self { base, length_bytes })
    }

    /// One private page, zero at first and zero again in every forked child.
    pub(crate) fn wiped_on_fork() -> io::Result<Self> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice replaces nothing.
        let page = unsafe {
            let access = Access::ReadWrite.protection();
            rustix::mm::mmap_anonymous(null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE)
        }?;
        let base = NonNull::new(page.cast()).expect("mmap does not return null");
        let mapping = Self { base, length_bytes: PAGE_BYTES };
        // SAFETY: the page was mapped above, privately and anonymously as this advice demands, and is this
        // mapping's own; its content in this process does not change.
        unsafe { rustix::mm::madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }?;
        Ok(mapping)
    }

    /// Words of a model, whose atomics are not of a word's size.
    #[cfg(all(test, any(loom, shuttle)))]
    pub(crate) fn of_model(word_count: usize) -> Self {
        let words: Box<[AtomicU64]> = (0..word_count).map(|_| AtomicU64::new(0)).collect();
        Self { base: NonNull::from(Box::leak(words)).cast(), length_bytes: word_count * 8 }
    }

    /// All words. Stores to an [`Access::Read`] mapping fault; that nobody tries is the queue pair's check of
    /// rights.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is page-aligned and mapped readable for `length_bytes` while `self` lives. The
        // memory is initialised (files and anonymous pages begin as zeros), and `AtomicU64` has no invalid
        // values. Other processes' writes to it are to words that this process reads by atomics or
        // `words::copy_line` only.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length_bytes / 8) }
    }

    /// The address range, as `/proc/self/smaps` writes it.
    pub(crate) fn address_range(&self) -> std::ops::Range<usize> {
        let start = self.base.as_ptr() as usize;
        start..start + self.length_bytes
    }

    /// Asks for one huge page under piece number `piece` of [`HUGE_PAGE_BYTES`].
    pub(crate) fn collapse(&self, piece: usize) -> io::Result<()> {
        let offset_bytes = piece * HUGE_PAGE_BYTES;
        assert!(
            offset_bytes + HUGE_PAGE_BYTES <= self.length_bytes,
            "piece {piece} lies outside the mapping"
        );
        // SAFETY: the sum lies inside the mapping, by the assertion.
        let start = unsafe { self.base.as_ptr().byte_add(offset_bytes) };
        // SAFETY: the range lies inside this mapping; the advice moves pages without changing what they hold.
        let outcome = unsafe { libc::madvise(start.cast(), HUGE_PAGE_BYTES, libc::MADV_COLLAPSE) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(any(loom, shuttle))]
impl Drop for Mapping {
    fn drop(&mut self) {
        let words = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.length_bytes / 8);
        // SAFETY: `of_model` leaked a box of so many words, which is this mapping's own.
        drop(unsafe { Box::from_raw(words) });
    }
}

#[cfg(not(any(loom, shuttle)))]
impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.base.as_ptr().cast(), self.length_bytes);
    }
}

/// Unmaps a range that this file mapped and that nothing refers to any more.
fn unmap(start: *mut libc::c_void, length_bytes: usize) {
    if length_bytes > 0 {
        // SAFETY: every caller in this file owns the range, and gives it up here.
        let outcome = unsafe { rustix::mm::munmap(start, length_bytes) };
        assert!(outcome.is_ok(), "munmap of an own range failed: {outcome:?}");
    }
}

/// The words of a mapping that is kept alive, one pointer away; or none.
#[derive(Clone, Debug)]
pub(crate) struct SharedWords {
    first: NonNull<AtomicU64>,
    count: usize,
    /// `None` only while `count` is zero.
    keep: Option<Arc<Mapping>>,
}

// SAFETY: it is a shared reference to atomics and an `Arc` of something `Send + Sync`.
unsafe impl Send for SharedWords {}
// SAFETY: as above.
unsafe impl Sync for SharedWords {}

impl SharedWords {
    pub(crate) fn new(mapping: Arc<Mapping>) -> Self {
        Self { first: mapping.base, count: mapping.words().len(), keep: Some(mapping) }
    }

    /// No words of no mapping.
    pub(crate) fn none() -> Self {
        Self { first: NonNull::dangling(), count: 0, keep: None }
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: `first` and `count` are those of `keep.words()`, and `keep` lives as long as `self`, which
        // the slice borrows. Without a `keep`, `first` is aligned and not null, and `count` is zero.
        unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.count) }
    }

    pub(crate) fn mapping(&self) -> Option<&Arc<Mapping>> {
        self.keep.as_ref()
    }
}
