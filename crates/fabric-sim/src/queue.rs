//! A client's queue pair.
//!
//! Invariant: whatever a region's bounds or rights forbid is refused when it is posted, by what the client
//! learned at attaching.

use std::marker::PhantomData;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress, WORDS_PER_LINE};
use farsight_fabric::lane::STALL_TIMEOUT;
use farsight_fabric::refusals::{Extent, Refusal, Verb as VerbName};
use farsight_fabric::{FabricError, Guarantees, Meters, QueuePair, ReadMode, Region as _, Slot};

use crate::kind::Kind;
use crate::pair::{Atomic, Content, Operation, Pair, Phase, Read, SLOTS, Verb};
use crate::state::State;
use crate::world::World;

/// Bytes of the longest request or reply.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// A queue pair of a simulated card.
pub struct SimQueue<K: Kind> {
    world: Arc<World>,
    pair: usize,
    peer: String,
    kind: PhantomData<K>,
}

impl<K: Kind> SimQueue<K> {
    /// A queue pair of `client`.
    pub(crate) fn open(world: &Arc<World>, client: usize, peer: &str) -> Result<Self, FabricError> {
        let mut state = world.state();
        if let Some(lost) = state.lost(client) {
            return Err(lost);
        }
        let host = state.clients[client].host;
        let port = state.next_port(host);
        let opened_by = state.running;
        state.pairs.push(Pair::new(client, opened_by, port));
        let pair = state.pairs.len() - 1;
        state.clients[client].pairs.push(pair);
        Ok(Self { world: Arc::clone(world), pair, peer: peer.to_owned(), kind: PhantomData })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.world.state()
    }

    fn post(&mut self, slot: Slot, at: RemoteAddress, name: VerbName, verb: Checked<'_>) {
        let mut state = self.state();
        let bytes = verb.bytes();
        match place(&mut state, self.pair, at, name, &verb) {
            Ok(region) => {
                let first = (at.offset_bytes / 8) as usize;
                let own = &mut state.pairs[self.pair];
                let meters = &mut own.batch_meters;
                let (content, verb) = match verb {
                    Checked::Read { count, mode } => {
                        meters.reads += 1;
                        meters.read_bytes += bytes;
                        let first_line = first / WORDS_PER_LINE;
                        let read =
                            Read { region, first_line, count, mode, start_ns: 0, within_ns: 0, seed: 0 };
                        (Content::Read(read), Verb::Read)
                    }
                    Checked::Write(words) => {
                        meters.writes += 1;
                        meters.write_bytes += bytes;
                        (Content::Word, Verb::Write { region, first, words: words.to_vec() })
                    }
                    Checked::Atomic(operation) => {
                        meters.atomics += 1;
                        (Content::Word, Verb::Atomic(Atomic { region, word: first, operation }))
                    }
                };
                assert!(own.posted.len() < SLOTS, "a batch holds at most {SLOTS} verbs");
                let serial = own.hold(slot, content);
                own.slots[slot].word = 0;
                own.posted.push((slot, serial, verb));
            }
            Err(refusal) => state.pairs[self.pair].leave(slot, Content::Refused(refusal, at.region)),
        }
    }

    /// Waits until none of its verbs is under way.
    fn drain_within(&self, timeout: Duration) -> Result<(), FabricError> {
        let mut state = self.state();
        state.set_draining(self.pair, true);
        let reads_ns = |state: &State| MonotonicNs(state.pair_clock(self.pair).reads_ns(state.now_ns));
        let deadline = reads_ns(&state).plus(timeout);
        loop {
            state.check_pair(self.pair, 1)?;
            if state.pairs[self.pair].verbs_under_way == 0 {
                return Ok(());
            }
            let left = deadline.since(reads_ns(&state));
            if left.is_zero() {
                let what = "a batch of verbs";
                return Err(FabricError::TimedOut { peer: self.peer.clone(), what, waited: timeout });
            }
            // What completed is known from the count above.
            state.pairs[self.pair].completed = 0;
            state = self.wait_with(state, left)?;
        }
    }

