//! A batch of writes of one kind: all of them go down the tree together, then each is done in turn.

use farsight_base::LeafNumber;
use farsight_base::sync::AtomicU64;
use farsight_index::LeafFormat;
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::descend::{BATCH_MAX, Route};
use super::error::WriteError;
use super::tree::XTree;

impl<F: LeafFormat> XTree<F> {
    /// Does the writes in their order and hands each outcome to `done`. Neither all nor nothing: an error is
    /// one entry's.
    pub fn write_many<'v>(
        &self,
        operation: WriteOperation,
        entries: impl IntoIterator<Item = WriteEntry<'v>>,
        mut done: impl FnMut(Result<WriteOutcome, WriteError>),
    ) {
        let mut entries = entries.into_iter();
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            batch.clear();
            batch.extend(entries.by_ref().take(BATCH_MAX));
            if batch.is_empty() {
                return;
            }
            let routes = self.prepare(&batch);
            for (entry, route) in batch.iter().zip(routes) {
                done(self.write(operation, entry, route));
            }
        }
    }

    /// Finds the entries' leaves and asks for the lines that the writes will touch.
    fn prepare(&self, batch: &[WriteEntry<'_>]) -> [Option<Route>; BATCH_MAX] {
        let mut routes = [None; BATCH_MAX];
        let mut keys = [0; BATCH_MAX];
        let mut descending = [0; BATCH_MAX];
        let mut count = 0;
        for (index, entry) in batch.iter().enumerate() {
            if let Some(words) = self.hinted_block(entry.hint) {
                self.format.prefetch_keys(words);
                continue;
            }
            (keys[count], descending[count]) = (entry.key, index);
            count += 1;
        }
        let mut found = [None; BATCH_MAX];
        self.descend_many(&keys[..count], &mut found);
        for (index, route) in descending[..count].iter().zip(found) {
            routes[*index] = route;
        }
        for (entry, route) in batch.iter().zip(&routes) {
            let words = route.and_then(|route| self.slab.block(route.leaf));
            if let Some(words) = words.or_else(|| self.hinted_block(entry.hint)) {
                self.format.prefetch_insert(words);
            }
        }
        routes
    }

    fn hinted_block(&self, hint: LeafNumber) -> Option<&[AtomicU64]> {
        if hint == LeafNumber::NONE || !self.slab.was_ever_used(hint) {
            return None;
        }
        self.slab.block(hint)
    }

    #[inline]
    fn write(
        &self,
        operation: WriteOperation,
        entry: &WriteEntry<'_>,
        route: Option<Route>,
    ) -> Result<WriteOutcome, WriteError> {
        let WriteEntry { key, hint, value } = *entry;
        if operation.has_value() {
            self.check_value(key, value)?;
        }
        let held = self.hold(key, hint, route)?;
        match operation {
            WriteOperation::Insert => self.insert_held(held, key, value),
            WriteOperation::Update => self.update_held(held, key, value),
            WriteOperation::Put => self.put_held(held, key, value),
            WriteOperation::Remove => Ok(self.remove_held(held)),
        }
    }
}
