//! What a node says of itself.

use serde::{Deserialize, Serialize};

use crate::{LostNodes, PoolPlace, TableInfo};

/// A node's statistics.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStats {
    /// The node's version.
    pub version: String,
    /// Its process number.
    pub process_id: u32,
    /// Seconds since it began to listen.
    pub uptime_s: f64,
    /// Processor seconds that it has used, all threads.
    pub cpu_s: f64,
    /// Bytes of memory that its process has, where the system says it.
    pub memory_bytes: Option<u64>,
    /// Bytes that its process may have: beyond, tables do not grow.
    pub memory_limit_bytes: Option<u64>,
    /// What is known of that by parts. The rest is the program, trees, models and buffers.
    pub memory: MemoryStats,
    /// Clients connected now.
    pub clients: u64,
    /// Where it listens; the first has made the regions.
    pub listeners: Vec<ListenerStats>,
    /// Calls answered.
    pub calls: u64,
    /// Operations executed in those calls.
    pub operations: u64,
    /// How often a pass over the tables met damage that nobody can repair; each pass counts it again.
    pub damage_found: u64,
    /// Compute nodes connected now.
    pub compute_nodes: u64,
    /// Compute nodes fenced so far.
    pub fenced: u64,
    /// What it keeps on a disk; `None` if that is nothing.
    pub data: Option<DataStats>,
    /// Its place among the nodes for which its tables were made, once there is one.
    pub place: Option<PoolPlace>,
    /// The nodes that its pool goes on without.
    pub lost: LostNodes,
    /// One entry a table.
    pub tables: Vec<TableStats>,
}

/// Parts of a node's memory, in bytes that they may have: at least what they take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryStats {
    /// Regions of tables.
    pub regions_bytes: u64,
    /// Queues of clients that are connected.
    pub queues_bytes: u64,
    /// Values on their way that lie in no region: those that go in pieces, and those that bulk loads gather.
    pub values_bytes: u64,
    /// Replies that are kept for calls which may be repeated.
    pub replies_bytes: u64,
}

/// What a node says of its directory of data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DataStats {
    /// True if writes are acknowledged when they are durable, false if when they are in memory.
    pub acknowledges_durable: bool,
    /// Bytes appended to the log since the node began.
    pub log_bytes: u64,
    /// Segments of the log that a recovery would read.
    pub segments: u64,
    /// Bytes of those: the time of a restart grows with them.
    pub replay_bytes: u64,
    /// Bytes of calls that wait for the log.
    pub waiting_bytes: u64,
    /// Rounds of snapshots since the node began, one of each table.
    pub snapshot_rounds: u64,
    /// Pieces that the tables' snapshots have.
    pub pieces: u64,
    /// Pieces that were written since the node began.
    pub pieces_written: u64,
    /// Bytes of keys and values in those.
    pub piece_bytes_written: u64,
    /// Pieces that the last round left as they were, since a pair in them is damaged and no file has it.
    pub pieces_left: u64,
    /// Damaged pairs that were repaired by what the directory has of them, since the node began.
    pub repaired: u64,
    /// Damaged pairs of which it has nothing: how often that was found, since the node began.
    pub unrepaired: u64,
}

/// What a node says of the snapshot of one table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SnapshotStats {
    /// Its pieces.
    pub pieces: u64,
    /// When the oldest piece was written, in milliseconds since 1970; `None` where the disk does not say it.
    pub oldest_ms: Option<u64>,
    /// The same of the piece in the middle, by age.
    pub median_ms: Option<u64>,
}

/// One address at which a server listens.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListenerStats {
    /// As a URL.
    pub address: String,
    /// Clients connected there now.
    pub clients: u64,
}

/// What a node says of one table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TableStats {
    /// The table.
    pub info: TableInfo,
    /// Its leaves here.
    pub leaves: SpaceStats,
    /// Its directory and models, of ROLEX on the coordinator.
    pub meta: SpaceStats,
    /// Its blocks here, if its values have any length.
    pub blocks: Option<BlockSpaceStats>,
    /// Its hash index here, of FlexKV.
    pub hash_index: Option<HashIndexStats>,
    /// Bytes of its regions on huge pages.
    pub huge_page_bytes: u64,
    /// Its snapshot here, if it has one in a directory of data.
    pub snapshot: Option<SnapshotStats>,
    /// Its tree and model here, if this node's processor keeps them: XStore's.
    pub part: Option<PartStats>,
}

