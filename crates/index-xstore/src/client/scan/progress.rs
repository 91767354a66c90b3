//! How far one scan is: its cursor, its window of leaves in flight, and what its leaves have given so far.
//!
//! Invariant: the window's leaves are in key order, each in a slot of the scan's own; the oldest is looked at
//! next. A window says nothing of keys: a leaf of it counts if its fences hold the cursor.

use farsight_base::LeafNumber;
use farsight_fabric::Slot;
use farsight_index::{Direction, ScanRequest};
use farsight_protocol::DecodeError;

use super::{Cursor, PAIRS_EXPECTED, PAIRS_SPARE};

/// How many times the leaves of one plan the next may have: what few leaves gave says little of many.
const GROWTH: usize = 4;
/// Leaves of the plan after one that led astray.
const PLAN_AFTER_MISLED: usize = 8;
/// Leaves that may give no pair, besides one for each pair found. The server gives empty leaves back.
const BARREN_MAX: usize = 64;
/// Pages that may give no pair, although more pairs are said to follow. Besides, one for so many leaves of
/// the region: half of what a server looks at for a page.
const BARREN_PAGES_MAX: usize = 64;
const LEAVES_PER_BARREN_PAGE: usize = 128;

/// A scan's leaves in flight: a ring of slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    first_slot: Slot,
    slots: usize,
    /// Where the oldest leaf stands among the slots.
    oldest: usize,
    in_flight: usize,
    /// Leaves passed since the last ones were posted, and those of them that were accepted.
    passed: usize,
    accepted: usize,
    /// Leaves of the next plan at most.
    plan_max: usize,
}

impl Window {
    /// An empty window of `slots` slots.
    pub(super) fn new(first_slot: Slot, slots: usize) -> Self {
        Self { first_slot, slots, oldest: 0, in_flight: 0, passed: 0, accepted: 0, plan_max: slots }
    }

