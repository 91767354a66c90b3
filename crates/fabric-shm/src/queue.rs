//! One session's queue of verbs: READs, WRITEs and atomics on the mapped regions, calls through the rings.
//!
//! Invariant: between posting and taking, a READ is an address that was checked against its region, and
//! nothing else. Its lines are prefetched when it is posted and copied when it is taken. WRITEs and atomics
//! execute at the doorbell, in posting order, before the batch's calls are published. A queue lets regions go
//! between batches alone; a verb that finds its region gone fails in its slot.
//!
//! Protocol of a fault: a verb that its region's bounds or rights forbid breaks the queue pair, as it does on
//! RDMA. Its own slot yields [`FabricError::AccessDenied`], every verb posted after it
//! [`FabricError::Disconnected`], and so does every doorbell after that batch's own.

mod faults;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::{Clock, MonotonicNs, SystemClock};
use farsight_base::sync::AtomicU64;
use farsight_base::words::{CopyMode, Moves, SharedLine, copy_lines, prefetch, prefetch_passing};
use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress, WORDS_PER_LINE};
use farsight_fabric::chained::Chains;
use farsight_fabric::{FabricError, Guarantees, Meters, QueuePair, ReadMode, RegionMap, RegionRights, Slot};

use crate::calls::{Calls, Woken};
use crate::chained::{self, Counts};
use crate::known_region::KnownRegion;
use crate::link::{Link, NEVER};
use crate::mutations::{Change, Mutations, Target};
use crate::ring;
use crate::{GUARANTEES, SLOTS};

use faults::{Breakage, Refusal};

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Content {
    Nothing,
    PlainRead,
    StampedRead,
    /// A WRITE or an atomic; `place` is the word it found once it has executed.
    Word,
    AwaitedCall,
    AnsweredCall,
    /// The verb that broke the queue.
    Denied,
    /// A verb posted after the queue broke.
    Flushed,
    /// `place` is the number of a region that is not attached, or is withdrawn.
    NoRegion,
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    /// The word index at which a READ begins; for others see [`Content`].
    place: u64,
    /// The batch it was posted in: complete once that is not the queue's open one.
    batch: u64,
    region: RegionId,
    line_count: u16,
    content: Content,
}

const NOTHING: Posted =
    Posted { place: 0, batch: 0, region: RegionId(0), line_count: 0, content: Content::Nothing };

/// A queue pair over shared memory.
#[derive(Debug)]
pub struct ShmQueue {
    slots: Box<[Posted; SLOTS]>,
    regions: RegionMap<KnownRegion>,
    /// The link's word as this queue pair has seen it; [`NEVER`] once the queue is broken.
    seen: u64,
    /// The open batch's number.
    batch: u64,
    /// READs of the open batch and their lines; its other verbs are counted in `batch_meters`.
    batch_reads: u64,
    batch_lines: u64,
    /// Verbs of the open batch that were refused or flushed.
    batch_refused: usize,
    batch_meters: Meters,
    broken: Option<Box<Breakage>>,
    link: Arc<Link>,
    mutations: Mutations,
    calls: Calls,
    /// Slots that became complete since the last poll.
    completed: usize,
    meters: Meters,
    clock: SystemClock,
}

