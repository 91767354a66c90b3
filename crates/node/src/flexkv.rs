//! A FlexKV table on a node: an index and objects that compute nodes read and write one-sided, and who has
//! memory for objects in hand.
//!
//! Invariant: memory of an object is free, in a compute node's hand, or named by a slot. What a slot named is
//! in the hand of the compute node that changed the slot. This node's processor gives it out and takes it
//! back. It reads what compute nodes wrote only when one of them has ended, and writes nothing there.

mod objects;
mod proxies;
mod splits;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::Ordering;
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};
use farsight_blocks::BlockSpace;
use farsight_fabric::Region;
use farsight_index::{FlexKv, Registered};
use farsight_layout::hash_index::{
    COMBINED_BUCKETS, HashSlot, IndexShape, KeyHash, OBJECT_OFFSET_BITS, ObjectPlace, SlotState,
};
use farsight_layout::value_block::{ValueBlock, block_bytes};
use farsight_protocol::{
    BlockSpaceStats, ComputeNode, ErrorCode, ObjectMemory, PROXIES_MAX, Proxy, ProxyLease, ProxyOffer,
    RegionInfo, Request, ServerError, Space, SpaceStats, SplitGrant, ValueKind,
};

use crate::BackgroundState;
use crate::compute_nodes::Connected;
use crate::engine::{BackgroundWork, Call, Executed, HostedStats, HostedTable};
use crate::new_table::NewTable;
use crate::table_name::TableName;
use objects::Objects;
use proxies::Proxies;
use splits::Splits;

/// The number by which blocks name their space: there is one.
const SPACE: u8 = 0;
/// Bytes of the index for each pair. A slot takes 9 with its bucket's header, and half as much again where
/// two thirds are used. Subtables that were split take as much as those in use.
const INDEX_BYTES_A_PAIR: u64 = 32;
/// Bytes of a value of any length, on average, for which the index has room.
const USUAL_VALUE_BYTES: usize = 128;

/// What slots say of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Named {
    /// Nothing.
    Not,
    /// A writer has one for it.
    Reserved,
    /// It is a key's.
    Live,
}

/// What a node keeps of a FlexKV table.
pub struct FlexTable {
    name: Arc<TableName>,
    index: Arc<dyn Region>,
    shape: IndexShape,
    splits: Mutex<Splits>,
    space: Arc<BlockSpace>,
    objects: Mutex<Objects>,
    /// Who writes for others, at the coordinator.
    proxies: Option<Mutex<Proxies>>,
}

impl FlexTable {
    /// An empty table, whose memory index and objects share.
    pub(crate) fn new(new: &NewTable<'_>) -> Result<Self, ServerError> {
        let name = Arc::clone(new.name());
        let value_bytes = match new.values() {
            ValueKind::Fixed(bytes) => bytes.into(),
            ValueKind::Blocks { max_bytes, .. } => (max_bytes as usize).min(USUAL_VALUE_BYTES),
        };
        let object_bytes = block_bytes(size_of::<u64>(), value_bytes).next_multiple_of(LINE_BYTES) as u64;
        let index_lines =
            new.memory_bytes() / (object_bytes + INDEX_BYTES_A_PAIR) * INDEX_BYTES_A_PAIR / LINE_BYTES as u64;
        let least = IndexShape::new(new.nodes(), 0).err().map_or(0, |too_small| too_small.needed_lines);
        let index_bytes = index_lines.max(least) * LINE_BYTES as u64;
        let too_small = |error: &dyn std::fmt::Display| {
            let text = format!("table {name:?}: {error}. Give tables more memory");
            ServerError::new(ErrorCode::OutOfResources, text)
        };
        let object_bytes =
            new.memory_bytes().saturating_sub(index_bytes) / LINE_BYTES as u64 * LINE_BYTES as u64;
        if object_bytes == 0 {
            let text = format!("{} B are fewer than its index takes", new.memory_bytes());
            return Err(too_small(&text));
        }
        let index = new.writable_region(index_bytes)?;
        let lines = (index.words().len() / WORDS_PER_LINE) as u64;
        let shape = IndexShape::new(new.nodes(), lines).map_err(|error| too_small(&error))?;
        let splits = Splits::new(shape, new.nodes(), new.index());
        index
            .grow_to(splits.first_bytes())
            .map_err(|error| ServerError::new(ErrorCode::NoMemory, error.to_string()))?;
        let reach_bytes = (LINE_BYTES as u64) << OBJECT_OFFSET_BITS;
        let space = new.writable_region(object_bytes.min(reach_bytes))?;
        let space = Arc::new(BlockSpace::new(space, SPACE, object_bytes.min(reach_bytes)));
        let objects = Mutex::new(Objects::new(Arc::clone(&space)));
        let (splits, proxies) = (Mutex::new(splits), (new.index() == 0).then(Mutex::default));
        Ok(Self { name, index, shape, splits, space, objects, proxies })
    }

