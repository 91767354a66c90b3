//! What makes a process a compute node of the pool: its number, its lock values, and the few things that it
//! asks of memory nodes' processors.
//!
//! Invariant: a lock value is drawn once in the compute node's life. Sessions draw ranges from one counter,
//! and values from their range. A compute node draws under a number once all memory nodes know that number as
//! one of its own.
//!
//! A number has 2^31 lock values. When half of them are drawn, one session gets the compute node another
//! number, while the others draw on. Where it gets none, it has to connect anew, long before the other half
//! is drawn.

use std::cell::Cell;
use std::error::Error;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_fabric::FabricError;
use farsight_layout::pool::{LOCK_SEQUENCE_BITS, LockWord};
use farsight_protocol::{Adopted, Blocks, Claim, Fenced, Space, TakenBlocks};

use crate::LeafPlace;

/// Lock values that a session draws at once.
const RANGE: u64 = 1 << 10;
/// Lock values of a number that are drawn before another number is due.
pub const LOCKS_A_NUMBER: u64 = 1 << (LOCK_SEQUENCE_BITS - 1);
/// Lock values of a number behind which a compute node without another one has to stop.
const LAST: u64 = LOCKS_A_NUMBER + LOCKS_A_NUMBER / 2;
/// The same where numbers are short.
#[cfg(injected)]
const SHORT: u64 = 16;
/// Where the counter's word has the number.
const NUMBER_SHIFT: u32 = u32::BITS;

/// What a call came to; an error is the memory node's, or the fabric's.
pub type CallResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What operations ask of the memory nodes' processors, hardly ever.
#[expect(clippy::missing_errors_doc, reason = "each fails as its call does, and as nothing else")]
pub trait PoolCalls: Send {
    /// Leaves of memory node `node` that nobody uses, as many as one call gives; empty if there are none.
    fn more_leaves(&self, node: usize) -> CallResult<Range<u32>>;

    /// Gets this compute node another number, if that is due. Fails if it has to connect anew: one of its
    /// operations broke off, and a lock that it left can be taken over by another compute node alone. Or its
    /// lock values run out, and it got no other number.
    fn check_usable(&self) -> Result<(), FabricError>;

    /// Poisons this compute node: an operation of one of its sessions broke off.
    fn give_up(&self);

    /// Ends a compute node at every memory node; [`Fenced::Done`] when none of its verbs can execute any
    /// more. Otherwise, and after an error, it may have verbs left. `seen` is the lock of a leaf for whose
    /// lease the caller requests that.
    fn fence(&self, compute_node: u32, seen: Option<(LeafPlace, LockWord)>) -> CallResult<Fenced>;

    /// Makes leaves of memory node `node` this compute node's, also if another has them. All of them, or none
    /// if some leaf there has become free since the node told of the claim `known`.
    fn adopt(&self, node: usize, known: Claim, leaves: &[Blocks]) -> CallResult<Adopted>;

    /// Makes blocks that are this compute node's, under this claim, the table's own for good.
    fn pin(&self, node: usize, of: (Space, Claim), blocks: &[Blocks]) -> CallResult<()>;

    /// Gives blocks back that are this compute node's, under this claim, and that nothing leads to.
    fn free(&self, node: usize, of: (Space, Claim), blocks: &[Blocks]) -> CallResult<()>;

    /// Compute nodes that have ended and left blocks at memory node `node`.
    fn ended(&self, node: usize, space: Space) -> CallResult<Vec<u32>>;

    /// Takes over blocks of a compute node that has ended and is fenced; none when all are taken.
    fn take_orphans(&self, node: usize, space: Space, of: u32) -> CallResult<TakenBlocks>;
}

/// The lock values of a compute node, shared by its sessions.
#[derive(Clone, Debug)]
pub struct ComputeNodeLocks(Arc<Numbered>);

#[derive(Debug)]
struct Numbered {
    /// The number under which values are drawn, and below it how many of them are.
    drawn: AtomicU64,
    /// All numbers of this compute node.
    numbers: Mutex<Vec<u32>>,
    /// Somebody gets it another one; or nobody will, because that was refused.
    is_next_asked: AtomicBool,
}

