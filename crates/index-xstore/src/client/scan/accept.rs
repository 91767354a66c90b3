//! Accepting leaves: those in flight in key order, and the siblings that the model does not know.
//!
//! Protocol, for the oldest leaf in flight:
//! 1. If its fences hold the cursor, its pairs are appended and the cursor moves behind it.
//! 2. If the scan has passed its keys, or it is no leaf, it is passed over.
//! 3. If it is changing, it is READ again.
//! 4. If it is further on than the cursor, a leaf stands between. On the way up that is the *sibling* that
//!    the leaf accepted last named. If it is in flight further behind, the leaves before it are passed over.
//!    Otherwise it is READ alone, and the oldest leaf, whose lines are kept, is looked at again. On the way
//!    down the leaf between has split off from the oldest leaf, whose siblings lead to it, one by one.
//!
//! Bounds: [`READS_MAX`] READs that do not move the cursor, and [`SIBLINGS_MAX`] siblings before one leaf in
//! flight, end the window.

use farsight_base::words::{Moves, SharedLine};
use farsight_base::{LeafNumber, Line};
use farsight_fabric::mapped::Mapped as _;
use farsight_fabric::{FabricError, QueuePair, Slot};
use farsight_index::{Direction, Pairs, ScanRequest, key_behind};

use super::super::leaf::{self, KEY_LINES, LeafReader};
use super::super::{READS_MAX, XClient, XStoreError};
use super::progress::Progress;
#[cfg(injected)]
use crate::injected;

/// Siblings READ one by one before a leaf in flight. Where chains are longer the model knows nothing of the
/// keys. What else it names there would be far off, too.
const SIBLINGS_MAX: usize = 16;

/// What a leaf gave to a scan.
#[derive(Clone, Copy)]
enum Step {
    /// Pairs (or none), and the cursor moved behind the leaf or the limit was reached.
    Accepted,
    /// The scan has passed the leaf's keys; this is its sibling.
    Passed(LeafNumber),
    /// The leaf is further on than the cursor; this is its sibling.
    Ahead(LeafNumber),
    /// The lines changed under the READ.
    Changing,
    /// The lines are no leaf.
    Foreign,
}

