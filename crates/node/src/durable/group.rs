//! A group of calls: decided one by one, then logged, applied and answered together.
//!
//! Invariant: nothing in a group is visible before [`Group::apply`]. A later write of the group sees an
//! earlier one by the group's [`Changes`], and those of the group before by its own. So each is decided as if
//! the earlier ones had taken place. To a write a pair is absent whose deadline has passed when it is
//! decided. That it is applied later changes nothing.

mod changes;
mod notes;
mod plain;

use std::collections::VecDeque;
use std::ops::Range;

use farsight_base::{ClientId, LeafNumber};
use farsight_durability::{FrameWriter, NOTE_HEADER_BYTES};
use farsight_index::{Decision, HeldPair, NewValue, clear_kept, decide_parts};
use farsight_index_xstore::server::{StagedReference, VersionedWrite};
use farsight_layout::value_block::RecordKind;
use farsight_layout::{DEADLINE_BYTES, Deadline};
use farsight_protocol::{
    AuthorId, ErrorCode, HEADER_BYTES, INTEGER_BYTES, Operand, ReplyWriter, SentOutcome, ServerError,
    StagedWrite, TableId, ValueEntries, WriteEntries, WriteEntry, WriteOperation, WriteOutcome,
};
use foldhash::HashMap;

use self::changes::{Change, Changes};
use super::touched::Touched;
use crate::LateReply;
use crate::logged::LoggedTable;
use crate::tables::View;

/// The group.
#[derive(Default)]
pub(super) struct Group {
    /// What goes into the log.
    pub(super) frame: FrameWriter,
    /// Inserts of each table that have room for certain, and how many of them the group has.
    rooms: HashMap<TableId, Room>,
    changes: Changes,
    /// Values before that calls are answered.
    old_values: Vec<u8>,
    outcomes: Vec<Decided>,
    answers: VecDeque<Answered>,
    /// Authors that begin.
    new_authors: Vec<AuthorId>,
    /// Bytes that notes will have, or fewer.
    notes_bytes_max: usize,
    /// Room for a reply that is noted.
    noted: Vec<u8>,
    /// The value that a write finds.
    held: Vec<u8>,
    /// The value of a write that came in pieces.
    staged: Vec<u8>,
}

/// What became of a write, and where the value before stands in `old_values`, if it is answered.
struct Decided {
    sent: SentOutcome,
    old: Option<Range<usize>>,
}

/// The entries of a call.
#[derive(Clone, Copy)]
pub(super) enum Entries<'a> {
    /// To a table whose values have one size.
    OfOneSize(WriteEntries<'a>),
    /// To one of blocks. The answer has room for so many bytes.
    OfAnyLength(ValueEntries<'a>, usize),
}

/// How outcomes are answered.
#[derive(Clone, Copy)]
enum AnswerShape {
    /// The reply was written when the call was decided.
    Written,
    Outcomes,
    /// With the values before, of one size.
    ValuesOfOneSize(usize),
    /// With the values before, of any length.
    ValuesOfAnyLength,
}

impl AnswerShape {
    /// Writes outcomes, whose values before stand among `old_values`, as an answer.
    fn write(self, writer: &mut ReplyWriter<'_>, outcomes: &[Decided], old_values: &[u8]) {
        for Decided { sent, old } in outcomes {
            let old = old.clone().map(|range| &old_values[range]);
            match self {
                Self::Written | Self::Outcomes => writer.push_outcome(*sent),
                Self::ValuesOfOneSize(bytes) => writer.push_exchanged(*sent, old, bytes),
                Self::ValuesOfAnyLength => writer.push_exchanged_value(*sent, old),
            }
        }
        writer.set(outcomes.len() as u32, 0);
    }
}

/// A call: its reply, its outcomes, and how many changes are its own or earlier calls'.
struct Answered {
    reply: LateReply,
    outcomes: Range<usize>,
    changes_end: usize,
    shape: AnswerShape,
}

/// Entries, whose memory is prefetched some ahead of their turns.
struct Ahead<'t, 'e, I> {
    table: &'t dyn LoggedTable,
    left: I,
    ready: VecDeque<WriteEntry<'e>>,
}

impl<'t, 'e, I: Iterator<Item = WriteEntry<'e>>> Ahead<'t, 'e, I> {
    fn new(table: &'t dyn LoggedTable, left: I) -> Self {
        Self { table, left, ready: VecDeque::with_capacity(AHEAD) }
    }
}

