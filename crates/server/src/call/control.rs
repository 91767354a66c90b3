//! Control: the catalogue and statistics.

use farsight_protocol::{ControlRequest, NodeKind, ReplyWriter, ServerError, TableInfo};

use super::Calls;
use crate::table::Table;

impl Calls {
    pub(super) fn control(&mut self, body: &[u8], answer: &mut ReplyWriter<'_>) -> Result<u64, ServerError> {
        let tables = &self.state.tables;
        match ControlRequest::decode(body)? {
            ControlRequest::CreateTable(definition) => {
                answer.push_control(tables.create(&self.state.listeners, &definition, None)?.info());
                // A new table is trained, too: clients read it one-sided from the first pair on.
                self.state.background.raise();
            }
            ControlRequest::OpenTable(name) => answer.push_control(tables.open(&name)?.info()),
            ControlRequest::ListTables => {
                let infos: Vec<&TableInfo> = tables.iter().map(Table::info).collect();
                answer.push_control(&infos);
            }
            ControlRequest::Identify => answer.push_control(&NodeKind::Server),
            ControlRequest::Stats => answer.push_control(&self.state.stats(self.now)),
            ControlRequest::PendingTraining => {
                let pending: u64 = tables.iter().map(Table::pending_training).sum();
                if pending > 0 {
                    self.state.background.raise();
                }
                answer.push_control(&pending);
            }
        }
        Ok(0)
    }
}
