//! GETs through the cached static tree: locate, READ the key lines, search, READ the value, accept.
//!
//! The batch is staged as XStore's is: each step is a loop over the keys, one doorbell between two steps. A
//! single GET READs its whole leaf at once. What does not come out clean is READ again, or at the sibling,
//! one leaf at a time, [`READS_MAX`] times at most.

use farsight_base::{LeafNumber, Line, RegionId};
use farsight_fabric::{FabricError, QueuePair, ReadMode};
use farsight_index::Answers;
use farsight_layout::{Geometry, KEY_LINES, KeyLines, KeySearch, LeafSlot};

use crate::{BaselineError, StaticTree};

/// Keys of a staged batch.
pub const BATCH: usize = 64;
/// READs of one key by the slow path at most.
pub const READS_MAX: usize = 12;

/// A table's tree, and what its READs need.
pub struct TreeClient {
    tree: StaticTree,
    region: RegionId,
    geometry: Geometry,
    scratch: Box<Scratch>,
}

/// Arrays of a batch, reused.
struct Scratch {
    nodes: [u32; BATCH],
    leaves: [LeafNumber; BATCH],
    hits: [Option<(LeafSlot, u32)>; BATCH],
    slow_path: Vec<usize>,
    value_lines: Vec<Line>,
    leaf_lines: Vec<Line>,
}

impl TreeClient {
    /// READs the fences of all leaves among the first `block_count` blocks of `region`, for a table with
    /// values of `value_bytes`, and builds the tree over them.
    ///
    /// # Errors
    /// [`BaselineError::NotTiled`] if the table is written meanwhile; failures of the fabric.
    pub fn fetch<Q: QueuePair>(
        queue: &mut Q,
        region: RegionId,
        value_bytes: usize,
        block_count: u32,
    ) -> Result<Self, BaselineError> {
        const { assert!(Q::SLOTS >= BATCH, "a batch needs a slot a key") };
        let geometry = Geometry::new(value_bytes)?;
        let mut leaves = Vec::new();
        for first in (0..block_count).step_by(BATCH) {
            let blocks = first..block_count.min(first + BATCH as u32);
            for (slot, block) in blocks.clone().enumerate() {
                let from = geometry.address(region, LeafNumber(block), 0);
                queue.post_read(slot, from, KEY_LINES, ReadMode::Stamped);
            }
            queue.doorbell()?;
            for (slot, block) in blocks.enumerate() {
                let mut lines = [Line::ZERO; KEY_LINES];
                queue.take_read(slot, &mut lines)?;
                let view = KeyLines(&lines);
                if let Some(fences) = view.incarnation().and_then(|_| view.fences()) {
                    leaves.push((fences, LeafNumber(block)));
                }
            }
        }
        leaves.sort_unstable_by_key(|(fences, _)| fences.low);
        let mut expected = Some(0);
        for (leaf, (fences, _)) in leaves.iter().enumerate() {
            let got = Some(fences.low);
            if got != expected {
                return Err(not_tiled(leaf, leaves.len(), expected, got));
            }
            expected = fences.high;
        }
        if expected.is_some() {
            return Err(not_tiled(leaves.len(), leaves.len(), expected, None));
        }
        let leaves: Vec<_> = leaves.into_iter().map(|(fences, leaf)| (fences.low, leaf)).collect();
        Ok(Self {
            tree: StaticTree::new(&leaves),
            region,
            geometry,
            scratch: Box::new(Scratch::new(&geometry)),
        })
    }

    /// The tree.
    #[must_use]
    pub fn tree(&self) -> &StaticTree {
        &self.tree
    }

