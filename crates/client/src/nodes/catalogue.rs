//! The catalogue of these nodes: a table is made at the coordinator, which numbers it, then at the others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::sync::Ordering;
use farsight_fabric::{Connection, QueuePair};
use farsight_index::UnfitTable;
use farsight_layout::FORMAT_VERSION;
use farsight_protocol::{
    ControlRequest, ErrorCode, NodeStats, POOL_NODES_MAX, PoolPlace, RegionInfo, TableId, TableInfo,
    TableLayout, TableStats,
};
use serde::de::DeserializeOwned;

use super::{Known, Node, Nodes};
use crate::backend::NewTable;
use crate::engine::{FoundEngine, Sharing};
use crate::{CatalogueError, PoolError};

impl<C: Connection> Nodes<C> {
    /// Makes a table on all nodes, or finds the one of the same definition.
    pub(crate) fn create_table(&self, table: &NewTable) -> Result<Arc<Known<C>>, CatalogueError> {
        let layout = self.layout_of(table)?;
        self.check_whole("made")?;
        self.epochs()?;
        self.let_go()?;
        // Room that dropped tables have at nodes that were not told.
        self.tell_dropped()?;
        let coordinator = self.part(0, &layout, None)?;
        self.adopt(coordinator)
    }

    /// In which layout its engine makes a table over these nodes.
    fn layout_of(&self, table: &NewTable) -> Result<TableLayout, CatalogueError> {
        let (definition, nodes) = (table.definition.clone(), self.pool_nodes());
        let kind = match table.engine {
            Some(kind) => (self.engines.over)(kind, nodes),
            None => (self.engines.usual)(nodes, definition.key_kind)
                .ok_or(PoolError::Count { max: POOL_NODES_MAX, got: nodes })?,
        };
        let unfit =
            |source: UnfitTable| CatalogueError::Unfit { table: table.definition.name.clone(), source };
        let lines =
            (kind.block_lines)(definition.values.leaf_bytes()).map_err(|error| unfit(error.into()))?;
        let engine = kind.table(&table.sample, nodes);
        let (block_lines, format_version) = (lines as u16, FORMAT_VERSION);
        let layout = TableLayout { definition, engine, block_lines, format_version };
        kind.check(&layout, nodes).map_err(unfit)?;
        Ok(layout)
    }

    /// The engine of a table that a node describes so.
    fn engine_of(&self, layout: &TableLayout) -> Result<FoundEngine<C>, CatalogueError> {
        let table = || layout.definition.name.clone();
        let found = self.engines.find(&layout.engine.name);
        found.map_err(|source| CatalogueError::UnknownEngine { table: table(), source })
    }

    /// The table of this name, if it was opened in these epochs.
    pub(crate) fn known_table(&self, name: &str) -> Option<Arc<Known<C>>> {
        let tables = lock(&self.tables);
        tables.by_id.values().find(|known| known.info.definition.name == name).cloned()
    }

    /// Opens the table of this name, and completes it where its maker did not.
    pub(crate) fn open_table(&self, name: &str) -> Result<Arc<Known<C>>, CatalogueError> {
        self.epochs()?;
        self.let_go()?;
        self.adopt(self.ask(0, &ControlRequest::OpenTable(name.to_owned()))?)
    }

    /// All tables, as the coordinator knows them.
    pub(crate) fn table_infos(&self) -> Result<Vec<TableInfo>, CatalogueError> {
        self.epochs()?;
        let infos = self.pages(0, |from| ControlRequest::ListTables { from }, |info: &TableInfo| info.id)?;
        Ok(infos.iter().map(|info| whole(std::slice::from_ref(info))).collect())
    }

    /// What a node says of itself and its tables.
    pub(crate) fn node_stats(&self, node: usize) -> Result<NodeStats, CatalogueError> {
        let stats: NodeStats = self.ask(node, &ControlRequest::Stats)?;
        let id = |table: &TableStats| table.info.id;
        let tables = self.pages(node, |from| ControlRequest::TableStats { from }, id)?;
        Ok(NodeStats { tables, ..stats })
    }

