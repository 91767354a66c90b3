//! One session of a compute node on one table: what its operations share.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use farsight_fabric::lane::{PoolLane, PoolSlot};
use farsight_fabric::{FabricError, Guarantees, QueuePair};
use farsight_index::{Answers, Counters, Pairs, ScanRequest};
use farsight_protocol::WriteOutcome;

use crate::cache::{BATCH, Candidates};
use crate::get::Looked;
use crate::member::{ComputeNodeLocks, Locks, PoolCalls};
use crate::rooms::Rooms;
use crate::{CacheSession, PoolTable, RolexError, Write};

/// GETs of one doorbell, and side by side.
const GETS: usize = BATCH;
/// Scans side by side.
const SCANS: usize = 16;
/// Writes side by side.
const WRITES: usize = 8;

/// What became of a write.
pub(crate) type Written = Result<WriteOutcome, RolexError>;

/// A session. The queue pairs, one a memory node and in the pool's order, are the caller's.
pub struct RolexSession {
    pub(crate) hints: CacheSession,
    pub(crate) locks: Locks,
    pub(crate) calls: Box<dyn PoolCalls>,
    pub(crate) rooms: RefCell<Rooms>,
    /// Compute nodes that this session knows to be fenced.
    pub(crate) fenced: RefCell<HashSet<u32>>,
    counters: Cell<Counters>,
}

impl RolexSession {
    /// A session.
    #[must_use]
    pub fn new(hints: CacheSession, locks: ComputeNodeLocks, calls: Box<dyn PoolCalls>) -> Self {
        let rooms = RefCell::new(Rooms::new(hints.cache().table().nodes().len()));
        let (locks, fenced) = (Locks::new(locks), RefCell::default());
        Self { hints, locks, calls, rooms, fenced, counters: Cell::default() }
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
        run(queues, 1, std::iter::once(0), &fetch)?;
        run(queues, GETS, self.hints.boundaries().into_iter(), &fetch)
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
        let mut slow_path = Vec::new();
        for (chunk, keys) in keys.chunks(GETS).enumerate() {
            self.get_staged(queues, keys, chunk * GETS, answers, &mut slow_path)?;
        }
        let answers = RefCell::new(answers);
        run(queues, GETS, slow_path.into_iter(), &async |slot, (index, looked): (usize, Option<Looked>)| {
            let mut value = vec![0; value_bytes];
            let version = self.get(&slot, keys[index], looked, &mut value).await?;
            let mut answers = answers.borrow_mut();
            answers.value_mut(index).copy_from_slice(&value);
            answers.set_version(index, version);
            Ok(())
        })
    }

    /// For each of `scans` its pairs.
    ///
    /// # Errors
    /// [`RolexError`].
    pub fn scan_batch<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), RolexError> {
        let value_bytes = self.table().geometry().leaf().value_bytes();
        self.count(|counters| counters.scans += scans.len() as u64);
        let found = RefCell::new(vec![Pairs::default(); scans.len()]);
        run(queues, SCANS, scans.iter().enumerate(), &async |slot, (index, scan): (usize, &ScanRequest)| {
            let mut own = Pairs::default();
            own.reset(value_bytes);
            self.scan(&slot, scan.from, scan.limit, &mut own).await?;
            found.borrow_mut()[index] = own;
            Ok(())
        })?;
        pairs.reset(value_bytes);
        for own in found.into_inner() {
            (0..own.len()).for_each(|at| pairs.push(own.pair(at)));
            pairs.end_scan();
        }
        Ok(())
    }

    /// Executes writes side by side, those of one key in their order, and appends what became of each to
    /// `outcomes`. A write that failed alone has its error there.
    pub fn write_many<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        writes: &[Write<'_>],
        outcomes: &mut Vec<Written>,
    ) {
        self.count(|counters| counters.writes += writes.len() as u64);
        let mut rest = writes;
        while !rest.is_empty() {
            // As many as have different keys: two writes of one key would have no order.
            let (now, later) = rest.split_at(distinct(rest));
            if let Err(error) = self.write_distinct(queues, now, outcomes) {
                // Those that follow would wait for the same fabric, one behind the other.
                outcomes.extend(later.iter().map(|_| Err(RolexError::Fabric(error.clone()))));
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
        writes: &[Write<'_>],
        outcomes: &mut Vec<Written>,
    ) -> Result<(), FabricError> {
        let mut done: Vec<Option<Written>> = (0..writes.len()).map(|_| None).collect();
        let staged = if writes.len() > 1 { self.write_staged(queues, writes, &mut done) } else { Ok(()) };
        let left: Vec<usize> = (0..writes.len()).filter(|index| done[*index].is_none()).collect();
        let done = RefCell::new(done);
        let outcome = match staged {
            Ok(()) if left.is_empty() => Ok(()),
            Ok(()) => {
                PoolLane::new(queues).run(WRITES.min(left.len()), left.iter().copied(), |slot, index| {
                    let done = &done;
                    async move {
                        let outcome = self.write(&slot, &writes[index]).await;
                        done.borrow_mut()[index] = Some(outcome);
                    }
                })
            }
            Err(error) => Err(error),
        };
        outcomes.extend(done.into_inner().into_iter().zip(writes).map(|(done, write)| {
            let lost = || outcome.clone().expect_err("a lane ends with all operations or with an error");
            done.unwrap_or_else(|| Err(RolexError::Indeterminate { key: write.key, source: lost() }))
        }));
        outcome
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

/// How many of these writes, from the first on, are of different keys.
fn distinct(writes: &[Write<'_>]) -> usize {
    let mut sorted: Vec<u64> = writes.iter().map(|write| write.key).collect();
    sorted.sort_unstable();
    if sorted.is_sorted_by(|one, next| one < next) {
        return writes.len();
    }
    let mut keys = HashSet::new();
    writes.iter().take_while(|write| keys.insert(write.key)).count()
}

/// Runs reads side by side; the first error is the batch's.
fn run<Q: QueuePair, Operation>(
    queues: &mut [Q],
    width: usize,
    operations: impl ExactSizeIterator<Item = Operation>,
    run: &impl AsyncFn(PoolSlot<'_, '_, Q>, Operation) -> Result<(), RolexError>,
) -> Result<(), RolexError> {
    if operations.len() == 0 {
        return Ok(());
    }
    let failure = RefCell::new(None);
    let lane = PoolLane::new(queues);
    lane.run(width.min(operations.len()), operations, |slot, operation| {
        let failure = &failure;
        async move {
            if let Err(error) = run(slot, operation).await {
                failure.borrow_mut().get_or_insert(error);
            }
        }
    })
    .map_err(|error: FabricError| RolexError::from(error))?;
    failure.into_inner().map_or(Ok(()), Err)
}
