//! The judges that look at a FlexKV table after its last fault, when nothing is under way any more.
//!
//! They check that each live slot is one of its key's and leads to that key's object. No key has two. They
//! walk through the subtables that directories lead to. One that somebody began to split and left has sealed
//! slots, which say what live ones did.
//! Once all compute nodes have gone, the nodes must have freed what no slot names.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};
use farsight_client::Access;
use farsight_fabric::Region as _;
use farsight_fabric_sim::{Kind, SimRegion};
use farsight_layout::hash_index::{
    BUCKET_SLOTS, BucketHeader, GROUP_BUCKETS, HASH_PARTITIONS, Halves, HashSlot, IndexShape, KeyHash,
    ObjectPlace, ObjectRef, SlotState, Subtable,
};
use farsight_layout::value_block::ValueBlock;
use farsight_oracles::Embedding as _;
use farsight_protocol::{LostNodes, Space, TableStats, WriteOperation, WriteOutcome};

use super::{JudgedPool, Stage};
use crate::classes::Coverage;
use crate::client::{Client, End, Plan};
use crate::cluster::{Cluster as _, HashedPool};
use crate::look_back::check_all_gone;
use crate::node::Node;
use crate::run::{NEWCOMER, TABLE};

/// Keys of one batch while looking back.
const BATCH: usize = 64;
/// Tries of who looks back: connections that the last fault broke are noticed by the first.
const TRIES: usize = 8;
/// As long as nodes may take until they have freed everything that ended compute nodes left.
const SWEPT_WITHIN: Duration = Duration::from_secs(2);
/// So long after a compute node was asked to settle a shard, a node asks another one.
const ASKED_AGAIN_WITHIN: Duration = Duration::from_millis(600);
/// Times that shards are settled.
const SETTLINGS: usize = 2;
/// Keys that who settles writes: of each of a few shards some.
const SETTLING_KEYS: usize = 64;
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
        // Who settles first fences those that left anything, too, which is swept behind that.
        for _ in 0..SETTLINGS {
            stage.settle()?;
            stage.await_swept()?;
        }
        let splits = stage.check_memory()?;
        check_all_gone(&stage.bystander)?;
        Ok(splits)
    }
}

