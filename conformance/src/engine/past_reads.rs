//! A queue pair whose READs return the worst that the fabric's contract allows.
//!
//! The contract (`ReadMode::Stamped`): a copy of a line with an even version is a snapshot of that line at an
//! instant of the READ. Lines of one READ may be of different instants, in any order. A line that changed
//! meanwhile comes back odd, with any mixture of its words. A real race shows few of these, and rarely.
//!
//! So the test records the region's leaves after each write (the *history*), and [`PastQueue`] answers READs
//! from it. A window of the history is the time of the operation. The queue takes each line from a moment of
//! its own, between the newest that an earlier batch returned and the present. Some lines come back odd,
//! their words mixed from two moments. Calls go to the server, which is at the window's end. An operation on
//! such a queue pair must answer what was true at some moment of its window.

use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::{Line, RegionId, RemoteAddress};
use farsight_fabric::{FabricError, Guarantees, Meters, QueuePair, ReadMode, Slot};
use farsight_fabric_shm::ShmQueue;

/// The region's first lines at each moment.
#[derive(Default)]
pub struct History {
    moments: Vec<Vec<Line>>,
    /// Once there is one.
    region: Option<RegionId>,
}

impl History {
    /// Moments recorded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.moments.len()
    }

    /// True before the first.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.moments.is_empty()
    }

    /// Records the present: the first `lines` lines of `region`. Nobody may be writing.
    ///
    /// # Panics
    /// If a READ fails.
    pub fn record(&mut self, queue: &mut ShmQueue, region: RegionId, lines: usize) {
        let mut moment = vec![Line::ZERO; lines];
        for (index, piece) in moment.chunks_mut(64).enumerate() {
            let from = RemoteAddress { region, offset_bytes: (index * 64 * 64) as u64 };
            queue.post_read(0, from, piece.len(), ReadMode::Plain);
            queue.doorbell().expect("a doorbell");
            queue.take_read(0, piece).expect("a READ");
        }
        self.moments.push(moment);
        self.region = Some(region);
    }

    /// Forgets all but the last `count` moments.
    pub fn keep_last(&mut self, count: usize) {
        let gone = self.moments.len().saturating_sub(count);
        self.moments.drain(..gone);
    }
}

/// What stands in a slot.
#[derive(Clone, Copy)]
enum Posted {
    /// Nothing, or a call of the queue pair below.
    Other,
    Read {
        first_line: usize,
        count: usize,
        rung: bool,
    },
}

/// A queue pair that reads the past.
pub struct PastQueue<'a> {
    below: &'a mut ShmQueue,
    history: &'a History,
    random: SplitMix64,
    posted: Vec<Posted>,
    /// No line of this batch is older.
    earliest: usize,
    /// The newest moment returned so far.
    newest: usize,
    odd_lines: u64,
}

impl<'a> PastQueue<'a> {
    /// A queue pair for one operation that began `window` moments before the present.
    ///
    /// # Panics
    /// If the history is shorter.
    #[must_use]
    pub fn new(below: &'a mut ShmQueue, history: &'a History, window: usize, random: SplitMix64) -> Self {
        assert!(window < history.len(), "a window of {window} in a history of {}", history.len());
        let earliest = history.len() - 1 - window;
        let posted = vec![Posted::Other; ShmQueue::SLOTS];
        Self { below, history, random, posted, earliest, newest: earliest, odd_lines: 0 }
    }

    /// Lines that came back odd.
    #[must_use]
    pub fn odd_lines(&self) -> u64 {
        self.odd_lines
    }

    fn copy_line(&mut self, line: usize, into: &mut Line) {
        let last = self.history.len() - 1;
        let moment = self.earliest + self.random.below((last - self.earliest + 1) as u64) as usize;
        self.newest = self.newest.max(moment);
        let seen = self.history.moments[moment][line];
        *into = seen;
        let later = moment + self.random.below((last - moment + 1) as u64) as usize;
        let changed = self.history.moments[later][line];
        if changed.0 != seen.0 && self.random.below(4) == 0 {
            self.newest = self.newest.max(later);
            for (word, changed) in into.0.iter_mut().zip(changed.0) {
                if self.random.below(2) == 0 {
                    *word = changed;
                }
            }
            into.0[0] |= 1;
            self.odd_lines += 1;
        }
    }
}

