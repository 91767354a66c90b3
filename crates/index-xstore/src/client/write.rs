//! Writes: calls with a position hint for each key.
//!
//! The hint is where the learned cache believes the key to be, so that the server need not go down its tree.
//! It is only a hint: the server checks the leaf's fences under its latch. No READ is spent on it.
//!
//! Protocol: entries go out in calls, several in flight, each rung when it is encoded. The client waits for
//! the oldest reply, which makes room for the next call. So the server always has one to work on. One queue
//! pair's calls execute in order.
//!
//! A value that no message carries goes before its write, in pieces ([`Pieces`]).
//!
//! Over connections that may break, each call has an identity ([`Authorship`]). After a loss another engine
//! repeats the lost calls, one after the other, before it sends anything new.
//!
//! Where the values before come back and have any length, a reply may be of the first entries alone. Then one
//! call is in flight at a time, and the next one begins with the entries that were not executed.

use farsight_fabric::QueuePair;
use farsight_fabric::lane::Lane;
use farsight_index::{LostCall, OldValues};
use farsight_protocol::{
    CALLS_UNANSWERED_MAX, DecodeError, ErrorCode, HEADER_BYTES, Operand, Reply, Request, SentOutcome,
    ServerError, ValueEntries, ValueKind, WriteEntries, WriteEntry, WriteOperation, WriteOutcome, padded,
};

use super::authorship::{envelope_bytes, is_of_forgotten};
use super::hints::HintBatch;
use super::pieces::{Pieces, code_of_refused_piece, goes_in_pieces};
use super::{XClient, XStoreError};
#[cfg(injected)]
use crate::injected;

/// Entries of one call at most: large enough to hide a call's cost, small enough that the server begins while
/// the client still encodes the next.
const ENTRIES_PER_CALL: usize = 128;
/// Calls in flight.
pub(super) const CALLS_IN_FLIGHT: usize = 8;

const _: () = assert!(CALLS_IN_FLIGHT <= CALLS_UNANSWERED_MAX, "a node keeps as many answers");

/// What was sent in calls whose replies are awaited, a place each.
pub(super) struct Sent {
    counts: [usize; CALLS_IN_FLIGHT],
    /// The numbers of calls that write.
    sequences: [u64; CALLS_IN_FLIGHT],
    /// The value of which the call has a piece, or which it writes, if it goes in pieces.
    values: [Option<u64>; CALLS_IN_FLIGHT],
    hints: [HintBatch<ENTRIES_PER_CALL>; CALLS_IN_FLIGHT],
}

/// A batch of writes under way.
pub(super) struct Writing {
    /// The place of the oldest call in flight.
    first: usize,
    in_flight: usize,
    /// What comes with each outcome.
    pub(super) returned: Returned,
    /// Entries of the call that was answered last that were not executed. They come first in the next.
    pub(super) left_over: usize,
    /// The value of the next entry, if pieces of it were sent.
    pieces: Option<Pieces>,
    /// The last value of which a piece was refused: its outcome is known.
    failed: Option<u64>,
    /// The first refusal, or answer that is none.
    pub(super) done: Result<(), XStoreError>,
}

/// The value before that comes with an outcome.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Returned {
    Nothing,
    /// Of so many bytes.
    Fixed(usize),
    AnyLength,
}

impl Returned {
    /// What the operation returns in a table with such values.
    pub(super) fn by(operation: WriteOperation, values: ValueKind) -> Self {
        match values {
            _ if !operation.returns_value() => Self::Nothing,
            ValueKind::Fixed(bytes) => Self::Fixed(bytes.into()),
            ValueKind::Blocks { .. } => Self::AnyLength,
        }
    }
}

impl Default for Writing {
    fn default() -> Self {
        Self {
            first: 0,
            in_flight: 0,
            returned: Returned::Nothing,
            left_over: 0,
            pieces: None,
            failed: None,
            done: Ok(()),
        }
    }
}

impl Writing {
    /// True if another call may be sent now.
    fn may_send(&self, is_repeating: bool) -> bool {
        let is_alone = is_repeating || self.returned == Returned::AnyLength;
        let in_flight_max = if is_alone { 1 } else { CALLS_IN_FLIGHT };
        self.done.is_ok() && self.in_flight < in_flight_max
    }

