//! One session's queue of verbs.
//!
//! Invariant: a client refuses what a region's bounds or rights forbid when it is posted, by what it learned
//! at attaching. So the server's card refuses no honest client's verb. What a card reports ends the whole
//! connection.
//!
//! Protocol: verbs gather in a [`Chain`]; the doorbell posts it, in pieces if the card's queue is nearly
//! full, the last work of each piece signalled. Completions of a queue pair come in order, so a piece's
//! completion completes whatever stands before it. Calls follow a batch's other verbs as a piece of their
//! own, so that a server that is slow to take them holds up no READ posted before them.
//!
//! A stamped READ on a device that does not read lines whole is done three times, one round after the other
//! (see [`Round`]). A line is taken from the second copy; its stamp is made odd unless the first, the second
//! and the third are equal. The first stamp is read before any word of the second copy, the third after.
//! Equal even stamps mean that no write began or ended in between (versions only grow), so the copy is a
//! snapshot.

#[cfg(test)]
mod closed;
mod target;

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::clock::{Clock, MonotonicNs, SystemClock};
use farsight_base::sync::Ordering;
use farsight_base::words::{CopyMode, copy_lines};
use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress, WORDS_PER_LINE};
use farsight_fabric::lane::STALL_TIMEOUT;
use farsight_fabric::refusals::{Refusal, Verb};
use farsight_fabric::{FabricError, Guarantees, Meters, QueuePair, ReadMode, RegionMap, Slot};
use farsight_fabric_host::os;
use farsight_fabric_net::Waiting;
use rustix::event::PollFlags;

use super::arena::Arena;
use super::calls::{Calls, Windows};
use super::chain::{Chain, Round};
use super::link::{ANSWER_TIMEOUT, AttachedRegion, Link, failed};
use super::slots::{Content, Slots};
use crate::call_frame::{self, FRAME_BYTES, PAYLOAD_BYTES_MAX};
use crate::control::{FromClient, FromServer};
use crate::ibv::completion::CompletionQueue;
use crate::ibv::ffi::{self, Piece, SendWork, WorkCompletion};
use crate::ibv::pair::{PairShape, RcPair};
use crate::{BRIEF, CALLS_MAX, COMPLETIONS_PER_POLL, GUARANTEES, INLINE_BYTES, SLOTS};

/// Work that the card's queue holds: a batch of stamped READs done three times, and calls.
const SENDS_MAX: u32 = 3 * SLOTS as u32 + 2 * CALLS_MAX as u32;
/// Marks the completion of a receive; the rest of its id is the receive's place.
const RECEIVE: u64 = 1 << 63;
/// Looks for completions between two at the clock, which takes about as long as one.
const LOOKS_PER_CLOCK: usize = 16;
/// What may be wrong where the peer's card does not answer.
const UNREACHED: &str = " (do the cards reach each other: `rdma link`, the way between, UDP to port 4791?)";
/// One sleep of a doorbell that waits for room.
const ROOM_STEP: Duration = Duration::from_millis(50);

/// Work that one completion completes.
#[derive(Debug)]
struct UnderWay {
    works: usize,
    /// The batch whose verbs these are; none for calls.
    batch: Option<u64>,
    /// Slots that are complete with it, or with the round that follows.
    slots: usize,
    windows: Windows,
    staged: u64,
    round: Option<Round>,
}

/// A round of READs whose time has come.
#[derive(Debug)]
struct DueRound {
    batch: Option<u64>,
    slots: usize,
    round: Round,
}

/// A queue pair of a network card.
#[derive(Debug)]
pub struct VerbsQueue {
    // Before the memory that it may use: it is dropped first.
    pub(crate) pair: RcPair,
    completions: Arc<CompletionQueue>,
    arena: Arena,
    link: Arc<Link>,
    regions: RegionMap<AttachedRegion>,
    slots: Slots,
    chain: Chain,
    under_way: VecDeque<UnderWay>,
    due_rounds: VecDeque<DueRound>,
    works_under_way: usize,
    sends_max: usize,
    calls: Calls,
    batch_meters: Meters,
    /// Slots that became complete since the last poll.
    completed: usize,
    meters: Meters,
    reads_lines_whole: bool,
    waiting: Waiting,
    scratch: Vec<u8>,
    /// Where completions are put that are polled for.
    found: Box<[WorkCompletion; COMPLETIONS_PER_POLL]>,
    clock: SystemClock,
}

