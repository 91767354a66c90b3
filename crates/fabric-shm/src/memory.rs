//! Memory files: made by the server, sealed, given to clients as descriptors, checked by them before use.
//!
//! Invariant: no file leaves the server before its seals stand, and no client maps one whose size or seals
//! are not what was announced. A sealed size is what keeps either side safe from SIGBUS.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use farsight_fabric::RegionRights;
use rustix::fs::{MemfdFlags, SealFlags};

use crate::mapping::{Access, Mapping};

/// Seals of a file that clients may write: nobody changes its size.
pub(crate) const WRITABLE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);
/// Seals of a file that clients only read: besides, only mappings made before can write.
pub(crate) const READ_ONLY_SEALS: SealFlags = WRITABLE_SEALS.union(SealFlags::FUTURE_WRITE);

/// The seals that stand for `rights`.
pub(crate) fn seals_of(rights: RegionRights) -> SealFlags {
    match rights {
        RegionRights::ReadOnly => READ_ONLY_SEALS,
        RegionRights::ReadWrite => WRITABLE_SEALS,
    }
}

/// A new zeroed file, its own writable mapping, and then the seals.
pub(crate) fn create(
    name: &str,
    length_bytes: usize,
    rights: RegionRights,
    alignment_bytes: usize,
) -> io::Result<(OwnedFd, Mapping)> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, length_bytes as u64)?;
    let mapping = Mapping::shared(file.as_fd(), length_bytes, Access::ReadWrite, alignment_bytes)?;
    rustix::fs::fcntl_add_seals(&file, seals_of(rights))?;
    Ok((file, mapping))
}

/// Maps a file that the server sent, if it is what the server says it is.
pub(crate) fn open(
    file: BorrowedFd<'_>,
    length_bytes: u64,
    rights: RegionRights,
    alignment_bytes: usize,
) -> io::Result<Mapping> {
    let found_bytes = rustix::fs::fstat(file)?.st_size;
    if u64::try_from(found_bytes) != Ok(length_bytes) {
        return Err(io::Error::other(format!(
            "the memory file has {found_bytes} B where {length_bytes} were announced"
        )));
    }
    let expected = seals_of(rights);
    let found = rustix::fs::fcntl_get_seals(file)?;
    if !found.contains(expected) {
        return Err(io::Error::other(format!(
            "the memory file has seals {found:?} where {expected:?} are due"
        )));
    }
    let length_bytes = usize::try_from(length_bytes).map_err(io::Error::other)?;
    let access = match rights {
        RegionRights::ReadOnly => Access::Read,
        RegionRights::ReadWrite => Access::ReadWrite,
    };
    Mapping::shared(file, length_bytes, access, alignment_bytes)
}
