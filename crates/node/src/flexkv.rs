//! A FlexKV table on a node: an index and objects that compute nodes read and write one-sided.
//!
//! Invariant: a node has one region for indexes and one for objects. Where nodes have replicas, a region has
//! a section for each shard of which this node has one. The first is its own shard's, the next that of the
//! node before it in the pool's list, and so on. The last section is that of the shard of which this node is
//! the [head].

mod balance;
mod ended;
mod head;
mod keepers;
mod knob;
mod objects;
mod places;
mod proxies;
mod recalls;
mod section;
mod settling;
mod splits;
#[cfg(test)]
mod zeroed_region;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use farsight_base::clock::{MonotonicNs, UnixTime};
use farsight_base::sync::Ordering;
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};
use farsight_blocks::BlockSpace;
use farsight_fabric::Region;
use farsight_index::{FlexKv, Registered};
use farsight_layout::hash_index::{IndexShape, OBJECT_OFFSET_BITS};
use farsight_layout::value_block::block_bytes;
use farsight_protocol::{
    BlockSpaceStats, ComputeNode, ErrorCode, HashIndexStats, LostNodes, ObjectGrant, ObjectMemory,
    PROXIES_MAX, Proxy, ProxyLease, ProxyOffer, RegionInfo, Request, ServerError, Space, SpaceStats,
    SplitGrant, ValueKind, WriteLoad,
};

use crate::compute_nodes::Connected;
use crate::deadline_pass::{DeadlinePass, SeenPiece};
use crate::engine::{BackgroundWork, Call, Executed, HostedStats, HostedTable};
use crate::new_table::NewTable;
use crate::table_name::TableName;
use crate::{BackgroundState, LateReply};
use head::{HeadStats, ShardHead};
use keepers::Keepers;
use proxies::Proxies;
use section::Section;
use splits::Splits;

/// The number by which blocks name their space: there is one.
const SPACE: u8 = 0;
/// Bytes of the index for each pair. A slot takes 9 with its bucket's header, and half as much again where
/// two thirds are used. Subtables that were split take as much as those in use.
const INDEX_BYTES_A_PAIR: u64 = 32;
/// Bytes of a value of any length, on average, for which the index has room.
const USUAL_VALUE_BYTES: usize = 128;

/// What a node keeps of a FlexKV table.
pub struct FlexTable {
    name: Arc<TableName>,
    nodes: usize,
    /// This node's place among them.
    place: usize,
    replicas: usize,
    index: Arc<dyn Region>,
    objects: Arc<dyn Region>,
    /// The shards of which this node is the head.
    heads: RwLock<Vec<(usize, Arc<ShardHead>)>>,
    /// Who writes for others, while this node is the coordinator.
    proxies: Mutex<Proxies>,
    /// The clock by which pairs end, if they have deadlines.
    unix_time: Option<Arc<dyn UnixTime>>,
    /// Who keeps values that are read here.
    keepers: Mutex<Keepers<LateReply>>,
}

impl FlexTable {
    /// An empty table, whose memory index and objects share.
    pub(crate) fn new(new: &NewTable<'_>) -> Result<Self, ServerError> {
        let (name, replicas) = (Arc::clone(new.name()), new.replicas() as u64);
        let bytes = split_memory(new, replicas)?;
        let index = new.writable_region(bytes.index * replicas)?;
        let objects = new.writable_region(bytes.objects * replicas)?;
        let no_memory = |error: farsight_fabric::FabricError| {
            ServerError::new(ErrorCode::NoMemory, format!("table {name:?}: {error}"))
        };
        if replicas > 1 {
            // What other nodes give out they cannot grow here.
            index.grow_to(index.words().len() as u64 * 8).map_err(no_memory)?;
            objects.grow_to(objects.words().len() as u64 * 8).map_err(no_memory)?;
        }
        let table = Self {
            name: Arc::clone(&name),
            nodes: new.nodes(),
            place: new.index(),
            replicas: replicas as usize,
            index,
            objects,
            heads: RwLock::default(),
            proxies: Mutex::new(Proxies::new(new.proxy_pace())),
            unix_time: new.unix_time(),
            keepers: Mutex::default(),
        };
        let section = table.replicas - 1;
        let (index, objects) = (table.section(&table.index, section), table.section(&table.objects, section));
        let (shard, lines) = (table.shard(section), (index.words().len() / WORDS_PER_LINE) as u64);
        let shape = IndexShape::new(new.nodes(), lines).map_err(|error| too_small(&name, &error))?;
        let splits = Splits::new(shape, new.nodes(), shard);
        index.grow_to(splits.first_bytes()).map_err(no_memory)?;
        let object_bytes = objects.words().len() as u64 * 8;
        let space = Arc::new(BlockSpace::new(objects, SPACE, object_bytes));
        let head = ShardHead::new(name.clone(), index, (shape, splits), space, replicas > 1);
        table.heads_mut().push((shard, Arc::new(head)));
        Ok(table)
    }