/// The right to get a compute node its next number. Dropped, it leaves that to the next session.
#[derive(Debug)]
pub struct NextNumber<'l>(&'l Numbered);

impl Drop for NextNumber<'_> {
    fn drop(&mut self) {
        // Relaxed: it only says that somebody may ask.
        self.0.is_next_asked.store(false, Ordering::Relaxed);
    }
}

impl NextNumber<'_> {
    /// From now on lock values are drawn under this number. All memory nodes know it as one of this compute
    /// node's.
    pub fn go_on_under(self, number: u32) {
        self.0.numbers().push(number);
        // Release: a session that draws under the number finds it among this compute node's. So does one that
        // READs a lock which was drawn so. Its partner is the addition of `ComputeNodeLocks::draw`.
        self.0.drawn.store(u64::from(number) << NUMBER_SHIFT, Ordering::Release);
    }

    /// There is none to be had, for good.
    pub fn give_up(self) {
        // The right is nobody's any more.
        std::mem::forget(self);
    }
}

impl Numbered {
    fn numbers(&self) -> MutexGuard<'_, Vec<u32>> {
        // It is never half changed.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many values are drawn under the newest number.
    fn drawn(&self) -> u64 {
        // Relaxed: who sees it late draws a few more, of which there are as many again.
        self.drawn.load(Ordering::Relaxed) & ((1 << NUMBER_SHIFT) - 1)
    }
}

impl ComputeNodeLocks {
    /// Those of the compute node that was given this number, none of them drawn.
    #[must_use]
    pub fn new(compute_node: u32) -> Self {
        Self(Arc::new(Numbered {
            drawn: AtomicU64::new(u64::from(compute_node) << NUMBER_SHIFT),
            numbers: Mutex::new(vec![compute_node]),
            is_next_asked: AtomicBool::new(false),
        }))
    }

    /// The compute node's newest number.
    #[must_use]
    pub fn compute_node(&self) -> u32 {
        // Relaxed: it is one of this compute node's numbers, whichever.
        (self.0.drawn.load(Ordering::Relaxed) >> NUMBER_SHIFT) as u32
    }

    /// Whether that number is one of this compute node's.
    #[must_use]
    pub fn are_of(&self, number: u32) -> bool {
        self.0.numbers().contains(&number)
    }

    /// Draws so many lock values: the number that they are of, and the sequence before the first of them.
    ///
    /// # Panics
    /// If the number has not so many any more: another was due long before.
    #[must_use]
    pub fn draw(&self, count: u64) -> (u32, u64) {
        // Acquire: the number is among this compute node's from here on. Its partner is
        // `NextNumber::go_on_under`.
        let drawn = self.0.drawn.fetch_add(count, Ordering::Acquire);
        let (number, before) = ((drawn >> NUMBER_SHIFT) as u32, drawn & ((1 << NUMBER_SHIFT) - 1));
        assert!(before + count <= 1 << LOCK_SEQUENCE_BITS, "{before} lock values of {number} are drawn");
        (number, before)
    }

    /// Whether so many are drawn under the newest number that another one is due.
    fn is_next_due(&self) -> bool {
        #[cfg(injected)]
        if crate::injected::NUMBERS_SHORT.is_injected() {
            return self.0.drawn() >= SHORT;
        }
        self.0.drawn() >= LOCKS_A_NUMBER
    }

    /// The right to get the compute node its next number, if that is due and nobody does.
    #[must_use]
    pub fn next_number(&self) -> Option<NextNumber<'_>> {
        let numbered = &*self.0;
        // Relaxed: the exchange alone decides who has the right. Nothing is published with it.
        let is_due = self.is_next_due() && !numbered.is_next_asked.load(Ordering::Relaxed);
        let is_mine = is_due && !numbered.is_next_asked.swap(true, Ordering::Relaxed);
        let next = is_mine.then(|| NextNumber(numbered))?;
        // Who had the right before may have used it meanwhile.
        self.is_next_due().then_some(next)
    }

    /// True once so many are drawn that the compute node has to stop, for it got no other number.
    #[must_use]
    pub fn are_running_out(&self) -> bool {
        self.0.drawn() >= LAST
    }
}

