//! The catalogue of a node: its tables by number and by name, and the pool that they belong to.
//!
//! Invariant: all tables are for one place in one pool, which the first table fixes. Numbers are home's; the
//! other nodes have the same table under the same number, and none is given twice in home's life. A table is
//! visible once it is complete.
//!
//! Protocol: changes are serialized, and each raises the *version* when it is done. A worker keeps what the
//! catalogue held at a version ([`View`]); it looks at the version before each call, and takes no lock while
//! that stands.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use farsight_base::Epoch;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::{FabricError, Region, RegionRights};
use farsight_protocol::{
    ErrorCode, PoolPlace, ServerError, TABLE_NAME_BYTES_MAX, TableEngine, TableId, TableLayout,
};

use crate::table::{Material, Table, check_leaves};
use crate::x_store::Part;
use crate::{Listeners, NodeOptions};

/// Tables of one node at most.
pub const TABLES_MAX: usize = 4_096;

/// All tables of a node.
pub(crate) struct Tables {
    /// This node's epoch.
    epoch: Epoch,
    catalogue: RwLock<Catalogue>,
    /// Counts the catalogue's changes.
    version: AtomicU64,
    place: OnceLock<PoolPlace>,
    /// Held while a table is made.
    making: Mutex<()>,
    /// Regions that were made before their tables.
    prepared: Mutex<VecDeque<Arc<dyn Region>>>,
    options: NodeOptions,
}

#[derive(Default)]
struct Catalogue {
    by_id: BTreeMap<TableId, Arc<Table>>,
    by_name: HashMap<String, TableId>,
}

impl Tables {
    /// No tables; those to come are made as `options` say.
    pub(crate) fn new(epoch: Epoch, options: NodeOptions) -> Self {
        Self {
            epoch,
            catalogue: RwLock::default(),
            version: AtomicU64::new(0),
            place: OnceLock::new(),
            making: Mutex::default(),
            prepared: Mutex::default(),
            options,
        }
    }

    /// Makes the region of an XStore table to come: the next one without a region gets it.
    pub(crate) fn prepare(&self, listeners: &Listeners) -> Result<Arc<dyn Region>, FabricError> {
        let region = listeners.create_region(self.options.table_memory_bytes, RegionRights::ReadOnly)?;
        lock(&self.prepared).push_back(Arc::clone(&region));
        Ok(region)
    }

    /// The tables, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<Table>> {
        self.from(TableId(0))
    }

    /// The tables whose numbers are not below `first`, in their order.
    pub(crate) fn from(&self, first: TableId) -> Vec<Arc<Table>> {
        self.read().by_id.range(first..).map(|(_, table)| Arc::clone(table)).collect()
    }

    /// The pool of these tables, once there is one.
    pub(crate) fn place(&self) -> Option<&PoolPlace> {
        self.place.get()
    }

    /// The table with this number.
    pub(crate) fn get(&self, id: TableId) -> Result<Arc<Table>, ServerError> {
        let catalogue = self.read();
        catalogue.by_id.get(&id).cloned().ok_or_else(|| unknown(id, catalogue.by_id.len()))
    }

    /// The table with this name.
    pub(crate) fn open(&self, name: &str) -> Result<Arc<Table>, ServerError> {
        self.find(name).ok_or_else(|| {
            let shortened: String = name.chars().take(TABLE_NAME_BYTES_MAX).collect();
            let text =
                format!("no table is called {shortened:?}; `farsight tables` lists those that there are");
            ServerError::new(ErrorCode::UnknownTable, text)
        })
    }

    /// Makes a table whose regions all `listeners` serve, or finds the one of the same layout.
    pub(crate) fn create(
        &self,
        listeners: &Listeners,
        layout: TableLayout,
        place: PoolPlace,
        id: Option<TableId>,
    ) -> Result<Arc<Table>, ServerError> {
        layout.definition.check_names()?;
        check_leaves(&layout)?;
        self.check_place(&place)?;
        let _making = lock(&self.making);
        if let Some(own) = self.place().filter(|own| **own != place) {
            return Err(other_pool(own, &place));
        }
        if let Some(table) = self.find(&layout.definition.name) {
            return check_same(&table, &layout, id).map(|()| table);
        }
        let id = self.number_for(&layout, &place, id)?;
        let is_x_store = layout.engine != TableEngine::Rolex;
        let material = Material {
            listeners,
            memory_bytes: self.options.table_memory_bytes,
            train_options: self.options.training,
            read_only: self.options.read_only.as_deref(),
            prepared: if is_x_store { lock(&self.prepared).pop_front() } else { None },
        };
        let table = Arc::new(Table::new(id, layout, place.clone(), &material)?);
        self.place.get_or_init(|| place);
        self.change(|catalogue| {
            catalogue.by_name.insert(table.name().to_owned(), id);
            catalogue.by_id.insert(id, Arc::clone(&table));
        });
        Ok(table)
    }

    /// The number of a table to be made.
    fn number_for(
        &self,
        layout: &TableLayout,
        place: &PoolPlace,
        id: Option<TableId>,
    ) -> Result<TableId, ServerError> {
        let (catalogue, name) = (self.read(), &layout.definition.name);
        if catalogue.by_id.len() >= TABLES_MAX {
            let text = format!("a node has at most {TABLES_MAX} tables: cannot make {name:?}");
            return Err(ServerError::new(ErrorCode::OutOfResources, text));
        }
        let id = match id {
            Some(id) if place.index > 0 => id,
            None if place.index == 0 => TableId(catalogue.by_id.len() as u16),
            _ => {
                let text = "home numbers tables, and the others are told";
                return Err(ServerError::new(ErrorCode::BadRequest, text));
            }
        };
        let Some(other) = catalogue.by_id.get(&id) else { return Ok(id) };
        let text = format!("number {} is table {:?}, not {name:?}", id.0, other.name());
        Err(ServerError::new(ErrorCode::TableExists, text))
    }

    /// Refuses a place at which another epoch stands than this node's.
    fn check_place(&self, place: &PoolPlace) -> Result<(), ServerError> {
        let named = Epoch(place.epochs[usize::from(place.index)]);
        if named == self.epoch {
            return Ok(());
        }
        let text = format!("the pool's node {place} is {named}, this is {}", self.epoch);
        Err(ServerError::new(ErrorCode::OtherPool, text))
    }

    fn find(&self, name: &str) -> Option<Arc<Table>> {
        let catalogue = self.read();
        catalogue.by_name.get(name).and_then(|id| catalogue.by_id.get(id)).cloned()
    }

    fn change(&self, change: impl FnOnce(&mut Catalogue)) {
        change(&mut self.catalogue.write().unwrap_or_else(PoisonError::into_inner));
        // Release: the change comes first. Partner: the Acquire load in `version`.
        self.version.fetch_add(1, Ordering::Release);
    }

    fn version(&self) -> u64 {
        // Acquire: the catalogue of this version is seen. Partner: the Release addition in `change`.
        self.version.load(Ordering::Acquire)
    }

    fn read(&self) -> RwLockReadGuard<'_, Catalogue> {
        // Each change is complete, or a bug that ends all answers.
        self.catalogue.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a worker knows of the catalogue.
