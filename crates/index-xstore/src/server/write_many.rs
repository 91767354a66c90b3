//! A batch of writes of one kind: all of them go down the tree together, then each is done in turn.
//!
//! Nothing is prefetched while writes are done. A latch is a locked instruction, which waits until all that
//! was prefetched before has arrived, so the waits would add up. (Key lines prefetched one write at a time, a
//! batch ahead, made inserts a tenth slower.) What splits mark for training is told once a batch.

use farsight_base::LeafNumber;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_index::{LeafFormat, Room};
use farsight_protocol::{WriteEntry, WriteOperation, WriteOutcome};

use super::descend::{BATCH_MAX, DescentEnd};
use super::error::WriteError;
use super::latch::LatchedPlace;
use super::stats::Tally;
use super::tree::XTree;

impl<F: LeafFormat> XTree<F> {
    /// Does the writes in their order and hands each outcome to `done`, with whether the entry had a hint and
    /// the key was elsewhere. Neither all nor nothing: an error is one entry's.
    pub fn write_many<'v>(
        &self,
        operation: WriteOperation,
        entries: impl IntoIterator<Item = WriteEntry<'v>>,
        mut done: impl FnMut(Result<WriteOutcome, WriteError>, bool),
    ) {
        self.exchange_many(operation, entries, |outcome, is_hint_wrong, _| done(outcome, is_hint_wrong));
    }

    /// [`XTree::write_many`] that hands over the value before, too. It means something if the operation
    /// returns it ([`WriteOperation::returns_value`]) and the outcome is [`WriteOutcome::Replaced`].
    pub fn exchange_many<'v>(
        &self,
        operation: WriteOperation,
        entries: impl IntoIterator<Item = WriteEntry<'v>>,
        mut done: impl FnMut(Result<WriteOutcome, WriteError>, bool, &[u8]),
    ) {
        let mut entries = entries.into_iter();
        let mut batch = Vec::with_capacity(BATCH_MAX);
        // Relaxed, here and below: a guess.
        let mut tally = Tally::begin(LeafNumber(self.last_leaf.load(Ordering::Relaxed)));
        loop {
            batch.clear();
            batch.extend(entries.by_ref().take(BATCH_MAX));
            if batch.is_empty() {
                break;
            }
            let access_paths = self.prepare(operation, &batch, tally.last_leaf);
            for (entry, access_path) in batch.iter().zip(access_paths) {
                let hint_hits = tally.hint_hits;
                let outcome = self.write(operation, *entry, access_path, &mut tally);
                let is_hint_wrong = entry.hint != LeafNumber::NONE && tally.hint_hits == hint_hits;
                done(outcome, is_hint_wrong, &tally.old_value);
            }
            self.flush(&mut tally);
        }
        self.last_leaf.store(tally.last_leaf.0, Ordering::Relaxed);
    }

    /// A single write.
    pub(super) fn write_one(
        &self,
        operation: WriteOperation,
        entry: WriteEntry<'_>,
    ) -> Result<WriteOutcome, WriteError> {
        let mut tally = Tally::begin(LeafNumber::NONE);
        let access_path = AccessPath { hint: entry.hint, slot: None, route: None };
        let outcome = self.write(operation, entry, access_path, &mut tally);
        self.flush(&mut tally);
        outcome
    }

    /// Adds what a batch did to the tree's counts, and tells the listener which leaves it changed.
    pub(super) fn flush(&self, tally: &mut Tally) {
        self.counters.add(tally);
        if !tally.changed.is_empty() {
            self.listener.leaves_changed(&tally.changed);
        }
        tally.go_on();
    }

    /// Finds out where the writes go and prefetches, level by level, the lines that they will touch. These
    /// are:
    /// - key lines of hinted leaves;
    /// - for wrong hints and none, the inner nodes and the leaf's key lines, unless the key is `last_leaf`'s;
    /// - value lines;
    /// - for leaves that look full, all of it, with the parents and the blocks that their splits want.
    fn prepare(
        &self,
        operation: WriteOperation,
        batch: &[WriteEntry<'_>],
        last_leaf: LeafNumber,
    ) -> [AccessPath; BATCH_MAX] {
        let mut access_paths = [AccessPath { hint: LeafNumber::NONE, slot: None, route: None }; BATCH_MAX];
        for entry in batch {
            if let Some(words) = self.hinted_block(entry.hint) {
                self.format.prefetch_keys(words);
            }
        }
        let last_words = self.hinted_block(last_leaf);
        let mut keys = [0; BATCH_MAX];
        let mut descending = [0; BATCH_MAX];
        let mut descents = 0;
        let mut splits = 0;
        for (index, (access_path, entry)) in access_paths.iter_mut().zip(batch).enumerate() {
            if let Some(words) = self.hinted_block(entry.hint)
                && self.format.may_hold(words, entry.key)
            {
                access_path.hint = entry.hint;
                if self.prefetch_write(operation, entry.key, words, &mut splits) == Room::Some {
                    continue;
                }
            } else if last_words.is_some_and(|words| self.format.may_hold(words, entry.key)) {
                continue;
            }
            (keys[descents], descending[descents]) = (entry.key, index);
            descents += 1;
        }
        if descents == 0 {
            return access_paths;
        }
        let mut found = [None; BATCH_MAX];
        self.descend_many(&keys[..descents], &mut found);
        for (index, route) in descending[..descents].iter().zip(found) {
            let (access_path, entry) = (&mut access_paths[*index], &batch[*index]);
            access_path.route = route;
            if access_path.hint == LeafNumber::NONE
                && let Some(words) = route.and_then(|route| self.slab.block(route.leaf))
            {
                self.prefetch_write(operation, entry.key, words, &mut splits);
            }
        }
        access_paths
    }

    #[inline]
    pub(super) fn hinted_block(&self, hint: LeafNumber) -> Option<&[AtomicU64]> {
        if hint == LeafNumber::NONE || !self.slab.was_ever_used(hint) {
            return None;
        }
        self.slab.block(hint)
    }

    /// Asks for what a write to the leaf in `words` touches besides its key lines. [`Room::None`] if it will
    /// split, as far as a look tells; `splits` counts those.
    #[inline]
    fn prefetch_write(
        &self,
        operation: WriteOperation,
        key: u64,
        words: &[AtomicU64],
        splits: &mut u32,
    ) -> Room {
        if operation != WriteOperation::Insert && self.format.prefetch_value(words, key) {
            return Room::Some;
        }
        if !operation.may_insert() {
            return Room::Some;
        }
        let room = self.format.prefetch_insert(words);
        if room == Room::None {
            if let Some(block) = self.slab.peek(*splits) {
                self.format.prefetch_leaf(block);
            }
            *splits += 1;
        }
        room
    }

    /// A write. Inlined by force: it has several callers, and a call an entry costs every insert a tenth.
    #[inline(always)]
    fn write(
        &self,
        operation: WriteOperation,
        entry: WriteEntry<'_>,
        access_path: AccessPath,
        tally: &mut Tally,
    ) -> Result<WriteOutcome, WriteError> {
        if operation.is_conditional() {
            return self.write_conditionally(operation, entry, access_path, tally);
        }
        let WriteEntry { key, value, .. } = entry;
        if operation.has_value() {
            self.check_value(key, value)?;
        }
        let mut latched = self.latch_counted(key, access_path, tally)?;
        latched.end_past(key, tally);
        self.write_latched(operation, latched, key, value, tally)
    }

    /// Latches the leaf of `key`, and counts which way led there.
    #[inline(always)]
    pub(super) fn latch_counted(
        &self,
        key: u64,
        access_path: AccessPath,
        tally: &mut Tally,
    ) -> Result<LatchedPlace<'_, F>, WriteError> {
        let latched = self.latch(key, access_path, tally.last_leaf)?;
        tally.last_leaf = latched.number;
        tally.hint_hits += u64::from(latched.is_hinted);
        tally.descents += u64::from(!latched.is_hinted);
        Ok(latched)
    }

    /// Does an unconditional write to the latched leaf of its key.
    #[inline(always)]
    pub(super) fn write_latched<'t>(
        &'t self,
        operation: WriteOperation,
        latched: LatchedPlace<'t, F>,
        key: u64,
        value: &[u8],
        tally: &mut Tally,
    ) -> Result<WriteOutcome, WriteError> {
        let outcome = match operation {
            WriteOperation::Insert => self.insert_latched(latched, key, value, tally)?,
            WriteOperation::Update => self.update_latched(latched, key, value)?,
            WriteOperation::Remove => self.remove_latched(latched, tally),
            _ => self.put_latched(latched, key, value, tally)?,
        };
        tally.note(outcome);
        Ok(outcome)
    }
}

/// How a write gets to its leaf.
#[derive(Clone, Copy)]
pub(super) struct AccessPath {
    /// The client's hint, unless it is wrong at a glance.
    pub(super) hint: LeafNumber,
    /// Where in the hinted leaf the key was seen, if it was.
    pub(super) slot: Option<usize>,
    /// A descent for the key: for want of a hint, or because a split will want the parent.
    pub(super) route: Option<DescentEnd>,
}
