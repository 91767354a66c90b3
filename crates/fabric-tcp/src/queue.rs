//! One session's queue pair: verbs gathered into a frame, sent at the doorbell, results taken as they come.
//!
//! Invariant: whatever a region's bounds or rights forbid is refused when it is posted, by what the client
//! learned at attaching; the server checks all the same. Results of verbs come in the order of sending, so
//! the oldest frame whose verbs are not answered says what the next lines of READs mean. Replies of calls
//! come in any order.
//!
//! Protocol of a region that the server has withdrawn: its verbs fail, each in its slot. The first fail by
//! the server's answer, the others here.
//!
//! Bounds: a doorbell that finds [`FRAMES_MAX`] frames unanswered, or [`UNSENT_BYTES_MAX`] bytes that the
//! server has not taken, waits for the server first.

mod answers;
mod faults;
mod wait;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::{Clock, MonotonicNs, SystemClock};
use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress};
use farsight_fabric::filter::{Filter, Filtered};
use farsight_fabric::refusals::{Refusal, Refusals};
use farsight_fabric::{FabricError, Guarantees, Meters, QueuePair, ReadMode, RegionMap, Slot};
use farsight_fabric_net::{Stream, Waiting};

use crate::batch::{Awaited, OpenBatch, Sent, WRITE_WORDS_MAX};
use crate::frames::{READ_LINES_MAX, VerbKind};
use crate::inbox::Inbox;
use crate::link::{AttachedRegion, Link};
use crate::{GUARANTEES, MESSAGE_BYTES_MAX, SLOTS};

use answers::Arriving;

/// Frames under way.
const FRAMES_MAX: usize = 64;
/// Bytes that wait to be sent.
const UNSENT_BYTES_MAX: usize = 1 << 20;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    Nothing,
    /// A verb or call that is under way.
    Awaited,
    /// A READ's lines, in the inbox from line `at` on.
    Staged,
    /// A READ's lines, copied out of the inbox.
    Copied,
    /// A WRITE that is done, or an atomic; `at` is what it found.
    Word,
    Reply,
    /// A verb that goes nowhere.
    Refused(Refusal),
}

#[derive(Clone, Copy, Debug)]
struct Held {
    content: Content,
    /// The posting; results of others are not for this one.
    serial: u64,
    /// The batch it was posted in: what needs no server is complete once that is not the open one.
    batch: u64,
    at: u64,
    line_count: u32,
    /// What a filtered READ found, if it is [`Content::Staged`] or [`Content::Copied`].
    pick: Option<u8>,
    /// Where a verb is aimed, for the error that names it.
    address: RemoteAddress,
}

const NOTHING: Held = Held {
    content: Content::Nothing,
    serial: 0,
    batch: 0,
    at: 0,
    line_count: 0,
    pick: None,
    address: RemoteAddress { region: RegionId(0), offset_bytes: 0 },
};

/// A queue pair over TCP.
pub struct TcpQueue {
    link: Arc<Link>,
    stream: Stream,
    waiting: Waiting,
    slots: Box<[Held]>,
    regions: RegionMap<AttachedRegion>,
    /// The newest number that the server told.
    notice: u64,
    last_serial: u64,
    /// The open batch's number.
    batch: u64,
    open: OpenBatch,
    batch_meters: Meters,
    /// Verbs of the open batch that were refused or flushed.
    batch_refused: usize,
    meters: Meters,
    output: Vec<u8>,
    output_sent: usize,
    /// Frames that are not answered whole, oldest first.
    under_way: VecDeque<Sent>,
    /// Of those, the ones whose verbs are not answered.
    verbs_under_way: usize,
    inbox: Inbox,
    arriving: Arriving,
    /// What the filtered READs of the frame that is being answered found.
    picks: Vec<u8>,
    /// Regions of the frame that is being answered that are withdrawn, a bit each.
    withdrawn: u16,
    /// Slots whose lines are staged.
    staged: usize,
    copied: Vec<Vec<Line>>,
    replies: Vec<Vec<u8>>,
    /// Slots that became complete since the last poll.
    completed: usize,
    refusals: Refusals,
    clock: SystemClock,
}