    /// Everything that a node answers page by page, in the order of tables' numbers.
    fn pages<T: DeserializeOwned>(
        &self,
        node: usize,
        request: impl Fn(TableId) -> ControlRequest,
        id: impl Fn(&T) -> TableId,
    ) -> Result<Vec<T>, CatalogueError> {
        let mut all: Vec<T> = Vec::new();
        let mut from = TableId(0);
        loop {
            let page: Vec<T> = self.ask(node, &request(from))?;
            // A page that does not lead on ends it, too: nodes may lie.
            let last = page.iter().map(&id).filter(|id| *id >= from).max();
            all.extend(page);
            let Some(next) = last.and_then(|last| last.0.checked_add(1)) else { return Ok(all) };
            from = TableId(next);
        }
    }

    fn part(
        &self,
        node: usize,
        layout: &TableLayout,
        coordinator: Option<&TableInfo>,
    ) -> Result<TableInfo, CatalogueError> {
        let place = PoolPlace { epochs: self.epochs()?.to_vec(), index: self.places[node] as u8 };
        let id = coordinator.map(|info| info.id);
        let request = ControlRequest::CreateTable { layout: layout.clone(), place, id };
        let info: TableInfo = match self.ask(node, &request) {
            Err(CatalogueError::Refused { source, .. })
                if source.code == ErrorCode::OtherPool && layout.definition.replicas() > 1 =>
            {
                // It may have another list of nodes by now. Then all of them say so.
                return Err(self.list_changed().into());
            }
            asked => asked?,
        };
        self.check_part(node, &info, layout, coordinator)?;
        Ok(info)
    }

    /// Lets go of tables that were dropped, if any was since the last time: of their caches, and of their
    /// regions. Sessions on them let go of theirs when they are used, or closed.
    pub(crate) fn let_go(&self) -> Result<(), CatalogueError> {
        let count = self.heard_name_changes()?;
        if lock(&self.tables).let_go_at == count { Ok(()) } else { self.let_go_of_dropped(count) }
    }

    /// [`Nodes::let_go`] after a count of name changes was heard, or one that is still to be heard.
    pub(crate) fn let_go_of_dropped(&self, count: u64) -> Result<(), CatalogueError> {
        let ids: Vec<TableId> = {
            let tables = lock(&self.tables);
            tables.by_id.keys().chain(tables.former.keys()).copied().collect()
        };
        if ids.is_empty() {
            return Ok(());
        }
        let listed = self.table_infos()?;
        let is_there = |id: &TableId| listed.iter().any(|info| info.id == *id);
        let mut tables = lock(&self.tables);
        tables.let_go_at = tables.let_go_at.max(count);
        tables.former.retain(|id, _| is_there(id));
        let gone = ids.iter().filter(|id| !is_there(id)).filter_map(|id| tables.by_id.remove(id));
        for known in gone {
            for (node, info) in self.all.iter().zip(&known.infos) {
                node.asker.detach(info.regions.iter().map(RegionInfo::id));
            }
        }
        Ok(())
    }

    /// The table that the coordinator describes so, opened once.
    pub(crate) fn adopt(&self, coordinator: TableInfo) -> Result<Arc<Known<C>>, CatalogueError> {
        let former = lock(&self.tables).by_id.get(&coordinator.id).cloned();
        if let Some(known) = former.as_ref().filter(|known| known.infos[0] == coordinator) {
            return Ok(Arc::clone(known));
        }
        let layout = coordinator.layout();
        let name = || layout.definition.name.clone();
        if layout.format_version != FORMAT_VERSION {
            let (peer, got) = (self.peer(0).to_owned(), layout.format_version);
            return Err(CatalogueError::FormatVersion { peer, table: name(), expected: FORMAT_VERSION, got });
        }
        let engine = self.engine_of(&layout)?;
        if engine.kind.check(&layout, self.pool_nodes()).is_err() {
            return Err(PoolError::Unsound { peer: self.peer(0).to_owned(), table: name() }.into());
        }
        if layout.definition.replicas() <= self.lost.count() {
            return Err(PoolError::Lost { table: name(), lost: self.lost, nodes: self.pool_nodes() }.into());
        }
        self.check_part(0, &coordinator, &layout, None)?;
        let mut infos = vec![coordinator];
        for node in 1..self.count() {
            infos.push(self.part(node, &layout, Some(&infos[0]))?);
        }
        self.meet()?;
        self.tell_addresses()?;
        // Under another name it keeps its caches.
        let sharing = match former {
            Some(former) => Arc::clone(&former.sharing),
            None => match self.inherited(&infos) {
                Some(sharing) => sharing,
                None => (engine.share)(&layout, &infos)?,
            },
        };
        if layout.definition.replicas() > 1 {
            // Relaxed, here and below: a flag by itself, which is never cleared.
            self.has_replicas.store(true, Ordering::Relaxed);
        }
        let info = Arc::new(whole(&infos));
        let mut known = Known { infos, info, kind: engine.kind, sharing };
        let mut tables = lock(&self.tables);
        tables.former.remove(&known.info.id);
        if let Some(kept) = tables.by_id.get(&known.info.id) {
            if kept.infos == known.infos {
                return Ok(Arc::clone(kept));
            }
            // Another thread has opened it under another name meanwhile. The process has one of its caches.
            known.sharing = Arc::clone(&kept.sharing);
        }
        let known = Arc::new(known);
        tables.by_id.insert(known.info.id, Arc::clone(&known));
        Ok(known)
    }

