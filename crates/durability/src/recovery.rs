//! Recovery: what a directory of data says of its tables.
//!
//! Protocol:
//! 1. For each table of the catalogue: the pairs of its snapshot, if it has one.
//! 2. The log, from the oldest segment that some table needs: each record behind the position of its table's
//!    snapshot, in the order in which they were appended. Of two records of a key the one of the greater
//!    version counts, so pairs that the snapshot has already are no matter.
//! 3. What does not count at the log's end is cut. A crash before that leaves the same to do.

use std::collections::BTreeMap;

use crate::{CatalogueTable, DurabilityError, LogEnd, Record, Store, read_log, read_snapshot};

/// What is told of the tables.
pub trait Recovering {
    /// There is this table. What follows may name it, or another that was announced.
    ///
    /// # Errors
    /// Ends the recovery.
    fn table(&mut self, number: u32, table: &CatalogueTable) -> Result<(), DurabilityError>;

    /// A pair of the snapshot of the table announced last, in the order of the keys.
    ///
    /// # Errors
    /// Ends the recovery.
    fn pair(&mut self, record: Record<'_>) -> Result<(), DurabilityError>;

    /// All pairs of the snapshot of the table announced last were told.
    ///
    /// # Errors
    /// Ends the recovery.
    fn end_of_pairs(&mut self) -> Result<(), DurabilityError>;

    /// A record of the log.
    ///
    /// # Errors
    /// Ends the recovery.
    fn record(&mut self, record: Record<'_>) -> Result<(), DurabilityError>;
}

/// What else was found.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Where the log ends.
    pub end: LogEnd,
    /// Records of the log that count.
    pub records: u64,
    /// The greatest version that each table may have given: no smaller one may be given again.
    pub version_max: BTreeMap<u32, u64>,
}

/// Tells `into` all that the directory says.
///
/// # Errors
/// [`DurabilityError`]; what `into` refuses.
pub fn recover(store: &Store, into: &mut dyn Recovering) -> Result<Recovered, DurabilityError> {
    let catalogue = store.catalogue();
    let mut version_max = BTreeMap::new();
    for (number, table) in &catalogue.tables {
        into.table(*number, table)?;
        if let Some(snapshot) = &table.snapshot {
            let mut greatest = snapshot.version_max;
            read_snapshot(&**store.disk(), snapshot, *number, |record| {
                greatest = greatest.max(record.block.version());
                into.pair(record)
            })?;
            version_max.insert(*number, greatest);
        }
        into.end_of_pairs()?;
    }
    let mut records = 0;
    let end = read_log(&**store.disk(), catalogue.first_segment, |position, record| {
        let Some(table) = catalogue.tables.get(&record.table) else { return Ok(()) };
        if position < table.needs_log_from() {
            return Ok(());
        }
        records += 1;
        #[cfg(injected)]
        if crate::injected::VERSION_REUSED.is_injected() {
            return into.record(record);
        }
        let greatest = version_max.entry(record.table).or_insert(0);
        *greatest = record.block.version().max(*greatest);
        into.record(record)
    })?;
    store.cut(&end)?;
    Ok(Recovered { end, records, version_max })
}
