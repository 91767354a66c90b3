//! The catalogue: tables by number and by name.
//!
//! Invariant: tables are only ever added, so a number once given names the same table for the server's life,
//! and looking one up takes no lock. Additions are serialized; a table is visible only when it is complete.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use farsight_fabric::{FabricError, Region, RegionRights};
use farsight_model::TrainOptions;
use farsight_node::Listeners;
use farsight_protocol::{ErrorCode, ServerError, TABLE_NAME_BYTES_MAX, TableDefinition, TableId, TableInfo};

use crate::table::Table;

/// Tables of one server at most: the statistics of all of them fit one reply.
pub const TABLES_MAX: usize = 128;

/// All tables of a server.
pub(crate) struct Tables {
    slots: Box<[OnceLock<Table>]>,
    /// Held while a table is added.
    adding: Mutex<()>,
    /// Regions that were made before their tables.
    prepared: Mutex<VecDeque<Arc<dyn Region>>>,
    memory_bytes: u64,
    train_options: TrainOptions,
}

impl Tables {
    /// No tables; each to come has a region of `memory_bytes` and is trained so.
    pub(crate) fn new(memory_bytes: u64, train_options: TrainOptions) -> Self {
        let slots = (0..TABLES_MAX).map(|_| OnceLock::new()).collect();
        Self { slots, adding: Mutex::new(()), prepared: Mutex::default(), memory_bytes, train_options }
    }

    /// Makes the region of a table to come: the next one without a region gets it.
    pub(crate) fn prepare(&self, listeners: &Listeners) -> Result<Arc<dyn Region>, FabricError> {
        let region = listeners.create_region(self.memory_bytes, RegionRights::ReadOnly)?;
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::clone(&region));
        Ok(region)
    }

    /// The region of a new table.
    fn take_region(&self, listeners: &Listeners) -> Result<Arc<dyn Region>, FabricError> {
        let prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        prepared.map_or_else(|| listeners.create_region(self.memory_bytes, RegionRights::ReadOnly), Ok)
    }

    /// The tables, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Table> {
        self.slots.iter().filter_map(OnceLock::get)
    }

    /// The table with this number.
    pub(crate) fn get(&self, id: TableId) -> Result<&Table, ServerError> {
        self.slots.get(usize::from(id.0)).and_then(OnceLock::get).ok_or_else(|| {
            let text = format!("no table has number {}; the server has {} tables", id.0, self.iter().count());
            ServerError::new(ErrorCode::UnknownTable, text)
        })
    }

    /// The table with this name.
    pub(crate) fn open(&self, name: &str) -> Result<&Table, ServerError> {
        self.find(name).ok_or_else(|| {
            let text = format!(
                "no table is called {:?}; `farsight tables` lists those that there are",
                shortened(name)
            );
            ServerError::new(ErrorCode::UnknownTable, text)
        })
    }

    /// Makes a table whose region all `listeners` serve, or finds the one of the same definition. Either all
    /// of them are made with an `id`, or none is.
    pub(crate) fn create(
        &self,
        listeners: &Listeners,
        wanted: &TableDefinition,
        id: Option<TableId>,
    ) -> Result<&Table, ServerError> {
        wanted.check_names()?;
        let format = Table::format(wanted)?;
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = self.find(&wanted.name) {
            table.check_definition(wanted)?;
            return if id.is_none_or(|id| id == table.info().id) {
                Ok(table)
            } else {
                Err(other_number(table))
            };
        }
        let index = id.map_or_else(|| self.iter().count(), |id| usize::from(id.0));
        let Some(slot) = self.slots.get(index) else {
            let text = format!("the server has {TABLES_MAX} tables, its most: cannot make {:?}", wanted.name);
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        };
        if let Some(other) = slot.get() {
            return Err(other_number(other));
        }
        let region = self.take_region(listeners).map_err(|error| {
            let text = format!("table {:?} needs a region of {} B: {error}", wanted.name, self.memory_bytes);
            ServerError::new(ErrorCode::OutOfResources, text)
        })?;
        let table = Table::new(TableId(index as u16), wanted.clone(), format, region, self.train_options)?;
        Ok(slot.get_or_init(|| table))
    }

    fn find(&self, name: &str) -> Option<&Table> {
        self.iter().find(|table| table.info().definition.name == name)
    }
}

fn other_number(table: &Table) -> ServerError {
    let TableInfo { id, definition, .. } = table.info();
    let text = format!("table {:?} has number {}, and another was asked for", definition.name, id.0);
    ServerError::new(ErrorCode::TableExists, text)
}

/// The beginning of a name that somebody sent, for an error text.
fn shortened(name: &str) -> String {
    name.chars().take(TABLE_NAME_BYTES_MAX).collect()
}