    /// Takes note of what became of memory that compute nodes had in hand, and gives `owner` more.
    pub(crate) fn exchange(
        &self,
        owner: ComputeNode,
        connected: Connected,
        (lines, count): (u8, u16),
        published: &[ObjectMemory],
        freed: &[ObjectMemory],
    ) -> Result<Vec<ObjectMemory>, ServerError> {
        let orphans = self.objects().take_orphans();
        self.settle(orphans);
        let mut objects = self.objects();
        objects.note_published(owner, published);
        objects.free(freed);
        objects.give(owner, connected, lines, count).map_err(|error| {
            let code = if error.system.is_some() { ErrorCode::NoMemory } else { ErrorCode::RegionFull };
            ServerError::new(code, format!("table {:?}: {error}", self.name))
        })
    }

    /// Gives partitions to a compute node that would write for others, or renews what it has.
    pub(crate) fn lease_partitions(
        &self,
        owner: ComputeNode,
        offer: ProxyOffer,
        now: MonotonicNs,
    ) -> Result<ProxyLease, ServerError> {
        self.proxies()?.lease(owner, offer, now).ok_or_else(|| {
            let text = format!("table {:?} has {PROXIES_MAX} compute nodes that serve, its most", self.name);
            ServerError::new(ErrorCode::OutOfResources, text)
        })
    }

    /// Who writes for others.
    pub(crate) fn who_proxies(&self, now: MonotonicNs) -> Result<Vec<Proxy>, ServerError> {
        Ok(self.proxies()?.all(now))
    }

