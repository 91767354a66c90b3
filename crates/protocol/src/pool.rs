//! What compute nodes and memory nodes of a pool say to each other, all of it rare and in postcard.
//!
//! A pool is an ordered list of memory nodes, of which the first is *home*: its life names the pool, and it
//! numbers tables and compute nodes. Steps and what is refused: docs/protocol/pool.md.

use std::time::Duration;

use farsight_base::{Epoch, LINE_BYTES, RegionId};
use serde::{Deserialize, Serialize};

use crate::request::decode_whole;
use crate::{
    DecodeError, ErrorCode, ListenerStats, ModelStats, ServerError, TableDefinition, TableId, TableInfo,
    TreeStats,
};

/// Memory nodes of a pool at most.
pub const POOL_NODES_MAX: usize = 16;
/// Blocks that one call gives, takes or names at most.
pub const POOL_BLOCKS_MAX: usize = 1024;
/// The longest lease of a leaf's lock that a memory node can be told.
pub const LEASE_MAX: Duration = Duration::from_secs(60);

/// Ended compute nodes that one call names at most.
pub const POOL_ENDED_MAX: usize = 64;

/// What answers at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeKind {
    /// A server, whose processor executes writes.
    Server,
    /// A memory node of a pool, which compute nodes write one-sided.
    MemoryNode,
}

impl std::fmt::Display for NodeKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::MemoryNode => "memory node",
        })
    }
}

/// A compute node, by the number that home gave it. Never given twice in home's life, never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ComputeNode(pub u32);

impl std::fmt::Display for ComputeNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "compute node {}", self.0)
    }
}

/// A node's place in a pool, as a client's list of addresses has it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolPlace {
    /// The nodes' lives, in the order of the list; the first is home's.
    #[serde(with = "crate::exact::words")]
    pub epochs: Vec<u64>,
    /// The node's index in the list.
    pub index: u8,
}

impl PoolPlace {
    /// A place whose index lies in its list.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        (1..=POOL_NODES_MAX).contains(&self.epochs.len()) && usize::from(self.index) < self.epochs.len()
    }

    /// Home's life, which names the pool.
    #[must_use]
    pub fn home(&self) -> Epoch {
        Epoch(self.epochs[0])
    }
}

impl std::fmt::Display for PoolPlace {
    /// Counts from 1, as people do; home is number 1.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} of {}", u32::from(self.index) + 1, self.epochs.len())
    }
}

/// What a memory node says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolHello {
    /// Its life, the same at each of its addresses.
    pub epoch: u64,
    /// Its place in a pool, once a table was made.
    pub place: Option<PoolPlace>,
}

/// How a pool's table is worked with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TableEngine {
    /// Compute nodes do every operation one-sided; leaves lie on any node.
    Rolex,
    /// Compute nodes read one-sided; the memory nodes' processors write. Each node has an ordered range of
    /// the keys, an XStore table of its own.
    XStoreD {
        /// The least key of each node's range but the first node's, ascending.
        #[serde(with = "crate::exact::words")]
        boundaries: Vec<u64>,
    },
}

impl TableEngine {
    /// XStore-D over so many nodes, with ranges of the same number of keys of a sample, or, if that has fewer
    /// keys than there are nodes, of the same width.
    #[must_use]
    pub fn x_store_d(mut sample: Vec<u64>, nodes: usize) -> Self {
        sample.sort_unstable();
        sample.dedup();
        let count = sample.len();
        let boundary = |node: usize| match sample.get(node * count / nodes) {
            Some(key) if count >= nodes => *key,
            _ => (((node as u128) << u64::BITS) / nodes as u128) as u64,
        };
        Self::XStoreD { boundaries: (1..nodes).map(boundary).collect() }
    }

    /// True for the same engine, wherever its ranges begin.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// True for one that can be over so many nodes.
    #[must_use]
    pub fn is_sound(&self, nodes: usize) -> bool {
        match self {
            Self::Rolex => true,
            Self::XStoreD { boundaries } => {
                boundaries.len() + 1 == nodes
                    && boundaries.first().is_none_or(|first| *first > 0)
                    && boundaries.is_sorted_by(|low, high| low < high)
            }
        }
    }
}

