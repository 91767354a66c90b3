//! The disk as a trait: one directory of files.
//!
//! Contract, that of POSIX at its weakest:
//! - what was written to a file is there after a crash if [`DiskFile::sync`] returned. Until then each sector
//!   of [`SECTOR_BYTES`] may be old, new, or damaged;
//! - that a file was created, renamed or removed holds after a crash if [`Disk::sync_directory`] returned;
//! - after a sync that failed nobody knows what is there, whatever a later sync says.

mod real;
mod simulated;

use std::io;

pub use real::RealDisk;
pub use simulated::{Fault, SimulatedDisk};

/// Bytes that a crash leaves as they were or as they were to be, never a mixture.
pub const SECTOR_BYTES: usize = 512;

/// A directory of files.
pub trait Disk: Send + Sync {
    /// Where a file of this name stands, for people.
    fn place(&self, name: &str) -> String;

    /// Lets no other process use the directory as long as this disk lives.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another one does.
    fn lock(&self) -> io::Result<()>;

    /// True if the directory, which is locked, was copied since it was asked this last: its files are others
    /// by now. A directory that was moved has the same files.
    ///
    /// # Errors
    /// The system's.
    fn is_copied(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// How many threads shall read files at once; one where the order of reads has to be that of the calls.
    fn readers(&self) -> usize {
        1
    }

    /// The names of all files.
    ///
    /// # Errors
    /// The system's.
    fn list(&self) -> io::Result<Vec<String>>;

    /// When a file was changed last, in milliseconds since 1970; `None` on a disk that keeps no such times.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]; the system's.
    fn changed_ms(&self, _name: &str) -> io::Result<Option<u64>> {
        Ok(None)
    }

    /// Opens a file that exists.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`]; the system's.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a file of so many bytes, all zero, with room for them on the disk; one of that name is replaced.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`]; the system's. A file of that name may be there then, without bytes.
    fn create(&self, name: &str, length_bytes: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Gives a file another name; one that had it is gone.
    ///
    /// # Errors
    /// The system's.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// The system's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes durable which names lead where.
    ///
    /// # Errors
    /// The system's.
    fn sync_directory(&self) -> io::Result<()>;
}

/// An open file.
pub trait DiskFile: Send + Sync {
    /// Its length.
    ///
    /// # Errors
    /// The system's.
    fn length_bytes(&self) -> io::Result<u64>;

    /// Fills `into` with the bytes from `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if there are fewer; the system's.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Writes bytes at `offset`; the file grows if they reach beyond its end.
    ///
    /// # Errors
    /// [`io::ErrorKind::StorageFull`]; the system's.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file off at this length.
    ///
    /// # Errors
    /// The system's.
    fn truncate(&self, length_bytes: u64) -> io::Result<()>;

    /// Makes contents and length durable.
    ///
    /// # Errors
    /// The system's.
    fn sync(&self) -> io::Result<()>;
}

/// All bytes of a file.
pub(crate) fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    read_all_into(file, &mut bytes)?;
    Ok(bytes)
}

/// The same, in the place of what stands in `bytes`.
pub(crate) fn read_all_into(file: &dyn DiskFile, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.resize(file.length_bytes()? as usize, 0);
    file.read_at(0, bytes)
}
