//! READs, WRITEs and atomics: when they are sent, when they execute, when they complete.
//!
//! Invariant: the order of two verbs of one queue pair is what its guarantees say and nothing else; where
//! they say nothing, both orders happen.
//!
//! Protocol: a READ's lines are taken from the region's history when its result arrives, each at a moment of
//! its own between the READ's begin and its end. WRITEs and atomics execute as events, in pieces.

use farsight_base::prng::mix;
use farsight_base::sync::Ordering;
use farsight_base::words::CopyMode;
use farsight_base::{Line, RegionId, WORDS_PER_LINE};
use farsight_fabric::refusals::Refusal;
use farsight_fabric::{AtomicUnit, FabricError, Guarantees, ReadMode, Region as _, Slot};

use crate::fault::{Fault, FlippedRead};
use crate::history::{TakenLine, present, present_lines};
#[cfg(injected)]
use crate::injected;
use crate::network::Way;
use crate::pair::{Atomic, Content, Operation, Phase, Read, Verb};
use crate::state::{ClientState, Event, HostState, State};
use crate::timing::Timing;
use crate::trace::{self, Who, Words, digest_lines};
use crate::watch::Step;

/// Of the READs that may execute when they are taken, one in so many does.
const READ_LATE_ONE_IN: u64 = 4;

impl State {
    /// Sends the open batch of `pair`.
    pub(crate) fn ring(&mut self, pair: usize) -> Result<(), FabricError> {
        if let Err(error) = self.check_pair(pair, 0) {
            // A client that goes on with a dead queue pair posts into an empty batch.
            self.pairs[pair].flush();
            return Err(error);
        }
        let own = &mut self.pairs[pair];
        own.batch += 1;
        for slot in own.refused.drain(..) {
            let held = &mut own.slots[slot];
            if held.phase == Phase::Posted && is_refused(held.content) {
                held.phase = Phase::Complete;
                own.completed += 1;
            }
        }
        if own.posted.is_empty() {
            return Ok(());
        }
        own.batch_meters.doorbells = 1;
        own.meters += std::mem::take(&mut own.batch_meters);
        let mut posted = std::mem::take(&mut own.posted);
        if self.pricing.is_some() {
            self.ring_priced(pair, posted);
            return Ok(());
        }
        let dies = self.dies_in_batch();
        let is_cut = dies.is_some() || self.strike(Fault::BrokenQueue).is_some();
        let cut_at = is_cut.then(|| self.random.below(posted.len() as u64) as usize);
        let client = self.pairs[pair].client;
        let is_ordered = self.hosts[self.clients[client].host].guarantees.writes_in_order;
        for (index, (slot, serial, verb)) in posted.drain(..).enumerate() {
            let is_launched = match cut_at {
                Some(at) if index >= at => {
                    // Half of the WRITE that the cut falls into may have left.
                    let is_part = index == at && matches!(verb, Verb::Write { .. });
                    (is_part || !is_ordered) && self.random.below(2) == 0
                }
                _ => true,
            };
            if is_launched {
                self.trace.note(self.now_ns, [2, client as u64, slot as u64, serial], || {
                    trace::sent(pair, slot, &verb, self.pairs[pair].slots[slot].content)
                });
                self.launch(pair, slot, serial, verb, cut_at == Some(index));
            }
        }
        let own = &mut self.pairs[pair];
        own.posted = posted;
        if is_cut {
            own.refusals.break_down(own.batch, "the connection broke in the middle of a batch".to_owned());
            own.flush();
        }
        if let Some(group) = dies {
            self.kill_group(group);
        }
        Ok(())
    }

