//! The judges that look at a FlexKV table after its last fault, when nothing is under way any more.
//!
//! They check that each live slot is one of its key's and leads to that key's object. No key has two. They
//! walk through the subtables that directories lead to. One that somebody began to split and left has sealed
//! slots, which say what live ones did.
//! Once all compute nodes have gone, the nodes must have freed what no slot names.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::sync::Ordering;
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};
use farsight_client::Access;
use farsight_fabric::Region as _;
use farsight_fabric_sim::{Kind, SimRegion};
use farsight_layout::hash_index::{
    BUCKET_SLOTS, BucketHeader, GROUP_BUCKETS, HASH_PARTITIONS, Halves, HashSlot, IndexShape, KeyHash,
    ObjectPlace, ObjectRef, SlotState, Subtable,
};
use farsight_layout::value_block::ValueBlock;
use farsight_protocol::{Space, TableStats};

use super::{JudgedPool, Stage};
use crate::classes::Coverage;
use crate::client::{Client, End, Plan};
use crate::cluster::{Cluster as _, HashedPool};
use crate::look_back::check_all_gone;
use crate::run::NEWCOMER;

/// Keys of one batch while looking back.
const BATCH: usize = 64;
/// Tries of who looks back: connections that the last fault broke are noticed by the first.
const TRIES: usize = 4;
/// As long as nodes may take until they have freed everything that ended compute nodes left.
const SWEPT_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks whether they have.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

impl<K: Kind> JudgedPool<K> for HashedPool<K> {
    fn remember(stage: &Stage<'_, K, Self>) -> Result<(), String> {
        let reader = Client::<Self>::open(&stage.bystander, stage.bystander.seed);
        let known = reader.and_then(|mut reader| reader.read_keys(&stage.scenario.keys));
        known.map_err(|_| "the table cannot be read".to_owned())
    }

    fn look_back(stage: &Stage<'_, K, Self>, _met: &Coverage) -> Result<u64, String> {
        read_keys(&stage.bystander)?;
        let fresh = Arc::new(Plan { group: NEWCOMER, access: Access::OneSided, ..stage.bystander.again() });
        read_keys(&fresh)?;
        stage.bystander.programs.close();
        stage.await_swept()?;
        let splits = stage.check_memory()?;
        check_all_gone(&stage.bystander)?;
        Ok(splits)
    }
}

impl<K: Kind> Stage<'_, K, HashedPool<K>> {
    /// Waits until the nodes have looked at everything that compute nodes left.
    fn await_swept(&self) -> Result<(), String> {
        let simulation = &self.bystander.simulation;
        let deadline = simulation.now().plus(SWEPT_WITHIN);
        loop {
            // As long as a node takes to notice that a compute node has ended.
            simulation.sleep(BETWEEN_LOOKS);
            let client = HashedPool::<K>::connect(simulation, self.bystander.addresses);
            let client = client.map_err(|error| format!("looking back: {error}"))?;
            let is_alone = self.pools.current().iter().all(|node| node.stats().compute_nodes == 0);
            let pending = client.pending_training().map_err(|error| format!("looking back: {error}"))?;
            if is_alone && pending == 0 {
                return Ok(());
            }
            if simulation.now() > deadline {
                return Err(format!("after {SWEPT_WITHIN:?} {pending} pieces are left to sweep"));
            }
        }
    }

    /// Slots and objects fit, and nothing else is in use. Returns how often subtables were split.
    fn check_memory(&self) -> Result<u64, String> {
        let nodes = self.pools.current();
        let parts: Vec<(TableStats, Vec<Arc<SimRegion>>)> = nodes
            .iter()
            .map(|node| {
                let table = node.stats().tables.into_iter().next_back().ok_or("no table is left")?;
                Ok::<_, &str>((table, node.regions()))
            })
            .collect::<Result<_, _>>()?;
        let (mut keys, mut splits) = (BTreeSet::new(), 0);
        for (index, (table, regions)) in parts.iter().enumerate() {
            let region = |space| {
                let id = table.info.region_of(space).map(farsight_protocol::RegionInfo::id);
                regions.iter().find(|region| Some(region.id()) == id).ok_or("a region is gone")
            };
            let (slots, objects) = (region(Space::Index)?, region(Space::Blocks)?);
            let lines = (slots.words().len() / WORDS_PER_LINE) as u64;
            let shape = IndexShape::new(parts.len(), lines).map_err(|error| error.to_string())?;
            let node = NodeIndex { index, nodes: parts.len(), shape, slots, objects };
            let (named_lines, subtables) = node.check(&mut keys)?;
            let known = table.hash_index.ok_or("the node counts no splits")?;
            if subtables != known.subtables {
                return Err(format!("node {index}: {subtables} subtables, it counts {known:?}"));
            }
            splits += known.splits;
            let blocks = table.blocks.ok_or("the node counts no objects")?;
            let used = (blocks.live_bytes - blocks.quarantined_bytes) / LINE_BYTES as u64;
            if used != named_lines {
                return Err(format!("node {index}: {used} lines are in use, slots name {named_lines}"));
            }
        }
        Ok(splits)
    }
}

