//! What makes a process a compute node of the pool: its number, its lock values, and the few things that it
//! asks of memory nodes' processors.
//!
//! Invariant: a lock value is drawn once in the compute node's life. Sessions draw ranges from one counter,
//! and values from their range.
//!
//! A number has 2^31 lock values. When half of them are drawn the compute node has to go on under another
//! number. Its sessions do so with their next writes, long before the other half is drawn.

use std::cell::Cell;
use std::error::Error;
use std::ops::Range;
use std::sync::Arc;

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_fabric::FabricError;
use farsight_layout::pool::{LOCK_SEQUENCE_BITS, LockWord};
use farsight_protocol::{Blocks, Fenced, Space};

use crate::LeafPlace;

/// Lock values that a session draws at once.
const RANGE: u64 = 1 << 10;
/// Lock values of a number that are drawn before another number is due.
const DUE: u64 = 1 << (LOCK_SEQUENCE_BITS - 1);

/// What a call came to; an error is the memory node's, or the fabric's.
pub type CallResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What operations ask of the memory nodes' processors, hardly ever.
#[expect(clippy::missing_errors_doc, reason = "each fails as its call does, and as nothing else")]
pub trait PoolCalls: Send {
    /// Leaves of memory node `node` that nobody uses, as many as one call gives; empty if there are none.
    fn more_leaves(&self, node: usize) -> CallResult<Range<u32>>;

    /// Fails if this compute node has to go on under another number. Either an operation of one of its
    /// sessions broke off: a lock that it left can be taken over by another compute node alone. Or its lock
    /// values run out.
    fn check_usable(&self) -> Result<(), FabricError>;

    /// Poisons this compute node: an operation of one of its sessions broke off.
    fn give_up(&self);

    /// Ends a compute node at every memory node; [`Fenced::Done`] when none of its verbs can execute any
    /// more. Otherwise, and after an error, it may have verbs left. `seen` is the lock of a leaf for whose
    /// lease the caller requests that.
    fn fence(&self, compute_node: u32, seen: Option<(LeafPlace, LockWord)>) -> CallResult<Fenced>;

    /// Makes given blocks of memory node `node` this compute node's, also if another has them.
    fn adopt(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()>;

    /// Makes blocks that are this compute node's the table's own for good.
    fn pin(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()>;

    /// Gives blocks back that are this compute node's and that nothing leads to.
    fn free(&self, node: usize, space: Space, blocks: &[Blocks]) -> CallResult<()>;

    /// Compute nodes that have ended and left blocks at memory node `node`.
    fn ended(&self, node: usize, space: Space) -> CallResult<Vec<u32>>;

    /// Takes over blocks of a compute node that has ended and is fenced; none when all are taken.
    fn take_orphans(&self, node: usize, space: Space, of: u32) -> CallResult<Vec<Blocks>>;
}

/// The lock values of a compute node, shared by its sessions.
#[derive(Clone, Debug)]
pub struct ComputeNodeLocks {
    compute_node: u32,
    drawn: Arc<AtomicU64>,
}

impl ComputeNodeLocks {
    /// Those of the compute node that was given this number, none of them drawn.
    #[must_use]
    pub fn new(compute_node: u32) -> Self {
        Self { compute_node, drawn: Arc::new(AtomicU64::new(0)) }
    }

    /// The compute node's number.
    #[must_use]
    pub fn compute_node(&self) -> u32 {
        self.compute_node
    }

    /// Draws so many lock values; the sequence before the first of them.
    #[must_use]
    pub fn draw(&self, count: u64) -> u64 {
        // Relaxed: the ranges only have to differ.
        self.drawn.fetch_add(count, Ordering::Relaxed)
    }

    /// True once so many are drawn that the compute node should go on under another number.
    #[must_use]
    pub fn are_running_out(&self) -> bool {
        // Relaxed: who sees it late draws a few more, of which there are as many again.
        self.drawn.load(Ordering::Relaxed) >= DUE
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
    pub(crate) fn compute_node(&self) -> u32 {
        self.all.compute_node()
    }

    /// A lock value that was never one.
    ///
    /// # Panics
    /// After 2^31 of them: its sessions had to go on under another number 2^30 earlier.
    pub(crate) fn draw(&self) -> LockWord {
        if self.next.get() == self.end.get() {
            let first = self.all.draw(RANGE);
            self.next.set(first);
            self.end.set(first + RANGE);
        }
        let sequence = self.next.get() + 1;
        #[cfg(injected)]
        if crate::injected::LOCK_WORD_REUSED.is_injected() {
            return LockWord::of(self.all.compute_node, sequence);
        }
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

    #[cfg(injected)]
    #[test]
    fn a_lock_word_that_is_used_again_is_found() {
        let bug = &crate::injected::LOCK_WORD_REUSED;
        farsight_base::injection::assert_found(bug, no_two_locks_of_a_compute_node_are_one);
    }

    #[test]
    fn there_are_as_many_locks_behind_the_last_warning_as_before() {
        let all = ComputeNodeLocks::new(u32::MAX);
        assert_eq!(all.draw(DUE - 1), 0);
        assert!(!all.are_running_out());
        let session = Locks::new(all.clone());
        assert_eq!(session.draw(), LockWord::of(u32::MAX, DUE));
        assert!(all.are_running_out());
        assert_eq!(all.draw(DUE - RANGE - 1), DUE - 1 + RANGE);
        assert_eq!(Locks::new(all).draw().owner(), Some(u32::MAX));
    }
}
