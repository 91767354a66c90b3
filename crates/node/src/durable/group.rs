//! A group of calls: decided one by one, then logged, applied and answered together.
//!
//! Invariant: nothing in a group is visible before [`Group::apply`]. A later write of the group sees an
//! earlier one by the overlay, so each is decided as if the earlier ones had taken place.

use std::collections::HashMap;
use std::ops::Range;

use farsight_base::LeafNumber;
use farsight_durability::FrameWriter;
use farsight_index::{Decision, HeldPair, decide};
use farsight_layout::value_block::RecordKind;
use farsight_protocol::{
    ErrorCode, ReplyWriter, SentOutcome, ServerError, TableId, WriteEntries, WriteEntry, WriteOperation,
    WriteOutcome,
};

use crate::LateReply;
use crate::logged::LoggedTable;
use crate::tables::View;

/// The group.
#[derive(Default)]
pub(super) struct Group {
    /// What goes into the log.
    pub(super) frame: FrameWriter,
    /// Keys that the group writes: their version then, and where their value stands, if they are there.
    overlay: HashMap<(TableId, u64), Option<Pending>>,
    /// Inserts of each table that have room for certain, and how many of them the group has.
    rooms: HashMap<TableId, Room>,
    changes: Vec<Change>,
    values: Vec<u8>,
    outcomes: Vec<Decided>,
    answers: Vec<Answered>,
    /// The value that a write finds.
    held: Vec<u8>,
}

/// A pair that the group writes: its version, and where its value stands.
type Pending = (u64, Range<usize>);

/// What became of a write, and where the value before stands in `values`, if it is answered.
struct Decided {
    sent: SentOutcome,
    old: Option<Range<usize>>,
}

/// A call: its reply, its outcomes, and how long each value before is, if they are answered.
struct Answered {
    reply: LateReply,
    outcomes: Range<usize>,
    old_bytes: Option<usize>,
}

/// Inserts whose room is made certain at once.
const RESERVED: u64 = 1024;

/// Room for a table's inserts.
#[derive(Clone, Copy, Default)]
struct Room {
    reserved: u64,
    taken: u64,
}

/// One change to be applied.
struct Change {
    table: TableId,
    key: u64,
    version: u64,
    /// Where its value stands in `values`; `None` for a removal.
    value: Option<Range<usize>>,
    hint: LeafNumber,
    /// Where its outcome stands in `outcomes`.
    outcome: usize,
}

