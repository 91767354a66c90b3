//! Loading an empty tree: leaves one after the other, inner levels from the bottom up.
//!
//! Protocol: while pairs are pushed, complete leaves lie in blocks that neither the tree nor the chain names.
//! The tree refuses hints as long as a load is under way. [`BulkLoader::finish`] then
//! 1. latches the tree's only leaf, and checks that it is still alone and empty,
//! 2. fills it with the first pairs and its way to the second leaf,
//! 3. publishes the new root, and retires the old one.
//!
//! A loader that is dropped before gives everything back, without a wait. It clears its blocks, even those
//! whose latches writers hold by mistaken hints; then the load no longer counts. A writer that latches such a
//! block finds the load under way and writes nothing, or finds the block cleared. The loader fills a block
//! under its latch, for a writer that latched it before may have found no load.

use std::sync::Arc;

use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_index::{Backoff, LatchedLeaf, LeafFormat, LeafSpan, Waited};
use farsight_layout::{Fences, LEAF_SLOTS};
use farsight_model::shortest_fence;

use super::error::{BulkLoadError, WriteError};
use super::node::CHILDREN_MAX;
use super::tree::{ALL_KEYS, LATCH_ATTEMPTS, XTree};

/// Children of an inner node after a load: three quarters, as in the leaves.
const BULK_LOAD_CHILDREN: usize = CHILDREN_MAX * 3 / 4;

/// What a bulk load stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BulkLoaded {
    /// Pairs.
    pub pairs: u64,
    /// Leaves that hold them.
    pub leaves: u64,
}

/// The pairs of one leaf, not yet in place.
#[derive(Default)]
struct LeafPairs {
    keys: Vec<u64>,
    values: Vec<u8>,
    /// Of the first of them: the tree gives the others.
    versions: Vec<u64>,
}

impl LeafPairs {
    /// Gives pairs that have no versions the next ones of the tree.
    fn complete<F: LeafFormat>(&mut self, tree: &XTree<F>, key: u64) -> Result<(), WriteError> {
        let missing = self.keys.len() - self.versions.len();
        if missing > 0 {
            let first = tree.take_versions(missing as u64).ok_or(WriteError::VersionsExhausted { key })?;
            self.versions.extend(first..first + missing as u64);
        }
        Ok(())
    }

    /// Fills a leaf that nobody reads yet, or that is shown by this.
    fn fill(&self, leaf: &mut impl LatchedLeaf, span: LeafSpan) {
        leaf.fill(span, &self.keys, &self.values, &self.versions);
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.values.clear();
        self.versions.clear();
    }
}

/// A load under way. Nothing of it is visible before [`BulkLoader::finish`].
pub struct BulkLoader<F: LeafFormat> {
    tree: Arc<XTree<F>>,
    /// The first leaf's pairs: they go into the tree's only leaf, at the end.
    first: LeafPairs,
    /// The pairs of the leaf that is being collected, if that is not the first.
    current: LeafPairs,
    /// The leaves behind the first: low fence and block, ascending. The last one is being collected.
    leaves: Vec<(u64, LeafNumber)>,
    last_key: Option<u64>,
    pairs: u64,
    /// Pairs of a leaf.
    leaf_pairs: usize,
}

impl<F: LeafFormat> XTree<F> {
    /// Begins to load an empty tree that never had a second leaf. Otherwise a reader whose table is from
    /// before could meet the new pairs too early, in blocks that were leaves once.
    ///
    /// # Errors
    /// [`BulkLoadError::NotEmpty`].
    pub fn begin_bulk_load(self: &Arc<Self>) -> Result<BulkLoader<F>, BulkLoadError> {
        self.check_pristine()?;
        // Relaxed: the latch of each leaf that is filled hands it on to a writer that latches that leaf by a
        // guess.
        self.loads.fetch_add(1, Ordering::Relaxed);
        Ok(BulkLoader {
            tree: Arc::clone(self),
            first: LeafPairs::default(),
            current: LeafPairs::default(),
            leaves: Vec::new(),
            last_key: None,
            pairs: 0,
            leaf_pairs: self.format.bulk_load_pairs(),
        })
    }

