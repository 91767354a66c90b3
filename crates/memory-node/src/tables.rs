//! The tables of a memory node, and the pool that they belong to.
//!
//! Invariant: tables are only ever added, and all of them for one place in one pool, which the first table
//! fixes. Numbers are home's; the other nodes have the same table under the same number.

use std::sync::{Mutex, OnceLock, PoisonError};

use farsight_base::Epoch;
use farsight_node::Listeners;
use farsight_protocol::{
    ErrorCode, PoolDefinition, PoolPlace, ServerError, TABLE_NAME_BYTES_MAX, TableId, check_table_name,
};

use crate::table::Table;

/// Tables of one pool at most: the statistics of all of them fit one reply.
pub const TABLES_MAX: usize = 64;

/// All tables of a memory node.
pub(crate) struct Tables {
    /// This node's life.
    epoch: Epoch,
    slots: Box<[OnceLock<Table>]>,
    place: OnceLock<PoolPlace>,
    /// Held while a table is added.
    adding: Mutex<()>,
    memory_bytes: u64,
}

impl Tables {
    pub(crate) fn new(epoch: Epoch, memory_bytes: u64) -> Self {
        let slots = (0..TABLES_MAX).map(|_| OnceLock::new()).collect();
        Self { epoch, slots, place: OnceLock::new(), adding: Mutex::new(()), memory_bytes }
    }

    /// The tables, in the order of their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Table> {
        self.slots.iter().filter_map(OnceLock::get)
    }

    /// The pool of these tables, once there is one.
    pub(crate) fn place(&self) -> Option<&PoolPlace> {
        self.place.get()
    }

    /// The table with this number.
    pub(crate) fn get(&self, id: TableId) -> Result<&Table, ServerError> {
        self.slots.get(usize::from(id.0)).and_then(OnceLock::get).ok_or_else(|| {
            let text = format!("no table has number {}; this node has {} tables", id.0, self.iter().count());
            ServerError::new(ErrorCode::UnknownTable, text)
        })
    }

    /// The table with this name.
    pub(crate) fn open(&self, name: &str) -> Result<&Table, ServerError> {
        self.find(name).ok_or_else(|| {
            let shortened: String = name.chars().take(TABLE_NAME_BYTES_MAX).collect();
            let count = self.iter().count();
            let text = format!("no table is called {shortened:?}; this node has {count} tables");
            ServerError::new(ErrorCode::UnknownTable, text)
        })
    }

    /// Makes a table, or finds the one of the same definition.
    pub(crate) fn create(
        &self,
        listeners: &Listeners,
        definition: PoolDefinition,
        place: PoolPlace,
        id: Option<TableId>,
    ) -> Result<&Table, ServerError> {
        check_table_name(&definition.table.name)?;
        self.check_place(&place)?;
        let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = self.place().filter(|own| **own != place) {
            return Err(other_pool(own, &place));
        }
        if let Some(table) = self.find(&definition.table.name) {
            return check_same(table, &definition, id).map(|()| table);
        }
        let number = match id {
            Some(id) if place.index > 0 => usize::from(id.0),
            None if place.index == 0 => self.iter().count(),
            _ => {
                let text = "home numbers tables, and the others are told";
                return Err(ServerError::new(ErrorCode::BadRequest, text));
            }
        };
        let Some(slot) = self.slots.get(number) else {
            let text =
                format!("a pool has at most {TABLES_MAX} tables: cannot make {:?}", definition.table.name);
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        };
        if let Some(other) = slot.get() {
            let text =
                format!("number {number} is table {:?}, not {:?}", other.name(), definition.table.name);
            return Err(ServerError::new(ErrorCode::TableExists, text));
        }
        let table =
            Table::new(TableId(number as u16), definition, place.clone(), listeners, self.memory_bytes)?;
        self.place.get_or_init(|| place);
        Ok(slot.get_or_init(|| table))
    }

    /// Refuses a place at which another life stands than this node's.
    fn check_place(&self, place: &PoolPlace) -> Result<(), ServerError> {
        let named = Epoch(place.epochs[usize::from(place.index)]);
        if named == self.epoch {
            return Ok(());
        }
        let text = format!("node {} of the pool is {named}, this is {}", place.index, self.epoch);
        Err(ServerError::new(ErrorCode::OtherPool, text))
    }

    fn find(&self, name: &str) -> Option<&Table> {
        self.iter().find(|table| table.name() == name)
    }
}

/// The refusal of a place that is not this node's own.
fn other_pool(own: &PoolPlace, wanted: &PoolPlace) -> ServerError {
    let lives = |place: &PoolPlace| {
        let lives: Vec<String> = place.epochs.iter().map(|epoch| Epoch(*epoch).to_string()).collect();
        lives.join(", ")
    };
    let text = format!(
        "this node is number {} of a pool of {} [{}], not number {} of {} [{}]. Every client names the same nodes in \
         the same order; a node that lost its pool must be started again",
        own.index,
        own.epochs.len(),
        lives(own),
        wanted.index,
        wanted.epochs.len(),
        lives(wanted)
    );
    ServerError::new(ErrorCode::OtherPool, text)
}

fn check_same(table: &Table, wanted: &PoolDefinition, id: Option<TableId>) -> Result<(), ServerError> {
    let own = &table.info().definition;
    if own == wanted && id.is_none_or(|id| id == table.info().id) {
        return Ok(());
    }
    let text = format!(
        "table {:?} exists with {} keys, values of {} B, leaves of {} lines in format {} and number {}; {} keys, \
         values of {} B, {} lines, format {} were asked for",
        own.table.name,
        own.table.key_kind,
        own.table.value_bytes,
        own.block_lines,
        own.format_version,
        table.info().id.0,
        wanted.table.key_kind,
        wanted.table.value_bytes,
        wanted.block_lines,
        wanted.format_version
    );
    Err(ServerError::new(ErrorCode::TableExists, text))
}