    /// The window behind a first plan of `posted` leaves.
    pub(super) fn begun(first_slot: Slot, slots: usize, posted: usize) -> Self {
        let plan_max = if posted == 0 { slots } else { slots.min(posted * GROWTH) };
        Self { in_flight: posted, plan_max, ..Self::new(first_slot, slots) }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn is_empty(&self) -> bool {
        self.in_flight == 0
    }

    /// A place among the slots, which is less than twice their number.
    #[inline]
    fn wrapped(&self, place: usize) -> usize {
        // No division: it takes as long as all else that a leaf needs here.
        if place < self.slots { place } else { place - self.slots }
    }

    /// The slot so many leaves behind the oldest.
    #[inline]
    fn slot(&self, behind: usize) -> Slot {
        self.first_slot + self.wrapped(self.oldest + behind)
    }

    /// The slot of the leaf that is looked at next.
    #[inline]
    pub(super) fn oldest(&self) -> Slot {
        self.first_slot + self.oldest
    }

    /// The slots of the leaves in flight behind the oldest.
    pub(super) fn behind_oldest(&self) -> impl Iterator<Item = Slot> {
        (1..self.in_flight).map(|behind| self.slot(behind))
    }

    /// The slot of another leaf behind those in flight.
    #[inline]
    pub(super) fn push(&mut self) -> Slot {
        debug_assert!(self.in_flight < self.slots, "{self:?} is full");
        self.in_flight += 1;
        self.slot(self.in_flight - 1)
    }

    /// The oldest leaf was accepted.
    #[inline]
    pub(super) fn accept(&mut self) {
        self.accepted += 1;
        self.pass(1);
    }

    /// Passes over the `count` oldest leaves.
    #[inline]
    pub(super) fn pass(&mut self, count: usize) {
        self.oldest = self.wrapped(self.oldest + count);
        self.in_flight -= count;
        self.passed += count;
    }

    /// Drops the leaves in flight, to which the model led astray.
    pub(super) fn drop_rest(&mut self) {
        self.pass(self.in_flight);
        self.plan_max = PLAN_AFTER_MISLED.min(self.slots);
    }

    /// True if most of the leaves passed lately were accepted: the model knows the keys at hand.
    fn is_well_led(&self) -> bool {
        2 * self.accepted >= self.passed
    }

    fn begin(&mut self) {
        (self.passed, self.accepted) = (0, 0);
    }

    /// Leaves of a plan from the cursor on with nothing in flight, of which `wanted` are wanted.
    pub(super) fn next_plan(&mut self, wanted: usize) -> usize {
        if !self.is_well_led() {
            self.plan_max = PLAN_AFTER_MISLED.min(self.slots);
        }
        self.begin();
        let count = wanted.min(self.plan_max);
        self.plan_max = (self.plan_max * GROWTH).min(self.slots);
        count
    }

    /// How many leaves to post behind those in flight, of which `wanted` are wanted in all. None if most of
    /// those passed lately were not accepted. So a cursor that stands still brings no more leaves.
    pub(super) fn next_half(&mut self, wanted: usize) -> usize {
        if !self.is_well_led() {
            return 0;
        }
        self.begin();
        self.missing(wanted)
    }

    /// How many more leaves there are slots for, of `wanted` in all.
    pub(super) fn missing(&self, wanted: usize) -> usize {
        wanted.min(self.slots).saturating_sub(self.in_flight())
    }

    /// True if the leaf behind the oldest is not there, or is the one at which half of the slots are free.
    #[inline(always)]
    pub(super) fn pauses_behind_oldest(&self) -> bool {
        self.in_flight == 1 || self.in_flight == self.slots / 2 + 1
    }

    /// True at the leaf behind which half of the slots are free.
    pub(super) fn is_half_taken(&self) -> bool {
        self.in_flight() == self.slots / 2
    }
}

/// How far a scan is.
#[derive(Debug)]
pub(super) struct Progress {
    pub(super) direction: Direction,
    pub(super) cursor: Cursor,
    pub(super) window: Window,
    /// The leaf accepted last; none before the first, and behind a page.
    pub(super) last: LeafNumber,
    /// Leaves accepted from the fence on at which the scan came, and the pairs that they gave.
    leaves: usize,
    leaf_pairs: usize,
    /// Pairs found, and leaves and pages that gave none.
    found: usize,
    barren: usize,
    barren_pages: usize,
    /// READs in a row that did not move the cursor.
    pub(super) fruitless: usize,
}

impl Progress {
    pub(super) fn new(direction: Direction, scan: ScanRequest, window: Window) -> Self {
        Self {
            direction,
            cursor: Cursor { key: scan.from, remaining: scan.limit, leaf: None, at_end: false },
            window,
            last: LeafNumber::NONE,
            leaves: 0,
            leaf_pairs: 0,
            found: 0,
            barren: 0,
            barren_pages: 0,
            fruitless: 0,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.cursor.remaining == 0 || self.cursor.at_end
    }

    /// The cursor has moved behind `leaf`, which gave so many pairs.
    pub(super) fn note_leaf(&mut self, leaf: LeafNumber, pairs: usize) {
        // Of the first one a part was wanted.
        if self.last != LeafNumber::NONE {
            self.leaves += 1;
            self.leaf_pairs += pairs;
        }
        self.last = leaf;
        self.fruitless = 0;
        self.found += pairs;
        self.barren += usize::from(pairs == 0);
    }

    /// A page of so many pairs has moved the cursor, in a region of `region_leaves`.
    ///
    /// # Errors
    /// If too many of them gave no pair, and no end.
    pub(super) fn note_page(&mut self, pairs: usize, region_leaves: u32) -> Result<(), DecodeError> {
        self.last = LeafNumber::NONE;
        self.fruitless = 0;
        self.found += pairs;
        self.barren_pages += usize::from(pairs == 0 && !self.cursor.at_end);
        let most = BARREN_PAGES_MAX + region_leaves as usize / LEAVES_PER_BARREN_PAGE;
        if self.barren_pages <= most {
            return Ok(());
        }
        let expected = format!("a pair, or the table's end, in all but {most} pages");
        let got = format!("{} without, up to key {}", self.barren_pages, self.cursor.key);
        Err(DecodeError::new("a scan's pages", 0, expected, got))
    }

    /// False once so many leaves gave no pair that the server shall look for the next one.
    pub(super) fn may_read(&self) -> bool {
        self.barren <= BARREN_MAX.saturating_add(self.found)
    }

    /// Leaves that should hold the pairs that are still wanted, as full as those before, if the cursor is
    /// where a leaf begins.
    pub(super) fn leaves_wanted(&self) -> usize {
        let (leaves, pairs) =
            if self.leaves == 0 { (1, PAIRS_EXPECTED) } else { (self.leaves, self.leaf_pairs.max(1)) };
        // A limit may be any number.
        self.cursor.remaining.saturating_add(PAIRS_SPARE).saturating_mul(leaves).div_ceil(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(limit: usize) -> Progress {
        Progress::new(Direction::Ascending, ScanRequest { from: 7, limit }, Window::new(10, 8))
    }

    #[test]
    fn a_window_gives_its_slots_in_turns_and_grows_by_what_it_was() {
        let mut window = Window::begun(10, 8, 3);
        assert_eq!((window.in_flight(), window.oldest()), (3, 10));
        assert!(window.behind_oldest().eq([11, 12]));
        let slots: Vec<Slot> = (0..5).map(|_| window.push()).collect();
        assert_eq!((slots, window.missing(usize::MAX)), (vec![13, 14, 15, 16, 17], 0));
        (0..2).for_each(|_| window.accept());
        window.pass(2);
        assert!(window.is_half_taken());
        assert_eq!([5, 100].map(|wanted| window.missing(wanted)), [1, 4]);
        assert_eq!((window.next_half(100), window.push(), window.oldest()), (4, 10, 14));
        window.drop_rest();
        assert!(window.is_empty());
        assert_eq!([100, 100].map(|wanted| window.next_plan(wanted)), [8, 8]);
        let next_plan = |posted| Window::begun(0, 100, posted).next_plan(usize::MAX);
        assert_eq!([0, 3, 30].map(next_plan), [100, 12, 100]);
    }

    /// A scan whose cursor does not move posts nothing more behind what it has in flight.
    #[test]
    fn a_window_that_leads_astray_is_not_filled_again() {
        let mut window = Window::begun(0, 64, 64);
        window.accept();
        window.pass(31);
        assert!(window.is_half_taken());
        assert_eq!((window.missing(64), window.next_half(64)), (32, 0));
        window.pass(32);
        assert_eq!([1, 2, 3].map(|_| window.next_plan(64)), [8, 32, 64], "and the next plans are small");
    }

    #[test]
    fn what_leaves_gave_says_how_many_are_wanted() {
        let mut scan = progress(100);
        scan.note_leaf(LeafNumber(3), 1);
        assert_eq!(
            scan.leaves_wanted(),
            102_usize.div_ceil(PAIRS_EXPECTED),
            "of the first a part was wanted"
        );
        scan.note_leaf(LeafNumber(4), 2);
        scan.note_leaf(LeafNumber(5), 0);
        assert_eq!(scan.leaves_wanted(), 102);
        for limit in [usize::MAX, usize::MAX - 1, usize::MAX - PAIRS_SPARE] {
            let mut scan = progress(limit);
            assert!(scan.leaves_wanted() > usize::MAX / 16);
            for leaf in 0..5 {
                scan.note_leaf(LeafNumber(leaf), 16);
                assert!(scan.window.missing(scan.leaves_wanted()) == 8, "{limit}");
            }
        }
    }

    #[test]
    fn leaves_and_pages_without_pairs_have_a_bound() {
        let mut scan = progress(usize::MAX);
        (0..BARREN_MAX as u32).for_each(|leaf| scan.note_leaf(LeafNumber(leaf), 0));
        assert!(scan.may_read());
        scan.note_leaf(LeafNumber(1), 0);
        assert!(!scan.may_read());
        scan.note_page(1, 300).expect("a page with a pair");
        assert!(scan.may_read(), "a pair pays for a leaf");
        for _ in 0..BARREN_PAGES_MAX + 2 {
            scan.note_page(0, 300).expect("a page without");
        }
        let error = scan.note_page(0, 300).expect_err("no end").to_string();
        assert!(error.contains("67 without, up to key 7"), "{error}");
    }
}
