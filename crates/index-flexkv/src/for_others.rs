//! Writes of any kinds, which this compute node executes for others.
//!
//! Invariant: of each key they take effect in their order. Where one fails, none behind it is executed: its
//! caller may do it one-sided, and those behind it then.
//!
//! Protocol: keys of which all writes replace whatever stands there go the way of a batch of those
//! ([`crate::combine`]). Of each other key the writes are a [row](crate::row), or several: as much of it as
//! one effect does, then the rest. All keys are written side by side.
//!
//! Where pairs have deadlines a row is one write. For what it stores may end before the next one.
//! Writes that replace whatever stands there are combined all the same, if none of them ends soon.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use farsight_fabric::lane::{PoolLane, PoolSlot};
use farsight_fabric::{FabricError, QueuePair};
use farsight_index::{Key, MixedWrites, OldValues, Undecided, Writes};
use farsight_protocol::{ErrorCode, WriteOperation, WriteOutcome};

use crate::row::Step;
use crate::session::{Done, Written, has_changed, writes_side_by_side};
use crate::write::{Write, replaces_any_value};
use crate::{FlexError, FlexSession};

/// The writes of one key.
struct Waiting<'w> {
    key: Key<'w>,
    /// Their numbers.
    indexes: Vec<usize>,
    steps: Vec<Step<'w>>,
    /// What became of the first of them.
    done: Vec<Done>,
}