impl Room {
    /// Takes the room of one insert: nothing may fail behind the log.
    fn take(&mut self, table: &dyn LoggedTable) -> Result<(), ServerError> {
        if self.taken == self.reserved {
            let ahead = table.reserve(self.taken + RESERVED).map(|()| RESERVED);
            self.reserved += ahead.or_else(|_| table.reserve(self.taken + 1).map(|()| 1))?;
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

    /// Decides the writes of one call.
    pub(super) fn decide(
        &mut self,
        id: TableId,
        table: &dyn LoggedTable,
        operation: WriteOperation,
        entries: WriteEntries<'_>,
        reply: LateReply,
    ) {
        let begin = self.outcomes.len();
        for entry in entries.iter() {
            let outcome = self.decide_one(id, table, operation, entry);
            let (outcome, old) = outcome.unwrap_or_else(|error| (WriteOutcome::Failed(error.code), None));
            self.outcomes.push(Decided { sent: SentOutcome { outcome, is_hint_wrong: false }, old });
        }
        let old_bytes = operation.returns_value().then(|| entries.value_bytes());
        self.answers.push(Answered { reply, outcomes: begin..self.outcomes.len(), old_bytes });
    }

    /// Decides one write. Returns its outcome, and where the value before stands, if it is answered.
    fn decide_one(
        &mut self,
        id: TableId,
        table: &dyn LoggedTable,
        operation: WriteOperation,
        entry: WriteEntry<'_>,
    ) -> Result<(WriteOutcome, Option<Range<usize>>), ServerError> {
        let present = match self.overlay.get(&(id, entry.key)) {
            None => table.pair_of(entry.key, &mut self.held)?,
            Some(None) => None,
            Some(Some((version, value))) => {
                self.held.clear();
                self.held.extend_from_slice(&self.values[value.clone()]);
                Some(*version)
            }
        };
        let held = std::mem::take(&mut self.held);
        let pair = present.map(|version| HeldPair { version, value: &held });
        let outcome = match decide(operation, entry.value, pair) {
            Decision::Leave(outcome) => Ok((outcome, None)),
            Decision::Remove => self
                .log(id, table, entry, None)
                .map(|_| (WriteOutcome::Removed(present.unwrap_or_default()), None)),
            Decision::Store(value) => self.store(id, table, operation, entry, value.bytes(), pair),
        };
        self.held = held;
        outcome
    }

    fn store(
        &mut self,
        id: TableId,
        table: &dyn LoggedTable,
        operation: WriteOperation,
        entry: WriteEntry<'_>,
        value: &[u8],
        present: Option<HeldPair<'_>>,
    ) -> Result<(WriteOutcome, Option<Range<usize>>), ServerError> {
        let Some(before) = present else {
            self.rooms.entry(id).or_default().take(table)?;
            return Ok((WriteOutcome::Inserted(self.log(id, table, entry, Some(value))?), None));
        };
        let version = self.log(id, table, entry, Some(value))?;
        let begin = self.values.len();
        let old = operation.returns_value().then(|| {
            self.values.extend_from_slice(before.value);
            begin..self.values.len()
        });
        Ok((WriteOutcome::Replaced(version), old))
    }

    /// Puts a change into the frame, to be applied; without a value, a removal. Returns its version.
    fn log(
        &mut self,
        id: TableId,
        table: &dyn LoggedTable,
        entry: WriteEntry<'_>,
        value: Option<&[u8]>,
    ) -> Result<u64, ServerError> {
        let WriteEntry { key, hint, .. } = entry;
        let version = table.draw_version(key)?;
        let kind = if value.is_some() { RecordKind::Pair } else { RecordKind::Removal };
        self.frame
            .push(id.0, kind, version, &key.to_le_bytes(), value.unwrap_or_default())
            .map_err(|error| ServerError::new(ErrorCode::WrongValueSize, error.to_string()))?;
        let begin = self.values.len();
        let value = value.map(|value| {
            self.values.extend_from_slice(value);
            begin..self.values.len()
        });
        self.overlay.insert((id, key), value.clone().map(|value| (version, value)));
        let outcome = self.outcomes.len();
        self.changes.push(Change { table: id, key, version, value, hint, outcome });
        Ok(version)
    }

    /// Applies what the log has. `view` is that by which the calls were decided.
    ///
    /// # Errors
    /// What a table refuses that had promised to take it.
    pub(super) fn apply(&mut self, view: &View) -> Result<bool, ServerError> {
        let mut wants_training = false;
        for change in &self.changes {
            let table = view.get(change.table)?;
            let Some(logged) = table.hosted().logged() else { continue };
            let value = change.value.clone().map(|range| &self.values[range]);
            let is_hint_right = logged.apply(change.key, change.version, value, change.hint)?;
            let had_hint = change.hint != LeafNumber::NONE;
            self.outcomes[change.outcome].sent.is_hint_wrong = had_hint && !is_hint_right;
            if logged.wants_training() {
                logged.want_training();
                wants_training = true;
            }
        }
        Ok(wants_training)
    }

    /// Answers all calls, and begins anew.
    pub(super) fn answer(&mut self) {
        for Answered { reply, outcomes, old_bytes } in self.answers.drain(..) {
            let outcomes = &self.outcomes[outcomes];
            reply.answer(|writer: &mut ReplyWriter<'_>| {
                for Decided { sent, old } in outcomes {
                    match old_bytes {
                        None => writer.push_outcome(*sent),
                        Some(bytes) => {
                            let old = old.clone().map(|range| &self.values[range]);
                            writer.push_exchanged(*sent, old, bytes);
                        }
                    }
                }
                writer.set(outcomes.len() as u32, 0);
            });
        }
        self.clear();
    }

    /// Refuses all calls, and begins anew.
    pub(super) fn refuse(&mut self, error: &ServerError) {
        for Answered { reply, .. } in self.answers.drain(..) {
            reply.refuse(error);
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.frame.clear();
        self.overlay.clear();
        self.rooms.clear();
        self.changes.clear();
        self.values.clear();
        self.outcomes.clear();
    }
}
