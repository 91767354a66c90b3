//! A directory of data: its catalogue, and what may be removed.
//!
//! Protocol of a change of the catalogue:
//! 1. The new one is written to a file beside the old one, and made durable. A crash here leaves the old one.
//! 2. The file gets the catalogue's name. A crash here leaves the old one or the new one.
//! 3. The name is made durable. From now on a crash leaves the new one.
//!
//! What the new one no longer names is removed after step 3 alone.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;

use crate::catalogue::{Catalogue, CatalogueTable, Membership, SnapshotPiece, piece_index};
use crate::disk::{Disk, read_all};
use crate::error::disk_error;
use crate::segment::{self, HeaderFault, LogPosition};
use crate::spares::SPARE;
use crate::{Cut, DurabilityError, LogEnd, snapshot, unsynced};

pub(crate) const CATALOGUE: &str = "catalogue";
const NEW_CATALOGUE: &str = "catalogue.new";

/// An open directory of data.
pub struct Store {
    disk: Arc<dyn Disk>,
    catalogue: Catalogue,
    is_copied: bool,
    poisoned: Option<String>,
}

impl Store {
    /// Opens the directory of `disk` for this process alone, as the next life of a server there. It has this
    /// epoch.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn open(disk: Arc<dyn Disk>, epoch: u64) -> Result<Self, DurabilityError> {
        Self::lock(&*disk)?;
        let catalogue = Self::read(&*disk)?.unwrap_or_default();
        let is_copied = disk.is_copied().map_err(disk_error("looking at the lock of", disk.place("")))?;
        let mut store = Self { disk, catalogue, is_copied, poisoned: None };
        store.change(|catalogue| {
            catalogue.incarnation += 1;
            catalogue.membership.begin_life(epoch);
            if is_copied {
                catalogue.authors_since = catalogue.incarnation;
            }
            catalogue.first_segment = catalogue.first_segment.max(1);
        })?;
        store.remove_unnamed()?;
        Ok(store)
    }

    /// Lets no other process use the directory of `disk` as long as that lives.
    ///
    /// # Errors
    /// [`DurabilityError::InUse`].
    pub fn lock(disk: &dyn Disk) -> Result<(), DurabilityError> {
        let directory = disk.place("");
        disk.lock().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => DurabilityError::InUse { directory },
            _ => disk_error("locking", directory)(error),
        })
    }

    /// Reads the catalogue of a directory; `None` if there are no data at all. Nothing is changed.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn read(disk: &dyn Disk) -> Result<Option<Catalogue>, DurabilityError> {
        let file = disk.place(CATALOGUE);
        let opened = match disk.open(CATALOGUE) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let names = disk.list().map_err(disk_error("listing", disk.place("")))?;
                let is_data =
                    |name: &String| segment::number_of(name).is_some() || snapshot::number_of(name).is_some();
                if names.iter().any(is_data) {
                    let why = "without it nobody knows which tables the other files belong to";
                    return Err(DurabilityError::Missing { file, why });
                }
                return Ok(None);
            }
            opened => opened.map_err(disk_error("opening", file.clone()))?,
        };
        let bytes = read_all(&*opened).map_err(disk_error("reading", file.clone()))?;
        parse_catalogue(&bytes, file).map(Some)
    }

    /// The catalogue.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// True if this directory was copied since the life before: it lacks what came behind the copy.
    #[must_use]
    pub fn is_copied(&self) -> bool {
        self.is_copied
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Changes the catalogue at one instant.
    ///
    /// # Errors
    /// [`DurabilityError`]: then the old one stands, unless it is not known which. In that case this store
    /// changes nothing any more.
    pub fn change(&mut self, change: impl FnOnce(&mut Catalogue)) -> Result<(), DurabilityError> {
        if let Some(why) = &self.poisoned {
            return Err(DurabilityError::Poisoned { why: why.clone() });
        }
        let mut changed = self.catalogue.clone();
        change(&mut changed);
        write_catalogue(&*self.disk, &changed)?;
        name_catalogue(&*self.disk).inspect_err(|error| self.poisoned = Some(error.to_string()))?;
        self.catalogue = changed;
        Ok(())
    }

    /// The number of a new snapshot.
    ///
    /// # Errors
    /// As [`Store::change`].
    pub fn take_snapshot_number(&mut self) -> Result<u64, DurabilityError> {
        let number = self.catalogue.next_snapshot;
        self.change(|catalogue| catalogue.next_snapshot += 1)?;
        Ok(number)
    }

    /// The pieces of the snapshot with which the recovery of `table` begins; none before the first one.
    #[must_use]
    pub fn pieces_of(&self, table: u32) -> &[SnapshotPiece] {
        self.catalogue.tables.get(&table).map_or(&[], |entry| &entry.pieces)
    }

    /// Lets these complete pieces take the place of `former`, which were neighbours when the first pair of
    /// the new ones was read; of none, if the table had none. Returns whether they do. If the table has
    /// others by now, or is gone, the new ones are removed: a bulk load has ended meanwhile, whose pairs they
    /// may lack.
    ///
    /// # Errors
    /// As [`Store::change`].
    pub fn name_pieces(
        &mut self,
        table: u32,
        former: &[SnapshotPiece],
        pieces: &[SnapshotPiece],
    ) -> Result<bool, DurabilityError> {
        let begin = former.first().map_or(0, |first| piece_index(self.pieces_of(table), first.first_key));
        let replaced = begin..begin + former.len();
        let is_same = match self.pieces_of(table) {
            [] => former.is_empty(),
            own => !former.is_empty() && own.get(replaced.clone()) == Some(former),
        };
        let older = |former: &SnapshotPiece| pieces.iter().any(|piece| piece.position < former.position);
        if !is_same || former.iter().any(older) || !self.catalogue.tables.contains_key(&table) {
            self.remove_pieces(pieces);
            return Ok(false);
        }
        self.change(|catalogue| {
            if let Some(entry) = catalogue.tables.get_mut(&table) {
                entry.pieces.splice(replaced, pieces.iter().copied());
            }
        })?;
        self.remove_pieces(former);
        Ok(true)
    }

    /// Notes that these pieces of tables, if they are named still, have all of their keys that the log says
    /// before `position`: nothing of them was written since their own.
    ///
    /// # Errors
    /// As [`Store::change`].
    pub fn advance_pieces(
        &mut self,
        position: LogPosition,
        untouched: &[(u32, SnapshotPiece)],
    ) -> Result<(), DurabilityError> {
        if untouched.iter().all(|(_, piece)| piece.position >= position) {
            return Ok(());
        }
        self.change(|catalogue| {
            for (table, piece) in untouched {
                let Some(entry) = catalogue.tables.get_mut(table) else { continue };
                let index = piece_index(&entry.pieces, piece.first_key);
                if let Some(own) = entry.pieces.get_mut(index).filter(|own| *own == piece) {
                    own.position = own.position.max(position);
                }
            }
        })
    }

    /// Takes tables, and their snapshots, out of the catalogue, and changes who knows of that.
    ///
    /// # Errors
    /// As [`Store::change`].
    pub fn drop_tables(
        &mut self,
        tables: &[u32],
        note: impl FnOnce(&mut Membership),
    ) -> Result<(), DurabilityError> {
        let pieces: Vec<SnapshotPiece> =
            tables.iter().flat_map(|table| self.pieces_of(*table)).copied().collect();
        self.change(|catalogue| {
            for table in tables {
                catalogue.tables.remove(table);
            }
            note(&mut catalogue.membership);
        })?;
        self.remove_pieces(&pieces);
        Ok(())
    }

    /// Removes the segments that no recovery needs: all of their records are before `end`, and covered by
    /// snapshots. Returns how many.
    ///
    /// # Errors
    /// As [`Store::change`].
    pub fn remove_segments(&mut self, end: LogPosition) -> Result<u64, DurabilityError> {
        let tables = self.catalogue.tables.values();
        let needed = tables.map(CatalogueTable::needs_log_from).fold(end, LogPosition::min);
        #[cfg(injected)]
        let needed = if crate::injected::SEGMENT_REMOVED_EARLY.is_injected() { end } else { needed };
        #[cfg(injected)]
        let needed = self.needed_by_newest_pieces(needed);
        let first = self.catalogue.first_segment;
        if needed.segment <= first {
            return Ok(0);
        }
        self.change(|catalogue| catalogue.first_segment = needed.segment)?;
        for number in first..needed.segment {
            self.remove(&segment::file_name(number))?;
        }
        Ok(needed.segment - first)
    }

    /// What the injected bug takes for the oldest position.
    #[cfg(injected)]
    fn needed_by_newest_pieces(&self, needed: LogPosition) -> LogPosition {
        if !crate::injected::OLD_PIECE_FORGOTTEN.is_injected() {
            return needed;
        }
        let newest = |table: &CatalogueTable| table.pieces.iter().map(|piece| piece.position).max();
        let tables = self.catalogue.tables.values();
        tables.map(|table| newest(table).unwrap_or(table.since)).min().unwrap_or(needed)
    }

    /// Cuts off what does not count at the log's end, so that the log can go on. What counts is durable then,
    /// even if a sync of it failed before ([`crate::unsynced`]).
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn cut(&self, end: &LogEnd) -> Result<(), DurabilityError> {
        let is_unsynced = unsynced::is_noted(&*self.disk)?;
        if let Some(cut) = &end.cut {
            self.cut_segment(cut, is_unsynced).inspect_err(|_| unsynced::note(&*self.disk))?;
        }
        if let Some(name) = &end.unused {
            // Behind that: until it is durable, the segment before is the last one.
            self.remove(name)?;
            self.disk.sync_directory().map_err(disk_error("removing", self.disk.place(name)))?;
        }
        if is_unsynced { unsynced::end_note(&*self.disk) } else { Ok(()) }
    }

    fn cut_segment(&self, cut: &Cut, is_unsynced: bool) -> Result<(), DurabilityError> {
        let place = self.disk.place(&cut.name);
        if is_unsynced {
            return unsynced::write_anew(&*self.disk, &cut.name, cut.offset);
        }
        let file = self.disk.open(&cut.name).map_err(disk_error("opening", place.clone()))?;
        file.truncate(cut.offset).and_then(|()| file.sync()).map_err(disk_error("cutting", place))
    }

    /// Removes the files that nothing needs: those of a life that ended before it could, and its spare.
    fn remove_unnamed(&self) -> Result<(), DurabilityError> {
        let names = self.disk.list().map_err(disk_error("listing", self.disk.place("")))?;
        let needed: BTreeSet<u64> = self.catalogue.pieces().map(|piece| piece.number).collect();
        for name in names {
            let is_old =
                segment::number_of(&name).is_some_and(|number| number < self.catalogue.first_segment);
            let is_unneeded = snapshot::number_of(&name).is_some_and(|number| !needed.contains(&number));
            if is_old || is_unneeded || name == SPARE || name == unsynced::COPY {
                self.remove(&name)?;
            }
        }
        Ok(())
    }

    /// One that is not removed now is at the next start: nothing names it.
    fn remove_pieces(&self, pieces: &[SnapshotPiece]) {
        for piece in pieces {
            let _ = self.remove(&snapshot::file_name(piece.number));
        }
    }

    fn remove(&self, name: &str) -> Result<(), DurabilityError> {
        match self.disk.remove(name) {
            // A removal that was not durable is done again.
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(disk_error("removing", self.disk.place(name))(error))
            }
            _ => Ok(()),
        }
    }
}

