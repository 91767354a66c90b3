//! SCANs: whole leaves in doorbell batches, in key order. A scan of keys alone takes of each leaf the key
//! part, which proves what it shows.
//!
//! A scan goes up or down. It has a *cursor*, the first key on its way that is not yet answered for. A leaf
//! is accepted only if its lines are of one incarnation and the cursor lies within its fences. Then
//! everything from the cursor to the fence on the way is known, and the next cursor is behind that fence. So
//! nothing is skipped and nothing doubled, whatever splits meanwhile. Each pair was there at an instant of
//! the scan. Pairs of different leaves may be of different instants.
//!
//! Steps:
//! 1. Prefetch the sub-models of a group of scans.
//! 2. *Plan* as many leaves as each limit should need.
//! 3. READ them in one doorbell, for the group at once.
//! 4. *Accept* them in order, and plan those behind them.
//!
//! A scan has a *window* of slots. Its first doorbell rings for as many leaves as its limit should need, or
//! as the window has slots for. Whenever half of those are free again, the scan posts the leaves that the
//! model names next, and rings, before it looks at the other half. What the leaves so far gave says how many.
//!
//! A planned leaf may be further on than the cursor (stale table). It waits until the scan has come there by
//! siblings: those of the leaf accepted last on the way up, those of the planned leaf itself on the way down.
//! After [`READS_MAX`] READs that lead nowhere the server answers a page. So it does after too many leaves
//! without a pair. Pages without a pair have a bound, too. So a scan ends, whatever a server answers.

mod accept;
mod plan;
mod progress;

use farsight_base::LeafNumber;
use farsight_fabric::{CostClass, QueuePair};
use farsight_index::{Access, Direction, Extent, Pair, Pairs, ScanRequest, clear_kept};
use farsight_protocol::{DecodeError, ModelReader, PairsReader, Request, SubModelsWanted};

use super::fill::call;
use super::whole_leaves::keys_together;
use super::{READS_MAX, XClient, XStoreError};
use progress::{Progress, Window};

/// Scans whose leaves go out in one doorbell if there are slots for all. Where a round trip is dear, more of
/// them do.
const GROUP: usize = 8;
const GROUP_MAX: usize = 64;
/// Pairs that a leaf is expected to hold; bulk loads leave twelve, splits eight to sixteen. One leaf
/// is planned besides, for the first and the last are met in part.
const PAIRS_EXPECTED: usize = 12;
/// A scan is looked for in one leaf alone if that should hold so many pairs more. Of 64 scans for a pair
/// each, at any keys, every ninth time one goes on to the next leaf, which costs a round trip.
const PAIRS_SPARE: usize = 2;
/// Pairs asked of the server at a time.
const PAGE: usize = 256;

/// How far a scan is.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    key: u64,
    remaining: usize,
    /// The leaf to look at for `key`, if a leaf left of it named that: upwards the one that begins there.
    leaf: Option<LeafNumber>,
    at_end: bool,
}

/// Scans whose leaves went out in one doorbell.
pub(super) struct Group {
    pub(super) count: usize,
    /// Slots of each.
    slots: usize,
    /// Leaves planned for each.
    planned: [usize; GROUP_MAX],
}

/// How many of `scans` go out in one doorbell, from the first on, and the slots of each.
fn group<Q: QueuePair>(scans: &[ScanRequest]) -> (usize, usize) {
    let is_dear = matches!(Q::GUARANTEES.cost_class, CostClass::Socket);
    let (slots, count_max) = (keys_together::<Q>(), if is_dear { GROUP_MAX } else { GROUP });
    let (mut count, mut widest) = (0, 1);
    for scan in scans.iter().take(count_max) {
        widest = widest.max(leaves_wanted(scan.limit));
        if count > 0 && widest.saturating_mul(count + 1) > slots {
            break;
        }
        count += 1;
    }
    (count, slots / count.max(1))
}

