//! Scan: pairs in key order, by the tree, as many as one reply carries.

use farsight_protocol::{ReplyWriter, ServerError, TableId, padded};

use super::Calls;

impl Calls {
    pub(super) fn scan(
        &mut self,
        table: TableId,
        from: u64,
        limit: u16,
        answer: &mut ReplyWriter<'_>,
    ) -> Result<u64, ServerError> {
        let fitting = self.room_bytes(answer);
        let table = self.view.get(table)?.x_store()?;
        let fitting = fitting / (16 + padded(table.value_bytes()));
        let wanted = fitting.min(usize::from(limit));
        self.pairs.reset(table.value_bytes());
        table.scan(from, wanted, &mut self.pairs)?;
        let found = self.pairs.len();
        for index in 0..found {
            let pair = self.pairs.pair(index);
            answer.push_pair(pair.key, pair.version, pair.value);
        }
        // Fewer pairs than wanted: the scan came to the table's end.
        answer.set(found as u32, u64::from(found == wanted));
        Ok(1)
    }
}