/// The catalogue of these bytes, which `file` holds.
pub(crate) fn parse_catalogue(bytes: &[u8], file: String) -> Result<Catalogue, DurabilityError> {
    Catalogue::parse(bytes).map_err(|(at, fault)| match fault {
        HeaderFault::OtherFormat(got) => DurabilityError::OtherFormat { file, got },
        HeaderFault::Fault(fault) => DurabilityError::Damaged { file, offset: at as u64, table: None, fault },
    })
}

/// Writes a catalogue beside the one that counts, and makes it durable.
pub(crate) fn write_catalogue(disk: &dyn Disk, catalogue: &Catalogue) -> Result<(), DurabilityError> {
    let bytes = catalogue.to_bytes();
    let place = disk.place(NEW_CATALOGUE);
    let written = disk.create(NEW_CATALOGUE, 0).and_then(|file| {
        file.write_at(0, &bytes)?;
        file.sync()
    });
    written.map_err(|error| match error.kind() {
        ErrorKind::StorageFull => DurabilityError::Full { file: place, needed_bytes: bytes.len() as u64 },
        _ => disk_error("writing", place)(error),
    })
}

/// Lets the catalogue that was written count. After an error it is not known which one does.
pub(crate) fn name_catalogue(disk: &dyn Disk) -> Result<(), DurabilityError> {
    let named = disk.rename(NEW_CATALOGUE, CATALOGUE).and_then(|()| disk.sync_directory());
    named.map_err(disk_error("renaming", disk.place(NEW_CATALOGUE)))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::disk::RealDisk;

    fn is_copied(path: &Path) -> bool {
        let disk = Arc::new(RealDisk::make(path).expect("a disk"));
        Store::open(disk, 1).expect("a directory").is_copied()
    }

    #[test]
    fn a_copy_of_a_directory_is_noticed_once() {
        let place = tempfile::tempdir().expect("a directory");
        let [own, copy, moved] = ["own", "copy", "moved"].map(|name| place.path().join(name));
        assert!(!is_copied(&own), "a new one");
        fs::create_dir(&copy).expect("a directory");
        for entry in fs::read_dir(&own).expect("files") {
            let entry = entry.expect("a file");
            fs::copy(entry.path(), copy.join(entry.file_name())).expect("its copy");
        }
        assert!(!is_copied(&own));
        assert_eq!([is_copied(&copy), is_copied(&copy)], [true, false], "said at the first start");
        fs::rename(&copy, &moved).expect("another name");
        assert!(!is_copied(&moved), "the same files");
    }
}
