//! Bulk load: one piece of ascending pairs; the last makes the table visible and has it trained.

use farsight_base::ClientId;
use farsight_protocol::{ReplyWriter, ServerError, TableId, WriteEntries};

use super::Calls;
use crate::x_store::Piece;

impl Calls {
    pub(super) fn bulk_load(
        &mut self,
        client: ClientId,
        table: TableId,
        last: bool,
        number: u64,
        entries: WriteEntries<'_>,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<u64, ServerError> {
        let table = self.view.get(table)?.x_store()?;
        if !entries.is_empty() {
            table.check_value_bytes(entries.value_bytes())?;
        }
        let loaded = table.load(Piece { client, number, last, entries })?;
        answer.set(entries.len() as u32, loaded);
        if last {
            table.want_training();
            self.state.background.raise();
        }
        Ok(entries.len() as u64)
    }
}