impl<K: Kind> Stage<'_, K, HashedPool<K>> {
    /// The nodes that live, and that their pool goes on with, by their places.
    fn living(&self) -> Vec<(usize, Arc<Node<K>>)> {
        let nodes = self.pools.current();
        let said_by: Vec<_> = nodes.iter().map(|node| node.stats().lost).enumerate().collect();
        let dead = nodes.iter().enumerate().filter(|(_, node)| !node.is_alive()).map(|(place, _)| place);
        let lost = LostNodes::agreed(LostNodes::of(dead), &said_by, nodes.len());
        let lives = |(place, node): &(usize, Arc<Node<K>>)| node.is_alive() && !lost.contains(*place);
        nodes.into_iter().enumerate().filter(lives).collect()
    }

    /// Waits until the nodes have looked at everything that compute nodes left.
    fn await_swept(&self) -> Result<(), String> {
        let simulation = &self.bystander.simulation;
        let deadline = simulation.now().plus(SWEPT_WITHIN);
        loop {
            // As long as a node takes to notice that a compute node has ended.
            simulation.sleep(BETWEEN_LOOKS);
            let is_alone = self.living().iter().all(|(_, node)| node.stats().compute_nodes == 0);
            let client = HashedPool::<K>::connect(simulation, self.bystander.addresses);
            let pending = client.and_then(|client| client.pending_training());
            if is_alone && pending.as_ref().is_ok_and(|pending| *pending == 0) {
                return Ok(());
            }
            if simulation.now() > deadline {
                return Err(format!("after {SWEPT_WITHIN:?} there is left to sweep: {pending:?}"));
            }
        }
    }

    /// Has replicas settled that ended compute nodes left apart, if the nodes ask for it: by a compute node
    /// that writes keys of its own.
    fn settle(&self) -> Result<(), String> {
        if self.scenario.pool.is_none_or(|shape| shape.replicas == 1) {
            return Ok(());
        }
        self.bystander.simulation.sleep(ASKED_AGAIN_WITHIN);
        let mut settled = Ok(());
        for _ in 0..TRIES {
            settled = self.settle_once();
            if settled.is_ok() {
                break;
            }
            self.bystander.simulation.sleep(BETWEEN_LOOKS);
        }
        settled
    }

    fn settle_once(&self) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("settling: {error}");
        let client = HashedPool::<K>::connect(&self.bystander.simulation, self.bystander.addresses);
        let table = client.and_then(|client| client.open_table(TABLE)).map_err(|error| failed(&error))?;
        let mut session = table.session(Access::OneSided).map_err(|error| failed(&error))?;
        let (scenario, embedding) = (self.scenario, self.scenario.table_keys().integers());
        let known: BTreeSet<u64> = scenario.keys.iter().map(|key| embedding.key(*key)).collect();
        // Some of each shard. The first batch asks for memory, and the second one settles.
        let keys: Vec<u64> = (0..).filter(|key| !known.contains(key)).take(SETTLING_KEYS).collect();
        // Strings that no identity is.
        let strings: Vec<String> = keys.iter().map(|key| format!("settling {key}")).collect();
        let (value, mut outcomes) = (vec![0; usize::from(scenario.value_bytes)], Vec::new());
        for (operation, value) in [(WriteOperation::Put, &value[..]), (WriteOperation::Remove, &[])] {
            let written = if scenario.table_keys().strings().is_some() {
                let entries = strings.iter().map(|key| (key.as_bytes(), value));
                session.write(operation, entries, &mut outcomes)
            } else {
                session.write(operation, keys.iter().map(|key| (*key, value)), &mut outcomes)
            };
            written.map_err(|error| failed(&error))?;
            let failure = outcomes.iter().find(|outcome| matches!(outcome, WriteOutcome::Failed(_)));
            failure.map_or(Ok(()), |failure| Err(failed(&format!("{failure:?}"))))?;
        }
        Ok(())
    }

    /// Slots and objects fit, and nothing else is in use. Returns how often subtables were split.
    fn check_memory(&self) -> Result<u64, String> {
        let replicas = self.scenario.pool.map_or(1, |shape| shape.replicas);
        let count = self.bystander.addresses.len();
        let mut parts: Vec<Option<(TableStats, Vec<Arc<SimRegion>>)>> = vec![None; count];
        for (place, node) in self.living() {
            let table = node.stats().tables.into_iter().next_back().ok_or("no table is left")?;
            parts[place] = Some((table, node.regions()));
        }
        let (mut keys, mut splits) = (BTreeSet::new(), 0);
        let mut heads = vec![HeadSums::default(); count];
        for shard in 0..count {
            let mut head: Option<Replica<'_>> = None;
            for section in (0..replicas).rev() {
                let place = (shard + section) % count;
                let Some((table, regions)) = &parts[place] else { continue };
                let replica = Replica::of((shard, count), (section, replicas), table, regions)?;
                if let Some(head) = &head {
                    // Each replica by itself has no key twice.
                    replica.check(&mut BTreeSet::new())?;
                    replica.check_behind(head)?;
                    continue;
                }
                let (named_lines, subtables) = replica.check(&mut keys)?;
                heads[place].named_lines += named_lines;
                heads[place].subtables += subtables;
                head = Some(replica);
            }
        }
        for (place, part) in parts.iter().enumerate() {
            let Some((table, _)) = part else { continue };
            splits += heads[place].check(place, table)?;
        }
        Ok(splits)
    }
}

/// What the heads of a node have.
#[derive(Clone, Default)]
struct HeadSums {
    named_lines: u64,
    subtables: u32,
}

impl HeadSums {
    /// Compares it with what the node counts. Returns how often they were split.
    fn check(&self, place: usize, table: &TableStats) -> Result<u64, String> {
        let Self { named_lines, subtables } = self;
        let known = table.hash_index.ok_or("the node counts no splits")?;
        if *subtables != known.subtables {
            return Err(format!("node {place}: {subtables} subtables, it counts {known:?}"));
        }
        let blocks = table.blocks.ok_or("the node counts no objects")?;
        let used = (blocks.live_bytes - blocks.quarantined_bytes) / LINE_BYTES as u64;
        if used != *named_lines {
            return Err(format!("node {place}: {used} lines are in use, slots name {named_lines}"));
        }
        Ok(known.splits)
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
            Err(End::Lost) => plan.simulation.sleep(BETWEEN_LOOKS),
            Err(End::Fenced) => plan.programs.leave(plan.group),
            Err(End::Wrong) => return Err("looking back: something is wrong".to_owned()),
        }
    }
    Err(format!("looking back: {TRIES} connections broke"))
}