impl XClient {
    /// The pairs of each of `scans`, in the order of the way, scan after scan.
    ///
    /// # Errors
    /// [`XStoreError`]; then `pairs` means nothing.
    pub fn scan_batch<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        self.reset_pairs(pairs);
        let mut rest = scans;
        while !rest.is_empty() {
            let group = self.begin_scans(queue, direction, rest)?;
            let (scans, behind) = rest.split_at(group.count);
            self.finish_scans(queue, (direction, scans), &group, pairs)?;
            rest = behind;
        }
        Ok(())
    }

    /// What the scans to come READ of each leaf.
    pub(super) fn scan_for(&mut self, extent: Extent) {
        self.extent = extent;
    }

    /// Lines that they READ of it.
    #[inline(always)]
    fn scan_lines(&self) -> usize {
        self.cache.reader().lines_of(self.extent)
    }

    /// Plans as many of `scans`, of which there is at least one, as go out together, and rings for their
    /// leaves.
    pub(super) fn begin_scans<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        direction: Direction,
        scans: &[ScanRequest],
    ) -> Result<Group, XStoreError> {
        const { assert!(keys_together::<Q>() > 2 * GROUP_MAX, "each scan of a group has slots") };
        let (count, slots) = group::<Q>(scans);
        self.pin();
        let mut planned = [0; GROUP_MAX];
        if self.access == Access::OneSided {
            self.leaves.resize(keys_together::<Q>(), LeafNumber::NONE);
            self.prefetch_plans(&scans[..count]);
            plan::begin_leaves(queue)?;
            for (index, scan) in scans[..count].iter().enumerate() {
                planned[index] = self.plan(queue, (index * slots, slots), direction, *scan);
            }
            self.ring_for_leaves(queue, planned[..count].iter().sum())?;
        }
        Ok(Group { count, slots, planned })
    }

    /// Waits for the leaves of a group that was begun with these scans, and appends their pairs.
    pub(super) fn finish_scans<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        (direction, scans): (Direction, &[ScanRequest]),
        group: &Group,
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        for (index, scan) in scans.iter().enumerate() {
            let window = Window::begun(index * group.slots, group.slots, group.planned[index]);
            self.finish_scan(queue, Progress::new(direction, *scan, window), pairs)?;
            pairs.end_scan();
        }
        // What a scan did not need after all is not left under way.
        queue.drain()?;
        if !self.refreshes.is_idle() {
            self.renew_model(queue, 0)?;
        }
        self.counters.scans += scans.len() as u64;
        Ok(())
    }

    /// Asks for the sub-models that planning a group reads, so that no scan waits for the one before.
    fn prefetch_plans(&self, group: &[ScanRequest]) {
        let Some(model) = &self.model else { return };
        for scan in group {
            let mut place = model.place(model.top().dispatch(scan.from));
            if !place.is_sub_model() {
                place = model.locate(scan.from).place;
            }
            model.prefetch(if place.is_nowhere() { model.place_before(scan.from) } else { place });
        }
    }

    /// Accepts the leaves planned, then goes on one plan or page at a time until limit or end.
    fn finish_scan<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        mut progress: Progress,
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        loop {
            self.take_window(queue, &mut progress, pairs)?;
            if progress.is_done() {
                return Ok(());
            }
            let may_read = progress.fruitless < READS_MAX && progress.may_read();
            let one_sided = self.access == Access::OneSided && may_read;
            if !(one_sided && self.plan_anew(queue, &mut progress)?) {
                let wanted = progress.cursor.remaining;
                self.page_by_call(queue, progress.direction, &mut progress.cursor, pairs)?;
                progress.note_page(wanted - progress.cursor.remaining, self.cache.region_leaves())?;
                if pairs.bytes_left() == 0 && !progress.is_done() {
                    pairs.cut();
                    return Ok(());
                }
            }
        }
    }

    /// Lets the server answer one page: takes its pairs, and the cursor that it says.
    fn page_by_call<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        direction: Direction,
        cursor: &mut Cursor,
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        if self.access == Access::OneSided {
            self.counters.fallbacks += 1;
        }
        let limit = cursor.remaining.min(PAGE);
        let (table, value_bytes) = (self.cache.table().id, self.cache.reader().value_bytes());
        let request = if self.by_values { Request::scan_values } else { Request::scan };
        request(&mut self.request, table, direction, cursor.key, limit as u16);
        let reply = call(queue, &self.request, &mut self.reply)?;
        let words = reply.words()?;
        let mut sent = if self.by_values {
            PairsReader::of_any_length(words)
        } else {
            PairsReader::new(words, value_bytes)
        };
        let (next, announced) = (direction.goes_on_at(reply.argument), reply.count);
        let (mut last, mut elsewhere) = (None, None);
        let mut received = 0;
        while let Some((key, version, value)) = sent.pair_or_elsewhere()? {
            let is_behind =
                last.map_or(!direction.is_behind(cursor.key, key), |last| direction.is_behind(key, last));
            if cursor.remaining == 0 || !is_behind {
                let got = format!("key {key} after {last:?} from {}", cursor.key);
                let expected = "keys in the scan's order, within it".into();
                return Err(DecodeError::new("a scan's page", 0, expected, got).into());
            }
            if let Some(before) = elsewhere {
                let (expected, got) = (format!("no pair behind key {before}"), format!("key {key}"));
                return Err(DecodeError::new("a scan's page", 0, expected, got).into());
            }
            match value {
                Some(value) => {
                    let value = if self.extent == Extent::Keys { &[] } else { value };
                    pairs.push(Pair { key, version, value });
                    cursor.remaining -= 1;
                }
                // No reply carries it. It ends the page.
                None => elsewhere = Some(key),
            }
            last = Some(key);
            received += 1;
        }
        // A page that ends early, between two pairs, would look like the table's end.
        if received != announced {
            let (expected, got) = (format!("{announced} pairs"), format!("{received} pairs"));
            return Err(DecodeError::new("a scan's page", 4, expected, got).into());
        }
        cursor.leaf = None;
        let before = last.unwrap_or(cursor.key);
        match next {
            None => cursor.at_end = true,
            Some(next) if direction.is_behind(next, before) => cursor.key = next,
            Some(next) => {
                let expected = format!("a cursor behind {before}, {direction:?}");
                return Err(DecodeError::new("a scan's page", 8, expected, next.to_string()).into());
            }
        }
        match elsewhere {
            Some(key) => self.fetch_pair(queue, key, cursor, pairs),
            None => Ok(()),
        }
    }

    /// Appends a pair whose value no reply carries. One that was removed meanwhile is left out.
    fn fetch_pair<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        cursor: &mut Cursor,
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        let mut value = std::mem::take(&mut self.fetched);
        let version = self.fetch_value(queue, key, &mut value)?;
        if let Some(version) = version {
            pairs.push(Pair { key, version, value: &value });
            cursor.remaining -= 1;
        }
        clear_kept(&mut value);
        self.fetched = value;
        Ok(())
    }

    /// Fetches what routes `key`: its sub-model, or those beside it as well, or the whole generation.
    fn fetch_route<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        wanted: SubModelsWanted,
    ) -> Result<(), XStoreError> {
        let Some(model) = self.model.clone() else { return self.fetch_generation(queue, 1) };
        Request::sub_models(&mut self.request, self.cache.table().id, key, wanted, model.generation());
        let reply = call(queue, &self.request, &mut self.reply)?;
        if reply.argument != model.generation() {
            let newer = reply.argument;
            return self.fetch_generation(queue, newer);
        }
        let mut words = reply.words()?;
        words.take_last("the key behind sub-models")?;
        let mut sent = ModelReader::new(words);
        while let Some(part) = sent.read()? {
            self.cache.install_part(&model, &part)?;
            self.counters.sub_models_fetched += 1;
        }
        Ok(())
    }
}