    fn check_pristine(&self) -> Result<(), BulkLoadError> {
        let stats = self.stats();
        let had_leaves = stats.splits > 0 || stats.merges > 0;
        if stats.pairs > 0 || stats.leaves > 1 || had_leaves {
            return Err(BulkLoadError::NotEmpty { pairs: stats.pairs, leaves: stats.leaves });
        }
        Ok(())
    }

    /// Loads ascending pairs into an empty tree, as [`BulkLoader`] does.
    ///
    /// # Errors
    /// [`BulkLoadError`]; the tree is then as it was.
    pub fn bulk_load<'v>(
        self: &Arc<Self>,
        pairs: impl IntoIterator<Item = (u64, &'v [u8])>,
    ) -> Result<BulkLoaded, BulkLoadError> {
        let mut loader = self.begin_bulk_load()?;
        for (key, value) in pairs {
            loader.push(key, value)?;
        }
        loader.finish()
    }
}

impl<F: LeafFormat> BulkLoader<F> {
    /// True if so many pairs have room in leaves as a load fills them.
    #[must_use]
    pub fn has_room_for(&self, pairs: u64) -> bool {
        pairs.div_ceil(self.leaf_pairs as u64) <= self.tree.slab.capacity_leaves().into()
    }

    /// Fills leaves to their end: for pairs that have no room otherwise. Inserts will split them.
    pub fn fill_leaves(&mut self) {
        self.leaf_pairs = LEAF_SLOTS;
    }

    /// Appends a pair.
    ///
    /// # Errors
    /// [`BulkLoadError`] naming the pair: keys that do not ascend, a value of another size, a full region.
    /// The load cannot be continued after an error.
    pub fn push(&mut self, key: u64, value: &[u8]) -> Result<(), BulkLoadError> {
        self.push_pair(key, value, None)
    }

    /// Appends a pair that has its version already. All pairs of a load have, or none.
    ///
    /// # Errors
    /// As [`BulkLoader::push`].
    pub fn push_versioned(&mut self, key: u64, version: u64, value: &[u8]) -> Result<(), BulkLoadError> {
        self.tree.leave_out_versions(version);
        self.push_pair(key, value, Some(version))
    }

    fn push_pair(&mut self, key: u64, value: &[u8], version: Option<u64>) -> Result<(), BulkLoadError> {
        let index = self.pairs;
        match self.last_key {
            Some(previous) if previous > key => return Err(BulkLoadError::Unsorted { index, key, previous }),
            Some(previous) if previous == key => return Err(BulkLoadError::Duplicate { index, key }),
            _ => {}
        }
        self.store(key, value, version).map_err(|error| BulkLoadError::Write { index, error })?;
        self.last_key = Some(key);
        self.pairs += 1;
        Ok(())
    }

    fn store(&mut self, key: u64, value: &[u8], version: Option<u64>) -> Result<(), WriteError> {
        self.tree.check_value(key, value)?;
        let full = self.leaf_pairs;
        let collected = if self.leaves.is_empty() { &self.first } else { &self.current };
        if collected.keys.len() == full {
            let next = self.tree.slab.allocate().map_err(|full| WriteError::RegionFull { key, full })?;
            let fence = shortest_fence(collected.keys[full - 1], key);
            if let Err(error) = self.write_current(Some(fence), next) {
                self.tree.slab.free(next);
                return Err(error);
            }
            self.leaves.push((fence, next));
        }
        let collected = if self.leaves.is_empty() { &mut self.first } else { &mut self.current };
        collected.keys.push(key);
        collected.values.extend_from_slice(value);
        collected.versions.extend(version);
        Ok(())
    }

    /// Writes the collected leaf into its block, unless it is the first.
    fn write_current(&mut self, high: Option<u64>, next: LeafNumber) -> Result<(), WriteError> {
        let Some(&(low, number)) = self.leaves.last() else { return Ok(()) };
        let tree = &self.tree;
        let mut leaf = tree.latch_unnamed(low, number)?;
        self.current.complete(tree, low)?;
        self.current.fill(&mut leaf, LeafSpan { fences: Fences { low, high }, next });
        drop(leaf);
        self.current.clear();
        Ok(())
    }