/// One node's part of a shard as it stands in memory.
struct Replica<'m> {
    shard: usize,
    nodes: usize,
    shape: IndexShape,
    slots: &'m [AtomicU64],
    objects: &'m [AtomicU64],
}

impl<'m> Replica<'m> {
    fn of(
        (shard, nodes): (usize, usize),
        (section, sections): (usize, usize),
        table: &TableStats,
        regions: &'m [Arc<SimRegion>],
    ) -> Result<Self, String> {
        let words_of = |space| {
            let id = table.info.region_of(space).map(farsight_protocol::RegionInfo::id);
            let region = regions.iter().find(|region| Some(region.id()) == id).ok_or("a region is gone")?;
            let words = region.words().len() / WORDS_PER_LINE / sections * WORDS_PER_LINE;
            Ok::<_, &str>(&region.words()[section * words..][..words])
        };
        let (slots, objects) = (words_of(Space::Index)?, words_of(Space::Blocks)?);
        let lines = (slots.len() / WORDS_PER_LINE) as u64;
        let shape = IndexShape::new(nodes, lines).map_err(|error| error.to_string())?;
        Ok(Self { shard, nodes, shape, slots, objects })
    }

    /// Checks that it has what the head has, but for what nobody has to settle: what somebody was inserting,
    /// sealing, sharing or closing, who has ended.
    fn check_behind(&self, head: &Self) -> Result<(), String> {
        let words_of = |of: Subtable| {
            let first_line = self.shape.unit_line(of.unit());
            let lines = first_line as usize..(first_line + self.shape.buckets().lines()) as usize;
            lines.start * WORDS_PER_LINE..lines.end * WORDS_PER_LINE
        };
        // Who splits a subtable last may have ended before any replica but the head had its halves.
        let words = self.subtables().into_iter().flat_map(words_of);
        for word in words.filter(|word| word % WORDS_PER_LINE > 0) {
            // Relaxed: nobody writes.
            let [own, at_head] = [self, head].map(|of| HashSlot(of.slots[word].load(Ordering::Relaxed)));
            let may_differ = match (own.state(), at_head.state()) {
                (SlotState::Reserved(_), _) => false,
                (SlotState::Unused, SlotState::Reserved(_) | SlotState::Live(_)) => true,
                _ if own.is_alike(at_head) => (own.sharing() as u8) < at_head.sharing() as u8,
                _ => own.sealed() == at_head,
            };
            if own != at_head && !may_differ {
                let shard = self.shard;
                return Err(format!(
                    "shard {shard}, word {word}: a replica has {own:x?}, the head {at_head:x?}"
                ));
            }
        }
        Ok(())
    }

    /// The subtables that directories lead to.
    fn subtables(&self) -> Vec<Subtable> {
        let mut found = Vec::new();
        for partition in (self.shard..HASH_PARTITIONS).step_by(self.nodes) {
            let mut left = vec![self.shape.root(partition)];
            while let Some(of) = left.pop() {
                let halves = of.directory_word().and_then(|word| {
                    let first = self.shape.directory_line(partition) as usize * WORDS_PER_LINE;
                    let word = self.slots[first + word].load(Ordering::Relaxed);
                    Halves::parse(word, self.shape.units())
                });
                match halves {
                    Some(halves) => left.extend([0, 1].map(|half| of.half(half, halves))),
                    None => found.push(of),
                }
            }
        }
        found
    }

    /// Checks all slots, and adds their keys to `keys`. Returns the lines of the objects that are named, and
    /// how many subtables there are.
    fn check(&self, keys: &mut BTreeSet<Vec<u8>>) -> Result<(u64, u32), String> {
        let (mut named_lines, subtables) = (0, self.subtables());
        for of in &subtables {
            named_lines += self.check_subtable(*of, keys)?;
        }
        Ok((named_lines, subtables.len() as u32))
    }

    /// The same of one subtable.
    fn check_subtable(&self, of: Subtable, keys: &mut BTreeSet<Vec<u8>>) -> Result<u64, String> {
        let mut named_lines = 0;
        let first_line = self.shape.unit_line(of.unit());
        for line in first_line..first_line + self.shape.buckets().lines() {
            let words = &self.slots[line as usize * WORDS_PER_LINE..][..WORDS_PER_LINE];
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
                let is_node = self.shape.node_of(hash) == self.shard;
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
        let words = self.objects.get(first..first + usize::from(lines) * WORDS_PER_LINE);
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