impl VerbsQueue {
    pub(super) fn open(link: &Arc<Link>, waiting: Waiting) -> Result<Self, FabricError> {
        const WHAT: &str = "opening a queue";
        let domain = &link.domain;
        let device = &domain.device;
        let reads_lines_whole = device.reads_lines_whole();
        let arena = Arena::new(domain, if reads_lines_whole { 1 } else { 3 })?;
        let sends_max = SENDS_MAX.min(device.attributes.queue_work_max);
        if sends_max < SLOTS as u32 {
            let error = std::io::Error::other(format!("its queue pairs hold {sends_max} works"));
            return Err(os::system_error(&device.name, &error, "Use another device: a batch has 256"));
        }
        let completions = CompletionQueue::new(device, sends_max + 2 * CALLS_MAX as u32)?;
        let a_bug = |error| os::system_error("preparing a queue pair", &error, "A bug");
        let sequence = os::random().map_err(a_bug)?;
        let shape = PairShape {
            sends_max,
            receives_max: CALLS_MAX as u32,
            shared: None,
            rights: 0,
            inline_bytes: INLINE_BYTES,
        };
        let pair = RcPair::new(domain, &completions, shape, u32::from_le_bytes(sequence))?;
        for index in 0..CALLS_MAX {
            post_receive(&pair, &arena, index).map_err(a_bug)?;
        }
        let (number, peer) =
            match link.ask(FromClient::OpenQueue { endpoint: pair.endpoint() }, WHAT, ANSWER_TIMEOUT)? {
                FromServer::QueueOpened { queue, endpoint } => (queue, endpoint),
                FromServer::Failed { text } => return Err(failed("the server's part", text)),
                other => return Err(link.unintelligible(WHAT, format!("{other:?}"))),
            };
        pair.connect(&peer)?;
        Ok(Self {
            pair,
            completions,
            arena,
            link: Arc::clone(link),
            regions: RegionMap::default(),
            slots: Slots::new(),
            chain: Chain::default(),
            under_way: VecDeque::new(),
            due_rounds: VecDeque::new(),
            works_under_way: 0,
            sends_max: sends_max as usize,
            calls: Calls::new(number),
            batch_meters: Meters::default(),
            completed: 0,
            meters: Meters::default(),
            reads_lines_whole,
            waiting,
            scratch: Vec::new(),
            found: Box::new([WorkCompletion::default(); COMPLETIONS_PER_POLL]),
            clock: SystemClock::of_process(),
        })
    }

    /// What posting came to for want of memory.
    fn post_failed(&mut self, slot: Slot, region: RegionId, error: &FabricError) {
        self.slots.break_down(error.to_string());
        self.slots.leave(slot, Refusal::Flushed, region);
    }

    fn post_atomic(&mut self, slot: Slot, at: RemoteAddress, verb: Verb, opcode: i32, operands: [u64; 2]) {
        let Some((remote_address, key)) = self.target(slot, verb, at, 8) else { return };
        let work = SendWork {
            id: slot as u64,
            opcode,
            remote_address,
            key_or_compare: operands[0],
            swap: operands[1],
            atomic_remote_key: key,
            ..SendWork::default()
        };
        self.chain.push(work, self.arena.word(slot));
        self.slots.post(slot, Content::Atomic);
        self.batch_meters.atomics += 1;
    }

    /// Ends the connection over what the card, or the server, did.
    fn fail(&mut self, reason: String) -> FabricError {
        self.link.end_after_farewell(&reason);
        self.slots.break_down(reason);
        self.slots.check(&self.link, 0).err().unwrap_or_else(|| self.link.disconnected("the queue broke"))
    }

    /// Takes the completions that are there. True if there were any.
    fn collect(&mut self) -> Result<bool, FabricError> {
        let mut any = false;
        loop {
            let count = match self.completions.poll(&mut self.found[..]) {
                Ok(count) => count,
                Err(error) => return Err(self.fail(error.to_string())),
            };
            for index in 0..count {
                let completion = self.found[index];
                self.complete(&completion)?;
            }
            any |= count > 0;
            self.post_due_rounds()?;
            // Bounded: no more completions come than there is work under way.
            if count < self.found.len() {
                return Ok(any);
            }
        }
    }

