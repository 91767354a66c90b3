//! What a node finds in its directory of data at its start.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use farsight_base::report::report;
use farsight_base::words::prefetch;
use farsight_base::{LINE_BYTES, LeafNumber};
use farsight_durability::{
    CatalogueTable, DurabilityError, Log, NoteBatch, RecordBatch, RecordRun, Recovered, RecoveredRecord,
    Recovering, recover,
};
use farsight_index_xstore::server::VersionedWrite;
use farsight_protocol::{Ack, ErrorCode, ServerError, TableId, TableLayout, WriteEntry};

use super::{Sequencer, Snapshots};
use crate::NodeState;
use crate::logged::{LoggedTable, VersionedLoad};
use crate::table::Table;

/// Versions left out at a start where a life before has acknowledged writes before they were durable: clients
/// may have seen as many that are lost.
const VERSIONS_LOST_MAX: u64 = 1 << 24;
/// Bytes of a batch of the log, at most. Of each key one record of a batch is applied, and in the order of
/// keys they find their leaves near each other. Tests have short logs, and want several batches.
const BATCH_BYTES_MAX: u64 = if cfg!(debug_assertions) { 4 << 10 } else { 256 << 20 };
/// A batch has at most this part of the bytes that may wait for the log, which are a sixteenth of the node's
/// memory. Two batches exist at once, and room to sort one.
const PART_OF_A_BATCH: u64 = 4;
/// Records whose keys are looked for together, while as many are applied.
const AHEAD: usize = 64;
/// Records that are worth a thread. Tests have few, and want several threads.
const RECORDS_A_THREAD_MIN: usize = if cfg!(debug_assertions) { 16 } else { 1 << 12 };
/// Lines of a value that are brought near before it is applied.
const LINES_AHEAD: usize = 4;

impl NodeState {
    /// Finds the tables of the node's directory of data, if it has one, and returns what writes them from now
    /// on. Called once, before the first client.
    ///
    /// # Errors
    /// [`DurabilityError`].
    pub fn recover(self: &Arc<Self>) -> Result<Option<Sequencer>, DurabilityError> {
        let Some(durable) = &self.durable else { return Ok(None) };
        let mut store = durable.store();
        let may_have_lost = store.catalogue().acknowledges_early;
        if durable.ack == Ack::Memory && !may_have_lost {
            store.change(|catalogue| catalogue.acknowledges_early = true)?;
        }
        let threads = store.disk().readers();
        let mut tables = RecoveredTables { state: self, current: None, threads };
        let Recovered { end, records, version_max } = recover(&store, self.batch_bytes_max(), &mut tables)?;
        let mut pairs = 0;
        for table in self.tables.all() {
            let greatest = version_max.get(&table.id().0).copied().unwrap_or(0);
            let lost = if may_have_lost { VERSIONS_LOST_MAX } else { 0 };
            table.hosted().leave_out_versions(greatest + lost);
            pairs += table.hosted().stats(self.started).part.map_or(0, |part| part.tree.pairs);
        }
        if let Some(cut) = end.cut.as_ref().filter(|cut| cut.fault.is_some()) {
            report(format_args!(
                "{} is cut at byte {}: a crash came before what stood there was durable",
                store.disk().place(&cut.name),
                cut.offset
            ));
        }
        if store.is_copied() {
            report(format_args!(
                "{} is a copy of another directory, or comes from another disk: what was written there behind the copy \
                 is missing here",
                store.disk().place("")
            ));
        }
        let count = store.catalogue().tables.len();
        if count > 0 {
            report(format_args!(
                "recovered from {}: tables {count}, pairs {pairs}; of that records of the log {records}",
                store.disk().place("")
            ));
        }
        let incarnation = store.catalogue().incarnation;
        let log = Log::new(Arc::clone(store.disk()), durable.log, incarnation, &end);
        drop(store);
        Ok(Some(Sequencer::new(Arc::clone(self), Arc::clone(durable), log)))
    }

    /// Bytes of a batch of the log.
    fn batch_bytes_max(&self) -> usize {
        (self.tables.memory().bounded_bytes() / PART_OF_A_BATCH).min(BATCH_BYTES_MAX) as usize
    }

    /// What makes the snapshots of its directory of data, if it has one.
    pub fn snapshots(self: &Arc<Self>) -> Option<Snapshots> {
        let durable = Arc::clone(self.durable.as_ref()?);
        Some(Snapshots::new(Arc::clone(self), durable))
    }
}