impl<'e, I: Iterator<Item = WriteEntry<'e>>> Iterator for Ahead<'_, 'e, I> {
    type Item = WriteEntry<'e>;

    fn next(&mut self) -> Option<WriteEntry<'e>> {
        if self.ready.is_empty() {
            self.ready.extend(self.left.by_ref().take(AHEAD));
            self.table.prefetch(self.ready.make_contiguous());
        }
        self.ready.pop_front()
    }
}

/// Why a write was not done.
enum Undone {
    /// It failed.
    Failed(ErrorCode),
    /// The answer has no room for the value before. It and what follows are sent again.
    NoRoom,
}

impl From<ServerError> for Undone {
    fn from(error: ServerError) -> Self {
        Self::Failed(error.code)
    }
}

/// A write of a call: where it goes, and what with.
#[derive(Clone, Copy)]
struct Write<'a> {
    id: TableId,
    table: &'a dyn LoggedTable,
    operation: WriteOperation,
    entry: WriteEntry<'a>,
    operand: Operand<'a>,
    /// The longest value before that the answer has room for.
    old_bytes_max: usize,
    /// Pairs of the table have deadlines.
    has_deadlines: bool,
    /// The draft of the value, if it came in pieces.
    staged: Option<StagedReference>,
    /// Where its outcome will stand, if it is not written at once.
    outcome: Option<u32>,
    /// Where in the hinted leaf its key was seen, if it was.
    slot: Option<usize>,
}

/// Bytes of a frame from which on a group takes no more, or only a little.
const FULL_BYTES: usize = 16 << 20;

/// Bytes of a frame whose memory is kept at most: the longest values make longer ones.
const FRAME_KEPT_BYTES: usize = 2 * FULL_BYTES;

/// Inserts whose room is made certain at once.
const RESERVED: u64 = 1024;

/// Entries whose memory is prefetched together.
const AHEAD: usize = 32;

/// Room for a table's inserts.
#[derive(Clone, Copy, Default)]
struct Room {
    reserved: u64,
    taken: u64,
}

impl<'a> Write<'a> {
    /// One of a value of the table's size.
    fn of_one_size(
        id: TableId,
        table: &'a dyn LoggedTable,
        operation: WriteOperation,
        entry: WriteEntry<'a>,
    ) -> Self {
        let operand = Operand::of_one_size(operation, entry.value);
        let (old_bytes_max, has_deadlines) = (usize::MAX, false);
        let (staged, outcome, slot) = (None, None, None);
        Self { id, table, operation, entry, operand, old_bytes_max, has_deadlines, staged, outcome, slot }
    }
}

impl Decided {
    fn new(outcome: WriteOutcome, old: Option<Range<usize>>) -> Self {
        Self { sent: SentOutcome { outcome, is_hint_wrong: false }, old }
    }
}

impl Undone {
    /// What its writer is told.
    fn decided(self) -> Decided {
        let code = match self {
            Self::Failed(code) => code,
            Self::NoRoom => ErrorCode::OutOfResources,
        };
        Decided::new(WriteOutcome::Failed(code), None)
    }
}

impl Room {
    /// Takes the room of one insert: nothing may fail behind the log. The group before has so many, and may
    /// not have used it yet.
    fn take(&mut self, table: &dyn LoggedTable, taken_before: u64) -> Result<(), ServerError> {
        if self.taken == self.reserved {
            let taken = taken_before + self.taken;
            let ahead = table.reserve(taken + RESERVED).map(|()| RESERVED);
            self.reserved += ahead.or_else(|_| table.reserve(taken + 1).map(|()| 1))?;
        }
        self.taken += 1;
        Ok(())
    }
}

impl Group {
    /// True without calls.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// True if it has one call.
    pub(super) fn is_single(&self) -> bool {
        self.answers.len() == 1
    }

    /// True if it has as much as is logged at once.
    pub(super) fn is_full(&self) -> bool {
        self.frame.len() >= FULL_BYTES
    }