    fn launch(&mut self, pair: usize, slot: Slot, serial: u64, verb: Verb, is_torn: bool) {
        let client = &self.clients[self.pairs[pair].client];
        let (host, guarantees) = (client.host, self.hosts[client.host].guarantees);
        let is_current = self.set_under_way(pair, slot, serial, matches!(verb, Verb::Call(_)));
        match verb {
            // A READ that its slot no longer holds fetches for nobody.
            Verb::Read if is_current => self.launch_read(pair, slot, serial, &guarantees),
            Verb::Read => {}
            Verb::Write { region, first, words } => {
                self.note_written(pair, region, first, words.len());
                let Some(begins_ns) = self.begin_write_ns(pair, &guarantees) else { return };
                // How far behind its completion it is executed.
                let behind_ns = self.strike(Fault::EarlyCompletion);
                let start_ns = begins_ns + behind_ns.unwrap_or(0);
                let part = Part { region, first, words: &words, is_torn };
                let end_ns = self.launch_write(pair, &part, start_ns, &guarantees);
                self.schedule_completion(pair, slot, serial, behind_ns.map_or(end_ns, |_| begins_ns));
            }
            Verb::Atomic(atomic) => {
                self.note_locking(pair, serial, &atomic);
                let Some(begins_ns) = self.begin_atomic_ns(pair, &guarantees) else { return };
                let after_ns = self.pairs[pair].atomic_until_ns.max(self.hosts[host].atomic_until_ns);
                let at_ns = begins_ns.max(after_ns) + self.timing.atomic_ns;
                self.pairs[pair].atomic_until_ns = at_ns;
                self.hosts[host].atomic_until_ns = at_ns;
                self.schedule(at_ns, Event::Atomic { pair, slot, serial, atomic });
            }
            Verb::Call(request) => {
                self.note_called(pair);
                self.launch_call(pair, slot, serial, request);
            }
        }
    }

    /// Notes that a verb is sent; false if its slot has given it up.
    pub(crate) fn set_under_way(&mut self, pair: usize, slot: Slot, serial: u64, is_call: bool) -> bool {
        let own = &mut self.pairs[pair];
        if own.slots[slot].serial != serial {
            return false;
        }
        own.slots[slot].phase = Phase::UnderWay;
        own.verbs_under_way += usize::from(!is_call);
        true
    }

    /// When a verb that is sent now begins to execute; `None` if it never does.
    fn begin_ns(&mut self, pair: usize) -> Option<u64> {
        let leaves_ns = self.now_ns + self.delay_ns(Fault::SlowVerb);
        self.crossing_ns(self.pairs[pair].client, Way::ToServer, leaves_ns)
    }

    /// [`State::begin_ns`] of a WRITE. Where WRITEs keep their order, a card that gives one up leaves out all
    /// behind it, also one that would have left after the cut.
    fn begin_write_ns(&mut self, pair: usize, guarantees: &Guarantees) -> Option<u64> {
        let begins_ns = self.begin_ns(pair);
        let has_given_up = begins_ns.is_none() && guarantees.writes_in_order;
        #[cfg(injected)]
        let has_given_up = has_given_up && !injected::SENT_BEHIND_GIVEN_UP.is_injected();
        self.pairs[pair].has_given_up |= has_given_up;
        begins_ns.filter(|_| !self.pairs[pair].has_given_up)
    }

    /// [`State::begin_ns`] of an atomic. Behind WRITEs, if it executes after them, it is left out with them.
    fn begin_atomic_ns(&mut self, pair: usize, guarantees: &Guarantees) -> Option<u64> {
        if !guarantees.atomic_after_write {
            return self.begin_ns(pair);
        }
        let begins_ns = self.begin_write_ns(pair, guarantees)?;
        Some(begins_ns.max(self.pairs[pair].write_until_ns))
    }

    fn launch_read(&mut self, pair: usize, slot: Slot, serial: u64, guarantees: &Guarantees) {
        let Some(mut start_ns) = self.begin_ns(pair) else { return };
        if guarantees.read_after_atomic {
            start_ns = start_ns.max(self.pairs[pair].atomic_until_ns);
        }
        let within_ns = self.timing.lines_ns + self.delay_ns(Fault::SpreadRead);
        let seed = self.random.next_u64();
        let Content::Read(read) = &mut self.pairs[pair].slots[slot].content else {
            unreachable!("a posted READ is its slot's content")
        };
        *read = Read { start_ns, within_ns, seed, ..*read };
        let end_ns = start_ns + within_ns + self.timing.words_ns;
        let own = &mut self.pairs[pair];
        own.read_until_ns = own.read_until_ns.max(end_ns);
        if start_ns < own.write_until_ns {
            self.note_strike(Fault::OvertakenWrite);
        }
        self.schedule_completion(pair, slot, serial, end_ns);
    }

