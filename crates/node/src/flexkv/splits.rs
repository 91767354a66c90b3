//! Which memory of the index is whose, and who may split a subtable.
//!
//! Invariant: a unit is of one of these. It is a partition's first subtable for good; the directory names it;
//! it is in a compute node's hand, which alone writes it; it rests; or it is free. It leaves a hand when its
//! compute node says that it writes it no more, or has ended.
//!
//! A directory's words are compute nodes' to write. This node reads them to find out what became of the units
//! that it gave. A subtable that was split keeps sealed slots, and compute nodes that are connected may still
//! READ them. So its unit rests until all have ended that were there, as memory of objects does. Newcomers
//! find the directory: the first subtables, at which they begin, are never used again.
//!
//! Several compute nodes may have units for one subtable, when the first one took too long. One of them
//! publishes; the others give their units back.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use farsight_base::WORDS_PER_LINE;
use farsight_base::clock::MonotonicNs;
use farsight_base::sync::Ordering;
use farsight_fabric::{FabricError, Region};
use farsight_layout::hash_index::{
    BUCKET_SLOTS, DIRECTORY_WORDS, HASH_PARTITION_BITS, HASH_PARTITIONS, Halves, IndexShape, KeyHash,
    Subtable,
};
use farsight_protocol::{ComputeNode, HashIndexStats, SplitGrant};

use crate::compute_nodes::Connected;

/// What a split may take before another compute node may try, and more for each slot.
const LEASE: Duration = Duration::from_millis(10);
const LEASE_A_SLOT: Duration = Duration::from_micros(100);
/// Resting units that one call looks at.
const LOOKED_AT: usize = 8;

/// Units in a compute node's hand.
#[derive(Clone, Copy, Debug)]
struct Grant {
    owner: ComputeNode,
    partition: usize,
    of: Subtable,
    halves: Halves,
    since: MonotonicNs,
}

/// The units of one node's index.
pub(super) struct Splits {
    shape: IndexShape,
    nodes: usize,
    /// This node's place among them.
    index: usize,
    /// Units below were given once, or are first subtables.
    fresh: u32,
    free: Vec<u32>,
    /// Units of subtables that were split since somebody asked last.
    left: Vec<u32>,
    /// Those that directories at other replicas may lead to yet.
    unsettled: u32,
    /// Units that rest, and the greatest number of a compute node that may know them.
    resting: VecDeque<(u32, u32)>,
    grants: Vec<Grant>,
    /// Splits that took effect.
    done: u64,
    depth_max: u32,
}

impl Splits {
    /// Those of the node with this index in its table's list.
    pub(super) fn new(shape: IndexShape, nodes: usize, index: usize) -> Self {
        Self {
            shape,
            nodes,
            index,
            fresh: shape.partitions(),
            free: Vec::new(),
            left: Vec::new(),
            unsettled: 0,
            resting: VecDeque::new(),
            grants: Vec::new(),
            done: 0,
            depth_max: 0,
        }
    }

    /// Those that stand in an index which another node has given out units of, and the subtables that its
    /// directories lead to.
    pub(super) fn found_in(&self, index: &dyn Region) -> (Self, Vec<(usize, Subtable)>) {
        let mut found = Self::new(self.shape, self.nodes, self.index);
        let (mut used, mut subtables) = (Vec::new(), Vec::new());
        for partition in (self.index..HASH_PARTITIONS).step_by(self.nodes) {
            let mut left = vec![self.shape.root(partition)];
            while let Some(of) = left.pop() {
                let halves = of.directory_word().and_then(|word| self.halves(index, partition, word));
                let Some(halves) = halves else {
                    subtables.push((partition, of));
                    continue;
                };
                found.done += 1;
                found.depth_max = found.depth_max.max(of.depth() + 1 - HASH_PARTITION_BITS);
                used.extend(halves.0);
                left.extend([0, 1].map(|half| of.half(half, halves)));
            }
        }
        // A unit that a directory leads past has sealed slots. No compute node is left that may READ it.
        let lasting: BTreeSet<u32> = subtables.iter().map(|(_, of)| of.unit()).collect();
        found.fresh = used.into_iter().map(|unit| unit + 1).max().unwrap_or(0).max(found.fresh);
        found.free = (self.shape.partitions()..found.fresh).filter(|unit| !lasting.contains(unit)).collect();
        (found, subtables)
    }

    /// Bytes of the index before any split.
    pub(super) fn first_bytes(&self) -> u64 {
        self.end_bytes(self.fresh)
    }

