//! Scan: pairs in key order, either way, by the tree, as many as one reply carries and as few leaves hold.

use farsight_index::LeafFormat;
use farsight_protocol::{Direction, ServerError, padded};

use crate::engine::{Call, Executed};
use crate::x_store::Part;

impl<F: LeafFormat> Part<F> {
    pub(super) fn scan(
        &self,
        direction: Direction,
        from: u64,
        limit: u16,
        call: &mut Call<'_, '_>,
    ) -> Result<Executed, ServerError> {
        let fitting = call.room_bytes() / (16 + padded(self.value_bytes));
        let wanted = fitting.min(usize::from(limit));
        let pairs = &mut call.scratch.pairs;
        pairs.reset(self.value_bytes);
        let next = self.tree.scan(direction, from, wanted, pairs).map_err(|error| self.contended(&error))?;
        let found = pairs.len();
        for index in 0..found {
            let pair = pairs.pair(index);
            call.answer.push_pair(pair.key, pair.version, pair.value);
        }
        call.answer.set(found as u32, direction.argument(next));
        Ok(Executed::operations(1))
    }
}