    /// Schedules the pieces of a WRITE; returns when the last of them is in place.
    fn launch_write(&mut self, pair: usize, part: &Part<'_>, begins_ns: u64, guarantees: &Guarantees) -> u64 {
        let &Part { region, first, words, is_torn } = part;
        let mut start_ns = begins_ns;
        if guarantees.writes_in_order {
            start_ns = start_ns.max(self.pairs[pair].write_until_ns);
        }
        if guarantees.write_after_read {
            start_ns = start_ns.max(self.pairs[pair].read_until_ns);
        }
        if start_ns < self.pairs[pair].read_until_ns {
            self.note_strike(Fault::EarlyWrite);
        }
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < words.len() {
            let to_line_end = WORDS_PER_LINE - (first + done) % WORDS_PER_LINE;
            let mut count = to_line_end.min(words.len() - done);
            if guarantees.atomic_unit == AtomicUnit::Word {
                count = 1 + self.random.below(count as u64) as usize;
            }
            if is_torn && self.random.below(2) == 0 {
                self.note_strike(Fault::TornWrite);
            } else {
                pieces.push(done..done + count);
            }
            done += count;
        }
        let lines_ns = self.timing.lines_ns.max(1);
        let mut moments_ns: Vec<u64> =
            pieces.iter().map(|_| start_ns + self.random.below(lines_ns)).collect();
        // Many a card moves a WRITE from front to back: what is seen of it then is rare by chance.
        if self.random.below(2) == 0 {
            moments_ns.sort_unstable();
        }
        let client = self.pairs[pair].client;
        let end_ns = moments_ns.iter().copied().max().unwrap_or(start_ns);
        for (piece, at_ns) in pieces.into_iter().zip(moments_ns) {
            let store =
                Event::Store { client, region, first: first + piece.start, words: words[piece].to_vec() };
            self.schedule(at_ns, store);
        }
        self.pairs[pair].write_until_ns = end_ns;
        end_ns
    }

    pub(crate) fn schedule_completion(&mut self, pair: usize, slot: Slot, serial: u64, end_ns: u64) {
        let leaves_ns = end_ns + self.delay_ns(Fault::LateCompletion);
        let client = self.pairs[pair].client;
        if let Some(at_ns) = self.crossing_ns(client, Way::ToProgram, leaves_ns) {
            self.schedule(at_ns, Event::Complete { pair, slot, serial });
        }
    }

    /// A piece of a WRITE reaches memory, unless its client is over.
    pub(crate) fn store(&mut self, client: usize, region: usize, first: usize, words: &[u64]) {
        let (now_ns, floor_ns) = (self.now_ns, self.floor_ns());
        let ClientState { host, is_over, .. } = self.clients[client];
        if is_over {
            self.note_strike(Fault::TornWrite);
        }
        if is_over || !self.hosts[host].is_alive || self.hosts[host].is_gone(region) {
            return;
        }
        let (memory, history) = &mut self.hosts[host].regions[region];
        for (word, new) in (first..).zip(words) {
            // Release: what a verb wrote before is seen by a real thread that sees this.
            let old = memory.words()[word].swap(*new, Ordering::Release);
            history.note(word, old, now_ns, true, floor_ns);
        }
        let length = words.len();
        self.trace.note(now_ns, [3, host as u64, region as u64, first as u64, length as u64], || {
            let lines = (first % WORDS_PER_LINE + length).div_ceil(WORDS_PER_LINE);
            Words::new(Who::Client(client), format!("stores {length} words by WRITE")).at(
                region,
                first / WORDS_PER_LINE,
                lines,
            )
        });
    }

