//! Writes that look at the pair first: what they compare with, and which keys are counters.

use farsight_base::prng::mix;
use farsight_oracles::Identity;
use farsight_oracles::values;
use farsight_protocol::{INTEGER_BYTES, Operand, WriteOperation};

use super::{Client, End};
use crate::cluster::Cluster;

/// Of the keys of integers, one in so many is a counter where writes look at keys.
const COUNTERS_ONE_IN: u64 = 4;
/// Of what writes compare with, one in so many is wrong.
const STRAYS_ONE_IN: u64 = 8;
/// What is added to a counter at most.
const ADDEND_MAX: u64 = 3;

impl<C: Cluster> Client<C> {
    /// True if nothing but additions changes the key.
    pub(super) fn is_counter(&self, key: Identity) -> bool {
        self.plan.conditional_percent > 0
            && (self.plan.block_lengths.is_some()
                || self.store.session.table().value_bytes() == INTEGER_BYTES)
            && mix(key.0).is_multiple_of(COUNTERS_ONE_IN)
    }

    /// Appends the operand of the write with this number, and its argument if it has one.
    pub(super) fn push_operand(
        &self,
        operation: WriteOperation,
        key: Identity,
        (number, argument): (u64, Option<u64>),
        into: &mut Vec<u8>,
    ) {
        let value_of = |number| {
            let mut value = vec![0; self.value_bytes(key, number)];
            values::write(number, &mut value);
            value
        };
        match (operation, argument) {
            (WriteOperation::CompareAndSetValue, Some(expected)) if self.plan.block_lengths.is_some() => {
                return Operand::push_compare_value(into, &value_of(expected), &value_of(number));
            }
            (WriteOperation::CompareAndSetValue, Some(expected)) => into.extend(value_of(expected)),
            (WriteOperation::Swap, _) | (_, None) => {}
            (_, Some(argument)) => into.extend(argument.to_le_bytes()),
        }
        if !matches!(operation, WriteOperation::FetchAdd | WriteOperation::RemoveIf | WriteOperation::Remove)
        {
            into.extend(value_of(number));
        }
    }

    /// Writes some keys with a look at them first; adds to those that are counters.
    pub(super) fn write_if(&mut self, count: usize) -> Result<(), End> {
        use WriteOperation::{CompareAndSet, CompareAndSetValue, RemoveIf, Swap};
        let operations =
            [CompareAndSet, CompareAndSet, CompareAndSetValue, CompareAndSetValue, RemoveIf, Swap];
        let operation = operations[self.random.below(operations.len() as u64) as usize];
        self.with_keys(count, |own, keys| own.write_keys(operation, keys))
    }

    /// What a write of the key compares with, mostly what was last read of it; or what it adds.
    pub(super) fn argument(&mut self, operation: WriteOperation, key: Identity) -> u64 {
        let seen = self.seen.borrow().get(&key).copied();
        let is_stray = self.random.below(STRAYS_ONE_IN) == 0;
        match operation {
            WriteOperation::FetchAdd => 1 + self.random.below(ADDEND_MAX),
            WriteOperation::CompareAndSetValue => seen.map_or(u64::MAX, |seen| seen.number),
            WriteOperation::CompareAndSet | WriteOperation::RemoveIf => {
                seen.map_or(0, |seen| seen.version) + u64::from(is_stray)
            }
            _ => 0,
        }
    }
}
