//! One session of a compute node on one table: what its operations share.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use farsight_fabric::lane::{PoolLane, PoolSlot};
use farsight_fabric::{FabricError, Guarantees, QueuePair};
use farsight_index::{Answers, Counters, Direction, Extent, OldValues, Pairs, ScanRequest, Writes, distinct};
use farsight_layout::VALUE_BYTES_MAX;
use farsight_protocol::WriteOutcome;

use crate::buffers::Buffers;
use crate::cache::{BATCH, Candidates};
use crate::get::Looked;
use crate::locking::Locking;
use crate::member::{ComputeNodeLocks, Locks, PoolCalls};
use crate::rooms::Rooms;
use crate::write::Waiting;
use crate::write_staged::AtGates;
use crate::{CacheSession, PoolTable, RolexError, Write};

/// GETs of one doorbell, and side by side.
const GETS: usize = BATCH;
/// Scans side by side.
const SCANS: usize = 16;
/// Writes side by side.
const WRITES: usize = 8;

/// What became of a write.
pub(crate) type Written = Result<WriteOutcome, RolexError>;

/// Writes of one kind, with room for the values before if the operation returns those.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'w> {
    writes: Writes<'w>,
    old_values: &'w [Cell<u8>],
    /// Bytes of the value before that is returned with each outcome, or 0.
    returned_bytes: usize,
}

impl<'w> Batch<'w> {
    pub(crate) fn keys(self) -> &'w [u64] {
        self.writes.keys
    }

    /// Each write.
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = Write<'w>> {
        (0..self.keys().len()).map(self.by_index())
    }

    /// A write by its number.
    fn by_index(self) -> impl Fn(usize) -> Write<'w> + Copy {
        let (Self { writes, old_values, returned_bytes: bytes }, of_batch) = (self, self.writes.by_index());
        move |index| {
            let (key, value) = of_batch(index);
            let old = &old_values[index * bytes..][..bytes];
            Write { operation: writes.operation, key, value, old }
        }
    }

    fn split_at(self, count: usize) -> (Self, Self) {
        let (now, later) = self.writes.split_at(count);
        let (old_now, old_later) = self.old_values.split_at(count * self.returned_bytes);
        (
            Self { writes: now, old_values: old_now, ..self },
            Self { writes: later, old_values: old_later, ..self },
        )
    }
}

/// A session. The queue pairs, one a memory node and in the pool's order, are the caller's.
pub struct RolexSession {
    pub(crate) hints: CacheSession,
    pub(crate) locks: Locks,
    pub(crate) calls: Box<dyn PoolCalls>,
    pub(crate) rooms: RefCell<Rooms>,
    /// Compute nodes that this session knows to be fenced.
    pub(crate) fenced: RefCell<HashSet<u32>>,
    pub(crate) buffers: Buffers,
    pub(crate) locking: Locking,
    counters: Cell<Counters>,
}

impl RolexSession {
    /// A session.
    #[must_use]
    pub fn new(hints: CacheSession, locks: ComputeNodeLocks, calls: Box<dyn PoolCalls>) -> Self {
        let rooms = RefCell::new(Rooms::new(hints.cache().table().nodes().len()));
        let (locks, fenced) = (Locks::new(locks), RefCell::default());
        let (buffers, locking, counters) = (Buffers::default(), Locking::default(), Cell::default());
        Self { hints, locks, calls, rooms, fenced, buffers, locking, counters }
    }

    /// True if a fabric keeps what these protocols need: WRITEs in order, a READ behind the atomic before it.
    #[must_use]
    pub fn is_served_by(guarantees: &Guarantees) -> bool {
        guarantees.writes_in_order && guarantees.read_after_atomic
    }

