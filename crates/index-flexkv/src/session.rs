//! One session of a compute node on one table: what its operations share.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use farsight_base::Line;
use farsight_base::clock::{Deadline, MonotonicNs};
use farsight_base::pinned::PinnedMemory;
use farsight_base::prng::SplitMix64;
use farsight_fabric::lane::{PoolLane, PoolSlot};
use farsight_fabric::{FabricError, QueuePair};
use farsight_index::{Counters, Kept, Key, OldValues, Writes, distinct};
use farsight_layout::hash_index::{Candidate, KeyHash};
use farsight_protocol::{Operand, ValueKind, WriteOperation, WriteOutcome};

use crate::addresses::HeldAddresses;
use crate::doubts::Doubts;
use crate::get::StagedGet;
#[cfg(injected)]
use crate::injected;
use crate::versions::Versions;
use crate::write::Write;
use crate::{Addresses, FlexError, FlexTable, ObjectCalls, ProxyCalls, Stock, Values};

/// Verbs of a write, or of another change of a slot. A split has more to do at once the more there are.
pub(crate) const VERBS_A_WRITE: usize = 8;
/// Writes side by side at most: over TCP a queue pair has room for more, and each round trip is long.
const WRITES_MAX: usize = 128;

/// What became of a write.
pub(crate) type Written = Result<WriteOutcome, FlexError>;

/// A session. The queue pairs, one a memory node and in the pool's order, are the caller's.
pub struct FlexSession {
    pub(crate) table: FlexTable,
    pub(crate) stock: Arc<Stock>,
    pub(crate) addresses: RefCell<HeldAddresses>,
    pub(crate) doubts: Doubts,
    pub(crate) values: Arc<Values>,
    pub(crate) calls: Box<dyn ObjectCalls>,
    /// Compute nodes that write for this one; none where it executes each write itself.
    pub(crate) proxies: Option<Box<dyn ProxyCalls>>,
    /// When writes have to know what they change, if others wait for them.
    pub(crate) until: RefCell<Option<Deadline>>,
    pub(crate) versions: Versions,
    pub(crate) buffers: Buffers,
    random: RefCell<SplitMix64>,
    counters: Cell<Counters>,
}

/// Who ends says what became of memory. Else its node has to look for it, and replicas have to be settled.
impl Drop for FlexSession {
    fn drop(&mut self) {
        self.stock.end_session(&*self.calls);
    }
}

/// What operations work in, kept from one to the next.
#[derive(Default)]
pub(crate) struct Buffers {
    pub(crate) lane: RefCell<PinnedMemory>,
    pub(crate) objects: Kept<Vec<Line>>,
    pub(crate) candidates: Kept<Vec<Candidate>>,
    pub(crate) staged: Kept<Vec<StagedGet>>,
    pub(crate) rest: Kept<Vec<usize>>,
    keys: Kept<Vec<(u64, usize)>>,
}

/// How many of so many writes run side by side.
pub(crate) fn writes_side_by_side<Q: QueuePair>(writes: usize) -> usize {
    (Q::SLOTS / VERBS_A_WRITE).min(WRITES_MAX).min(writes)
}

/// How many others the write of this number stands for, by a list that has all or none.
pub(crate) fn absorbed_by(absorbed: &[u64], index: usize) -> u64 {
    absorbed.get(index).copied().unwrap_or(0)
}

/// True if a write took effect, or nobody knows.
pub(crate) fn has_changed(written: &Written) -> bool {
    use WriteOutcome::{Inserted, Removed, Replaced};
    match written {
        Ok(outcome) => matches!(outcome, Inserted(_) | Replaced(_) | Removed(_)),
        Err(_) => true,
    }
}

/// A write that is done, or not yet, and the value before.
pub(crate) type Done = (Option<Written>, Vec<u8>);

impl FlexSession {
    /// A session, whose pauses are drawn from `seed`. What `proxies` write for it goes to them. It shares
    /// stock, addresses and values with the others of its compute node.
    #[must_use]
    pub fn new(
        table: FlexTable,
        (stock, addresses, values): (Arc<Stock>, Arc<Addresses>, Arc<Values>),
        calls: Box<dyn ObjectCalls>,
        proxies: Option<Box<dyn ProxyCalls>>,
        seed: u64,
    ) -> Self {
        stock.begin_session();
        Self {
            table,
            stock,
            addresses: RefCell::new(HeldAddresses::new(addresses)),
            doubts: Doubts::default(),
            values,
            calls,
            proxies,
            until: RefCell::default(),
            versions: Versions::default(),
            buffers: Buffers::default(),
            random: RefCell::new(SplitMix64::new(seed)),
            counters: Cell::default(),
        }
    }

