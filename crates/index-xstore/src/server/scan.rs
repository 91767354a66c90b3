//! SCAN by the server's processor: leaf after leaf, each read like a client's READ, no latch taken. Upwards
//! it follows the chain; downwards, where leaves have no siblings, it descends the tree for each leaf. One
//! call looks at [`LEAVES_MAX`] leaves at most, whatever they hold, and says where the next one goes on. So
//! no scan keeps a worker for long.
//!
//! Invariant: the cursor is the first key on the way that is not yet decided. A leaf counts only if its
//! fences contain the cursor; it decides all keys up to its fence on the way, behind which the next cursor
//! is. So no key is skipped and none comes twice, whatever splits and merges happen meanwhile. Every pair was
//! there at an instant during the scan.

use farsight_base::LeafNumber;
use farsight_index::{Backoff, Contended, Direction, LeafFormat, Pairs, ScanRequest, Waited, key_behind};

use super::tree::XTree;

/// Leaves that one call looks at.
const LEAVES_MAX: usize = 256;

impl<F: LeafFormat> XTree<F> {
    /// Appends up to `limit` pairs with keys from `from` on to `into`, in the order of the way. Returns the
    /// key from which to go on, or `None` at the table's end. There may be none in between: the call's leaves
    /// were empty.
    ///
    /// # Errors
    /// [`Contended`]; pairs found so far stay appended.
    pub fn scan(
        &self,
        direction: Direction,
        from: u64,
        limit: usize,
        into: &mut Pairs,
    ) -> Result<Option<u64>, Contended> {
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
            let wanted = ScanRequest { from: cursor, limit: end - pairs_before };
            let block = self.slab.block(leaf);
            let span = block.and_then(|words| self.format.read_pairs(words, direction, wanted, into));
            match span {
                Some(span) if span.fences.contain(cursor) => {
                    if into.len() == end {
                        return Ok(direction.next_key(into.pair(end - 1).key));
                    }
                    let Some(behind) = key_behind(span.fences, direction) else { return Ok(None) };
                    cursor = behind;
                    leaves += 1;
                    if direction == Direction::Ascending {
                        next = Some(span.next);
                        if let Some(words) = self.slab.block(span.next) {
                            self.format.prefetch_keys(words);
                        }
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