    /// Decides the writes of one call. `before` is the group before, which is empty once it is applied.
    pub(super) fn decide(
        &mut self,
        before: &mut Self,
        id: TableId,
        table: &dyn LoggedTable,
        operation: WriteOperation,
        entries: Entries<'_>,
        reply: LateReply,
    ) {
        if let Entries::OfOneSize(entries) = entries
            && plain::is_plain(operation)
        {
            return self.decide_plain(before, (id, table), operation, entries, reply);
        }
        before.changes.index();
        let begin = self.outcomes.len();
        let returns_value = operation.returns_value();
        let shape = match entries {
            Entries::OfOneSize(entries) => {
                for entry in Ahead::new(table, entries.iter()) {
                    let write = Write::of_one_size(id, table, operation, entry);
                    let decided =
                        self.decide_one(before, Write { outcome: Some(self.next_outcome()), ..write });
                    self.outcomes.push(decided.unwrap_or_else(Undone::decided));
                }
                let values = AnswerShape::ValuesOfOneSize(entries.value_bytes());
                if returns_value { values } else { AnswerShape::Outcomes }
            }
            Entries::OfAnyLength(entries, room_bytes) => {
                self.decide_any_length(before, id, table, operation, entries, room_bytes);
                if returns_value { AnswerShape::ValuesOfAnyLength } else { AnswerShape::Outcomes }
            }
        };
        self.decided(begin, reply, shape);
    }

    /// Where the next outcome will stand.
    fn next_outcome(&self) -> u32 {
        self.outcomes.len() as u32
    }

    /// Notes that a call is decided, whose outcomes begin there.
    fn decided(&mut self, begin: usize, reply: LateReply, shape: AnswerShape) {
        let (outcomes, changes_end) = (begin..self.outcomes.len(), self.changes.len());
        if reply.call_id().is_some() {
            self.notes_bytes_max += NOTE_HEADER_BYTES + reply.bytes_max();
        }
        self.answers.push_back(Answered { reply, outcomes, changes_end, shape });
    }

    /// Decides writes of values of any length, in their order, as long as their answer has room.
    fn decide_any_length(
        &mut self,
        before: &Self,
        id: TableId,
        table: &dyn LoggedTable,
        operation: WriteOperation,
        entries: ValueEntries<'_>,
        mut room_bytes: usize,
    ) {
        let head_bytes = ReplyWriter::exchanged_value_bytes(0);
        let has_deadlines = table.now_ms().is_some();
        let mut is_first = true;
        for entry in Ahead::new(table, entries.iter()) {
            if !is_first && operation.returns_value() && room_bytes < head_bytes {
                return;
            }
            let operand = Operand::of_any_length(operation, entry.value);
            // In whole words.
            let old_bytes_max = room_bytes.saturating_sub(head_bytes) / 8 * 8;
            let decided = match operand {
                Some(operand) => {
                    let (staged, outcome) = (None, Some(self.next_outcome()));
                    let write = Write {
                        id,
                        table,
                        operation,
                        entry,
                        operand,
                        old_bytes_max,
                        has_deadlines,
                        staged,
                        outcome,
                        slot: None,
                    };
                    self.decide_one(before, write)
                }
                // Seen to before the call was handed over.
                None => Err(Undone::Failed(ErrorCode::BadRequest)),
            };
            match decided {
                // What follows is sent again, and finds room. A first one never does.
                Err(Undone::NoRoom) if !is_first => return,
                _ => is_first = false,
            }
            let decided = decided.unwrap_or_else(Undone::decided);
            let old_bytes = decided.old.as_ref().map_or(0, Range::len);
            if operation.returns_value() {
                room_bytes = room_bytes.saturating_sub(ReplyWriter::exchanged_value_bytes(old_bytes));
            }
            self.outcomes.push(decided);
        }
    }