    /// The shard that has this section of the regions.
    fn shard(&self, section: usize) -> usize {
        (self.place + self.nodes - section) % self.nodes
    }

    /// A section of a region. Clients find it by the lines that the region has.
    fn section(&self, region: &Arc<dyn Region>, section: usize) -> Arc<dyn Region> {
        if self.replicas == 1 {
            return Arc::clone(region);
        }
        let words = region.words().len() / WORDS_PER_LINE / self.replicas * WORDS_PER_LINE;
        Arc::new(Section::new(Arc::clone(region), words * section, words))
    }

    fn heads(&self) -> RwLockReadGuard<'_, Vec<(usize, Arc<ShardHead>)>> {
        // Each change is complete.
        self.heads.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn heads_mut(&self) -> RwLockWriteGuard<'_, Vec<(usize, Arc<ShardHead>)>> {
        // Each change is complete.
        self.heads.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The head of a shard, if it is this node.
    fn head(&self, shard: usize) -> Result<Arc<ShardHead>, ServerError> {
        let heads = self.heads();
        if let Some((_, head)) = heads.iter().find(|(of, _)| *of == shard) {
            return Ok(Arc::clone(head));
        }
        let of: Vec<usize> = heads.iter().map(|(shard, _)| *shard).collect();
        let text = format!("table {:?}: this node is the head of shards {of:?}, not of {shard}", self.name);
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }

    /// The head of a shard whose head was lost, or is another one now.
    fn successor(&self, section: usize) -> Option<(usize, Arc<ShardHead>)> {
        let (index, objects) = (self.section(&self.index, section), self.section(&self.objects, section));
        let (shard, lines) = (self.shard(section), (index.words().len() / WORDS_PER_LINE) as u64);
        let shape = IndexShape::new(self.nodes, lines).ok()?;
        let splits = Splits::new(shape, self.nodes, shard);
        let name = Arc::clone(&self.name);
        let head = ShardHead::successor(name, index, (shape, splits), objects, section > 0);
        Some((shard, Arc::new(head)))
    }

    /// The sections of whose shards this node is the head, if the pool goes on without these.
    fn head_sections(&self, lost: LostNodes) -> impl Iterator<Item = usize> {
        let (place, nodes, replicas) = (self.place, self.nodes, self.replicas);
        (0..replicas).filter(move |section| {
            let mut before = (1..replicas - section).map(|ahead| (place + ahead) % nodes);
            before.all(|place| lost.contains(place))
        })
    }

    /// Becomes the head of these sections' shards, and of no others. Those of which it is the head stay.
    fn head_only(&self, sections: &[usize], heads: &mut Vec<(usize, Arc<ShardHead>)>) {
        heads.retain(|(shard, _)| sections.iter().any(|section| self.shard(*section) == *shard));
        for section in sections {
            let shard = self.shard(*section);
            if heads.iter().all(|(of, _)| *of != shard) {
                heads.extend(self.successor(*section));
            }
        }
    }

    /// Takes note of what became of a shard's memory that compute nodes had in hand, and gives `owner` more.
    pub(crate) fn exchange(
        &self,
        shard: usize,
        who: (ComputeNode, Connected),
        wanted: (u8, u16),
        what: (&[ObjectMemory], &[ObjectMemory]),
        now: MonotonicNs,
    ) -> Result<ObjectGrant, ServerError> {
        self.head(shard)?.exchange(who, wanted, what, now)
    }

    /// Takes note that all replicas of a shard have what its head had when it requested that.
    pub(crate) fn settled(&self, shard: usize, number: u32) -> Result<(), ServerError> {
        self.head(shard)?.settled(number);
        Ok(())
    }

    /// Takes note that these compute nodes, of which the head of a shard has told, have ended at all nodes.
    pub(crate) fn fenced(&self, shard: usize, owners: &[ComputeNode]) -> Result<(), ServerError> {
        self.head(shard)?.fenced(owners);
        Ok(())
    }

    /// What a compute node gets that wants to split this subtable of a partition.
    pub(crate) fn begin_split(
        &self,
        who: (ComputeNode, Connected),
        (partition, number): (usize, u32),
        now: MonotonicNs,
    ) -> Result<SplitGrant, ServerError> {
        self.head(partition % self.nodes)?.begin_split(who, (partition, number), now)
    }

