//! Looking for pairs in what a directory has, while a server uses it.
//!
//! Invariant: what is visited was appended, or was a pair of a snapshot. What is not there, or damaged, is
//! left out: nothing here says that the directory is whole.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::catalogue::piece_index;
use crate::disk::Disk;
use crate::reader::read_records;
use crate::{Catalogue, DurabilityError, Record, RecoveredRecord, read_piece};

/// Hands records of the tables of these keys to `visit`: those of the pieces that the keys belong to, and
/// then those of the log. Files behind the one in which it breaks off are not read.
///
/// # Errors
/// [`DurabilityError`]: a file is damaged or missing, the first one of several. The others were read.
pub fn look_up(
    disk: &dyn Disk,
    catalogue: &Catalogue,
    keys: &BTreeSet<(u32, u64)>,
    mut visit: impl FnMut(RecoveredRecord<'_>) -> ControlFlow<()>,
) -> Result<(), DurabilityError> {
    let tables: BTreeSet<u32> = keys.iter().map(|(table, _)| *table).collect();
    let is_over = Cell::new(false);
    let mut see = |record: Record<'_>| {
        let Record { table, version, key, value, .. } = record;
        if is_over.get() || !tables.contains(&table) {
            return Ok(());
        }
        let value = record.is_pair().then_some(value);
        let record = RecoveredRecord { table, version, key, value };
        is_over.set(visit(record).is_break());
        Ok(())
    };
    let (mut read, mut outcome) = (BTreeSet::new(), Ok(()));
    for (number, key) in keys {
        let pieces = catalogue.tables.get(number).map_or(&[][..], |table| &table.pieces);
        let Some(piece) = pieces.get(piece_index(pieces, *key)) else { continue };
        if read.insert(piece.number) {
            outcome = outcome.and(read_piece(disk, piece, *number, &mut see));
        }
        if is_over.get() {
            return Ok(());
        }
    }
    // What is wrong where the log ends may be what is appended now.
    let log = read_records(disk, catalogue.first_segment, |_, record| see(record));
    if is_over.get() { Ok(()) } else { outcome.and(log.map(drop)) }
}