impl TcpQueue {
    pub(crate) fn new(link: Arc<Link>, stream: Stream, waiting: Waiting) -> Self {
        Self {
            link,
            stream,
            waiting,
            slots: vec![NOTHING; SLOTS].into(),
            regions: RegionMap::default(),
            notice: 0,
            last_serial: 0,
            batch: 1,
            open: OpenBatch::default(),
            batch_meters: Meters::default(),
            batch_refused: 0,
            meters: Meters::default(),
            output: Vec::new(),
            output_sent: 0,
            under_way: VecDeque::new(),
            verbs_under_way: 0,
            inbox: Inbox::new(),
            arriving: Arriving::Heading,
            picks: Vec::new(),
            withdrawn: 0,
            staged: 0,
            copied: vec![Vec::new(); SLOTS],
            replies: vec![Vec::new(); SLOTS],
            completed: 0,
            refusals: Refusals::new(READ_LINES_MAX),
            clock: SystemClock::of_process(),
        }
    }

    /// Makes a region addressable.
    pub(crate) fn know(&mut self, region: RegionId, attached: AttachedRegion) {
        self.regions.insert(region, attached);
    }

    /// Notes that the server has withdrawn a region: its verbs are refused here from now on.
    fn let_go(&mut self, region: RegionId) {
        self.link.forget(region);
        if self.regions.get(region).is_some() {
            self.regions.insert(region, AttachedRegion::default());
        }
    }

    /// The lines of the completed READ in `slot`, where they lie until anything else arrives.
    #[inline]
    fn take_lines(&mut self, slot: Slot) -> Result<&[Line], FabricError> {
        let held = self.slots[slot];
        let is_staged = held.content == Content::Staged;
        if !is_staged && held.content != Content::Copied {
            return Err(self.slot_error(slot, "a READ"));
        }
        self.staged -= usize::from(is_staged);
        self.slots[slot].content = Content::Nothing;
        let first = held.at as usize;
        let lines = first..first + held.line_count as usize;
        Ok(if is_staged { self.inbox.lines(lines) } else { &self.copied[slot] })
    }

    /// Makes the slot hold a new posting.
    #[inline]
    fn hold(&mut self, slot: Slot, content: Content, address: RemoteAddress) -> &mut Held {
        self.last_serial += 1;
        let held = &mut self.slots[slot];
        self.staged -= usize::from(held.content == Content::Staged);
        *held = Held { content, serial: self.last_serial, batch: self.batch, address, ..NOTHING };
        held
    }

    /// Posts a verb of `length_bytes` that is aimed at `address` and carries `words`.
    #[inline]
    fn post(&mut self, slot: Slot, kind: VerbKind, address: RemoteAddress, length_bytes: u64, words: &[u64]) {
        self.post_with(slot, kind, address, length_bytes, words, Filter::default());
    }

    /// [`TcpQueue::post`], with the filter of a filtered READ.
    #[inline]
    fn post_with(
        &mut self,
        slot: Slot,
        kind: VerbKind,
        address: RemoteAddress,
        length_bytes: u64,
        words: &[u64],
        filter: Filter,
    ) {
        let region = match self.permit(kind, address, length_bytes) {
            Ok(region) => region,
            Err(refusal) => return self.leave(slot, refusal, address),
        };
        let held = self.hold(slot, Content::Awaited, address);
        held.line_count = if kind.is_read() { (length_bytes / LINE_BYTES as u64) as u32 } else { 0 };
        let (count, serial) = (if kind.is_read() { held.line_count } else { 1 }, held.serial);
        let awaited = Awaited { slot, serial, kind, region: 0, count, filter, completes: true };
        if kind != VerbKind::Write {
            return self.open.add(awaited, &region.token, address.offset_bytes, words);
        }
        // A long WRITE goes in pieces, the last of which completes the slot.
        let (mut offset_bytes, mut rest) = (address.offset_bytes, words);
        loop {
            let (piece, tail) = rest.split_at(rest.len().min(WRITE_WORDS_MAX));
            let part = Awaited { count: piece.len() as u32, completes: tail.is_empty(), ..awaited };
            self.open.add(part, &region.token, offset_bytes, piece);
            if tail.is_empty() {
                return;
            }
            (offset_bytes, rest) = (offset_bytes + piece.len() as u64 * 8, tail);
        }
    }
}

