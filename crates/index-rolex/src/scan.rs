//! SCAN(from, limit): whole leaves in key order, upwards or downwards, each proved by one READ; their fences
//! tile the keys scanned. A scan of keys alone READs the key parts of leaves.
//!
//! Protocol:
//! 1. The cursor begins at `from`.
//! 2. The scan READs the leaves that the cache names from there on in one doorbell, as many as the pairs
//!    wanted take up.
//! 3. It takes them in the order of its way. Behind each the cursor is behind the leaf's fence on that way.
//! 4. Upwards it READs by sibling what lies between two of them, or behind the last. Downwards, where leaves
//!    have no siblings, it walks to the cursor's leaf as a GET does.
//!
//! A leaf is accepted if all its lines are even and of one incarnation, it is not closed, and its fences hold
//! the cursor. So no key is skipped and none is seen twice. Each pair was there at an instant of its leaf's
//! READ.

use farsight_base::Line;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::{ConsistentLeaf, Direction, Extent, Pairs, ScanRequest, key_behind};
use farsight_layout::pool::{BlockGeometry, LockWord, lock_of};
use farsight_layout::{KEY_LINES, KeyLines, LEAF_SLOTS};

use crate::buffers::ScanBuffers;
use crate::walk::{Seen, Walk};
use crate::{LeafPlace, NODES_MAX, RolexError, RolexSession};

/// Pairs that a leaf is expected to hold.
const PAIRS_PER_LEAF: usize = LEAF_SLOTS * 3 / 4;

/// How far a scan has come.
struct Progress<'p> {
    direction: Direction,
    /// Lines of each leaf that are READ: all, or its key part.
    leaf_lines: usize,
    /// The next key on the way; `None` behind the last one.
    cursor: Option<u64>,
    /// Pairs when it is complete.
    end: usize,
    pairs: &'p mut Pairs,
    /// The leaf taken last, and its key part as it was READ: upwards the cursor's leaf is its sibling.
    last: Option<(LeafPlace, [Line; KEY_LINES])>,
}

impl Progress<'_> {
    /// The next key, unless all pairs wanted are there.
    fn wanted(&self) -> Option<u64> {
        self.cursor.filter(|_| self.pairs.len() < self.end)
    }

    /// Whether the scan has passed the keys of a leaf that is not the cursor's.
    fn has_passed(&self, seen: Seen) -> bool {
        match self.direction {
            Direction::Ascending => matches!(seen, Seen::Right { .. }),
            Direction::Descending => seen == Seen::Left,
        }
    }

    /// Takes the leaf that was READ into `lines`, if it is the cursor's and consistent.
    fn take(&mut self, geometry: &BlockGeometry, place: LeafPlace, lines: &[Line]) -> Result<(), Seen> {
        let Some(cursor) = self.cursor else { return Ok(()) };
        let scan = ScanRequest { from: cursor, limit: self.end - self.pairs.len() };
        self.cursor = take(geometry, lines, self.direction, scan, self.pairs)?;
        self.last = Some((place, key_lines(lines)));
        Ok(())
    }
}

fn key_lines(lines: &[Line]) -> [Line; KEY_LINES] {
    *lines.first_chunk().expect("a leaf has a key part")
}

