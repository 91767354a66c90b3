//! The end of a table.
//!
//! Invariant: from the instant at which a table leaves the catalogue no call reaches it; a call that began
//! before may still end. Its number and those of its regions lead nowhere ever after. Its memory goes with
//! the last call that is under way in it and with the last client that has it attached.
//!
//! Protocol of a pool: a table is there while the coordinator has it.
//!
//! 1. The coordinator ends it, and keeps its number among the *dropped*.
//! 2. The client that dropped it tells the other nodes to forget all that are dropped.
//! 3. It tells the coordinator that they have done so. If it ends before, the next one to drop a table does
//!    this. So does the next client, if the nodes have directories of data.
//!
//! A node that was told to forget a number makes no table of it: one whose maker is late is refused. With a
//! directory of data, each step is durable there before it is answered.

use std::sync::Arc;

use farsight_base::report::report;
use farsight_protocol::{Blocks, POOL_DROPPED_MAX, ServerError, TableId};

use super::{Tables, lock};
use crate::Listeners;
use crate::table::Table;

impl Tables {
    /// Ends the table of this name.
    pub(crate) fn drop(&self, listeners: &Listeners, name: &str) -> Result<(), ServerError> {
        let changing = lock(&self.changing);
        let table = self.open(name)?;
        let has_others = table.nodes() > 1;
        if let Some(durable) = &self.durable {
            durable.drop_table(table.id(), has_others)?;
        }
        self.change(|catalogue| {
            catalogue.by_name.remove(name);
            catalogue.by_id.remove(&table.id());
            if has_others {
                catalogue.dropped.insert(table.id());
            }
            catalogue.name_changes += 1;
        });
        withdraw(listeners, table);
        self.tell_name_changes(listeners, &changing);
        Ok(())
    }

    /// Tables that were dropped here, and at the other nodes perhaps not yet: some of them.
    pub(crate) fn dropped(&self) -> Vec<TableId> {
        self.read().dropped.iter().copied().take(POOL_DROPPED_MAX).collect()
    }

    /// Ends tables that were dropped at the coordinator; at the coordinator, notes that the other nodes have
    /// done so.
    pub(crate) fn forget(&self, listeners: &Listeners, ids: &[TableId]) -> Result<(), ServerError> {
        let _changing = lock(&self.changing);
        if self.place().is_none_or(|place| place.index == 0) {
            if let Some(durable) = &self.durable {
                durable.end_drops(ids)?;
            }
            self.change(|catalogue| ids.iter().for_each(|id| _ = catalogue.dropped.remove(id)));
            return Ok(());
        }
        let mut forgotten = self.read().forgotten.clone();
        for id in ids {
            let run = Blocks { first: id.0, count: 1 };
            forgotten.remove(run);
            forgotten.insert(run, ());
        }
        if let Some(durable) = &self.durable {
            durable.forget_tables(ids, &forgotten)?;
        }
        let mut ended = Vec::new();
        self.change(|catalogue| {
            catalogue.forgotten = forgotten;
            ended.extend(ids.iter().filter_map(|id| catalogue.by_id.remove(id)));
        });
        for table in ended {
            withdraw(listeners, table);
        }
        Ok(())
    }
}

/// Takes a table's regions away from everybody, in its engine's order, and lets it go.
pub(super) fn withdraw(listeners: &Listeners, table: Arc<Table>) {
    for region in table.regions() {
        if let Err(error) = listeners.withdraw_region(region.id()) {
            // It is in no catalogue any more, so nobody new finds it.
            report(format_args!("table {:?} is dropped, and stays reachable: {error}", table.name()));
        }
    }
    // Workers and background let go of it, too.
    drop(table);
    listeners.wake();
}