    /// Waits until a verb is complete, with the state in hand before and behind it.
    fn wait_with<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        timeout: Duration,
    ) -> Result<MutexGuard<'a, State>, FabricError> {
        let pair = self.pair;
        state.tempt_process(pair);
        state.check_pair(pair, 1)?;
        let is_over = |state: &State| state.pairs[pair].completed > 0 || state.check_pair(pair, 1).is_err();
        let announce = |state: &mut State, waiter| state.pairs[pair].waiter = Some(waiter);
        let state = self.world.wait_with(state, timeout, is_over, announce);
        state.check_pair(pair, 1)?;
        Ok(state)
    }

    /// The error of a slot that does not hold what was to be taken.
    fn slot_error(&self, state: &State, slot: Slot, wanted: &str) -> FabricError {
        let own = &state.pairs[self.pair];
        let lost = state.lost(own.client);
        match (own.slots[slot].content, lost) {
            (Content::Refused(Refusal::Flushed, _), Some(lost)) if !own.refusals.is_broken() => lost,
            (Content::Refused(refusal, region), _) => own.refusals.error(refusal, region, &self.peer),
            (content, lost) => {
                let link = lost.map_or(Ok(()), Err);
                own.refusals.nothing_to_take(slot, content, wanted, link, &self.peer)
            }
        }
    }
}

/// A verb that is about to be checked.
#[derive(Clone, Copy)]
enum Checked<'a> {
    Read { count: usize, mode: ReadMode },
    Write(&'a [u64]),
    Atomic(Operation),
}

impl Checked<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Self::Read { count, .. } => (*count as u64).saturating_mul(LINE_BYTES as u64),
            Self::Write(words) => words.len() as u64 * 8,
            Self::Atomic(_) => 8,
        }
    }
}

/// The index of the region in which all of `verb` lies.
fn place(
    state: &mut State,
    pair: usize,
    at: RemoteAddress,
    name: VerbName,
    verb: &Checked<'_>,
) -> Result<usize, Refusal> {
    let own = &state.pairs[pair];
    let index = region_index(state, pair, at.region).filter(|index| own.attached.get(*index) == Some(&true));
    let extent = index.map(|index| {
        let region = &state.hosts[state.clients[own.client].host].regions[index].0;
        Extent {
            rights: region.rights(),
            length_bytes: region.words().len() as u64 * 8,
            is_withdrawn: state.has_heard_withdrawn(pair, index),
        }
    });
    let own = &mut state.pairs[pair];
    own.refusals.permit(own.batch, name, at, verb.bytes(), extent)?;
    Ok(index.expect("a verb is permitted where there is a region"))
}

fn region_index(state: &State, pair: usize, region: RegionId) -> Option<usize> {
    let host = state.clients[state.pairs[pair].client].host;
    let index = (region.0 as usize).checked_sub(1)?;
    (index < state.hosts[host].regions.len()).then_some(index)
}

impl<K: Kind> QueuePair for SimQueue<K> {
    const SLOTS: usize = SLOTS;
    const MESSAGE_BYTES_MAX: usize = MESSAGE_BYTES_MAX;
    const GUARANTEES: Guarantees = K::GUARANTEES;

    fn peer(&self) -> &str {
        &self.peer
    }

    fn now(&self) -> MonotonicNs {
        let state = self.state();
        MonotonicNs(state.pair_clock(self.pair).reads_ns(state.now_ns))
    }

    fn attach(&mut self, region: RegionId) -> Result<u64, FabricError> {
        let mut state = self.state();
        state.check_pair(self.pair, 0)?;
        let host = state.clients[state.pairs[self.pair].client].host;
        let index = region_index(&state, self.pair, region);
        let Some(index) = index.filter(|index| !state.hosts[host].is_withdrawn(*index)) else {
            return Err(FabricError::UnknownRegion { peer: self.peer.clone(), region });
        };
        let own = &mut state.pairs[self.pair];
        if own.attached.len() <= index {
            own.attached.resize(index + 1, false);
        }
        own.attached[index] = true;
        Ok(state.hosts[host].regions[index].0.words().len() as u64 * 8)
    }

    fn detach(&mut self, region: RegionId) {
        let mut state = self.state();
        let index = region_index(&state, self.pair, region);
        let attached = &mut state.pairs[self.pair].attached;
        if let Some(attached) = index.and_then(|index| attached.get_mut(index)) {
            *attached = false;
        }
    }

    fn notice(&self) -> u64 {
        self.state().notice(self.pair)
    }

    fn post_read(&mut self, slot: Slot, from: RemoteAddress, line_count: usize, mode: ReadMode) {
        self.post(slot, from, VerbName::Read, Checked::Read { count: line_count, mode });
    }