impl std::fmt::Display for TableEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rolex => "rolex",
            Self::XStoreD { .. } => "xstore-d",
        })
    }
}

/// A new table of a pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolDefinition {
    /// Name, kind of keys, size and type of values.
    pub table: TableDefinition,
    /// How it is worked with.
    pub engine: TableEngine,
    /// Lines of one leaf's block.
    pub block_lines: u16,
    /// The version of the format in which its leaves are written.
    pub format_version: u32,
}

impl PoolDefinition {
    /// True if a table that is defined so is the one `wanted`, wherever its ranges begin: who makes it says.
    #[must_use]
    pub fn is_wanted(&self, wanted: &Self) -> bool {
        self.engine.is_like(&wanted.engine)
            && self.table.is_wanted(&wanted.table)
            && (self.block_lines, self.format_version) == (wanted.block_lines, wanted.format_version)
    }
}

/// A table's part on one memory node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolTableInfo {
    /// Its number, the same on every node.
    pub id: TableId,
    /// Its definition.
    pub definition: PoolDefinition,
    /// The node's place in the pool for which the table was made.
    pub place: PoolPlace,
    /// The number of the region that holds this node's leaves.
    pub leaf_region: u32,
    /// Leaves that the region holds.
    pub capacity_leaves: u32,
    /// The number of the region that holds directory and models, on home of a ROLEX table; zero elsewhere.
    pub meta_region: u32,
    /// Lines of that region.
    pub meta_lines: u32,
}

impl PoolTableInfo {
    /// The region of this node's leaves.
    #[must_use]
    pub fn leaves(&self) -> RegionId {
        RegionId(self.leaf_region)
    }

    /// The node's part as an XStore table, which it is if the engine is XStore-D.
    #[must_use]
    pub fn part(&self) -> TableInfo {
        TableInfo {
            id: self.id,
            definition: self.definition.table.clone(),
            format_version: self.definition.format_version,
            leaf_region: self.leaf_region,
            capacity_leaves: self.capacity_leaves,
        }
    }

    /// Bytes of one leaf's block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        u64::from(self.definition.block_lines) * LINE_BYTES as u64
    }

    /// The region of directory and models, on home.
    #[must_use]
    pub fn meta(&self) -> RegionId {
        RegionId(self.meta_region)
    }
}

/// What blocks are taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Space {
    /// The leaves of a table on this node, in leaves.
    Leaves,
    /// The region of directory and models, on home, in lines. Line zero is never given.
    Meta,
}

/// Consecutive blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Blocks {
    /// The first.
    pub first: u32,
    /// How many.
    pub count: u32,
}

/// The lock of a leaf as somebody found it who waits for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LockSeen {
    /// The table.
    pub table: TableId,
    /// The leaf's block on the node that is asked.
    pub block: u32,
    /// Its lock word.
    pub word: u64,
}

/// What came of a fence at one node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Fenced {
    /// None of the compute node's verbs can execute there any more.
    Done,
    /// Not yet, or not at all as things are.
    Wait {
        /// Before this time has passed another request changes nothing.
        pause_ms: u32,
        /// What is waited for.
        why: String,
    },
}

impl Fenced {
    /// Not before `pause` has passed.
    #[must_use]
    pub fn wait(pause: Duration, why: impl Into<String>) -> Self {
        let pause_ms = u32::try_from(pause.as_micros().div_ceil(1_000)).unwrap_or(u32::MAX).max(1);
        Self::Wait { pause_ms, why: why.into() }
    }
}

