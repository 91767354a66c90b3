//! Writes of values of one size that look at no value before: inserts, updates and puts.
//!
//! To decide such a write it suffices to know whether its key is there: what is written to pairs that are
//! there is not looked for. Its outcome is known when it is decided, so it is written into the reply then.

use farsight_base::LeafNumber;
use farsight_index_xstore::server::Sighting;
use farsight_protocol::{
    SentOutcome, ServerError, TableId, WriteEntries, WriteEntry, WriteOperation, WriteOutcome,
};

use super::{AHEAD, AnswerShape, Group, Undone, Write};
use crate::LateReply;
use crate::logged::LoggedTable;

/// True for writes of this kind.
pub(super) fn is_plain(operation: WriteOperation) -> bool {
    matches!(operation, WriteOperation::Insert | WriteOperation::Update | WriteOperation::Put)
}

impl Group {
    /// Decides the plain writes of one call. `before` as in [`Group::decide`].
    pub(super) fn decide_plain(
        &mut self,
        before: &mut Self,
        (id, table): (TableId, &dyn LoggedTable),
        operation: WriteOperation,
        entries: WriteEntries<'_>,
        mut reply: LateReply,
    ) {
        let (count, mut left) = (entries.len(), entries.iter());
        let mut ahead = Vec::with_capacity(AHEAD.min(count));
        reply.write(|writer| {
            loop {
                ahead.clear();
                ahead.extend(left.by_ref().take(AHEAD));
                let Some(first) = ahead.first() else { break };
                table.prefetch_keys(&ahead);
                // Some are not needed if writes change nothing.
                let versions = table.draw_versions(first.key, ahead.len() as u64);
                for (place, entry) in (0..).zip(&ahead) {
                    let version = versions.as_ref().map(|first| first + place).map_err(Clone::clone);
                    let write = Write::of_one_size(id, table, operation, *entry);
                    writer.push_outcome(self.decide_plain_one(before, write, version));
                }
            }
            writer.set(count as u32, 0);
        });
        let outcomes = self.outcomes.len();
        self.decided(outcomes, reply, AnswerShape::Written);
    }

    /// Decides one, by a version that was drawn for it.
    #[inline]
    fn decide_plain_one(
        &mut self,
        before: &mut Self,
        write: Write<'_>,
        version: Result<u64, ServerError>,
    ) -> SentOutcome {
        let hint = write.entry.hint;
        let (outcome, is_hinted) = match write.table.look(write.entry.key, hint) {
            Ok(Sighting { leaf, slot, is_hinted }) => {
                let is_present = self.is_present(before, write, slot.is_some());
                // When it is applied, its client knows already whether its own hint was right.
                let write = Write { entry: WriteEntry { hint: leaf, ..write.entry }, slot, ..write };
                (self.write_plain(before, write, version, is_present), is_hinted)
            }
            // Nobody knows about the hint.
            Err(error) => (Err(error.into()), true),
        };
        let outcome = outcome.unwrap_or_else(|undone| undone.decided().sent.outcome);
        SentOutcome { outcome, is_hint_wrong: hint != LeafNumber::NONE && !is_hinted }
    }

    /// Whether the key of a write is there once all is applied that was decided before.
    #[inline]
    fn is_present(&self, before: &Self, write: Write<'_>, is_stored: bool) -> bool {
        let (id, key) = (write.id, write.entry.key);
        let here = self.changes.presence(id, key);
        #[cfg(injected)]
        if crate::injected::FLYING_UNSEEN.is_injected() {
            return here.unwrap_or(is_stored);
        }
        here.or_else(|| before.changes.presence(id, key)).unwrap_or(is_stored)
    }

    #[inline]
    fn write_plain(
        &mut self,
        before: &mut Self,
        write: Write<'_>,
        version: Result<u64, ServerError>,
        is_present: bool,
    ) -> Result<WriteOutcome, Undone> {
        match (write.operation, is_present) {
            (WriteOperation::Update, false) => return Ok(WriteOutcome::Absent),
            (WriteOperation::Insert, true) => {
                // It is told the version of the pair that is there.
                before.changes.index();
                return Ok(self.decide_one(before, write)?.sent.outcome);
            }
            (_, true) => {}
            (_, false) => self.take_room(before, write)?,
        }
        let version = version?;
        self.append(write, version, Some(write.entry.value), is_present)?;
        Ok(if is_present { WriteOutcome::Replaced(version) } else { WriteOutcome::Inserted(version) })
    }
}
