//! Write: inserts, updates, puts or removes, one outcome an entry.

use farsight_protocol::{ReplyWriter, ServerError, TableId, WriteEntries, WriteOperation};

use super::Calls;

impl Calls {
    pub(super) fn write(
        &mut self,
        table: TableId,
        operation: WriteOperation,
        entries: WriteEntries<'_>,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<u64, ServerError> {
        let table = self.view.get(table)?.x_store()?;
        if operation.has_value() {
            table.check_value_bytes(entries.value_bytes())?;
        }
        table.write(operation, entries, |outcome| answer.push_outcome(outcome));
        answer.set(entries.len() as u32, 0);
        if table.want_training_if_pending() {
            self.state.background.raise();
        }
        Ok(entries.len() as u64)
    }
}
