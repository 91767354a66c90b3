//! SCAN by the server's processor: leaf after leaf along the chain, each read like a client's READ, no latch
//! taken. One call looks at [`LEAVES_MAX`] leaves at most, whatever they hold, and says where the next one
//! goes on. So no scan keeps a worker for long.
//!
//! Invariant: the cursor is the least key not yet decided. A leaf counts only if its fences contain the
//! cursor; it decides all keys up to its high fence, which is the next cursor. So no key is skipped and none
//! comes twice, whatever splits and merges happen on the way. Every pair was there at an instant during the
//! scan.

use farsight_base::LeafNumber;
use farsight_index::{Backoff, Contended, LeafFormat, Pairs, Waited};

use super::tree::XTree;

/// Leaves that one call looks at.
const LEAVES_MAX: usize = 256;

impl<F: LeafFormat> XTree<F> {
    /// Appends up to `limit` pairs with keys from `from` on to `into`, ascending. Returns the key from which
    /// to go on, or `None` at the table's end. There may be none in between: the call's leaves were empty.
    ///
    /// # Errors
    /// [`Contended`]; pairs found so far stay appended.
    pub fn scan(&self, from: u64, limit: usize, into: &mut Pairs) -> Result<Option<u64>, Contended> {
        let end = into.len().saturating_add(limit);
        let mut backoff = Backoff::new();
        let mut cursor = from;
        let mut next: Option<LeafNumber> = None;
        let mut leaves = 0;
        while into.len() < end && leaves < LEAVES_MAX {
            let leaf = match next.take() {
                Some(leaf) => leaf,
                None => self.descend(cursor)?.leaf,
            };
            let pairs_before = into.len();
            let span = self
                .slab
                .block(leaf)
                .and_then(|words| self.format.read_pairs(words, cursor, end - pairs_before, into));
            match span {
                Some(span) if span.fences.contain(cursor) => {
                    if into.len() == end {
                        return Ok(into.pair(end - 1).key.checked_add(1));
                    }
                    let Some(high) = span.fences.high else { return Ok(None) };
                    cursor = high;
                    leaves += 1;
                    next = Some(span.next);
                    if let Some(words) = self.slab.block(span.next) {
                        self.format.prefetch_keys(words);
                    }
                    backoff = Backoff::new();
                }
                other => {
                    into.truncate(pairs_before);
                    // Right of a leaf that has split since; anything else is sought from the root.
                    next = other.filter(|span| span.fences.low <= cursor).map(|span| span.next);
                    if backoff.is_time_to_look() {
                        self.scrub(leaf);
                        // A sibling's number that memory lost a bit of may lead round and round.
                        next = None;
                    }
                    backoff.pause(cursor, Waited::Leaf(leaf))?;
                }
            }
        }
        Ok(Some(cursor))
    }
}