/// Requests to a memory node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PoolRequest {
    /// Which life is this, and of which pool? Answered by a [`PoolHello`].
    Hello,
    /// To home: gives this connection's compute node its number. Answered by a [`ComputeNode`].
    Register,
    /// To the others: this connection is that compute node's, of the pool whose home has this life. Refused
    /// once it is fenced. Answered by nothing.
    Announce {
        /// Home's life.
        home: u64,
        /// Its number.
        compute_node: ComputeNode,
    },
    /// Makes a table, or finds the one of the same definition (boundaries aside, which home keeps): at home,
    /// which numbers it, then at the others with that number. Answered by a [`PoolTableInfo`].
    CreateTable {
        /// Its definition.
        definition: PoolDefinition,
        /// The node's place in the client's list.
        place: PoolPlace,
        /// Its number; none at home.
        id: Option<TableId>,
    },
    /// Finds a table by name. Answered by a [`PoolTableInfo`].
    OpenTable(String),
    /// All tables. Answered by a `Vec<PoolTableInfo>`.
    ListTables,
    /// Gives this connection's compute node blocks that nobody uses. Of leaves it may be fewer than asked
    /// for, of lines it is all. Answered by [`Blocks`].
    Allocate {
        /// The table.
        table: TableId,
        /// What is wanted.
        space: Space,
        /// How many, up to [`POOL_BLOCKS_MAX`] leaves.
        count: u32,
    },
    /// Gives back those of the blocks that are this connection's compute node's; nothing leads to them any
    /// more. Answered by their number, a `u64`.
    Free {
        /// The table.
        table: TableId,
        /// What they are.
        space: Space,
        /// Up to [`POOL_BLOCKS_MAX`] runs.
        blocks: Vec<Blocks>,
    },
    /// Makes given blocks this connection's compute node's, whoever has them: it alone may free them from now
    /// on. All of them or none; a block that is free is refused. Answered by nothing.
    Adopt {
        /// The table.
        table: TableId,
        /// What they are.
        space: Space,
        /// Up to [`POOL_BLOCKS_MAX`] runs.
        blocks: Vec<Blocks>,
    },
    /// Makes blocks of this connection's compute node the table's own: nobody frees them any more, unless
    /// they are adopted. Answered by nothing.
    Settle {
        /// The table.
        table: TableId,
        /// What they are.
        space: Space,
        /// Up to [`POOL_BLOCKS_MAX`] runs.
        blocks: Vec<Blocks>,
    },
    /// Compute nodes that have ended and left blocks that may be in use or not. Answered by a
    /// `Vec<ComputeNode>` of at most [`POOL_ENDED_MAX`], empty if there are none.
    Ended {
        /// The table.
        table: TableId,
        /// What they are.
        space: Space,
    },
    /// Takes over blocks of a compute node that has ended: who takes them, and has fenced it at every node,
    /// finds out which are in use, and frees the others. Answered by a `Vec<Blocks>` of at most
    /// [`POOL_BLOCKS_MAX`] blocks, empty if there are none.
    TakeOrphans {
        /// The table.
        table: TableId,
        /// What they are.
        space: Space,
        /// Whose they were.
        of: ComputeNode,
    },
    /// Ends every connection of that compute node with this node. Refused for a number that nobody has, or
    /// had, here. Answered by a [`Fenced`].
    Fence {
        /// Home's life.
        home: u64,
        /// Its number.
        compute_node: ComputeNode,
        /// The lock of a leaf of this node for whose lease it is fenced. Without one, nothing is done that
        /// costs it more than connections.
        seen: Option<LockSeen>,
    },
    /// Statistics. Answered by a [`MemoryNodeStats`].
    Stats,
}

impl PoolRequest {
    /// Decodes a request's body.
    ///
    /// # Errors
    /// [`DecodeError`] if it is not one.
    pub fn decode(body: &[u8]) -> Result<Self, DecodeError> {
        decode_whole("a request to a memory node", body)
    }