impl RolexSession {
    /// Appends the pairs that `scan` wants.
    pub(crate) async fn scan<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (direction, extent): (Direction, Extent),
        scan: ScanRequest,
        pairs: &mut Pairs,
    ) -> Result<(), RolexError> {
        let leaf_lines = extent.lines(self.table().geometry().leaf());
        // A limit may be any number.
        let end = pairs.len().saturating_add(scan.limit);
        let cursor = Some(scan.from);
        let mut progress = Progress { direction, leaf_lines, cursor, end, pairs, last: None };
        let mut buffers = self.buffers.scans.lend();
        // The cache does not know what is behind the leaf taken last.
        let mut is_unknown = false;
        while let Some(cursor) = progress.wanted() {
            let leaves = (end - progress.pairs.len()).div_ceil(PAIRS_PER_LEAF) + 1;
            self.candidates(slot, cursor).await?;
            self.hints.predict_range(direction, cursor, leaves, &mut buffers.predicted);
            let last = progress.last.as_ref().map(|(place, _)| place);
            if is_unknown || buffers.predicted.is_empty() || buffers.predicted.first() == last {
                self.scan_on(slot, None, &mut progress).await?;
            } else {
                self.scan_leaves(slot, &mut buffers, &mut progress).await?;
                is_unknown = progress.wanted() == Some(cursor);
            }
        }
        progress.pairs.truncate(end);
        Ok(())
    }

    /// READs as many of the leaves predicted as there are verbs for in one doorbell, and takes them in their
    /// order, each after those that come before it.
    async fn scan_leaves<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        buffers: &mut ScanBuffers,
        progress: &mut Progress<'_>,
    ) -> Result<(), RolexError> {
        let geometry = *self.table().geometry();
        let leaf_lines = progress.leaf_lines;
        let ScanBuffers { predicted, posted, leaves } = buffers;
        let mut verbs = [0; NODES_MAX];
        posted.clear();
        for place in &*predicted {
            let (node, verb) = (place.node(), verbs[place.node()]);
            if verb == slot.verbs() {
                break;
            }
            slot.post_read(node, verb, self.table().address(*place, 0), leaf_lines, ReadMode::Stamped);
            verbs[node] += 1;
            posted.push((*place, verb));
        }
        slot.completed().await;
        // All are taken out before a walk posts others.
        leaves.resize(posted.len() * leaf_lines, Line::ZERO);
        for ((place, verb), lines) in posted.iter().zip(leaves.chunks_mut(leaf_lines)) {
            slot.take_read(place.node(), *verb, lines)?;
        }
        for ((place, _), lines) in posted.drain(..).zip(leaves.chunks(leaf_lines)) {
            while progress.wanted().is_some() {
                match progress.take(&geometry, place, lines) {
                    Ok(()) => break,
                    // Those before it held all of its keys.
                    Err(seen) if progress.last.is_some() && progress.has_passed(seen) => break,
                    Err(seen) => {
                        // A leaf between, or this one is not consistent: by the sibling of the one before.
                        self.scan_on(slot, Some((place, lines, seen)), progress).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Walks to the leaf of the cursor and takes it. The walk begins at the leaf taken last on the way up.
    /// Otherwise it begins at one that turned out to be `seen`, or where the cache leads.
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
        let last = progress.last.take().filter(|_| progress.direction == Direction::Ascending);
        let (mut place, lock, mut seen) = match (last, seen) {
            (Some((last, lines)), _) => {
                walk.come_from(last, lock_of(&lines));
                (last, lock_of(&lines), Seen::right_of(KeyLines(&lines).fences(), KeyLines(&lines).next()))
            }
            (None, Some((place, lines, seen))) => (place, lock_of(&key_lines(lines)), seen),
            (None, None) => (candidates.leaves()[candidates.likeliest()], LockWord::FREE, Seen::Busy),
        };
        let mut lock = lock;
        let mut block = self.block();
        let lines = &mut block[..progress.leaf_lines];
        loop {
            place = walk.next(slot, place, lock, seen).await?;
            self.post_leaves(slot, &[place], lines.len());
            slot.completed().await;
            slot.take_read(place.node(), 0, lines)?;
            lock = lock_of(&key_lines(lines));
            match progress.take(&geometry, place, lines) {
                Ok(()) => break,
                Err(other) => seen = other,
            }
        }
        self.learn(slot, &walk, &candidates, lines, place, cursor).await;
        Ok(())
    }
}

/// Appends the pairs of a leaf that `scan` wants, which begins at the cursor; of a key part alone, their
/// keys. Returns the key behind the leaf on the way, if there is one, or what the leaf is instead of the
/// cursor's in a consistent state.
fn take(
    geometry: &BlockGeometry,
    lines: &[Line],
    direction: Direction,
    scan: ScanRequest,
    pairs: &mut Pairs,
) -> Result<Option<u64>, Seen> {
    let view = KeyLines(lines.first_chunk::<KEY_LINES>().expect("a leaf has a key part"));
    if lock_of(view.0) == LockWord::CLOSED {
        return Err(Seen::Closed);
    }
    let incarnation = view.incarnation().ok_or(Seen::Busy)?;
    let fences = view.fences().ok_or(Seen::Closed)?;
    if scan.from < fences.low {
        return Err(Seen::Left);
    }
    if !fences.contain(scan.from) {
        return Err(Seen::right_of(view.fences(), view.next()));
    }
    let leaf = ConsistentLeaf { geometry: geometry.leaf(), lines, incarnation, permutation: view.order() };
    let has_keys_alone = lines.len() == KEY_LINES;
    let before = pairs.len();
    let appended = match direction {
        _ if has_keys_alone => Some(pairs.append_leaf_keys(view, direction, scan)),
        Direction::Ascending => pairs.append_leaf(&leaf, (scan.from, fences.last_key()), scan.limit),
        Direction::Descending => pairs.append_leaf_descending(&leaf, scan.from, scan.limit),
    };
    let appended = appended.ok_or(Seen::Busy)?;
    // No consistent leaf holds a key beyond its fence: the next one's pairs would come twice, or out of
    // order. Of whole leaves upwards that was looked at.
    let is_unchecked = has_keys_alone || direction == Direction::Descending;
    if is_unchecked && appended > 0 && !fences.contain(pairs.pair(before + appended - 1).key) {
        pairs.truncate(before);
        return Err(Seen::Busy);
    }
    Ok(key_behind(fences, direction))
}
