//! Recovery: what a directory of data says of its tables.
//!
//! Protocol:
//! 1. For each table of the catalogue: the pairs of its snapshot's pieces, if it has one.
//! 2. The log, from the oldest segment that some piece needs: each record behind the position of its key's
//!    piece, in the order in which they were appended. Of two records of a key the one of the greater
//!    version counts, so pairs that the snapshot has already are no matter.
//! 3. What does not count at the log's end is cut. A crash before that leaves the same to do.
//!
//! One thread reads and checks, another takes in what was read, a few batches behind. The tables see the
//! same in the same order as they would from one.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::error::disk_error;
use crate::{CatalogueTable, DurabilityError, LogEnd, Record, RecordBatch, Store, read_log, read_piece};

/// Batches that were read and not taken in yet, at most.
const WAITING_MAX: usize = 8;

/// What is told of the tables.
pub trait Recovering: Send {
    /// There is this table. What follows may name it, or another that was announced.
    ///
    /// # Errors
    /// Ends the recovery.
    fn table(&mut self, number: u32, table: &CatalogueTable) -> Result<(), DurabilityError>;

    /// Pairs of the snapshot of the table announced last, in the order of the keys.
    ///
    /// # Errors
    /// Ends the recovery.
    fn pairs(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError>;

    /// All pairs of the snapshot of the table announced last were told.
    ///
    /// # Errors
    /// Ends the recovery.
    fn end_of_pairs(&mut self) -> Result<(), DurabilityError>;

    /// Records of the log.
    ///
    /// # Errors
    /// Ends the recovery.
    fn records(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError>;
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

/// One thing that is told.
enum Told {
    Table(u32, CatalogueTable),
    Pairs(RecordBatch),
    EndOfPairs,
    Records(RecordBatch),
}

/// Tells `into` all that the directory says, from a thread of its own.
///
/// # Errors
/// [`DurabilityError`]; what `into` refuses.
pub fn recover(store: &Store, into: &mut dyn Recovering) -> Result<Recovered, DurabilityError> {
    let (sender, receiver) = sync_channel(WAITING_MAX);
    let recovered = thread::scope(|scope| {
        let thread = thread::Builder::new().name("recovery".into());
        let taking = thread.spawn_scoped(scope, move || take_in(&receiver, into));
        let taking = taking.map_err(disk_error("starting a thread for", store.disk().place("")))?;
        let read = Reading { store, sender, batch: RecordBatch::default() }.read();
        let taken = taking.join().unwrap_or_else(|panic| resume_unwind(panic));
        taken.and(read)
    })?;
    store.cut(&recovered.end)?;
    Ok(recovered)
}

/// Takes in what is read, until the end or until something is refused.
fn take_in(told: &Receiver<Told>, into: &mut dyn Recovering) -> Result<(), DurabilityError> {
    told.iter().try_for_each(|told| match told {
        Told::Table(number, table) => into.table(number, &table),
        Told::Pairs(batch) => into.pairs(&batch),
        Told::EndOfPairs => into.end_of_pairs(),
        Told::Records(batch) => into.records(&batch),
    })
}

/// A directory that is read.
struct Reading<'s> {
    store: &'s Store,
    sender: SyncSender<Told>,
    /// What was read last, and not told.
    batch: RecordBatch,
}

impl Reading<'_> {
    fn read(mut self) -> Result<Recovered, DurabilityError> {
        let catalogue = self.store.catalogue();
        let mut version_max = BTreeMap::new();
        for (number, table) in &catalogue.tables {
            self.tell(Told::Table(*number, table.clone()))?;
            for piece in &table.pieces {
                let mut greatest = piece.version_max;
                read_piece(&**self.store.disk(), piece, *number, |record| {
                    greatest = greatest.max(record.block.version());
                    self.push(record, Told::Pairs)
                })?;
                let known = version_max.entry(*number).or_insert(0);
                *known = greatest.max(*known);
            }
            self.flush(Told::Pairs)?;
            self.tell(Told::EndOfPairs)?;
        }
        let mut records = 0;
        let end = read_log(&**self.store.disk(), catalogue.first_segment, |position, record| {
            let Some(table) = catalogue.tables.get(&record.table) else { return Ok(()) };
            if !table.needs(position, record.block.key()) {
                return Ok(());
            }
            records += 1;
            #[cfg(injected)]
            if crate::injected::VERSION_REUSED.is_injected() {
                return self.push(record, Told::Records);
            }
            let greatest = version_max.entry(record.table).or_insert(0);
            *greatest = record.block.version().max(*greatest);
            self.push(record, Told::Records)
        })?;
        self.flush(Told::Records)?;
        Ok(Recovered { end, records, version_max })
    }

    fn push(
        &mut self,
        record: Record<'_>,
        told: impl FnOnce(RecordBatch) -> Told,
    ) -> Result<(), DurabilityError> {
        self.batch.push(record);
        if self.batch.is_full() { self.flush(told) } else { Ok(()) }
    }

    fn flush(&mut self, told: impl FnOnce(RecordBatch) -> Told) -> Result<(), DurabilityError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let batch = std::mem::take(&mut self.batch);
        self.tell(told(batch))
    }

    fn tell(&self, told: Told) -> Result<(), DurabilityError> {
        // Nobody hears this error: what ended the taking in is told in its place.
        let why = "recovery has ended";
        self.sender.send(told).map_err(|_| DurabilityError::Poisoned { why: why.into() })
    }
}
