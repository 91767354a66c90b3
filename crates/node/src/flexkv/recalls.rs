//! What a table does with calls of those who keep its values, and of those who recall some.

use std::sync::{MutexGuard, PoisonError};

use farsight_base::clock::MonotonicNs;
use farsight_protocol::{ComputeNode, Recalled, Recalls, ServerError};

use super::FlexTable;
use super::keepers::{Keepers, Resolved};
use crate::LateReply;

impl FlexTable {
    /// Notes that this one keeps values.
    pub(crate) fn keep_values(&self, who: ComputeNode) {
        self.keepers().keep(who);
    }

    /// As [`Keepers::listen`].
    pub(crate) fn await_recalls(
        &self,
        who: (ComputeNode, u64),
        now: MonotonicNs,
        park: impl FnOnce() -> LateReply,
    ) -> Result<Option<Recalls>, ServerError> {
        self.with_keepers(|keepers, due| keepers.listen(who, now, park, due))
    }

    /// As [`Keepers::recall`].
    pub(crate) fn recall(
        &self,
        what: (ComputeNode, Recalled),
        now: MonotonicNs,
        park: impl FnOnce() -> LateReply,
    ) -> Option<bool> {
        self.with_keepers(|keepers, due| keepers.recall(what, now, park, due))
    }

    pub(super) fn end_keeper(&self, who: ComputeNode) {
        self.with_keepers(|keepers, due| keepers.end(who, due));
    }

    pub(super) fn look_at_keepers(&self, now: MonotonicNs) -> Option<MonotonicNs> {
        self.with_keepers(|keepers, due| keepers.look(now, due))
    }

    fn with_keepers<T>(
        &self,
        run: impl FnOnce(&mut Keepers<LateReply>, &mut Vec<Resolved<LateReply>>) -> T,
    ) -> T {
        let mut due = Vec::new();
        let done = run(&mut self.keepers(), &mut due);
        // Workers are woken without the lock.
        for due in due {
            match due {
                Resolved::Told(call, recalls) => call.answer(|reply| reply.push_control(&recalls)),
                Resolved::Recalled(call, is_done) => call.answer(|reply| reply.push_control(&is_done)),
            }
        }
        done
    }

    pub(super) fn keepers(&self) -> MutexGuard<'_, Keepers<LateReply>> {
        // Each change is complete, or a bug that ends all answers.
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
