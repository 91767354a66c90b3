//! What a server's processor stores into its regions, between which ordering points.
//!
//! Invariant: two stores of the log may become visible in either order if no fence separates them and the
//! later one is no Release store. A store of one word never overtakes an earlier one of the same word.
//!
//! Protocol: writers tell of opening and closing a line (`farsight_base::observe`). At each of these moments
//! all open lines are compared with what they held at the last one: what differs was stored in between. So
//! bodies need no hook of their own, and their stores are attributed exactly: nothing orders them within
//! such an interval.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use farsight_base::observe::{WriteObserver, observe_writes};
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{Stamp, WORDS_PER_LINE};
use farsight_fabric::Region as _;

use crate::region::SimRegion;

/// A region, by its node's number and its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RegionPlace {
    pub(crate) host: usize,
    pub(crate) region: usize,
}

/// One entry of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A word was stored that held `old` before.
    Store { place: RegionPlace, word: usize, old: u64, is_release: bool },
    /// A Release fence.
    Fence,
}

struct OpenLine {
    place: RegionPlace,
    region: Arc<SimRegion>,
    first: usize,
    seen: [u64; WORDS_PER_LINE],
}

struct WatchedRegion {
    place: RegionPlace,
    /// Where its words lie, to find it by.
    addresses: Range<usize>,
    region: Weak<SimRegion>,
}

#[derive(Default)]
struct Watcher {
    regions: RefCell<Vec<WatchedRegion>>,
    open: RefCell<Vec<OpenLine>>,
    steps: RefCell<Vec<Step>>,
}

thread_local! {
    static WATCHER: Rc<Watcher> = Rc::new(Watcher::default());
}

/// Begins to watch this thread for a new simulation: whatever was watched before is forgotten.
pub(crate) fn begin() {
    WATCHER.with(|watcher| {
        end();
        observe_writes(Some(Rc::clone(watcher) as Rc<dyn WriteObserver>));
    });
}

/// Ends watching this thread.
pub(crate) fn end() {
    observe_writes(None);
    WATCHER.with(|watcher| {
        watcher.regions.borrow_mut().clear();
        watcher.open.borrow_mut().clear();
        watcher.steps.borrow_mut().clear();
    });
}

/// Watches a region.
pub(crate) fn add(place: RegionPlace, region: &Arc<SimRegion>) {
    let words = region.words().as_ptr_range();
    let addresses = words.start.addr()..words.end.addr();
    let watched = WatchedRegion { place, addresses, region: Arc::downgrade(region) };
    WATCHER.with(|watcher| {
        let mut regions = watcher.regions.borrow_mut();
        regions.retain(|own| own.region.strong_count() > 0);
        regions.push(watched);
    });
}

/// Moves what was logged since the last time into `into`.
pub(crate) fn take(into: &mut Vec<Step>) {
    WATCHER.with(|watcher| into.append(&mut watcher.steps.borrow_mut()));
}

impl Watcher {
    /// The region that `line` lies in, and where: in words.
    fn locate(&self, line: &[AtomicU64]) -> Option<(RegionPlace, Arc<SimRegion>, usize)> {
        let address = line.as_ptr().addr();
        let regions = self.regions.borrow();
        // Memory of a region that is gone may be another's now.
        regions.iter().filter(|own| own.addresses.contains(&address)).find_map(|own| {
            let region = own.region.upgrade()?;
            Some((own.place, region, (address - own.addresses.start) / size_of::<AtomicU64>()))
        })
    }

    /// Logs what changed in open lines.
    fn collect_bodies(&self) {
        let mut steps = self.steps.borrow_mut();
        for line in self.open.borrow_mut().iter_mut() {
            let words = &line.region.words()[line.first..line.first + WORDS_PER_LINE];
            for (index, (seen, word)) in line.seen.iter_mut().zip(words).enumerate() {
                // Relaxed: the words were stored by this thread.
                let new = word.load(Ordering::Relaxed);
                if new != *seen {
                    let word = line.first + index;
                    steps.push(Step::Store { place: line.place, word, old: *seen, is_release: false });
                    *seen = new;
                }
            }
        }
    }

    fn push(&self, step: Step) {
        self.steps.borrow_mut().push(step);
    }
}

impl WriteObserver for Watcher {
    fn opened(&self, line: &[AtomicU64], before: Stamp) {
        let Some((place, region, first)) = self.locate(line) else { return };
        self.collect_bodies();
        self.push(Step::Store { place, word: first, old: before.0, is_release: false });
        self.push(Step::Fence);
        let seen = std::array::from_fn(|index| line[index].load(Ordering::Relaxed));
        self.open.borrow_mut().push(OpenLine { place, region, first, seen });
    }

    fn closing(&self, line: &[AtomicU64], _after: Stamp) {
        let Some((place, _, first)) = self.locate(line) else { return };
        self.collect_bodies();
        let old = line[0].load(Ordering::Relaxed);
        self.push(Step::Store { place, word: first, old, is_release: true });
        self.open.borrow_mut().retain(|open| (open.place, open.first) != (place, first));
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::RegionId;
    use farsight_base::words::{begin_write, end_write};
    use farsight_fabric::RegionRights;

    use super::*;

    #[test]
    fn stores_are_logged_with_what_orders_them() {
        let region = Arc::new(SimRegion::new(RegionId(0), 128, RegionRights::ReadOnly, 0));
        let place = RegionPlace { host: 0, region: 0 };
        begin();
        add(place, &region);
        let (left, right) = region.words().split_at(WORDS_PER_LINE);
        let stamps = [begin_write(left), begin_write(right)];
        left[3].store(5, Ordering::Relaxed);
        right[7].store(6, Ordering::Relaxed);
        end_write(left, stamps[0]);
        end_write(right, stamps[1]);
        let mut steps = Vec::new();
        take(&mut steps);
        end();
        let store = |word, old, is_release| Step::Store { place, word, old, is_release };
        let opened = [store(0, 0, false), Step::Fence, store(8, 0, false), Step::Fence];
        let bodies = [store(3, 0, false), store(15, 0, false)];
        let closed = [store(0, 1, true), store(8, 1, true)];
        assert_eq!(steps, [&opened[..], &bodies, &closed].concat());
    }
}
