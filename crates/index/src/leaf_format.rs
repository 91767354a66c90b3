//! The trait by which a tree knows its leaves.
//!
//! Invariant: the tree never sees a leaf's bytes. It asks a [`LeafFormat`] for what may be read without a
//! latch and a [`LatchedLeaf`] for everything else. So another format of leaves needs no other tree.
//!
//! What every format promises, whatever its bytes:
//! - an answer read without a latch was true at some instant during the call, or it is
//!   [`LeafAnswer::Changing`];
//! - while a leaf keeps its incarnation its fences do not change and no slot is used twice;
//! - a block that holds no leaf is recognized by its own bytes ([`LeafAnswer::Elsewhere`]).

use farsight_base::LeafNumber;
use farsight_base::sync::AtomicU64;
use farsight_layout::Fences;
use farsight_protocol::WriteOperation;

use crate::{Decision, Direction, HeldPair, Pairs, ScanRequest, Undecided, decide};

/// What a leaf, read without a latch, says about a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeafAnswer<T> {
    /// The key is here, and this is what was wanted of it.
    Found(T),
    /// The key belongs here and is not stored.
    Absent,
    /// The key belongs to the right; this is the right sibling.
    Right(LeafNumber),
    /// The key belongs to the left, or the block holds no leaf.
    Elsewhere,
    /// The leaf changed while it was read: ask again.
    Changing,
}

/// What a latched leaf says about a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The key is in this slot.
    Here(usize),
    /// The key belongs here and is not stored.
    Vacant,
    /// The key belongs to the right; this is the right sibling.
    Right(LeafNumber),
    /// The key belongs to the left, or the block holds no leaf.
    Elsewhere,
}

/// Whether a leaf, looked at without a latch, has room for another pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It seems so.
    Some,
    /// All slots seem to be in use: an insert would split it.
    None,
}

/// Where a leaf stands in the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeafSpan {
    /// The keys that belong to it.
    pub fences: Fences,
    /// The right sibling, or [`LeafNumber::NONE`].
    pub next: LeafNumber,
}

/// A format of leaves: what can be read without a latch, and the way to the latch.
pub trait LeafFormat: Send + Sync {
    /// A leaf under its latch.
    type Latched<'a>: LatchedLeaf
    where
        Self: 'a;

    /// Words of a leaf's block.
    fn leaf_words(&self) -> usize;

    /// Bytes of a value.
    fn value_bytes(&self) -> usize;

    /// Pairs that a leaf holds after a bulk load: the rest is room for inserts.
    fn bulk_load_pairs(&self) -> usize;

    /// Pairs that are few for a leaf: one that has no more is merged with a neighbour if both fit.
    fn few_pairs(&self) -> usize;

    /// Looks `key` up without a latch and copies its value `into` place; its version.
    fn get(&self, words: &[AtomicU64], key: u64, into: &mut [u8]) -> LeafAnswer<u64>;

    /// Looks `key` up without a latch; its slot. Asks for the lines that its write touches next.
    fn look(&self, words: &[AtomicU64], key: u64) -> LeafAnswer<usize>;

    /// Appends the leaf's pairs that `scan` wants, without a latch. `None` if the leaf changes or is no leaf,
    /// with `into` as it was.
    fn read_pairs(
        &self,
        words: &[AtomicU64],
        direction: Direction,
        scan: ScanRequest,
        into: &mut Pairs,
    ) -> Option<LeafSpan>;

    /// Bytes of an operand of a conditional write as its leaves take it; `None` if [`LatchedLeaf::decide`]
    /// takes operands of any length.
    fn operand_bytes(&self, operation: WriteOperation) -> Option<usize> {
        Some(operation.operand_bytes(self.value_bytes()))
    }

    /// Pairs that the block shows now. A guess: some of them may be of another moment.
    fn pairs_seen(&self, words: &[AtomicU64]) -> usize;

    /// Asks for the lines that finding a key touches.
    fn prefetch_keys(&self, words: &[AtomicU64]);

    /// True if `key` seems to belong to the leaf. A guess, by one line.
    fn may_hold(&self, words: &[AtomicU64], key: u64) -> bool;

    /// Asks for the value's lines of `key`, once the key's lines have arrived. False if it is not here, as
    /// far as a look without a latch tells.
    fn prefetch_value(&self, words: &[AtomicU64], key: u64) -> bool;

    /// Asks for the lines that an insert writes besides, once the key's lines have arrived: all of them if
    /// the leaf looks full. A guess.
    fn prefetch_insert(&self, words: &[AtomicU64]) -> Room;