    /// An atomic executes, unless its client is over: then it returns false.
    pub(crate) fn execute_atomic(&mut self, pair: usize, slot: Slot, serial: u64, atomic: Atomic) -> bool {
        let ClientState { host, is_over, .. } = self.clients[self.pairs[pair].client];
        if is_over || !self.hosts[host].is_alive {
            return false;
        }
        if self.hosts[host].is_gone(atomic.region) {
            self.lose_region(pair, slot, serial, atomic.region);
            return true;
        }
        let (now_ns, floor_ns) = (self.now_ns, self.floor_ns());
        let loaded_ns = now_ns - self.timing.atomic_ns.min(now_ns);
        let (memory, history) = &mut self.hosts[host].regions[atomic.region];
        let line = atomic.word / WORDS_PER_LINE;
        // Loaded a little before it is stored: what the processor stores in between is lost.
        let at_ns = if history.verb_stored_after(atomic.word, loaded_ns) { now_ns } else { loaded_ns };
        let now = present(memory, line, CopyMode::Plain);
        let found = history.line(line, now, at_ns).0[atomic.word % WORDS_PER_LINE];
        let new = match atomic.operation {
            Operation::CompareSwap { expected, new } => (found == expected).then_some(new),
            Operation::FetchAdd { delta } => Some(found.wrapping_add(delta)),
        };
        if let Some(new) = new {
            let old = memory.words()[atomic.word].swap(new, Ordering::AcqRel);
            history.note(atomic.word, old, now_ns, true, floor_ns);
        } else {
            self.note_not_locked(pair, serial);
        }
        let held = &mut self.pairs[pair].slots[slot];
        if held.serial == serial {
            held.word = found;
        }
        if self.hosts[host].guarantees.read_after_atomic {
            // Where time is the machine's an atomic may execute late; the READs behind it begin no earlier.
            for held in self.pairs[pair].slots.iter_mut().filter(|held| held.serial > serial) {
                if let Content::Read(read) = &mut held.content {
                    read.start_ns = read.start_ns.max(now_ns);
                }
            }
        }
        self.trace.note(now_ns, [4, pair as u64, slot as u64, found], || {
            Words::new(Who::Pair(pair), format!("stores by {}, slot {slot}, found {found:#x}", atomic.text()))
                .at(atomic.region, line, 1)
        });
        true
    }

    /// A verb's result arrives.
    pub(crate) fn complete(&mut self, pair: usize, slot: Slot, serial: u64) {
        let held = &self.pairs[pair].slots[slot];
        let is_lost = self.clients[self.pairs[pair].client].lost.is_some();
        if held.serial != serial && !is_lost && !self.pairs[pair].is_closed {
            return self.note_strike(Fault::StaleReply);
        }
        if held.serial != serial || held.phase != Phase::UnderWay || is_lost {
            return;
        }
        // Where verbs have prices, the lines were taken when the READ reached the card.
        if let (Content::Read(read), None) = (held.content, &self.pricing) {
            self.execute_read(pair, slot, &read);
            if serial < self.pairs[pair].newest_read {
                self.note_strike(Fault::OvertakenRead);
            }
            self.pairs[pair].newest_read = self.pairs[pair].newest_read.max(serial);
        }
        let own = &mut self.pairs[pair];
        own.slots[slot].phase = Phase::Complete;
        own.verbs_under_way -= 1;
        own.completed += 1;
        self.wake_pair(pair);
    }

    /// A READ is about to be taken. A card that need not have executed it yet executes it now, one in a few.
    pub(crate) fn read_late(&mut self, pair: usize, slot: Slot) {
        let held = &self.pairs[pair].slots[slot];
        let (Content::Read(read), None) = (held.content, &self.pricing) else { return };
        if held.phase != Phase::Complete || self.random.below(READ_LATE_ONE_IN) != 0 {
            return;
        }
        let Timing { lines_ns, words_ns, .. } = self.timing;
        let start_ns = self.now_ns.saturating_sub(lines_ns + words_ns).max(read.start_ns);
        let within_ns = lines_ns.min(self.now_ns - start_ns);
        let late = Read { start_ns, within_ns, seed: self.random.next_u64(), ..read };
        self.execute_read(pair, slot, &late);
    }