impl TableStats {
    /// Bytes of its regions that are in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let blocks_bytes = self.blocks.map_or(0, |blocks| blocks.used_bytes);
        self.leaves.used_bytes() + self.meta.used_bytes() + blocks_bytes
    }

    /// Bytes that its regions have.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        let blocks_bytes = self.blocks.map_or(0, |blocks| blocks.limit_bytes);
        let leaves_bytes = self.leaves.capacity * self.leaves.block_bytes;
        leaves_bytes + self.meta.capacity * self.meta.block_bytes + blocks_bytes
    }

    /// What this node's processor keeps of it.
    ///
    /// # Panics
    /// If it keeps nothing: of a ROLEX table.
    #[must_use]
    pub fn part(&self) -> &PartStats {
        self.part.as_ref().expect("a table whose tree and model its node keeps")
    }
}

/// A tree and its model on one node.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PartStats {
    /// The tree.
    pub tree: TreeStats,
    /// The model.
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

impl SpaceStats {
    /// Bytes of the blocks in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used * self.block_bytes
    }
}

/// How the hash index of a table is used on one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HashIndexStats {
    /// Partitions.
    pub partitions: u32,
    /// Their subtables: partitions that were never split have one.
    pub subtables: u32,
    /// Splits of the partition's subtables, one behind the other, of the partition that has the most.
    pub depth_max: u32,
    /// Slots of all subtables.
    pub slots: u64,
    /// Objects that are out and in no compute node's hand: about as many slots are used.
    pub objects: u64,
    /// Splits that took effect.
    pub splits: u64,
    /// Units of memory with subtables that were split, which wait for compute nodes to end.
    pub resting_units: u32,
    /// Units that hold subtables, rest, or are in compute nodes' hands.
    pub used_units: u32,
    /// Units that there are.
    pub units: u32,
    /// Compute nodes that keep values which are read at this node.
    pub keepers: u32,
    /// Writes, and splits, that recalled what they keep.
    pub recalls: u64,
    /// Of those, the ones that had to wait until all leases were over.
    pub unheard_recalls: u64,
    /// Microseconds that the others waited, all together.
    pub recalls_waited_us: u64,
}

impl HashIndexStats {
    /// The part of the slots that is used.
    #[must_use]
    pub fn load_factor(&self) -> f64 {
        if self.slots == 0 { 0.0 } else { self.objects as f64 / self.slots as f64 }
    }
}

/// Where the bytes of a table's blocks are. Live, free, quarantined and lost bytes add up to those used;
/// while writes go on they are of about one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct BlockSpaceStats {
    /// Bytes of blocks that are in use.
    pub live_bytes: u64,
    /// Bytes that the next blocks can have without growth.
    pub free_bytes: u64,
    /// Bytes of blocks that were in use a short while ago, which nothing else uses yet.
    pub quarantined_bytes: u64,
    /// Bytes beside blocks that no block can have as things are.
    pub lost_bytes: u64,
    /// Bytes from the region's start to the end of what was ever used.
    pub used_bytes: u64,
    /// Bytes that blocks may use.
    pub limit_bytes: u64,
}

/// A tree's statistics.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct TreeStats {
    /// Pairs stored.
    pub pairs: u64,
    /// Leaves in the chain.
    pub leaves: u64,
    /// Inner nodes.
    pub inner_nodes: u64,
    /// Inner levels above the leaves.
    pub inner_levels: u32,
    /// Leaves split.
    pub splits: u64,
    /// Leaves merged with a neighbour.
    pub merges: u64,
    /// Leaves compacted in place.
    pub compactions: u64,
    /// Writes that a client's hint led to their leaf.
    pub hint_hits: u64,
    /// Writes that no hint led to their leaf: they went down the tree, or on where the write before had been.
    pub descents: u64,
    /// Leaves whose stamps were put right, because memory had lost a bit of them.
    pub scrubbed: u64,
    /// Pairs removed because their deadlines had passed.
    pub expired: u64,
}

/// A model's statistics.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ModelStats {
    /// Whole trainings so far; zero: no model yet.
    pub generation: u64,
    /// Sub-models.
    pub sub_models: u64,
    /// Of those, sub-models below branches: where the table grew since the last whole training.
    pub sub_models_below: u64,
    /// Bytes of the top model.
    pub top_bytes: u64,
    /// Bytes of sub-models' records and table entries, as a client holds them.
    pub cache_bytes: u64,
    /// Mean leaves in a prediction, over sub-models.
    pub window_leaves_mean: f64,
    /// Most leaves in a prediction of any sub-model since the last whole training.
    pub window_leaves_max: u64,
    /// Sub-models retrained since the last whole training.
    pub retrained: u64,
    /// Sub-models waiting to be retrained.
    pub pending: u64,
    /// Age of the oldest of those, in nanoseconds.
    pub lag_ns: u64,
    /// Processor seconds that training has used.
    pub training_s: f64,
}
