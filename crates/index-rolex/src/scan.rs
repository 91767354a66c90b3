//! SCAN(from, limit): whole leaves in key order, each proved by one READ; their fences tile the keys scanned.
//!
//! Protocol: the cursor begins at `from`. The leaf that owns it is found as a GET finds one; its pairs from
//! the cursor on are taken, its high fence becomes the cursor, its sibling is READ next. A leaf is accepted
//! if all its lines are even and of one incarnation, it is not closed, and its fences hold the cursor. So no
//! key is skipped and none is seen twice; each pair was there at an instant of its leaf's READ.

use farsight_base::Line;
use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_index::Pairs;
use farsight_layout::pool::{BlockGeometry, LockWord, lock_of};
use farsight_layout::{KEY_LINES, KeyLines, LEAF_SLOTS, LeafSlot};

use crate::walk::{Seen, Walk};
use crate::{RolexError, RolexSession};

impl RolexSession {
    /// Appends up to `limit` pairs with keys from `from` on.
    pub(crate) async fn scan<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        from: u64,
        limit: usize,
        pairs: &mut Pairs,
    ) -> Result<(), RolexError> {
        let geometry = *self.table().geometry();
        let mut lines = vec![Line::ZERO; geometry.leaf().leaf_lines()];
        let end = pairs.len() + limit;
        let mut cursor = from;
        let candidates = self.candidates(slot, cursor).await?;
        let mut place = candidates.leaves()[candidates.likeliest()];
        let mut walk = Walk::new(self, cursor);
        while pairs.len() < end {
            self.post_leaves(slot, &[place], lines.len());
            slot.completed().await;
            slot.take_read(place.node(), 0, &mut lines)?;
            let key_lines = lines.first_chunk::<KEY_LINES>().expect("a leaf has a key part");
            let lock = lock_of(key_lines);
            let before = pairs.len();
            match take(&geometry, &lines, cursor, end, pairs) {
                Ok(Some(high)) => {
                    cursor = high;
                    walk = Walk::new(self, cursor);
                    place = walk.next(slot, place, lock, Seen::Right(KeyLines(key_lines).next())).await?;
                }
                Ok(None) => break,
                Err(seen) => {
                    pairs.truncate(before);
                    place = walk.next(slot, place, lock, seen).await?;
                }
            }
        }
        pairs.truncate(end);
        Ok(())
    }
}

/// Appends the pairs of a leaf from `cursor` on, at least as many as there is room for below `end`; its high
/// fence, if it has one. What it is instead of the cursor's leaf at rest.
fn take(
    geometry: &BlockGeometry,
    lines: &[Line],
    cursor: u64,
    end: usize,
    pairs: &mut Pairs,
) -> Result<Option<u64>, Seen> {
    let key_lines = KeyLines(lines.first_chunk::<KEY_LINES>().expect("a leaf has a key part"));
    if lock_of(key_lines.0) == LockWord::CLOSED {
        return Err(Seen::Closed);
    }
    let incarnation = key_lines.incarnation().ok_or(Seen::Busy)?;
    let fences = key_lines.fences().ok_or(Seen::Closed)?;
    if cursor < fences.low {
        return Err(Seen::Left);
    }
    if !fences.contain(cursor) {
        return Err(Seen::Right(key_lines.next()));
    }
    let mut slots = [(0, LeafSlot::FIRST); LEAF_SLOTS];
    let count = key_lines.sorted(&mut slots);
    let wanted = slots[..count].iter().filter(|(key, _)| *key >= cursor && fences.contain(*key));
    let mut least = Some(cursor);
    for (key, slot) in wanted {
        if pairs.len() == end {
            break;
        }
        // Of equal keys, removed and inserted again while the lines were read, READ again.
        if least.is_none_or(|least| *key < least) {
            return Err(Seen::Busy);
        }
        least = key.checked_add(1);
        let place = geometry.leaf().value_place(*slot);
        let value_lines = &lines[place.line..][..geometry.leaf().lines_per_value()];
        let version = geometry.leaf().read_value(value_lines, place, incarnation, pairs.begin());
        pairs.keep(*key, version.map_err(|_| Seen::Busy)?);
    }
    Ok(fences.high)
}