    /// A verb has found the memory gone.
    pub(crate) fn lose_region(&mut self, pair: usize, slot: Slot, serial: u64, region: usize) {
        let held = &mut self.pairs[pair].slots[slot];
        if held.serial == serial {
            held.content = Content::Refused(Refusal::Withdrawn, RegionId(region as u32 + 1));
        }
    }

    /// Takes the lines of a READ, each as it was at its moment.
    fn execute_read(&mut self, pair: usize, slot: Slot, read: &Read) {
        if self.hosts[self.clients[self.pairs[pair].client].host].is_gone(read.region) {
            let serial = self.pairs[pair].slots[slot].serial;
            return self.lose_region(pair, slot, serial, read.region);
        }
        self.decay(pair, read);
        let mut lines = std::mem::take(&mut self.pairs[pair].slots[slot].lines);
        lines.resize(read.count, Line::ZERO);
        let host = &self.hosts[self.clients[self.pairs[pair].client].host];
        let (region, history) = &host.regions[read.region];
        present_lines(region, read.first_line, &mut lines, read.mode.copy_mode());
        let begin_ns = read.start_ns.min(host.still_from_ns(read.region));
        let mut torn = 0;
        for (index, line) in lines.iter_mut().enumerate() {
            if history.changes_after(read.first_line + index, begin_ns) {
                torn += u64::from(self.take_line(host, read, index, line));
            }
        }
        self.strikes.count_many(Fault::TornLine, torn);
        self.flip(pair, read, &mut lines);
        let digest = digest_lines(&lines);
        self.trace.note(self.now_ns, [5, pair as u64, slot as u64, digest], || {
            Words::new(Who::Pair(pair), trace::brought(slot, &lines)).at(
                read.region,
                read.first_line,
                read.count,
            )
        });
        self.pairs[pair].slots[slot].lines = lines;
    }

    /// A rule may flip a bit of what a READ brings. The process whose READ it is may ask for it.
    fn flip(&mut self, pair: usize, read: &Read, lines: &mut [Line]) {
        if self.flips.is_empty() || self.strike(Fault::FlippedBit).is_none() {
            return;
        }
        let line = self.random.below(lines.len() as u64) as usize;
        let number = read.first_line + line;
        let Some((word, bit)) = self.choose_flip(number, &lines[line]) else { return };
        lines[line].0[word] ^= bit;
        self.trace.remark(self.now_ns, || {
            Words::new(Who::Pair(pair), format!("is brought a flipped bit of word {word}: {bit:#x}")).at(
                read.region,
                number,
                1,
            )
        });
        if let Some(process) = self.pairs[pair].opened_by {
            self.processes[process].flipped.push(FlippedRead { lines: lines.to_vec(), line, word, bit });
        }
    }

    /// A rule may flip a bit of the memory that a READ is about to fetch.
    fn decay(&mut self, pair: usize, read: &Read) {
        if self.flips.is_empty() || self.strike(Fault::DecayedBit).is_none() {
            return;
        }
        let host = self.clients[self.pairs[pair].client].host;
        let line = read.first_line + self.random.below(read.count as u64) as usize;
        let now = present(&self.hosts[host].regions[read.region].0, line, CopyMode::Plain);
        let Some((word, bit)) = self.choose_flip(line, &now) else { return };
        let (now_ns, floor_ns) = (self.now_ns, self.floor_ns());
        let (memory, history) = &mut self.hosts[host].regions[read.region];
        let place = line * WORDS_PER_LINE + word;
        // Relaxed: nothing is published by it.
        let old = memory.words()[place].fetch_xor(bit, Ordering::Relaxed);
        history.note(place, old, now_ns, false, floor_ns);
        self.trace.note(now_ns, [14, host as u64, place as u64, bit], || {
            Words::new(Who::Host(host), format!("loses a bit of word {word}: {bit:#x}")).at(
                read.region,
                line,
                1,
            )
        });
    }

