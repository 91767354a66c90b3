//! GETs, a batch in stages: few rounds for all keys, and in each the same step of every key.
//!
//! Invariant: a key is answered here only by what its slot names, as in [`crate::recall`] and
//! [`crate::look`]. What does not end in these stages is looked up on its own.
//!
//! Protocol:
//! 1. Answer by a kept value, while its lease holds ([`crate::values`]). Look the other keys' addresses up.
//!    Other compute nodes may say where keys without are, or what they hold ([`crate::found_elsewhere`]).
//! 2. Of a key with an address READ the slot's line and the object, of any other one both buckets. Beside
//!    that READ the counters of shards whose leases are over, if one of these keys is shared.
//! 3. A slot has the remembered word: its object answers. It names another object that may be the key's, or
//!    exactly one slot of the buckets does: READ that object. No slot of the buckets does: the key is absent.
//!    That slot is shared: keep the value. It is not, and the key is read often: compare the slot with its
//!    word, and swap it for the same, shared. With replicas that begins a [change](crate::chain).
//! 4. An object is the key's, of its slot's generation: it answers.
//! 5. End those changes. Look up what is left: keys with several candidates or in sealed buckets, or an
//!    object that was used anew meanwhile.

use std::cell::RefCell;
use std::sync::Arc;

use farsight_base::Line;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::{FabricError, QueuePair, ReadMode, Slot};
use farsight_index::{Answers, Key};
use farsight_layout::hash_index::{
    CLOSINGS_LINES, COMBINED_BUCKETS, Candidate, HashSlot, Sharing, SlotState,
};

use crate::addresses::Address;
use crate::chain::Change;
use crate::found_elsewhere::VERSION_UNSAID;
#[cfg(injected)]
use crate::injected;
use crate::look::{Buckets, Looked, Object, identify, value_of};
use crate::session::VERBS_A_WRITE;
use crate::table::KeyLines;
use crate::values::Store;
use crate::{FlexError, FlexSession};

/// GETs side by side.
const GETS: usize = 64;
/// The slot of a READ of a shard's counters, behind those of keys.
const CLOSINGS_SLOT: Slot = 2 * GETS;

/// What a key waits for.
#[derive(Clone, Copy)]
enum Awaited {
    /// Nothing: it is answered, or absent.
    Nothing,
    /// The line of its slot, and the object that was remembered.
    Recalled(Address, Candidate),
    /// Its buckets.
    Buckets,
    /// The same as if it were remembered: another compute node said that it is there.
    Said(Address),
    /// An object that may be its own.
    Object(Candidate),
    /// Its slot, which has this word and shall be shared. It is answered.
    Shared(Address),
    /// The replicas behind the head, which had this word when it was to be shared. It is answered.
    Carried(Address, HashSlot),
    /// A look on its own.
    Look,
}

/// A key of a batch.
#[derive(Clone, Copy)]
pub(crate) struct StagedGet {
    of: KeyLines,
    awaited: Awaited,
    /// What the counter of its partition has reached, before anything was posted.
    closings: u64,
}

/// The answers of a batch.
pub(crate) struct Answering<'a> {
    answers: &'a mut Answers,
    /// `None` if values have any length.
    fixed_bytes: Option<usize>,
    /// Where values are kept, if they are.
    store: Option<Arc<Store>>,
}

impl StagedGet {
    /// Where the key stands, if it is there.
    pub(crate) fn of(&self) -> KeyLines {
        self.of
    }

    /// True if it is not answered yet.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.awaited, Awaited::Nothing)
    }

    /// Notes that it is answered.
    pub(crate) fn set_answered(&mut self) {
        self.awaited = Awaited::Nothing;
    }

    /// Notes where another compute node said that it is.
    pub(crate) fn set_said(&mut self, address: Address) {
        self.awaited = Awaited::Said(address);
    }
}

impl Answering<'_> {
    pub(crate) fn answer(
        &mut self,
        index: usize,
        key: Key<'_>,
        version: u64,
        value: &[u8],
    ) -> Result<(), FlexError> {
        match self.fixed_bytes {
            None => self.answers.set_value(index, version, value),
            Some(max_bytes) if value.len() != max_bytes => {
                // No compute node writes it.
                return Err(FlexError::Operand { key: key.into(), got_bytes: value.len(), max_bytes });
            }
            Some(_) => {
                self.answers.value_mut(index).copy_from_slice(value);
                self.answers.set_version(index, version);
            }
        }
        Ok(())
    }
}

