//! One queue pair's state: its slots, the open batch, and whether it is broken.
//!
//! Invariant: a slot holds the verb that was posted to it last; what comes back for an earlier one has an
//! older serial number and is dropped.

use farsight_base::{Line, RegionId};
use farsight_fabric::refusals::{Refusal, Refusals};
use farsight_fabric::{Meters, Parking, ReadMode, Slot};

/// Verbs that one batch holds.
pub(crate) const SLOTS: usize = 256;

/// Lines of the longest READ.
const READ_LINES_MAX: usize = 1 << 16;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    Nothing,
    Read(Read),
    /// A WRITE or an atomic.
    Word,
    Call,
    /// A verb on this region that goes nowhere. [`Refusal::Flushed`] also if it was under way when the queue,
    /// or the connection, broke.
    Refused(Refusal, RegionId),
}

/// A READ's lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Read {
    pub(crate) region: usize,
    pub(crate) first_line: usize,
    pub(crate) count: usize,
    pub(crate) mode: ReadMode,
    /// When its first line is taken at the earliest, all of them within so long, and what their moments are
    /// drawn from.
    pub(crate) start_ns: u64,
    pub(crate) within_ns: u64,
    pub(crate) seed: u64,
}

/// An atomic's word and what happens to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Atomic {
    pub(crate) region: usize,
    pub(crate) word: usize,
    pub(crate) operation: Operation,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    CompareSwap { expected: u64, new: u64 },
    FetchAdd { delta: u64 },
}

/// What is posted besides its slot's content.
#[derive(Debug)]
pub(crate) enum Verb {
    Read,
    Write { region: usize, first: usize, words: Vec<u64> },
    Atomic(Atomic),
    Call(Vec<u8>),
}

/// How far a slot's verb is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Posted,
    UnderWay,
    Complete,
}

pub(crate) struct SlotState {
    pub(crate) content: Content,
    pub(crate) phase: Phase,
    pub(crate) serial: u64,
    pub(crate) lines: Vec<Line>,
    pub(crate) word: u64,
    pub(crate) reply: Vec<u8>,
}

impl Default for SlotState {
    fn default() -> Self {
        Self {
            content: Content::Nothing,
            phase: Phase::Complete,
            serial: 0,
            lines: Vec::new(),
            word: 0,
            reply: Vec::new(),
        }
    }
}

/// A queue pair.
pub(crate) struct Pair {
    pub(crate) client: usize,
    /// The process that opened it, if it was one.
    pub(crate) opened_by: Option<usize>,
    pub(crate) port: Option<usize>,
    pub(crate) is_closed: bool,
    /// By region index: whether it is attached.
    pub(crate) attached: Vec<bool>,
    /// Up to the last one that was ever used.
    pub(crate) slots: Vec<SlotState>,
    /// The open batch, in posting order.
    pub(crate) posted: Vec<(Slot, u64, Verb)>,
    pub(crate) batch: u64,
    pub(crate) serials: u64,
    pub(crate) batch_meters: Meters,
    /// Slots of the open batch whose verbs go nowhere.
    pub(crate) refused: Vec<Slot>,
    pub(crate) meters: Meters,
    pub(crate) refusals: Refusals,
    /// Slots that became complete since the last poll.
    pub(crate) completed: usize,
    /// READs, WRITEs and atomics under way.
    pub(crate) verbs_under_way: usize,
    pub(crate) waiter: Option<(usize, u64)>,
    /// Until when earlier verbs of a kind execute, for what must not overtake them.
    pub(crate) read_until_ns: u64,
    pub(crate) write_until_ns: u64,
    pub(crate) atomic_until_ns: u64,
    pub(crate) request_until_ns: u64,
    /// The card gave a WRITE up that it was to repeat before any behind it: none of those leaves.
    pub(crate) has_given_up: bool,
    /// The newest of its READs that completed.
    pub(crate) newest_read: u64,
    /// What its server has parked of its calls.
    pub(crate) parking: Parking,
}

impl Pair {
    pub(crate) fn new(client: usize, opened_by: Option<usize>, port: Option<usize>) -> Self {
        Self {
            client,
            opened_by,
            port,
            is_closed: false,
            attached: Vec::new(),
            slots: Vec::new(),
            posted: Vec::new(),
            batch: 1,
            serials: 0,
            batch_meters: Meters::default(),
            refused: Vec::new(),
            meters: Meters::default(),
            refusals: Refusals::new(READ_LINES_MAX),
            completed: 0,
            verbs_under_way: 0,
            waiter: None,
            read_until_ns: 0,
            write_until_ns: 0,
            atomic_until_ns: 0,
            request_until_ns: 0,
            has_given_up: false,
            newest_read: 0,
            parking: Parking::default(),
        }
    }

    /// Puts `content` into a slot, whatever it held. Returns the serial number.
    pub(crate) fn hold(&mut self, slot: Slot, content: Content) -> u64 {
        self.serials += 1;
        assert!(slot < SLOTS, "slot {slot} of {SLOTS}");
        if self.slots.len() <= slot {
            self.slots.resize_with(slot + 1, SlotState::default);
        }
        let held = &mut self.slots[slot];
        if held.phase == Phase::UnderWay && held.content != Content::Call {
            self.verbs_under_way -= 1;
        }
        held.content = content;
        held.phase = Phase::Posted;
        held.serial = self.serials;
        self.serials
    }

    /// Holds a verb that goes nowhere.
    pub(crate) fn leave(&mut self, slot: Slot, content: Content) {
        self.hold(slot, content);
        self.refused.push(slot);
    }

    /// Flushes whatever is under way or posted.
    pub(crate) fn flush(&mut self) {
        for slot in &mut self.slots {
            if slot.phase != Phase::Complete {
                slot.content = Content::Refused(Refusal::Flushed, RegionId(0));
                slot.phase = Phase::Complete;
                self.completed += 1;
            }
        }
        self.posted.clear();
        self.verbs_under_way = 0;
    }
}
