//! Writes: calls with a position hint for each key.
//!
//! The hint is where the learned cache believes the key to be, so that the server need not go down its tree.
//! It is only a hint: the server checks the leaf's fences under its latch. No READ is spent on it.

use farsight_base::LeafNumber;
use farsight_fabric::QueuePair;
use farsight_fabric::lane::Lane;
use farsight_protocol::{
    HEADER_BYTES, Reply, Request, WriteEntries, WriteEntry, WriteOperation, WriteOutcome, padded,
};

use super::{XClient, XStoreError};

/// Entries of one call at most: large enough to hide a call's cost, small enough that the server begins while
/// the client still encodes the next.
const ENTRIES_PER_CALL: usize = 128;
/// Calls in flight.
const CALLS_IN_FLIGHT: usize = 4;

impl XClient {
    /// Executes `operation` on each of `entries` (key, value; the value of a remove is empty), in their
    /// order, and appends what became of each to `outcomes`.
    ///
    /// # Errors
    /// [`XStoreError`]; then `outcomes` holds those of the calls before the failed one. The failed call was
    /// not executed if the server refused it, perhaps if [`XStoreError::is_indeterminate`]; calls after it
    /// perhaps.
    pub fn write<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        operation: WriteOperation,
        entries: &[(u64, &[u8])],
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), XStoreError> {
        let value_bytes = if operation.has_value() { self.cache.geometry().value_bytes() } else { 0 };
        if let Some(index) = entries.iter().position(|(_, value)| value.len() != value_bytes) {
            let got = entries[index].1.len();
            return Err(XStoreError::ValueSize { index, expected: value_bytes, got });
        }
        let fitting = (Q::MESSAGE_BYTES_MAX - HEADER_BYTES) / (16 + padded(value_bytes));
        for window in entries.chunks(fitting.min(ENTRIES_PER_CALL) * CALLS_IN_FLIGHT) {
            self.pin();
            self.write_window(queue, operation, window, fitting.min(ENTRIES_PER_CALL), outcomes)?;
        }
        self.counters.writes += entries.len() as u64;
        Ok(())
    }

    /// Sends a window of calls before it waits for the first answer. One queue pair's calls execute in order.
    fn write_window<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        operation: WriteOperation,
        window: &[(u64, &[u8])],
        entries_per_call: usize,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), XStoreError> {
        let value_bytes = if operation.has_value() { self.cache.geometry().value_bytes() } else { 0 };
        for (slot, entries) in window.chunks(entries_per_call).enumerate() {
            let table = self.cache.table().id;
            Request::begin_write(&mut self.request, table, operation, entries.len(), value_bytes);
            for (key, value) in entries {
                let hint = self.hint(*key);
                WriteEntries::push(&mut self.request, WriteEntry { key: *key, hint, value });
            }
            queue.post_call(slot, &self.request)?;
            queue.doorbell()?;
        }
        // All replies are awaited, whatever one of them says: nothing stays in flight behind a failure.
        let mut done = Ok(());
        for (slot, entries) in window.chunks(entries_per_call).enumerate() {
            Lane::new(queue).await_reply(slot, &mut self.reply)?;
            if done.is_ok() {
                done = take_outcomes(&self.reply, entries.len(), outcomes);
            }
        }
        done
    }

    /// The leaf where the cache believes `key` to be.
    fn hint(&self, key: u64) -> LeafNumber {
        let Some(model) = &self.model else { return LeafNumber::NONE };
        model.route(key).map_or(LeafNumber::NONE, |route| route.leaf)
    }
}

/// Appends the outcomes in one reply, all of them or none.
fn take_outcomes(reply: &[u8], count: usize, outcomes: &mut Vec<WriteOutcome>) -> Result<(), XStoreError> {
    let before = outcomes.len();
    for outcome in Reply::decode(reply)??.outcomes(count)? {
        match outcome {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => {
                outcomes.truncate(before);
                return Err(error.into());
            }
        }
    }
    Ok(())
}
