//! Writes of one key in one batch that replace whatever stands there: one of them is written for all.
//!
//! Invariant: of the writes of one key, the last one's value is stored, by one swap of the slot. The others
//! took effect just before it, in their order, and nobody read between them. Each has a version of its own,
//! above the pair's that was there: the versions next below the last one's.
//!
//! That is what a batch means anyway, for it promises no pause between its writes. It costs one WRITE and one
//! compare-and-swap a key, however many write the key. A compute node that writes for others has such batches
//! of their calls.

use std::collections::HashMap;
use std::sync::Arc;

use farsight_index::{Key, Writes};
use farsight_protocol::{WriteOperation, WriteOutcome};

#[cfg(injected)]
use crate::injected;
use crate::session::Written;
use crate::write::replaces_any_value;
use crate::{FlexError, FlexSession};

/// A batch whose keys are all different.
pub(crate) struct Combined<'w> {
    operation: WriteOperation,
    keys: Vec<Key<'w>>,
    values: Vec<u8>,
    bounds: Vec<usize>,
    /// Of each key, how many writes came before the one that is left.
    absorbed: Vec<u64>,
    /// Of each write of the whole batch, the number of its key.
    numbers: Vec<usize>,
}

impl<'w> Combined<'w> {
    /// The writes that are left.
    pub(crate) fn writes(&self) -> Writes<'_, Key<'w>> {
        let Self { operation, keys, values, bounds, .. } = self;
        Writes { operation: *operation, keys, values, bounds }
    }

    /// How many writes each of those stands for, itself aside.
    pub(crate) fn absorbed(&self) -> &[u64] {
        &self.absorbed
    }

    /// What became of all writes, by what became of those that are left.
    pub(crate) fn expand(mut self, done: Vec<Written>) -> impl Iterator<Item = Written> + use<'w> {
        let done: Vec<_> = done.into_iter().map(|written| written.map_err(Arc::new)).collect();
        let mut is_first = vec![true; done.len()];
        self.numbers.into_iter().map(move |number| {
            let before_last = self.absorbed[number];
            self.absorbed[number] = before_last.saturating_sub(1);
            let was_first = std::mem::take(&mut is_first[number]);
            match &done[number] {
                Ok(WriteOutcome::Inserted(version)) if was_first => {
                    Ok(WriteOutcome::Inserted(version - before_last))
                }
                Ok(WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version)) => {
                    Ok(WriteOutcome::Replaced(version - before_last))
                }
                Ok(outcome) => Ok(*outcome),
                Err(error) => Err(FlexError::of_all(error)),
            }
        })
    }
}

impl FlexSession {
    /// The batch with one write a key, if its writes replace whatever stands there and none is refused for
    /// its operand.
    pub(crate) fn combine<'w>(&self, writes: Writes<'_, Key<'w>>) -> Option<Combined<'w>> {
        let is_sound = |(key, operand)| self.operand(writes, key, operand).is_ok();
        if !replaces_any_value(writes.operation)
            || !writes.iter().all(is_sound)
            || self.may_end_soon(writes.iter().map(|(_, stored)| stored))
        {
            return None;
        }
        let mut known: HashMap<Key<'_>, usize> = HashMap::with_capacity(writes.keys.len());
        let (mut lasts, mut absorbed, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for (index, key) in writes.keys.iter().enumerate() {
            let number = *known.entry(*key).or_insert(lasts.len());
            if number == lasts.len() {
                lasts.push(index);
                absorbed.push(0);
            } else {
                #[cfg(injected)]
                let index = if injected::FIRST_WRITE_STORED.is_injected() { lasts[number] } else { index };
                lasts[number] = index;
                absorbed[number] += 1;
            }
            numbers.push(number);
        }
        let (by_index, mut values, mut bounds) = (writes.by_index(), Vec::new(), vec![0]);
        let keys = lasts.iter().map(|last| {
            let (key, value) = by_index(*last);
            values.extend_from_slice(value);
            bounds.push(values.len());
            key
        });
        let keys = keys.collect();
        Some(Combined { operation: writes.operation, keys, values, bounds, absorbed, numbers })
    }
}

#[cfg(test)]
mod tests {
    use farsight_index::OwnedKey;

    use super::*;

    fn combined(absorbed: Vec<u64>, numbers: Vec<usize>) -> Combined<'static> {
        let (keys, values, bounds) = (Vec::new(), Vec::new(), Vec::new());
        Combined { operation: WriteOperation::Put, keys, values, bounds, absorbed, numbers }
    }

    #[test]
    fn each_write_of_a_key_has_a_version_and_the_first_one_alone_inserts() {
        let done = vec![Ok(WriteOutcome::Inserted(9)), Ok(WriteOutcome::Replaced(5))];
        let all: Vec<_> = combined(vec![2, 1], vec![0, 1, 0, 0, 1]).expand(done).collect();
        let all: Vec<_> = all.into_iter().map(|written| written.expect("done")).collect();
        assert_eq!(
            all,
            [
                WriteOutcome::Inserted(7),
                WriteOutcome::Replaced(4),
                WriteOutcome::Replaced(8),
                WriteOutcome::Replaced(9),
                WriteOutcome::Replaced(5)
            ]
        );
    }

    #[test]
    fn all_writes_of_a_key_fail_alike() {
        let lost = FlexError::Contended { key: 3.into(), attempts: 7 };
        let all: Vec<_> = combined(vec![1], vec![0, 0]).expand(vec![Err(lost)]).collect();
        assert_eq!(all.len(), 2);
        for written in all {
            let error = written.expect_err("it failed");
            assert!(
                matches!(error.failed_in(), FlexError::Contended { key: OwnedKey::Integer(3), .. }),
                "{error}"
            );
        }
    }
}