impl QueuePair for PastQueue<'_> {
    const SLOTS: usize = ShmQueue::SLOTS;
    const MESSAGE_BYTES_MAX: usize = ShmQueue::MESSAGE_BYTES_MAX;
    const GUARANTEES: Guarantees = ShmQueue::GUARANTEES;

    fn peer(&self) -> &str {
        self.below.peer()
    }

    fn now(&self) -> MonotonicNs {
        self.below.now()
    }

    fn attach(&mut self, region: RegionId) -> Result<u64, FabricError> {
        self.below.attach(region)
    }

    fn detach(&mut self, region: RegionId) {
        self.below.detach(region);
    }

    fn notice(&self) -> u64 {
        self.below.notice()
    }

    fn post_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize, mode: ReadMode) {
        if self.history.region != Some(from.region) {
            // Published models: whatever stands there is a hint.
            assert_eq!(mode, ReadMode::Plain, "only leaves have stamps");
            self.posted[slot] = Posted::Other;
            return self.below.post_read(slot, from, line_count, mode);
        }
        assert_eq!(mode, ReadMode::Stamped, "an engine's READs of leaves are stamped");
        let first_line = (from.offset_bytes / 64) as usize;
        self.posted[slot] = Posted::Read { first_line, count: line_count, rung: false };
    }

    fn post_write(&mut self, _slot: Slot, to: RemoteAddress, _words: &[u64]) {
        panic!("a reader's WRITE at {to:?}");
    }

    fn post_compare_swap(&mut self, _slot: Slot, at: RemoteAddress, _expected: u64, _new: u64) {
        panic!("a reader's compare-and-swap at {at:?}");
    }

    fn post_fetch_add(&mut self, _slot: Slot, at: RemoteAddress, _delta: u64) {
        panic!("a reader's fetch-and-add at {at:?}");
    }

    fn post_call(&mut self, slot: Slot, request: &[u8]) -> Result<(), FabricError> {
        self.posted[slot] = Posted::Other;
        self.below.post_call(slot, request)
    }

    fn doorbell(&mut self) -> Result<(), FabricError> {
        // What this batch reads comes after all that was taken before it was rung.
        self.earliest = self.newest;
        for posted in &mut self.posted {
            if let Posted::Read { rung, .. } = posted {
                *rung = true;
            }
        }
        self.below.doorbell()
    }

    fn poll(&mut self) -> Result<usize, FabricError> {
        self.below.poll()
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), FabricError> {
        // Rung READs are complete.
        let reads = self.posted.iter().any(|posted| matches!(posted, Posted::Read { rung: true, .. }));
        if reads { Ok(()) } else { self.below.wait(timeout) }
    }

    fn drain(&mut self) -> Result<(), FabricError> {
        self.below.drain()
    }

    fn is_complete(&self, slot: Slot) -> bool {
        match self.posted[slot] {
            Posted::Other => self.below.is_complete(slot),
            Posted::Read { rung, .. } => rung,
        }
    }

    fn take_read(&mut self, slot: Slot, into: &mut [Line]) -> Result<(), FabricError> {
        let (first_line, count) = match self.posted[slot] {
            Posted::Other => return self.below.take_read(slot, into),
            Posted::Read { first_line, count, rung: true } => (first_line, count),
            Posted::Read { .. } => panic!("the READ in slot {slot} is not complete"),
        };
        assert_eq!(count, into.len(), "lines of the READ in slot {slot}");
        self.posted[slot] = Posted::Other;
        for (index, line) in into.iter_mut().enumerate() {
            self.copy_line(first_line + index, line);
        }
        Ok(())
    }

    fn take_word(&mut self, slot: Slot) -> Result<u64, FabricError> {
        self.below.take_word(slot)
    }

    fn take_reply(&mut self, slot: Slot, into: &mut Vec<u8>) -> Result<(), FabricError> {
        // The server answered in the present; what is read next is not older.
        self.newest = self.history.len() - 1;
        self.below.take_reply(slot, into)
    }

    fn meters(&self) -> Meters {
        self.below.meters()
    }
}
