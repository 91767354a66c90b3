//! The catalogue of a node: its tables by number and by name, and the pool that they belong to.
//!
//! Invariant: all tables are for one place in one pool, which the first table fixes. Its list changes where a
//! new node takes the place of a lost one, for all tables at once. Names and numbers are
//! the coordinator's; the other nodes have the same table under the same number, and none is given twice in
//! the coordinator's epoch. A table is visible once it is complete.
//!
//! Protocol: changes are serialized, and each raises the *version* when it is done. A worker keeps what the
//! catalogue held at a version ([`View`]); it looks at the version before each call, and takes no lock while
//! that stands. The node counts the changes after which a name
//! leads elsewhere, and tells its clients the count. A session that has heard a greater one than when it
//! opened its table asks the coordinator for the name again.

mod drop;
mod rename;
mod succeed;
mod taking_in;
mod view;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use farsight_base::Epoch;
use farsight_base::clock::UnixTime;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::{FabricError, Region};
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{
    Ack, Blocks, ErrorCode, PoolPlace, ServerError, TABLE_NAME_BYTES_MAX, TableDefinition, TableId,
    TableLayout,
};

use crate::durable::{self, Durable};
use crate::engine::{self, Hosting};
use crate::memory_limit::MemoryLimit;
use crate::new_table::NewTable;
use crate::rolex::Runs;
use crate::table::Table;
use crate::{Listeners, NodeOptions};
pub(crate) use view::View;

/// Bytes of a table's regions that a client may want at least: a huge page.
const MEMORY_BYTES_MIN: u64 = 2 << 20;

/// Tables of one node at most.
pub const TABLES_MAX: usize = 4_096;

/// All tables of a node.
pub(crate) struct Tables {
    /// This node's epoch in pools: with a directory of data, that of the first life there.
    epoch: Epoch,
    catalogue: RwLock<Catalogue>,
    /// Counts the catalogue's changes.
    version: AtomicU64,
    place: RwLock<Option<Arc<PoolPlace>>>,
    /// What names the pool.
    pool: OnceLock<Epoch>,
    /// Held while a table is made, dropped or renamed.
    changing: Mutex<()>,
    /// Regions that were made before their tables.
    prepared: Mutex<VecDeque<Arc<dyn Region>>>,
    options: NodeOptions,
    memory: Arc<MemoryLimit>,
    /// What keeps them on a disk, if anything does.
    durable: Option<Arc<Durable>>,
}

#[derive(Default)]
struct Catalogue {
    by_id: BTreeMap<TableId, Arc<Table>>,
    /// At the coordinator.
    by_name: HashMap<String, TableId>,
    /// At the coordinator: the number of the next table.
    next_id: u32,
    /// At the coordinator: tables that were dropped, and at the other nodes perhaps not yet.
    dropped: BTreeSet<TableId>,
    /// At the others: the numbers of dropped tables, of which none is made again.
    forgotten: Runs<()>,
    /// How often a name has come to lead elsewhere.
    name_changes: u64,
}

impl Tables {
    /// No tables; those to come are made as `options` say.
    pub(crate) fn new(
        epoch: Epoch,
        options: NodeOptions,
        memory: Arc<MemoryLimit>,
        durable: Option<Arc<Durable>>,
    ) -> Self {
        let catalogue = durable.as_ref().map_or_else(Catalogue::default, |durable| Catalogue {
            next_id: durable.next_table(),
            dropped: durable.dropped(),
            forgotten: durable.forgotten(),
            ..Catalogue::default()
        });
        let place = durable.as_ref().and_then(|durable| durable.place());
        let pool = place.as_ref().map_or_else(OnceLock::new, |place| OnceLock::from(place.coordinator()));
        Self {
            epoch,
            catalogue: RwLock::new(catalogue),
            version: AtomicU64::new(0),
            place: RwLock::new(place.map(Arc::new)),
            pool,
            changing: Mutex::default(),
            prepared: Mutex::default(),
            options,
            memory,
            durable,
        }
    }

    /// Makes the region of an XStore table to come: the next one without a region gets it.
    pub(crate) fn prepare(&self, listeners: &Listeners) -> Result<Arc<dyn Region>, FabricError> {
        let region = listeners.create_growing_region(self.options.table_memory_bytes)?;
        let region = self.memory.of_region(region);
        lock(&self.prepared).push_back(Arc::clone(&region));
        Ok(region)
    }

    /// What limits the memory of the process.
    pub(crate) fn memory(&self) -> &MemoryLimit {
        &self.memory
    }

    /// The clock by which pairs end.
    pub(crate) fn unix_time(&self) -> &dyn UnixTime {
        &*self.options.unix_time
    }

