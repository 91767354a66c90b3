//! A ROLEX table on a node: regions that compute nodes read and write one-sided, and who has which of their
//! blocks.

mod blocks;
mod runs;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::WORDS_PER_LINE;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::Region;
use farsight_layout::OWNER_WORD;
use farsight_layout::pool::BlockGeometry;
use farsight_protocol::{
    Blocks, ComputeNode, ErrorCode, POOL_BLOCKS_MAX, RegionInfo, ServerError, Space, SpaceStats,
    TableDefinition,
};

use crate::table_name::TableName;
use blocks::BlockSpace;
pub(crate) use runs::Runs;

/// Leaves of one node at most: what a place in a pool has bits for.
const LEAVES_MAX: u64 = (1 << 28) - 1;
/// Of a table's memory, this part more is home's for directory and models.
const META_PART: u64 = 8;
/// Lines behind the last written one that may belong to the same piece.
const META_MARGIN_LINES: u32 = 64;
/// The least that they get.
const META_BYTES_MIN: u64 = 256 << 10;

/// What a node keeps of a ROLEX table.
pub(crate) struct PooledTable {
    name: Arc<TableName>,
    leaves: Blockwise,
    /// Directory and models: on home.
    meta: Option<Blockwise>,
}

/// A region, and who has which of its blocks.
struct Blockwise {
    region: Arc<dyn Region>,
    block_words: usize,
    blocks: Mutex<BlockSpace>,
}

impl Blockwise {
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

/// Writes the leaf that holds every key of an empty table, before anybody knows its region.
fn write_first_leaf(geometry: &BlockGeometry, region: &[AtomicU64]) {
    for (word, value) in region.iter().zip(geometry.first_leaf()) {
        // Relaxed: clients learn of the region by an answer that follows.
        word.store(value, Ordering::Relaxed);
    }
}

impl PooledTable {
    /// An empty table, with regions of `memory_bytes` and what directory and models need beside them at home.
    pub(crate) fn new(
        definition: &TableDefinition,
        name: &Arc<TableName>,
        is_home: bool,
        memory_bytes: u64,
        create: impl Fn(u64) -> Result<Arc<dyn Region>, ServerError>,
    ) -> Result<Self, ServerError> {
        let name = Arc::clone(name);
        let geometry = BlockGeometry::new(definition.value_bytes.into()).map_err(|error| {
            ServerError::new(ErrorCode::WrongValueSize, format!("table {name:?}: {error}"))
        })?;
        // Home's first leaf is the table's.
        let reserved = u32::from(is_home);
        let leaves = Blockwise::new(create(memory_bytes)?, "leaves", geometry.lines(), reserved);
        if !is_home {
            return Ok(Self { name, leaves, meta: None });
        }
        write_first_leaf(&geometry, leaves.region.words());
        let meta_bytes = (memory_bytes / META_PART).max(META_BYTES_MIN);
        let meta = Some(Blockwise::new(create(meta_bytes)?, "lines", 1, 1));
        Ok(Self { name, leaves, meta })
    }

    /// Its regions on this node.
    pub(crate) fn regions(&self) -> Vec<RegionInfo> {
        let of = |space, blockwise: &Blockwise| RegionInfo {
            space,
            id: blockwise.region.id().0,
            capacity: blockwise.blocks().capacity(),
        };
        let leaves = of(Space::Leaves, &self.leaves);
        [leaves].into_iter().chain(self.meta.as_ref().map(|meta| of(Space::Meta, meta))).collect()
    }

    fn blockwise(&self, space: Space) -> Result<&Blockwise, ServerError> {
        match (space, &self.meta) {
            (Space::Leaves, _) => Ok(&self.leaves),
            (Space::Meta, Some(meta)) => Ok(meta),
            (Space::Meta, None) => {
                let text = format!("directory and models of table {:?} are at home", self.name);
                Err(ServerError::new(ErrorCode::BadRequest, text))
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
        let mut blocks = self.blockwise(space)?.blocks();
        let given = match space {
            Space::Leaves => blocks.allocate_some(owner, count),
            Space::Meta => blocks.allocate_exact(owner, count),
        };
        given.map_err(|error| ServerError::new(error.code, format!("table {:?}: {}", self.name, error.text)))
    }

    /// Takes blocks of `owner` back; how many.
    pub(crate) fn free(&self, owner: ComputeNode, space: Space, runs: &[Blocks]) -> Result<u64, ServerError> {
        self.blockwise(space)?.blocks().free(owner, runs)
    }

    /// Makes blocks `owner`'s.
    pub(crate) fn adopt(&self, owner: ComputeNode, space: Space, runs: &[Blocks]) -> Result<(), ServerError> {
        self.blockwise(space)?.blocks().adopt(owner, runs)
    }

    /// Makes blocks of `owner` the table's for good.
    pub(crate) fn settle(
        &self,
        owner: ComputeNode,
        space: Space,
        runs: &[Blocks],
    ) -> Result<(), ServerError> {
        self.blockwise(space)?.blocks().settle(owner, runs)
    }

    /// Compute nodes that have ended and left blocks.
    pub(crate) fn ended(&self, space: Space) -> Result<Vec<ComputeNode>, ServerError> {
        Ok(self.blockwise(space)?.blocks().ended())
    }

    /// Gives a compute node blocks of an ended one, to look at.
    pub(crate) fn take_orphans(
        &self,
        owner: ComputeNode,
        space: Space,
        of: ComputeNode,
    ) -> Result<Vec<Blocks>, ServerError> {
        Ok(self.blockwise(space)?.blocks().take_orphans(owner, of, POOL_BLOCKS_MAX as u32))
    }

    /// The lock word of one of this node's leaves.
    pub(crate) fn lock_word(&self, block: u32) -> Result<u64, ServerError> {
        let leaves = &self.leaves;
        let word = leaves.region.words().get(block as usize * leaves.block_words + OWNER_WORD);
        // Relaxed: it is compared with what a client saw, and orders nothing.
        word.map(|word| word.load(Ordering::Relaxed)).ok_or_else(|| {
            let text = format!("table {:?} has no leaf {block} here", self.name);
            ServerError::new(ErrorCode::BadRequest, text)
        })
    }

    /// Takes over what a compute node had, none of whose verbs can execute any more.
    pub(crate) fn end(&self, owner: ComputeNode) {
        let Self { leaves, meta, .. } = self;
        leaves.blocks().end(owner, None, |block| leaves.is_unwritten(block));
        if let Some(meta) = meta {
            meta.blocks().end(owner, Some(META_MARGIN_LINES), |line| meta.is_unwritten(line));
        }
    }

    /// How leaves and lines are used.
    pub(crate) fn spaces(&self) -> (SpaceStats, SpaceStats) {
        let of = |blockwise: &Blockwise| blockwise.blocks().stats(blockwise.block_words as u64 * 8);
        (of(&self.leaves), self.meta.as_ref().map(of).unwrap_or_default())
    }

    /// Bytes of its regions on huge pages.
    pub(crate) fn huge_page_bytes(&self) -> u64 {
        let all = [Some(&self.leaves), self.meta.as_ref()].into_iter().flatten();
        all.map(|blockwise| blockwise.region.huge_page_bytes()).sum()
    }
}
