//! Writes at several parts: each part's entries in their order, the parts' calls side by side. A batch that
//! is cut off is gone on with by another engine, each part's share where that stood.

use farsight_fabric::QueuePair;
use farsight_index::{OldValues, Unfinished, Writes, clear_kept};
use farsight_protocol::{ErrorCode, WriteOutcome};

use super::super::write::{Returned, Writing};
use super::super::{XClient, XStoreError};
use super::{Part, XParts};

/// One part's entries of a batch, and what became of them.
#[derive(Default)]
pub(super) struct Share {
    /// Their numbers in the batch.
    entries: Vec<usize>,
    /// Entries sent.
    sent: usize,
    writing: Writing,
    has_calls_under_way: bool,
    outcomes: Vec<WriteOutcome>,
    /// A value an outcome, if the operation returns those before.
    old_values: OldValues,
    /// Outcomes handed on.
    taken: usize,
}

impl Share {
    /// Sends what may be sent. After a failure nothing is sent any more.
    fn send<Q: QueuePair>(&mut self, client: &mut XClient, queue: &mut Q, writes: Writes<'_>) {
        let of_batch = writes.by_index();
        let mut left = self.entries[self.sent..].iter().map(|entry| of_batch(*entry));
        let sent = client.send_more(queue, &mut self.writing, writes.operation, &mut left);
        self.sent = self.entries.len() - left.len();
        self.has_calls_under_way = self.noted(sent).unwrap_or(false);
    }

    fn take<Q: QueuePair>(&mut self, client: &mut XClient, queue: &mut Q) {
        let (outcomes, old_values) = (&mut self.outcomes, &mut self.old_values);
        let taken = client.take_oldest(queue, &mut self.writing, outcomes, old_values);
        self.sent -= std::mem::take(&mut self.writing.left_over);
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

    /// The next outcome in the order of the entries; its value before is appended to `old_values`.
    fn next(&mut self, old_values: &mut OldValues) -> Option<WriteOutcome> {
        let outcome = self.outcomes.get(self.taken).copied()?;
        if let Some(old) = self.old_values.get(self.taken) {
            old_values.push(old);
        }
        self.taken += 1;
        Some(outcome)
    }

    /// Keeps the memory, for the next batch.
    fn forget(&mut self) {
        let Self { mut entries, mut outcomes, mut old_values, .. } = std::mem::take(self);
        clear_kept(&mut entries);
        clear_kept(&mut outcomes);
        old_values.clear_kept();
        *self = Self { entries, outcomes, old_values, ..Self::default() };
    }
}

impl XParts {
    /// Executes writes, those of one key in their order, and appends what became of each to `outcomes`. If
    /// the operation returns the values before, one an outcome is appended to `old_values`.
    ///
    /// # Errors
    /// [`XStoreError`]; then `outcomes` holds those of the entries before the first one of which
    /// nothing is known. If that [`XStoreError::is_indeterminate`], any of the others may have been
    /// executed. A part that refuses its entries when others were executed is no error: its entries have
    /// failed.
    pub fn write<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), XStoreError> {
        self.unfinished = None;
        let resumed = self.resumed.take();
        if self.parts.len() == 1 || writes.keys.len() == 1 {
            let part = writes.keys.first().map_or(0, |key| self.part_of(*key));
            let before = (outcomes.len(), old_values.len());
            let mut left = writes;
            if let Some(mut resumed) = resumed {
                let share = std::mem::take(&mut resumed.shares[part]);
                left = writes.split_at(share.outcomes.len()).1;
                outcomes.extend_from_slice(&share.outcomes);
                share.old_values.iter().for_each(|old| old_values.push(old));
            }
            let client = &mut self.parts[part].client;
            let written = client.write(&mut queues[part], left.operation, left.iter(), outcomes, old_values);
            if let Err(XStoreError::Fabric(_)) = &written {
                self.keep_unfinished_at(part, &outcomes[before.0..], old_values, before.1);
            }
            return written;
        }
        self.parts.iter_mut().for_each(|part| part.client.begin_batch());
        let returned = Returned::by(writes.operation, self.parts[0].client.cache.table().definition.values);
        self.parts.iter_mut().for_each(|part| part.share.writing.returned = returned);
        for (entry, key) in writes.keys.iter().enumerate() {
            let part = self.part_of(*key);
            self.parts[part].share.entries.push(entry);
        }
        let known = resumed.into_iter().flat_map(|resumed| resumed.shares);
        for (part, known) in self.parts.iter_mut().zip(known) {
            part.share.sent = known.outcomes.len();
            (part.share.outcomes, part.share.old_values) = (known.outcomes, known.old_values);
        }
        self.write_shares(queues, writes);
        let gathered = self.gather_outcomes(writes, outcomes, old_values);
        if let Err(XStoreError::Fabric(_)) = &gathered {
            self.keep_unfinished();
        }
        self.parts.iter_mut().for_each(|part| part.share.forget());
        gathered
    }