    /// The tables, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Arc<Table>> {
        self.from(TableId(0))
    }

    /// The tables whose numbers are not below `first`, in their order.
    pub(crate) fn from(&self, first: TableId) -> Vec<Arc<Table>> {
        self.read().by_id.range(first..).map(|(_, table)| Arc::clone(table)).collect()
    }

    /// This node's epoch in pools, the same in all lives of a directory of data.
    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// The pool of these tables, once there is one.
    pub(crate) fn place(&self) -> Option<Arc<PoolPlace>> {
        // Each change is complete.
        self.place.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What names the pool, once there is one: the epoch of the coordinator that it had first.
    pub(crate) fn pool(&self) -> Option<Epoch> {
        self.pool.get().copied()
    }

    fn set_place(&self, place: Option<PoolPlace>) {
        *self.place.write().unwrap_or_else(PoisonError::into_inner) = place.map(Arc::new);
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

    /// How often names have come to lead elsewhere.
    pub(crate) fn name_changes(&self) -> u64 {
        self.read().name_changes
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
        let hosting = self.hosting(&layout, &place)?;
        self.check_memory(&layout)?;
        self.check_ack(&layout)?;
        self.check_place(&place)?;
        let _changing = lock(&self.changing);
        if let Some(own) = self.place().filter(|own| **own != place) {
            return Err(other_pool(&own, &place));
        }
        let name = layout.definition.name.clone();
        let found = match id {
            None => self.find(&name),
            Some(id) => self.read().by_id.get(&id).cloned(),
        };
        if let Some(table) = found {
            check_same(&table, &layout, id)?;
            if id.is_some() && table.name().get() != name {
                // The coordinator has renamed it since.
                if let Some(durable) = &self.durable {
                    durable.rename_tables(&[(table.id(), &name)])?;
                }
                table.name().set(&name);
            }
            return Ok(table);
        }
        let id = self.number_for(&layout, &place, id)?;
        self.make(listeners, &hosting, layout, place, id, |layout, place| match &self.durable {
            Some(durable) => durable.create_table(id, layout, place),
            None => Ok(()),
        })
    }

    /// Refuses a table that wants more memory than this node gives one, or too little for anything.
    fn check_memory(&self, layout: &TableLayout) -> Result<(), ServerError> {
        let most = self.options.table_memory_bytes;
        let TableDefinition { name, memory_bytes, .. } = &layout.definition;
        match memory_bytes {
            Some(wanted) if !(MEMORY_BYTES_MIN.min(most)..=most).contains(wanted) => {
                let text = format!(
                    "table {name:?} is to have regions of {wanted} B; this node gives {MEMORY_BYTES_MIN} to {most} B"
                );
                Err(ServerError::new(ErrorCode::OutOfResources, text))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a promise that a node without a disk cannot keep.
    fn check_ack(&self, layout: &TableLayout) -> Result<(), ServerError> {
        let TableDefinition { name, ack, .. } = &layout.definition;
        if *ack != Some(Ack::Durable) || self.durable.is_some() {
            return Ok(());
        }
        let text = format!(
            "table {name:?} is to acknowledge what is durable, and this node keeps nothing on a disk: start it with \
             --data DIR"
        );
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }

    /// Makes a table again that a node's directory of data names.
    pub(crate) fn restore(
        &self,
        listeners: &Listeners,
        id: TableId,
        mut layout: TableLayout,
        place: PoolPlace,
    ) -> Result<Arc<Table>, ServerError> {
        let _changing = lock(&self.changing);
        // Its leaves are of this release.
        layout.format_version = FORMAT_VERSION;
        let hosting = self.hosting(&layout, &place)?;
        self.make(listeners, &hosting, layout, place, id, |_, _| Ok(()))
    }

    /// Makes a table, and shows it once `kept` says that it is kept.
    fn make(
        &self,
        listeners: &Listeners,
        hosting: &Hosting,
        layout: TableLayout,
        place: PoolPlace,
        id: TableId,
        kept: impl FnOnce(&TableLayout, &PoolPlace) -> Result<(), ServerError>,
    ) -> Result<Arc<Table>, ServerError> {
        let is_coordinator = place.index == 0;
        let options = (&self.options, &self.memory);
        let new = NewTable::new(&layout, id, &place, listeners, options, &self.prepared);
        let hosted = (hosting.host)(&new).and_then(|hosted| {
            if self.durable.is_some() && hosted.logged().is_none() {
                return Err(durable::no_log(hosting.kind.name));
            }
            kept(&layout, &place).map(|()| hosted)
        });
        let hosted = hosted.inspect_err(|_| new.withdraw_regions())?;
        let (name, shared_name) = (layout.definition.name.clone(), Arc::clone(new.name()));
        let table = Arc::new(Table::new(id, layout, place.clone(), shared_name, hosted));
        self.pool.get_or_init(|| place.coordinator());
        if self.place().is_none() {
            self.set_place(Some(place));
        }
        self.change(|catalogue| {
            if is_coordinator {
                catalogue.by_name.insert(name, id);
                catalogue.next_id = catalogue.next_id.max(id.0 + 1);
            }
            catalogue.by_id.insert(id, Arc::clone(&table));
        });
        Ok(table)
    }

    /// How a table of this layout is made, if this node can make it.
    fn hosting(&self, layout: &TableLayout, place: &PoolPlace) -> Result<Hosting, ServerError> {
        let hosting = (self.options.engines)(&layout.engine.name).map_err(|error| {
            let text = format!("table {:?}: {error}", layout.definition.name);
            ServerError::new(ErrorCode::BadRequest, text)
        })?;
        engine::check(&hosting, layout, place.epochs.len())?;
        if layout.format_version == FORMAT_VERSION {
            return Ok(hosting);
        }
        let text = format!(
            "table {:?} is of format {}, this node has {FORMAT_VERSION}: use nodes and clients of the same release",
            layout.definition.name, layout.format_version
        );
        Err(ServerError::new(ErrorCode::BadRequest, text))
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
        match id {
            Some(id) if place.index > 0 => {
                if catalogue.forgotten.overlap(Blocks { first: id.0, count: 1 }).is_none() {
                    return Ok(id);
                }
                let text = format!("table {name:?} with number {} was dropped", id.0);
                Err(ServerError::new(ErrorCode::UnknownTable, text))
            }
            None if place.index == 0 && catalogue.next_id < u32::MAX => Ok(TableId(catalogue.next_id)),
            None if place.index == 0 => {
                let text =
                    format!("the numbers of tables are used up: cannot make {name:?}. Start the node again");
                Err(ServerError::new(ErrorCode::OutOfResources, text))
            }
            _ => {
                let text = "the coordinator numbers tables, and the others are told";
                Err(ServerError::new(ErrorCode::BadRequest, text))
            }
        }
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

    /// Tells all clients how often names have come to lead elsewhere. The count grows under `_changing`, so
    /// that who is told of a change finds it done.
    fn tell_name_changes(&self, listeners: &Listeners, _changing: &MutexGuard<'_, ()>) {
        listeners.notify(self.name_changes());
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

fn unknown(id: TableId, count: usize) -> ServerError {
    let text = format!("no table has number {}; this node has {count} tables", id.0);
    ServerError::new(ErrorCode::UnknownTable, text)
}

/// The refusal of a place that is not this node's own.
fn other_pool(own: &PoolPlace, wanted: &PoolPlace) -> ServerError {
    let epochs = |place: &PoolPlace| {
        let epochs: Vec<String> = place.epochs.iter().map(|epoch| Epoch(*epoch).to_string()).collect();
        epochs.join(", ")
    };
    let text = format!(
        "this node is {own} in its pool [{}], not {wanted} [{}]. Clients agree on the pool's nodes and their order; a \
         node that lost its pool must be started again",
        epochs(own),
        epochs(wanted)
    );
    ServerError::new(ErrorCode::OtherPool, text)
}

fn check_same(table: &Table, wanted: &TableLayout, id: Option<TableId>) -> Result<(), ServerError> {
    let own = table.info().layout();
    let is_same = match id {
        None => own.is_wanted(wanted),
        Some(_) => own.is_as_made(wanted),
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
        table.id().0,
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
        BlockSpaceStats, ENGINE_NAME_BYTES_MAX, HashIndexStats, KeyKind, ModelStats, POOL_NODES_MAX,
        PartStats, RegionInfo, ReplyWriter, SnapshotStats, Space, SpaceStats, TableDefinition, TableEngine,
        TableInfo, TableStats, TreeStats, VALUE_TYPE_BYTES_MAX, ValueKind,
    };

    use super::*;
    use crate::NodeState;

    #[test]
    fn the_longest_statistics_of_a_table_fit_a_page() {
        let name = "n".repeat(TABLE_NAME_BYTES_MAX);
        let value_type = "t".repeat(VALUE_TYPE_BYTES_MAX);
        let info = TableInfo {
            id: TableId(u32::MAX),
            definition: TableDefinition {
                value_type,
                values: ValueKind::blocks(u32::MAX).expiring(u64::MAX),
                memory_bytes: Some(u64::MAX),
                ..TableDefinition::new(name, KeyKind::Bytes8, u16::MAX)
            },
            engine: TableEngine {
                name: "n".repeat(ENGINE_NAME_BYTES_MAX),
                boundaries: vec![u64::MAX; POOL_NODES_MAX - 1],
            },
            block_lines: u16::MAX,
            format_version: u32::MAX,
            place: PoolPlace { epochs: vec![u64::MAX; POOL_NODES_MAX], index: u8::MAX },
            regions: [Space::Leaves, Space::Meta, Space::Blocks]
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
        let blocks = Some(BlockSpaceStats::default());
        let block_bytes = 10 * size_of::<BlockSpaceStats>() / 8;
        let hash_index = Some(HashIndexStats::default());
        let index_bytes = 10 * size_of::<HashIndexStats>() / 4;
        let huge_page_bytes = u64::MAX;
        let (leaves, meta, greatest) = (space, space, Some(u64::MAX));
        let snapshot = SnapshotStats { pieces: u64::MAX, oldest_ms: greatest, median_ms: greatest };
        let snapshot = Some(snapshot);
        let stats = TableStats { info, leaves, meta, blocks, hash_index, huge_page_bytes, snapshot, part };
        let bytes = ReplyWriter::control_bytes(&stats) + part_bytes + block_bytes + index_bytes;
        assert!(bytes < NodeState::MESSAGE_BYTES_MIN / 2, "{bytes} B");
    }
}
