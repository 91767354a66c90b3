//! A group of calls: decided one by one, then logged, applied and answered together.
//!
//! Invariant: nothing in a group is visible before [`Group::apply`]. A later write of the group sees an
//! earlier one by the overlay, so each is decided as if the earlier ones had taken place.

use std::collections::HashMap;
use std::ops::Range;

use farsight_durability::FrameWriter;
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
    /// Keys that the group writes: with which version they are there then, if they are.
    overlay: HashMap<(TableId, u64), Option<u64>>,
    /// Inserts of each table that have room for certain.
    insertable: HashMap<TableId, u64>,
    changes: Vec<Change>,
    values: Vec<u8>,
    outcomes: Vec<SentOutcome>,
    answers: Vec<(LateReply, Range<usize>)>,
}

/// One change to be applied.
struct Change {
    table: TableId,
    key: u64,
    version: u64,
    /// Where its value stands in `values`; `None` for a removal.
    value: Option<Range<usize>>,
    entry_hint: farsight_base::LeafNumber,
    /// Where its outcome stands in `outcomes`.
    outcome: usize,
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
            let outcome = outcome.unwrap_or_else(|error| WriteOutcome::Failed(error.code));
            self.outcomes.push(SentOutcome { outcome, is_hint_wrong: false });
        }
        self.answers.push((reply, begin..self.outcomes.len()));
    }

    fn decide_one(
        &mut self,
        id: TableId,
        table: &dyn LoggedTable,
        operation: WriteOperation,
        entry: WriteEntry<'_>,
    ) -> Result<WriteOutcome, ServerError> {
        let WriteEntry { key, hint, value } = entry;
        let present = match self.overlay.get(&(id, key)) {
            Some(present) => *present,
            None => table.version_of(key)?,
        };
        match (operation, present) {
            (WriteOperation::Insert, Some(version)) => return Ok(WriteOutcome::Exists(version)),
            (WriteOperation::Update | WriteOperation::Remove, None) => return Ok(WriteOutcome::Absent),
            _ => {}
        }
        if present.is_none() {
            self.take_room(id, table, key)?;
        }
        let version = table.draw_version(key)?;
        let is_removal = operation == WriteOperation::Remove;
        let kind = if is_removal { RecordKind::Removal } else { RecordKind::Pair };
        self.frame
            .push(id.0, kind, version, &key.to_le_bytes(), value)
            .map_err(|error| ServerError::new(ErrorCode::WrongValueSize, error.to_string()))?;
        self.overlay.insert((id, key), (!is_removal).then_some(version));
        let begin = self.values.len();
        self.values.extend_from_slice(value);
        let value = (!is_removal).then_some(begin..self.values.len());
        let outcome = self.outcomes.len();
        self.changes.push(Change { table: id, key, version, value, entry_hint: hint, outcome });
        Ok(match (operation, present) {
            (WriteOperation::Remove, Some(last)) => WriteOutcome::Removed(last),
            (_, Some(_)) => WriteOutcome::Replaced(version),
            (_, None) => WriteOutcome::Inserted(version),
        })
    }

    /// Nothing may fail behind the log, so an insert has its room before.
    fn take_room(&mut self, id: TableId, table: &dyn LoggedTable, key: u64) -> Result<(), ServerError> {
        let left = self.insertable.entry(id).or_insert_with(|| table.insertable());
        if *left == 0 {
            return Err(ServerError::new(ErrorCode::RegionFull, format!("key {key}: no leaf is left")));
        }
        *left -= 1;
        Ok(())
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
            let is_hint_right = logged.apply(change.key, change.version, value, change.entry_hint)?;
            let had_hint = change.entry_hint != farsight_base::LeafNumber::NONE;
            self.outcomes[change.outcome].is_hint_wrong = had_hint && !is_hint_right;
            if logged.wants_training() {
                logged.want_training();
                wants_training = true;
            }
        }
        Ok(wants_training)
    }

    /// Answers all calls, and begins anew.
    pub(super) fn answer(&mut self) {
        for (reply, range) in self.answers.drain(..) {
            let outcomes = &self.outcomes[range];
            reply.answer(|writer: &mut ReplyWriter<'_>| {
                for outcome in outcomes {
                    writer.push_outcome(*outcome);
                }
                writer.set(outcomes.len() as u32, 0);
            });
        }
        self.clear();
    }

    /// Refuses all calls, and begins anew.
    pub(super) fn refuse(&mut self, error: &ServerError) {
        for (reply, _) in self.answers.drain(..) {
            reply.refuse(error);
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.frame.clear();
        self.overlay.clear();
        self.insertable.clear();
        self.changes.clear();
        self.values.clear();
        self.outcomes.clear();
    }
}