    /// What its operations counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// Bytes of each value; `None` if values have any length.
    pub(crate) fn fixed_bytes(&self) -> Option<usize> {
        match self.table.values() {
            ValueKind::Fixed(bytes) => Some(bytes.into()),
            ValueKind::Blocks { .. } => None,
        }
    }

    /// Executes writes side by side, those of one key in their order, and appends what became of each to
    /// `outcomes`. A write that failed alone has its error there. If the operation returns the values before,
    /// one a write is appended to `old_values`.
    pub(crate) fn write_many<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        writes: Writes<'_, Key<'_>>,
        outcomes: &mut Vec<Written>,
        old_values: &mut OldValues,
    ) {
        self.count(|counters| counters.writes += writes.keys.len() as u64);
        let first = outcomes.len();
        let proxies = self.proxies.as_deref().and_then(|proxies| Some((proxies, proxies.refresh()?)));
        let is_done = proxies
            .is_some_and(|(proxies, _)| self.write_proxied(queues, proxies, writes, (outcomes, old_values)));
        if !is_done {
            self.write_here(queues, writes, outcomes, old_values);
        }
        if let Some((proxies, begun)) = proxies {
            proxies.note_batch(begun, writes.keys.len());
        }
        if let Some(store) = self.values.store() {
            let replaces = |written: &Written| {
                matches!(written, Ok(WriteOutcome::Replaced(_) | WriteOutcome::Removed(_)))
            };
            let written = writes.keys.iter().zip(&outcomes[first..]);
            for (key, _) in written.filter(|(_, written)| replaces(written)) {
                store.note_write(KeyHash::of(key.as_bytes()));
            }
        }
    }

    /// [`FlexSession::write_many`] by this session's own verbs.
    pub(crate) fn write_here<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        writes: Writes<'_, Key<'_>>,
        outcomes: &mut Vec<Written>,
        old_values: &mut OldValues,
    ) {
        let until = match self.begin_writes(queues) {
            Ok(until) => until,
            Err(error) => {
                let error = Arc::new(error);
                outcomes.extend(writes.keys.iter().map(|_| Err(FlexError::of_all(&error))));
                if writes.operation.returns_value() {
                    writes.keys.iter().for_each(|_| old_values.push(&[]));
                }
                return;
            }
        };
        let first = outcomes.len();
        self.write_in_order(queues, writes, outcomes, old_values);
        if let Err(error) = self.check_believed(until, queues[0].now()) {
            let error = Arc::new(error);
            // What a write has changed is changed at all replicas. What it has left it has only READ.
            let left = outcomes[first..].iter_mut().filter(|done| !has_changed(done));
            left.for_each(|done| *done = Err(FlexError::of_all(&error)));
        }
    }

    /// What comes before each batch of writes. Until when is believed what those read.
    pub(crate) fn begin_writes<Q: QueuePair>(
        &self,
        queues: &mut [Q],
    ) -> Result<Option<MonotonicNs>, FlexError> {
        self.addresses.borrow_mut().refresh();
        self.settle_wanted(queues)?;
        self.end_pairs(queues)?;
        self.believed_until(queues[0].now())
    }

    /// Until when this session believes what it reads from `now` on; `None` without replicas.
    pub(crate) fn believed_until(&self, now: MonotonicNs) -> Result<Option<MonotonicNs>, FlexError> {
        if !self.table.has_replicas() {
            return Ok(None);
        }
        self.calls.renew(now).map(Some).map_err(FlexError::of_call)
    }

    /// Fails if what was read until `now` is not to be believed: the pool may go on without a node at which
    /// it was read.
    pub(crate) fn check_believed(
        &self,
        until: Option<MonotonicNs>,
        now: MonotonicNs,
    ) -> Result<(), FlexError> {
        #[cfg(injected)]
        if injected::READS_BELIEVED.is_injected() {
            return Ok(());
        }
        match until {
            // If it goes on as before, it did so while this was read.
            Some(until) if now >= until => self.believed_until(now).map(drop),
            _ => Ok(()),
        }
    }

    /// Executes writes by this session's own verbs, those of one key in their order.
    fn write_in_order<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        writes: Writes<'_, Key<'_>>,
        outcomes: &mut Vec<Written>,
        old_values: &mut OldValues,
    ) {
        let mut rest = writes;
        while !rest.keys.is_empty() {
            // As many as have different keys: two writes of one key would have no order.
            let identities = rest.keys.iter().map(|key| self.table.identity(*key));
            let count = distinct(identities, &mut self.buffers.keys.lend());
            if count < rest.keys.len()
                && let Some(combined) = self.combine(rest)
            {
                let mut done = Vec::with_capacity(combined.writes().keys.len());
                let batch = (combined.writes(), combined.absorbed());
                // Each write that the fabric failed has its error.
                let _ = self.write_distinct(queues, batch, &mut done, old_values);
                outcomes.extend(combined.expand(done));
                return;
            }
            let (now, later) = rest.split_at(count);
            if let Err(error) = self.write_distinct(queues, (now, &[]), outcomes, old_values) {
                // Those that follow would wait for the same fabric, one behind the other.
                outcomes.extend(later.keys.iter().map(|_| Err(FlexError::Fabric(error.clone()))));
                if writes.operation.returns_value() {
                    later.keys.iter().for_each(|_| old_values.push(&[]));
                }
                return;
            }
            rest = later;
        }
    }

    /// Writes of different keys, each of which stands for as many others as `absorbed` says. What became of
    /// each is in `outcomes`, also if the fabric fails them together.
    fn write_distinct<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (writes, absorbed): (Writes<'_, Key<'_>>, &[u64]),
        outcomes: &mut Vec<Written>,
        old_values: &mut OldValues,
    ) -> Result<(), FabricError> {
        let mut done = Vec::new();
        done.resize_with(writes.keys.len(), Done::default);
        let outcome = self.replace_batch(queues, (writes, absorbed), &mut done);
        let outcome = outcome.and_then(|()| self.write_rest(queues, (writes, absorbed), &mut done));
        for ((written, old), key) in done.into_iter().zip(writes.keys) {
            let lost = || outcome.clone().expect_err("a batch ends with all writes or with an error");
            outcomes.push(
                written
                    .unwrap_or_else(|| Err(FlexError::Indeterminate { key: (*key).into(), source: lost() })),
            );
            if writes.operation.returns_value() {
                old_values.push(&old);
            }
        }
        outcome
    }

    /// Executes, side by side, the writes that are not done.
    fn write_rest<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (writes, absorbed): (Writes<'_, Key<'_>>, &[u64]),
        done: &mut [Done],
    ) -> Result<(), FabricError> {
        let rest: Vec<_> =
            done.iter_mut().zip(writes.iter()).zip(0..).filter(|((done, _), _)| done.0.is_none()).collect();
        if rest.is_empty() {
            return Ok(());
        }
        let width = writes_side_by_side::<Q>(rest.len());
        PoolLane::new(queues).run(
            &mut self.buffers.lane.borrow_mut(),
            width,
            rest,
            |slot, ((done, (key, operand)), index)| async move {
                let mut old = Vec::new();
                let outcome = match self.operand(writes, key, operand) {
                    Ok(operand) => {
                        let absorbed = absorbed_by(absorbed, index);
                        let operation = writes.operation;
                        let (then, is_ending) = (&[][..], false);
                        let write = Write { operation, key, operand, absorbed, then, is_ending };
                        self.write(&slot, write, &mut old).await
                    }
                    Err(error) => Err(error),
                };
                *done = (Some(outcome), old);
            },
        )
    }

    /// An operand's parts, in a batch of one kind.
    pub(crate) fn operand<'w>(
        &self,
        writes: Writes<'_, Key<'_>>,
        key: Key<'_>,
        operand: &'w [u8],
    ) -> Result<Operand<'w>, FlexError> {
        self.operand_of(writes.operation, key, operand)
    }

    /// An operand's parts.
    pub(crate) fn operand_of<'w>(
        &self,
        operation: WriteOperation,
        key: Key<'_>,
        operand: &'w [u8],
    ) -> Result<Operand<'w>, FlexError> {
        let (max_bytes, deadline_bytes) = (self.value_bytes_max(key), self.table.values().deadline_bytes());
        let parts = match self.fixed_bytes() {
            Some(bytes) if operand.len() != operation.operand_bytes(bytes) => None,
            Some(_) => Some(Operand::of_one_size(operation, operand)),
            None => Operand::of_any_length(operation, operand),
        };
        let refused = FlexError::Operand { key: key.into(), got_bytes: operand.len(), max_bytes };
        let least_bytes = if operation.has_value() { deadline_bytes } else { 0 };
        let is_one =
            |parts: &Operand<'_>| (least_bytes..=max_bytes + deadline_bytes).contains(&parts.value.len());
        parts.filter(is_one).ok_or(refused)
    }

    /// Runs reads side by side; the first error is the batch's.
    pub(crate) fn run<Q: QueuePair, Operation>(
        &self,
        queues: &mut [Q],
        width: usize,
        operations: impl ExactSizeIterator<Item = Operation>,
        run: &impl AsyncFn(PoolSlot<'_, '_, Q>, Operation) -> Result<(), FlexError>,
    ) -> Result<(), FlexError> {
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

    /// True if a write that learns only now what it changes comes too late. It is asked between that moment
    /// and the swap. So the slot had the swap's word in time, whenever the swap executes.
    pub(crate) fn is_late(&self) -> bool {
        self.until.borrow().as_ref().is_some_and(Deadline::is_over)
    }

    /// A part of one, by chance.
    pub(crate) fn random_part(&self) -> f64 {
        self.random.borrow_mut().next_u64() as f64 / u64::MAX as f64
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use farsight_base::RegionId;
    use farsight_base::sync::{AtomicBool, Ordering};
    use farsight_protocol::{ComputeNode, Fenced, KeyKind, ObjectGrant, ObjectMemory, Recalled, SplitGrant};

    use super::*;
    use crate::{CallResult, FlexNode};

    const UNTIL: MonotonicNs = MonotonicNs(100);
    /// The nodes' time of day.
    pub(crate) const NOW_MS: u64 = 1_000;

    /// Nodes that go on with this session, or without it.
    struct Nodes(Arc<AtomicBool>);

    impl ObjectCalls for Nodes {
        fn renew(&self, _: MonotonicNs) -> CallResult<MonotonicNs> {
            // Relaxed: one thread.
            if self.0.load(Ordering::Relaxed) { Ok(UNTIL) } else { Err(FabricError::Forked.into()) }
        }
        fn keep_values(&self) -> CallResult<()> {
            unreachable!("nothing is kept")
        }
        fn write_recall(&self, _: Recalled, _: &mut Vec<u8>) {
            unreachable!("nothing is written")
        }
        fn exchange(
            &self,
            _: (usize, usize),
            _: (u8, u16),
            _: &[ObjectMemory],
            _: &[ObjectMemory],
        ) -> CallResult<ObjectGrant> {
            unreachable!("nothing is written")
        }
        fn unix_ms(&self) -> CallResult<u64> {
            Ok(NOW_MS)
        }
        fn settled(&self, _: (usize, usize), _: u32) -> CallResult<()> {
            unreachable!("nothing is settled")
        }
        fn fence(&self, _: ComputeNode) -> CallResult<Fenced> {
            unreachable!("nobody has ended")
        }
        fn fenced(&self, _: (usize, usize), _: &[ComputeNode]) -> CallResult<()> {
            unreachable!("nobody has ended")
        }
        fn begin_split(&self, _: usize, _: u16, _: u16) -> CallResult<SplitGrant> {
            unreachable!("nothing is split")
        }
        fn end_split(&self, _: (usize, usize), _: [u32; 2]) -> CallResult<()> {
            unreachable!("nothing is split")
        }
    }

    /// A session on a table with such values.
    pub(crate) fn session_of(replicas: usize, values: ValueKind, go_on: &Arc<AtomicBool>) -> FlexSession {
        let node = |region| {
            let (index, objects) = (RegionId(region), RegionId(region + 1));
            Some(FlexNode { index, index_lines: 1 << 16, objects, object_lines: 1 << 16 })
        };
        let table = FlexTable::new(&[node(1), node(3), node(5)], (KeyKind::U64, values), replicas);
        let table = table.expect("a table");
        let values = Arc::new(Values::new(3, values));
        let shared = (Arc::new(Stock::new(&table)), Arc::default(), values);
        FlexSession::new(table, shared, Box::new(Nodes(Arc::clone(go_on))), None, 1)
    }

    fn session(replicas: usize, go_on: &Arc<AtomicBool>) -> FlexSession {
        session_of(replicas, ValueKind::Fixed(8), go_on)
    }

    #[test]
    fn what_was_read_after_the_time_is_believed_if_the_pool_goes_on_as_before() {
        let go_on = Arc::new(AtomicBool::new(true));
        let replicated = session(3, &go_on);
        let until = replicated.believed_until(MonotonicNs(0)).expect("the pool goes on");
        assert_eq!(until, Some(UNTIL));
        replicated.check_believed(until, MonotonicNs(500)).expect("it goes on, so it did meanwhile");
        go_on.store(false, Ordering::Relaxed);
        replicated.check_believed(until, MonotonicNs(99)).expect("it was said");
        for late in [100, 101, u64::MAX] {
            replicated.check_believed(until, MonotonicNs(late)).expect_err("others may have written");
        }
        replicated.believed_until(MonotonicNs(101)).expect_err("the pool goes on without this session");
        let alone = session(1, &go_on);
        assert_eq!(alone.believed_until(MonotonicNs(0)).expect("nobody is asked"), None);
        alone.check_believed(None, MonotonicNs(u64::MAX)).expect("no other node has the pairs");
    }

    #[cfg(injected)]
    #[test]
    fn reads_believed_for_ever_are_found() {
        farsight_base::injection::assert_found(
            &injected::READS_BELIEVED,
            what_was_read_after_the_time_is_believed_if_the_pool_goes_on_as_before,
        );
    }
}
