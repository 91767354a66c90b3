//! A table on this node, hosted as its engine wants it.

use std::sync::Arc;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::{Region, RegionRights};
use farsight_layout::pool::BlockGeometry;
use farsight_layout::{FORMAT_VERSION, Geometry};
use farsight_model::TrainOptions;
use farsight_protocol::{
    ComputeNode, ErrorCode, PoolPlace, RegionInfo, ServerError, Space, SpaceStats, TableEngine, TableId,
    TableInfo, TableLayout, TableStats,
};

use crate::Listeners;
use crate::rolex::PooledTable;
use crate::x_store::Part;

/// A table on this node.
pub(crate) struct Table {
    info: TableInfo,
    hosted: Hosted,
}

/// What a node keeps of a table, by its engine.
enum Hosted {
    XStore(Part),
    Rolex(PooledTable),
}

/// What tables are made of.
pub(crate) struct Material<'a> {
    pub(crate) listeners: &'a Listeners,
    pub(crate) memory_bytes: u64,
    pub(crate) train_options: TrainOptions,
    /// Why clients cannot write regions here, if they cannot.
    pub(crate) read_only: Option<&'a str>,
    /// A region that was made before its table.
    pub(crate) prepared: Option<Arc<dyn Region>>,
}

impl Material<'_> {
    /// A region for the table called `name`.
    fn region(
        &self,
        name: &str,
        length_bytes: u64,
        rights: RegionRights,
    ) -> Result<Arc<dyn Region>, ServerError> {
        self.listeners.create_region(length_bytes, rights).map_err(|error| {
            let text = format!(
                "table {name:?} needs a region of {length_bytes} B: {error}. Give tables less memory, or the node more"
            );
            ServerError::new(ErrorCode::OutOfResources, text)
        })
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
        let (hosted, regions) = match &engine {
            TableEngine::XStore { .. } => {
                let region = || match &material.prepared {
                    Some(region) => Ok(Arc::clone(region)),
                    None => material.region(name, bytes, RegionRights::ReadOnly),
                };
                let part = Part::new(&definition, region, material.train_options)?;
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
                let table = PooledTable::new(&definition, place.index == 0, bytes, create)?;
                let regions = table.regions();
                (Hosted::Rolex(table), regions)
            }
        };
        let info = TableInfo { id, definition, engine, block_lines, format_version, place, regions };
        Ok(Self { info, hosted })
    }

    pub(crate) fn info(&self) -> &TableInfo {
        &self.info
    }

    pub(crate) fn name(&self) -> &str {
        &self.info.definition.name
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
        let info = self.info.clone();
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