    /// True if the node refused a call as a whole, and the caller will hear that. Where an author was
    /// forgotten all calls are refused, and sent again.
    fn is_refused(&self) -> bool {
        matches!(self.done, Err(XStoreError::Server(_))) && !is_of_forgotten(&self.done)
    }

    /// Says of the refusal that writes behind it may have been executed.
    fn lose(&mut self) {
        self.done = match std::mem::replace(&mut self.done, Ok(())) {
            Err(XStoreError::Server(refusal)) => Err(XStoreError::Lost(refusal)),
            done => done,
        };
    }
}

impl Sent {
    /// The calls of a batch that write and are not answered, the oldest first.
    fn calls_under_way(&self, writing: &Writing) -> impl Iterator<Item = LostCall> {
        let slots = (0..writing.in_flight).map(|behind| (writing.first + behind) % CALLS_IN_FLIGHT);
        slots.filter(|slot| self.counts[*slot] > 0).map(|slot| {
            let (sequence, entries) = (self.sequences[slot], self.counts[slot]);
            LostCall { sequence, entries }
        })
    }

    pub(super) fn new() -> Self {
        let (counts, sequences) = ([0; CALLS_IN_FLIGHT], [0; CALLS_IN_FLIGHT]);
        let values = [None; CALLS_IN_FLIGHT];
        Self { counts, sequences, values, hints: std::array::from_fn(|_| HintBatch::new()) }
    }
}

/// How many of the entries one call carries, the first ones. One too long for any is refused when it is
/// posted.
fn fitting_values<'v, Q: QueuePair>(entries: impl Iterator<Item = (u64, &'v [u8])>) -> usize {
    let mut bytes = envelope_bytes::<Q>() + HEADER_BYTES;
    let fits = |(_, value): &(u64, &[u8])| {
        bytes += ValueEntries::entry_bytes(value.len());
        bytes <= Q::MESSAGE_BYTES_MAX
    };
    entries.take(ENTRIES_PER_CALL).take_while(fits).count().max(1)
}