/// The slots of a key in each queue: of its first READ, of its second.
pub(crate) fn slots(index: usize) -> [Slot; 2] {
    [2 * index, 2 * index + 1]
}

impl FlexSession {
    /// The values of `keys` into `answers`.
    ///
    /// # Errors
    /// [`FlexError`]; then `answers` is undefined.
    pub fn multi_get<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[Key<'_>],
        answers: &mut Answers,
    ) -> Result<(), FlexError> {
        let fixed_bytes = self.fixed_bytes();
        match fixed_bytes {
            Some(value_bytes) => answers.reset(keys.len(), value_bytes),
            None => answers.reset_any_length(keys.len()),
        }
        self.count(|counters| counters.gets += keys.len() as u64);
        let until = self.believed_until(queues[0].now())?;
        if self.values.store().is_some() && !self.values.is_known() {
            // Before any lease is trusted.
            self.calls.keep_values().map_err(FlexError::of_call)?;
            self.values.set_known();
        }
        let helpers = self.helpers();
        let mut answering = Answering { answers, fixed_bytes, store: self.values.store() };
        let mut staged = self.buffers.staged.lend();
        for (number, keys) in keys.chunks(GETS).enumerate() {
            let first = number * GETS;
            self.stage(keys, &mut staged);
            let now = answering.store.is_some().then(|| queues[0].now());
            if let Some(now) = now
                && self.answer_kept(now, (first, keys), &mut staged, &mut answering)? == keys.len()
            {
                continue;
            }
            if let Some(helpers) = helpers {
                self.ask_helpers(helpers, (first, keys), &mut staged, &mut answering);
            }
            let renewed = self.post_looks(queues, &mut staged, now);
            ring(queues)?;
            if let Some(now) = now {
                self.take_closings(queues, now, renewed)?;
            }
            self.take_looks(queues, (first, keys), &mut staged, &mut answering)?;
            ring(queues)?;
            self.take_objects(queues, (first, keys), &mut staged, &mut answering)?;
            if answering.store.is_some() {
                self.end_sharing(queues, keys, &staged)?;
            }
            self.look_rest(queues, (first, keys), &staged, &mut answering)?;
        }
        self.check_believed(until, queues[0].now())
    }