/// One session's share of the lock values.
#[derive(Debug)]
pub(crate) struct Locks {
    all: ComputeNodeLocks,
    /// The number of which its range is.
    number: Cell<u32>,
    next: Cell<u64>,
    end: Cell<u64>,
}

impl Locks {
    pub(crate) fn new(all: ComputeNodeLocks) -> Self {
        Self { all, number: Cell::new(0), next: Cell::new(0), end: Cell::new(0) }
    }

    /// Whether that number is one of this compute node's.
    pub(crate) fn are_of(&self, number: u32) -> bool {
        #[cfg(injected)]
        if crate::injected::FORMER_NUMBER_FORGOTTEN.is_injected() {
            return self.all.compute_node() == number;
        }
        self.all.are_of(number)
    }

    /// A lock value that was never one.
    ///
    /// # Panics
    /// As [`ComputeNodeLocks::draw`].
    pub(crate) fn draw(&self) -> LockWord {
        if self.next.get() == self.end.get() {
            let range = RANGE;
            #[cfg(injected)]
            let range = if crate::injected::NUMBERS_SHORT.is_injected() { SHORT / 4 } else { range };
            let (number, before) = self.all.draw(range);
            self.number.set(number);
            self.next.set(before);
            // The last value of all is none: a sequence has 31 bits.
            self.end.set((before + range).min((1 << LOCK_SEQUENCE_BITS) - 1));
        }
        let sequence = self.next.get() + 1;
        #[cfg(injected)]
        if crate::injected::LOCK_WORD_REUSED.is_injected() {
            return LockWord::of(self.number.get(), sequence);
        }
        self.next.set(sequence);
        LockWord::of(self.number.get(), sequence)
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

    #[cfg(injected)]
    #[test]
    fn a_compute_node_that_forgets_its_former_numbers_is_found() {
        let bug = &crate::injected::FORMER_NUMBER_FORGOTTEN;
        let test = a_compute_node_goes_on_under_another_number_and_keeps_the_former;
        farsight_base::injection::assert_found(bug, test);
    }

    #[test]
    fn there_are_as_many_locks_behind_the_last_warning_as_before() {
        let all = ComputeNodeLocks::new(u32::MAX);
        assert_eq!(all.draw(LOCKS_A_NUMBER - 1), (u32::MAX, 0));
        assert!(all.next_number().is_none() && !all.are_running_out());
        let session = Locks::new(all.clone());
        assert_eq!(session.draw(), LockWord::of(u32::MAX, LOCKS_A_NUMBER));
        all.next_number().expect("another number is due").give_up();
        assert!(all.next_number().is_none(), "there is none");
        assert!(!all.are_running_out());
        assert_eq!(all.draw(LOCKS_A_NUMBER - 2 * RANGE), (u32::MAX, LOCKS_A_NUMBER - 1 + RANGE));
        assert!(all.are_running_out());
        assert_eq!(Locks::new(all).draw().owner(), Some(u32::MAX));
    }

    #[test]
    fn a_compute_node_goes_on_under_another_number_and_keeps_the_former() {
        let all = ComputeNodeLocks::new(7);
        let [early, late] = [(); 2].map(|()| Locks::new(all.clone()));
        assert_eq!(early.draw(), LockWord::of(7, 1));
        let _ = all.draw(LOCKS_A_NUMBER);
        drop(all.next_number().expect("another number is due"));
        let next = all.next_number().expect("and due again, for nobody got it");
        assert!(all.next_number().is_none(), "somebody gets it");
        assert!(!early.are_of(8));
        next.go_on_under(8);
        assert!(all.next_number().is_none() && !all.are_running_out());
        assert_eq!((late.draw(), all.compute_node()), (LockWord::of(8, 1), 8));
        // What was drawn before is used up.
        assert_eq!(early.draw(), LockWord::of(7, 2));
        assert!((0..RANGE).all(|_| early.draw().owner() != Some(9)));
        assert_eq!(early.draw().owner(), Some(8));
        assert!([7, 8].iter().all(|number| early.are_of(*number) && late.are_of(*number)));
        let _ = all.draw(LOCKS_A_NUMBER);
        all.next_number().expect("the next is due").go_on_under(30);
        assert_eq!((all.draw(1), all.are_of(8)), ((30, 0), true));
    }
}