    /// Takes note that `owner` writes these units of a shard no more.
    pub(crate) fn end_split(
        &self,
        shard: usize,
        owner: ComputeNode,
        units: [u32; 2],
    ) -> Result<(), ServerError> {
        self.head(shard)?.end_split(owner, units);
        Ok(())
    }

    /// Gives partitions to a compute node that would write for others, or renews what it has.
    pub(crate) fn lease_partitions(
        &self,
        owner: ComputeNode,
        offer: ProxyOffer,
        now: MonotonicNs,
    ) -> Result<ProxyLease, ServerError> {
        self.proxies().lease(owner, offer, now).ok_or_else(|| {
            let text = format!("table {:?} has {PROXIES_MAX} compute nodes that serve, its most", self.name);
            ServerError::new(ErrorCode::OutOfResources, text)
        })
    }

    /// Who writes for others, to a client that has written so much.
    pub(crate) fn who_proxies(&self, now: MonotonicNs, load: &WriteLoad) -> Vec<Proxy> {
        self.proxies().all(now, load)
    }

    fn proxies(&self) -> MutexGuard<'_, Proxies> {
        // Each change is complete, or a bug that ends all answers.
        self.proxies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that each section of a table has.
struct SectionBytes {
    index: u64,
    objects: u64,
}

/// What two heads have together.
fn sum(one: HeadStats, other: HeadStats) -> HeadStats {
    let (index, used, blocks) = one;
    let (other_index, other_used, other_blocks) = other;
    let index = HashIndexStats {
        partitions: index.partitions + other_index.partitions,
        subtables: index.subtables + other_index.subtables,
        depth_max: index.depth_max.max(other_index.depth_max),
        slots: index.slots + other_index.slots,
        objects: index.objects + other_index.objects,
        splits: index.splits + other_index.splits,
        resting_units: index.resting_units + other_index.resting_units,
        used_units: index.used_units + other_index.used_units,
        units: index.units + other_index.units,
        ..index
    };
    let blocks = BlockSpaceStats {
        live_bytes: blocks.live_bytes + other_blocks.live_bytes,
        free_bytes: blocks.free_bytes + other_blocks.free_bytes,
        quarantined_bytes: blocks.quarantined_bytes + other_blocks.quarantined_bytes,
        lost_bytes: blocks.lost_bytes + other_blocks.lost_bytes,
        used_bytes: blocks.used_bytes + other_blocks.used_bytes,
        limit_bytes: blocks.limit_bytes + other_blocks.limit_bytes,
    };
    (index, used + other_used, blocks)
}

/// Divides a table's memory between its index and its objects, and that between the sections of each.
fn split_memory(new: &NewTable<'_>, replicas: u64) -> Result<SectionBytes, ServerError> {
    let value_bytes = match new.values() {
        ValueKind::Fixed(bytes) => bytes.into(),
        ValueKind::Blocks { max_bytes, .. } => (max_bytes as usize).min(USUAL_VALUE_BYTES),
    };
    let memory_bytes = new.memory_bytes() / replicas;
    let line_bytes = LINE_BYTES as u64;
    let object_bytes = block_bytes(size_of::<u64>(), value_bytes).next_multiple_of(LINE_BYTES) as u64;
    let index_lines = memory_bytes / (object_bytes + INDEX_BYTES_A_PAIR) * INDEX_BYTES_A_PAIR / line_bytes;
    let least = IndexShape::new(new.nodes(), 0).err().map_or(0, |too_small| too_small.needed_lines);
    let index = index_lines.max(least) * line_bytes;
    let objects = memory_bytes.saturating_sub(index) / line_bytes * line_bytes;
    if objects == 0 {
        let text = format!("{memory_bytes} B are fewer than its index takes");
        return Err(too_small(new.name(), &text));
    }
    Ok(SectionBytes { index, objects: objects.min(line_bytes << OBJECT_OFFSET_BITS) })
}

fn too_small(name: &TableName, error: &dyn std::fmt::Display) -> ServerError {
    let text = format!("table {name:?}: {error}. Give tables more memory");
    ServerError::new(ErrorCode::OutOfResources, text)
}

/// Frees what compute nodes replaced that ended before they said so. Looks for pairs whose deadlines have
/// passed, for compute nodes to remove.
struct Sweep {
    table: Arc<FlexTable>,
    /// The piece at which the look for these goes on, in all shards.
    piece: usize,
    pass: DeadlinePass,
}

impl Sweep {
    fn look_for_past(heads: &[(usize, Arc<ShardHead>)], piece: &mut usize, now_ms: u64) -> SeenPiece {
        let seen = heads.iter().map(|(_, head)| head.look_for_past(*piece, now_ms));
        let all = seen.reduce(|one, other| SeenPiece {
            pairs: one.pairs + other.pairs,
            ended: one.ended + other.ended,
            is_last: one.is_last && other.is_last,
        });
        let seen = all.unwrap_or(SeenPiece { pairs: 0, ended: 0, is_last: true });
        *piece = if seen.is_last { 0 } else { *piece + 1 };
        seen
    }
}

impl BackgroundWork for Sweep {
    /// A piece, whose objects take about as long as so many sub-models.
    fn step(&mut self, now: MonotonicNs, _: usize, processor_time: fn() -> Duration) -> BackgroundState {
        let Self { table, piece, pass } = self;
        let heads = table.heads().clone();
        // One step each: a head without work costs nothing.
        let are_working = heads.iter().filter(|(_, head)| head.sweep()).count();
        let look = |time: &Arc<dyn UnixTime>| {
            pass.step(now, processor_time, || Self::look_for_past(&heads, piece, time.now_ms()))
        };
        let looks_at = table.unix_time.as_ref().map(look);
        let again_at = looks_at.into_iter().chain(table.look_at_keepers(now)).min();
        if are_working > 0 { BackgroundState::Working } else { BackgroundState::Idle { again_at } }
    }
}

impl HostedTable for FlexTable {
    fn regions(&self) -> Vec<RegionInfo> {
        let of = |(space, region): (Space, &Arc<dyn Region>)| {
            let lines = region.words().len() / WORDS_PER_LINE;
            RegionInfo { space, id: region.id().0, capacity: u32::try_from(lines).unwrap_or(u32::MAX) }
        };
        // The order in which they are withdrawn: no swap of a slot executes over TCP once the WRITE of its
        // object cannot.
        [(Space::Index, &self.index), (Space::Blocks, &self.objects)].map(of).to_vec()
    }

