//! Write: writes of one kind, one outcome an entry.

use farsight_index::LeafFormat;
use farsight_protocol::{SentOutcome, WriteEntries, WriteOperation, WriteOutcome};

use crate::engine::{Call, Executed};
use crate::x_store::{Part, code_of};

impl<F: LeafFormat> Part<F> {
    pub(super) fn write(
        &self,
        operation: WriteOperation,
        entries: WriteEntries<'_>,
        call: &mut Call<'_, '_>,
    ) -> Executed {
        let sent = |outcome: Result<_, _>, is_hint_wrong| {
            let outcome = outcome.unwrap_or_else(|error| WriteOutcome::Failed(code_of(&error)));
            SentOutcome { outcome, is_hint_wrong }
        };
        let answer = &mut *call.answer;
        if operation.returns_value() {
            // As long as what came, so that the answer has room: the table's values are, or nothing is done.
            let value_bytes = entries.value_bytes();
            self.tree.exchange_many(operation, entries.iter(), |outcome, is_hint_wrong, old| {
                let sent = sent(outcome, is_hint_wrong);
                let old = matches!(sent.outcome, WriteOutcome::Replaced(_)).then_some(old);
                answer.push_exchanged(sent, old, value_bytes);
            });
        } else {
            self.tree.write_many(operation, entries.iter(), |outcome, is_hint_wrong| {
                answer.push_outcome(sent(outcome, is_hint_wrong));
            });
        }
        self.written(entries.len(), call)
    }

    /// Ends a call that wrote so many entries.
    pub(in super::super) fn written(&self, count: usize, call: &mut Call<'_, '_>) -> Executed {
        self.loading.end_by_write();
        call.answer.set(count as u32, 0);
        let wakes_background = self.models.pending() > 0;
        if wakes_background {
            self.want_training();
        }
        Executed { operations: count as u64, wakes_background }
    }
}
