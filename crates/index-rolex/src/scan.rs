//! SCAN(from, limit): whole leaves in key order, each proved by one READ; their fences tile the keys scanned.
//!
//! Protocol: the cursor begins at `from`. The leaves that the cache names from there on, as many as the pairs
//! wanted take up, are READ in one doorbell and taken in key order; behind each, its high fence is the
//! cursor. What lies between two of them, or behind the last, is READ by sibling. A leaf is accepted if all
//! its lines are even and of one incarnation, it is not closed, and its fences hold the cursor. So no key is
//! skipped and none is seen twice; each pair was there at an instant of its leaf's READ.

use farsight_base::Line;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::Pairs;
use farsight_layout::pool::{BlockGeometry, LockWord, lock_of};
use farsight_layout::{KEY_LINES, KeyLines, LEAF_SLOTS, LeafSlot};

use crate::walk::{Seen, Walk};
use crate::{LeafPlace, RolexError, RolexSession};

/// Pairs that a leaf is expected to hold.
const PAIRS_PER_LEAF: usize = LEAF_SLOTS * 3 / 4;

/// How far a scan has come.
struct Progress<'p> {
    /// The next key; `None` behind the last one.
    cursor: Option<u64>,
    /// Pairs when it is complete.
    end: usize,
    pairs: &'p mut Pairs,
    /// The leaf taken last, and what was READ of it: the cursor's leaf is its sibling.
    last: Option<(LeafPlace, Vec<Line>)>,
}

impl Progress<'_> {
    /// The next key, unless all pairs wanted are there.
    fn wanted(&self) -> Option<u64> {
        self.cursor.filter(|_| self.pairs.len() < self.end)
    }

    /// Takes the leaf that was READ into `lines`, if it is the cursor's and at rest.
    fn take(&mut self, geometry: &BlockGeometry, place: LeafPlace, lines: &[Line]) -> Result<(), Seen> {
        let Some(cursor) = self.cursor else { return Ok(()) };
        let before = self.pairs.len();
        match take(geometry, lines, cursor, self.end, self.pairs) {
            Ok(high) => {
                self.cursor = high;
                self.last = Some((place, lines.to_vec()));
                Ok(())
            }
            Err(seen) => {
                self.pairs.truncate(before);
                Err(seen)
            }
        }
    }
}

impl RolexSession {
    /// Appends up to `limit` pairs with keys from `from` on.
    pub(crate) async fn scan<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        from: u64,
        limit: usize,
        pairs: &mut Pairs,
    ) -> Result<(), RolexError> {
        let end = pairs.len() + limit;
        let mut progress = Progress { cursor: Some(from), end, pairs, last: None };
        let mut predicted = Vec::new();
        // The cache does not know what is behind the leaf taken last.
        let mut is_unknown = false;
        while let Some(cursor) = progress.wanted() {
            let leaves = (end - progress.pairs.len()).div_ceil(PAIRS_PER_LEAF) + 1;
            self.candidates(slot, cursor).await?;
            self.hints.predict_range(cursor, leaves, &mut predicted);
            let is_last = |(last, _): &(LeafPlace, Vec<Line>)| predicted.first() == Some(last);
            if is_unknown || predicted.is_empty() || progress.last.as_ref().is_some_and(is_last) {
                self.scan_on(slot, None, &mut progress).await?;
            } else {
                self.scan_leaves(slot, &predicted, &mut progress).await?;
                is_unknown = progress.wanted() == Some(cursor);
            }
        }
        progress.pairs.truncate(end);
        Ok(())
    }

    /// READs as many of these leaves as there are verbs for in one doorbell, and takes them in their order,
    /// each after those that come before it.
    async fn scan_leaves<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        predicted: &[LeafPlace],
        progress: &mut Progress<'_>,
    ) -> Result<(), RolexError> {
        let geometry = *self.table().geometry();
        let leaf_lines = geometry.leaf().leaf_lines();
        let mut verbs = vec![0; self.table().nodes().len()];
        let mut posted = Vec::with_capacity(predicted.len());
        for place in predicted {
            let (node, verb) = (place.node(), verbs[place.node()]);
            if verb == slot.verbs() {
                break;
            }
            slot.post_read(node, verb, self.table().address(*place, 0), leaf_lines, ReadMode::Stamped);
            verbs[node] += 1;
            posted.push((*place, verb));
        }
        slot.completed().await;
        let mut leaves = Vec::with_capacity(posted.len());
        for (place, verb) in posted {
            let mut lines = vec![Line::ZERO; leaf_lines];
            slot.take_read(place.node(), verb, &mut lines)?;
            leaves.push((place, lines));
        }
        for (place, lines) in leaves {
            while progress.wanted().is_some() {
                match progress.take(&geometry, place, &lines) {
                    Ok(()) => break,
                    // Those before it held all of its keys.
                    Err(Seen::Right { .. }) if progress.last.is_some() => break,
                    Err(seen) => {
                        // A leaf between, or this one is not at rest: by the sibling of the one before.
                        self.scan_on(slot, Some((place, &lines, seen)), progress).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Walks to the leaf of the cursor and takes it: from the leaf taken last, or, if there is none, from one
    /// that turned out to be `seen`.
    async fn scan_on<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        seen: Option<(LeafPlace, &[Line], Seen)>,
        progress: &mut Progress<'_>,
    ) -> Result<(), RolexError> {
        let Some(cursor) = progress.cursor else { return Ok(()) };
        let geometry = *self.table().geometry();
        let candidates = self.candidates(slot, cursor).await?;
        let mut walk = Walk::new(self, cursor);
        let key_lines =
            |lines: &[Line]| -> [Line; KEY_LINES] { *lines.first_chunk().expect("a leaf has a key part") };
        let (mut place, lock, mut seen) = match (progress.last.take(), seen) {
            (Some((last, lines)), _) => {
                let lines = key_lines(&lines);
                walk.come_from(last, lock_of(&lines));
                (last, lock_of(&lines), Seen::right_of(KeyLines(&lines).fences(), KeyLines(&lines).next()))
            }
            (None, Some((place, lines, seen))) => (place, lock_of(&key_lines(lines)), seen),
            (None, None) => (candidates.leaves()[candidates.likeliest()], LockWord::FREE, Seen::Busy),
        };
        let mut lock = lock;
        let mut lines = vec![Line::ZERO; geometry.leaf().leaf_lines()];
        loop {
            place = walk.next(slot, place, lock, seen).await?;
            self.post_leaves(slot, &[place], lines.len());
            slot.completed().await;
            slot.take_read(place.node(), 0, &mut lines)?;
            lock = lock_of(&key_lines(&lines));
            match progress.take(&geometry, place, &lines) {
                Ok(()) => break,
                Err(other) => seen = other,
            }
        }
        self.learn(slot, &walk, &candidates, &lines, place, cursor).await;
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
        return Err(Seen::right_of(key_lines.fences(), key_lines.next()));
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