    /// Makes everything visible at once.
    ///
    /// # Errors
    /// [`BulkLoadError::NotEmpty`] if something was written to the tree meanwhile; otherwise as
    /// [`BulkLoader::push`]. The tree is then as it was.
    pub fn finish(mut self) -> Result<BulkLoaded, BulkLoadError> {
        let index = self.pairs;
        let failed = |error| BulkLoadError::Write { index, error };
        self.write_current(None, LeafNumber::NONE).map_err(failed)?;
        let loaded = BulkLoaded { pairs: self.pairs, leaves: self.leaves.len() as u64 + 1 };
        let mut backoff = Backoff::new();
        while !self.try_publish()? {
            backoff.pause(0, Waited::InnerNodes).map_err(|contended| failed(contended.into()))?;
        }
        // What was published is no longer this loader's to give back.
        self.leaves.clear();
        self.first.clear();
        Ok(loaded)
    }

    fn try_publish(&mut self) -> Result<bool, BulkLoadError> {
        let (tree, index) = (Arc::clone(&self.tree), self.pairs);
        let failed = |error| BulkLoadError::Write { index, error };
        let route = tree.descend(0).map_err(|contended| failed(contended.into()))?;
        let Some(mut leaf) = tree.format.latch(tree.block(route.leaf), LATCH_ATTEMPTS) else {
            return Ok(false);
        };
        // Under the latch of the only leaf nothing changes what this checks.
        tree.check_pristine()?;
        if leaf.span().map(|span| span.fences) != Some(ALL_KEYS) || leaf.pair_count() > 0 {
            return Ok(false);
        }
        // Under the only leaf's latch nobody changes an inner node: the old root can be locked unless the
        // descent was before the last change.
        let Some(parent) = tree.arena.node(route.parent).and_then(|node| node.try_lock(route.version)) else {
            return Ok(false);
        };
        self.first.complete(&tree, 0).map_err(failed)?;
        let second = self.leaves.first();
        let span = LeafSpan {
            fences: Fences { low: 0, high: second.map(|leaf| leaf.0) },
            next: second.map_or(LeafNumber::NONE, |leaf| leaf.1),
        };
        let root = self.build_inner_levels(route.leaf);
        self.first.fill(&mut leaf, span);
        // Release: the inner nodes' contents. Partner: the Acquire loads of `root`.
        tree.root.store(root, Ordering::Release);
        // A writer that still holds a route through the old parent must not put separators there.
        tree.arena.free(route.parent, parent);
        tree.counters.pairs.fetch_add(self.pairs, Ordering::Relaxed);
        tree.counters.leaves.fetch_add(self.leaves.len() as u64, Ordering::Relaxed);
        drop(leaf);
        tree.listener.leaves_changed(&[ALL_KEYS]);
        Ok(true)
    }

    /// Builds the inner nodes over `first` and the loaded leaves; returns the root's number.
    fn build_inner_levels(&self, first: LeafNumber) -> u32 {
        let arena = &self.tree.arena;
        let mut children: Vec<(u64, u32)> = Vec::with_capacity(self.leaves.len() + 1);
        children.push((0, first.0));
        children.extend(self.leaves.iter().map(|(low, leaf)| (*low, leaf.0)));
        let mut level = 0;
        loop {
            let parents = children.chunks(BULK_LOAD_CHILDREN).map(|group| {
                let (number, node) = arena.allocate();
                let separators: Vec<u64> = group[1..].iter().map(|child| child.0).collect();
                let numbers: Vec<u32> = group.iter().map(|child| child.1).collect();
                node.fill(level, &separators, &numbers);
                (group[0].0, number)
            });
            let parents: Vec<(u64, u32)> = parents.collect();
            if let [(_, root)] = parents[..] {
                return root;
            }
            children = parents;
            level += 1;
        }
    }
}

impl<F: LeafFormat> Drop for BulkLoader<F> {
    fn drop(&mut self) {
        for collected in [&self.first, &self.current] {
            self.tree.format.let_go(&collected.values);
        }
        // In descending order, so that the slab gives the blocks out in ascending order again.
        for &(_, number) in self.leaves.iter().rev() {
            self.tree.format.clear_unnamed(self.tree.block(number));
            self.tree.slab.free(number);
        }
        // Release: the leaves' clearing, or the new root, comes first. Partner: the Acquire load of who has
        // latched a leaf by a guess.
        self.tree.loads.fetch_sub(1, Ordering::Release);
    }
}
