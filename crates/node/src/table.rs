//! A table on this node, hosted as its engine wants it.

use std::cell::RefCell;
use std::sync::Arc;

use farsight_base::clock::MonotonicNs;
use farsight_base::{ClientId, RegionId};
use farsight_fabric::{Region, RegionRights};
use farsight_layout::pool::BlockGeometry;
use farsight_layout::{FORMAT_VERSION, Geometry};
use farsight_model::TrainOptions;
use farsight_protocol::{
    ComputeNode, ErrorCode, PoolPlace, RegionInfo, ServerError, Space, SpaceStats, TableEngine, TableId,
    TableInfo, TableLayout, TableStats,
};

use crate::rolex::PooledTable;
use crate::table_name::TableName;
use crate::x_store::Part;
use crate::{Listeners, NodeOptions};

/// A table on this node.
pub(crate) struct Table {
    /// What it was made as; its name is `name`.
    info: TableInfo,
    name: Arc<TableName>,
    hosted: Hosted,
}

/// What a node keeps of a table, by its engine.
enum Hosted {
    XStore(Part),
    Rolex(PooledTable),
}

/// What tables are made of.
pub(crate) struct Material<'a> {
    listeners: &'a Listeners,
    memory_bytes: u64,
    train_options: TrainOptions,
    /// Why clients cannot write regions here, if they cannot.
    read_only: Option<&'a str>,
    /// A region that was made before its table.
    prepared: Option<Arc<dyn Region>>,
    /// Regions that were given to the table.
    given: RefCell<Vec<RegionId>>,
}

impl<'a> Material<'a> {
    /// What `options` say, and a region that was made before its table, if there is one.
    pub(crate) fn new(
        listeners: &'a Listeners,
        options: &'a NodeOptions,
        prepared: Option<Arc<dyn Region>>,
    ) -> Self {
        Self {
            listeners,
            memory_bytes: options.table_memory_bytes,
            train_options: options.training,
            read_only: options.read_only.as_deref(),
            given: RefCell::new(prepared.iter().map(Region::id).collect()),
            prepared,
        }
    }

    /// Withdraws the regions that were given to a table of which nothing came.
    pub(crate) fn give_up(&self) {
        for region in self.given.take() {
            // Whoever does not serve it any more has nothing to give up.
            let _ = self.listeners.withdraw_region(region);
        }
    }

    /// A region for the table called `name`.
    fn region(
        &self,
        name: &str,
        length_bytes: u64,
        rights: RegionRights,
    ) -> Result<Arc<dyn Region>, ServerError> {
        let region = self.listeners.create_region(length_bytes, rights).map_err(|error| {
            let text = format!(
                "table {name:?} needs a region of {length_bytes} B: {error}. Give tables less memory, or the node more"
            );
            ServerError::new(ErrorCode::OutOfResources, text)
        })?;
        self.given.borrow_mut().push(region.id());
        Ok(region)
    }
}

impl Table {
    /// An empty table in regions of its own.
    pub(crate) fn new(
        id: TableId,
        layout: TableLayout,
        place: PoolPlace,
        material: &Material<'_>,
    ) -> Result<Self, ServerError> {
        let TableLayout { definition, engine, block_lines, format_version } = layout;
        let (name, bytes) = (&definition.name, material.memory_bytes);
        let shared_name = Arc::new(TableName::new(name));
        let (hosted, regions) = match &engine {
            TableEngine::XStore { .. } => {
                let region = || match &material.prepared {
                    Some(region) => Ok(Arc::clone(region)),
                    None => material.region(name, bytes, RegionRights::ReadOnly),
                };
                let part = Part::new(&definition, &shared_name, region, material.train_options)?;
                let region = RegionInfo {
                    space: Space::Leaves,
                    id: part.region().id().0,
                    capacity: part.capacity_leaves(),
                };
                (Hosted::XStore(part), vec![region])
            }
            TableEngine::Rolex => {
                if let Some(why) = material.read_only {
                    let text = format!("table {name:?} cannot be of {engine} here: {why}");
                    return Err(ServerError::new(ErrorCode::BadRequest, text));
                }
                let create = |bytes| material.region(name, bytes, RegionRights::ReadWrite);
                let table = PooledTable::new(&definition, &shared_name, place.index == 0, bytes, create)?;
                let regions = table.regions();
                (Hosted::Rolex(table), regions)
            }
        };
        let info = TableInfo { id, definition, engine, block_lines, format_version, place, regions };
        Ok(Self { info, name: shared_name, hosted })
    }

