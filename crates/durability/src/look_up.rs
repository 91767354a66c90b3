//! Looking for pairs in what a directory has, while a server uses it.
//!
//! Invariant: what is visited was appended, or was a pair of a snapshot. What is not there, or damaged, is
//! left out: nothing here says that the directory is whole.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

use crate::disk::Disk;
use crate::reader::read_segments;
use crate::{Catalogue, DurabilityError, Record, RecoveredRecord, read_snapshot};

/// Hands records of these tables to `visit`: those of their snapshots, and then those of the log. Files
/// behind the one in which it breaks off are not read.
///
/// # Errors
/// [`DurabilityError`]: a file is damaged or missing. Others were read before it.
pub fn look_up(
    disk: &dyn Disk,
    catalogue: &Catalogue,
    tables: &BTreeSet<u32>,
    mut visit: impl FnMut(RecoveredRecord<'_>) -> ControlFlow<()>,
) -> Result<(), DurabilityError> {
    let is_over = Cell::new(false);
    let mut see = |record: Record<'_>| {
        let Record { table, block, .. } = record;
        if is_over.get() || !tables.contains(&table) {
            return Ok(());
        }
        let value = record.is_pair().then(|| block.value());
        let record = RecoveredRecord { table, version: block.version(), key: block.key(), value };
        is_over.set(visit(record).is_break());
        Ok(())
    };
    for number in tables {
        let Some(snapshot) = catalogue.tables.get(number).and_then(|table| table.snapshot) else { continue };
        read_snapshot(disk, &snapshot, *number, &mut see)?;
        if is_over.get() {
            return Ok(());
        }
    }
    // What is wrong where the log ends may be what is appended now.
    read_segments(disk, catalogue.first_segment, |_, record| see(record)).map(drop)
}