/// Takes what recovery tells into the tables.
struct RecoveredTables<'s> {
    state: &'s NodeState,
    /// The table announced last, and the load of its snapshot.
    current: Option<(Arc<Table>, Box<dyn VersionedLoad>)>,
    /// Threads that apply records at once.
    threads: usize,
}

impl Recovering for RecoveredTables<'_> {
    fn table(&mut self, number: u32, table: &CatalogueTable) -> Result<(), DurabilityError> {
        let made = TableLayout::from_bytes(&table.definition).and_then(|mut layout| {
            // It may have been renamed since it was made.
            layout.definition.name.clone_from(&table.name);
            let missing =
                || ServerError::new(ErrorCode::Bug, "the catalogue has tables, and no pool of theirs");
            let place = self.state.tables.place().as_deref().cloned().ok_or_else(missing)?;
            self.state.tables.restore(&self.state.listeners, TableId(number), layout, place)
        });
        if let Some(durable) = &self.state.durable {
            durable.touched.set_pieces(number, &table.pieces);
        }
        let pairs = table.snapshot_pairs().unwrap_or(0);
        let load = made.and_then(|made| {
            let load = made
                .hosted()
                .logged()
                .ok_or_else(|| super::no_log(&made.info().engine.name))?
                .begin_load(Some(pairs))?;
            Ok((made, load))
        });
        self.current = Some(load.map_err(|error| refused(&table.name, &error))?);
        Ok(())
    }

    fn pairs(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError> {
        let (table, load) = self.current.as_mut().expect("a table was announced");
        let pushed = batch
            .iter()
            .try_for_each(|pair| load.push(key_of(pair.key), pair.version, pair.value.unwrap_or_default()));
        pushed.map_err(|error| refused(&table.name().get(), &error))
    }

    fn end_of_pairs(&mut self) -> Result<(), DurabilityError> {
        let (table, load) = self.current.take().expect("a table was announced");
        load.finish().map(drop).map_err(|error| refused(&table.name().get(), &error))
    }

    fn records(&mut self, batch: &RecordBatch) -> Result<(), DurabilityError> {
        batch.runs().try_for_each(|run| {
            let applied = self.apply(run);
            applied.map_err(|error| refused(&format!("number {}", run.table()), &error))
        })
    }

    fn notes(&mut self, batch: &NoteBatch) {
        batch.iter().for_each(|note| self.state.authors.take_note(note));
    }
}

/// Records whose leaves were looked for.
struct Sought<'b> {
    records: Vec<RecoveredRecord<'b>>,
    entries: Vec<WriteEntry<'static>>,
}

impl Sought<'_> {
    const NONE: Self = Self { records: Vec::new(), entries: Vec::new() };
}

impl RecoveredTables<'_> {
    /// Applies records of one table: with several threads, unless they are few.
    fn apply(&self, run: RecordRun<'_>) -> Result<(), ServerError> {
        let (state, number) = (self.state, run.table());
        let table = state.tables.get(TableId(number))?;
        let logged = table.hosted().logged().ok_or_else(|| super::no_log("another engine"))?;
        let mut pieces = run.split(self.threads, RECORDS_A_THREAD_MIN);
        let own = pieces.next();
        let late = thread::scope(|scope| {
            let hand_over = |piece| {
                let thread = thread::Builder::new().name("recovery fills".into());
                (piece, thread.spawn_scoped(scope, move || apply_piece(state, logged, piece)))
            };
            let others: Vec<_> = pieces.map(hand_over).collect();
            let mut late = own.map_or(Ok(Vec::new()), |piece| apply_piece(state, logged, piece));
            for (piece, begun) in others {
                let applied = match begun {
                    Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                    // Where the system has no thread for it, this one does it.
                    Err(_) => apply_piece(state, logged, piece),
                };
                late = late.and_then(|mut late| {
                    late.extend(applied?);
                    Ok(late)
                });
            }
            late
        })?;
        if !late.is_empty() {
            // Each thread has had some memory at hand.
            logged.release_at_hand();
        }
        apply_late(logged, late)
    }
}