impl XClient {
    /// Executes `operation` on each of `entries` (key, operand), in their order, and appends what became of
    /// each to `outcomes`. If the operation returns the values before, one an outcome is appended to
    /// `old_values`.
    ///
    /// # Errors
    /// [`XStoreError`]; then `outcomes` holds those of the calls before the failed one. The failed call was
    /// not executed if the server refused it, perhaps if [`XStoreError::is_indeterminate`]; calls after it
    /// perhaps.
    ///
    /// # Panics
    /// If an operand is not of the operation's size in this table.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "callers have an iterator, which is cloned for each try"
    )]
    pub fn write<'v, Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        operation: WriteOperation,
        entries: impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), XStoreError> {
        let returned = Returned::by(operation, self.cache.table().definition.values);
        let mut writing = Writing { returned, ..Writing::default() };
        self.begin_batch();
        let written = self.write_calls(queue, &mut writing, operation, &entries, outcomes, old_values);
        let written = written.and_then(|()| std::mem::replace(&mut writing.done, Ok(())));
        if written.is_err() {
            self.keep_lost(&writing);
        } else {
            self.counters.writes += entries.len() as u64;
        }
        written
    }

    /// Sends the entries, and takes what becomes of them.
    fn write_calls<'v, Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        writing: &mut Writing,
        operation: WriteOperation,
        entries: &(impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone),
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), XStoreError> {
        self.take_refresh(queue)?;
        let from = |executed: usize| {
            let mut left = entries.clone();
            left.by_ref().take(executed).for_each(drop);
            left
        };
        let mut left = entries.clone();
        while self.send_more(queue, writing, operation, &mut left)? {
            self.take_oldest(queue, writing, outcomes, old_values)?;
            if writing.left_over > 0 {
                left = from(entries.len() - left.len() - std::mem::take(&mut writing.left_over));
            }
        }
        Ok(())
    }

    /// Keeps what is under way when a batch fails, for an engine that goes on with it.
    pub(super) fn keep_lost(&mut self, writing: &Writing) {
        let Self { authorship, sent, .. } = self;
        self.lost = authorship.take_lost(sent.calls_under_way(writing));
    }

    /// Sends calls with the next entries, as many as may be in flight. True if any is; else all is done.
    pub(super) fn send_more<'v, Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        writing: &mut Writing,
        operation: WriteOperation,
        entries: &mut (impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone),
    ) -> Result<bool, XStoreError> {
        loop {
            while writing.may_send(self.authorship.is_repeating()) && entries.len() > 0 && !self.wants_model()
            {
                self.send(queue, writing, operation, entries)?;
                self.ask_for_refresh(queue)?;
            }
            if writing.in_flight > 0 {
                return Ok(true);
            }
            if is_of_forgotten(&writing.done) && self.authorship.begin_anew() {
                // None of what it refused was executed. It is sent again by another author.
                writing.done = Ok(());
                if let Some(Pieces { number, .. }) = writing.pieces.take() {
                    self.let_go(queue, number)?;
                }
                continue;
            }
            if writing.done.is_err() || entries.len() == 0 {
                if let Some(Pieces { number, .. }) = writing.pieces.take() {
                    self.let_go(queue, number)?;
                }
                return Ok(false);
            }
            self.fetch_model(queue)?;
        }
    }

    /// Waits for the oldest call in flight. All replies are awaited, whatever one of them says: no write
    /// stays in flight behind a failure.
    pub(super) fn take_oldest<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        writing: &mut Writing,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), XStoreError> {
        let slot = writing.first;
        Lane::new(queue).await_reply(slot, &mut self.reply)?;
        if writing.is_refused()
            && self.sent.counts[slot] > 0
            && !matches!(Reply::decode(&self.reply), Ok(Err(_)))
        {
            // A call behind the refused one was executed: nobody reports these outcomes.
            writing.lose();
        }
        let value = self.sent.values[slot].filter(|_| writing.done.is_ok());
        let is_piece = value.is_some_and(|number| {
            let is_known = writing.failed == Some(number);
            is_known || self.sent.counts[slot] == 0
        });
        if let Some(number) = value.filter(|_| is_piece) {
            let refused = self.take_piece(writing, number);
            if let Some(code) = refused.filter(|_| self.authorship.is_repeating()) {
                // The write may have been executed before.
                let text = "a piece of its value was refused when it was sent again";
                writing.done = Err(XStoreError::Lost(ServerError::new(code, text)));
                return self.end_oldest(queue, writing);
            }
            if let Some(code) = refused {
                outcomes.push(WriteOutcome::Failed(code));
                if writing.returned != Returned::Nothing {
                    old_values.push(&[]);
                }
            }
        }
        if writing.done.is_ok() && !is_piece {
            let before = (outcomes.len(), old_values.len());
            writing.done = match writing.returned {
                Returned::Nothing => self.take_outcomes(slot, outcomes),
                returned => self.take_exchanged(slot, returned, outcomes, old_values),
            };
            if writing.done.is_err() {
                outcomes.truncate(before.0);
                old_values.truncate(before.1);
            } else if writing.returned == Returned::AnyLength {
                writing.left_over = self.sent.counts[slot] - (outcomes.len() - before.0);
            }
            if self.authorship.is_repeating() {
                return self.end_repeated(queue, writing, slot);
            }
        }
        if is_of_forgotten(&writing.done) && !is_piece {
            // So were all calls behind it.
            writing.left_over = self.sent.counts[slot];
        }
        self.end_oldest(queue, writing)
    }

    /// After the reply to a repeated call: goes on to the next, or asks for the reply again.
    fn end_repeated<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        writing: &mut Writing,
        slot: usize,
    ) -> Result<(), XStoreError> {
        match std::mem::replace(&mut writing.done, Ok(())) {
            Ok(()) => self.authorship.count_repeated(),
            Err(refusal) if self.asks_again(queue, &refusal)? => {
                writing.left_over = self.sent.counts[slot];
            }
            // Whether that was said of the first copy or of this one, nobody knows.
            Err(XStoreError::Server(refusal)) => writing.done = Err(XStoreError::Lost(refusal)),
            Err(error) => writing.done = Err(error),
        }
        self.end_oldest(queue, writing)?;
        match self.sent.values[slot] {
            // A write that was answered without being executed leaves what was sent of its value.
            Some(number) => self.let_go(queue, number),
            None => Ok(()),
        }
    }

    /// Gives the oldest call's place to another.
    fn end_oldest<Q: QueuePair>(&mut self, queue: &mut Q, writing: &mut Writing) -> Result<(), XStoreError> {
        writing.first = (writing.first + 1) % CALLS_IN_FLIGHT;
        writing.in_flight -= 1;
        self.take_refresh(queue)
    }

    /// Takes the reply to a piece of the value of this number. Returns how the value has failed, if it has
    /// with this piece.
    fn take_piece(&mut self, writing: &mut Writing, number: u64) -> Option<ErrorCode> {
        if writing.failed == Some(number) {
            return None;
        }
        let refused = match Reply::decode(&self.reply) {
            Ok(Ok(_)) => return None,
            Ok(Err(error)) => XStoreError::from(error),
            Err(error) => error.into(),
        };
        let code = match &refused {
            XStoreError::Server(error) => code_of_refused_piece(error),
            _ => None,
        };
        if code.is_some() {
            writing.failed = Some(number);
        } else {
            writing.done = Err(refused);
        }
        code
    }

    /// Sends the next entries in one call, or a piece of the next entry's value. After a refused piece, goes
    /// on behind that entry.
    fn send<'v, Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        writing: &mut Writing,
        operation: WriteOperation,
        entries: &mut (impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone),
    ) -> Result<(), XStoreError> {
        if writing.pieces.is_some_and(|pieces| writing.failed == Some(pieces.number)) {
            writing.pieces = None;
            entries.next();
            return Ok(());
        }
        if Q::GUARANTEES.connections_break {
            self.begin_author(queue)?;
        }
        let slot = (writing.first + writing.in_flight) % CALLS_IN_FLIGHT;
        self.pin();
        let values = self.cache.table().definition.values;
        let have_any_length = operation.has_value() && values.are_blocks();
        let next = entries
            .clone()
            .next()
            .filter(|(_, operand)| have_any_length && goes_in_pieces::<Q>(operation, operand));
        if let Some((key, operand)) = next {
            self.encode_piece_or_write::<Q>(writing, slot, operation, key, operand);
            if writing.pieces.is_none() {
                entries.next();
            }
        } else {
            self.encode_entries::<Q>(slot, operation, have_any_length, entries);
        }
        if Q::GUARANTEES.connections_break && self.sent.counts[slot] > 0 {
            self.identify(writing, slot);
        }
        writing.in_flight += 1;
        queue.post_call(slot, &self.request)?;
        Ok(queue.doorbell()?)
    }

    /// Gives the call in this place, which is sent next, its identity.
    fn identify(&mut self, writing: &Writing, slot: usize) {
        let Self { authorship, sent, request, .. } = self;
        let sequence = authorship.next_number();
        sent.sequences[slot] = sequence;
        let oldest = sent.calls_under_way(writing).next();
        authorship.enclose(request, sequence, oldest.map_or(sequence, |call| call.sequence));
    }

    /// Encodes the next piece of a value, or its write if all were sent.
    fn encode_piece_or_write<Q: QueuePair>(
        &mut self,
        writing: &mut Writing,
        slot: usize,
        operation: WriteOperation,
        key: u64,
        operand: &[u8],
    ) {
        let table = self.cache.table().id;
        let operand =
            Operand::of_any_length(operation, operand).expect("the caller has looked at its values");
        let mut pieces = writing.pieces.take().unwrap_or_else(|| Pieces::new(self.cache.next_number()));
        let sent = &mut *self.sent;
        sent.values[slot] = Some(pieces.number);
        if pieces.encode_next::<Q>(&mut self.request, table, key, operand.value) {
            sent.counts[slot] = 0;
            writing.pieces = Some(pieces);
            return;
        }
        sent.counts[slot] = 1;
        let hints = &mut sent.hints[slot];
        hints.keys[0] = key;
        hints.find(1, self.model.as_deref(), &mut self.refreshes);
        pieces.encode_write(&mut self.request, table, operation, (key, hints.leaves[0]), operand);
    }

    /// Encodes the next entries, as many as one call carries.
    fn encode_entries<'v, Q: QueuePair>(
        &mut self,
        slot: usize,
        operation: WriteOperation,
        have_any_length: bool,
        entries: &mut (impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone),
    ) {
        let value_bytes = self.cache.reader().value_bytes();
        let operand_bytes = operation.operand_bytes(value_bytes);
        // An answer with values before is no longer than the request.
        let fitting = if have_any_length {
            fitting_values::<Q>(entries.clone())
        } else {
            let room_bytes = Q::MESSAGE_BYTES_MAX - envelope_bytes::<Q>() - HEADER_BYTES;
            room_bytes / (16 + padded(operand_bytes))
        };
        let most = self.authorship.next_lost().map_or(ENTRIES_PER_CALL, |lost| lost.entries);
        let count = entries.len().min(most).min(fitting);
        let sent = &mut *self.sent;
        sent.counts[slot] = count;
        sent.values[slot] = None;
        let hints = &mut sent.hints[slot];
        for (place, (key, _)) in hints.keys[..count].iter_mut().zip(entries.clone()) {
            *place = key;
        }
        hints.find(count, self.model.as_deref(), &mut self.refreshes);
        let (request, table) = (&mut self.request, self.cache.table().id);
        let hinted = hints.leaves[..count].iter().zip(entries);
        let entries = hinted.map(|(hint, (key, value))| WriteEntry { key, hint: *hint, value });
        if have_any_length {
            Request::begin_write_values(request, table, operation, count);
            entries.for_each(|entry| ValueEntries::push(request, entry));
        } else {
            Request::begin_write(request, table, operation, count, value_bytes);
            for entry in entries {
                assert_eq!(entry.value.len(), operand_bytes, "the caller has looked at its values");
                WriteEntries::push(request, entry);
            }
        }
    }

    /// Appends the outcomes in one reply, all of them or none.
    fn take_outcomes(&mut self, slot: usize, outcomes: &mut Vec<WriteOutcome>) -> Result<(), XStoreError> {
        let before = outcomes.len();
        let count = self.sent.counts[slot];
        let HintBatch { keys, pages, .. } = &self.sent.hints[slot];
        let asked = pages.iter().zip(keys);
        for (sent, (page, key)) in Reply::decode(&self.reply)??.outcomes(count)?.zip(asked) {
            match sent {
                Ok(sent) => {
                    outcomes.push(sent.outcome);
                    if sent.is_hint_wrong {
                        self.refreshes.count_miss(*page, *key);
                    }
                }
                Err(error) => {
                    outcomes.truncate(before);
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }

    /// [`XClient::take_outcomes`], with the values before; of a reply that is none, any.
    fn take_exchanged(
        &mut self,
        slot: usize,
        returned: Returned,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), XStoreError> {
        let count = self.sent.counts[slot];
        let HintBatch { keys, pages, .. } = &self.sent.hints[slot];
        let mut asked = pages.iter().zip(keys);
        #[cfg(injected)]
        let first = old_values.len();
        let mut take = |exchanged: Result<(SentOutcome, &[u8]), DecodeError>| {
            let (sent, old) = exchanged?;
            outcomes.push(sent.outcome);
            #[cfg(injected)]
            if injected::OLD_VALUE_OF_ANOTHER.is_injected() && old_values.len() > first {
                let another = old_values.get(old_values.len() - 1).unwrap_or_default().to_vec();
                old_values.push(&another);
            } else {
                old_values.push(old);
            }
            #[cfg(not(injected))]
            old_values.push(old);
            if let Some((page, key)) = asked.next().filter(|_| sent.is_hint_wrong) {
                self.refreshes.count_miss(*page, *key);
            }
            Ok(())
        };
        let reply = Reply::decode(&self.reply)??;
        match returned {
            Returned::Fixed(value_bytes) => reply.exchanged(count, value_bytes)?.try_for_each(&mut take),
            Returned::AnyLength => reply.exchanged_values(count)?.try_for_each(&mut take),
            Returned::Nothing => Ok(()),
        }
    }
}
