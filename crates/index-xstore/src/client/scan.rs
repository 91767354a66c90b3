//! SCANs: whole leaves in doorbell batches, in key order.
//!
//! A scan has a *cursor*, the least key not yet answered for. A leaf is accepted only if its lines are of one
//! incarnation and the cursor lies within its fences. Then everything between cursor and high fence is known,
//! and the high fence is the next cursor. So nothing is skipped and nothing doubled, whatever splits
//! meanwhile. Each pair was there at an instant of the scan. Pairs of different leaves may be of different
//! instants.
//!
//! Steps:
//! 1. Prefetch the sub-models of a group of scans.
//! 2. *Plan* as many leaves as each limit should need.
//! 3. READ them in one doorbell, for the group at once.
//! 4. *Accept* them in order.
//!
//! A planned leaf that the cursor is not in (stale table) ends the plan. The scan steps to the sibling and
//! plans anew. After [`READS_MAX`] fruitless steps it lets the server answer a page.

use farsight_base::{LeafNumber, Line};
use farsight_fabric::{CostClass, QueuePair, ReadMode, Slot};
use farsight_index::{Access, Pair, Pairs, ScanRequest};
use farsight_protocol::{DecodeError, PairsReader, Request, SubModelsReader};

use super::fill::call;
use super::leaf::{self, LeafReader};
use super::{READS_MAX, XClient, XStoreError};

/// Scans whose leaves go out in one doorbell, of any length. Where a round trip is dear, short ones go out as
/// many at a time as there are slots for.
const GROUP: usize = 8;
const GROUP_MAX: usize = 64;
/// Leaves planned for one scan at a time.
const PLAN_MAX: usize = 31;
/// Slots of a group: one a leaf.
pub(super) const SCAN_SLOTS: usize = GROUP * PLAN_MAX;
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
    /// The leaf that begins at `key`, if the leaf before named it.
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
    if !matches!(Q::GUARANTEES.cost_class, CostClass::Socket) {
        return (GROUP.min(scans.len()), PLAN_MAX);
    }
    let (mut count, mut slots) = (0, 1);
    for scan in &scans[..GROUP_MAX.min(scans.len())] {
        let wanted = slots.max(leaves_wanted(scan.limit) as usize);
        if (count + 1) * wanted > SCAN_SLOTS {
            break;
        }
        (count, slots) = (count + 1, wanted);
    }
    (count, slots)
}

/// What a leaf gave to a scan.
enum Step {
    /// Pairs (or none), and the cursor moved behind the leaf or the limit was reached.
    Accepted,
    /// The leaf ends before the cursor; this is its sibling.
    Behind(LeafNumber),
    /// The lines changed under the READ.
    Changing,
    /// The leaf begins after the cursor, or is none.
    Elsewhere,
}