#[derive(Default)]
pub(crate) struct View {
    version: u64,
    by_id: Vec<Option<Arc<Table>>>,
}

impl View {
    /// Takes over what has changed.
    #[inline]
    pub(crate) fn refresh(&mut self, tables: &Tables) {
        let version = tables.version();
        if version != self.version {
            self.take(tables, version);
        }
    }

    #[cold]
    fn take(&mut self, tables: &Tables, version: u64) {
        self.by_id.clear();
        for table in tables.all() {
            let index = usize::from(table.info().id.0);
            self.by_id.resize(index + 1, None);
            self.by_id[index] = Some(table);
        }
        self.version = version;
    }

    /// The tables whose trees and models this node's processor keeps.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&Table, &Part)> {
        let tables = self.by_id.iter().filter_map(Option::as_deref);
        tables.filter_map(|table| Some((table, table.x_store().ok()?)))
    }

    /// The table with this number.
    #[inline]
    pub(crate) fn get(&self, id: TableId) -> Result<&Table, ServerError> {
        let found = self.by_id.get(usize::from(id.0)).and_then(Option::as_deref);
        found.ok_or_else(|| unknown(id, self.by_id.iter().flatten().count()))
    }
}

fn unknown(id: TableId, count: usize) -> ServerError {
    let text = format!("no table has number {}; this node has {count} tables", id.0);
    ServerError::new(ErrorCode::UnknownTable, text)
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

fn check_same(table: &Table, wanted: &TableLayout, id: Option<TableId>) -> Result<(), ServerError> {
    let own = table.info().layout();
    let is_same = match id {
        None => own.is_wanted(wanted),
        Some(id) => own == *wanted && id == table.info().id,
    };
    if is_same {
        return Ok(());
    }
    let what = |layout: &TableLayout| {
        let TableLayout { definition, engine, block_lines, format_version } = layout;
        format!("{engine} with {definition}, leaves of {block_lines} lines in format {format_version}")
    };
    let number = id.map_or_else(String::new, |id| format!(" and number {}", id.0));
    let text = format!(
        "table {:?} exists in {} and number {}; one in {}{number} was requested",
        own.definition.name,
        what(&own),
        table.info().id.0,
        what(wanted)
    );
    Err(ServerError::new(ErrorCode::TableExists, text))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is ever half done under these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use farsight_protocol::{
        KeyKind, ModelStats, POOL_NODES_MAX, PartStats, RegionInfo, ReplyWriter, Space, SpaceStats,
        TableDefinition, TableEngine, TableInfo, TableStats, TreeStats, VALUE_TYPE_BYTES_MAX,
    };

    use super::*;
    use crate::NodeState;

    #[test]
    fn the_longest_statistics_of_a_table_fit_a_page() {
        let name = "n".repeat(TABLE_NAME_BYTES_MAX);
        let value_type = "t".repeat(VALUE_TYPE_BYTES_MAX);
        let info = TableInfo {
            id: TableId(u16::MAX),
            definition: TableDefinition {
                value_type,
                ..TableDefinition::new(name, KeyKind::Bytes8, u16::MAX)
            },
            engine: TableEngine::XStore { boundaries: vec![u64::MAX; POOL_NODES_MAX - 1] },
            block_lines: u16::MAX,
            format_version: u32::MAX,
            place: PoolPlace { epochs: vec![u64::MAX; POOL_NODES_MAX], index: u8::MAX },
            regions: [Space::Leaves, Space::Meta]
                .map(|space| RegionInfo { space, id: u32::MAX, capacity: u32::MAX })
                .to_vec(),
        };
        let space = SpaceStats {
            capacity: u64::MAX,
            block_bytes: u64::MAX,
            used: u64::MAX,
            owned: u64::MAX,
            orphaned: u64::MAX,
        };
        // Each number of theirs takes ten bytes at most.
        let part_bytes = 10 * (size_of::<TreeStats>() + size_of::<ModelStats>()) / 4;
        let part = Some(PartStats::default());
        let stats = TableStats { info, leaves: space, meta: space, huge_page_bytes: u64::MAX, part };
        let bytes = ReplyWriter::control_bytes(&stats) + part_bytes;
        assert!(bytes < NodeState::MESSAGE_BYTES_MIN / 2, "{bytes} B");
    }
}
