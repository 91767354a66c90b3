//! The memory files of which a region consists so far.
//!
//! Invariant: the files lie one behind the other from the region's first byte on, without a gap. Each is
//! sealed whole, its size with it, so a client can touch what is there and nothing else. Behind the last file
//! the region's addresses read as zeros, and no load there takes memory.
//!
//! A client that loads from a page of a memory file makes the system give that page for as long as the file
//! is. It does so whether the server ever wrote the page or not. So the server exports files as the region
//! grows: at most a quarter more than it needs, and one unit.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::sync::{AtomicU64, Ordering};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::mapping::HUGE_PAGE_BYTES;

/// Files of a region at most: more than a region of the whole address space comes to, in steps of a quarter.
pub(crate) const EXTENTS_MAX: usize = 256;

/// One file, and where in the region it begins.
#[derive(Debug)]
pub(crate) struct Extent {
    file: OwnedFd,
    begin_bytes: u64,
    length_bytes: u64,
}

impl Extent {
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    /// Behind its last byte.
    fn end_bytes(&self) -> u64 {
        self.begin_bytes + self.length_bytes
    }
}

/// All files of a region.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    files: Mutex<Vec<Arc<Extent>>>,
    grown_bytes: AtomicU64,
}

impl Extents {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Extent>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes from the region's start that lie on files.
    pub(crate) fn grown_bytes(&self) -> u64 {
        // Acquire: who sees the number finds the files mapped. Partner: the Release in `grow`.
        self.grown_bytes.load(Ordering::Acquire)
    }

    /// Grows to at least `wanted_bytes`, if it has not yet. `map` is given where the next file begins. It
    /// maps one there and returns it, with its length.
    pub(crate) fn grow(
        &self,
        wanted_bytes: u64,
        map: impl FnOnce(u64) -> io::Result<(OwnedFd, u64)>,
    ) -> io::Result<()> {
        if wanted_bytes <= self.grown_bytes() {
            return Ok(());
        }
        let mut files = self.lock();
        // Relaxed: it changes under the lock alone.
        let begin_bytes = self.grown_bytes.load(Ordering::Relaxed);
        if wanted_bytes <= begin_bytes {
            return Ok(());
        }
        let (file, length_bytes) = map(begin_bytes)?;
        let extent = Extent { file, begin_bytes, length_bytes };
        // Release: the file is mapped. Partner: the Acquire in `grown_bytes`.
        self.grown_bytes.store(extent.end_bytes(), Ordering::Release);
        files.push(Arc::new(extent));
        Ok(())
    }

    /// The file that begins there; `None` if there is none.
    pub(crate) fn beginning_at(&self, begin_bytes: u64) -> Option<Arc<Extent>> {
        let files = self.lock();
        let place = files.binary_search_by_key(&begin_bytes, |extent| extent.begin_bytes);
        place.ok().map(|place| Arc::clone(&files[place]))
    }

    /// The first byte of a huge page's piece of the region that has a page, if any has: collapsing a hole
    /// would only spend memory.
    pub(crate) fn first_data(&self, piece: usize) -> Option<usize> {
        let start_bytes = (piece * HUGE_PAGE_BYTES) as u64;
        let files = self.lock();
        let place = files.partition_point(|extent| extent.end_bytes() <= start_bytes);
        let extent = Arc::clone(files.get(place)?);
        drop(files);
        let found = match rustix::fs::seek(extent.file(), SeekFrom::Data(start_bytes - extent.begin_bytes)) {
            Ok(found) => extent.begin_bytes + found,
            // No data from here on.
            Err(Errno::NXIO) => return None,
            // A kernel without the call: try the piece all the same.
            Err(_) => start_bytes,
        };
        (found < start_bytes + HUGE_PAGE_BYTES as u64).then_some(found as usize)
    }
}
