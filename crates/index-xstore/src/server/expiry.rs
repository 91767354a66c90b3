//! The end of pairs whose deadlines have passed.
//!
//! Invariant: no write finds a pair after its deadline, whether the pair is still there or not. Reads of the
//! tree return what is stored; their callers look at its deadline.
//!
//! Protocol:
//! 1. A writer that finds such a pair under the latch removes it first. So it decides as if the pair had gone
//!    at its deadline.
//! 2. [`BlockTree::sweep`] looks through the table, some pairs at a time, and removes those that nobody
//!    writes any more. It looks again under the latch, for the pair may have been written meanwhile.
//!
//! A flipped bit may make a deadline earlier, and would end a pair too soon. So a deadline that has passed
//! counts only if the checksum of its block fits.

use farsight_base::LeafNumber;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_blocks::BlockSpace;
use farsight_index::{Direction, LatchedLeaf, LeafFormat, Pair, Pairs, Place};
use farsight_layout::value_block::{BLOCK_HEADER_WORDS, SealedHeader};
use farsight_layout::{Deadline, SHORT_VALUE_BYTES};
use farsight_protocol::WriteOutcome;

use super::block_copy::{Named, copy};
use super::block_leaf::reference_in;
use super::block_tree::BlockTree;
use super::error::WriteError;
use super::latch::LatchedPlace;
use super::stats::Tally;
use super::tree::XTree;
use super::write_many::AccessPath;
#[cfg(injected)]
use crate::injected;

/// Word of a block where its pair's deadline stands: behind the header and a key of one word.
const DEADLINE_WORD: usize = BLOCK_HEADER_WORDS + 1;

/// The deadline of a named block. Unless it has passed by `now_ms`, its checksum is not looked at. `None` if
/// the block is not the pair's, or damaged.
pub(super) fn deadline_of(
    (space, table): (&BlockSpace, u16),
    key: u64,
    named: Named,
    now_ms: u64,
) -> Option<Deadline> {
    let place = space.place(named.reference)?;
    let words = space.words(place)?;
    let expected = SealedHeader { version: named.version, table, lines: place.lines as usize };
    if SealedHeader::read(words) != expected {
        return None;
    }
    // Relaxed: of the pair's own block, which does not change. Whose it is was just looked at; the checksum
    // and a latch decide.
    let deadline = Deadline(words.get(DEADLINE_WORD)?.load(Ordering::Relaxed));
    if !deadline.is_past(now_ms) {
        return Some(deadline);
    }
    let mut lines = Vec::new();
    let copied = copy((space, table), key, named, &mut lines).ok()?;
    Deadline::split(copied.value(&lines)).map(|(deadline, _)| deadline)
}

/// The deadline in a draft of these words.
pub(super) fn drafted_deadline(words: &[AtomicU64]) -> Deadline {
    // Relaxed: of a draft, which is its writer's alone.
    Deadline(words[DEADLINE_WORD].load(Ordering::Relaxed))
}

impl<F: LeafFormat> LatchedPlace<'_, F> {
    /// Removes the key's pair if its deadline has passed.
    #[inline(always)]
    pub(super) fn end_past(&mut self, key: u64, tally: &mut Tally) {
        #[cfg(injected)]
        if injected::ENDED_PAIR_COUNTED.is_injected() {
            return;
        }
        if let Place::Here(slot) = self.place
            && self.leaf.is_past_deadline(key, slot)
        {
            tally.note(WriteOutcome::Removed(self.leaf.version(slot)));
            tally.expired += 1;
            self.leaf.remove(slot);
            self.place = Place::Vacant;
        }
    }
}

impl<F: LeafFormat> XTree<F> {
    /// Removes the pair of this version if its deadline has passed. True if it did.
    fn end_pair(&self, key: u64, version: u64) -> Result<bool, WriteError> {
        let mut tally = Tally::begin(LeafNumber::NONE);
        let access_path = AccessPath { hint: LeafNumber::NONE, slot: None, route: None };
        let latched = self.latch_counted(key, access_path, &mut tally)?;
        let Place::Here(slot) = latched.place else { return Ok(false) };
        if latched.leaf.version(slot) != version || !latched.leaf.is_past_deadline(key, slot) {
            return Ok(false);
        }
        let outcome = self.remove_latched(latched, &mut tally);
        tally.note(outcome);
        tally.expired += 1;
        self.flush(&mut tally);
        Ok(true)
    }
}

/// What a look through some pairs did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Swept {
    /// The key from which to go on, or `None` at the table's end.
    pub next: Option<u64>,
    /// Pairs that were removed.
    pub ended: u64,
}

impl BlockTree {
    /// Removes those of the first `limit` pairs from the key `from` on whose deadlines have passed.
    ///
    /// # Errors
    /// [`WriteError`]: a leaf could not be read or latched in time. What was removed by then stays so.
    pub fn sweep(&self, from: u64, limit: usize) -> Result<Swept, WriteError> {
        let Some(now_ms) = self.now_ms() else { return Ok(Swept { next: None, ended: 0 }) };
        let mut pairs = Pairs::default();
        pairs.reset(SHORT_VALUE_BYTES);
        let next = self.tree().scan(Direction::Ascending, from, limit, &mut pairs)?;
        let mut ended = 0;
        for at in 0..pairs.len() {
            let Pair { key, version, value } = pairs.pair(at);
            let named = Named { reference: reference_in(value), version };
            let deadline = deadline_of(self.blocks(), key, named, now_ms);
            if deadline.is_some_and(|deadline| deadline.is_past(now_ms)) {
                ended += u64::from(self.tree().end_pair(key, version)?);
            }
        }
        Ok(Swept { next, ended })
    }
}