    fn complete(&mut self, completion: &WorkCompletion) -> Result<(), FabricError> {
        if completion.status != ffi::STATUS_SUCCESS {
            let status = self.link.domain.device.library.0.status(completion.status);
            let (slot, vendor) = (completion.id & 0xffff, completion.vendor_error);
            let what = if completion.id & RECEIVE == 0 {
                format!("the verb in slot {slot}")
            } else {
                "a receive".into()
            };
            let hint = if completion.status == ffi::STATUS_RETRIES_EXCEEDED { UNREACHED } else { "" };
            let reason =
                format!("the network card reports {status} for {what}, its own code {vendor:#x}{hint}");
            return Err(self.fail(reason));
        }
        if completion.id & RECEIVE != 0 {
            return self.complete_call((completion.id & !RECEIVE) as usize, completion.length_bytes as usize);
        }
        let Some(done) = self.under_way.pop_front() else {
            return Err(self.fail("the network card completes what was not posted".to_owned()));
        };
        self.works_under_way -= done.works;
        match done.round {
            Some(round) => {
                self.due_rounds.push_back(DueRound { batch: done.batch, slots: done.slots, round });
            }
            None => self.completed += done.slots,
        }
        self.calls.acknowledge(done.windows);
        self.advance();
        self.arena.release(self.slots.complete_before, done.staged);
        Ok(())
    }

    /// Posts the rounds whose time has come, as far as there is room in the card's queue. Completions make
    /// room, and a caller that waits polls for them again and again.
    fn post_due_rounds(&mut self) -> Result<(), FabricError> {
        while let Some(due) = self.due_rounds.front()
            && due.round.len() <= self.sends_max - self.works_under_way
            && let Some(DueRound { batch, slots, round }) = self.due_rounds.pop_front()
        {
            let mut chain = Chain::default();
            let (works, meters) = (round.len(), round.meters());
            let round = chain.push_round(round);
            // SAFETY: the pieces are those of READs of a batch that is not complete: as in `send`.
            if let Err(error) = unsafe { chain.post(&self.pair, works) } {
                return Err(self.fail(format!("the network card takes no work: {error}")));
            }
            self.under_way.push_back(UnderWay { works, batch, slots, windows: 0, staged: 0, round });
            self.works_under_way += works;
            self.meters += meters;
        }
        Ok(())
    }

    /// Every batch before the first of which anything is under way is complete.
    fn advance(&mut self) {
        let under_way = self.under_way.iter().filter_map(|piece| piece.batch);
        let first = under_way.chain(self.due_rounds.iter().filter_map(|due| due.batch)).min();
        self.slots.complete_before = first.unwrap_or(self.slots.batch);
    }

    fn complete_call(&mut self, place: usize, message_bytes: usize) -> Result<(), FabricError> {
        let first = self.arena.frame(CALLS_MAX + place);
        let mut scratch = std::mem::take(&mut self.scratch);
        let outcome = call_frame::load(&self.arena.memory, first, message_bytes, &mut scratch)
            .map_err(|disorder| disorder.to_string())
            .and_then(|header| self.calls.answer(header, &mut scratch));
        self.scratch = scratch;
        let answered = match outcome {
            Ok(answered) => answered,
            Err(reason) => return Err(self.fail(format!("the server broke the protocol of calls: {reason}"))),
        };
        if let Err(error) = post_receive(&self.pair, &self.arena, place) {
            return Err(self.fail(format!("posting a receive failed: {error}")));
        }
        // The slot may hold another verb by now, whose turn it is.
        let is_new = answered.is_some_and(|slot| self.slots.answer(slot));
        self.completed += usize::from(is_new);
        Ok(())
    }

    /// Posts what is left of the chain, as `piece`, in as many parts as the room in the card's queue makes
    /// necessary.
    fn send(&mut self, mut piece: UnderWay) -> Result<(), FabricError> {
        // Read only when there is something to wait for: some machines take microseconds to tell.
        let mut begun = None;
        while self.chain.left() > 0 {
            let count = self.chain.left().min(self.sends_max - self.works_under_way);
            if count == 0 {
                self.await_room(*begun.get_or_insert_with(Instant::now))?;
                continue;
            }
            // SAFETY: pieces lie in the arena or in memory that it keeps until their batch is complete; the
            // queue pair is dropped before the arena.
            if let Err(error) = unsafe { self.chain.post(&self.pair, count) } {
                return Err(self.fail(format!("the network card takes no work: {error}")));
            }
            piece.works = count;
            let next =
                UnderWay { works: 0, batch: piece.batch, slots: 0, windows: 0, staged: 0, round: None };
            let part = if self.chain.left() == 0 {
                std::mem::replace(&mut piece, next)
            } else {
                UnderWay { works: count, ..next }
            };
            self.under_way.push_back(part);
            self.works_under_way += count;
        }
        self.chain.clear();
        Ok(())
    }

