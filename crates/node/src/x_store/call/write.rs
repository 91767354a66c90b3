//! Write: inserts, updates, puts or removes, one outcome an entry.

use farsight_protocol::{SentOutcome, WriteEntries, WriteOperation, WriteOutcome};

use crate::engine::{Call, Executed};
use crate::x_store::{Part, code_of};

impl Part {
    pub(super) fn write(
        &self,
        operation: WriteOperation,
        entries: WriteEntries<'_>,
        call: &mut Call<'_, '_>,
    ) -> Executed {
        self.tree.write_many(operation, entries.iter(), |outcome, is_hint_wrong| {
            let outcome = outcome.unwrap_or_else(|error| WriteOutcome::Failed(code_of(&error)));
            call.answer.push_outcome(SentOutcome { outcome, is_hint_wrong });
        });
        self.loading.end_by_write();
        call.answer.set(entries.len() as u32, 0);
        let wakes_background = self.models.pending() > 0;
        if wakes_background {
            self.want_training();
        }
        Executed { operations: entries.len() as u64, wakes_background }
    }
}
