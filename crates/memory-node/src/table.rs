//! One table's part on this node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};
use farsight_fabric::{Region, RegionRights};
use farsight_layout::pool::BlockGeometry;
use farsight_layout::{FORMAT_VERSION, Geometry, GeometryError, OWNER_WORD};
use farsight_node::Listeners;
use farsight_protocol::{
    Blocks, ComputeNode, ErrorCode, POOL_BLOCKS_MAX, PartStats, PoolDefinition, PoolPlace, PoolTableInfo,
    PoolTableStats, ServerError, Space, SpaceStats, TableEngine, TableId, TableStats,
};
use farsight_server::ServerState;

use crate::NodeState;
use crate::blocks::BlockSpace;

/// Leaves of one node at most: what a place in a pool has bits for.
const LEAVES_MAX: u64 = (1 << 28) - 1;
/// Of a table's memory, this part more is home's for directory and models.
const META_PART: u64 = 8;
/// Lines behind the last written one that may belong to the same piece.
const META_MARGIN_LINES: u32 = 64;
/// The least that they get.
const META_BYTES_MIN: u64 = 256 << 10;

/// A table on this node.
pub(crate) struct Table {
    info: PoolTableInfo,
    /// `None` for a part of an XStore-D table, whose leaves this node's processor gives out.
    blocks: Option<TableBlocks>,
}

/// What compute nodes are given of a ROLEX table.
struct TableBlocks {
    leaves: Part,
    /// Directory and models: on home.
    meta: Option<Part>,
}

/// A region, and who has which of its blocks.
struct Part {
    region: Arc<dyn Region>,
    block_words: usize,
    blocks: Mutex<BlockSpace>,
}

impl Part {
    fn new(region: Arc<dyn Region>, what: &'static str, block_lines: usize, reserved: u32) -> Self {
        let block_words = block_lines * WORDS_PER_LINE;
        let capacity = ((region.words().len() / block_words) as u64).min(LEAVES_MAX) as u32;
        Self { region, block_words, blocks: Mutex::new(BlockSpace::new(what, capacity, reserved)) }
    }

    fn blocks(&self) -> MutexGuard<'_, BlockSpace> {
        // Each change of the space is complete, or a bug that ends all answers.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_unwritten(&self, block: u32) -> bool {
        let first = block as usize * self.block_words;
        let words = &self.region.words()[first..first + self.block_words];
        // Relaxed: whoever could write them has ended, which the fabric has waited for.
        words.iter().all(|word| word.load(Ordering::Relaxed) == 0)
    }
}

/// Refuses leaves of another shape than this node's.
fn check_leaves(definition: &PoolDefinition, lines: usize) -> Result<(), ServerError> {
    let format_version = definition.format_version;
    if (lines, FORMAT_VERSION) == (definition.block_lines.into(), format_version) {
        return Ok(());
    }
    let text = format!(
        "table {:?} has leaves of {lines} lines in format {FORMAT_VERSION}, not {} in format {format_version}: use nodes \
         and clients of the same release",
        definition.table.name, definition.block_lines
    );
    Err(ServerError::new(ErrorCode::BadRequest, text))
}

/// The refusal of a size of values that no leaf can hold.
fn wrong_value_size(definition: &PoolDefinition, error: GeometryError) -> ServerError {
    let text = format!("table {:?}: {error}", definition.table.name);
    ServerError::new(ErrorCode::WrongValueSize, text)
}

/// Writes the leaf that holds every key of an empty table, before anybody knows its region.
fn write_first_leaf(geometry: &BlockGeometry, region: &[AtomicU64]) {
    for (word, value) in region.iter().zip(geometry.first_leaf()) {
        // Relaxed: clients learn of the region by an answer that follows.
        word.store(value, Ordering::Relaxed);
    }
}