    fn post_write(&mut self, slot: Slot, to: RemoteAddress, words: &[u64]) {
        self.post(slot, to, VerbName::Write, Checked::Write(words));
    }

    fn post_compare_swap(&mut self, slot: Slot, at: RemoteAddress, expected: u64, new: u64) {
        self.post(slot, at, VerbName::CompareSwap, Checked::Atomic(Operation::CompareSwap { expected, new }));
    }

    fn post_fetch_add(&mut self, slot: Slot, at: RemoteAddress, delta: u64) {
        self.post(slot, at, VerbName::FetchAdd, Checked::Atomic(Operation::FetchAdd { delta }));
    }

    fn post_call(&mut self, slot: Slot, request: &[u8]) -> Result<(), FabricError> {
        if request.len() > MESSAGE_BYTES_MAX {
            return Err(FabricError::TooLarge {
                length_bytes: request.len(),
                limit_bytes: MESSAGE_BYTES_MAX,
            });
        }
        let mut state = self.state();
        let own = &mut state.pairs[self.pair];
        if own.refusals.is_broken() {
            own.leave(slot, Content::Refused(Refusal::Flushed, RegionId(0)));
            return Ok(());
        }
        own.batch_meters.calls += 1;
        own.batch_meters.call_bytes += request.len() as u64;
        let serial = own.hold(slot, Content::Call);
        let mut bytes = state.room_for_bytes();
        bytes.extend_from_slice(request);
        state.pairs[self.pair].posted.push((slot, serial, Verb::Call(bytes)));
        Ok(())
    }

    fn doorbell(&mut self) -> Result<(), FabricError> {
        let mut state = self.state();
        state.tempt_process(self.pair);
        state.ring(self.pair)?;
        drop(state);
        self.world.tell();
        Ok(())
    }

    fn poll(&mut self) -> Result<usize, FabricError> {
        let mut state = self.world.run_due();
        state.check_pair(self.pair, 1)?;
        Ok(std::mem::take(&mut state.pairs[self.pair].completed))
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), FabricError> {
        self.wait_with(self.state(), timeout).map(drop)
    }

    fn drain(&mut self) -> Result<(), FabricError> {
        let drained = self.drain_within(STALL_TIMEOUT);
        self.state().set_draining(self.pair, false);
        drained
    }

    fn is_complete(&self, slot: Slot) -> bool {
        let state = self.state();
        let held = state.pairs[self.pair].slots.get(slot);
        held.is_some_and(|held| held.phase == Phase::Complete && held.content != Content::Nothing)
    }

    fn take_read(&mut self, slot: Slot, into: &mut [Line]) -> Result<(), FabricError> {
        let mut state = self.state();
        if !K::GUARANTEES.read_before_completion {
            state.read_late(self.pair, slot);
        }
        let held = &state.pairs[self.pair].slots[slot];
        if !matches!(held.content, Content::Read(_)) || held.phase != Phase::Complete {
            return Err(self.slot_error(&state, slot, "a READ"));
        }
        assert_eq!(held.lines.len(), into.len(), "as many lines are taken as were posted");
        into.copy_from_slice(&held.lines);
        Ok(())
    }

    fn take_word(&mut self, slot: Slot) -> Result<u64, FabricError> {
        let state = self.state();
        let held = &state.pairs[self.pair].slots[slot];
        if held.content != Content::Word || held.phase != Phase::Complete {
            return Err(self.slot_error(&state, slot, "a word"));
        }
        Ok(held.word)
    }

    fn take_reply(&mut self, slot: Slot, into: &mut Vec<u8>) -> Result<(), FabricError> {
        let mut state = self.state();
        let held = &mut state.pairs[self.pair].slots[slot];
        if held.content != Content::Call || held.phase != Phase::Complete {
            return Err(self.slot_error(&state, slot, "a reply"));
        }
        held.content = Content::Nothing;
        let mut room = std::mem::take(&mut held.reply);
        std::mem::swap(into, &mut room);
        state.keep_room(room);
        Ok(())
    }

    fn meters(&self) -> Meters {
        self.state().pairs[self.pair].meters
    }
}

impl<K: Kind> Drop for SimQueue<K> {
    fn drop(&mut self) {
        let mut state = self.state();
        let own = &mut state.pairs[self.pair];
        own.is_closed = true;
        own.flush();
        own.waiter = None;
    }
}