    /// Keeps what sessions shared over `former` connections, where it serves others, until its tables are
    /// opened here.
    pub(super) fn inherit(&self, former: &Self) {
        self.has_replicas.store(former.has_replicas.load(Ordering::Relaxed), Ordering::Relaxed);
        let former = {
            let tables = lock(&former.tables);
            let mut all = tables.former.clone();
            all.extend(tables.by_id.iter().map(|(id, known)| (*id, Arc::clone(known))));
            all
        };
        let serves = |known: &Arc<Known<C>>| known.sharing.outlives_connections();
        lock(&self.tables).former.extend(former.into_iter().filter(|(_, known)| serves(known)));
    }

    /// What sessions shared of a table over the connections before, if all nodes describe it as they did: in
    /// the same epochs, and with the same regions.
    fn inherited(&self, infos: &[TableInfo]) -> Option<Arc<dyn Sharing<C>>> {
        let former = lock(&self.tables).former.get(&infos[0].id).cloned()?;
        (former.infos == infos).then(|| Arc::clone(&former.sharing))
    }

    /// Refuses a change of the catalogue that not all nodes would hear of.
    pub(crate) fn check_whole(&self, changed: &'static str) -> Result<(), CatalogueError> {
        if self.lost.count() == 0 {
            return Ok(());
        }
        self.check_agreed()?;
        Err(PoolError::Incomplete { changed, lost: self.lost, nodes: self.pool_nodes() }.into())
    }

    /// Refuses what a node says of a table if it cannot be.
    fn check_part(
        &self,
        node: usize,
        info: &TableInfo,
        layout: &TableLayout,
        coordinator: Option<&TableInfo>,
    ) -> Result<(), CatalogueError> {
        let Node { connection, asker } = &self.all[node];
        let spaces = self.engine_of(layout)?.kind.spaces(self.places[node], layout.definition.values);
        // Where ranges begin, the coordinator says.
        let is_as_requested = match coordinator {
            None => info.layout().is_wanted(layout),
            Some(coordinator) => info.layout() == *layout && coordinator.id == info.id,
        };
        let mut is_sound = is_as_requested
            && usize::from(info.place.index) == self.places[node]
            && info.place.epochs == self.epochs()?
            && info.regions.iter().map(|region| region.space).eq(spaces);
        for region in &info.regions {
            let bytes = info.bytes_of(region);
            is_sound &= asker.with_queue(connection, |queue| queue.attach(region.id()))? >= bytes;
        }
        if is_sound {
            return Ok(());
        }
        if layout.definition.replicas() > 1 && info.place.epochs != self.epochs()? {
            return Err(self.list_changed().into());
        }
        let (peer, table) = (self.peer(node).to_owned(), layout.definition.name.clone());
        Err(PoolError::Unsound { peer, table }.into())
    }
}

/// A table as its parts make it up: the coordinator's description, with the leaves of all.
fn whole(infos: &[TableInfo]) -> TableInfo {
    let mut whole = infos[0].clone();
    let leaves = infos.iter().map(TableInfo::capacity_leaves).fold(0, u32::saturating_add);
    for region in &mut whole.regions {
        if region.space == farsight_protocol::Space::Leaves {
            region.capacity = leaves;
        }
    }
    whole
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is ever half done under these.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