/// Leaves that a scan of `limit` pairs should need: the first and the last are met in part.
fn leaves_wanted(limit: usize) -> usize {
    (1 + limit.div_ceil(PAIRS_EXPECTED)) * usize::from(limit > 0)
}

/// Leaves that should hold `limit` pairs from a key on that stands behind `part_before` 256ths of its leaf:
/// the first alone, or as many as [`leaves_wanted`] says.
fn leaves_from(direction: Direction, part_before: u32, limit: usize) -> usize {
    let part_passed = match direction {
        Direction::Ascending => part_before,
        Direction::Descending => 256_u32.saturating_sub(part_before),
    };
    let pairs_passed = part_passed as usize * PAIRS_EXPECTED / 256;
    // A limit may be any number.
    let pairs = limit.saturating_add(pairs_passed + PAIRS_SPARE);
    if pairs <= PAIRS_EXPECTED { 1 } else { leaves_wanted(limit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_of_any_limit_wants_as_many_leaves_as_that_takes() {
        assert_eq!([0, 1, 12, 13, 5_000].map(leaves_wanted), [0, 2, 2, 3, 418]);
        for limit in [usize::MAX, usize::MAX - PAIRS_SPARE, usize::MAX - PAIRS_EXPECTED] {
            assert!(leaves_wanted(limit) > usize::MAX / 16);
            for part_before in 0..=256 {
                for way in Direction::ALL {
                    assert_eq!(leaves_from(way, part_before, limit), leaves_wanted(limit), "{limit}");
                }
            }
        }
        let leaves = |way| [0, 128, 256].map(|part_before| leaves_from(way, part_before, 4));
        assert_eq!(leaves(Direction::Ascending), [1, 1, 2]);
        assert_eq!(leaves(Direction::Descending), [2, 1, 1]);
    }
}
