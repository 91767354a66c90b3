//! What a node finds in its directory of data at its start.

use std::sync::Arc;

use farsight_base::LeafNumber;
use farsight_base::report::report;
use farsight_durability::{CatalogueTable, DurabilityError, Log, Record, Recovered, Recovering, recover};
use farsight_layout::value_block::RecordKind;
use farsight_protocol::{Ack, PoolPlace, ServerError, TableId, TableLayout};

use super::Sequencer;
use crate::NodeState;
use crate::logged::VersionedLoad;
use crate::table::Table;

/// Versions left out at a start where a life before has acknowledged writes before they were durable: clients
/// may have seen as many that are lost.
const VERSIONS_LOST_MAX: u64 = 1 << 24;

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
        let mut tables = RecoveredTables { state: self, current: None };
        let Recovered { end, records, version_max } = recover(&store, &mut tables)?;
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
}

/// Takes what recovery tells into the tables.
struct RecoveredTables<'s> {
    state: &'s NodeState,
    /// The table announced last, and the load of its snapshot.
    current: Option<(Arc<Table>, Box<dyn VersionedLoad>)>,
}

impl Recovering for RecoveredTables<'_> {
    fn table(&mut self, number: u32, table: &CatalogueTable) -> Result<(), DurabilityError> {
        let made = TableLayout::from_bytes(&table.definition).and_then(|mut layout| {
            // It may have been renamed since it was made.
            layout.definition.name.clone_from(&table.name);
            let place = PoolPlace { epochs: vec![self.state.epoch().0], index: 0 };
            self.state.tables.restore(&self.state.listeners, TableId(number), layout, place)
        });
        let pairs = table.snapshot.map_or(0, |snapshot| snapshot.pairs);
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

    fn pair(&mut self, record: Record<'_>) -> Result<(), DurabilityError> {
        let (table, load) = self.current.as_mut().expect("a table was announced");
        let key = key_of(record);
        let pushed = load.push(key, record.block.version(), record.block.value());
        pushed.map_err(|error| refused(&table.name().get(), &error))
    }

    fn end_of_pairs(&mut self) -> Result<(), DurabilityError> {
        let (table, load) = self.current.take().expect("a table was announced");
        load.finish().map(drop).map_err(|error| refused(&table.name().get(), &error))
    }

    fn record(&mut self, record: Record<'_>) -> Result<(), DurabilityError> {
        let apply = || {
            let table = self.state.tables.get(TableId(record.table))?;
            let (key, version) = (key_of(record), record.block.version());
            let value = (record.kind == RecordKind::Pair).then(|| record.block.value());
            let logged = table.hosted().logged().ok_or_else(|| super::no_log("another engine"))?;
            let staged = value.map_or(Ok(None), |value| logged.stage(key, value))?;
            let stored = staged.as_ref().map(|reference| &reference[..]).or(value);
            logged.apply(key, version, stored, LeafNumber::NONE)
        };
        apply().map(drop).map_err(|error| refused(&format!("number {}", record.table), &error))
    }
}

/// The key of a record; of other than eight bytes none is written.
fn key_of(record: Record<'_>) -> u64 {
    record.block.key().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn refused(table: &str, error: &ServerError) -> DurabilityError {
    DurabilityError::Refused { table: table.to_owned(), why: error.text.clone() }
}
