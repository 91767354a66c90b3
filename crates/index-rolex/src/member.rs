//! What makes a process a compute node of the pool: its number, its lock values, and the few things that it
//! asks of memory nodes' processors.
//!
//! Invariant: a lock value is drawn once in the compute node's life. Sessions draw ranges from one counter,
//! and values from their range.

use std::cell::Cell;
use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::FabricError;
use farsight_layout::pool::LockWord;
use farsight_protocol::{Blocks, Space};

/// Lock values that a session draws at once.
const RANGE: u64 = 1 << 20;

/// What a call came to; an error is the memory node's, or the fabric's.
pub type CallResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What operations ask of the memory nodes' processors, hardly ever.
#[expect(clippy::missing_errors_doc, reason = "each fails as its call does, and as nothing else")]
pub trait PoolCalls: Send {
    /// Leaves of memory node `node` that nobody uses, as many as one call gives; empty if there are none.
    fn more_leaves(&self, node: usize) -> CallResult<Range<u32>>;

    /// Fails if this compute node was given up, because an operation of one of its sessions broke off: a lock
    /// that it has may be that operation's, which only another compute node takes over.
    fn standing(&self) -> Result<(), FabricError>;

    /// Ends a compute node at every memory node; returns when none of its verbs can execute any more. After
    /// an error it may have verbs left.
    fn fence(&self, compute_node: u16) -> CallResult<()>;

    /// Makes given blocks of memory node `node` this compute node's, whoever has them.
    fn adopt(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()>;

    /// Makes blocks that are this compute node's the table's own for good.
    fn settle(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()>;

    /// Gives blocks back that are this compute node's and that nothing leads to.
    fn free(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()>;

    /// Compute nodes that have ended and left blocks at memory node `node`.
    fn ended(&self, node: usize, space: Space) -> CallResult<Vec<u16>>;

    /// Takes over blocks of a compute node that has ended and is fenced; none when all are taken.
    fn take_orphans(&self, node: usize, space: Space, of: u16) -> CallResult<Vec<Blocks>>;
}

/// The lock values of a compute node, shared by its sessions.
#[derive(Clone, Debug)]
pub struct ComputeNodeLocks {
    compute_node: u16,
    drawn: Arc<AtomicU64>,
}

impl ComputeNodeLocks {
    /// Those of the compute node that was given this number, none of them drawn.
    #[must_use]
    pub fn new(compute_node: u16) -> Self {
        Self { compute_node, drawn: Arc::new(AtomicU64::new(0)) }
    }
}

/// One session's share of the lock values.
#[derive(Debug)]
pub(crate) struct Locks {
    all: ComputeNodeLocks,
    next: Cell<u64>,
    end: Cell<u64>,
}

impl Locks {
    pub(crate) fn new(all: ComputeNodeLocks) -> Self {
        Self { all, next: Cell::new(0), end: Cell::new(0) }
    }

    /// The compute node.
    pub(crate) fn compute_node(&self) -> u16 {
        self.all.compute_node
    }

    /// A lock value that was never one.
    ///
    /// # Panics
    /// After 2^47 of them, which at a million locks a second takes four years.
    pub(crate) fn draw(&self) -> LockWord {
        if self.next.get() == self.end.get() {
            // Relaxed: the ranges only have to differ.
            let first = self.all.drawn.fetch_add(RANGE, Ordering::Relaxed);
            self.next.set(first);
            self.end.set(first + RANGE);
        }
        let sequence = self.next.get() + 1;
        self.next.set(sequence);
        LockWord::of(self.all.compute_node, sequence)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_locks_of_a_compute_node_are_one() {
        let all = ComputeNodeLocks::new(9);
        let sessions = [Locks::new(all.clone()), Locks::new(all)];
        let mut drawn = HashSet::new();
        for round in 0..2 * RANGE + 10 {
            let lock = sessions[usize::from(round % 3 == 0)].draw();
            assert_eq!(lock.owner(), Some(9));
            assert!(drawn.insert(lock.0), "{lock:?} twice");
        }
    }
}