    /// What a compute node gets that wants to split this subtable; `None` if there is no such one.
    pub(super) fn begin(
        &mut self,
        index: &dyn Region,
        (owner, connected): (ComputeNode, Connected),
        (partition, number): (usize, u32),
        now: MonotonicNs,
    ) -> Result<Option<SplitGrant>, FabricError> {
        let Some(of) = self.find(index, partition, number) else { return Ok(None) };
        let Some(word) = of.directory_word() else { return Ok(None) };
        if self.halves(index, partition, word).is_some() {
            return Ok(Some(SplitGrant::Done));
        }
        let lease = LEASE + LEASE_A_SLOT * self.slots_each();
        let is_of = |grant: &&Grant| (grant.partition, grant.of) == (partition, of);
        let newest = self.grants.iter().filter(is_of).map(|grant| grant.since).max();
        let pause = newest.map_or(Duration::ZERO, |since| lease.saturating_sub(now.since(since)));
        if !pause.is_zero() {
            let pause_us = u32::try_from(pause.as_micros()).unwrap_or(u32::MAX).max(1);
            return Ok(Some(SplitGrant::Wait { pause_us }));
        }
        self.resting.extend(self.left.drain(..).map(|unit| (unit, connected.newest)));
        self.wake(connected);
        let Some(halves) = self.take_two(index)? else {
            let (units, resting) = (self.shape.units(), self.resting.len() as u32);
            return Ok(Some(SplitGrant::Full { units, resting }));
        };
        self.grants.push(Grant { owner, partition, of, halves, since: now });
        Ok(Some(SplitGrant::Units(halves.0)))
    }

    /// Takes note that `owner` writes these units no more.
    pub(super) fn end(&mut self, index: &dyn Region, owner: ComputeNode, units: [u32; 2]) {
        let is_it = |grant: &Grant| grant.owner == owner && grant.halves == Halves(units);
        if let Some(at) = self.grants.iter().position(is_it) {
            let grant = self.grants.swap_remove(at);
            // It had all replicas follow before it said so.
            let left = self.settle(index, grant);
            self.left.extend(left);
        }
    }

    /// True if `owner` has units in hand.
    pub(super) fn has_granted(&self, owner: ComputeNode) -> bool {
        self.grants.iter().any(|grant| grant.owner == owner)
    }

    /// Takes note that `owner` has ended, and writes nothing any more. Units of subtables that it has split:
    /// other replicas than this one may not say so yet. They rest once they are [settled](Self::settled).
    pub(super) fn end_all(&mut self, index: &dyn Region, owner: ComputeNode) -> Vec<u32> {
        let ended: Vec<Grant> = self.grants.extract_if(.., |grant| grant.owner == owner).collect();
        let left: Vec<u32> = ended.into_iter().filter_map(|grant| self.settle(index, grant)).collect();
        self.unsettled += left.len() as u32;
        left
    }

    /// Takes note that no replica's directory leads to these units.
    pub(super) fn settled(&mut self, units: &[u32]) {
        self.unsettled -= units.len() as u32;
        self.left.extend(units);
    }

    /// The key's subtable now.
    pub(super) fn subtable(&self, index: &dyn Region, hash: KeyHash) -> Subtable {
        self.shape.subtable(hash, |word| self.word(index, hash.partition(), word))
    }

    pub(super) fn stats(&self, objects: u64) -> HashIndexStats {
        let partitions = (self.index..HASH_PARTITIONS).step_by(self.nodes).count() as u32;
        let subtables = partitions + self.done as u32;
        HashIndexStats {
            partitions,
            subtables,
            depth_max: self.depth_max,
            slots: u64::from(subtables) * u64::from(self.slots_each()),
            objects,
            splits: self.done,
            resting_units: self.unsettled + (self.left.len() + self.resting.len()) as u32,
            used_units: self.fresh - self.free.len() as u32,
            units: self.shape.units(),
            ..HashIndexStats::default()
        }
    }

    /// Lines of the index that are in use.
    pub(super) fn used_lines(&self) -> u64 {
        self.end_bytes(self.fresh - self.free.len() as u32) / (WORDS_PER_LINE * 8) as u64
    }

    /// Finds out what became of units that nobody writes any more. The unit of the subtable that was split
    /// into them.
    fn settle(&mut self, index: &dyn Region, Grant { partition, of, halves, .. }: Grant) -> Option<u32> {
        let word = of.directory_word().expect("only such ones are split");
        if self.halves(index, partition, word) != Some(halves) {
            self.free.extend(halves.0);
            return None;
        }
        self.done += 1;
        self.depth_max = self.depth_max.max(of.depth() + 1 - HASH_PARTITION_BITS);
        (of != self.shape.root(partition)).then(|| of.unit())
    }