    /// Brings near what is remembered of the keys.
    fn stage(&self, keys: &[Key<'_>], staged: &mut Vec<StagedGet>) {
        let mut addresses = self.addresses.borrow_mut();
        let sets = addresses.refresh();
        staged.clear();
        staged.extend(keys.iter().map(|key| {
            let of = self.table.lines_of(*key);
            sets.prefetch(of.hash);
            StagedGet { of, awaited: Awaited::Buckets, closings: 0 }
        }));
    }

    /// Answers keys whose values are kept, where the lease holds `now`: how many.
    fn answer_kept(
        &self,
        now: MonotonicNs,
        (first, keys): (usize, &[Key<'_>]),
        staged: &mut [StagedGet],
        answering: &mut Answering<'_>,
    ) -> Result<usize, FlexError> {
        let Some(store) = answering.store.clone() else { return Ok(0) };
        let mut hits = 0;
        for (index, (key, staged)) in keys.iter().zip(staged).enumerate() {
            let of = staged.of;
            let lease = self.values.lease(of.shard);
            let holds = lease.holds(now);
            staged.closings =
                lease.closings(self.table.shape(of.shard).closings_counter(of.hash.partition()));
            let mut answered = Ok(());
            let is_kept = holds
                && store.give((of.hash, of.identity), staged.closings, |version, value| {
                    answered = answering.answer(first + index, *key, version, value);
                });
            answered?;
            if is_kept {
                staged.awaited = Awaited::Nothing;
                hits += 1;
            }
        }
        self.count(|counters| counters.value_hits += hits as u64);
        Ok(hits)
    }

    /// Posts what says where the keys are. Where values are kept, it posts READs of counters, too: of the
    /// shards that it returns, by their bits, one a node.
    fn post_looks<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        staged: &mut [StagedGet],
        keeping: Option<MonotonicNs>,
    ) -> u64 {
        let (mut renewed, mut nodes) = (0_u64, 0_u64);
        for (index, staged) in staged.iter_mut().enumerate() {
            if matches!(staged.awaited, Awaited::Nothing) {
                continue;
            }
            let ([first, second], of) = (slots(index), staged.of);
            let tail = self.table.tail(of.shard);
            let queue = &mut queues[tail.node];
            let known = match staged.awaited {
                Awaited::Said(address) => Some(address),
                _ => self.known_address(of),
            };
            let recalled = known.and_then(|address| {
                self.named(of, address.place, address.word).map(|(candidate, at)| (address, candidate, at))
            });
            let Some((address, candidate, at)) = recalled else {
                for (slot, line) in [first, second].into_iter().zip(of.first_lines) {
                    queue.post_read(slot, tail.index_address(line), COMBINED_BUCKETS, ReadMode::Plain);
                }
                staged.awaited = Awaited::Buckets;
                continue;
            };
            queue.post_read(first, tail.index_address(address.place.line), 1, ReadMode::Plain);
            queue.post_read(second, at, candidate.object.place.lines.into(), ReadMode::Plain);
            staged.awaited = Awaited::Recalled(address, candidate);
            let is_over = |now| !self.values.lease(of.shard).holds(now);
            if candidate.sharing == Sharing::Shared
                && nodes >> tail.node & 1 == 0
                && keeping.is_some_and(is_over)
            {
                (renewed, nodes) = (renewed | 1 << of.shard, nodes | 1 << tail.node);
                let from = tail.index_address(self.table.shape(of.shard).closings_line());
                queue.post_read(CLOSINGS_SLOT, from, CLOSINGS_LINES, ReadMode::Plain);
            }
        }
        renewed
    }

    /// Takes what counters say that were READ behind `now`, and so renews leases.
    fn take_closings<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        now: MonotonicNs,
        renewed: u64,
    ) -> Result<(), FlexError> {
        for shard in (0..self.table.shards()).filter(|shard| renewed >> shard & 1 == 1) {
            let mut lines = [Line::ZERO; CLOSINGS_LINES];
            queues[self.table.tail(shard).node].take_read(CLOSINGS_SLOT, &mut lines)?;
            self.values.lease(shard).renew(now, &lines);
        }
        Ok(())
    }

    /// Takes that, answers what is known by it, and posts READs of objects.
    fn take_looks<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (first, keys): (usize, &[Key<'_>]),
        staged: &mut [StagedGet],
        answering: &mut Answering<'_>,
    ) -> Result<(), FlexError> {
        for (index, (key, staged)) in keys.iter().zip(staged).enumerate() {
            let of = staged.of;
            let tail = self.table.tail(of.shard);
            let queue = &mut queues[tail.node];
            staged.awaited = match staged.awaited {
                Awaited::Recalled(address, candidate) => {
                    let place = (index, first + index);
                    self.take_recalled(queue, place, (*key, *staged), (address, candidate), answering)?
                }
                Awaited::Buckets => self.take_buckets(queue, index, of)?,
                answered => answered,
            };
            if let Awaited::Shared(address) = staged.awaited {
                let ((before, after), at) = (to_shared(address), self.table.head(of.shard));
                #[cfg(injected)]
                let at = if injected::SHARED_AT_TAIL.is_injected() { tail } else { at };
                let place = at.slot_address(address.place);
                queues[at.node].post_compare_swap(slots(index)[0], place, before.0, after.0);
            }
            let Awaited::Object(Candidate { object, .. }) = staged.awaited else { continue };
            let queue = &mut queues[tail.node];
            if self.table.has_object(of.shard, object.place) {
                let at = tail.object_address(object.place);
                queue.post_read(slots(index)[0], at, object.place.lines.into(), ReadMode::Plain);
            } else {
                staged.awaited = Awaited::Look;
            }
        }
        Ok(())
    }

    /// Answers a key by the object that was remembered, if its slot names that still. `index` is the key's
    /// number among those under way, and in the batch.
    fn take_recalled<Q: QueuePair>(
        &self,
        queue: &mut Q,
        index: (usize, usize),
        (key, StagedGet { of, closings, .. }): (Key<'_>, StagedGet),
        (address, candidate): (Address, Candidate),
        answering: &mut Answering<'_>,
    ) -> Result<Awaited, FlexError> {
        let now = take_slot(queue, index.0, address)?;
        if !now.is_alike(address.word) {
            if let Some(store) = &answering.store {
                store.note_write(of.hash);
            }
            self.forget(of, address.word);
            // Another object there may be the key's. If it is not, the buckets tell.
            let named = self.named(of, address.place, now).map(|(candidate, _)| candidate);
            return Ok(named.map_or(Awaited::Look, Awaited::Object));
        }
        let mut object = self.object_buffer();
        let lines = take_object(queue, slots(index.0)[1], candidate, &mut object)?;
        let Object::OfKey(version) = identify(key, candidate.object.place.generation, lines) else {
            return Ok(Awaited::Look);
        };
        self.count(|counters| counters.address_hits += 1);
        if address.version == VERSION_UNSAID {
            // Its word is one that this compute node has seen by now.
            self.remember(of, address.place, now, version);
        }
        let value = value_of(lines);
        answering.answer(index.1, key, version, value)?;
        let Some(store) = &answering.store else { return Ok(Awaited::Nothing) };
        let is_wanted = store.note_read(of.hash);
        let address = Address { word: now, version, ..address };
        let sharing = now.sharing();
        #[cfg(injected)]
        let sharing = if sharing == Sharing::Closing && injected::CLOSING_KEPT.is_injected() {
            Sharing::Shared
        } else {
            sharing
        };
        match sharing {
            Sharing::Unshared if is_wanted => return Ok(Awaited::Shared(address)),
            Sharing::Shared => {
                store.keep((of.hash, of.identity), closings, (version, value));
                self.remember(of, address.place, now, version);
            }
            Sharing::Unshared | Sharing::Closing => {}
        }
        Ok(Awaited::Nothing)
    }

    /// What buckets say that were READ.
    fn take_buckets<Q: QueuePair>(
        &self,
        queue: &mut Q,
        index: usize,
        of: KeyLines,
    ) -> Result<Awaited, FlexError> {
        let mut buckets = Buckets::default();
        for (slot, lines) in slots(index).into_iter().zip(buckets.lines.chunks_mut(COMBINED_BUCKETS)) {
            queue.take_read(slot, lines)?;
        }
        if buckets.are_sealed(of) {
            return Ok(Awaited::Look);
        }
        let mut candidates = self.buffers.candidates.lend();
        buckets.candidates(of, &mut candidates);
        Ok(match candidates[..] {
            [] => Awaited::Nothing,
            [candidate] => Awaited::Object(candidate),
            _ => Awaited::Look,
        })
    }

    /// Takes the objects, and answers by those that are the keys'.
    fn take_objects<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (first, keys): (usize, &[Key<'_>]),
        staged: &mut [StagedGet],
        answering: &mut Answering<'_>,
    ) -> Result<(), FlexError> {
        let mut object = self.object_buffer();
        for (index, (key, staged)) in keys.iter().zip(staged).enumerate() {
            if let Awaited::Shared(address) = staged.awaited {
                let at = self.table.head(staged.of.shard);
                #[cfg(injected)]
                let at = if injected::SHARED_AT_TAIL.is_injected() {
                    self.table.tail(staged.of.shard)
                } else {
                    at
                };
                let found = HashSlot(queues[at.node].take_word(slots(index)[0])?);
                staged.awaited = self.note_shared(staged.of, address, found);
            }
            let Awaited::Object(candidate) = staged.awaited else { continue };
            let queue = &mut queues[self.table.tail(staged.of.shard).node];
            let lines = take_object(queue, slots(index)[0], candidate, &mut object)?;
            staged.awaited = match identify(*key, candidate.object.place.generation, lines) {
                Object::OfKey(version) => {
                    self.remember(staged.of, candidate.place, candidate.live(), version);
                    answering.answer(first + index, *key, version, value_of(lines))?;
                    Awaited::Nothing
                }
                Object::OfOther | Object::Stale(_) => Awaited::Look,
            };
        }
        Ok(())
    }

    /// What is to be done yet of a key whose slot was to be shared. Its head's word was `found`.
    fn note_shared(&self, of: KeyLines, address: Address, found: HashSlot) -> Awaited {
        // It is shared by now, or others have it already, or they have closed it.
        let word = if found == address.word { to_shared(address).1 } else { found };
        if word.is_alike(address.word) {
            self.remember(of, address.place, word, address.version);
        }
        let is_replicated = self.table.is_replicated(of.shard);
        #[cfg(injected)]
        let is_replicated = is_replicated && !injected::SHARED_AT_TAIL.is_injected();
        if is_replicated { Awaited::Carried(address, found) } else { Awaited::Nothing }
    }

    /// Has the replicas behind heads follow that have shared slots.
    fn end_sharing<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[Key<'_>],
        staged: &[StagedGet],
    ) -> Result<(), FlexError> {
        let mut begun = self.buffers.rest.lend();
        begun.clear();
        begun.extend((0..keys.len()).filter(|index| matches!(staged[*index].awaited, Awaited::Carried(..))));
        self.run(queues, Q::SLOTS / VERBS_A_WRITE, begun.iter().copied(), &async |slot, index: usize| {
            let StagedGet { of, awaited: Awaited::Carried(address, found), .. } = staged[index] else {
                return Ok(());
            };
            let followed = self.follow(&slot, (keys[index], of), address.place, to_shared(address), found);
            followed.await.map(drop).map_err(FlexError::unchanged)
        })
    }

    /// Looks up the keys that are left, side by side.
    fn look_rest<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (first, keys): (usize, &[Key<'_>]),
        staged: &[StagedGet],
        answering: &mut Answering<'_>,
    ) -> Result<(), FlexError> {
        let mut rest = self.buffers.rest.lend();
        rest.clear();
        let waits = |index: &usize| matches!(staged[*index].awaited, Awaited::Look);
        rest.extend((0..keys.len()).filter(waits));
        self.count(|counters| counters.slow_path += rest.len() as u64);
        let answering = RefCell::new(answering);
        self.run(queues, GETS, rest.iter().copied(), &async |slot, index: usize| {
            let mut object = self.object_buffer();
            if let Looked::Present { version, .. } = self.look(&slot, keys[index], &mut object).await? {
                answering.borrow_mut().answer(first + index, keys[index], version, value_of(&object))?;
            }
            Ok(())
        })
    }
}

/// Sends what was posted, and waits until it is complete.
pub(crate) fn ring<Q: QueuePair>(queues: &mut [Q]) -> Result<(), FabricError> {
    // Each before any is waited for: one round trip for all nodes. All of them, also if one fails: what a
    // queue was left with the next batch would find there.
    let rung = queues.iter_mut().map(Q::doorbell).fold(Ok(()), Result::and);
    queues.iter_mut().map(Q::drain).fold(rung, Result::and)
}

/// The change of a slot that is to be shared.
fn to_shared(address: Address) -> Change {
    let after = match address.word.state() {
        SlotState::Live(object) => HashSlot::live_in(object, Sharing::Shared),
        _ => address.word,
    };
    (address.word, after)
}

/// The word of a slot whose line was READ.
fn take_slot<Q: QueuePair>(queue: &mut Q, index: usize, address: Address) -> Result<HashSlot, FlexError> {
    let mut room = [Line::ZERO];
    let line = queue.view_read(slots(index)[0], &mut room)?;
    let now = HashSlot(line[0].0[1 + usize::from(address.place.slot)]);
    #[cfg(injected)]
    let now = if injected::SLOT_NOT_COMPARED.is_injected() { address.word } else { now };
    Ok(now)
}

/// The lines of a candidate's object, which was READ.
fn take_object<'o, Q: QueuePair>(
    queue: &'o mut Q,
    slot: Slot,
    candidate: Candidate,
    room: &'o mut Vec<Line>,
) -> Result<&'o [Line], FlexError> {
    room.resize(candidate.object.place.lines.into(), Line::ZERO);
    Ok(queue.view_read(slot, room)?)
}