impl ShmQueue {
    pub(crate) fn new(link: Arc<Link>, file: BorrowedFd<'_>, wakes: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            slots: Box::new([NOTHING; SLOTS]),
            regions: RegionMap::default(),
            seen: NEVER,
            batch: 1,
            batch_reads: 0,
            batch_lines: 0,
            batch_refused: 0,
            batch_meters: Meters::default(),
            broken: None,
            link,
            mutations: Mutations::default(),
            calls: Calls::new(file, wakes)?,
            completed: 0,
            meters: Meters::default(),
            clock: SystemClock::new(),
        })
    }

    /// The `line_count` lines of the READ in `slot`, which was rung; none if its region is gone.
    #[inline(always)]
    fn posted_lines(&self, slot: Slot, line_count: usize) -> Option<&[SharedLine]> {
        let posted = &self.slots[slot];
        debug_assert!(posted.batch != self.batch, "slot {slot} is taken before its doorbell");
        assert!(usize::from(posted.line_count) == line_count, "as many lines are taken as were posted");
        let first_line = posted.place as usize / WORDS_PER_LINE;
        let words = self.regions.get(posted.region)?.words();
        words.as_chunks().0.get(first_line..first_line + line_count)
    }

    /// The words of `line_count` lines at `from`, if a READ may fetch them.
    #[inline(always)]
    fn readable(&self, from: RemoteAddress, line_count: usize) -> Option<&[AtomicU64]> {
        let region = self.regions.get(from.region)?;
        let first = (from.offset_bytes / 8) as usize;
        let aligned = from.offset_bytes.is_multiple_of(LINE_BYTES as u64);
        let countable = u16::try_from(line_count).is_ok();
        // The end cannot overflow: `first` is below 2^61, and an uncountable READ is refused anyway.
        let range = first..first.wrapping_add(line_count.wrapping_mul(WORDS_PER_LINE));
        region.words().get(range).filter(|_| aligned && countable)
    }

    /// Where `word_count` words at `at` lie, if its region is attached, reaches so far, and lets clients
    /// write.
    fn target(&self, at: RemoteAddress, word_count: usize) -> Result<Target, Refusal> {
        let region = self.regions.get(at.region).filter(|region| !region.is_withdrawn());
        let region = region.ok_or(Refusal::NoRegion)?;
        if region.rights() != RegionRights::ReadWrite {
            return Err(Refusal::Denied("clients may only READ this region".to_owned()));
        }
        if !at.offset_bytes.is_multiple_of(8) {
            return Err(Refusal::Denied("the address is no multiple of 8 B".to_owned()));
        }
        let first = (at.offset_bytes / 8) as usize;
        let length = region.words().len();
        if first > length || word_count > length - first {
            return Err(Refusal::Denied(format!("the region ends at {:#x}", length * 8)));
        }
        Ok(Target { region: at.region, first })
    }

    fn post_change(&mut self, slot: Slot, at: RemoteAddress, verb: &'static str, change: Change<'_>) {
        assert!(self.mutations.len() < SLOTS, "a batch holds at most {SLOTS} verbs");
        let word_count = if let Change::Write(words) = change { words.len() } else { 1 };
        if self.broken.is_some() {
            return self.leave(slot, at, Content::Flushed);
        }
        match self.target(at, word_count) {
            Ok(target) => {
                self.mutations.post(slot, target, change);
                self.slots[slot] = Posted { content: Content::Word, batch: self.batch, ..NOTHING };
                if let Change::Write(_) = change {
                    self.batch_meters.writes += 1;
                    self.batch_meters.write_bytes += word_count as u64 * 8;
                } else {
                    self.batch_meters.atomics += 1;
                }
            }
            Err(refusal) => self.refuse(slot, refusal, verb, at, word_count as u64 * 8),
        }
    }

    #[cold]
    #[inline(never)]
    fn execute_mutations(&mut self) -> Result<(), FabricError> {
        let Self { mutations, regions, slots, link, .. } = self;
        let _changing = link.begin_changes()?;
        mutations.execute(
            |region| regions.get(region).map_or(&[][..], KnownRegion::words),
            |slot, outcome| {
                let posted = &mut slots[slot];
                (posted.content, posted.place) = match outcome {
                    Ok(word) => (Content::Word, word),
                    Err(region) => (Content::NoRegion, region.0.into()),
                };
            },
        );
        Ok(())
    }
}

#[inline(always)]
fn copy_mode(mode: ReadMode) -> CopyMode {
    match mode {
        ReadMode::Plain => CopyMode::Plain,
        ReadMode::Stamped => CopyMode::Stamped,
    }
}

impl QueuePair for ShmQueue {
    const SLOTS: usize = SLOTS;
    const MESSAGE_BYTES_MAX: usize = ring::PAYLOAD_BYTES_MAX;
    const GUARANTEES: Guarantees = GUARANTEES;

    fn peer(&self) -> &str {
        self.link.peer()
    }

    fn now(&self) -> MonotonicNs {
        self.clock.now()
    }