impl XClient {
    /// The pairs of each of `scans`, in key order, scan after scan.
    ///
    /// # Errors
    /// [`XStoreError`]; then `pairs` means nothing.
    pub fn scan_batch<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        pairs.reset(self.cache.reader().value_bytes());
        let mut rest = scans;
        while !rest.is_empty() {
            let group = self.begin_scans(queue, rest)?;
            let (scans, behind) = rest.split_at(group.count);
            self.finish_scans(queue, scans, &group, pairs)?;
            rest = behind;
        }
        Ok(())
    }

    /// Plans as many of `scans`, of which there is at least one, as go out together, and rings for their
    /// leaves.
    pub(super) fn begin_scans<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        scans: &[ScanRequest],
    ) -> Result<Group, XStoreError> {
        const { assert!(Q::SLOTS > SCAN_SLOTS, "slots for a group's leaves, and one for calls") };
        let (count, slots) = group::<Q>(scans);
        self.pin();
        let mut planned = [0; GROUP_MAX];
        if self.access == Access::OneSided {
            self.prefetch_plans(&scans[..count]);
            for (index, scan) in scans[..count].iter().enumerate() {
                planned[index] = self.plan(queue, index * slots, scan.from, scan.limit);
            }
            queue.doorbell()?;
        }
        Ok(Group { count, slots, planned })
    }

    /// Waits for the leaves of a group that was begun with these scans, and appends their pairs.
    pub(super) fn finish_scans<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        scans: &[ScanRequest],
        group: &Group,
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        if self.access == Access::OneSided {
            queue.settle()?;
        }
        for (index, scan) in scans.iter().enumerate() {
            self.finish_scan(queue, index * group.slots, *scan, group.planned[index], pairs)?;
            pairs.end_scan();
        }
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
            let place = model.place(model.top().dispatch(scan.from));
            model.prefetch(if place.is_nowhere() { model.place_before(scan.from) } else { place });
        }
    }

    /// Posts the READs of the leaves that `limit` pairs from `key` on should need, from slot `first_slot` on.
    /// Returns how many; zero without a route. A later plan of the same scan needs no more slots.
    fn plan<Q: QueuePair>(&mut self, queue: &mut Q, first_slot: Slot, key: u64, limit: usize) -> usize {
        let Some(model) = &self.model else { return 0 };
        let Some(route) = model.route(key) else { return 0 };
        if !model.is_newest(route.generation) {
            self.refreshes.count_unfetched(model, model.top().dispatch(key));
        }
        let (region, reader) = (self.cache.region(), self.cache.reader());
        // From the first candidate: on a tie one leaf more is read, and skipped if it ends before the cursor.
        let mut wanted = leaves_wanted(limit);
        if matches!(Q::GUARANTEES.cost_class, CostClass::Socket) && route.first == route.last {
            wanted = wanted.min(leaves_from(route.sub_model.part_before(route.last, key), limit));
        }
        let mut count = 0;
        for leaf in route.leaves().take(wanted as usize) {
            reader.post(queue, first_slot + count, region, leaf);
            count += 1;
        }
        count
    }

    /// Accepts the leaves planned, then goes on one plan or page at a time until limit or end.
    fn finish_scan<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        first_slot: Slot,
        scan: ScanRequest,
        mut planned: usize,
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        let mut cursor = Cursor { key: scan.from, remaining: scan.limit, leaf: None, at_end: false };
        let mut fruitless = 0;
        while cursor.remaining > 0 && !cursor.at_end {
            let before = cursor;
            self.accept_planned(queue, first_slot, planned, &mut cursor, pairs)?;
            if cursor.remaining == 0 || cursor.at_end {
                break;
            }
            fruitless = if cursor.key > before.key { 0 } else { fruitless + 1 };
            let one_sided = self.access == Access::OneSided && fruitless <= READS_MAX;
            planned = if one_sided { self.plan_from_cursor(queue, first_slot, &mut cursor)? } else { 0 };
            if planned == 0 {
                self.page_by_call(queue, &mut cursor, pairs)?;
            }
        }
        Ok(())
    }

    /// Plans from the cursor: its known leaf alone, or by the model; fetches the sub-model that is missing.
    /// Zero: the server has no model for this key.
    fn plan_from_cursor<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        first_slot: Slot,
        cursor: &mut Cursor,
    ) -> Result<usize, XStoreError> {
        if let Some(leaf) = cursor.leaf.take().filter(|leaf| self.cache.is_leaf(*leaf)) {
            self.counters.sibling_steps += 1;
            let reader = self.cache.reader();
            let from = reader.address(self.cache.region(), leaf);
            queue.post_read(first_slot, from, reader.leaf_lines(), ReadMode::Stamped);
            queue.doorbell()?;
            queue.settle()?;
            return Ok(1);
        }
        let mut planned = self.plan(queue, first_slot, cursor.key, cursor.remaining);
        if planned == 0 {
            self.fetch_route(queue, cursor.key)?;
            planned = self.plan(queue, first_slot, cursor.key, cursor.remaining);
        }
        queue.doorbell()?;
        queue.settle()?;
        Ok(planned)
    }

    /// Takes the leaves planned in order, as long as the cursor lies in them.
    fn accept_planned<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        first_slot: Slot,
        planned: usize,
        cursor: &mut Cursor,
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        let reader = *self.cache.reader();
        for index in 0..planned {
            if cursor.remaining == 0 || cursor.at_end {
                return Ok(());
            }
            let (slot, lines) = (first_slot + index, &mut *self.scratch.leaf_lines);
            leaf::take(queue, slot, lines)?;
            match accept(&reader, lines, cursor, pairs) {
                Step::Behind(next) if index + 1 == planned => {
                    cursor.leaf = next.some();
                    self.note_stale(cursor.key);
                }
                Step::Accepted | Step::Behind(_) => {}
                Step::Changing => {
                    self.counters.retries += 1;
                    return Ok(());
                }
                // A split put a leaf between this one and the one before: its left neighbour named it.
                Step::Elsewhere => {
                    self.note_stale(cursor.key);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// After a plan that did not lead to the leaf of `key`.
    #[cold]
    fn note_stale(&mut self, key: u64) {
        if let Some(model) = self.model.as_deref() {
            self.refreshes.follow(model);
            self.refreshes.count_walk(model.top().dispatch(key));
        }
    }

    /// Lets the server answer one page.
    fn page_by_call<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        cursor: &mut Cursor,
        pairs: &mut Pairs,
    ) -> Result<(), XStoreError> {
        if self.access == Access::OneSided {
            self.counters.fallbacks += 1;
        }
        let limit = cursor.remaining.min(PAGE);
        Request::scan(&mut self.request, self.cache.table().id, cursor.key, limit as u16);
        let reply = call(queue, &self.request, &mut self.reply)?;
        let mut sent = PairsReader::new(reply.words()?, self.cache.reader().value_bytes());
        let (more, announced) = (reply.argument == 1, reply.count);
        let mut last = None;
        let mut received = 0;
        while let Some(pair) = sent.pair()? {
            if cursor.remaining == 0 || pair.key < cursor.key || last.is_some_and(|last| pair.key <= last) {
                let got = format!("key {} after {last:?} from {}", pair.key, cursor.key);
                let expected = "ascending keys within the scan".into();
                return Err(DecodeError::new("a scan's page", 0, expected, got).into());
            }
            pairs.push(Pair { key: pair.key, version: pair.version, value: pair.value });
            last = Some(pair.key);
            cursor.remaining -= 1;
            received += 1;
        }
        // A page that ends early, between two pairs, would look like the table's end.
        if received != announced {
            let (expected, got) = (format!("{announced} pairs"), format!("{received} pairs"));
            return Err(DecodeError::new("a scan's page", 4, expected, got).into());
        }
        cursor.leaf = None;
        match last.and_then(|last| last.checked_add(1)) {
            Some(next) if more => cursor.key = next,
            _ => cursor.at_end = true,
        }
        Ok(())
    }

    /// Fetches what routes `key`: the sub-model, or the whole generation.
    fn fetch_route<Q: QueuePair>(&mut self, queue: &mut Q, key: u64) -> Result<(), XStoreError> {
        let Some(model) = self.model.clone() else { return self.fetch_generation(queue, 1) };
        let index = model.top().dispatch(key);
        Request::sub_models(&mut self.request, self.cache.table().id, index, 1, model.generation());
        let reply = call(queue, &self.request, &mut self.reply)?;
        if reply.argument != model.generation() {
            let newer = reply.argument;
            return self.fetch_generation(queue, newer);
        }
        let mut sent = SubModelsReader::new(reply.words()?);
        while let Some(sub_model) = sent.sub_model()? {
            self.cache.install_sub_model(&model, &sub_model)?;
            self.counters.sub_models_fetched += 1;
        }
        Ok(())
    }
}

/// Leaves that a scan of `limit` pairs should need: the first and the last are met in part.
fn leaves_wanted(limit: usize) -> u32 {
    ((1 + limit.div_ceil(PAIRS_EXPECTED)).min(PLAN_MAX) * usize::from(limit > 0)) as u32
}

/// Leaves that should hold `limit` pairs from a key on that stands behind `part_before` 256ths of its leaf:
/// the first alone, or as many as [`leaves_wanted`] says.
fn leaves_from(part_before: u32, limit: usize) -> u32 {
    let pairs_before = part_before as usize * PAIRS_EXPECTED / 256;
    // A limit may be any number.
    let pairs = limit.saturating_add(pairs_before + PAIRS_SPARE);
    if pairs <= PAIRS_EXPECTED { 1 } else { leaves_wanted(limit) }
}

/// Appends the pairs of one leaf from the cursor on.
fn accept(reader: &LeafReader, lines: &[Line], cursor: &mut Cursor, pairs: &mut Pairs) -> Step {
    let view = leaf::key_part(lines);
    let Some(incarnation) = view.incarnation() else { return Step::Changing };
    let Some(fences) = view.fences() else { return Step::Elsewhere };
    if cursor.key < fences.low {
        return Step::Elsewhere;
    }
    if !fences.contain(cursor.key) {
        return Step::Behind(view.next());
    }
    let leaf = reader.pairs(lines, incarnation);
    let Some(appended) = pairs.append_leaf(&leaf, cursor.key, cursor.remaining) else {
        return Step::Changing;
    };
    cursor.remaining -= appended;
    match fences.high {
        Some(high) => cursor.key = high,
        None => cursor.at_end = true,
    }
    cursor.leaf = view.next().some();
    Step::Accepted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_without_a_limit_wants_all_the_leaves_that_a_plan_has() {
        for limit in [usize::MAX, usize::MAX - PAIRS_SPARE, usize::MAX - PAIRS_EXPECTED] {
            assert_eq!(leaves_wanted(limit), PLAN_MAX as u32);
            for part_before in 0..=256 {
                assert_eq!(leaves_from(part_before, limit), PLAN_MAX as u32, "{limit}, {part_before}");
            }
        }
        assert_eq!([0, 128, 256].map(|part_before| leaves_from(part_before, 4)), [1, 1, 2]);
    }
}
