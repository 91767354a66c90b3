//! A batch of writes of one kind: all of them go down the tree together, then each is done in turn.

use farsight_base::LeafNumber;
use farsight_base::sync::AtomicU64;
use farsight_index::{LeafFormat, Room};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::descend::{BATCH_MAX, Route};
use super::error::WriteError;
use super::stats::Tally;
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
            let routes = self.prepare(operation, &batch);
            let mut tally = Tally::default();
            for (entry, route) in batch.iter().zip(routes) {
                done(self.write(operation, *entry, route, &mut tally));
            }
            self.counters.add(&tally);
        }
    }

    /// A single write.
    pub(super) fn write_one(
        &self,
        operation: WriteOperation,
        entry: WriteEntry<'_>,
    ) -> Result<WriteOutcome, WriteError> {
        let mut tally = Tally::default();
        let outcome = self.write(operation, entry, None, &mut tally);
        self.counters.add(&tally);
        outcome
    }

    /// Asks, level by level, for the lines that the writes will touch: keys of hinted leaves; inner nodes
    /// and keys of the others; value lines; and of leaves that look full everything, with the blocks and
    /// parents that their splits want.
    fn prepare(&self, operation: WriteOperation, batch: &[WriteEntry<'_>]) -> [Option<Route>; BATCH_MAX] {
        let mut routes = [None; BATCH_MAX];
        let mut descents = Descents::new();
        for (index, entry) in batch.iter().enumerate() {
            match self.hinted_block(entry.hint) {
                Some(words) => self.format.prefetch_keys(words),
                None => descents.push(index, entry.key),
            }
        }
        self.descend_all(&mut descents, &mut routes);
        let mut splits = 0;
        for (index, entry) in batch.iter().enumerate() {
            let words = routes[index].and_then(|route| self.slab.block(route.leaf));
            let Some(words) = words.or_else(|| self.hinted_block(entry.hint)) else { continue };
            let is_present =
                operation != WriteOperation::Insert && self.format.prefetch_value(words, entry.key);
            let may_insert = matches!(operation, WriteOperation::Insert | WriteOperation::Put);
            if !is_present && may_insert && self.format.prefetch_insert(words) == Room::None {
                if let Some(block) = self.slab.peek(splits) {
                    self.format.prefetch_leaf(block);
                }
                splits += 1;
                if routes[index].is_none() {
                    descents.push(index, entry.key);
                }
            }
        }
        self.descend_all(&mut descents, &mut routes);
        routes
    }

    fn hinted_block(&self, hint: LeafNumber) -> Option<&[AtomicU64]> {
        if hint == LeafNumber::NONE || !self.slab.was_ever_used(hint) {
            return None;
        }
        self.slab.block(hint)
    }

    /// Goes down for the keys collected, into their places among `routes`, and forgets them.
    fn descend_all(&self, descents: &mut Descents, routes: &mut [Option<Route>; BATCH_MAX]) {
        if descents.count == 0 {
            return;
        }
        let mut found = [None; BATCH_MAX];
        self.descend_many(&descents.keys[..descents.count], &mut found);
        for (index, route) in descents.indices[..descents.count].iter().zip(found) {
            routes[*index] = route;
        }
        descents.count = 0;
    }

    #[inline]
    fn write(
        &self,
        operation: WriteOperation,
        entry: WriteEntry<'_>,
        route: Option<Route>,
        tally: &mut Tally,
    ) -> Result<WriteOutcome, WriteError> {
        let WriteEntry { key, hint, value } = entry;
        if operation.has_value() {
            self.check_value(key, value)?;
        }
        let held = self.hold(key, hint, route)?;
        tally.hint_hits += u64::from(held.is_hinted);
        tally.descents += u64::from(!held.is_hinted);
        let outcome = match operation {
            WriteOperation::Insert => self.insert_held(held, key, value)?,
            WriteOperation::Update => self.update_held(held, key, value)?,
            WriteOperation::Put => self.put_held(held, key, value)?,
            WriteOperation::Remove => self.remove_held(held),
        };
        tally.note(outcome);
        Ok(outcome)
    }
}

/// Keys of a batch that go down the tree together, with their places in the batch.
struct Descents {
    keys: [u64; BATCH_MAX],
    indices: [usize; BATCH_MAX],
    count: usize,
}

impl Descents {
    fn new() -> Self {
        Self { keys: [0; BATCH_MAX], indices: [0; BATCH_MAX], count: 0 }
    }

    #[inline]
    fn push(&mut self, index: usize, key: u64) {
        (self.keys[self.count], self.indices[self.count]) = (key, index);
        self.count += 1;
    }
}
