//! Scan: pairs in key order, by the tree, as many as one reply carries and as few leaves hold.

use farsight_protocol::{ServerError, padded};

use crate::engine::{Call, Executed};
use crate::x_store::Part;

impl Part {
    pub(super) fn scan(
        &self,
        from: u64,
        limit: u16,
        call: &mut Call<'_, '_>,
    ) -> Result<Executed, ServerError> {
        let fitting = call.room_bytes() / (16 + padded(self.value_bytes));
        let wanted = fitting.min(usize::from(limit));
        let pairs = &mut call.scratch.pairs;
        pairs.reset(self.value_bytes);
        let next = self.tree.scan(from, wanted, pairs).map_err(|error| self.contended(&error))?;
        let found = pairs.len();
        for index in 0..found {
            let pair = pairs.pair(index);
            call.answer.push_pair(pair.key, pair.version, pair.value);
        }
        // A scan that may go on does so from a key above `from`, hence never from 0.
        call.answer.set(found as u32, next.unwrap_or(0));
        Ok(Executed::operations(1))
    }
}
