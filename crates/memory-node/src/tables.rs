//! The tables of a memory node, and the pool that they belong to.
//!
//! Invariant: tables are only ever added, and all of them for one place in one pool, which the first table
//! fixes. Numbers are home's; the other nodes have the same table under the same number.

use std::sync::{Mutex, OnceLock, PoisonError};

use farsight_base::Epoch;
use farsight_protocol::{ErrorCode, PoolDefinition, PoolPlace, ServerError, TABLE_NAME_BYTES_MAX, TableId};

use crate::NodeState;
use crate::table::Table;

/// Tables of one pool at most: the statistics of all of them fit one reply.
pub const TABLES_MAX: usize = 48;

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
            let text =
                format!("no table is called {shortened:?}; `farsight tables` lists those that there are");
            ServerError::new(ErrorCode::UnknownTable, text)
        })
    }

    /// Makes a table, or finds the one of the same definition.
    pub(crate) fn create(
        &self,
        node: &NodeState,
        definition: PoolDefinition,
        place: PoolPlace,
        id: Option<TableId>,
    ) -> Result<&Table, ServerError> {
        definition.table.check_names()?;
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
        let table = Table::new(TableId(number as u16), definition, place.clone(), node, self.memory_bytes)?;
        self.place.get_or_init(|| place);
        Ok(slot.get_or_init(|| table))
    }

    /// Refuses a place at which another life stands than this node's.
    fn check_place(&self, place: &PoolPlace) -> Result<(), ServerError> {
        let named = Epoch(place.epochs[usize::from(place.index)]);
        if named == self.epoch {
            return Ok(());
        }
        let text = format!("the pool's node {place} is {named}, this is {}", self.epoch);
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
        "this node is {own} in its pool [{}], not {wanted} [{}]. Every client names the same nodes in the same order; a \
         node that lost its pool must be started again",
        lives(own),
        lives(wanted)
    );
    ServerError::new(ErrorCode::OtherPool, text)
}

fn check_same(table: &Table, wanted: &PoolDefinition, id: Option<TableId>) -> Result<(), ServerError> {
    let own = &table.info().definition;
    let is_same = match id {
        None => own.is_wanted(wanted),
        Some(id) => own == wanted && id == table.info().id,
    };
    if is_same {
        return Ok(());
    }
    let text = format!(
        "table {:?} exists in {} with {}, leaves of {} lines in format {} and number {}; {}, {}, {} lines, format {} \
         were asked for",
        own.table.name,
        own.engine,
        own.table,
        own.block_lines,
        own.format_version,
        table.info().id.0,
        wanted.engine,
        wanted.table,
        wanted.block_lines,
        wanted.format_version
    );
    Err(ServerError::new(ErrorCode::TableExists, text))
}

#[cfg(test)]
mod tests {
    use farsight_protocol::{
        KeyKind, ListenerStats, MemoryNodeStats, ModelStats, POOL_NODES_MAX, PartStats, PoolTableInfo,
        PoolTableStats, ReplyWriter, SpaceStats, TableDefinition, TableEngine, TreeStats,
        VALUE_TYPE_BYTES_MAX,
    };

    use super::*;
    use crate::state::MESSAGE_BYTES_MIN;

    #[test]
    fn the_statistics_of_all_tables_fit_one_reply() {
        // A gibibyte a second for ten years has 59 bits; each seven of them take a byte.
        const LARGE: u64 = 1 << 40;
        let place = PoolPlace { epochs: vec![u64::MAX; POOL_NODES_MAX], index: 15 };
        let name = "n".repeat(TABLE_NAME_BYTES_MAX);
        let value_type = "t".repeat(VALUE_TYPE_BYTES_MAX);
        let table = TableDefinition { value_type, ..TableDefinition::new(name, KeyKind::Bytes8, 256) };
        let engine = TableEngine::XStoreD { boundaries: vec![u64::MAX; POOL_NODES_MAX - 1] };
        let definition = PoolDefinition { table, engine, block_lines: u16::MAX, format_version: u32::MAX };
        let info = PoolTableInfo {
            id: TableId(u16::MAX),
            definition,
            place: place.clone(),
            leaf_region: u32::MAX,
            capacity_leaves: u32::MAX,
            meta_region: u32::MAX,
            meta_lines: u32::MAX,
        };
        let leaves =
            SpaceStats { capacity: LARGE, block_bytes: LARGE, used: LARGE, owned: LARGE, orphaned: LARGE };
        let tree = TreeStats {
            pairs: LARGE,
            leaves: LARGE,
            inner_nodes: LARGE,
            inner_levels: u32::MAX,
            splits: LARGE,
            compactions: LARGE,
            hint_hits: LARGE,
            descents: LARGE,
            mended: LARGE,
        };
        let model = ModelStats {
            generation: LARGE,
            sub_models: LARGE,
            top_bytes: LARGE,
            cache_bytes: LARGE,
            window_leaves_max: LARGE,
            retrained: LARGE,
            pending: LARGE,
            lag_ns: LARGE,
            ..ModelStats::default()
        };
        let part = Some(PartStats { tree, model });
        let meta = SpaceStats::default();
        let table = PoolTableStats { info, leaves, meta, huge_page_bytes: LARGE, part };
        let listener = ListenerStats { address: "a".repeat(64), clients: LARGE };
        let stats = MemoryNodeStats {
            place: Some(place),
            listeners: vec![listener; farsight_node::LISTENERS_MAX],
            tables: vec![table; TABLES_MAX],
            ..MemoryNodeStats::default()
        };
        let mut reply = Vec::new();
        ReplyWriter::new(&mut reply).push_control(&stats);
        assert!(reply.len() <= MESSAGE_BYTES_MIN, "{} B", reply.len());
    }
}
