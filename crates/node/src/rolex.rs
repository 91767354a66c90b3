//! A ROLEX table on a node: regions that compute nodes read and write one-sided, and who has which of their
//! blocks.

mod blocks;
mod orphans;
mod runs;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::WORDS_PER_LINE;
use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::Region;
use farsight_index::{Registered, Rolex};
use farsight_layout::OWNER_WORD;
use farsight_layout::pool::BlockGeometry;
use farsight_protocol::{
    Adopted, Blocks, Claim, ComputeNode, ErrorCode, POOL_BLOCKS_MAX, RegionInfo, Request, ServerError, Space,
    TakenBlocks,
};

use crate::engine::{Call, Executed, HostedStats, HostedTable};
use crate::new_table::NewTable;
use crate::table_name::TableName;
use blocks::{BlockSpace, Holder, end_in_steps};
pub(crate) use runs::Runs;

/// Leaves of one node at most: what a place in a pool has bits for.
const LEAVES_MAX: u64 = (1 << 28) - 1;
/// Of a table's memory, this part more is the coordinator's for directory and models.
const META_PART: u64 = 8;
/// Lines behind the last written one that may belong to the same piece.
const META_MARGIN_LINES: u32 = 64;
/// The least that they get.
const META_BYTES_MIN: u64 = 256 << 10;
/// What a node keeps of a ROLEX table.
pub struct PooledTable {
    name: Arc<TableName>,
    leaves: Blockwise,
    /// Directory and models: on the coordinator.
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

    fn block_bytes(&self) -> u64 {
        self.block_words as u64 * 8
    }

    fn blocks(&self) -> MutexGuard<'_, BlockSpace> {
        // Each change of the space is complete, or a bug that ends all answers.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what a compute node had, which has no client here any more, and so gets no more blocks.
    fn end(&self, owner: ComputeNode, margin: Option<u32>) {
        end_in_steps(|| self.blocks(), owner, margin, |block| self.is_unwritten(block));
    }

    fn is_unwritten(&self, block: u32) -> bool {
        let first = block as usize * self.block_words;
        let words = &self.region.words()[first..first + self.block_words];
        // Relaxed: the clients that could write them have ended, and the fabric has waited for that.
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
    /// An empty table, with regions of `memory_bytes` and what directory and models need beside them at the
    /// coordinator.
    pub(crate) fn new(new: &NewTable<'_>) -> Result<Self, ServerError> {
        let (name, memory_bytes) = (Arc::clone(new.name()), new.memory_bytes());
        let geometry = BlockGeometry::new(new.value_bytes()).map_err(|error| {
            ServerError::new(ErrorCode::WrongValueSize, format!("table {name:?}: {error}"))
        })?;
        // The coordinator's first leaf is the table's.
        let reserved = u32::from(new.is_first());
        let leaves = Blockwise::new(new.writable_region(memory_bytes)?, "leaves", geometry.lines(), reserved);
        if !new.is_first() {
            return Ok(Self { name, leaves, meta: None });
        }
        write_first_leaf(&geometry, leaves.region.words());
        let meta_bytes = (memory_bytes / META_PART).max(META_BYTES_MIN);
        let meta = Some(Blockwise::new(new.writable_region(meta_bytes)?, "lines", 1, 1));
        Ok(Self { name, leaves, meta })
    }

    fn blockwise(&self, space: Space) -> Result<&Blockwise, ServerError> {
        match (space, &self.meta) {
            (Space::Leaves, _) => Ok(&self.leaves),
            (Space::Meta, Some(meta)) => Ok(meta),
            (Space::Meta, None) => {
                let text = format!("directory and models of table {:?} are at the coordinator", self.name);
                Err(ServerError::new(ErrorCode::BadRequest, text))
            }
            (Space::Blocks | Space::Index, _) => {
                let text = format!("table {:?} is of {}: it has leaves", self.name, Rolex::KIND);
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
        let blockwise = self.blockwise(space)?;
        let mut blocks = blockwise.blocks();
        let given = match space {
            Space::Leaves => blocks.allocate_some(owner, count),
            Space::Meta | Space::Blocks | Space::Index => blocks.allocate_exact(owner, count),
        };
        let given = given.and_then(|given| {
            let end_bytes = (u64::from(given.first) + u64::from(given.count)) * blockwise.block_bytes();
            blockwise.region.grow_to(end_bytes).map_err(|error| {
                blocks.free(Holder::allocated(owner), &[given]).expect("they were given just now");
                ServerError::new(ErrorCode::NoMemory, error.to_string())
            })?;
            Ok(given)
        });
        given.map_err(|error| ServerError::new(error.code, format!("table {:?}: {}", self.name, error.text)))
    }

    /// Takes back what a compute node has under a claim; how many blocks.
    pub(crate) fn free(
        &self,
        (owner, claim): (ComputeNode, Claim),
        space: Space,
        runs: &[Blocks],
    ) -> Result<u64, ServerError> {
        self.blockwise(space)?.blocks().free(Holder { owner, claim }, runs)
    }

    /// Makes blocks `owner`'s, if none has become free since it heard of claim `known`.
    pub(crate) fn adopt(
        &self,
        (owner, known): (ComputeNode, Claim),
        space: Space,
        runs: &[Blocks],
    ) -> Result<Adopted, ServerError> {
        self.blockwise(space)?.blocks().adopt(owner, known, runs)
    }

    /// Makes what a compute node has under a claim the table's for good.
    pub(crate) fn pin(
        &self,
        (owner, claim): (ComputeNode, Claim),
        space: Space,
        runs: &[Blocks],
    ) -> Result<(), ServerError> {
        self.blockwise(space)?.blocks().pin(Holder { owner, claim }, runs)
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
    ) -> Result<TakenBlocks, ServerError> {
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

    /// Its leaves, and on its first node directory and models.
    fn all(&self) -> impl Iterator<Item = (Space, &Blockwise)> {
        let meta = self.meta.as_ref().map(|meta| (Space::Meta, meta));
        [(Space::Leaves, &self.leaves)].into_iter().chain(meta)
    }
}

impl HostedTable for PooledTable {
    fn regions(&self) -> Vec<RegionInfo> {
        let of = |(space, blockwise): (Space, &Blockwise)| RegionInfo {
            space,
            id: blockwise.region.id().0,
            capacity: blockwise.blocks().capacity(),
        };
        self.all().map(of).collect()
    }

    fn execute(&self, _: &Request<'_>, _: &mut Call<'_, '_>) -> Result<Executed, ServerError> {
        let text =
            format!("table {:?} is of {}: compute nodes read and write it one-sided", self.name, Rolex::KIND);
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }

    fn stats(&self, _: MonotonicNs) -> HostedStats {
        let of = |blockwise: &Blockwise| blockwise.blocks().stats(blockwise.block_bytes());
        HostedStats {
            leaves: of(&self.leaves),
            meta: self.meta.as_ref().map(of).unwrap_or_default(),
            huge_page_bytes: self.all().map(|(_, blockwise)| blockwise.region.huge_page_bytes()).sum(),
            ..HostedStats::default()
        }
    }

    fn blocks(&self) -> Option<&PooledTable> {
        Some(self)
    }

    fn end(&self, owner: ComputeNode) {
        let Self { leaves, meta, .. } = self;
        leaves.end(owner, None);
        if let Some(meta) = meta {
            meta.end(owner, Some(META_MARGIN_LINES));
        }
    }
}
