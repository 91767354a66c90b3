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
        let mut step = self.begin_at_root()?;
        while step.node.level() > 0 {
            let child = step.child_of(key);
            step = self.step_to(step, child)?;
        }
        step.arrive(key)
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
