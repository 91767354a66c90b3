//! How often names of the coordinator's tables have come to lead elsewhere, as far as this process has heard.
//!
//! Invariant: the count only grows. A table that was opened after a count was heard is the one to which its
//! name led at that count or later.
//!
//! Protocol: where the fabric tells unasked, its newest notice is the count. Elsewhere the coordinator is
//! asked again once the last answer is [`AGE_MAX`] old.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farsight_fabric::{Connection, FabricError, QueuePair};
use farsight_protocol::ControlRequest;

use super::Nodes;
use crate::CatalogueError;

/// The age at which an answer counts no more: who asks again hears of a change within a second.
const AGE_MAX: Duration = Duration::from_millis(500);

/// The newest answer, where the coordinator has to be asked.
#[derive(Default)]
pub(crate) struct NameChanges(Mutex<Option<(Instant, u64)>>);

impl<C: Connection> Nodes<C> {
    /// What was heard so far.
    pub(crate) fn heard_name_changes(&self) -> Result<u64, FabricError> {
        if C::Queue::GUARANTEES.tells_unasked {
            let node = &self.all[0];
            return node.asker.with_queue(&node.connection, |queue| Ok(queue.notice()));
        }
        Ok(self.last_answer().map_or(0, |(_, count)| count))
    }

    /// The count now or little before, where the coordinator has to be asked.
    pub(crate) fn asked_name_changes(&self) -> Result<u64, CatalogueError> {
        let now = Instant::now();
        if let Some((at, count)) = self.last_answer()
            && now.saturating_duration_since(at) < AGE_MAX
        {
            return Ok(count);
        }
        // No lock is held while the answer is awaited: of several that ask, each has an answer.
        let count: u64 = self.ask(0, &ControlRequest::NameChanges)?;
        let mut last = self.name_changes.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Answers may cross: a count counts from the moment of its question.
        *last = Some(last.map_or((now, count), |(at, before)| (at.max(now), before.max(count))));
        Ok(count)
    }

    fn last_answer(&self) -> Option<(Instant, u64)> {
        // One assignment is all that is done under it.
        *self.name_changes.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