    fn proxies(&self) -> Result<MutexGuard<'_, Proxies>, ServerError> {
        // Each change is complete, or a bug that ends all answers.
        let proxies = self.proxies.as_ref().ok_or_else(|| {
            let text = "the pool's first node knows which compute nodes serve, not this one";
            ServerError::new(ErrorCode::BadRequest, text)
        })?;
        Ok(proxies.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What a compute node gets that wants to split this subtable of a partition.
    pub(crate) fn begin_split(
        &self,
        who: (ComputeNode, Connected),
        (partition, number): (usize, u32),
        now: MonotonicNs,
    ) -> Result<SplitGrant, ServerError> {
        let refused = || {
            let text =
                format!("table {:?} has no subtable {number} of partition {partition} here", self.name);
            ServerError::new(ErrorCode::BadRequest, text)
        };
        let granted = self.splits().begin(&*self.index, who, (partition, number), now);
        let granted = granted.map_err(|error| ServerError::new(ErrorCode::NoMemory, error.to_string()))?;
        granted.ok_or_else(refused)
    }

    /// Takes note that `owner` writes these units no more.
    pub(crate) fn end_split(&self, owner: ComputeNode, units: [u32; 2]) {
        self.splits().end(&*self.index, owner, units);
    }

    fn splits(&self) -> MutexGuard<'_, Splits> {
        // As of objects.
        self.splits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        // Each change is complete, or a bug that ends all answers.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a slot says of this object, which its compute node has published, or left when it ended. A slot
    /// that was sealed names it still, unless the subtable has halves by now.
    fn slot_of(&self, memory: ObjectMemory) -> Named {
        let ObjectMemory { offset_lines, lines, generation } = memory;
        let place = ObjectPlace { offset_lines, lines, generation };
        let Some(hash) = self.hash_at(place) else { return Named::Not };
        let subtable = self.splits().subtable(&*self.index, hash);
        for first_line in self.shape.first_lines(hash, subtable) {
            let first = first_line as usize * WORDS_PER_LINE;
            for slot in &self.index.words()[first..first + COMBINED_BUCKETS * WORDS_PER_LINE] {
                // Relaxed, here and below: who published it has said so, or has ended and the fabric has
                // waited for that. What others make of the slot meanwhile names no earlier object.
                match HashSlot(slot.load(Ordering::Relaxed)).state() {
                    SlotState::Live(object) | SlotState::Sealed(Some(object)) if object.place == place => {
                        return Named::Live;
                    }
                    SlotState::Reserved(object) if object.place == place => return Named::Reserved,
                    _ => {}
                }
            }
        }
        Named::Not
    }

    /// Frees what ended compute nodes had in hand and no slot names. What one has reserved is looked at again
    /// later: cards and processors do not agree on atomics, so compute nodes alone change slots.
    fn settle(&self, held: Vec<(ComputeNode, ObjectMemory)>) {
        for (owner, memory) in held {
            match self.slot_of(memory) {
                Named::Live => self.objects().note_published(owner, &[memory]),
                Named::Not => self.objects().free_held(owner, memory),
                Named::Reserved => self.objects().orphan(owner, memory),
            }
        }
    }

    /// The hash of the key of the object that stands there, if one does.
    fn hash_at(&self, place: ObjectPlace) -> Option<KeyHash> {
        let first = place.offset_lines as usize * WORDS_PER_LINE;
        let words =
            self.space.region().words().get(first..first + usize::from(place.lines) * WORDS_PER_LINE)?;
        // Relaxed: as in `is_named`.
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let block = ValueBlock::parse(&bytes).ok()?;
        (block.table() == place.generation).then(|| KeyHash::of(block.key()))
    }
}

/// Frees what compute nodes replaced that ended before they said so.
struct Sweep(Arc<FlexTable>);

impl BackgroundWork for Sweep {
    /// A piece, whose objects take about as long as so many sub-models.
    fn step(&mut self, _: MonotonicNs, _: usize, _: fn() -> Duration) -> BackgroundState {
        let table = &*self.0;
        let orphans = table.objects().take_orphans();
        table.settle(orphans);
        let piece = table.objects().next_piece();
        let Some(piece) = piece else { return BackgroundState::Idle { again_at: None } };
        // An object that is in no hand was named by a slot. If none names it any more, none ever will.
        let unnamed: Vec<_> = piece.into_iter().filter(|of| table.slot_of(*of) == Named::Not).collect();
        table.objects().free(&unnamed);
        BackgroundState::Working
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
        [(Space::Index, &self.index), (Space::Blocks, self.space.region())].map(of).to_vec()
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
        let of_blocks = self.space.stats();
        let lines = (self.index.words().len() / WORDS_PER_LINE) as u64;
        // Each lock is let go before the next one is taken.
        let (objects, resting_lines) = {
            let objects = self.objects();
            (objects.published(), objects.resting_lines())
        };
        let (hash_index, used) = {
            let splits = self.splits();
            (splits.stats(objects), splits.used_lines())
        };
        HostedStats {
            leaves: SpaceStats {
                capacity: lines,
                block_bytes: LINE_BYTES as u64,
                used,
                ..SpaceStats::default()
            },
            blocks: Some(BlockSpaceStats {
                live_bytes: of_blocks.live_bytes,
                free_bytes: of_blocks.free_bytes,
                quarantined_bytes: resting_lines * LINE_BYTES as u64,
                lost_bytes: of_blocks.lost_bytes,
                used_bytes: of_blocks.used_bytes,
                limit_bytes: of_blocks.limit_bytes,
            }),
            hash_index: Some(hash_index),
            huge_page_bytes: self.index.huge_page_bytes() + self.space.region().huge_page_bytes(),
            ..HostedStats::default()
        }
    }

    fn end(&self, owner: ComputeNode) {
        if let Ok(mut proxies) = self.proxies() {
            proxies.end(owner);
        }
        self.splits().end_all(&*self.index, owner);
        let held = self.objects().held_by(owner);
        self.settle(held);
        // What it replaced, and had not said so yet, is in nobody's hand.
        self.objects().begin_sweep();
    }

    fn background(self: Arc<Self>) -> Option<Box<dyn BackgroundWork>> {
        Some(Box::new(Sweep(self)))
    }

    fn pending_training(&self) -> u64 {
        self.objects().pieces_left() as u64
    }

    fn objects(&self) -> Option<&FlexTable> {
        Some(self)
    }
}
