//! Writes that compare or return values that no message carries.
//!
//! Invariant: each is one step, as every write: at its instant the key has the version that was compared.
//! Versions never recur in a table. So a compare-and-set by the version of a value that was read is one by
//! that value.
//!
//! Protocol: read the value, decide, and write by a compare-and-set of its version. If others wrote the key
//! meanwhile, do it again, [`TURNS_MAX`] times in all.
//!
//! Of a batch the writes of one key keep their order. So a batch goes in *runs*, in each of which a key comes
//! once.

use std::collections::HashSet;

use farsight_fabric::QueuePair;
use farsight_index::{Answers, OldValues, Writes};
use farsight_protocol::{
    ErrorCode, HEADER_BYTES, Operand, ReplyWriter, ValueEntries, WriteOperation, WriteOutcome,
};

use super::super::XStoreError;
use super::super::authorship::envelope_bytes;
use super::XBlocks;

/// Turns of such a write before it fails, because others always came first.
const TURNS_MAX: usize = 64;
/// A version that no pair has.
const NO_VERSION: u64 = u64::MAX;
/// The version that an absent key is expected to have.
const ABSENT: u64 = 0;

/// What is stored of a value, and its version.
type Stored = (Vec<u8>, u64);

impl XBlocks {
    /// Executes writes, as [`XParts::write`](super::super::XParts::write) does.
    pub(super) fn write_any_length<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), XStoreError> {
        let may_be_long = match writes.operation {
            WriteOperation::Swap => {
                let longest = ReplyWriter::exchanged_value_bytes(self.values_kind.bytes_max());
                HEADER_BYTES + longest > Q::MESSAGE_BYTES_MAX
            }
            WriteOperation::CompareAndSetValue => writes.iter().any(|(_, operand)| is_long::<Q>(operand)),
            _ => false,
        };
        if !may_be_long {
            return self.references.write(queues, writes, outcomes, old_values);
        }
        let mut begin = 0;
        while begin < writes.keys.len() {
            let end = begin + run(writes.keys, begin);
            let written = self.write_run(queues, part(writes, begin, end), outcomes, old_values);
            // Nobody goes on with a batch that compared or decided here.
            self.references.take_unfinished();
            written?;
            begin = end;
        }
        Ok(())
    }

    /// Executes writes of keys that differ.
    fn write_run<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), XStoreError> {
        if writes.operation == WriteOperation::CompareAndSetValue {
            return self.compare_run(queues, writes, outcomes);
        }
        let (mut swapped, mut before) = (Vec::new(), OldValues::default());
        let written = self.references.write(queues, writes, &mut swapped, &mut before);
        for (number, (outcome, (key, operand))) in swapped.into_iter().zip(writes.iter()).enumerate() {
            // The answer had no room for the value before.
            let is_left = outcome == WriteOutcome::Failed(ErrorCode::OutOfResources);
            if is_left && written.is_err() {
                // Nothing was changed, and nobody will try again: the connection is lost.
                outcomes.push(WriteOutcome::Failed(ErrorCode::Contended));
                old_values.push(&[]);
            } else if is_left {
                let (outcome, old) = match self.swap_long(queues, key, operand) {
                    // Later ones of the run were executed: a refusal is of this one alone.
                    Err(XStoreError::Server(error)) if error.code != ErrorCode::Bug => {
                        (WriteOutcome::Failed(error.code), Vec::new())
                    }
                    swapped => swapped?,
                };
                outcomes.push(outcome);
                old_values.push(&old);
            } else {
                outcomes.push(outcome);
                old_values.push(before.get(number).unwrap_or_default());
            }
        }
        written
    }

    /// Compare-and-sets by value, those that no message carries one by one.
    fn compare_run<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), XStoreError> {
        let of = writes.by_index();
        let mut begin = 0;
        while begin < writes.keys.len() {
            let (key, operand) = of(begin);
            if is_long::<Q>(operand) {
                let compared = self.compare_long(queues, key, operand)?;
                outcomes.push(compared);
                begin += 1;
                continue;
            }
            let short = (begin..writes.keys.len()).take_while(|index| !is_long::<Q>(of(*index).1)).count();
            let writes = part(writes, begin, begin + short);
            self.references.write(queues, writes, outcomes, &mut OldValues::default())?;
            begin += short;
        }
        Ok(())
    }

    /// A swap, and the value before.
    fn swap_long<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        key: u64,
        value: &[u8],
    ) -> Result<(WriteOutcome, Vec<u8>), XStoreError> {
        for _ in 0..TURNS_MAX {
            let stored = self.get_stored(queues, key)?;
            if let Some((mut stored, version)) = stored {
                match self.set_if(queues, key, version, value)? {
                    WriteOutcome::Differs(_) => continue,
                    // Removed meanwhile, or its deadline has passed.
                    WriteOutcome::Absent => {}
                    WriteOutcome::Replaced(version) => {
                        stored.drain(..self.values_kind.deadline_bytes().min(stored.len()));
                        return Ok((WriteOutcome::Replaced(version), stored));
                    }
                    failed => return Ok((failed, Vec::new())),
                }
            }
            match self.set_if(queues, key, ABSENT, value)? {
                WriteOutcome::Differs(_) => {}
                done => return Ok((done, Vec::new())),
            }
        }
        Ok((WriteOutcome::Failed(ErrorCode::Contended), Vec::new()))
    }

    /// A compare-and-set by value.
    fn compare_long<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        key: u64,
        operand: &[u8],
    ) -> Result<WriteOutcome, XStoreError> {
        let operation = WriteOperation::CompareAndSetValue;
        let Operand { argument, value } =
            Operand::of_any_length(operation, operand).expect("the caller has looked at its values");
        let deadline_bytes = self.values_kind.deadline_bytes();
        for _ in 0..TURNS_MAX {
            let Some((stored, version)) = self.get_stored(queues, key)? else {
                return Ok(WriteOutcome::Absent);
            };
            if stored.get(deadline_bytes..) == Some(argument) {
                match self.set_if(queues, key, version, value)? {
                    WriteOutcome::Differs(_) => continue,
                    done => return Ok(done),
                }
            }
            // The server knows whether the deadline of the pair that differs has passed.
            let looked = if deadline_bytes == 0 {
                WriteOutcome::Differs(version)
            } else {
                self.set_if(queues, key, NO_VERSION, &value[..deadline_bytes])?
            };
            if !matches!(looked, WriteOutcome::Differs(other) if other != version) {
                return Ok(looked);
            }
        }
        Ok(WriteOutcome::Failed(ErrorCode::Contended))
    }

    /// What is stored of the value of a key.
    fn get_stored<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        key: u64,
    ) -> Result<Option<Stored>, XStoreError> {
        let mut answers = Answers::default();
        self.get_many(queues, &[key], &mut answers)?;
        Ok(answers.get(0).map(|(stored, version)| (stored.to_vec(), version)))
    }

    /// Stores a value if the key has this version.
    fn set_if<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        key: u64,
        version: u64,
        value: &[u8],
    ) -> Result<WriteOutcome, XStoreError> {
        let operand = [&version.to_le_bytes(), value].concat();
        let writes = Writes {
            operation: WriteOperation::CompareAndSet,
            keys: &[key],
            values: &operand,
            bounds: &[0, operand.len()],
        };
        let mut outcomes = Vec::with_capacity(1);
        self.references.write(queues, writes, &mut outcomes, &mut OldValues::default())?;
        Ok(outcomes[0])
    }
}

/// True if no message carries this operand.
fn is_long<Q: QueuePair>(operand: &[u8]) -> bool {
    envelope_bytes::<Q>() + HEADER_BYTES + ValueEntries::entry_bytes(operand.len()) > Q::MESSAGE_BYTES_MAX
}

/// How many keys from number `begin` on differ from each other.
fn run(keys: &[u64], begin: usize) -> usize {
    let mut seen = HashSet::new();
    keys[begin..].iter().take_while(|key| seen.insert(**key)).count()
}

/// Some of these writes.
fn part(writes: Writes<'_>, begin: usize, end: usize) -> Writes<'_> {
    Writes { keys: &writes.keys[begin..end], bounds: &writes.bounds[begin..=end], ..writes }
}