    /// What its operations counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// Fetches the whole learned index as it is now into the cache: the directory, and each group's image
    /// that is not here.
    ///
    /// # Errors
    /// [`RolexError`].
    pub fn prefill<Q: QueuePair>(&self, queues: &mut [Q]) -> Result<(), RolexError> {
        let fetch = async |slot: PoolSlot<'_, '_, Q>, key: u64| Ok(self.hints.fetch(&slot, key).await?);
        // The first brings the directory.
        self.run(queues, 1, std::iter::once(0), &fetch)?;
        self.run(queues, GETS, self.hints.boundaries().into_iter(), &fetch)
    }

    /// The values of `keys` into `answers`.
    ///
    /// # Errors
    /// [`RolexError`].
    pub fn multi_get<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        keys: &[u64],
        answers: &mut Answers,
    ) -> Result<(), RolexError> {
        let value_bytes = self.table().geometry().leaf().value_bytes();
        answers.reset(keys.len(), value_bytes);
        self.count(|counters| counters.gets += keys.len() as u64);
        let mut slow_path = self.buffers.slow_path.lend();
        slow_path.clear();
        for (chunk, keys) in keys.chunks(GETS).enumerate() {
            self.get_staged(queues, keys, chunk * GETS, answers, &mut slow_path)?;
        }
        let answers = RefCell::new(answers);
        let slow_path = slow_path.drain(..);
        self.run(queues, GETS, slow_path, &async |slot, (index, looked): (usize, Option<Looked>)| {
            let mut value = [0; VALUE_BYTES_MAX];
            let value = &mut value[..value_bytes];
            let version = self.get(&slot, keys[index], looked, value).await?;
            let mut answers = answers.borrow_mut();
            answers.value_mut(index).copy_from_slice(value);
            answers.set_version(index, version);
            Ok(())
        })
    }

    /// For each of `scans` its pairs, or their keys, in the order of the way.
    ///
    /// # Errors
    /// [`RolexError`].
    pub fn scan_batch<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        way: (Direction, Extent),
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), RolexError> {
        let of_table = self.table().geometry().leaf().value_bytes();
        let value_bytes = if way.1 == Extent::Keys { 0 } else { of_table };
        self.count(|counters| counters.scans += scans.len() as u64);
        pairs.reset(value_bytes);
        let mut waiting = self.buffers.waiting.lend();
        waiting.clear();
        let gathered = RefCell::new((pairs, &mut *waiting));
        let requests = scans.iter().enumerate();
        self.run(queues, SCANS, requests, &async |slot, (index, scan): (usize, &ScanRequest)| {
            let mut own = self.buffers.found.take();
            own.reset(value_bytes);
            self.scan(&slot, way, *scan, &mut own).await?;
            let (pairs, waiting) = &mut *gathered.borrow_mut();
            waiting.push((index, own));
            // Those whose turn it is: scans end in any order.
            while let Some(at) = waiting.iter().position(|(index, _)| *index == pairs.scans()) {
                let (_, own) = waiting.swap_remove(at);
                pairs.append(&own);
                pairs.end_scan();
                self.buffers.found.give(own);
            }
            Ok(())
        })
    }

    /// Executes writes side by side, those of one key in their order, and appends what became of each to
    /// `outcomes`. A write that failed alone has its error there. If the operation returns the values before,
    /// one a write is appended to `old_values`.
    pub fn write_many<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        writes: Writes<'_>,
        outcomes: &mut Vec<Written>,
        old_values: &mut OldValues,
    ) {
        self.count(|counters| counters.writes += writes.keys.len() as u64);
        let returned_bytes =
            if writes.operation.returns_value() { self.table().geometry().leaf().value_bytes() } else { 0 };
        let returned = if writes.operation.returns_value() { writes.keys.len() } else { 0 };
        let old_values = old_values.extend_zeroed(returned, returned_bytes);
        let mut rest = Batch { writes, old_values, returned_bytes };
        while !rest.keys().is_empty() {
            // As many as have different keys: two writes of one key would have no order.
            let (now, later) =
                rest.split_at(distinct(rest.keys().iter().copied(), &mut self.buffers.keys.lend()));
            if let Err(error) = self.write_distinct(queues, now, outcomes) {
                // Those that follow would wait for the same fabric, one behind the other.
                outcomes.extend(later.keys().iter().map(|_| Err(RolexError::Fabric(error.clone()))));
                return;
            }
            rest = later;
        }
    }

    /// Writes of different keys. What became of each is in `outcomes`, also if the fabric fails them
    /// together.
    fn write_distinct<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        writes: Batch<'_>,
        outcomes: &mut Vec<Written>,
    ) -> Result<(), FabricError> {
        let mut done = self.buffers.written.lend();
        done.clear();
        done.resize_with(writes.keys().len(), || None);
        let outcome = self.write_chunks(queues, writes, &mut done);
        outcomes.extend(done.drain(..).zip(writes.keys()).map(|(done, key)| {
            let lost = || outcome.clone().expect_err("a lane ends with all operations or with an error");
            done.unwrap_or_else(|| Err(RolexError::Indeterminate { key: *key, source: lost() }))
        }));
        outcome
    }

    /// Executes writes of different keys, as many at once as can be staged.
    fn write_chunks<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        mut writes: Batch<'_>,
        done: &mut [Option<Written>],
    ) -> Result<(), FabricError> {
        for done in done.chunks_mut(self.staged_max::<Q>()) {
            let (now, later) = writes.split_at(done.len());
            writes = later;
            if done.len() == 1 {
                self.write_rest(queues, now, &mut [], done)?;
                continue;
            }
            let mut gates = AtGates::new();
            self.write_staged(queues, now, &mut gates, done)?;
            self.write_rest(queues, now, &mut gates.waiting, done)?;
        }
        Ok(())
    }

    /// Executes the writes of which nothing is `done`, in the lane. `waiting` has, by their numbers, how far
    /// they came.
    fn write_rest<'g, Q: QueuePair>(
        &'g self,
        queues: &mut [Q],
        writes: Batch<'_>,
        waiting: &mut [Waiting<'g>],
        done: &mut [Option<Written>],
    ) -> Result<(), FabricError> {
        let width = WRITES.min(done.iter().filter(|done| done.is_none()).count());
        if width == 0 {
            return Ok(());
        }
        let shared = RefCell::new((done, waiting));
        let left = (0..writes.keys().len()).filter(|index| shared.borrow().0[*index].is_none());
        let of_batch = writes.by_index();
        PoolLane::new(queues).run(&mut self.buffers.lane.borrow_mut(), width, left, |slot, index| {
            let (shared, write) = (&shared, of_batch(index));
            async move {
                let waiting = shared.borrow_mut().1.get_mut(index).map(std::mem::take).unwrap_or_default();
                let outcome = self.write(&slot, &write, waiting).await;
                shared.borrow_mut().0[index] = Some(outcome);
            }
        })
    }

    /// Runs reads side by side; the first error is the batch's.
    fn run<Q: QueuePair, Operation>(
        &self,
        queues: &mut [Q],
        width: usize,
        operations: impl ExactSizeIterator<Item = Operation>,
        run: &impl AsyncFn(PoolSlot<'_, '_, Q>, Operation) -> Result<(), RolexError>,
    ) -> Result<(), RolexError> {
        if operations.len() == 0 {
            return Ok(());
        }
        let failure = RefCell::new(None);
        let width = width.min(operations.len());
        PoolLane::new(queues).run(
            &mut self.buffers.lane.borrow_mut(),
            width,
            operations,
            |slot, operation| {
                let failure = &failure;
                async move {
                    if let Err(error) = run(slot, operation).await {
                        failure.borrow_mut().get_or_insert(error);
                    }
                }
            },
        )?;
        failure.into_inner().map_or(Ok(()), Err)
    }

    pub(crate) fn table(&self) -> &PoolTable {
        self.hints.cache().table()
    }

    /// Where `key` is looked for first.
    pub(crate) async fn candidates<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        key: u64,
    ) -> Result<Candidates, RolexError> {
        match self.hints.predict(key) {
            Some(candidates) => Ok(candidates),
            None => Ok(self.hints.candidates(slot, key).await?),
        }
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}