impl XClient {
    /// Takes the leaves in flight, until none is left or the scan is done.
    #[inline(never)]
    pub(super) fn take_window<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        progress: &mut Progress,
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        let (reader, region, line_count) = (*self.cache.reader(), self.cache.region(), self.scan_lines());
        // Done first: whether a leaf is left over is as good as random, and a guess that fails costs more.
        while !progress.is_done() && !progress.window.is_empty() {
            if progress.window.is_half_taken() {
                self.top_up(queue, progress)?;
            }
            let mut step = None;
            if let Some(mapped) = queue.mapped()
                && progress.direction == Direction::Ascending
            {
                step = self.take_run(mapped.lines(region), progress, pairs);
                mapped.end()?;
            }
            let step = if let Some(step) = step {
                step
            } else {
                let slot = progress.window.oldest();
                let lines = &mut self.scratch.leaf_lines[..line_count];
                reader.take(queue, slot, (region, self.leaves[slot]), lines)?;
                accept(&reader, lines, self.leaves[slot], progress, pairs)
            };
            let goes_on = match step {
                Step::Accepted => {
                    progress.window.accept();
                    progress.may_read()
                }
                step => self.go_round(queue, step, progress, pairs)?,
            };
            if !goes_on {
                queue.drain()?;
                progress.window.drop_rest();
            }
        }
        Ok(())
    }

    /// Takes leaves in flight where they lie, among the lines of their region, as long as each is the
    /// cursor's and nothing else is due. Returns what the last one gave, which is still in flight; `None` if
    /// that lies beyond these lines. The caller looks behind it whether the connection has ended.
    #[inline(always)]
    fn take_run(&mut self, lines: &[SharedLine], progress: &mut Progress, pairs: &mut Pairs) -> Option<Step> {
        let (reader, line_count, moves) = (*self.cache.reader(), self.scan_lines(), Moves::detect());
        loop {
            let leaf = self.leaves[progress.window.oldest()];
            let copy = &mut self.scratch.leaf_lines[..line_count];
            reader.copy_in_place(lines, leaf, moves, copy)?;
            let step = accept_on_way(&reader, copy, leaf, Direction::Ascending, progress, pairs);
            let goes_on = matches!(step, Step::Accepted) && !progress.is_done() && progress.may_read();
            if !goes_on || progress.window.pauses_behind_oldest() {
                return Some(step);
            }
            progress.window.accept();
        }
    }

    /// The oldest leaf in flight is not the cursor's, by `step`: goes on to the next one that is. False if
    /// the leaves in flight are of no use.
    #[cold]
    fn go_round<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        mut step: Step,
        progress: &mut Progress,
        pairs: &mut Pairs,
    ) -> Result<bool, XStoreError> {
        let (reader, line_count) = (*self.cache.reader(), self.scan_lines());
        let slot = progress.window.oldest();
        let mut siblings = 0;
        loop {
            match step {
                Step::Accepted => {
                    progress.window.accept();
                    return Ok(progress.may_read());
                }
                Step::Passed(next) => {
                    if progress.direction == Direction::Ascending {
                        progress.cursor.leaf = progress.cursor.leaf.or(next.some());
                    }
                    progress.window.pass(1);
                    return Ok(true);
                }
                Step::Foreign => {
                    self.note_stale(progress.cursor.key);
                    progress.window.pass(1);
                    return Ok(true);
                }
                Step::Changing => {
                    self.counters.retries += 1;
                    if !self.read_alone(queue, slot, self.leaves[slot], progress)? {
                        return Ok(false);
                    }
                    std::mem::swap(&mut self.scratch.leaf_lines, &mut self.scratch.sibling_lines);
                }
                Step::Ahead(next) => {
                    let is_down = progress.direction == Direction::Descending;
                    let sibling = progress.cursor.leaf.or(next.some().filter(|_| is_down));
                    let sibling = sibling.filter(|_| siblings < SIBLINGS_MAX);
                    let Some(sibling) = sibling else { return Ok(false) };
                    if siblings == 0 {
                        self.note_stale(progress.cursor.key);
                    }
                    siblings += 1;
                    let is_sibling = |slot: Slot| self.leaves[slot] == sibling;
                    let between = progress.window.behind_oldest().position(is_sibling);
                    // On the way down those behind are further on still.
                    if let Some(between) = between.filter(|_| !is_down) {
                        progress.window.pass(between + 1);
                        return Ok(true);
                    }
                    let is_taken = self.take_sibling(queue, slot, sibling, progress, pairs)?;
                    if !is_taken || progress.is_done() || !progress.may_read() {
                        return Ok(false);
                    }
                }
            }
            let lines = &self.scratch.leaf_lines[..line_count];
            step = accept(&reader, lines, self.leaves[slot], progress, pairs);
        }
    }

    /// READs the sibling that the cursor is in by what its neighbour said, and accepts it, or goes on to its
    /// own. False if it leads nowhere.
    fn take_sibling<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        slot: Slot,
        sibling: LeafNumber,
        progress: &mut Progress,
        pairs: &mut Pairs,
    ) -> Result<bool, XStoreError> {
        self.counters.sibling_steps += 1;
        if !self.read_alone(queue, slot, sibling, progress)? {
            return Ok(false);
        }
        let reader = *self.cache.reader();
        let lines = &self.scratch.sibling_lines[..self.scan_lines()];
        match accept(&reader, lines, sibling, progress, pairs) {
            Step::Accepted => {}
            // The cursor's leaf is right of it: further back where the way is down.
            Step::Passed(next) if progress.direction == Direction::Ascending => {
                progress.cursor.leaf = next.some();
            }
            Step::Ahead(next) if progress.direction == Direction::Descending => {
                progress.cursor.leaf = next.some();
            }
            Step::Changing => self.counters.retries += 1,
            Step::Passed(_) | Step::Ahead(_) | Step::Foreign => {
                progress.cursor.leaf = None;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// READs a leaf into the lines for siblings, in a slot whose leaf was taken. False, and nothing is READ,
    /// if it is none or too many READs have not moved the cursor.
    fn read_alone<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        slot: Slot,
        leaf: LeafNumber,
        progress: &mut Progress,
    ) -> Result<bool, XStoreError> {
        if progress.fruitless >= READS_MAX || !self.cache.is_leaf(leaf) {
            return Ok(false);
        }
        progress.fruitless += 1;
        let line_count = self.scan_lines();
        self.cache.reader().post(queue, slot, (self.cache.region(), leaf), line_count);
        queue.doorbell()?;
        take(queue, slot, &mut self.scratch.sibling_lines[..line_count])?;
        Ok(true)
    }

    /// After a plan that did not lead to the leaf of `key`.
    fn note_stale(&mut self, key: u64) {
        if let Some(model) = self.model.as_deref() {
            self.refreshes.follow(model);
            self.refreshes.count_walk(model, key);
        }
    }
}

/// Takes a leaf's lines, once they are there. Leaves behind it may be under way still.
#[inline(always)]
fn take<Q: QueuePair>(queue: &mut Q, slot: Slot, lines: &mut [Line]) -> Result<(), FabricError> {
    // To drain a slot may mean to wait for all.
    if !queue.is_complete(slot) {
        queue.drain_slot(slot)?;
    }
    leaf::take(queue, slot, lines)
}

/// Appends the pairs of one leaf from the cursor on, on the scan's way. Without the leaf's value lines they
/// have keys alone.
#[inline(never)]
fn accept(
    reader: &LeafReader,
    lines: &[Line],
    leaf: LeafNumber,
    progress: &mut Progress,
    pairs: &mut Pairs,
) -> Step {
    accept_on_way(reader, lines, leaf, progress.direction, progress, pairs)
}

/// [`accept`] on a way that the compiler may know.
#[inline(always)]
fn accept_on_way(
    reader: &LeafReader,
    lines: &[Line],
    leaf: LeafNumber,
    direction: Direction,
    progress: &mut Progress,
    pairs: &mut Pairs,
) -> Step {
    let view = leaf::key_part(lines);
    let Some(incarnation) = view.incarnation() else { return Step::Changing };
    let Some(fences) = view.fences() else { return Step::Foreign };
    let cursor = &mut progress.cursor;
    #[cfg(injected)]
    if injected::SCAN_SKIPS_SIBLING.is_injected() && direction == Direction::Ascending {
        cursor.key = cursor.key.max(fences.low);
    } else if injected::DESCENT_SKIPS_SIBLING.is_injected() && direction == Direction::Descending {
        cursor.key = fences.high.map_or(cursor.key, |high| cursor.key.min(high.saturating_sub(1)));
    } else if injected::SCAN_SKIPS_MERGED.is_injected()
        && direction == Direction::Ascending
        && cursor.leaf.is_none()
    {
        cursor.key = cursor.key.max(fences.low);
    }
    if !fences.contain(cursor.key) {
        let is_right = cursor.key < fences.low;
        let is_ahead = is_right == (direction == Direction::Ascending);
        return if is_ahead { Step::Ahead(view.next()) } else { Step::Passed(view.next()) };
    }
    let of_leaf = reader.pairs(lines, incarnation);
    let has_keys_alone = lines.len() == KEY_LINES;
    let before = pairs.len();
    let appended = match direction {
        _ if has_keys_alone => {
            let scan = ScanRequest { from: cursor.key, limit: cursor.remaining };
            Some(pairs.append_leaf_keys(view, direction, scan))
        }
        Direction::Ascending => {
            pairs.append_leaf(&of_leaf, (cursor.key, fences.last_key()), cursor.remaining)
        }
        Direction::Descending => pairs.append_leaf_descending(&of_leaf, cursor.key, cursor.remaining),
    };
    let Some(appended) = appended else { return Step::Changing };
    let next = key_behind(fences, direction);
    // No leaf of an honest server holds a key beyond its fence: the next one's pairs would come out of order.
    // Of whole leaves upwards that was looked at before pairs were stored: a load of one waits for its store.
    let is_unchecked = has_keys_alone || direction == Direction::Descending;
    let is_beyond = |next| pairs.last_key().is_some_and(|last| !direction.is_behind(next, last));
    if is_unchecked && appended > 0 && next.is_some_and(is_beyond) {
        pairs.truncate(before);
        return Step::Foreign;
    }
    cursor.remaining -= appended;
    match next {
        Some(key) => cursor.key = key,
        None => cursor.at_end = true,
    }
    cursor.leaf = view.next().some().filter(|_| direction == Direction::Ascending);
    progress.note_leaf(leaf, appended);
    Step::Accepted
}
