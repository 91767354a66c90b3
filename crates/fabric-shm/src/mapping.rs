//! Mapped memory: the one place that calls `mmap`.
//!
//! Invariant: a [`Mapping`] covers exactly `length_bytes` mapped bytes from its base until it is dropped, and
//! its memory is reached as `&[AtomicU64]` alone. Shared ones lie on a file whose size is sealed before
//! anyone relies on it, so no peer can take the pages away beneath a reader. One that is vacated reads as
//! zeros.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use farsight_base::sync::AtomicU64;
use farsight_base::words::SharedLine;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The unit in which the processor maps huge pages, and to which region mappings are aligned.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The least unit of a mapping.
pub(crate) const PAGE_BYTES: usize = 4096;

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
    /// `length_bytes` (a multiple of the page size) that read as zeros and take no memory, at an address that
    /// is a multiple of `alignment_bytes`. A store faults.
    pub(crate) fn zeros(length_bytes: usize, alignment_bytes: usize) -> io::Result<Self> {
        assert!(length_bytes > 0 && length_bytes.is_multiple_of(PAGE_BYTES), "a mapping of {length_bytes} B");
        let too_long = || io::Error::from(io::ErrorKind::OutOfMemory);
        let reserved_bytes = length_bytes.checked_add(alignment_bytes).ok_or_else(too_long)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice replaces nothing.
        let reserved =
            unsafe { rustix::mm::mmap_anonymous(null_mut(), reserved_bytes, ProtFlags::READ, flags) }?;
        let skipped_bytes = reserved.align_offset(alignment_bytes);
        // SAFETY: `skipped_bytes < alignment_bytes`, so the sum stays inside the reservation.
        let aligned = unsafe { reserved.byte_add(skipped_bytes) };
        unmap(reserved, skipped_bytes);
        // SAFETY: `skipped + length <= reserved_bytes`: the sum stays inside the reservation or at its end.
        let rest = unsafe { aligned.byte_add(length_bytes) };
        unmap(rest, reserved_bytes - skipped_bytes - length_bytes);
        let base = NonNull::new(aligned.cast()).expect("mmap does not return null");
        Ok(Self { base, length_bytes })
    }

    /// Puts the first `length_bytes` of `file` at `offset_bytes`, in place of what is there. All of them are
    /// multiples of the page size, and the file's size must be sealed at that or more, or be nobody else's to
    /// change.
    ///
    /// As in [`Mapping::vacate`], a load meanwhile finds the zeros or the file, and never no page.
    pub(crate) fn overlay(
        &self,
        offset_bytes: usize,
        file: BorrowedFd<'_>,
        length_bytes: usize,
        access: Access,
    ) -> io::Result<()> {
        let end_bytes = offset_bytes.checked_add(length_bytes);
        assert!(end_bytes.is_some_and(|end| end <= self.length_bytes), "a file inside the mapping");
        // SAFETY: the sum lies inside the mapping, by the assertion.
        let start = unsafe { self.base.as_ptr().byte_add(offset_bytes) };
        // SAFETY: the range is this mapping's own and stays mapped and readable throughout, so `words` keeps
        // its promise: its readers take it for memory that others write. The file's size keeps the pages
        // there.
        let mapped = unsafe {
            let flags = MapFlags::SHARED | MapFlags::FIXED;
            rustix::mm::mmap(start.cast(), length_bytes, access.protection(), flags, file, 0)
        }?;
        assert!(mapped == start.cast(), "a fixed mapping lies where it was asked to");
        Ok(())
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

    /// Gives the memory of its files back and keeps the addresses: from now on they read as zeros, and a
    /// store faults. Nobody stores into it any more.
    ///
    /// The kernel exchanges the pages beneath a reader as a whole, under the lock that page faults wait for.
    /// So a load finds the file's page or a zero page, and never none.
    pub(crate) fn vacate(&self) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let start = self.base.as_ptr().cast();
        // SAFETY: the range is this mapping's own, and stays mapped and readable throughout, so `words` keeps
        // its promise. Its readers take it for memory that other processes write: they read it by atomics or
        // `words::copy_line` alone, and zeros are valid there. The caller has no writer left.
        let mapped = unsafe { rustix::mm::mmap_anonymous(start, self.length_bytes, ProtFlags::READ, flags) }?;
        assert!(mapped == start, "a fixed mapping lies where it was asked to");
        Ok(())
    }

    /// Lets all loads and stores go to `sink` from now on, a file of this process's own that is as long, or
    /// longer, and never gets shorter.
    ///
    /// As in [`Mapping::vacate`], each load and each store finds the files of before or the sink.
    pub(crate) fn divert(&self, sink: BorrowedFd<'_>) -> io::Result<()> {
        self.overlay(0, sink, self.length_bytes, Access::ReadWrite)
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

/// The first line of a mapping that is kept alive, one pointer away.
#[derive(Clone, Debug)]
pub(crate) struct FirstLine {
    first: NonNull<SharedLine>,
    /// For as long as anybody looks.
    _keep: Arc<Mapping>,
}

// SAFETY: it is a shared reference to atomics and an `Arc` of something `Send + Sync`.
unsafe impl Send for FirstLine {}
// SAFETY: as above.
unsafe impl Sync for FirstLine {}

impl FirstLine {
    pub(crate) fn of(mapping: Arc<Mapping>) -> Self {
        let line: &SharedLine = mapping.words().first_chunk().expect("a page has a line");
        Self { first: NonNull::from(line), _keep: mapping }
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &SharedLine {
        // SAFETY: `first` is the first line of the mapping that `self` keeps, which gives out its words as
        // atomics and stays where it is.
        unsafe { self.first.as_ref() }
    }
}
