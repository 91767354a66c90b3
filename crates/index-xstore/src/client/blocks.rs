//! Tables whose values have any length: the steps of a table of references, and then READs of the blocks.
//!
//! Protocol of a read, for all keys of a batch together:
//! 1. Find reference and version of each key, as a table of values of one word is read.
//! 2. READ the blocks. One whose length the reference does not say takes a READ of its first line before.
//! 3. Count a copy if its checksum fits, and if version, table and key are those requested.
//! 4. Do all of it again for the other keys, [`BLOCK_TURNS`] times in all. Then the server answers for them.
//!
//! A named block does not change, and versions never recur. So a copy of that version is the key's value at
//! the instant at which the reference was read.
//!
//! Where a round trip is dear, or the server searches anyway, a call brings the value.

mod long_writes;
mod reading;

use std::sync::Arc;

use farsight_fabric::{CostClass, QueuePair};
use farsight_index::{
    Access, Answers, Counters, Direction, Engine, EngineError, OldValues, Ordered, Pair, Pairs, ScanRequest,
    Unfinished, Writes,
};
use farsight_layout::value_block::block_lines;
use farsight_protocol::{ValueKind, WriteOutcome};

use super::{BATCH, XCache, XParts, XStoreError};
use reading::{READ_LINES_MAX, Reading};

/// Turns that a read of a block takes before the server answers.
pub const BLOCK_TURNS: u32 = 3;

/// READs of a block of a value of so many bytes, in one turn, at most: its first line, then all of it.
#[must_use]
pub const fn block_reads_max(value_bytes: usize) -> usize {
    1 + block_lines(size_of::<u64>(), value_bytes).div_ceil(READ_LINES_MAX)
}

/// One session's engine for a table of blocks, with a queue pair to each part.
pub struct XBlocks {
    access: Access,
    values_kind: ValueKind,
    /// Finds references. It writes, too.
    references: XParts,
    /// Has the servers find values.
    values: XParts,
    reading: Reading,
    /// What the references of a batch are.
    found: Answers,
    found_pairs: Pairs,
    /// Values that the server found, or those of some of a scan's pairs.
    answered: Answers,
    of_pairs: Answers,
    /// Keys that have no answer yet: their numbers in the batch.
    left: Vec<usize>,
    keys: Vec<u64>,
    counters: Counters,
}

impl XBlocks {
    /// An engine over the caches of a table's parts, which other sessions may share, in the order of their
    /// ranges.
    ///
    /// # Panics
    /// As [`XParts::new`].
    #[must_use]
    pub fn new(boundaries: &Arc<[u64]>, caches: &[Arc<XCache>], access: Access) -> Self {
        Self {
            access,
            values_kind: caches[0].table().definition.values,
            references: XParts::new(Arc::clone(boundaries), caches, access),
            values: XParts::of_values(Arc::clone(boundaries), caches),
            reading: Reading::new(caches.iter().map(|cache| cache.table())),
            found: Answers::default(),
            found_pairs: Pairs::default(),
            answered: Answers::default(),
            of_pairs: Answers::default(),
            left: Vec::new(),
            keys: Vec::new(),
            counters: Counters::default(),
        }
    }

    fn reads_one_sided<Q: QueuePair>(&self) -> bool {
        self.access == Access::OneSided && !matches!(Q::GUARANTEES.cost_class, CostClass::Socket)
    }