impl Table {
    /// An empty table with regions of its own.
    pub(crate) fn new(
        id: TableId,
        definition: PoolDefinition,
        place: PoolPlace,
        node: &NodeState,
        memory_bytes: u64,
    ) -> Result<Self, ServerError> {
        match definition.engine {
            TableEngine::Rolex => Self::of_blocks(id, definition, place, &node.listeners, memory_bytes),
            TableEngine::XStoreD { .. } => Self::of_x_store(id, definition, place, &node.parts),
        }
    }

    /// A ROLEX table.
    fn of_blocks(
        id: TableId,
        definition: PoolDefinition,
        place: PoolPlace,
        listeners: &Listeners,
        memory_bytes: u64,
    ) -> Result<Self, ServerError> {
        let geometry = BlockGeometry::new(definition.table.value_bytes.into())
            .map_err(|error| wrong_value_size(&definition, error))?;
        check_leaves(&definition, geometry.lines())?;
        let create = |length_bytes: u64| {
            listeners.create_region(length_bytes, RegionRights::ReadWrite).map_err(|error| {
                let name = &definition.table.name;
                let text = format!("table {name:?} needs a region of {length_bytes} B: {error}");
                ServerError::new(ErrorCode::OutOfResources, text)
            })
        };
        // Home's first leaf is the table's.
        let reserved = u32::from(place.index == 0);
        let leaves = Part::new(create(memory_bytes)?, "leaves", geometry.lines(), reserved);
        if place.index == 0 {
            write_first_leaf(&geometry, leaves.region.words());
        }
        let meta_bytes = (memory_bytes / META_PART).max(META_BYTES_MIN);
        let meta = if place.index == 0 { Some(Part::new(create(meta_bytes)?, "lines", 1, 1)) } else { None };
        let info = PoolTableInfo {
            id,
            definition,
            place,
            leaf_region: leaves.region.id().0,
            capacity_leaves: leaves.blocks().capacity(),
            meta_region: meta.as_ref().map_or(0, |part| part.region.id().0),
            meta_lines: meta.as_ref().map_or(0, |part| part.blocks().capacity()),
        };
        Ok(Self { info, blocks: Some(TableBlocks { leaves, meta }) })
    }

    /// A part of an XStore-D table.
    fn of_x_store(
        id: TableId,
        definition: PoolDefinition,
        place: PoolPlace,
        parts: &ServerState,
    ) -> Result<Self, ServerError> {
        let geometry = Geometry::new(definition.table.value_bytes.into())
            .map_err(|error| wrong_value_size(&definition, error))?;
        check_leaves(&definition, geometry.leaf_lines())?;
        let part = parts.create_numbered(id, &definition.table)?;
        let (leaf_region, capacity_leaves) = (part.leaf_region, part.capacity_leaves);
        let (meta_region, meta_lines) = (0, 0);
        let info =
            PoolTableInfo { id, definition, place, leaf_region, capacity_leaves, meta_region, meta_lines };
        Ok(Self { info, blocks: None })
    }

    pub(crate) fn info(&self) -> &PoolTableInfo {
        &self.info
    }

    pub(crate) fn name(&self) -> &str {
        &self.info.definition.table.name
    }

    fn part(&self, space: Space) -> Result<&Part, ServerError> {
        let refuse = |text: String| Err(ServerError::new(ErrorCode::BadRequest, text));
        match (&self.blocks, space) {
            (None, _) => refuse(format!(
                "table {:?} is of {}: its memory nodes give out its leaves",
                self.name(),
                self.info.definition.engine
            )),
            (Some(blocks), Space::Leaves) => Ok(&blocks.leaves),
            (Some(TableBlocks { meta: Some(meta), .. }), Space::Meta) => Ok(meta),
            (Some(_), Space::Meta) => {
                refuse(format!("directory and models of table {:?} are at home", self.name()))
            }
        }
    }

    /// Gives blocks to a compute node.
    pub(crate) fn allocate(
        &self,
        owner: ComputeNode,
        space: Space,
        count: u32,
    ) -> Result<Blocks, ServerError> {
        let mut blocks = self.part(space)?.blocks();
        let given = match space {
            Space::Leaves => blocks.allocate_some(owner, count),
            Space::Meta => blocks.allocate_exact(owner, count),
        };
        given
            .map_err(|error| ServerError::new(error.code, format!("table {:?}: {}", self.name(), error.text)))
    }

