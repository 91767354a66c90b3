//! Control: the catalogue and statistics.

use farsight_base::ClientId;
use farsight_protocol::{ControlRequest, ErrorCode, NodeLives, ReplyWriter, ServerError};
use serde::Serialize;

use super::Calls;
use crate::durable::Durable;

impl Calls {
    pub(super) fn control(
        &mut self,
        client: ClientId,
        request: ControlRequest,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<(), ServerError> {
        request.check()?;
        let state = &*self.state;
        let tables = &state.tables;
        match request {
            ControlRequest::Hello => answer.push_control(&state.hello()),
            ControlRequest::Map => answer.push_control(&state.map()),
            ControlRequest::TellAddresses { term, addresses } => state.hear_addresses(term, addresses),
            ControlRequest::CreateTable { layout, place, id } => {
                let table = tables.create(&state.listeners, layout, place, id)?;
                if table.blocks().is_ok() {
                    state.report_lease();
                    state.own_pool.raise();
                }
                answer.push_control(&table.info());
                // A new table is trained, too: clients read it one-sided from the first pair on.
                state.background.raise();
            }
            ControlRequest::OpenTable(name) => answer.push_control(&tables.open(&name)?.info()),
            ControlRequest::DropTable(name) => {
                tables.drop(&state.listeners, &name)?;
                // Its trainer goes, too.
                state.background.raise();
                state.own_pool.raise();
            }
            ControlRequest::RenameTable { from, to } => tables.rename(&state.listeners, &from, &to)?,
            ControlRequest::SwapTables { first, second } => {
                tables.swap(&state.listeners, &first, &second)?;
            }
            ControlRequest::NameChanges => answer.push_control(&tables.name_changes()),
            ControlRequest::BeginAuthor => answer.push_control(&state.authors.add()),
            ControlRequest::Time => answer.push_control(&tables.unix_time().now_ms()),
            ControlRequest::DroppedTables => answer.push_control(&tables.dropped()),
            ControlRequest::ForgetTables(ids) => {
                tables.forget(&state.listeners, &ids)?;
                state.background.raise();
            }
            ControlRequest::ListTables { from } => {
                let infos = tables.from(from).into_iter().map(|table| table.info());
                self.push_page(infos, answer);
            }
            ControlRequest::Stats => answer.push_control(&state.stats_without_tables(self.now)),
            ControlRequest::TableStats { from } => {
                let counted = tables.from(from).into_iter().map(|table| state.table_stats(&table, self.now));
                self.push_page(counted, answer);
            }
            ControlRequest::PendingTraining => {
                let pending: u64 = self.view.all().map(|table| table.hosted().pending_training()).sum();
                if pending > 0 {
                    state.background.raise();
                }
                answer.push_control(&pending);
            }
            ControlRequest::BeginSnapshots => answer.push_control(&self.durable()?.begin_snapshots()),
            ControlRequest::AreSnapshotsMade { round } => {
                answer.push_control(&self.durable()?.are_snapshots_made(round)?);
            }
            ControlRequest::Lives => {
                let in_memory = NodeLives { own: None, met: Vec::new() };
                answer.push_control(&state.durable.as_ref().map_or(in_memory, |durable| durable.lives()));
            }
            ControlRequest::HasLived(life) => answer.push_control(&self.durable()?.has_lived(life)),
            ControlRequest::Meet(lives) => self.durable()?.meet(&lives)?,
            of_a_pool => self.pool(client, of_a_pool, answer)?,
        }
        Ok(())
    }

    fn durable(&self) -> Result<&Durable, ServerError> {
        self.state.durable.as_deref().ok_or_else(|| {
            let text = "this node keeps its tables in memory alone: start it with --data DIR";
            ServerError::new(ErrorCode::BadRequest, text.to_owned())
        })
    }

    /// Answers with the first of `entries`, as many as the reply carries.
    fn push_page<T: Serialize>(&self, entries: impl Iterator<Item = T>, answer: &mut ReplyWriter<'_>) {
        let room_bytes = self.room_bytes(answer).saturating_sub(PAGE_HEAD_BYTES);
        let mut page = Vec::new();
        let mut bytes = 0;
        for entry in entries {
            bytes += ReplyWriter::control_bytes(&entry);
            if bytes > room_bytes {
                break;
            }
            page.push(entry);
        }
        answer.push_control(&page);
    }
}

/// Bytes of a page before its entries at most: their number.
const PAGE_HEAD_BYTES: usize = 10;
