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

fn access_of(rights: RegionRights) -> Access {
    match rights {
        RegionRights::ReadOnly => Access::Read,
        RegionRights::ReadWrite => Access::ReadWrite,
    }
}

/// A new zeroed file, its own writable mapping, and then the seals.
pub(crate) fn create(
    name: &str,
    length_bytes: usize,
    rights: RegionRights,
    alignment_bytes: usize,
) -> io::Result<(OwnedFd, Mapping)> {
    let mapping = Mapping::zeros(length_bytes, alignment_bytes)?;
    let file = create_at(name, (&mapping, 0), length_bytes, rights)?;
    Ok((file, mapping))
}

/// A new zeroed file, mapped writably into `mapping` at so many bytes, and then the seals.
pub(crate) fn create_at(
    name: &str,
    (mapping, offset_bytes): (&Mapping, usize),
    length_bytes: usize,
    rights: RegionRights,
) -> io::Result<OwnedFd> {
    let file = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&file, length_bytes as u64)?;
    mapping.overlay(offset_bytes, file.as_fd(), length_bytes, Access::ReadWrite)?;
    rustix::fs::fcntl_add_seals(&file, seals_of(rights))?;
    Ok(file)
}

/// The mapping of a file that the server sent, if it is what the server says it is.
pub(crate) fn open(
    file: BorrowedFd<'_>,
    length_bytes: usize,
    rights: RegionRights,
    alignment_bytes: usize,
) -> io::Result<Mapping> {
    let mapping = Mapping::zeros(length_bytes, alignment_bytes)?;
    open_at(file, (&mapping, 0), length_bytes, rights)?;
    Ok(mapping)
}

/// Maps a file that the server sent into `mapping` at so many bytes, if it is what the server says it is.
pub(crate) fn open_at(
    file: BorrowedFd<'_>,
    (mapping, offset_bytes): (&Mapping, usize),
    length_bytes: usize,
    rights: RegionRights,
) -> io::Result<()> {
    let found_bytes = rustix::fs::fstat(file)?.st_size;
    if usize::try_from(found_bytes) != Ok(length_bytes) {
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
    mapping.overlay(offset_bytes, file, length_bytes, access_of(rights))
}
