//! What a failed sync leaves to the next life.
//!
//! A system that cannot write what a sync wants drops it, and says so once. Programs see it all the same, as
//! long as the machine runs, and every later sync says that all is well. So the next life would take frames
//! of the log for durable that the next crash of the machine loses.
//!
//! Protocol:
//! 1. Who meets a failure of the log [notes](note) that by a file. It need not be durable: after a crash of
//!    the machine programs see what the disk has, and nothing else.
//! 2. The next life reads the log. It writes all that counts of the last segment to another file, makes that
//!    durable, and gives it the segment's name ([`write_anew`]). Segments before the last one are durable:
//!    that was so before the last one began.
//! 3. It removes the note. A failure or a crash before leaves the same to do.

use std::io::{self, ErrorKind};

use crate::DurabilityError;
use crate::disk::Disk;
use crate::error::disk_error;

/// The file that says that a sync failed.
const NOTE: &str = "unsynced";
/// The new file of a segment, before it has the segment's name.
pub(crate) const COPY: &str = "log.new";
/// Bytes that are copied at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// Notes that a sync failed. Nothing is left to do if that fails, too.
pub(crate) fn note(disk: &dyn Disk) {
    let _ = disk.create(NOTE, 0);
}

/// Whether that was noted.
pub(crate) fn is_noted(disk: &dyn Disk) -> Result<bool, DurabilityError> {
    #[cfg(injected)]
    if crate::injected::UNSYNCED_TRUSTED.is_injected() {
        return Ok(false);
    }
    match disk.open(NOTE) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(disk_error("opening", disk.place(NOTE))(error)),
    }
}

/// All is durable that counts.
pub(crate) fn end_note(disk: &dyn Disk) -> Result<(), DurabilityError> {
    disk.remove(NOTE).and_then(|()| disk.sync_directory()).map_err(disk_error("removing", disk.place(NOTE)))
}

/// Makes durable so many bytes of a file, and cuts off the others, whatever a sync of it would say.
pub(crate) fn write_anew(disk: &dyn Disk, name: &str, length_bytes: u64) -> Result<(), DurabilityError> {
    copy(disk, name, length_bytes).map_err(|error| match error.kind() {
        ErrorKind::StorageFull => {
            DurabilityError::Full { file: disk.place(COPY), needed_bytes: length_bytes }
        }
        _ => disk_error("writing anew", disk.place(name))(error),
    })
}

fn copy(disk: &dyn Disk, name: &str, length_bytes: u64) -> io::Result<()> {
    let (from, into) = (disk.open(name)?, disk.create(COPY, length_bytes)?);
    let mut chunk = vec![0; CHUNK_BYTES.min(length_bytes) as usize];
    let mut at = 0;
    while at < length_bytes {
        let chunk = &mut chunk[..CHUNK_BYTES.min(length_bytes - at) as usize];
        from.read_at(at, chunk)?;
        into.write_at(at, chunk)?;
        at += chunk.len() as u64;
    }
    into.sync()?;
    disk.rename(COPY, name)?;
    disk.sync_directory()
}