    /// Asks for all lines: the leaf will be rewritten.
    fn prefetch_leaf(&self, words: &[AtomicU64]);

    /// Makes a block that nothing names no leaf, under the next incarnation, even if a thread holds its
    /// latch. The caller is the one who filled it, and keeps everybody else from writing it until this is
    /// done.
    fn clear_unnamed(&self, words: &[AtomicU64]);

    /// Gives back what these values name, one behind the other, which no reader has seen: they are not
    /// stored.
    fn let_go(&self, _values: &[u8]) {}

    /// Latches the leaf in `words`; `None` if `attempts` did not suffice.
    fn latch<'a>(&'a self, words: &'a [AtomicU64], attempts: usize) -> Option<Self::Latched<'a>>;
}

/// A latched leaf: the only way to write one. Dropping it unlatches.
pub trait LatchedLeaf {
    /// Looks `key` up.
    fn find(&self, key: u64) -> Place;

    /// True if this slot has the pair of `key`.
    fn is_at(&self, key: u64, slot: usize) -> bool;

    /// Fences and right sibling; `None` if the block holds no leaf.
    fn span(&self) -> Option<LeafSpan>;

    /// Pairs stored.
    fn pair_count(&self) -> usize;

    /// The version of the pair in an occupied slot.
    fn version(&self, slot: usize) -> u64;

    /// The value of the pair in an occupied slot, `into` place; its version.
    fn pair(&self, slot: usize, into: &mut [u8]) -> u64;

    /// True if the deadline of `key`'s pair, in `slot`, has passed: to a write the key is absent then.
    #[inline(always)]
    fn is_past_deadline(&self, _key: u64, _slot: usize) -> bool {
        false
    }

    /// What a conditional write does to `key`, whose pair is in `slot` if there is one. `room` is as long as
    /// the format's values, and holds the value before then, if the operation looks at it.
    ///
    /// # Errors
    /// [`Undecided`].
    fn decide<'v>(
        &self,
        operation: WriteOperation,
        (_key, slot): (u64, Option<usize>),
        operand: &'v [u8],
        room: &mut Vec<u8>,
    ) -> Result<Decision<'v>, Undecided> {
        let held = slot.map(|slot| HeldPair { version: self.pair(slot, room), value: room });
        Ok(decide(operation, operand, held))
    }

    /// Inserts a vacant key; false, and nothing changed, if every slot is spent.
    fn insert(&mut self, key: u64, version: u64, value: &[u8]) -> bool;

    /// Replaces the value in an occupied slot.
    fn update(&mut self, slot: usize, version: u64, value: &[u8]);

    /// Removes the pair in an occupied slot, which stays spent.
    fn remove(&mut self, slot: usize);

    /// Slots that a compaction would make usable: those of removed pairs.
    fn removed_slots(&self) -> usize;

    /// Rewrites the pairs in place under the next incarnation, which makes removed slots usable again.
    fn compact(&mut self);

    /// Moves the upper pairs to `right`, a block without a leaf that will be number `right_number`, and
    /// returns the first key that belongs there. `incoming` is the key for which room is made. Right is
    /// complete, under a fresh incarnation, before left's first line changes; left gets its next incarnation.
    ///
    /// # Panics
    /// If there are fewer than two pairs.
    fn split(&mut self, right: &mut Self, right_number: LeafNumber, incoming: u64) -> u64;

    /// Takes over the pairs and the range of `right`, the right sibling, under the next incarnation. Then
    /// makes `right` no leaf, which names this one, `number`, to readers that come late.
    ///
    /// # Panics
    /// If a leaf has no room for the pairs of both.
    fn absorb(&mut self, number: LeafNumber, right: &mut Self);

    /// Writes a whole leaf under the next incarnation: `keys` ascending within the span, their values one
    /// after the other, a version each.
    fn fill(&mut self, span: LeafSpan, keys: &[u64], values: &[u8], versions: &[u64]);

    /// Puts right what readers without the latch go by, if memory lost a bit of it: true if it had.
    fn scrub(&mut self) -> bool;
}

/// Who wants to know that keys went to other leaves: the owner of models that name leaves.
pub trait LeafListener: Send + Sync {
    /// The keys between these fences went to another leaf each, by splits or merges. Called after the
    /// changes, with no latch held, and before the writes that made them are acknowledged.
    fn leaves_changed(&self, fences: &[Fences]);
}
