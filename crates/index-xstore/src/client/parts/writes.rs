//! Writes at several parts: each part's entries in their order, the parts' calls side by side.

use farsight_fabric::QueuePair;
use farsight_protocol::{ErrorCode, WriteOperation, WriteOutcome};

use super::super::write::Writing;
use super::super::{XClient, XStoreError};
use super::XParts;

/// One part's entries of a batch, and what became of them.
#[derive(Default)]
struct Share<'v> {
    entries: Vec<(u64, &'v [u8])>,
    /// Entries sent.
    sent: usize,
    writing: Writing,
    has_calls_under_way: bool,
    outcomes: Vec<WriteOutcome>,
    /// Outcomes handed on.
    taken: usize,
}

impl Share<'_> {
    /// Sends what may be sent. After a failure nothing is sent any more.
    fn send<Q: QueuePair>(&mut self, client: &mut XClient, queue: &mut Q, operation: WriteOperation) {
        let mut left = self.entries[self.sent..].iter().copied();
        let sent = client.send_more(queue, &mut self.writing, operation, &mut left);
        self.sent = self.entries.len() - left.len();
        self.has_calls_under_way = self.noted(sent).unwrap_or(false);
    }

    fn take<Q: QueuePair>(&mut self, client: &mut XClient, queue: &mut Q) {
        let taken = client.take_oldest(queue, &mut self.writing, &mut self.outcomes);
        if self.noted(taken).is_none() {
            self.has_calls_under_way = false;
        }
    }

    fn noted<T>(&mut self, result: Result<T, XStoreError>) -> Option<T> {
        result.map_err(|error| self.writing.done = Err(error)).ok()
    }

    fn failure(&self) -> Option<&XStoreError> {
        self.writing.done.as_ref().err()
    }
}

impl XParts {
    /// Executes `operation` on each of `entries`, those of one key in their order, and appends what became of
    /// each to `outcomes`.
    ///
    /// # Errors
    /// [`XStoreError`]; then `outcomes` holds those of the entries before the first one of which
    /// nothing is known. If that [`XStoreError::is_indeterminate`], any of the others may have been
    /// executed. A part that refuses its entries when others were executed is no error: its entries have
    /// failed.
    pub fn write<'v, Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        operation: WriteOperation,
        mut entries: impl ExactSizeIterator<Item = (u64, &'v [u8])> + Clone,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), XStoreError> {
        if self.parts.len() == 1 || entries.len() == 1 {
            let part = entries.clone().next().map_or(0, |(key, _)| self.part_of(key));
            return self.parts[part].client.write(&mut queues[part], operation, entries, outcomes);
        }
        let mut shares: Vec<Share<'v>> = self.parts.iter().map(|_| Share::default()).collect();
        for (key, value) in entries.clone() {
            shares[self.part_of(key)].entries.push((key, value));
        }
        self.write_shares(queues, operation, &mut shares);
        for (part, share) in self.parts.iter_mut().zip(&shares) {
            part.client.counters.writes += share.outcomes.len() as u64;
        }
        let Some(failure) = worst(&shares) else {
            outcomes.extend(entries.map(|(key, _)| shares[self.part_of(key)].next().expect("all are known")));
            return Ok(());
        };
        let is_nothing_known = shares.iter().all(|share| share.outcomes.is_empty());
        if failure.is_indeterminate() || is_nothing_known {
            let failure = failure.clone();
            outcomes.extend(entries.map_while(|(key, _)| shares[self.part_of(key)].next()));
            return Err(failure);
        }
        outcomes.extend(entries.by_ref().map(|(key, _)| {
            let share = &mut shares[self.part_of(key)];
            share.next().unwrap_or_else(|| WriteOutcome::Failed(code_of(share.failure())))
        }));
        Ok(())
    }

    fn write_shares<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        operation: WriteOperation,
        shares: &mut [Share<'_>],
    ) {
        for ((part, queue), share) in self.parts.iter_mut().zip(&mut *queues).zip(&mut *shares) {
            let refreshed = part.client.take_refresh(queue);
            share.noted(refreshed);
        }
        loop {
            for ((part, queue), share) in self.parts.iter_mut().zip(&mut *queues).zip(&mut *shares) {
                if share.has_calls_under_way || share.failure().is_none() {
                    share.send(&mut part.client, queue, operation);
                }
            }
            if !shares.iter().any(|share| share.has_calls_under_way) {
                return;
            }
            for ((part, queue), share) in self.parts.iter_mut().zip(&mut *queues).zip(&mut *shares) {
                if share.has_calls_under_way {
                    share.take(&mut part.client, queue);
                }
            }
        }
    }
}

impl Share<'_> {
    /// The next outcome in the order of the entries.
    fn next(&mut self) -> Option<WriteOutcome> {
        let outcome = self.outcomes.get(self.taken).copied();
        self.taken += usize::from(outcome.is_some());
        outcome
    }
}

/// The failure that says most about what may have been executed.
fn worst<'a>(shares: &'a [Share<'_>]) -> Option<&'a XStoreError> {
    let failures = || shares.iter().filter_map(Share::failure);
    failures().find(|failure| failure.is_indeterminate()).or_else(|| failures().next())
}

/// By what code the entries of a part have failed.
fn code_of(failure: Option<&XStoreError>) -> ErrorCode {
    match failure {
        Some(XStoreError::Server(refusal)) => refusal.code,
        _ => ErrorCode::OutOfResources,
    }
}