    fn await_room(&mut self, begun: Instant) -> Result<(), FabricError> {
        self.link.check()?;
        if self.collect()? {
            return Ok(());
        }
        let waited = begun.elapsed();
        if waited > STALL_TIMEOUT {
            let peer = self.link.peer().to_owned();
            return Err(FabricError::TimedOut { peer, what: "room in the card's queue", waited });
        }
        self.sleep(ROOM_STEP)
    }

    /// Sends rung calls, as far as there are windows.
    fn send_calls(&mut self) -> Result<(), FabricError> {
        let mut windows = 0;
        while let Some((window, header, request)) = self.calls.next() {
            let first = self.arena.frame(window);
            let bytes = call_frame::store(&self.arena.memory, first, header, &request);
            let flags = if bytes <= self.pair.inline_bytes_max as usize { ffi::SEND_INLINE } else { 0 };
            let id = u64::from(header.slot);
            let work = SendWork { id, opcode: ffi::OPCODE_SEND, flags, ..SendWork::default() };
            self.chain.push(work, self.arena.memory.piece(first * 8, bytes));
            windows |= 1 << window;
        }
        if windows == 0 {
            return Ok(());
        }
        let staged = self.arena.staged();
        self.send(UnderWay { works: 0, batch: None, slots: 0, windows, staged, round: None })
    }

    /// Sleeps until a completion may have come, the link hangs up, or `timeout` passes.
    fn sleep(&mut self, timeout: Duration) -> Result<(), FabricError> {
        if let Err(error) = self.completions.request_event() {
            return Err(self.fail(format!("the network card sends no events: {error}")));
        }
        if self.collect()? {
            return Ok(());
        }
        let events = (self.completions.descriptor(), PollFlags::IN);
        let link = (self.link.socket().as_fd(), PollFlags::RDHUP);
        match os::poll([events, link], timeout) {
            Ok([has_events, hung_up]) => {
                if !has_events.is_empty() {
                    self.completions.take_events();
                }
                if !hung_up.is_empty() {
                    self.link.await_farewell();
                }
                Ok(())
            }
            Err(error) => Err(self.fail(format!("waiting failed: {error}"))),
        }
    }