    fn attach(&mut self, region: RegionId) -> Result<u64, FabricError> {
        self.check(0)?;
        let length_bytes = |region: &KnownRegion| region.words().len() as u64 * 8;
        match self.regions.get(region) {
            // Its number never names another one: the server need not be asked.
            Some(known) if known.is_withdrawn() => {
                Err(FabricError::UnknownRegion { peer: self.link.peer().to_owned(), region })
            }
            Some(known) => Ok(length_bytes(known)),
            None => {
                let known = self.link.attach(region)?;
                let length_bytes = length_bytes(&known);
                self.regions.insert(region, known);
                Ok(length_bytes)
            }
        }
    }

    fn detach(&mut self, region: RegionId) {
        if let Some(known) = self.regions.remove(region) {
            self.link.detach(region, known);
        }
    }

    #[inline]
    fn notice(&self) -> u64 {
        self.link.notice()
    }

    #[inline(always)]
    fn post_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize, mode: ReadMode) {
        let (Some(words), None) = (self.readable(from, line_count), &self.broken) else {
            return self.post_refused_read(slot, from, line_count);
        };
        for line in words.chunks_exact(WORDS_PER_LINE) {
            prefetch(&line[0]);
        }
        self.slots[slot] = Posted {
            place: from.offset_bytes / 8,
            batch: self.batch,
            region: from.region,
            line_count: line_count as u16,
            content: match mode {
                ReadMode::Plain => Content::PlainRead,
                ReadMode::Stamped => Content::StampedRead,
            },
        };
        self.batch_reads += 1;
        self.batch_lines += line_count as u64;
    }

    fn post_write(&mut self, slot: Slot, to: RemoteAddress, words: &[u64]) {
        self.post_change(slot, to, "WRITE", Change::Write(words));
    }

    fn post_compare_swap(&mut self, slot: Slot, at: RemoteAddress, expected: u64, new: u64) {
        self.post_change(slot, at, "compare_swap", Change::CompareSwap { expected, new });
    }

    fn post_fetch_add(&mut self, slot: Slot, at: RemoteAddress, delta: u64) {
        self.post_change(slot, at, "fetch_add", Change::FetchAdd { delta });
    }

    fn post_call(&mut self, slot: Slot, request: &[u8]) -> Result<(), FabricError> {
        if request.len() > Self::MESSAGE_BYTES_MAX {
            let limit_bytes = Self::MESSAGE_BYTES_MAX;
            return Err(FabricError::TooLarge { length_bytes: request.len(), limit_bytes });
        }
        let content = if self.broken.is_some() { Content::Flushed } else { Content::AwaitedCall };
        self.slots[slot] = Posted { content, batch: self.batch, ..NOTHING };
        if content == Content::Flushed {
            self.batch_refused += 1;
            return Ok(());
        }
        self.batch_meters.calls += 1;
        self.batch_meters.call_bytes += request.len() as u64;
        self.calls.post(slot, request).map_err(|disorder| self.disorder(&disorder))
    }

    #[inline]
    fn doorbell(&mut self) -> Result<(), FabricError> {
        self.check(0)?;
        let changes = self.mutations.len();
        if changes > 0 {
            self.execute_mutations()?;
        }
        let calls = self.batch_meters.calls;
        if calls > 0
            && let Err(disorder) = self.calls.send()
        {
            return Err(self.disorder(&disorder));
        }
        let immediate = self.batch_reads as usize + changes;
        if immediate as u64 + calls > 0 {
            self.batch_meters.reads = self.batch_reads;
            self.batch_meters.read_bytes = self.batch_lines * LINE_BYTES as u64;
            self.batch_meters.doorbells = 1;
            self.meters += self.batch_meters;
            self.batch_meters = Meters::default();
        }
        self.completed += immediate + self.batch_refused;
        (self.batch_reads, self.batch_lines, self.batch_refused) = (0, 0, 0);
        self.batch += 1;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<usize, FabricError> {
        self.check(1)?;
        let slots = &mut self.slots;
        let mut answered = 0;
        let outcome = self.calls.collect(|slot| {
            // The slot may hold another verb by now, whose turn it is.
            if slots[slot].content == Content::AwaitedCall {
                slots[slot].content = Content::AnsweredCall;
                answered += 1;
            }
        });
        match outcome {
            Ok(()) => Ok(std::mem::take(&mut self.completed) + answered),
            Err(disorder) => Err(self.disorder(&disorder)),
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), FabricError> {
        self.check(1)?;
        if self.completed > 0 {
            return Ok(());
        }
        let link = self.link.socket().as_fd();
        match self.calls.wait(link, timeout) {
            Ok(Woken::Perhaps) => {}
            Ok(Woken::LinkEnded) => self.link.hung_up(),
            Ok(Woken::QueueEnded) => {
                self.break_down("the peer closed this queue or died".to_owned(), None);
            }
            Err(error) => {
                self.break_down(format!("waiting failed: {error}"), None);
            }
        }
        self.check(1)
    }

    #[inline(always)]
    fn settle(&mut self) -> Result<(), FabricError> {
        Ok(())
    }

    #[inline(always)]
    fn is_complete(&self, slot: Slot) -> bool {
        let posted = &self.slots[slot];
        match posted.content {
            Content::Nothing | Content::AwaitedCall => false,
            Content::AnsweredCall => true,
            _ => posted.batch != self.batch,
        }
    }

    /// A copy and nothing else: neither prefetch nor slot, and the meters as a doorbell would leave them.
    #[inline(always)]
    fn read_alone(
        &mut self,
        from: RemoteAddress,
        into: &mut [Line],
        mode: ReadMode,
    ) -> Result<(), FabricError> {
        debug_assert!(self.batch_reads == 0 && self.mutations.len() == 0, "a READ alone has its batch alone");
        self.check(0)?;
        let Some(words) = self.readable(from, into.len()) else {
            return self.read_refused(from, into);
        };
        copy_lines(words, into, copy_mode(mode));
        self.meters.reads += 1;
        self.meters.read_bytes += size_of_val(into) as u64;
        self.meters.doorbells += 1;
        Ok(())
    }

    /// All lines are prefetched, but only what the caller looks at is copied.
    #[inline(always)]
    fn read_part<const ALL: usize, const FIRST: usize, const PART: usize, Chosen, Kept>(
        &mut self,
        region: RegionId,
        line: u64,
        choose: impl FnOnce(&[Line; FIRST]) -> Option<(usize, Chosen)>,
        keep: impl FnOnce(Chosen, &[Line; PART]) -> Kept,
    ) -> Result<Option<Kept>, FabricError> {
        debug_assert!(self.batch_reads == 0 && self.mutations.len() == 0, "a READ alone has its batch alone");
        self.check(0)?;
        self.meters.reads += 1;
        self.meters.read_bytes += (ALL * LINE_BYTES) as u64;
        self.meters.doorbells += 1;
        let words = self.regions.get(region).map_or(&[][..], KnownRegion::words);
        let lines: &[SharedLine; ALL] = match chained::lines(words.as_chunks().0, line) {
            Ok(lines) => lines,
            Err(stop) => return Err(self.stopped(region, stop)),
        };
        for line in lines {
            prefetch_passing(line);
        }
        let (moves, mut copy) = (Moves::detect(), MaybeUninit::uninit());
        let first = lines.first_chunk().expect("the first lines are some of all");
        let Some((begin, chosen)) = choose(moves.copy_to(first, &mut copy)) else { return Ok(None) };
        let part = lines[begin..].first_chunk().expect("a part of all lines");
        Ok(Some(keep(chosen, moves.copy_to(part, &mut MaybeUninit::uninit()))))
    }

    #[inline(always)]
    fn lines_in_place<const LINES: usize>(
        &self,
        region: RegionId,
        line: u64,
    ) -> Option<&[SharedLine; LINES]> {
        debug_assert!(self.batch_reads == 0 && self.mutations.len() == 0, "a READ alone has its batch alone");
        // A queue that is broken has seen what the word never is.
        if !self.link.is_unchanged(self.seen) {
            return None;
        }
        let words = self.regions.get(region)?.words();
        let lines: &[SharedLine; LINES] = words.as_chunks().0.get(line as usize..)?.first_chunk()?;
        for line in lines {
            prefetch_passing(line);
        }
        Some(lines)
    }

    #[inline(always)]
    fn count_read_in_place(&mut self, line_count: usize) {
        self.meters.reads += 1;
        self.meters.read_bytes += (line_count * LINE_BYTES) as u64;
        self.meters.doorbells += 1;
    }

    /// Copies and nothing else, as in [`ShmQueue::read_alone`].
    #[inline(always)]
    fn read_chained<const FIRST: usize, const SECOND: usize>(
        &mut self,
        region: RegionId,
        count: usize,
        chains: &mut impl Chains<FIRST, SECOND>,
    ) -> Result<(), FabricError> {
        debug_assert!(self.batch_reads == 0 && self.mutations.len() == 0, "chains have their batch alone");
        self.check(0)?;
        // Of a region that is not attached, or is withdrawn, every READ lies outside.
        let words = self.regions.get(region).map_or(&[][..], KnownRegion::words);
        match chained::read(words, count, chains, &self.link, self.seen) {
            Ok(Counts { first, second }) => {
                self.meters.reads += first + second;
                self.meters.read_bytes += (first * FIRST as u64 + second * SECOND as u64) * LINE_BYTES as u64;
                self.meters.doorbells += u64::from(first > 0) + u64::from(second > 0);
                Ok(())
            }
            Err(stop) => Err(self.stopped(region, stop)),
        }
    }

    #[inline(always)]
    fn take_read(&mut self, slot: Slot, into: &mut [Line]) -> Result<(), FabricError> {
        let posted = self.slots[slot];
        let mode = match posted.content {
            Content::StampedRead => CopyMode::Stamped,
            Content::PlainRead => CopyMode::Plain,
            _ => return Err(self.slot_error(slot, "a READ")),
        };
        let Some(lines) = self.posted_lines(slot, into.len()) else {
            return Err(self.slot_error(slot, "a READ"));
        };
        copy_lines(lines.as_flattened(), into, mode);
        Ok(())
    }

    /// Only what the caller looks at is copied.
    #[inline(always)]
    fn take_part<const FIRST: usize, const PART: usize, Chosen, Kept>(
        &mut self,
        slot: Slot,
        room: &mut [Line],
        choose: impl FnOnce(&[Line; FIRST]) -> Option<(usize, Chosen)>,
        keep: impl FnOnce(Chosen, &[Line; PART]) -> Kept,
    ) -> Result<Option<Kept>, FabricError> {
        if self.slots[slot].content != Content::StampedRead {
            return Err(self.slot_error(slot, "a stamped READ"));
        }
        let Some(lines) = self.posted_lines(slot, room.len()) else {
            return Err(self.slot_error(slot, "a stamped READ"));
        };
        let (moves, mut copy) = (Moves::detect(), MaybeUninit::uninit());
        let first = lines.first_chunk().expect("the first lines are some of all");
        let Some((begin, chosen)) = choose(moves.copy_to(first, &mut copy)) else { return Ok(None) };
        let part = lines[begin..].first_chunk().expect("a part of all lines");
        Ok(Some(keep(chosen, moves.copy_to(part, &mut MaybeUninit::uninit()))))
    }

    fn take_word(&mut self, slot: Slot) -> Result<u64, FabricError> {
        let posted = self.slots[slot];
        if posted.content != Content::Word {
            return Err(self.slot_error(slot, "a word"));
        }
        debug_assert!(posted.batch != self.batch, "slot {slot} is taken before its doorbell");
        Ok(posted.place)
    }

    fn take_reply(&mut self, slot: Slot, into: &mut Vec<u8>) -> Result<(), FabricError> {
        if self.slots[slot].content != Content::AnsweredCall {
            return Err(self.slot_error(slot, "a reply"));
        }
        self.slots[slot].content = Content::Nothing;
        self.calls.take(slot, into);
        Ok(())
    }

    fn meters(&self) -> Meters {
        self.meters
    }
}