    /// The values of `keys`, in their order.
    ///
    /// # Errors
    /// [`BaselineError`]; then `answers` means nothing.
    pub fn multi_get<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), BaselineError> {
        answers.reset(keys.len(), self.geometry.value_bytes());
        for (batch, keys) in keys.chunks(BATCH).enumerate() {
            let first = batch * BATCH;
            self.scratch.slow_path.clear();
            self.locate_and_post(queue, keys);
            queue.doorbell()?;
            self.search_and_post(queue, keys)?;
            queue.doorbell()?;
            self.accept(queue, keys.len(), answers, first)?;
            while let Some(index) = self.scratch.slow_path.pop() {
                let value = answers.value_mut(first + index);
                let version = self.get_by_leaf(queue, keys[index], value)?.unwrap_or(0);
                answers.set_version(first + index, version);
            }
        }
        Ok(())
    }

    /// The value of `key` into `value`; returns its version, or `None` if the key is absent.
    ///
    /// # Errors
    /// [`BaselineError`].
    ///
    /// # Panics
    /// If `value` is not of the table's value size.
    pub fn get<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, BaselineError> {
        self.get_by_leaf(queue, key, value)
    }

    #[inline(always)]
    fn locate_and_post<Q: QueuePair>(&mut self, queue: &mut Q, keys: &[u64]) {
        let Scratch { nodes, leaves, .. } = &mut *self.scratch;
        self.tree.locate_batch(keys, nodes, leaves);
        for (slot, leaf) in leaves[..keys.len()].iter().enumerate() {
            queue.post_read(slot, self.geometry.address(self.region, *leaf, 0), KEY_LINES, ReadMode::Stamped);
        }
    }

    #[inline(always)]
    fn search_and_post<Q: QueuePair>(&mut self, queue: &mut Q, keys: &[u64]) -> Result<(), FabricError> {
        let scratch = &mut *self.scratch;
        let mut lines = [Line::ZERO; KEY_LINES];
        for (index, key) in keys.iter().enumerate() {
            queue.take_read(index, &mut lines)?;
            scratch.hits[index] = None;
            match KeyLines(&lines).search(*key) {
                KeySearch::Hit { slot, incarnation } => {
                    scratch.hits[index] = Some((slot, incarnation));
                    let line = self.geometry.value_place(slot).line;
                    let from = self.geometry.address(self.region, scratch.leaves[index], line);
                    queue.post_read(index, from, self.geometry.lines_per_value(), ReadMode::Stamped);
                }
                KeySearch::Absent => {}
                _ => scratch.slow_path.push(index),
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn accept<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        count: usize,
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), FabricError> {
        let scratch = &mut *self.scratch;
        for index in 0..count {
            let Some((slot, incarnation)) = scratch.hits[index] else { continue };
            queue.take_read(index, &mut scratch.value_lines)?;
            let (place, into) = (self.geometry.value_place(slot), answers.value_mut(first + index));
            match self.geometry.read_value(&scratch.value_lines, place, incarnation, into) {
                Ok(version) => answers.set_version(first + index, version),
                Err(_) => scratch.slow_path.push(index),
            }
        }
        Ok(())
    }

    /// READs whole leaves, from the tree's on to the right, until one of them answers.
    fn get_by_leaf<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        value: &mut [u8],
    ) -> Result<Option<u64>, BaselineError> {
        let geometry = self.geometry;
        let lines = &mut self.scratch.leaf_lines;
        let mut leaf = self.tree.locate(key);
        for _ in 0..READS_MAX {
            let from = geometry.address(self.region, leaf, 0);
            queue.post_read(0, from, geometry.leaf_lines(), ReadMode::Stamped);
            queue.doorbell()?;
            queue.take_read(0, lines)?;
            let key_lines = lines.first_chunk::<KEY_LINES>().expect("a leaf has a key part");
            match KeyLines(key_lines).search(key) {
                KeySearch::Hit { slot, incarnation } => {
                    let place = geometry.value_place(slot);
                    let value_lines = &lines[place.line..place.line + geometry.lines_per_value()];
                    // A value line copied before the key's line shows as not written, or of another
                    // incarnation; then both are READ again.
                    if let Ok(version) = geometry.read_value(value_lines, place, incarnation, value) {
                        return Ok(Some(version));
                    }
                }
                KeySearch::Absent => return Ok(None),
                KeySearch::Right(next) => leaf = next.some().unwrap_or_else(|| self.tree.locate(key)),
                KeySearch::Left | KeySearch::Foreign | KeySearch::Changing => leaf = self.tree.locate(key),
            }
        }
        Err(BaselineError::Stale { key, reads: READS_MAX })
    }
}

impl Scratch {
    fn new(geometry: &Geometry) -> Self {
        Self {
            nodes: [0; BATCH],
            leaves: [LeafNumber::NONE; BATCH],
            hits: [None; BATCH],
            slow_path: Vec::with_capacity(BATCH),
            value_lines: vec![Line::ZERO; geometry.lines_per_value()],
            leaf_lines: vec![Line::ZERO; geometry.leaf_lines()],
        }
    }
}

fn not_tiled(leaf: usize, leaf_count: usize, expected: Option<u64>, got: Option<u64>) -> BaselineError {
    BaselineError::NotTiled { leaf, leaf_count, expected: expected.unwrap_or(u64::MAX), got }
}