    /// Keeps where the batch stands at each part.
    #[cold]
    fn keep_unfinished(&mut self) {
        let shares = self.parts.iter_mut().map(|Part { client, share, .. }| {
            client.keep_lost(&share.writing);
            client.unfinished(std::mem::take(&mut share.outcomes), std::mem::take(&mut share.old_values))
        });
        self.unfinished = shares.collect::<Option<_>>().map(|shares| Unfinished { shares });
    }

    /// The same of a batch that is at one part alone. Its values before begin at this number.
    #[cold]
    fn keep_unfinished_at(
        &mut self,
        only: usize,
        outcomes: &[WriteOutcome],
        old_values: &OldValues,
        first_old: usize,
    ) {
        let mut old = OldValues::default();
        old_values.iter().skip(first_old).for_each(|value| old.push(value));
        let mut known = Some((outcomes.to_vec(), old));
        let shares =
            self.parts.iter_mut().enumerate().map(|(number, part)| match known.take_if(|_| number == only) {
                Some((outcomes, old_values)) => part.client.unfinished(outcomes, old_values),
                None => Some(part.client.untouched()),
            });
        self.unfinished = shares.collect::<Option<_>>().map(|shares| Unfinished { shares });
    }

    /// As [`Engine::take_unfinished`](farsight_index::Engine::take_unfinished).
    pub fn take_unfinished(&mut self) -> Option<Unfinished> {
        self.unfinished.take()
    }

    /// As [`Engine::resume`](farsight_index::Engine::resume).
    ///
    /// # Panics
    /// Unless it is of as many parts.
    pub fn resume(&mut self, mut unfinished: Unfinished) {
        assert_eq!(unfinished.shares.len(), self.parts.len(), "parts of one table");
        for (part, share) in self.parts.iter_mut().zip(&mut unfinished.shares) {
            part.client.resume(share);
        }
        self.resumed = Some(unfinished);
    }

    fn write_shares<Q: QueuePair>(&mut self, queues: &mut [Q], writes: Writes<'_>) {
        for (Part { client, share, .. }, queue) in self.parts.iter_mut().zip(&mut *queues) {
            let refreshed = client.take_refresh(queue);
            share.noted(refreshed);
        }
        loop {
            for (Part { client, share, .. }, queue) in self.parts.iter_mut().zip(&mut *queues) {
                if share.has_calls_under_way || share.failure().is_none() {
                    share.send(client, queue, writes);
                }
            }
            if !self.parts.iter().any(|part| part.share.has_calls_under_way) {
                return;
            }
            for (Part { client, share, .. }, queue) in self.parts.iter_mut().zip(&mut *queues) {
                if share.has_calls_under_way {
                    share.take(client, queue);
                }
            }
        }
    }

    /// Appends what became of the writes, as [`XParts::write`] says.
    fn gather_outcomes(
        &mut self,
        Writes { operation, keys, .. }: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), XStoreError> {
        for Part { client, share, .. } in &mut self.parts {
            client.counters.writes += share.outcomes.len() as u64;
        }
        let Some(failure) = worst(&self.parts).cloned() else {
            let next = |key: &u64| self.share_of(*key).next(old_values).expect("all are known");
            outcomes.extend(keys.iter().map(next));
            return Ok(());
        };
        let is_nothing_known = self.parts.iter().all(|part| part.share.outcomes.is_empty());
        if failure.is_indeterminate() || is_nothing_known {
            outcomes.extend(keys.iter().map_while(|key| self.share_of(*key).next(old_values)));
            return Err(failure);
        }
        outcomes.extend(keys.iter().map(|key| {
            let share = self.share_of(*key);
            share.next(old_values).unwrap_or_else(|| {
                if operation.returns_value() {
                    old_values.push(&[]);
                }
                WriteOutcome::Failed(code_of(share.failure()))
            })
        }));
        Ok(())
    }

    fn share_of(&mut self, key: u64) -> &mut Share {
        let part = self.part_of(key);
        &mut self.parts[part].share
    }
}

/// The failure that says most about what may have been executed.
fn worst(parts: &[Part]) -> Option<&XStoreError> {
    let failures = || parts.iter().filter_map(|part| part.share.failure());
    failures().find(|failure| failure.is_indeterminate()).or_else(|| failures().next())
}

/// By what code the entries of a part have failed.
fn code_of(failure: Option<&XStoreError>) -> ErrorCode {
    match failure {
        Some(XStoreError::Server(refusal)) => refusal.code,
        _ => ErrorCode::OutOfResources,
    }
}
