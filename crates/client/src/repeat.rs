//! Writes whose connection was lost while they were under way: they are repeated, and act once.
//!
//! Invariant: a call is sent again as the same call, to the table and the node to which it was sent first. So
//! the node either executes it, or answers with what became of it (docs/protocol/repeats.md). A node with a
//! directory of data is the same in each life of that.
//!
//! Protocol: the session takes from its engine what the batch has left, and moves to the next connection as a
//! read does. There it lets the engine go on. If another node or table is found there, or no connection in
//! time, the writes are indeterminate. So they are where an engine leaves nothing: its writes are no calls.

use farsight_fabric::FabricError;
use farsight_index::{EngineError, OldValues, Writes};
use farsight_protocol::WriteOutcome;

use crate::attached::Working;
#[cfg(injected)]
use crate::injected;
use crate::reconnect::{ATTEMPTS_MAX, OfFabric};
use crate::session::Session;
use crate::session_key::SessionKey;

/// Losses of one batch of writes after which it goes on, at most.
const LOSSES_MAX: u32 = 16;

impl Session {
    /// Executes writes once, however often their connection is lost meanwhile.
    #[inline]
    pub(crate) fn write_in_epoch<K: SessionKey>(
        &mut self,
        writes: Writes<'_, K>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        let first_old = old_values.len();
        let done = K::write(&mut *self.working.engine, writes, outcomes, old_values);
        if done.is_ok() { done } else { self.go_on(done, writes, outcomes, old_values, first_old) }
    }

    #[cold]
    fn go_on<K: SessionKey>(
        &mut self,
        mut done: Result<(), EngineError>,
        writes: Writes<'_, K>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
        first_old: usize,
    ) -> Result<(), EngineError> {
        #[cfg(injected)]
        if injected::WRITE_REPEATED.is_injected() {
            return done;
        }
        for _ in 0..LOSSES_MAX {
            let loss = done.as_ref().err().and_then(|error| error.loss(&*self.working.backend)).cloned();
            let Some(loss) = loss else { break };
            let Some(unfinished) = self.working.engine.take_unfinished() else { break };
            let Some(working) = self.find_again(loss) else { break };
            self.work_with(working);
            self.working.engine.resume(unfinished);
            outcomes.clear();
            old_values.truncate(first_old);
            done = K::write(&mut *self.working.engine, writes, outcomes, old_values);
        }
        done
    }

    /// The same table at the same nodes, over the next connection. Of another one the session hears with its
    /// next call: what became of this one belongs to where it was sent.
    fn find_again(&self, mut loss: FabricError) -> Option<Working> {
        for _ in 1..ATTEMPTS_MAX {
            let backend = self.table.shared().renew(&loss).ok()?;
            match self.table.attach(&backend, self.access, 0) {
                Ok(found) => {
                    let (former, info) = (&self.working.backend, &self.working.info);
                    let is_same = former.identities().is_some()
                        && found.backend.identities() == former.identities()
                        && found.info.id == info.id;
                    return is_same.then_some(found);
                }
                Err(error) => loss = error.loss(&*backend)?.clone(),
            }
        }
        None
    }
}