    /// Refuses bounds that no request of this version exceeds.
    ///
    /// # Errors
    /// [`ErrorCode::BadRequest`].
    pub fn check(&self) -> Result<(), ServerError> {
        let refuse = |text: String| Err(ServerError::new(ErrorCode::BadRequest, text));
        match self {
            Self::CreateTable { place, .. } if !place.is_sound() => refuse(format!(
                "a pool has 1 to {POOL_NODES_MAX} nodes, not {}, and a node's index is below that, not {}",
                place.epochs.len(),
                place.index
            )),
            Self::CreateTable { definition, place, .. }
                if !definition.engine.is_sound(place.epochs.len()) =>
            {
                refuse(format!(
                    "the ranges of {:?} begin at {:?}: a pool of {} nodes has one boundary less, ascending, not zero",
                    definition.table.name,
                    definition.engine,
                    place.epochs.len()
                ))
            }
            Self::Allocate { space: Space::Leaves, count, .. }
                if !(1..=POOL_BLOCKS_MAX).contains(&(*count as usize)) =>
            {
                refuse(format!("a call gives 1 to {POOL_BLOCKS_MAX} leaves, not {count}"))
            }
            Self::Allocate { count: 0, .. } => refuse("no lines were asked for".to_owned()),
            Self::Free { blocks, .. } | Self::Adopt { blocks, .. } | Self::Settle { blocks, .. }
                if blocks.len() > POOL_BLOCKS_MAX =>
            {
                refuse(format!("a call names at most {POOL_BLOCKS_MAX} runs, not {}", blocks.len()))
            }
            _ => Ok(()),
        }
    }
}

/// A memory node's statistics.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryNodeStats {
    /// Its version.
    pub version: String,
    /// Its process number.
    pub process_id: u32,
    /// Seconds since it began to listen.
    pub uptime_s: f64,
    /// Processor seconds that it has used, all threads.
    pub cpu_s: f64,
    /// Where it listens; the first has made the regions.
    pub listeners: Vec<ListenerStats>,
    /// Calls answered.
    pub calls: u64,
    /// Compute nodes connected now.
    pub compute_nodes: u64,
    /// Compute nodes fenced so far.
    pub fenced: u64,
    /// Its place in a pool, once a table was made.
    pub place: Option<PoolPlace>,
    /// One entry a table.
    pub tables: Vec<PoolTableStats>,
}

/// What a memory node says of one table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PoolTableStats {
    /// The table.
    pub info: PoolTableInfo,
    /// Its leaves here.
    pub leaves: SpaceStats,
    /// Its directory and models, on home.
    pub meta: SpaceStats,
    /// Bytes of its regions on huge pages.
    pub huge_page_bytes: u64,
    /// Its tree and model here, if this node's processor keeps them: XStore-D's.
    pub part: Option<PartStats>,
}

/// What a memory node says of its part of an XStore-D table.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct PartStats {
    /// Its tree.
    pub tree: TreeStats,
    /// Its model.
    pub model: ModelStats,
}

/// How a space's blocks are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpaceStats {
    /// Blocks that the space holds.
    pub capacity: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks given out and not given back, and those that are the table's from its beginning: its first
    /// leaf, its root line.
    pub used: u64,
    /// Of those, blocks whose compute nodes live.
    pub owned: u64,
    /// Of those, blocks whose compute nodes have ended, to be looked at.
    pub orphaned: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundaries(sample: &[u64], nodes: usize) -> Vec<u64> {
        let engine = TableEngine::x_store_d(sample.to_vec(), nodes);
        assert!(engine.is_sound(nodes), "{engine:?}");
        let TableEngine::XStoreD { boundaries } = engine else { panic!("asked for XStore-D") };
        boundaries
    }

    #[test]
    fn ranges_have_the_same_number_of_a_samples_keys() {
        assert_eq!(boundaries(&[60, 50, 10, 20, 30, 40, 10], 3), [30, 50]);
        assert_eq!(boundaries(&[0, 1, 2], 3), [1, 2]);
        assert_eq!(boundaries(&[7; 100], 1), []);
    }

    #[test]
    fn without_a_sample_they_have_the_same_width() {
        assert_eq!(boundaries(&[], 4), [1 << 62, 1 << 63, 3 << 62]);
        assert_eq!(boundaries(&[5, 5, 5], 2), [1 << 63]);
        assert_eq!(boundaries(&[], 16).len(), 15);
    }

    #[test]
    fn ranges_that_cannot_be_are_found() {
        for (boundaries, nodes) in [(vec![], 2), (vec![5], 1), (vec![0], 2), (vec![5, 5], 3), (vec![6, 5], 3)]
        {
            let engine = TableEngine::XStoreD { boundaries };
            assert!(!engine.is_sound(nodes), "{engine:?}");
        }
    }
}