    /// Two units that are nobody's, in memory that there is.
    fn take_two(&mut self, index: &dyn Region) -> Result<Option<Halves>, FabricError> {
        let from_free = self.free.len().min(2) as u32;
        let fresh = self.fresh + 2 - from_free;
        if fresh > self.shape.units() {
            return Ok(None);
        }
        index.grow_to(self.end_bytes(fresh))?;
        let mut units = self.free.split_off(self.free.len() - from_free as usize);
        units.extend(self.fresh..fresh);
        self.fresh = fresh;
        Ok(Some(Halves([units[0], units[1]])))
    }

    /// Frees units that nobody can know any more. A few of those that rest are looked at, in turn.
    fn wake(&mut self, connected: Connected) {
        for _ in 0..LOOKED_AT.min(self.resting.len()) {
            let Some((unit, newest)) = self.resting.pop_front() else { return };
            if connected.oldest <= newest {
                self.resting.push_back((unit, newest));
            } else {
                self.free.push(unit);
            }
        }
    }

    /// The subtable of this number, if the partition is this node's and was split so far.
    fn find(&self, index: &dyn Region, partition: usize, number: u32) -> Option<Subtable> {
        if partition >= HASH_PARTITIONS || partition % self.nodes != self.index {
            return None;
        }
        let mut at = self.shape.root(partition);
        for bit in (0..number.checked_ilog2()?).rev() {
            let halves = self.halves(index, partition, at.directory_word()?)?;
            at = at.half((number >> bit & 1) as usize, halves);
        }
        Some(at)
    }

    fn halves(&self, index: &dyn Region, partition: usize, word: usize) -> Option<Halves> {
        Halves::parse(self.word(index, partition, word), self.shape.units())
    }

    fn word(&self, index: &dyn Region, partition: usize, word: usize) -> u64 {
        debug_assert!(word < DIRECTORY_WORDS, "a directory's word");
        let first = self.shape.directory_line(partition) as usize * WORDS_PER_LINE;
        // Acquire: the halves are seen whole. Partner: the compare-and-swap of a compute node, which comes
        // behind the completion of its WRITEs.
        index.words()[first + word].load(Ordering::Acquire)
    }

    fn slots_each(&self) -> u32 {
        self.shape.buckets().lines() * BUCKET_SLOTS as u32
    }