    /// What clients are told of it, under its name now.
    pub(crate) fn info(&self) -> TableInfo {
        let mut info = self.info.clone();
        info.definition.name = self.name.get();
        info
    }

    /// Its number.
    pub(crate) fn id(&self) -> TableId {
        self.info.id
    }

    /// Its name, which may change.
    pub(crate) fn name(&self) -> &TableName {
        &self.name
    }

    /// This node's place among those for which it was made.
    pub(crate) fn place(&self) -> &PoolPlace {
        &self.info.place
    }

    /// Its regions here.
    pub(crate) fn regions(&self) -> &[RegionInfo] {
        &self.info.regions
    }

    /// Its tree and model, which this node's processor keeps.
    pub(crate) fn x_store(&self) -> Result<&Part, ServerError> {
        match &self.hosted {
            Hosted::XStore(part) => Ok(part),
            Hosted::Rolex(_) => Err(self.other_engine("compute nodes read and write it one-sided")),
        }
    }

    /// Its blocks, which compute nodes are given.
    pub(crate) fn rolex(&self) -> Result<&PooledTable, ServerError> {
        match &self.hosted {
            Hosted::Rolex(table) => Ok(table),
            Hosted::XStore(_) => Err(self.other_engine("its node gives out its leaves")),
        }
    }

    fn other_engine(&self, who: &str) -> ServerError {
        let text = format!("table {:?} is of {}: {who}", self.name(), self.info.engine);
        ServerError::new(ErrorCode::BadRequest, text)
    }

    /// Takes over what a compute node had, none of whose verbs can execute any more.
    pub(crate) fn end(&self, owner: ComputeNode) {
        if let Hosted::Rolex(table) = &self.hosted {
            table.end(owner);
        }
    }

    /// Gives back what was kept for a client that has ended.
    pub(crate) fn forget(&self, client: ClientId) {
        if let Hosted::XStore(part) = &self.hosted {
            part.forget(client);
        }
    }

    /// The table's statistics at `now`.
    pub(crate) fn stats(&self, now: MonotonicNs) -> TableStats {
        let info = self.info();
        match &self.hosted {
            Hosted::XStore(part) => {
                let (leaves, meta) = (part.leaves(), SpaceStats::default());
                let huge_page_bytes = part.region().huge_page_bytes();
                TableStats { info, leaves, meta, huge_page_bytes, part: Some(part.stats(now)) }
            }
            Hosted::Rolex(table) => {
                let (leaves, meta) = table.spaces();
                TableStats { info, leaves, meta, huge_page_bytes: table.huge_page_bytes(), part: None }
            }
        }
    }
}

/// Refuses leaves of another shape than this node's.
pub(crate) fn check_leaves(layout: &TableLayout) -> Result<(), ServerError> {
    let (name, value_bytes) = (&layout.definition.name, usize::from(layout.definition.value_bytes));
    let lines = match layout.engine {
        TableEngine::XStore { .. } => Geometry::new(value_bytes).map(|geometry| geometry.leaf_lines()),
        TableEngine::Rolex => BlockGeometry::new(value_bytes).map(|geometry| geometry.lines()),
    };
    let lines = lines
        .map_err(|error| ServerError::new(ErrorCode::WrongValueSize, format!("table {name:?}: {error}")))?;
    if (lines, FORMAT_VERSION) == (layout.block_lines.into(), layout.format_version) {
        return Ok(());
    }
    let text = format!(
        "table {name:?} has leaves of {lines} lines in format {FORMAT_VERSION}, not {} in format {}: use nodes and \
         clients of the same release",
        layout.block_lines, layout.format_version
    );
    Err(ServerError::new(ErrorCode::BadRequest, text))
}
