//! A backup: what a directory of data holds, copied while a server may use it.
//!
//! Invariant: a backup is what the directory said at one instant between begin and end of the copying. All
//! that was acknowledged before the begin is in it.
//!
//! Protocol:
//! 1. The catalogue is read.
//! 2. The snapshots that it names are copied. A file that it names never changes.
//! 3. The log is copied, from the oldest segment that the catalogue names to its last frame.
//! 4. The catalogue is read again. Another one may name pairs of a bulk load that are in no file copied,
//!    while the log goes on with them. Then all begins anew, without what need not be copied twice.
//! 5. The manifest is kept: where the log ends, and the catalogue. Files without it are no backup.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;

use crate::archive::{Archive, pieces};
use crate::catalogue::Catalogue;
use crate::disk::Disk;
use crate::error::disk_error;
use crate::frame::FrameFault;
use crate::reader::end_of_open_log;
use crate::segment::{self, HeaderFault};
use crate::store::CATALOGUE;
use crate::{DATA_FORMAT_VERSION, DurabilityError, LogEnd, Store, is_known_format, snapshot};

/// The name of the manifest.
pub(crate) const MANIFEST: &str = "backup";
/// The first word of a manifest.
const MANIFEST_MAGIC: u64 = u64::from_le_bytes(*b"FARSBAK\n");
/// Bytes before the catalogue: magic, {version 32, checksum 32 of all behind}, the log's last segment, its
/// bytes, its last frame, {that frame's checksum 32, zero 32}.
const MANIFEST_HEADER_BYTES: usize = 48;
/// How often a backup begins anew.
const TRIES: usize = 16;

/// What a backup holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backup {
    /// The tables, and the snapshots that are files of it.
    pub catalogue: Catalogue,
    /// Where its log ends.
    pub end: LogEnd,
    /// Bytes of all files but the manifest.
    pub bytes: u64,
}

impl Backup {
    /// Segments of its log.
    #[must_use]
    pub fn segments(&self) -> u64 {
        (self.end.segment + 1).saturating_sub(self.catalogue.first_segment)
    }

    /// The bytes of its manifest.
    fn manifest(&self) -> Vec<u8> {
        let words = [self.end.segment, self.end.offset, self.end.number, self.end.checksum.into()];
        let words = [MANIFEST_MAGIC, 0].into_iter().chain(words).flat_map(u64::to_le_bytes);
        let mut bytes: Vec<u8> = words.chain(self.catalogue.to_bytes()).collect();
        let checksum = crc32c::crc32c(&bytes[16..]);
        let second = u64::from(DATA_FORMAT_VERSION) | u64::from(checksum) << 32;
        bytes[8..16].copy_from_slice(&second.to_le_bytes());
        bytes
    }

    /// The backup of these bytes of a manifest.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, (usize, HeaderFault)> {
        let cut =
            FrameFault::Cut { needed_bytes: MANIFEST_HEADER_BYTES as u64, got_bytes: bytes.len() as u64 };
        let header = bytes.first_chunk::<MANIFEST_HEADER_BYTES>();
        let header = header.ok_or((0, HeaderFault::Fault(cut)))?.as_chunks::<8>().0;
        let word = |index: usize| u64::from_le_bytes(header[index]);
        let field = |what, expected, got| HeaderFault::Fault(FrameFault::Field { what, expected, got });
        if word(0) != MANIFEST_MAGIC {
            return Err((0, field("magic", MANIFEST_MAGIC, word(0))));
        }
        let (version, got) = (word(1) as u32, (word(1) >> 32) as u32);
        if !is_known_format(version) {
            return Err((8, HeaderFault::OtherFormat(version)));
        }
        let expected = crc32c::crc32c(&bytes[16..]);
        if expected != got {
            return Err((8, HeaderFault::Fault(FrameFault::Checksum { expected, got })));
        }
        let checksum = u32::try_from(word(5)).map_err(|_| {
            (40, field("checksum of the log's last frame, at most", u32::MAX.into(), word(5)))
        })?;
        let catalogue = Catalogue::parse(&bytes[MANIFEST_HEADER_BYTES..])
            .map_err(|(at, fault)| (MANIFEST_HEADER_BYTES + at, fault))?;
        let end =
            LogEnd { segment: word(2), offset: word(3), number: word(4), checksum, ..LogEnd::default() };
        Ok(Self { catalogue, end, bytes: 0 })
    }
}