    /// Takes blocks of `owner` back; how many.
    pub(crate) fn free(&self, owner: ComputeNode, space: Space, runs: &[Blocks]) -> Result<u64, ServerError> {
        self.part(space)?.blocks().free(owner, runs)
    }

    /// Makes blocks `owner`'s.
    pub(crate) fn adopt(&self, owner: ComputeNode, space: Space, runs: &[Blocks]) -> Result<(), ServerError> {
        self.part(space)?.blocks().adopt(owner, runs)
    }

    /// Makes blocks of `owner` the table's for good.
    pub(crate) fn settle(
        &self,
        owner: ComputeNode,
        space: Space,
        runs: &[Blocks],
    ) -> Result<(), ServerError> {
        self.part(space)?.blocks().settle(owner, runs)
    }

    /// Compute nodes that have ended and left blocks.
    pub(crate) fn ended(&self, space: Space) -> Result<Vec<ComputeNode>, ServerError> {
        Ok(self.part(space)?.blocks().ended())
    }

    /// Gives a compute node blocks of an ended one, to look at.
    pub(crate) fn take_orphans(
        &self,
        owner: ComputeNode,
        space: Space,
        of: ComputeNode,
    ) -> Result<Vec<Blocks>, ServerError> {
        Ok(self.part(space)?.blocks().take_orphans(owner, of, POOL_BLOCKS_MAX as u32))
    }

    /// The lock word of one of this node's leaves.
    pub(crate) fn lock_word(&self, block: u32) -> Result<u64, ServerError> {
        let leaves = self.part(Space::Leaves)?;
        let word = leaves.region.words().get(block as usize * leaves.block_words + OWNER_WORD);
        // Relaxed: it is compared with what a client saw, and orders nothing.
        word.map(|word| word.load(Ordering::Relaxed)).ok_or_else(|| {
            let text = format!("table {:?} has no leaf {block} here", self.name());
            ServerError::new(ErrorCode::BadRequest, text)
        })
    }

    /// Takes over what a compute node had, none of whose verbs can execute any more.
    pub(crate) fn end(&self, owner: ComputeNode) {
        let Some(TableBlocks { leaves, meta }) = &self.blocks else { return };
        leaves.blocks().end(owner, None, |block| leaves.is_unwritten(block));
        if let Some(meta) = meta {
            meta.blocks().end(owner, Some(META_MARGIN_LINES), |line| meta.is_unwritten(line));
        }
    }

    pub(crate) fn stats(&self, parts: &ServerState, now: MonotonicNs) -> PoolTableStats {
        let info = self.info.clone();
        let Some(TableBlocks { leaves, meta }) = &self.blocks else {
            return Self::part_stats(info, parts, now);
        };
        let meta = meta.as_ref();
        PoolTableStats {
            info,
            leaves: leaves.blocks().stats(leaves.block_words as u64 * 8),
            meta: meta.map(|part| part.blocks().stats(LINE_BYTES as u64)).unwrap_or_default(),
            huge_page_bytes: leaves.region.huge_page_bytes()
                + meta.map_or(0, |part| part.region.huge_page_bytes()),
            part: None,
        }
    }

    fn part_stats(info: PoolTableInfo, parts: &ServerState, now: MonotonicNs) -> PoolTableStats {
        let TableStats { tree, model, region, .. } =
            parts.table_stats(info.id, now).expect("a part was made before its table");
        let block_bytes = info.block_bytes();
        let leaves = SpaceStats {
            capacity: info.capacity_leaves.into(),
            block_bytes,
            used: region.used_bytes / block_bytes,
            ..SpaceStats::default()
        };
        let huge_page_bytes = region.huge_page_bytes;
        let part = Some(PartStats { tree, model });
        PoolTableStats { info, leaves, meta: SpaceStats::default(), huge_page_bytes, part }
    }
}