    /// Decides the write of a value that came in pieces. What is not stored of it is given back.
    pub(super) fn decide_staged(
        &mut self,
        before: &mut Self,
        id: TableId,
        table: &dyn LoggedTable,
        client: ClientId,
        write: StagedWrite,
        reply: LateReply,
    ) {
        let mut value = std::mem::take(&mut self.staged);
        let staged = match table.take_staged(client, &write, &mut value) {
            Ok(staged) => staged,
            Err(error) => return reply.refuse(&error),
        };
        let StagedWrite { operation, key, hint, .. } = write;
        let (argument, argument_bytes) = write.argument();
        let room_bytes = reply.bytes_max() - HEADER_BYTES;
        before.changes.index();
        let begin = self.outcomes.len();
        let write = Write {
            id,
            table,
            operation,
            entry: WriteEntry { key, hint, value: &value },
            operand: Operand { argument: &argument[..argument_bytes], value: &value },
            old_bytes_max: room_bytes.saturating_sub(ReplyWriter::exchanged_value_bytes(0)) / 8 * 8,
            has_deadlines: table.now_ms().is_some(),
            staged: Some(staged),
            outcome: Some(self.next_outcome()),
            slot: None,
        };
        let decided = self.decide_one(before, write);
        clear_kept(&mut value);
        self.staged = value;
        let decided = decided.unwrap_or_else(Undone::decided);
        if !matches!(decided.sent.outcome, WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_)) {
            table.unstage(staged);
        }
        self.outcomes.push(decided);
        let shape =
            if operation.returns_value() { AnswerShape::ValuesOfAnyLength } else { AnswerShape::Outcomes };
        self.decided(begin, reply, shape);
    }

    /// Decides one write. The changes of the group before are indexed.
    fn decide_one(&mut self, before: &Self, write: Write<'_>) -> Result<Decided, Undone> {
        self.changes.index();
        let Write { operation, operand, old_bytes_max, .. } = write;
        let is_wanted = operation.needs_old_value();
        let mut held = std::mem::take(&mut self.held);
        let found = self.find(before, write, is_wanted, &mut held);
        let decided = found.map_err(Undone::from).and_then(|found| {
            let present = found.map(|(version, _)| version);
            let pair = present.map(|version| HeldPair { version, value: &held });
            if pair.is_some() && operation == WriteOperation::FetchAdd && held.len() != INTEGER_BYTES {
                return Err(Undone::Failed(ErrorCode::NotInteger));
            }
            if pair.is_some() && operation == WriteOperation::Swap && held.len() > old_bytes_max {
                return Err(Undone::NoRoom);
            }
            match decide_parts(operation, operand, pair) {
                Decision::Leave(outcome) => Ok(Decided::new(outcome, None)),
                Decision::Remove => {
                    self.log(write, None, present.is_some())?;
                    Ok(Decided::new(WriteOutcome::Removed(present.unwrap_or_default()), None))
                }
                Decision::Store(NewValue::Sum(sum)) if write.has_deadlines => {
                    // A pair that was there keeps its own.
                    let kept = found.and_then(|(_, deadline)| deadline);
                    let deadline = kept.map_or(operand.value.to_vec(), |kept| kept.to_bytes().to_vec());
                    self.store(before, write, &[&deadline[..], &sum].concat(), pair)
                }
                Decision::Store(value) => self.store(before, write, value.bytes(), pair),
            }
        });
        self.held = held;
        decided
    }

    /// The version of a key as the group leaves it, if it is there then, and its deadline, if pairs have any.
    /// Its value into place if it is wanted.
    fn find(
        &self,
        before: &Self,
        write: Write<'_>,
        is_wanted: bool,
        held: &mut Vec<u8>,
    ) -> Result<Option<(u64, Option<Deadline>)>, ServerError> {
        let Some(now_ms) = write.table.now_ms() else {
            let found = self.find_stored(before, write, is_wanted, held)?;
            return Ok(found.map(|version| (version, None)));
        };
        let found = match self.find_stored(before, write, true, held) {
            // A write that does not look at the value replaces it.
            Err(error) if error.code == ErrorCode::Damaged && !is_wanted => {
                let found = self.find_stored(before, write, false, held)?;
                return Ok(found.map(|version| (version, None)));
            }
            found => found?,
        };
        let Some(version) = found else { return Ok(None) };
        let (deadline, _) = Deadline::split(held).ok_or_else(|| {
            let text = format!("key {}: a value without a deadline", write.entry.key);
            ServerError::new(ErrorCode::Damaged, text)
        })?;
        held.drain(..DEADLINE_BYTES);
        #[cfg(injected)]
        if crate::injected::ENDED_PAIR_DECIDED.is_injected() {
            return Ok(Some((version, Some(deadline))));
        }
        Ok((!deadline.is_past(now_ms)).then_some((version, Some(deadline))))
    }

    /// The same, with what is stored of the value, whether its deadline has passed or not.
    fn find_stored(
        &self,
        before: &Self,
        write: Write<'_>,
        is_wanted: bool,
        held: &mut Vec<u8>,
    ) -> Result<Option<u64>, ServerError> {
        let Write { id, table, entry: WriteEntry { key, hint, .. }, .. } = write;
        let here = self.changes.latest(id, key).map(|change| (self, change));
        let pending = here.or_else(|| Some((before, before.changes.latest(id, key)?)));
        #[cfg(injected)]
        let pending = if crate::injected::FLYING_UNSEEN.is_injected() { here } else { pending };
        let Some((group, change)) = pending else { return table.pair_of(key, hint, is_wanted, held) };
        let Some(value) = change.value_place() else { return Ok(None) };
        held.clear();
        if is_wanted {
            held.extend_from_slice(group.frame.bytes_at(value));
        }
        Ok(Some(change.version))
    }

    fn store(
        &mut self,
        before: &Self,
        write: Write<'_>,
        value: &[u8],
        present: Option<HeldPair<'_>>,
    ) -> Result<Decided, Undone> {
        // A pair that is there now may have ended when this is applied: that is an insert then.
        if present.is_none() || write.has_deadlines {
            self.take_room(before, write)?;
        }
        let version = self.log(write, Some(value), present.is_some())?;
        let Some(present) = present else {
            return Ok(Decided::new(WriteOutcome::Inserted(version), None));
        };
        let begin = self.old_values.len();
        let old = write.operation.returns_value().then(|| {
            self.old_values.extend_from_slice(present.value);
            begin..self.old_values.len()
        });
        Ok(Decided::new(WriteOutcome::Replaced(version), old))
    }

    fn take_room(&mut self, before: &Self, write: Write<'_>) -> Result<(), ServerError> {
        let taken_before = before.rooms.get(&write.id).map_or(0, |room| room.taken);
        self.rooms.entry(write.id).or_default().take(write.table, taken_before)
    }

    /// Puts a change into the frame, to be applied; without a value, a removal. Returns its version.
    fn log(&mut self, write: Write<'_>, value: Option<&[u8]>, was_present: bool) -> Result<u64, ServerError> {
        let (table, key) = (write.table, write.entry.key);
        let staged = match (write.staged, value) {
            (Some(staged), _) => Some(staged),
            (None, Some(value)) => table.stage(key, value)?,
            (None, None) => None,
        };
        let drawn = table.draw_versions(key, 1);
        let appended = drawn.and_then(|version| {
            self.append(Write { staged, ..write }, version, value, was_present)?;
            Ok(version)
        });
        appended.inspect_err(|_| {
            // What came in pieces is given back by who took it.
            if let Some(staged) = staged.filter(|_| write.staged.is_none()) {
                table.unstage(staged);
            }
        })
    }

    /// The same, under this version. What a table of blocks stores of the value is staged.
    #[inline]
    fn append(
        &mut self,
        write: Write<'_>,
        version: u64,
        value: Option<&[u8]>,
        was_present: bool,
    ) -> Result<(), ServerError> {
        let Write { id, entry: WriteEntry { key, hint, .. }, staged, outcome, slot, .. } = write;
        let slot = slot.and_then(|slot| u8::try_from(slot).ok());
        let kind = if value.is_some() { RecordKind::Pair } else { RecordKind::Removal };
        let place = self
            .frame
            .push(id.0, kind, version, &key.to_le_bytes(), value.unwrap_or_default())
            .map_err(|error| ServerError::new(ErrorCode::WrongValueSize, error.to_string()))?;
        // A frame says its length in 32 bits.
        let value = value.map(|_| place.start as u32..place.end as u32);
        self.changes
            .push(Change { table: id, key, version, value, staged, hint, slot, outcome }, was_present);
        Ok(())
    }

    /// Applies what the log has, and answers each call as soon as its writes are applied and marked for the
    /// next snapshots. `view` is that by which the calls were decided. Returns whether tables want to be
    /// trained.
    ///
    /// # Errors
    /// What a table refuses that had promised to take it. The calls from there on are not answered.
    pub(super) fn complete(&mut self, view: &View, touched: &Touched) -> Result<bool, ServerError> {
        let changes = std::mem::take(&mut self.changes);
        let completed = self.apply(changes.list(), view, touched);
        self.changes = changes;
        let wants_training = completed?;
        self.clear();
        Ok(wants_training)
    }

    /// The same; the group stays as it is otherwise.
    fn apply(&mut self, changes: &[Change], view: &View, touched: &Touched) -> Result<bool, ServerError> {
        let mut wants_training = false;
        let mut applied = 0;
        self.answer_applied(applied);
        for changes in changes.chunk_by(|one, next| one.table == next.table) {
            let table = changes[0].table;
            let logged = view.get(table)?.hosted().logged();
            for changes in changes.chunks(AHEAD) {
                if let Some(logged) = logged {
                    self.apply_some(logged, changes)?;
                }
                // Behind their application: a snapshot that takes the marks before reads the pairs after.
                touched.mark(table.0, changes.iter().map(|change| change.key));
                applied += changes.len();
                self.answer_applied(applied);
            }
            if let Some(logged) = logged.filter(|logged| logged.wants_training()) {
                logged.want_training();
                wants_training = true;
            }
        }
        Ok(wants_training)
    }

    /// Applies all before anybody knows that it is durable, which is a bug.
    #[cfg(injected)]
    pub(super) fn apply_early(&mut self, view: &View) {
        let changes = std::mem::take(&mut self.changes);
        for change in changes.list() {
            if let Ok(Some(logged)) = view.get(change.table).map(|table| table.hosted().logged()) {
                let _ = self.apply_some(logged, std::slice::from_ref(change));
            }
        }
        self.changes = changes;
    }

    /// Applies changes of one table.
    fn apply_some(&mut self, logged: &dyn LoggedTable, changes: &[Change]) -> Result<(), ServerError> {
        let Self { frame, outcomes, .. } = self;
        let writes = changes.iter().map(|change| {
            let value = change.value_place().map(|place| frame.bytes_at(place));
            let value = change.staged.as_ref().map(|reference| &reference[..]).or(value);
            let slot = change.slot.map(usize::from);
            VersionedWrite { key: change.key, version: change.version, value, hint: change.hint, slot }
        });
        let mut answered = changes.iter();
        logged.apply(&writes.collect::<Vec<_>>(), &mut |is_hint_right| {
            if let Some(Change { outcome: Some(outcome), hint, .. }) = answered.next() {
                let had_hint = *hint != LeafNumber::NONE;
                outcomes[*outcome as usize].sent.is_hint_wrong = had_hint && !is_hint_right;
            }
        })
    }

    /// Answers the calls whose changes are among the first so many.
    fn answer_applied(&mut self, applied: usize) {
        while self.answers.front().is_some_and(|call| call.changes_end <= applied)
            && let Some(Answered { reply, outcomes, shape, .. }) = self.answers.pop_front()
        {
            if matches!(shape, AnswerShape::Written) {
                reply.send();
                continue;
            }
            let outcomes = &self.outcomes[outcomes];
            reply.answer(|writer| shape.write(writer, outcomes, &self.old_values));
        }
    }

    /// Answers all calls of a group that changes nothing, and begins anew.
    pub(super) fn answer(&mut self) {
        self.answer_applied(0);
        self.clear();
    }

    /// Refuses all calls that were not answered, and begins anew.
    pub(super) fn refuse(&mut self, error: &ServerError) {
        for Answered { reply, .. } in self.answers.drain(..) {
            reply.refuse(error);
        }
        self.clear();
    }

    /// Gives back what was staged for changes that will not be applied. `view` is that by which the calls
    /// were decided.
    pub(super) fn unstage(&self, view: &View) {
        for Change { table, staged, .. } in self.changes.list() {
            // A table that is gone takes its blocks along.
            if let (Some(staged), Ok(table)) = (staged, view.get(*table))
                && let Some(logged) = table.hosted().logged()
            {
                logged.unstage(*staged);
            }
        }
    }

    fn clear(&mut self) {
        if self.frame.len() > FRAME_KEPT_BYTES {
            self.frame = FrameWriter::default();
        }
        self.frame.clear();
        self.new_authors.clear();
        self.notes_bytes_max = 0;
        self.rooms.clear();
        self.changes.clear();
        clear_kept(&mut self.old_values);
        self.outcomes.clear();
    }
}