/// Reads every key, by the program of `plan`.
fn read_keys<K: Kind>(plan: &Arc<Plan<HashedPool<K>>>) -> Result<(), String> {
    for _ in 0..TRIES {
        let client = Client::<HashedPool<K>>::open(plan, plan.seed);
        let read =
            client.and_then(|mut client| plan.keys.chunks(BATCH).try_for_each(|keys| client.read_keys(keys)));
        match read {
            Ok(()) => return Ok(()),
            Err(End::Lost) => {}
            Err(End::Fenced) => plan.programs.leave(plan.group),
            Err(End::Wrong) => return Err("looking back: something is wrong".to_owned()),
        }
    }
    Err(format!("looking back: {TRIES} connections broke"))
}

/// One node's part of a table as it stands in memory.
struct NodeIndex<'m> {
    index: usize,
    nodes: usize,
    shape: IndexShape,
    slots: &'m SimRegion,
    objects: &'m SimRegion,
}

impl NodeIndex<'_> {
    /// Checks all slots, and adds their keys to `keys`. Returns the lines of the objects that are named, and
    /// how many subtables there are.
    fn check(&self, keys: &mut BTreeSet<Vec<u8>>) -> Result<(u64, u32), String> {
        let (mut named_lines, mut subtables) = (0, 0);
        for partition in (self.index..HASH_PARTITIONS).step_by(self.nodes) {
            let mut left = vec![self.shape.root(partition)];
            while let Some(of) = left.pop() {
                let halves = of.directory_word().and_then(|word| {
                    let first = self.shape.directory_line(partition) as usize * WORDS_PER_LINE;
                    let word = self.slots.words()[first + word].load(Ordering::Relaxed);
                    Halves::parse(word, self.shape.units())
                });
                if let Some(halves) = halves {
                    left.extend([0, 1].map(|half| of.half(half, halves)));
                } else {
                    named_lines += self.check_subtable(of, keys)?;
                    subtables += 1;
                }
            }
        }
        Ok((named_lines, subtables))
    }

    /// The same of one subtable.
    fn check_subtable(&self, of: Subtable, keys: &mut BTreeSet<Vec<u8>>) -> Result<u64, String> {
        let mut named_lines = 0;
        let first_line = self.shape.unit_line(of.unit());
        for line in first_line..first_line + self.shape.buckets().lines() {
            let words = &self.slots.words()[line as usize * WORDS_PER_LINE..][..WORDS_PER_LINE];
            let header = words[0].load(Ordering::Relaxed);
            for slot in 0..BUCKET_SLOTS {
                // Relaxed, here and below: nobody writes.
                let (object, is_live) = match HashSlot(words[1 + slot].load(Ordering::Relaxed)).state() {
                    SlotState::Unused | SlotState::Sealed(None) => continue,
                    SlotState::Live(object) | SlotState::Sealed(Some(object)) => (object, true),
                    SlotState::Reserved(object) => (object, false),
                    SlotState::Corrupt => return Err(format!("line {line}, slot {slot} is none")),
                };
                named_lines += u64::from(object.place.lines);
                let key = self.key(object).map_err(|what| format!("line {line}, slot {slot}: {what}"))?;
                let hash = KeyHash::of(&key);
                let first_lines = self.shape.first_lines(hash, of);
                let is_place = first_lines.iter().any(|first| (*first..first + 2).contains(&line));
                let is_node = self.shape.node_of(hash) == self.index;
                let is_overflow = line as usize % GROUP_BUCKETS == 1;
                let is_header =
                    is_overflow || header == 0 || header == BucketHeader::new(hash, of.depth()).word();
                if !is_place || !is_node || !is_header {
                    return Err(format!("line {line}, slot {slot} is none of its key {key:x?}"));
                }
                if is_live && !keys.insert(key.clone()) {
                    return Err(format!("key {key:x?} has two slots"));
                }
            }
        }
        Ok(named_lines)
    }

    /// The key of an object.
    fn key(&self, object: ObjectRef) -> Result<Vec<u8>, String> {
        let ObjectPlace { offset_lines, lines, generation } = object.place;
        let first = offset_lines as usize * WORDS_PER_LINE;
        let words = self.objects.words().get(first..first + usize::from(lines) * WORDS_PER_LINE);
        let words = words.ok_or("its object lies outside the region")?;
        let bytes: Vec<u8> =
            words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let block = ValueBlock::parse(&bytes).map_err(|fault| format!("its object: {fault}"))?;
        if block.table() != generation || KeyHash::fingerprint(block.key()) != object.fingerprint {
            return Err(format!("{object:?} leads to {block:?}"));
        }
        Ok(block.key().to_vec())
    }
}