    /// One of the bits that may flip in `line`, which holds `now`: its word, and the bit. No line that is
    /// being written becomes one that is not: that would be no flipped bit but a torn line that says nothing.
    fn choose_flip(&mut self, line: usize, now: &Line) -> Option<(usize, u64)> {
        let mut mask = self.flips[line % self.flips.len()].0;
        mask[0] &= !(now.0[0] & 1);
        let count: u32 = mask.iter().map(|word| word.count_ones()).sum();
        let mut chosen = self.random.below(u64::from(count.max(1))) as u32;
        for (word, mask) in mask.into_iter().enumerate() {
            if chosen < mask.count_ones() {
                let bit = (0..64).filter(|bit| mask >> bit & 1 == 1).nth(chosen as usize);
                return bit.map(|bit| (word, 1 << bit));
            }
            chosen -= mask.count_ones();
        }
        None
    }

    /// Makes `taken`, the present line of a READ that may have changed since the READ began, what it was at
    /// its moment. True if it was torn.
    fn take_line(&self, host: &HostState, read: &Read, index: usize, taken: &mut Line) -> bool {
        let history = &host.regions[read.region].1;
        let line = read.first_line + index;
        let at_ns = if host.guarantees.read_lines_in_order {
            read.start_ns + read.within_ns * index as u64 / read.count as u64
        } else {
            read.start_ns + part_of(read.within_ns, mix(read.seed ^ index as u64))
        };
        let still_ns = host.still_from_ns(read.region);
        let at_ns = at_ns.min(still_ns);
        if !history.changes_after(line, at_ns) {
            return false;
        }
        if host.guarantees.atomic_unit == AtomicUnit::Line {
            *taken = history.line(line, *taken, at_ns);
            return false;
        }
        // A byte for each word's moment.
        let moments = mix(read.seed ^ (index as u64 + 1) << 32);
        let words_ns = std::array::from_fn(|word| {
            let within_ns = part_of(self.timing.words_ns, moments << (8 * word));
            (at_ns + within_ns).min(still_ns)
        });
        let end_ns = (at_ns + self.timing.words_ns).min(still_ns);
        let TakenLine { before, after, words } = history.words(line, *taken, &words_ns, [at_ns, end_ns]);
        *taken = words;
        #[cfg(injected)]
        if farsight_base::injected::NO_SECOND_LOOK.is_injected() {
            return true;
        }
        if read.mode == ReadMode::Stamped {
            // The card looks at the stamp before and after, as the contract asks of it.
            taken.0[0] = before.0[0] | u64::from(before.0[0] != after.0[0]);
        }
        words != before && words != after
    }

    /// Makes what the processor logged visible, one store after the other from `start_ns` on; returns when
    /// the last of it is.
    pub(crate) fn spread_stores(&mut self, steps: &[Step], start_ns: u64) -> u64 {
        let floor_age_ns = self.floor_ns();
        let store_ns = self.timing.store_ns_max.max(1);
        // Nothing after the last fence is visible before `floor_ns`; everything so far is by `last_ns`.
        let (mut floor_ns, mut last_ns) = (start_ns, start_ns);
        let mut stored = Vec::new();
        for step in steps {
            match *step {
                Step::Fence => floor_ns = last_ns,
                Step::Store { place, word, old, is_release } => {
                    let base_ns = if is_release { last_ns } else { floor_ns };
                    let at_ns = base_ns + self.random.below(store_ns) + self.delay_ns(Fault::SlowWriter);
                    if self.hosts[place.host].is_gone(place.region) {
                        continue;
                    }
                    let (_, history) = &mut self.hosts[place.host].regions[place.region];
                    let at_ns = history.note(word, old, at_ns, false, floor_age_ns);
                    last_ns = last_ns.max(at_ns);
                    self.tell_store(&mut stored, place, word, at_ns);
                }
            }
        }
        self.tell_stores(stored);
        last_ns
    }
}

/// Words that a WRITE stores; of a torn one, some of them.
struct Part<'w> {
    region: usize,
    first: usize,
    words: &'w [u64],
    is_torn: bool,
}

/// A part of a time, from nothing to nearly all of it as `random` is small or great.
fn part_of(time_ns: u64, random: u64) -> u64 {
    ((u128::from(time_ns) * u128::from(random)) >> 64) as u64
}

fn is_refused(content: Content) -> bool {
    matches!(content, Content::Refused(..))
}
