//! The way down: optimistic lock coupling over inner nodes, alone and in batches.
//!
//! Protocol: a node's version is read, then its child's, then the node's again. If that did not change, the
//! child was the node's child when its own version was read. So each step is taken from a node that covers
//! the key. At the bottom the last node's version is kept with the leaf: it says until when this is the
//! leaf's parent.
//!
//! In a batch all descents take a step together: the children's lines are prefetched, for all keys, before
//! the first of them is read.

use farsight_base::LeafNumber;
use farsight_base::sync::Ordering;
use farsight_index::{Backoff, Contended, LeafFormat, Waited};

use super::node::Node;
use super::tree::XTree;

/// Descents that a batch takes together.
pub(super) const BATCH_MAX: usize = 64;
/// Levels from the bottom whose nodes are prefetched: those above are few enough to stay in the cache.
const PREFETCHED_LEVELS: u32 = 2;
/// Nodes that are prefetched behind the one to which a run of keys has come.
const NODES_AHEAD: usize = 2;

/// The end of a descent.
#[derive(Clone, Copy)]
pub(super) struct DescentEnd {
    /// The leaf that covers the key.
    pub(super) leaf: LeafNumber,
    /// Its parent.
    pub(super) parent: u32,
    /// The version under which it was the parent.
    pub(super) version: u64,
}

/// One node on the way.
#[derive(Clone, Copy)]
pub(super) struct DescentStep<'t> {
    pub(super) number: u32,
    pub(super) node: &'t Node,
    pub(super) version: u64,
}

impl DescentStep<'_> {
    #[inline]
    fn child_of(&self, key: u64) -> u32 {
        self.node.child(self.node.child_index(key))
    }

    /// True if the node has a child behind the one that covers `key`.
    #[inline]
    fn is_below_last(&self, key: u64) -> bool {
        self.node.child_index(key) < self.node.separator_count()
    }

    #[inline]
    fn arrive(&self, key: u64) -> Option<DescentEnd> {
        let leaf = LeafNumber(self.child_of(key));
        self.node.is_unchanged(self.version).then_some(DescentEnd {
            leaf,
            parent: self.number,
            version: self.version,
        })
    }
}

impl<F: LeafFormat> XTree<F> {
    /// Goes down to the leaf that covers `key`.
    pub(super) fn descend(&self, key: u64) -> Result<DescentEnd, Contended> {
        let mut backoff = Backoff::new();
        loop {
            if let Some(route) = self.try_descend(key) {
                return Ok(route);
            }
            backoff.pause(key, Waited::InnerNodes)?;
        }
    }

    fn try_descend(&self, key: u64) -> Option<DescentEnd> {
        self.lowest_over(key)?.arrive(key)
    }

    #[inline]
    pub(super) fn begin_at_root(&self) -> Option<DescentStep<'_>> {
        // Acquire: the root's contents. Partners: the Release stores of `root` in `grow`, `shrink` and bulk
        // load.
        let number = self.root.load(Ordering::Acquire);
        let node = self.arena.node(number)?;
        let version = node.begin_read()?;
        // A root that has split covers half of the keys; its version was even again only after the new root
        // stood. `root` changes only while the node that it names is locked. So this node was the root when
        // its version was read, or that version is over.
        (self.root.load(Ordering::Acquire) == number).then_some(DescentStep { number, node, version })
    }

    #[inline]
    pub(super) fn step_to<'t>(&'t self, from: DescentStep<'t>, child: u32) -> Option<DescentStep<'t>> {
        let node = self.arena.node(child)?;
        let version = node.begin_read()?;
        from.node.is_unchanged(from.version).then_some(DescentStep { number: child, node, version })
    }

    /// The lowest inner node over `key`; `None` where a node changed on the way.
    fn lowest_over(&self, key: u64) -> Option<DescentStep<'_>> {
        self.lowest_over_run(key, |_, _| {})
    }

    /// The same; `above` is told each step on the way, and which child is taken there.
    #[inline]
    fn lowest_over_run<'t>(
        &'t self,
        key: u64,
        above: impl Fn(DescentStep<'t>, usize),
    ) -> Option<DescentStep<'t>> {
        let mut step = self.begin_at_root()?;
        while step.node.level() > 0 {
            let index = step.node.child_index(key);
            above(step, index);
            step = self.step_to(step, step.node.child(index))?;
        }
        Some(step)
    }

    /// Asks for the nodes behind a child: a run comes to them next.
    fn prefetch_behind(&self, step: DescentStep<'_>, index: usize) {
        let behind = index + 1..(index + 1 + NODES_AHEAD).min(step.node.child_count());
        let nodes = behind.filter_map(|index| self.arena.node(step.node.child(index)));
        nodes.for_each(Node::prefetch);
    }

    /// The leaves to which `keys` belong, as hints. Neighbours share one way down where they ascend: a key
    /// below the last separator of the node over the key before belongs to that node, too. Asks for the
    /// lines of the leaves' keys.
    pub fn leaves_of_run(&self, keys: &[u64], hints: &mut Vec<LeafNumber>) {
        hints.clear();
        let (mut lowest, mut before) = (None, 0);
        hints.extend(keys.iter().map(|key| {
            let shared = lowest.filter(|step: &DescentStep<'_>| before <= *key && step.is_below_last(*key));
            let anew = || self.lowest_over_run(*key, |step, index| self.prefetch_behind(step, index));
            let step = shared.or_else(anew);
            let end = step.and_then(|step| step.arrive(*key));
            // What has changed is looked for anew.
            (lowest, before) = (step.filter(|_| end.is_some()), *key);
            let leaf = end.map_or(LeafNumber::NONE, |end| end.leaf);
            if let Some(block) = self.slab.block(leaf) {
                self.format.prefetch_keys(block);
            }
            leaf
        }));
    }

    /// Goes down for all `keys` together. A route is missing where a node changed on the way.
    pub(super) fn descend_many(&self, keys: &[u64], routes: &mut [Option<DescentEnd>; BATCH_MAX]) {
        assert!(keys.len() <= BATCH_MAX, "{} keys in a batch", keys.len());
        *routes = [None; BATCH_MAX];
        let Some(root) = self.begin_at_root() else { return };
        let mut steps = [Some(root); BATCH_MAX];
        let mut children = [0; BATCH_MAX];
        for level in (0..root.node.level()).rev() {
            for ((step, key), child) in steps.iter().zip(keys).zip(&mut children) {
                let Some(step) = step else { continue };
                *child = step.child_of(*key);
                if level < PREFETCHED_LEVELS
                    && let Some(node) = self.arena.node(*child)
                {
                    node.prefetch();
                }
            }
            for (step, child) in steps[..keys.len()].iter_mut().zip(&children) {
                *step = step.and_then(|from| self.step_to(from, *child));
            }
        }
        for ((step, key), route) in steps.iter().zip(keys).zip(routes) {
            *route = step.and_then(|step| step.arrive(*key));
            if let Some(block) = route.and_then(|route| self.slab.block(route.leaf)) {
                self.format.prefetch_keys(block);
            }
        }
    }
}