    /// Looks for completions for a little while, then sleeps until one may have come.
    fn look_and_sleep(&mut self, timeout: Duration) -> Result<(), FabricError> {
        let mut started = None;
        let awake = self.waiting.awake(timeout, BRIEF);
        loop {
            for _ in 0..LOOKS_PER_CLOCK {
                if self.collect()? {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let waited = started.get_or_insert_with(Instant::now).elapsed();
            if waited >= awake {
                return self.sleep(timeout.saturating_sub(waited));
            }
            // Who never sleeps sees only here that the connection is over.
            self.link.check()?;
        }
    }

    /// Copies the lines of a READ that was done three times.
    fn take_checked(&self, slot: Slot, is_long: bool, into: &mut [Line]) {
        let landed = |copy| self.arena.landed(slot, is_long, into.len(), copy);
        let (before, lines, after) = (landed(0), landed(1), landed(2));
        copy_lines(lines, into, CopyMode::Plain);
        for (index, line) in into.iter_mut().enumerate() {
            // Relaxed: the completion that was polled before came after the card's last store.
            let stamp = |words: &[farsight_base::sync::AtomicU64]| {
                words[index * WORDS_PER_LINE].load(Ordering::Relaxed)
            };
            if stamp(before) != line.0[0] || stamp(after) != line.0[0] {
                line.0[0] |= 1;
            }
        }
    }
}

fn post_receive(pair: &RcPair, arena: &Arena, place: usize) -> std::io::Result<()> {
    let piece: Piece = arena.memory.piece(arena.frame(CALLS_MAX + place) * 8, FRAME_BYTES);
    // SAFETY: the arena stays registered as long as the queue lives, which drops the queue pair before it.
    unsafe { pair.post_receive(RECEIVE | place as u64, piece) }
}

impl QueuePair for VerbsQueue {
    const SLOTS: usize = SLOTS;
    const MESSAGE_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;
    const GUARANTEES: Guarantees = GUARANTEES;

    fn peer(&self) -> &str {
        self.link.peer()
    }

    fn now(&self) -> MonotonicNs {
        self.clock.now()
    }

    fn attach(&mut self, region: RegionId) -> Result<u64, FabricError> {
        self.slots.check(&self.link, 0)?;
        self.link.check_owner()?;
        match self.regions.get(region) {
            // Its number never names another one: the server need not be asked.
            Some(known) if known.is_withdrawn() => {
                return Err(FabricError::UnknownRegion { peer: self.link.peer().to_owned(), region });
            }
            Some(known) => return Ok(known.length_bytes),
            None => {}
        }
        let attached = self.link.attach(region)?;
        let length_bytes = attached.length_bytes;
        self.regions.insert(region, attached);
        Ok(length_bytes)
    }

    fn detach(&mut self, region: RegionId) {
        if let Some(known) = self.regions.remove(region) {
            self.link.detach(region, known);
        }
    }

    fn notice(&self) -> u64 {
        self.link.notice()
    }

    fn post_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize, mode: ReadMode) {
        let length_bytes = (line_count as u64).saturating_mul(LINE_BYTES as u64);
        let Some((remote_address, key)) = self.target(slot, Verb::Read, from, length_bytes) else { return };
        let landing = match self.arena.landing(slot, line_count, self.slots.batch) {
            Ok(landing) => landing,
            Err(error) => return self.post_failed(slot, from.region, &error),
        };
        let work = SendWork {
            id: slot as u64,
            opcode: ffi::OPCODE_READ,
            remote_address,
            key_or_compare: u64::from(key),
            ..SendWork::default()
        };
        let is_checked = mode == ReadMode::Stamped && !self.reads_lines_whole;
        if is_checked {
            self.chain.push_stamped(work, landing.piece, landing.stride_bytes);
        } else {
            self.chain.push(work, landing.piece);
        }
        self.slots.post(
            slot,
            Content::Read { line_count: line_count as u16, is_long: landing.is_long, is_checked },
        );
        self.batch_meters.reads += 1;
        self.batch_meters.read_bytes += length_bytes;
    }

    fn post_write(&mut self, slot: Slot, to: RemoteAddress, words: &[u64]) {
        let length_bytes = size_of_val(words) as u64;
        let Some((remote_address, key)) = self.target(slot, Verb::Write, to, length_bytes) else { return };
        let piece = match self.arena.stage(words, self.slots.batch) {
            Ok(piece) => piece,
            Err(error) => return self.post_failed(slot, to.region, &error),
        };
        let flags = if piece.length_bytes <= self.pair.inline_bytes_max { ffi::SEND_INLINE } else { 0 };
        let work = SendWork {
            id: slot as u64,
            opcode: ffi::OPCODE_WRITE,
            flags,
            remote_address,
            key_or_compare: u64::from(key),
            ..SendWork::default()
        };
        self.chain.push(work, piece);
        self.slots.post(slot, Content::Write);
        self.batch_meters.writes += 1;
        self.batch_meters.write_bytes += length_bytes;
    }

    fn post_compare_swap(&mut self, slot: Slot, at: RemoteAddress, expected: u64, new: u64) {
        self.post_atomic(slot, at, Verb::CompareSwap, ffi::OPCODE_COMPARE_SWAP, [expected, new]);
    }

    fn post_fetch_add(&mut self, slot: Slot, at: RemoteAddress, delta: u64) {
        self.post_atomic(slot, at, Verb::FetchAdd, ffi::OPCODE_FETCH_ADD, [delta, 0]);
    }

    fn post_call(&mut self, slot: Slot, request: &[u8]) -> Result<(), FabricError> {
        if request.len() > Self::MESSAGE_BYTES_MAX {
            let limit_bytes = Self::MESSAGE_BYTES_MAX;
            return Err(FabricError::TooLarge { length_bytes: request.len(), limit_bytes });
        }
        if self.slots.refusals.is_broken() {
            self.slots.leave(slot, Refusal::Flushed, RegionId(0));
            return Ok(());
        }
        self.slots.set(slot, Content::AwaitedCall);
        self.batch_meters.calls += 1;
        self.batch_meters.call_bytes += request.len() as u64;
        self.calls.post(slot, request);
        Ok(())
    }

    fn doorbell(&mut self) -> Result<(), FabricError> {
        self.slots.check(&self.link, 0)?;
        self.link.check_owner()?;
        let (slots, staged) = (std::mem::take(&mut self.slots.batch_verbs), self.arena.staged());
        let calls = self.batch_meters.calls;
        if slots > 0 {
            let round = self.chain.take_round();
            self.send(UnderWay {
                works: 0,
                batch: Some(self.slots.batch),
                slots,
                windows: 0,
                staged,
                round,
            })?;
        }
        if calls > 0 {
            self.calls.ring();
            self.send_calls()?;
        }
        if slots as u64 + calls > 0 {
            self.batch_meters.doorbells = 1;
            self.meters += std::mem::take(&mut self.batch_meters);
        }
        self.completed += std::mem::take(&mut self.slots.batch_refused);
        self.slots.batch += 1;
        self.advance();
        Ok(())
    }

    fn poll(&mut self) -> Result<usize, FabricError> {
        self.slots.check(&self.link, 1)?;
        self.collect()?;
        self.send_calls()?;
        Ok(std::mem::take(&mut self.completed))
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), FabricError> {
        self.slots.check(&self.link, 1)?;
        if self.completed > 0 {
            return Ok(());
        }
        self.look_and_sleep(timeout)?;
        self.slots.check(&self.link, 1)
    }

    fn drain(&mut self) -> Result<(), FabricError> {
        let mut begun = None;
        while self.slots.complete_before < self.slots.batch {
            self.slots.check(&self.link, 1)?;
            self.look_and_sleep(ROOM_STEP)?;
            let waited = begun.get_or_insert_with(Instant::now).elapsed();
            if self.slots.complete_before < self.slots.batch && waited > STALL_TIMEOUT {
                return Err(FabricError::TimedOut {
                    peer: self.link.peer().to_owned(),
                    what: "a verb",
                    waited,
                });
            }
        }
        Ok(())
    }

    fn is_complete(&self, slot: Slot) -> bool {
        self.slots.is_complete(slot)
    }

    fn take_read(&mut self, slot: Slot, into: &mut [Line]) -> Result<(), FabricError> {
        let Content::Read { line_count, is_long, is_checked } = self.slots.content(slot) else {
            return Err(self.slots.error(&self.link, slot, "a READ"));
        };
        if !self.is_complete(slot) {
            return Err(self.slots.error(&self.link, slot, "a complete READ"));
        }
        assert!(usize::from(line_count) == into.len(), "as many lines are taken as were posted");
        if is_checked {
            self.take_checked(slot, is_long, into);
        } else {
            copy_lines(self.arena.landed(slot, is_long, into.len(), 0), into, CopyMode::Plain);
        }
        Ok(())
    }

    fn take_word(&mut self, slot: Slot) -> Result<u64, FabricError> {
        let content = self.slots.content(slot);
        match content {
            Content::Write if self.is_complete(slot) => Ok(0),
            // Relaxed: the completion that was polled before came after the card's store.
            Content::Atomic if self.is_complete(slot) => {
                Ok(self.arena.memory.words()[slot].load(Ordering::Relaxed))
            }
            _ => Err(self.slots.error(&self.link, slot, "a word")),
        }
    }

    fn take_reply(&mut self, slot: Slot, into: &mut Vec<u8>) -> Result<(), FabricError> {
        if self.slots.content(slot) != Content::AnsweredCall {
            return Err(self.slots.error(&self.link, slot, "a reply"));
        }
        self.slots.set(slot, Content::Nothing);
        self.calls.take(slot, into);
        Ok(())
    }

    fn meters(&self) -> Meters {
        self.meters
    }
}

impl Drop for VerbsQueue {
    fn drop(&mut self) {
        // A server that cannot be told knows already, or will when the connection ends. A forked child says
        // nothing in its parent's name.
        if self.link.check_owner().is_ok() {
            let _ = self.link.tell(FromClient::CloseQueue { queue: self.calls.queue() });
        }
    }
}