    /// The values of `keys`, in their order, into `answers`.
    fn get_many<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), XStoreError> {
        if !self.reads_one_sided::<Q>() {
            return self.values.multi_get(queues, keys, answers);
        }
        answers.reset_any_length(keys.len());
        // Not all at once: the sooner a block is read, the rarer its memory has another one.
        let together = BATCH * queues.len();
        for (batch, keys) in keys.chunks(together).enumerate() {
            self.left.clear();
            self.left.extend(0..keys.len());
            self.get_left(queues, keys, answers, batch * together)?;
        }
        Ok(())
    }

    /// The values of those `keys` that are `left`, by one-sided READs, into `answers` from number `first` on.
    /// Absent ones stay absent there.
    fn get_left<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
        first: usize,
    ) -> Result<(), XStoreError> {
        for turn in 0..BLOCK_TURNS {
            if self.left.is_empty() {
                return Ok(());
            }
            self.take_left(keys);
            self.counters.retries += u64::from(turn > 0) * self.keys.len() as u64;
            self.references.multi_get(queues, &self.keys, &mut self.found)?;
            for (index, found) in self.left.iter().zip(self.found.iter()) {
                if let Some((reference, version)) = found {
                    let key = keys[*index];
                    self.reading.want(*index, self.references.part_of(key), key, version, reference);
                }
            }
            self.left.clear();
            self.reading.read(queues, usize::MAX, &mut self.left, |index, version, value| {
                answers.set_value(first + index, version, value);
            })?;
        }
        if self.left.is_empty() {
            return Ok(());
        }
        self.take_left(keys);
        self.counters.fallbacks += self.keys.len() as u64;
        self.values.multi_get(queues, &self.keys, &mut self.answered)?;
        for (index, found) in self.left.iter().zip(self.answered.iter()) {
            if let Some((value, version)) = found {
                answers.set_value(first + index, version, value);
            }
        }
        Ok(())
    }

    fn take_left(&mut self, keys: &[u64]) {
        self.keys.clear();
        self.keys.extend(self.left.iter().map(|index| keys[*index]));
    }

    /// Appends the pairs of a scan whose references are scan `number` of `found`. A pair that was removed
    /// meanwhile is left out. Returns what is still to be scanned in its place.
    fn append_scan<Q: QueuePair>(
        &mut self,
        queues: &mut [Q],
        (found, number): (&Pairs, usize),
        (direction, scan): (Direction, ScanRequest),
        pairs: &mut Pairs,
    ) -> Result<Option<ScanRequest>, XStoreError> {
        let before = pairs.len();
        let mut values = std::mem::take(&mut self.of_pairs);
        let mut of_scan = found.scan(number);
        let count = of_scan.len();
        let (mut last, mut is_cut) = (None, false);
        while of_scan.len() > 0 {
            let mut keys = [0; BATCH];
            let together = of_scan.len().min(BATCH);
            for (index, pair) in of_scan.by_ref().take(together).enumerate() {
                keys[index] = pair.key;
                self.reading.want(
                    index,
                    self.references.part_of(pair.key),
                    pair.key,
                    pair.version,
                    pair.value,
                );
            }
            values.reset_any_length(together);
            self.left.clear();
            let read =
                self.reading.read(queues, pairs.bytes_left(), &mut self.left, |index, version, value| {
                    values.set_value(index, version, value);
                })?;
            let keys = &keys[..read];
            self.counters.retries += self.left.len() as u64;
            self.get_left(queues, keys, &mut values, 0)?;
            for (key, found) in keys.iter().zip(values.iter()) {
                if let Some((value, version)) = found {
                    pairs.push(Pair { key: *key, version, value });
                }
            }
            last = keys.last().copied();
            if read < together || pairs.bytes_left() == 0 {
                is_cut = read < together || of_scan.len() > 0;
                break;
            }
        }
        self.of_pairs = values;
        let appended = pairs.len() - before;
        let from = last.and_then(|last| direction.next_key(last));
        if is_cut {
            // Where nothing was found, somebody removed what was READ: the scan goes on behind it at once.
            if appended > 0 {
                pairs.cut();
                return Ok(None);
            }
            return Ok(from.map(|from| ScanRequest { from, limit: scan.limit }));
        }
        let may_go_on = count == scan.limit && appended < count;
        let from = from.filter(|_| may_go_on);
        Ok(from.map(|from| ScanRequest { from, limit: scan.limit - appended }))
    }
}

impl<Q: QueuePair> Engine<Q> for XBlocks {
    fn get(&mut self, _: &mut [Q], _: u64, _: &mut [u8]) -> Result<Option<u64>, EngineError> {
        panic!("values of any length are got by batches")
    }

    fn multi_get(
        &mut self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), EngineError> {
        self.counters.gets += keys.len() as u64;
        Ok(self.get_many(queues, keys, answers)?)
    }

    fn write(
        &mut self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), EngineError> {
        Ok(self.write_any_length(queues, writes, outcomes, old_values)?)
    }

    fn take_unfinished(&mut self) -> Option<Unfinished> {
        self.references.take_unfinished()
    }

    fn resume(&mut self, unfinished: Unfinished) {
        self.references.resume(unfinished);
    }

    fn prefill(&mut self, queues: &mut [Q]) -> Result<(), EngineError> {
        Ok(self.references.prefill(queues)?)
    }

    fn counters(&self) -> Counters {
        let mut counters = self.references.counters();
        counters += self.values.counters();
        // A key that is looked for again, or by both, is one GET all the same.
        let Counters { gets, scans, retries, fallbacks, .. } = self.counters;
        counters.retries += retries;
        counters.fallbacks += fallbacks;
        Counters { gets, scans, ..counters }
    }
}

impl<Q: QueuePair> Ordered<Q> for XBlocks {
    fn scan_batch(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        self.counters.scans += scans.len() as u64;
        if !self.reads_one_sided::<Q>() {
            return Ok(self.values.scan_batch(queues, direction, scans, pairs)?);
        }
        pairs.reset_any_length();
        let mut found = std::mem::take(&mut self.found_pairs);
        self.references.scan_batch(queues, direction, scans, &mut found)?;
        for (number, scan) in scans.iter().enumerate() {
            let mut rest = self.append_scan(queues, (&found, number), (direction, *scan), pairs)?;
            // Each turn begins behind the one before.
            while let Some(scan) = rest {
                let mut behind = Pairs::default();
                self.references.scan_batch(queues, direction, &[scan], &mut behind)?;
                rest = self.append_scan(queues, (&behind, 0), (direction, scan), pairs)?;
            }
            pairs.end_scan();
        }
        self.found_pairs = found;
        Ok(())
    }

    /// References say all that there is to say of keys: no block is READ.
    fn scan_keys(
        &mut self,
        queues: &mut [Q],
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), EngineError> {
        self.counters.scans += scans.len() as u64;
        Ok(self.references.scan_keys(queues, direction, scans, pairs)?)
    }
}