    fn end_bytes(&self, units: u32) -> u64 {
        let lines =
            u64::from(self.shape.unit_line(0)) + u64::from(units) * u64::from(self.shape.buckets().lines());
        lines * (WORDS_PER_LINE * 8) as u64
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::flexkv::zeroed_region::ZeroedRegion;

    const A: ComputeNode = ComputeNode(1);
    const B: ComputeNode = ComputeNode(2);
    const BOTH: Connected = Connected { oldest: 1, newest: 2 };
    const PARTITION: usize = 77;
    /// Longer than a lease.
    const LATER: u64 = 1_000_000_000;

    /// An index with room for so many units more than partitions.
    fn index(more: usize) -> (Splits, ZeroedRegion) {
        let least = IndexShape::new(1, 0).expect_err("no room").needed_lines as usize;
        let lines = least + 3 * more;
        let memory = ZeroedRegion::of_lines(lines);
        let shape = IndexShape::new(1, lines as u64).expect("room");
        (Splits::new(shape, 1, 0), memory)
    }

    fn begin(
        splits: &mut Splits,
        memory: &ZeroedRegion,
        who: ComputeNode,
        number: u32,
        at_ns: u64,
    ) -> SplitGrant {
        let granted = splits.begin(memory, (who, BOTH), (PARTITION, number), MonotonicNs(at_ns));
        granted.expect("memory").expect("a subtable")
    }

    fn publish(splits: &Splits, memory: &ZeroedRegion, number: usize, units: [u32; 2]) {
        let first = splits.shape.directory_line(PARTITION) as usize * WORDS_PER_LINE;
        memory.words()[first + number].store(Halves(units).word(), Ordering::Relaxed);
    }

    #[test]
    fn one_compute_node_at_a_time_splits_a_subtable() {
        let (mut splits, memory) = index(10);
        let first = [1024, 1025];
        assert_eq!(begin(&mut splits, &memory, A, 1, 0), SplitGrant::Units(first));
        assert!(
            matches!(begin(&mut splits, &memory, B, 1, 1), SplitGrant::Wait { pause_us } if pause_us > 0)
        );
        // The other one takes long.
        let SplitGrant::Units(second) = begin(&mut splits, &memory, B, 1, LATER) else { panic!("no units") };
        assert!(second.iter().all(|unit| !first.contains(unit)));
        publish(&splits, &memory, 1, second);
        assert_eq!(begin(&mut splits, &memory, A, 1, LATER), SplitGrant::Done);
        splits.end(&memory, A, second);
        assert_eq!(splits.stats(0).splits, 0, "they are not its own");
        splits.end(&memory, A, first);
        splits.end(&memory, B, second);
        let stats = splits.stats(43);
        assert_eq!((stats.splits, stats.subtables, stats.depth_max, stats.slots), (1, 1025, 1, 1025 * 21));
        assert_eq!((stats.used_units, stats.units, stats.objects), (1026, 1034, 43));
        // Of a subtable that is not there, or of the greatest depth, nobody gets any.
        for number in [0, 4, 64, 127, u32::MAX] {
            let granted = splits.begin(&memory, (A, BOTH), (PARTITION, number), MonotonicNs(LATER));
            assert_eq!(granted.expect("memory"), None, "subtable {number}");
        }
    }

    #[test]
    fn units_of_ended_compute_nodes_are_free_unless_a_directory_names_them() {
        let (mut splits, memory) = index(4);
        let SplitGrant::Units(one) = begin(&mut splits, &memory, A, 1, 0) else { panic!("no units") };
        let SplitGrant::Units(two) = begin(&mut splits, &memory, A, 1, LATER) else { panic!("no units") };
        assert_eq!(
            begin(&mut splits, &memory, B, 1, 2 * LATER),
            SplitGrant::Full { units: 1028, resting: 0 }
        );
        publish(&splits, &memory, 1, two);
        assert_eq!(splits.end_all(&memory, A), [], "the partition's first subtable never rests");
        assert_eq!((splits.stats(0).splits, splits.stats(0).used_units), (1, 1026));
        assert_eq!(begin(&mut splits, &memory, B, 2, 2 * LATER), SplitGrant::Units(one));
    }

    /// The directory of another replica may lead there, until somebody has looked.
    #[test]
    fn units_that_an_ended_compute_node_split_rest_once_they_are_settled() {
        let (mut splits, memory) = index(4);
        for number in [1, 2] {
            let SplitGrant::Units(units) = begin(&mut splits, &memory, A, number, 0) else {
                panic!("no units")
            };
            publish(&splits, &memory, number as usize, units);
        }
        assert!(splits.has_granted(A) && !splits.has_granted(B));
        let left = splits.end_all(&memory, A);
        assert_eq!((left.len(), splits.has_granted(A), splits.stats(0).resting_units), (1, false, 1));
        let later = (ComputeNode(3), Connected { oldest: 3, newest: 4 });
        let full = |resting| Some(SplitGrant::Full { units: 1028, resting });
        let third = |splits: &mut Splits, who| {
            splits.begin(&memory, who, (PARTITION, 3), MonotonicNs(0)).expect("memory")
        };
        assert_eq!(third(&mut splits, later), full(0));
        assert_eq!((splits.stats(0).resting_units, splits.free.len()), (1, 0), "not settled");
        splits.settled(&left);
        assert_eq!(third(&mut splits, later), full(1));
        let newest = (ComputeNode(5), Connected { oldest: 5, newest: 5 });
        assert_eq!(third(&mut splits, newest), full(0));
        assert_eq!((splits.stats(0).resting_units, splits.free), (0, left));
    }

    /// Compute nodes that were there may READ a subtable that was split.
    #[test]
    fn units_rest_until_all_have_ended_that_may_know_them() {
        let (mut splits, memory) = index(4);
        for number in [1, 2] {
            let SplitGrant::Units(units) = begin(&mut splits, &memory, A, number, 0) else {
                panic!("no units")
            };
            publish(&splits, &memory, number as usize, units);
            splits.end(&memory, A, units);
        }
        assert_eq!(splits.stats(0).resting_units, 1, "the partition's first subtable never rests");
        assert_eq!(begin(&mut splits, &memory, A, 3, 0), SplitGrant::Full { units: 1028, resting: 1 });
        let later = Connected { oldest: 3, newest: 4 };
        let granted = splits.begin(&memory, (ComputeNode(3), later), (PARTITION, 3), MonotonicNs(0));
        // One unit is too few.
        assert_eq!(granted.expect("memory"), Some(SplitGrant::Full { units: 1028, resting: 0 }));
        assert_eq!((splits.stats(0).resting_units, splits.free.len()), (0, 1));
    }
}
