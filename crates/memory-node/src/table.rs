//! One table's part on this node.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};
use farsight_fabric::{Region, RegionRights};
use farsight_layout::FORMAT_VERSION;
use farsight_layout::pool::BlockGeometry;
use farsight_node::Listeners;
use farsight_protocol::{
    Blocks, ComputeNode, ErrorCode, POOL_BLOCKS_MAX, PoolDefinition, PoolPlace, PoolTableInfo,
    PoolTableStats, ServerError, Space, TableId,
};

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

/// The shape of the table's leaves, as client and node agree on it.
fn geometry(definition: &PoolDefinition) -> Result<BlockGeometry, ServerError> {
    let name = &definition.table.name;
    let geometry = BlockGeometry::new(definition.table.value_bytes.into())
        .map_err(|error| ServerError::new(ErrorCode::WrongValueSize, format!("table {name:?}: {error}")))?;
    let (lines, format_version) = (geometry.lines(), definition.format_version);
    if (lines, FORMAT_VERSION) == (definition.block_lines.into(), format_version) {
        return Ok(geometry);
    }
    let text = format!(
        "table {name:?} has leaves of {lines} lines in format {FORMAT_VERSION}, not {} in format {format_version}: use \
         nodes and clients of the same release",
        definition.block_lines
    );
    Err(ServerError::new(ErrorCode::BadRequest, text))
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
        listeners: &Listeners,
        memory_bytes: u64,
    ) -> Result<Self, ServerError> {
        let geometry = geometry(&definition)?;
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
        Ok(Self { info, leaves, meta })
    }

    pub(crate) fn info(&self) -> &PoolTableInfo {
        &self.info
    }

    pub(crate) fn name(&self) -> &str {
        &self.info.definition.table.name
    }

    fn part(&self, space: Space) -> Result<&Part, ServerError> {
        match space {
            Space::Leaves => Ok(&self.leaves),
            Space::Meta => self.meta.as_ref().ok_or_else(|| {
                let text = format!("directory and models of table {:?} are at home", self.name());
                ServerError::new(ErrorCode::BadRequest, text)
            }),
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

    /// Takes blocks back.
    pub(crate) fn free(&self, space: Space, runs: &[Blocks]) -> Result<(), ServerError> {
        self.part(space)?.blocks().free(runs)
    }

    /// Gives a compute node those of ended ones, to look at.
    pub(crate) fn take_orphans(&self, owner: ComputeNode, space: Space) -> Result<Vec<Blocks>, ServerError> {
        Ok(self.part(space)?.blocks().take_orphans(owner, POOL_BLOCKS_MAX as u32))
    }

    /// Takes over what a compute node had, none of whose verbs can execute any more.
    pub(crate) fn end(&self, owner: ComputeNode) {
        self.leaves.blocks().end(owner, None, |block| self.leaves.is_unwritten(block));
        if let Some(meta) = &self.meta {
            meta.blocks().end(owner, Some(META_MARGIN_LINES), |line| meta.is_unwritten(line));
        }
    }

    pub(crate) fn stats(&self) -> PoolTableStats {
        let meta = self.meta.as_ref();
        PoolTableStats {
            info: self.info.clone(),
            leaves: self.leaves.blocks().stats(self.leaves.block_words as u64 * 8),
            meta: meta.map(|part| part.blocks().stats(LINE_BYTES as u64)).unwrap_or_default(),
            huge_page_bytes: self.leaves.region.huge_page_bytes()
                + meta.map_or(0, |part| part.region.huge_page_bytes()),
        }
    }
}