    fn execute(&self, _: &Request<'_>, _: &mut Call<'_, '_>) -> Result<Executed, ServerError> {
        let text = format!(
            "table {:?} is of {}: compute nodes read and write it one-sided",
            self.name,
            FlexKv::KIND
        );
        Err(ServerError::new(ErrorCode::BadRequest, text))
    }

    fn stats(&self, _: MonotonicNs) -> HostedStats {
        let of_heads: Vec<_> = self.heads().iter().map(|(_, head)| head.stats()).collect();
        let (mut hash_index, used, blocks) =
            of_heads.into_iter().reduce(sum).expect("a node is the head of a shard");
        self.keepers().count_in(&mut hash_index);
        HostedStats {
            leaves: SpaceStats {
                capacity: (self.index.words().len() / WORDS_PER_LINE) as u64,
                block_bytes: LINE_BYTES as u64,
                used,
                ..SpaceStats::default()
            },
            blocks: Some(blocks),
            hash_index: Some(hash_index),
            huge_page_bytes: self.index.huge_page_bytes() + self.objects.huge_page_bytes(),
            ..HostedStats::default()
        }
    }

    fn end(&self, owner: ComputeNode) {
        self.proxies().end(owner);
        self.end_keeper(owner);
        for (_, head) in self.heads().clone() {
            head.end(owner);
        }
    }

    fn leave_out(&self, lost: LostNodes) {
        let sections: Vec<usize> = self.head_sections(lost).collect();
        self.head_only(&sections, &mut self.heads_mut());
    }

    fn take_in(&self, lost: LostNodes, is_new: bool) {
        let sections: Vec<usize> = self.head_sections(lost).collect();
        let mut heads = self.heads_mut();
        if is_new {
            // What it gives out is not what is free.
            heads.clear();
        }
        self.head_only(&sections, &mut heads);
    }

    fn receive(&self, space: Space, first_line: u32, bytes: &[u8]) -> Result<(), ServerError> {
        let region = if space == Space::Index { &self.index } else { &self.objects };
        let first = first_line as usize * WORDS_PER_LINE;
        let Some(words) = region.words().get(first..).and_then(|words| words.get(..bytes.len() / 8)) else {
            let text = format!(
                "table {:?}: {} lines from {first_line} on lie outside a region of {}",
                self.name,
                bytes.len() / LINE_BYTES,
                region.words().len() / WORDS_PER_LINE
            );
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        };
        for (word, bytes) in words.iter().zip(bytes.as_chunks().0) {
            // Relaxed: compute nodes that read it are let in behind a later call.
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        Ok(())
    }

    fn background(self: Arc<Self>) -> Option<Box<dyn BackgroundWork>> {
        Some(Box::new(Sweep { table: self, piece: 0, pass: DeadlinePass::default() }))
    }

    fn pending_training(&self) -> u64 {
        self.heads().iter().map(|(_, head)| head.pieces_left()).sum()
    }

    fn objects(&self) -> Option<&FlexTable> {
        Some(self)
    }
}