impl FlexSession {
    /// Executes writes for others, and appends what became of each to `outcomes`, and the value before to
    /// `old_values`.
    pub(crate) fn write_for_others<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        writes: MixedWrites<'_>,
        outcomes: &mut Vec<Written>,
        old_values: &mut OldValues,
    ) {
        self.count(|counters| counters.writes += writes.keys.len() as u64);
        let mut done: Vec<Done> = Vec::new();
        done.resize_with(writes.keys.len(), Done::default);
        let mut waiting = self.by_key(writes, &mut done);
        for operation in [WriteOperation::Put, WriteOperation::Update] {
            let is_one = |of: &Waiting<'_>| {
                let are_alike = of.steps.iter().all(|step| step.operation == operation);
                // Then they are combined, and fail together.
                are_alike && !self.may_end_soon(of.steps.iter().map(|step| step.operand.value))
            };
            let blind = waiting.extract_if(.., |of| is_one(of));
            let mut indexes: Vec<usize> = blind.flat_map(|of| of.indexes).collect();
            indexes.sort_unstable();
            self.write_blind(queues, (operation, writes), &indexes, &mut done);
        }
        self.write_rows(queues, &mut waiting);
        for (index, of) in waiting.into_iter().flat_map(|of| of.indexes.into_iter().zip(of.done)) {
            done[index] = of;
        }
        for (written, old) in done {
            outcomes.push(written.expect("each is done, or failed"));
            old_values.push(&old);
        }
    }

    /// The writes by their keys. One that is refused for its operand is done.
    fn by_key<'w>(&self, writes: MixedWrites<'w>, done: &mut [Done]) -> Vec<Waiting<'w>> {
        let mut known = HashMap::with_capacity(writes.keys.len());
        let mut waiting: Vec<Waiting<'_>> = Vec::new();
        for (index, (key, operation)) in writes.keys.iter().zip(writes.operations).enumerate() {
            let operand = match self.operand_of(*operation, *key, writes.operand(index)) {
                Ok(operand) => operand,
                Err(error) => {
                    done[index].0 = Some(Err(error));
                    continue;
                }
            };
            let number = match known.entry(*key) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let (indexes, steps, done) = (Vec::new(), Vec::new(), Vec::new());
                    waiting.push(Waiting { key: *key, indexes, steps, done });
                    *new.insert(waiting.len() - 1)
                }
            };
            waiting[number].indexes.push(index);
            waiting[number].steps.push(Step { operation: *operation, operand });
        }
        waiting
    }

    /// Executes those of one kind that replace whatever stands there.
    fn write_blind<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (operation, writes): (WriteOperation, MixedWrites<'_>),
        indexes: &[usize],
        done: &mut [Done],
    ) {
        debug_assert!(replaces_any_value(operation), "others are told what they found");
        if indexes.is_empty() {
            return;
        }
        let keys: Vec<Key<'_>> = indexes.iter().map(|index| writes.keys[*index]).collect();
        let (mut values, mut bounds) = (Vec::new(), vec![0]);
        for index in indexes {
            values.extend_from_slice(writes.operand(*index));
            bounds.push(values.len());
        }
        let of_kind = Writes { operation, keys: &keys, values: &values, bounds: &bounds };
        let mut written = Vec::with_capacity(indexes.len());
        self.write_here(queues, of_kind, &mut written, &mut OldValues::default());
        for (index, written) in indexes.iter().zip(written) {
            done[*index].0 = Some(written);
        }
    }

    /// Executes the writes of all keys side by side. Each is done then, or failed.
    fn write_rows<Q: QueuePair>(&self, queues: &mut [Q], waiting: &mut [Waiting<'_>]) {
        if waiting.is_empty() {
            return;
        }
        let until = match self.begin_writes(queues) {
            Ok(until) => until,
            Err(error) => {
                let error = Arc::new(error);
                for of in waiting {
                    of.fail(&error);
                }
                return;
            }
        };
        let width = writes_side_by_side::<Q>(waiting.len());
        let run = PoolLane::new(queues).run(
            &mut self.buffers.lane.borrow_mut(),
            width,
            waiting.iter_mut(),
            |slot, of| async move { self.write_in_rows(&slot, of).await },
        );
        if let Err(error) = run {
            // What the fabric cut off has no outcome.
            for of in waiting {
                of.lose(&error);
            }
        } else if let Err(error) = self.check_believed(until, queues[0].now()) {
            let error = Arc::new(error);
            for of in waiting {
                of.doubt(&error);
            }
        }
    }

    /// Executes the writes of one key, each row behind the other.
    async fn write_in_rows<Q: QueuePair>(&self, slot: &PoolSlot<'_, '_, Q>, of: &mut Waiting<'_>) {
        let mut told = Vec::new();
        // Each turn does one at least.
        while let Some((first, then)) = of.steps[of.done.len()..].split_first() {
            let then = if self.has_deadlines() { &[] } else { then };
            let (Step { operation, operand }, absorbed) = (*first, then.len() as u64);
            let write = Write { operation, key: of.key, operand, absorbed, then, is_ending: false };
            let mut old = Vec::new();
            match self.write_row(slot, write, &mut old, &mut told).await {
                Ok(outcome) => of.done.push((Some(Ok(outcome)), old)),
                Err(FlexError::Undecided { source: Undecided::NotInteger { .. }, .. }) => {
                    of.done.push((Some(Ok(WriteOutcome::Failed(ErrorCode::NotInteger))), old));
                }
                Err(error) => return of.fail(&Arc::new(error)),
            }
            of.done.extend(told.drain(..).map(|(outcome, old)| (Some(Ok(outcome)), old)));
        }
    }
}

impl Waiting<'_> {
    /// All that are not done have failed.
    fn fail(&mut self, error: &Arc<FlexError>) {
        let left = self.steps.len() - self.done.len();
        self.done.extend((0..left).map(|_| (Some(Err(FlexError::of_all(error))), Vec::new())));
    }

    /// The same, by the fabric: what was under way may have taken effect.
    fn lose(&mut self, error: &FabricError) {
        let (key, source) = (self.key.into(), error.clone());
        self.fail(&Arc::new(FlexError::Indeterminate { key, source }));
    }

    /// Those that changed nothing have only read, and that is not to be believed.
    fn doubt(&mut self, error: &Arc<FlexError>) {
        let is_left = |written: &Option<Written>| written.as_ref().is_some_and(|done| !has_changed(done));
        for (written, _) in self.done.iter_mut().filter(|(written, _)| is_left(written)) {
            *written = Some(Err(FlexError::of_all(error)));
        }
    }
}
