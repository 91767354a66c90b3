//! One session's queue of verbs: READs, WRITEs and atomics on the mapped regions, calls through the rings.
//!
//! Invariant: between posting and taking, a READ is an address that was checked against its region, and
//! nothing else. Its lines are prefetched when it is posted and copied when it is taken. WRITEs and atomics
//! execute at the doorbell, in posting order, before the batch's calls are published. A queue lets regions go
//! between batches alone; a verb that finds its region gone fails in its slot.

mod faults;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use farsight_base::clock::{Clock, MonotonicNs, SystemClock};
use farsight_base::sync::{AtomicU64, Ordering, fence};
use farsight_base::words::{CopyMode, SharedLine, copy_lines, prefetch};
use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress, WORDS_PER_LINE};
use farsight_fabric::mapped::Mapped;
use farsight_fabric::refusals::{Refusal, Refusals, Verb};
use farsight_fabric::{FabricError, Guarantees, Meters, QueuePair, ReadMode, RegionMap, Slot};

use crate::calls::{Calls, Woken};
use crate::known_region::KnownRegion;
use crate::link::Link;
use crate::link_state::{LinkState, NEVER};
use crate::mutations::{Change, Mutations, Target};
use crate::ring;
use crate::{GUARANTEES, SLOTS};

/// Lines of the longest READ.
const READ_LINES_MAX: usize = u16::MAX as usize;

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
    /// A verb that found its region gone, or that of the WRITE that it publishes.
    NoRegion,
    /// A verb that goes nowhere.
    Refused(Refusal),
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
    refusals: Refusals,
    life: LinkState,
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
            refusals: Refusals::new(READ_LINES_MAX),
            life: link.life().clone(),
            link,
            mutations: Mutations::default(),
            calls: Calls::new(file, wakes)?,
            completed: 0,
            meters: Meters::default(),
            clock: SystemClock::of_process(),
        })
    }

    /// The `line_count` lines of a READ that was rung; none if its region is gone.
    #[inline(always)]
    fn lines_of(&self, posted: &Posted, line_count: usize) -> Option<&[SharedLine]> {
        debug_assert!(posted.batch != self.batch, "{posted:?} is taken before its doorbell");
        assert!(usize::from(posted.line_count) == line_count, "as many lines are taken as were posted");
        let first_line = posted.place as usize / WORDS_PER_LINE;
        let words = self.regions.get(posted.region)?.all_words();
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

    /// Holds a READ whose lines are there.
    #[inline(always)]
    fn hold_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize, mode: ReadMode) {
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

    /// Fails unless the connection lived until the last load of a READ, whatever regions it has lost since.
    #[inline(always)]
    fn check_after_loads(&self) -> Result<(), FabricError> {
        if self.life.is_unchanged_after_loads(self.seen) { Ok(()) } else { self.link.check() }
    }

    fn post_change(&mut self, slot: Slot, at: RemoteAddress, verb: Verb, change: Change<'_>) {
        assert!(self.mutations.len() < SLOTS, "a batch holds at most {SLOTS} verbs");
        let words = if let Change::Write(words) = change { words.len() as u64 } else { 1 };
        if let Err(refusal) = self.permit(verb, at, words * 8) {
            return self.leave(slot, at.region, refusal);
        }
        self.mutations.post(
            slot,
            Target { region: at.region, first: (at.offset_bytes / 8) as usize },
            change,
        );
        self.slots[slot] = Posted { content: Content::Word, batch: self.batch, region: at.region, ..NOTHING };
        if verb == Verb::Write {
            self.batch_meters.writes += 1;
            self.batch_meters.write_bytes += words * 8;
        } else {
            self.batch_meters.atomics += 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn execute_mutations(&mut self) -> Result<(), FabricError> {
        let Self { mutations, regions, slots, link, life, seen, .. } = self;
        let _changing = link.begin_changes()?;
        mutations.execute(
            |region| regions.get(region).map_or(&[][..], KnownRegion::words),
            |slot, outcome| {
                let posted = &mut slots[slot];
                match outcome {
                    // The slot may hold a later verb of the batch by now.
                    _ if posted.content != Content::Word => {}
                    Some(word) => posted.place = word,
                    // Its region went meanwhile, or that of the WRITE that it publishes.
                    None => posted.content = Content::NoRegion,
                }
            },
        );
        // SeqCst: the stores are done before the look. If they went elsewhere, the link's word said so before
        // that (`WriteGuard::divert`). Partner: the store of ENDED in `Link::end_with`, which the system call
        // that changes the mapping follows.
        fence(Ordering::SeqCst);
        if life.is_unchanged(*seen) { Ok(()) } else { link.check() }
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
        match self.regions.get(region) {
            // Its number never names another one: the server need not be asked.
            Some(known) if known.is_withdrawn() => {
                Err(FabricError::UnknownRegion { peer: self.link.peer().to_owned(), region })
            }
            Some(known) => Ok(known.length_bytes()),
            None => {
                let known = self.link.attach(region)?;
                let length_bytes = known.length_bytes();
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

    #[inline(always)]
    fn notice(&self) -> u64 {
        // Relaxed: a number that stands for itself.
        self.life.notice().load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn post_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize, mode: ReadMode) {
        let (Some(words), false) = (self.readable(from, line_count), self.refusals.is_broken()) else {
            return self.post_read_beyond(slot, from, line_count, mode);
        };
        for line in words.chunks_exact(WORDS_PER_LINE) {
            prefetch(&line[0]);
        }
        self.hold_read(slot, from, line_count, mode);
    }

    fn post_write(&mut self, slot: Slot, to: RemoteAddress, words: &[u64]) {
        self.post_change(slot, to, Verb::Write, Change::Write(words));
    }

    fn post_compare_swap(&mut self, slot: Slot, at: RemoteAddress, expected: u64, new: u64) {
        self.post_change(slot, at, Verb::CompareSwap, Change::CompareSwap { expected, new });
    }

    fn post_fetch_add(&mut self, slot: Slot, at: RemoteAddress, delta: u64) {
        self.post_change(slot, at, Verb::FetchAdd, Change::FetchAdd { delta });
    }

    fn post_call(&mut self, slot: Slot, request: &[u8]) -> Result<(), FabricError> {
        if request.len() > Self::MESSAGE_BYTES_MAX {
            let limit_bytes = Self::MESSAGE_BYTES_MAX;
            return Err(FabricError::TooLarge { length_bytes: request.len(), limit_bytes });
        }
        if self.refusals.is_broken() {
            self.leave(slot, NOTHING.region, Refusal::Flushed);
            return Ok(());
        }
        self.slots[slot] = Posted { content: Content::AwaitedCall, batch: self.batch, ..NOTHING };
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
                self.break_down("the peer closed this queue or died".to_owned());
            }
            Err(error) => {
                self.break_down(format!("waiting failed: {error}"));
            }
        }
        self.check(1)
    }

    #[inline(always)]
    fn drain(&mut self) -> Result<(), FabricError> {
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

    #[inline(always)]
    fn take_read(&mut self, slot: Slot, into: &mut [Line]) -> Result<(), FabricError> {
        let posted = &self.slots[slot];
        let mode = match posted.content {
            Content::StampedRead => CopyMode::Stamped,
            Content::PlainRead => CopyMode::Plain,
            _ => return Err(self.slot_error(slot, "a READ")),
        };
        let Some(lines) = self.lines_of(posted, into.len()) else {
            return Err(self.slot_error(slot, "a READ"));
        };
        copy_lines(lines.as_flattened(), into, mode);
        self.check_after_loads()
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

    #[inline(always)]
    fn mapped(&mut self) -> Option<&mut impl Mapped> {
        Some(self)
    }
}

impl Mapped for ShmQueue {
    #[inline(always)]
    fn begin(&mut self) -> Result<(), FabricError> {
        // An operation that its server's end broke off may have left a part of its batch.
        self.check(0)?;
        debug_assert!(
            self.batch_reads == 0 && self.mutations.len() == 0,
            "a READ in place has its batch alone"
        );
        Ok(())
    }

    #[inline(always)]
    fn go_on(&self) -> Result<(), FabricError> {
        if self.life.is_unchanged(self.seen) { Ok(()) } else { self.link.check() }
    }

    #[inline(always)]
    fn end(&self) -> Result<(), FabricError> {
        self.check_after_loads()
    }

    #[inline(always)]
    fn lines(&self, region: RegionId) -> &[SharedLine] {
        self.regions.get(region).map_or(&[][..], KnownRegion::words).as_chunks().0
    }

    #[cold]
    fn grown_lines(&self, region: RegionId, end_line: u64) -> &[SharedLine] {
        let end_bytes = end_line.saturating_mul(LINE_BYTES as u64);
        self.grow(region, end_bytes);
        let Some(known) = self.regions.get(region) else { return &[] };
        let is_beyond = end_bytes > known.words().len() as u64 * 8;
        if is_beyond { known.all_words() } else { known.words() }.as_chunks().0
    }

    #[inline(always)]
    fn posted_lines(&self, slot: Slot, line_count: usize) -> Option<&[SharedLine]> {
        let posted = &self.slots[slot];
        if posted.content == Content::StampedRead { self.lines_of(posted, line_count) } else { None }
    }

    #[inline(always)]
    fn count_reads(&mut self, reads: u64, line_count: u64, doorbells: u64) {
        self.meters.reads += reads;
        self.meters.read_bytes += line_count * LINE_BYTES as u64;
        self.meters.doorbells += doorbells;
    }
}
