//! A restore: a backup becomes a directory of data.
//!
//! Protocol:
//! 1. The directory must be empty. It is locked.
//! 2. The manifest is read, and the files that it names are copied and made durable.
//! 3. All of them are read as a recovery reads them. The log must end where the manifest says.
//! 4. The catalogue is written. A crash before leaves files without one, which every server refuses.

use std::io::ErrorKind;
use std::sync::Arc;

use crate::archive::Archive;
use crate::backup::{Backup, MANIFEST};
use crate::disk::Disk;
use crate::error::disk_error;
use crate::frame::FrameFault;
use crate::segment::{self, HeaderFault};
use crate::store::{name_catalogue, write_catalogue};
use crate::{DurabilityError, Store, read_log, read_piece, snapshot};

/// Numbers of tables that are left out: as many may have been given behind a backup.
const TABLES_LOST_MAX: u32 = 1 << 16;

/// Makes a directory of data on `disk` of the backup in `archive`, and tells `progress` of the bytes copied.
///
/// # Errors
/// [`DurabilityError`]; then the directory is none that a server would use.
pub fn restore(
    archive: &dyn Archive,
    disk: &Arc<dyn Disk>,
    progress: &mut dyn FnMut(u64),
) -> Result<Backup, DurabilityError> {
    Store::lock(&**disk)?;
    let found = disk.list().map_err(disk_error("listing", disk.place("")))?;
    if let Some(found) = found.into_iter().next() {
        let remedy = "a backup is restored into an empty directory, or one that is not there yet";
        return Err(DurabilityError::NotEmpty { place: disk.place(""), found, remedy });
    }
    let mut backup = read_manifest(archive)?;
    let catalogue = &mut backup.catalogue;
    let snapshots = catalogue.pieces().map(|piece| snapshot::file_name(piece.number));
    let segments = (catalogue.first_segment..=backup.end.segment).map(segment::file_name);
    for name in snapshots.chain(segments) {
        backup.bytes += copy(archive, &**disk, &name, progress)?;
    }
    disk.sync_directory().map_err(disk_error("naming", disk.place("")))?;
    check(&**disk, &backup)?;
    // Clients may have seen versions of what was written behind the backup.
    backup.catalogue.acknowledges_early = true;
    // The directory that was backed up may have executed calls that are repeated here.
    backup.catalogue.authors_since = backup.catalogue.incarnation + 1;
    // The other nodes of a pool may have tables that were made behind the backup.
    backup.catalogue.next_table = backup.catalogue.next_table.saturating_add(TABLES_LOST_MAX);
    write_catalogue(&**disk, &backup.catalogue)?;
    name_catalogue(&**disk)?;
    Ok(backup)
}

fn read_manifest(archive: &dyn Archive) -> Result<Backup, DurabilityError> {
    let (mut bytes, file) = (Vec::new(), archive.place(MANIFEST));
    let read = archive.get(MANIFEST, &mut |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    });
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let why = "it is the last file of a backup, and without it there is none";
            return Err(DurabilityError::Missing { file, why });
        }
        read => read.map_err(disk_error("reading", file.clone()))?,
    }
    Backup::parse(&bytes).map_err(|(at, fault)| match fault {
        HeaderFault::OtherFormat(got) => DurabilityError::OtherFormat { file, got },
        HeaderFault::Fault(fault) => DurabilityError::Damaged { file, offset: at as u64, table: None, fault },
    })
}

/// Copies one file, makes it durable, and returns its bytes.
fn copy(
    archive: &dyn Archive,
    disk: &dyn Disk,
    name: &str,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, DurabilityError> {
    let place = disk.place(name);
    let file = disk.create(name, 0).map_err(disk_error("making", place.clone()))?;
    let mut end = 0;
    let copied = archive.get(name, &mut |piece| {
        file.write_at(end, piece)?;
        end += piece.len() as u64;
        progress(piece.len() as u64);
        Ok(())
    });
    match copied {
        Ok(()) => file.sync().map_err(disk_error("syncing", place))?,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let why = "the backup names it";
            return Err(DurabilityError::Missing { file: archive.place(name), why });
        }
        Err(error) if error.kind() == ErrorKind::StorageFull => {
            return Err(DurabilityError::Full { file: place, needed_bytes: end });
        }
        Err(error) => return Err(disk_error("copying", place)(error)),
    }
    Ok(end)
}

/// Reads all that recovery will read.
fn check(disk: &dyn Disk, backup: &Backup) -> Result<(), DurabilityError> {
    for (number, table) in &backup.catalogue.tables {
        for piece in &table.pieces {
            read_piece(disk, piece, *number, |_| Ok(()))?;
        }
    }
    let end = read_log(disk, backup.catalogue.first_segment, |_, _| Ok(()))?;
    let (is, was) = (&end, &backup.end);
    let fields = [
        ("last segment of the log", was.segment, is.segment),
        ("bytes of the log's last segment", was.offset, is.offset),
        ("last frame of the log", was.number, is.number),
        ("checksum of the log's last frame", was.checksum.into(), is.checksum.into()),
    ];
    match fields.into_iter().find(|(_, was, is)| was != is) {
        None => Ok(()),
        Some((what, expected, got)) => Err(DurabilityError::Damaged {
            file: disk.place(&segment::file_name(end.segment)),
            offset: end.offset,
            table: None,
            fault: FrameFault::Field { what, expected, got },
        }),
    }
}