/// Copies what the directory of `disk` holds to `archive`, and tells `progress` of the bytes copied.
///
/// # Errors
/// [`DurabilityError`]; then the archive holds files without a manifest.
pub fn back_up(
    disk: &dyn Disk,
    archive: &dyn Archive,
    progress: &mut dyn FnMut(u64),
) -> Result<Backup, DurabilityError> {
    let found = archive.list().map_err(disk_error("listing", archive.place("")))?;
    if let Some(found) = found.into_iter().next() {
        let remedy = "a backup gets a place of its own, so that the one before stays whole";
        return Err(DurabilityError::NotEmpty { place: archive.place(""), found, remedy });
    }
    let mut copying = Copying { disk, archive, progress, copied: BTreeMap::new() };
    let mut has_failed = false;
    for _ in 0..TRIES {
        let catalogue = read_catalogue(disk)?;
        let copied = copying.copy(&catalogue);
        // What is missing may be what the server has removed.
        let is_old = names_others(&read_catalogue(disk)?, &catalogue);
        #[cfg(injected)]
        let is_old = is_old && !(copied.is_ok() && crate::injected::CATALOGUE_READ_ONCE.is_injected());
        if is_old {
            has_failed = false;
            continue;
        }
        let end = match copied {
            // A server that begins cuts the log's end, under its readers.
            Err(_) if !has_failed => {
                has_failed = true;
                continue;
            }
            copied => copied?,
        };
        copying.remove_others(&catalogue)?;
        let backup = Backup { catalogue, end, bytes: copying.copied.values().sum() };
        let keep = archive.put(MANIFEST, &mut std::iter::once(Ok(backup.manifest())));
        keep.map_err(disk_error("writing", archive.place(MANIFEST)))?;
        return Ok(backup);
    }
    Err(DurabilityError::Changing { place: disk.place(""), times: TRIES })
}

fn read_catalogue(disk: &dyn Disk) -> Result<Catalogue, DurabilityError> {
    let why = "there are no data of a server here";
    let missing = || DurabilityError::Missing { file: disk.place(CATALOGUE), why };
    Store::read(disk)?.ok_or_else(missing)
}

/// True if a catalogue says anything else, but for the number of the next snapshot: a file that nothing names
/// yet is no matter. A table that was made and dropped meanwhile shows by the number of the next table.
fn names_others(catalogue: &Catalogue, before: &Catalogue) -> bool {
    let next_snapshot = before.next_snapshot;
    Catalogue { next_snapshot, ..catalogue.clone() } != *before
}

/// A backup that is made.
struct Copying<'a> {
    disk: &'a dyn Disk,
    archive: &'a dyn Archive,
    progress: &'a mut dyn FnMut(u64),
    /// The files that are in the archive, with their bytes.
    copied: BTreeMap<String, u64>,
}

impl Copying<'_> {
    /// Copies what this catalogue names, and returns where the log ended.
    fn copy(&mut self, catalogue: &Catalogue) -> Result<LogEnd, DurabilityError> {
        for piece in catalogue.pieces() {
            self.copy_once(&snapshot::file_name(piece.number), None)?;
        }
        let end = end_of_open_log(self.disk, catalogue.first_segment)?;
        catalogue.check_end(self.disk, &end)?;
        for number in catalogue.first_segment..=end.segment {
            let is_last = number == end.segment;
            self.copy_once(&segment::file_name(number), is_last.then_some(end.offset))?;
        }
        Ok(end)
    }

    /// Copies a file, or its first bytes, unless as much of it is copied.
    fn copy_once(&mut self, name: &str, length_bytes: Option<u64>) -> Result<(), DurabilityError> {
        let place = self.disk.place(name);
        let opened = self.disk.open(name).and_then(|file| Ok((file.length_bytes()?, file)));
        let (whole_bytes, file) = opened.map_err(disk_error("opening", place.clone()))?;
        let length_bytes = length_bytes.unwrap_or(whole_bytes);
        if self.copied.get(name) == Some(&length_bytes) {
            return Ok(());
        }
        let mut content = pieces(&*file, length_bytes).inspect(|piece| {
            (self.progress)(piece.as_ref().map_or(0, |bytes| bytes.len() as u64));
        });
        let put = self.archive.put(name, &mut content);
        put.map_err(disk_error("copying", place))?;
        self.copied.insert(name.to_owned(), length_bytes);
        Ok(())
    }

    /// Removes what was copied for a catalogue that did not last.
    fn remove_others(&mut self, catalogue: &Catalogue) -> Result<(), DurabilityError> {
        let pieces: BTreeSet<u64> = catalogue.pieces().map(|piece| piece.number).collect();
        let is_named = |name: &str| {
            segment::number_of(name).is_some_and(|number| number >= catalogue.first_segment)
                || snapshot::number_of(name).is_some_and(|number| pieces.contains(&number))
        };
        let others: Vec<String> = self.copied.keys().filter(|name| !is_named(name)).cloned().collect();
        for name in others {
            match self.archive.remove(&name) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(disk_error("removing", self.archive.place(&name))(error));
                }
                _ => _ = self.copied.remove(&name),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_manifest_comes_back_and_no_other(
            words in any::<[u64; 3]>(), checksum: u32, change: (usize, u8),
        ) {
            let [segment, offset, number] = words;
            let end = LogEnd { segment, number, checksum, offset, ..LogEnd::default() };
            let backup = Backup { catalogue: Catalogue::default(), end, bytes: 0 };
            let mut bytes = backup.manifest();
            prop_assert_eq!(Backup::parse(&bytes), Ok(backup));
            let at = change.0 % bytes.len();
            bytes[at] ^= change.1.max(1);
            prop_assert!(Backup::parse(&bytes).is_err(), "byte {} changed", at);
            prop_assert!(Backup::parse(&bytes[..at]).is_err(), "cut at {}", at);
        }
    }
}