/// Applies some records of one table, and returns those whose values have no memory now. Meanwhile the
/// memory of those that come next is on its way: first that of their leaves, then that of the blocks which
/// those name.
fn apply_piece<'b>(
    state: &NodeState,
    logged: &dyn LoggedTable,
    piece: RecordRun<'b>,
) -> Result<Vec<RecoveredRecord<'b>>, ServerError> {
    let mut records = piece.iter();
    let (mut keys, mut hints) = (Vec::new(), Vec::new());
    let [mut sought, mut near, mut next] = [const { Sought::NONE }; 3];
    let mut late = Vec::new();
    loop {
        next.records.clear();
        next.records.extend(records.by_ref().take(AHEAD));
        keys.clear();
        keys.extend(next.records.iter().map(|record| key_of(record.key)));
        logged.leaves_of_run(&keys, &mut hints);
        next.entries.clear();
        let places = keys.iter().zip(&hints);
        next.entries.extend(places.map(|(key, hint)| WriteEntry { key: *key, hint: *hint, value: &[] }));
        logged.prefetch(&next.entries);
        next.records.iter().filter_map(|record| record.value).for_each(prefetch_begin);
        if let Some(durable) = &state.durable {
            durable.touched.mark(piece.table(), keys.iter().copied());
        }
        logged.prefetch_replaced(&near.entries);
        apply_sought(logged, &sought, &mut late)?;
        if next.records.is_empty() && near.records.is_empty() {
            return Ok(late);
        }
        // The oldest becomes the next one's room.
        std::mem::swap(&mut sought, &mut near);
        std::mem::swap(&mut near, &mut next);
    }
}

/// Asks for the first lines of a value, which stands anywhere in its batch. What is behind them comes by
/// itself when it is read in its order.
fn prefetch_begin(value: &[u8]) {
    value.iter().step_by(LINE_BYTES).take(LINES_AHEAD).for_each(prefetch);
}

/// Applies records. Those whose values have no memory now become `late`.
fn apply_sought<'b>(
    logged: &dyn LoggedTable,
    sought: &Sought<'b>,
    late: &mut Vec<RecoveredRecord<'b>>,
) -> Result<(), ServerError> {
    let mut writes = Vec::with_capacity(AHEAD);
    for (record, entry) in sought.records.iter().zip(&sought.entries) {
        let (WriteEntry { key, hint, .. }, RecoveredRecord { version, value, .. }) = (*entry, *record);
        let write = VersionedWrite { key, version, value, hint, slot: None };
        if logged.write_over(write)? {
            continue;
        }
        match value.map_or(Ok(None), |value| logged.stage(key, value)) {
            Ok(None) => writes.push(write),
            // At once: that gives back the block before, and there may be no memory for many more.
            Ok(Some(staged)) => {
                logged.apply(&[VersionedWrite { value: Some(&staged[..]), ..write }], &mut |_| {})?;
            }
            Err(_) => late.push(*record),
        }
    }
    // Of a table of blocks removals alone are left. No other record here has one of their keys.
    logged.apply(&writes, &mut |_| {})
}

/// Applies what had no memory, as long as each round makes some. Once all of a batch are applied, the table
/// has what it had once before, for which there was room. On the way the longer values may come before the
/// shorter ones that make room for them.
fn apply_late(logged: &dyn LoggedTable, mut late: Vec<RecoveredRecord<'_>>) -> Result<(), ServerError> {
    while !late.is_empty() {
        let (count, mut last) = (late.len(), None);
        let mut still = Vec::new();
        for record in late {
            let (key, version) = (key_of(record.key), record.version);
            match record.value.map_or(Ok(None), |value| logged.stage(key, value)) {
                Ok(staged) => {
                    let value = staged.as_ref().map(|staged| &staged[..]);
                    let write = VersionedWrite { key, version, value, hint: LeafNumber::NONE, slot: None };
                    logged.apply(&[write], &mut |_| {})?;
                }
                Err(error) => {
                    last = Some(error);
                    still.push(record);
                }
            }
        }
        late = still;
        if let Some(error) = last.filter(|_| late.len() == count) {
            return Err(error);
        }
    }
    Ok(())
}

/// The key of a record; of other than eight bytes none is written.
pub(super) fn key_of(key: &[u8]) -> u64 {
    key.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn refused(table: &str, error: &ServerError) -> DurabilityError {
    DurabilityError::Refused { table: table.to_owned(), why: error.text.clone() }
}
