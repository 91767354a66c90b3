//! The reference engine with writes that are answered later: the node's background answers them, as a log
//! would once they are durable.
//!
//! Invariant: a write takes place when its call is executed. Its client hears of it when the background has
//! taken a step.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_client::{CatalogueError, ClientEngine, EngineKind, Sharing};
use farsight_fabric::Connection;
use farsight_index::Registered;
use farsight_node::{
    BackgroundState, BackgroundWork, Call, Executed, HostedStats, HostedTable, LateReply, NewTable,
    NodeEngine,
};
use farsight_protocol::{RegionInfo, Request, ServerError, TableInfo, TableLayout};

use super::table::ReferenceTable;
use super::{NothingShared, Reference};

/// A table of this name lets go of its writes instead of answering them.
pub const LETS_GO: &str = "lets-go";

/// The engine.
pub struct AnsweringLater;

/// A table whose writes wait for the background.
struct LaterTable {
    table: ReferenceTable,
    lets_go: bool,
    due: Mutex<Vec<LateReply>>,
}

impl Registered for AnsweringLater {
    const KIND: &'static EngineKind = &EngineKind {
        name: "reference-later",
        elsewhere: "reference-later",
        nodes: 1..=1,
        ..*Reference::KIND
    };
}

impl NodeEngine for AnsweringLater {
    fn host(new: &NewTable<'_>) -> Result<Arc<dyn HostedTable>, ServerError> {
        let lets_go = new.name().get() == LETS_GO;
        Ok(Arc::new(LaterTable { table: ReferenceTable::new(new), lets_go, due: Mutex::default() }))
    }
}

impl ClientEngine for AnsweringLater {
    fn sharing<C: Connection>(
        _: &TableLayout,
        _: &[TableInfo],
    ) -> Result<Arc<dyn Sharing<C>>, CatalogueError> {
        Ok(Arc::new(NothingShared))
    }
}

impl HostedTable for LaterTable {
    fn regions(&self) -> Vec<RegionInfo> {
        self.table.regions()
    }

    fn execute(&self, request: &Request<'_>, call: &mut Call<'_, '_>) -> Result<Executed, ServerError> {
        let executed = self.table.execute(request, call)?;
        if !matches!(request, Request::Write { .. }) {
            return Ok(executed);
        }
        let reply = call.answer_later();
        if self.lets_go {
            drop(reply);
        } else {
            self.due.lock().unwrap_or_else(PoisonError::into_inner).push(reply);
        }
        Ok(Executed { wakes_background: true, ..executed })
    }

    fn stats(&self, now: MonotonicNs) -> HostedStats {
        self.table.stats(now)
    }

    fn forget(&self, client: farsight_base::ClientId) {
        self.table.forget(client);
    }

    fn leave_out_versions(&self, last: u64) -> bool {
        self.table.leave_out_versions(last)
    }

    fn background(self: Arc<Self>) -> Option<Box<dyn BackgroundWork>> {
        Some(Box::new(Answering(self)))
    }
}

/// What the background does: it answers.
struct Answering(Arc<LaterTable>);

impl BackgroundWork for Answering {
    fn step(&mut self, _: MonotonicNs, _: usize, _: fn() -> Duration) -> BackgroundState {
        let due = std::mem::take(&mut *self.0.due.lock().unwrap_or_else(PoisonError::into_inner));
        // The last first: replies come in any order.
        due.into_iter().rev().for_each(LateReply::send);
        BackgroundState::Idle { again_at: None }
    }
}
