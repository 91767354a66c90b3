//! What a queue's slots hold, and whether their batches are complete.
//!
//! Invariant: a batch is complete once all before it are. Once the queue is broken nothing more is posted.

use farsight_base::RegionId;
use farsight_fabric::refusals::{Refusal, Refusals};
use farsight_fabric::{FabricError, Slot};

use super::link::Link;
use crate::SLOTS;

/// Lines of the longest READ.
const READ_LINES_MAX: usize = u16::MAX as usize;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Content {
    Nothing,
    Read {
        line_count: u16,
        is_long: bool,
        /// Done three times.
        is_checked: bool,
    },
    Write,
    Atomic,
    AwaitedCall,
    AnsweredCall,
    /// A verb on this region that goes nowhere.
    Refused(Refusal, RegionId),
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    content: Content,
    /// The batch it was posted in.
    batch: u64,
}

/// The slots of one queue.
#[derive(Debug)]
pub(super) struct Slots {
    posted: Box<[Posted; SLOTS]>,
    /// The open batch's number.
    pub(super) batch: u64,
    /// The first batch that is not complete.
    pub(super) complete_before: u64,
    /// Verbs of the open batch, and those of them that went nowhere.
    pub(super) batch_verbs: usize,
    pub(super) batch_refused: usize,
    pub(super) refusals: Refusals,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            posted: Box::new([Posted { content: Content::Nothing, batch: 0 }; SLOTS]),
            batch: 1,
            complete_before: 1,
            batch_verbs: 0,
            batch_refused: 0,
            refusals: Refusals::new(READ_LINES_MAX),
        }
    }

    pub(super) fn content(&self, slot: Slot) -> Content {
        self.posted[slot].content
    }

    pub(super) fn set(&mut self, slot: Slot, content: Content) {
        self.posted[slot] = Posted { content, batch: self.batch };
    }

    /// Puts a verb into the open batch.
    pub(super) fn post(&mut self, slot: Slot, content: Content) {
        assert!(self.batch_verbs < SLOTS, "a batch holds at most {SLOTS} verbs");
        self.batch_verbs += 1;
        self.set(slot, content);
    }

    /// Holds a verb on `region` that goes nowhere.
    pub(super) fn leave(&mut self, slot: Slot, refusal: Refusal, region: RegionId) {
        self.batch_refused += 1;
        self.set(slot, Content::Refused(refusal, region));
    }

    /// The call in `slot` is answered. False if the slot holds another verb by now.
    pub(super) fn answer(&mut self, slot: Slot) -> bool {
        let is_awaited = self.content(slot) == Content::AwaitedCall;
        if is_awaited {
            self.posted[slot].content = Content::AnsweredCall;
        }
        is_awaited
    }

    pub(super) fn break_down(&mut self, reason: String) {
        self.refusals.break_down(self.batch, reason);
    }

    /// Fails if the connection is dead, or this queue is. A verb that broke it shows in its slot first: until
    /// then `batches` more may begin.
    pub(super) fn check(&self, link: &Link, batches: u64) -> Result<(), FabricError> {
        link.check()?;
        self.refusals.check(self.batch, batches, link.peer())
    }

    pub(super) fn is_complete(&self, slot: Slot) -> bool {
        let posted = &self.posted[slot];
        match posted.content {
            Content::Nothing | Content::AwaitedCall => false,
            Content::AnsweredCall => true,
            Content::Refused(..) => posted.batch < self.batch,
            Content::Read { .. } | Content::Write | Content::Atomic => posted.batch < self.complete_before,
        }
    }

    /// The error of a slot that does not hold what was to be taken.
    #[cold]
    pub(super) fn error(&self, link: &Link, slot: Slot, wanted: &str) -> FabricError {
        match self.content(slot) {
            Content::Refused(refusal, region) => self.refusals.error(refusal, region, link.peer()),
            content => self.refusals.nothing_to_take(slot, content, wanted, link.check(), link.peer()),
        }
    }
}