impl QueuePair for TcpQueue {
    const SLOTS: usize = SLOTS;
    const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
    const GUARANTEES: Guarantees = GUARANTEES;

    fn peer(&self) -> &str {
        self.link.peer()
    }

    fn now(&self) -> MonotonicNs {
        self.clock.now()
    }

    fn attach(&mut self, region: RegionId) -> Result<u64, FabricError> {
        self.check(0)?;
        match self.regions.get(region) {
            // Its number never names another one: the server need not be asked.
            Some(attached) if attached.is_withdrawn => {
                return Err(FabricError::UnknownRegion { peer: self.link.peer().to_owned(), region });
            }
            Some(attached) => return Ok(attached.length_bytes),
            None => {}
        }
        let attached = self.link.attach(region)?;
        self.know(region, attached);
        Ok(attached.length_bytes)
    }

    fn detach(&mut self, region: RegionId) {
        if self.regions.remove(region).is_some() {
            self.link.forget(region);
        }
    }

    #[inline]
    fn notice(&self) -> u64 {
        self.notice
    }

    #[inline]
    fn post_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize, mode: ReadMode) {
        let kind = match mode {
            ReadMode::Plain => VerbKind::ReadPlain,
            ReadMode::Stamped => VerbKind::ReadStamped,
        };
        let length_bytes = (line_count as u64).saturating_mul(LINE_BYTES as u64);
        self.post(slot, kind, from, length_bytes, &[]);
    }

    #[inline]
    fn post_filtered_read(
        &mut self,
        slot: Slot,
        from: RemoteAddress,
        line_count: usize,
        wanted: u64,
        filter: Filter,
    ) {
        assert!(filter.is_within(line_count), "{filter:?} goes beyond {line_count} lines");
        let length_bytes = (line_count as u64).saturating_mul(LINE_BYTES as u64);
        let words = [wanted, filter.encode()];
        self.post_with(slot, VerbKind::ReadFiltered, from, length_bytes, &words, filter);
    }

    fn post_write(&mut self, slot: Slot, to: RemoteAddress, words: &[u64]) {
        self.post(slot, VerbKind::Write, to, words.len() as u64 * 8, words);
    }

    fn post_compare_swap(&mut self, slot: Slot, at: RemoteAddress, expected: u64, new: u64) {
        self.post(slot, VerbKind::CompareSwap, at, 8, &[expected, new]);
    }

    fn post_fetch_add(&mut self, slot: Slot, at: RemoteAddress, delta: u64) {
        self.post(slot, VerbKind::FetchAdd, at, 8, &[delta]);
    }

    fn post_call(&mut self, slot: Slot, request: &[u8]) -> Result<(), FabricError> {
        if request.len() > MESSAGE_BYTES_MAX {
            let limit_bytes = MESSAGE_BYTES_MAX;
            return Err(FabricError::TooLarge { length_bytes: request.len(), limit_bytes });
        }
        let (kind, nowhere) = (VerbKind::Call, NOTHING.address);
        if self.refusals.is_broken() {
            self.leave(slot, Refusal::Flushed, nowhere);
            return Ok(());
        }
        let serial = self.hold(slot, Content::Awaited, nowhere).serial;
        self.batch_meters.calls += 1;
        self.batch_meters.call_bytes += request.len() as u64;
        let filter = Filter::default();
        let call = Awaited { slot, serial, kind, region: 0, count: 1, filter, completes: true };
        self.open.add_call(call, request);
        Ok(())
    }

    fn doorbell(&mut self) -> Result<(), FabricError> {
        self.check(0)?;
        let Self { open, output, under_way, verbs_under_way, batch_meters, meters, .. } = self;
        open.finish(output, |sent| {
            *verbs_under_way += usize::from(sent.awaits_verbs);
            batch_meters.doorbells = 1;
            under_way.push_back(sent);
        });
        *meters += std::mem::take(batch_meters);
        self.completed += std::mem::take(&mut self.batch_refused);
        self.batch += 1;
        self.send()?;
        if self.under_way.len() > FRAMES_MAX || self.unsent_bytes() > UNSENT_BYTES_MAX {
            self.await_room()?;
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<usize, FabricError> {
        self.check(1)?;
        if !self.under_way.is_empty() {
            self.advance()?;
        }
        Ok(std::mem::take(&mut self.completed))
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), FabricError> {
        self.check(1)?;
        if self.completed == 0 {
            self.await_completion(timeout)?;
        }
        self.check(1)
    }

    fn drain(&mut self) -> Result<(), FabricError> {
        if self.verbs_under_way > 0 { self.await_verbs() } else { Ok(()) }
    }

    #[inline]
    fn drain_slot(&mut self, slot: Slot) -> Result<(), FabricError> {
        if self.slots[slot].content == Content::Awaited { self.await_slot(slot) } else { Ok(()) }
    }

    #[inline]
    fn is_complete(&self, slot: Slot) -> bool {
        let held = &self.slots[slot];
        match held.content {
            Content::Nothing | Content::Awaited => false,
            Content::Staged | Content::Copied | Content::Word | Content::Reply => true,
            Content::Refused(_) => held.batch != self.batch,
        }
    }

    #[inline]
    fn take_read(&mut self, slot: Slot, into: &mut [Line]) -> Result<(), FabricError> {
        let line_count = into.len();
        let lines = self.take_lines(slot)?;
        assert!(lines.len() == line_count, "as many lines are taken as were posted");
        into.copy_from_slice(lines);
        Ok(())
    }

    #[inline]
    fn view_read<'a>(&'a mut self, slot: Slot, room: &'a mut [Line]) -> Result<&'a [Line], FabricError> {
        let line_count = room.len();
        let lines = self.take_lines(slot)?;
        assert!(lines.len() == line_count, "as many lines are taken as were posted");
        Ok(lines)
    }

    #[inline]
    fn view_filtered<'a>(&'a mut self, slot: Slot, _: &'a mut [Line]) -> Result<Filtered<'a>, FabricError> {
        let pick = self.slots[slot].pick;
        let lines = self.take_lines(slot)?;
        Ok(match (pick, lines) {
            (Some(word), [line, part @ ..]) => Filtered::Picked { word: usize::from(word), line, part },
            _ => Filtered::Missed(lines),
        })
    }

    fn take_word(&mut self, slot: Slot) -> Result<u64, FabricError> {
        match self.slots[slot] {
            Held { content: Content::Word, at, .. } => Ok(at),
            _ => Err(self.slot_error(slot, "a word")),
        }
    }

    fn take_reply(&mut self, slot: Slot, into: &mut Vec<u8>) -> Result<(), FabricError> {
        if self.slots[slot].content != Content::Reply {
            return Err(self.slot_error(slot, "a reply"));
        }
        self.slots[slot].content = Content::Nothing;
        std::mem::swap(&mut self.replies[slot], into);
        Ok(())
    }

    fn meters(&self) -> Meters {
        self.meters
    }
}

/// What the meters count of a verb.
#[inline]
fn count(meters: &mut Meters, kind: VerbKind, length_bytes: u64) {
    match kind {
        VerbKind::ReadPlain | VerbKind::ReadStamped | VerbKind::ReadFiltered => {
            meters.reads += 1;
            meters.read_bytes += length_bytes;
        }
        VerbKind::Write => {
            meters.writes += 1;
            meters.write_bytes += length_bytes;
        }
        VerbKind::CompareSwap | VerbKind::FetchAdd => meters.atomics += 1,
        VerbKind::Call => {}
    }
}
