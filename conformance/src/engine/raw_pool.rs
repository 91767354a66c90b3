//! ROLEX as the suite sees it, over memory nodes that are regions and nothing else: who allocates and fences
//! is this harness.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farsight::{Access, WriteOperation, WriteOutcome};
use farsight_base::sync::{AtomicU32, AtomicU64, Ordering};
use farsight_base::{RegionId, WORDS_PER_LINE};
use farsight_fabric::lane::{PoolLane, PoolSlot};
use farsight_fabric::{Connection, FabricError, Host, Meters, QueuePair, Region, RegionRights};
use farsight_index::{Answers, Counters, Direction, Extent, OldValues, Pairs, ScanRequest, Writes};
use farsight_index_rolex::{
    CacheSession, CallResult, ComputeNodeLocks, GroupSizes, LeafPlace, LineSource, MetaRegion, PoolCalls,
    PoolTable, RolexCache, RolexError, RolexSession, TrainError, Trained, Trainer,
};
use farsight_layout::learned::{DIRECTORY_HEADER_WORDS, DirectoryShape, ROOT_WORD, RootWord};
use farsight_layout::pool::{BlockGeometry, LockWord};
use farsight_oracles::EightBytes;
use farsight_protocol::{Adopted, Blocks, Claim, Fenced, Space, TakenBlocks};

use super::direct::with_old;
use super::{EngineUnderTest, SessionUnderTest, Stored, TableUnderTest};
use crate::fabric::FabricUnderTest;
use crate::fabric::harness::{FORMAT, QueueOf, Running};

/// Bytes of the meta region.
const META_BYTES: u64 = 8 << 20;
/// Lines that a call gives at least.
const LINES_A_CALL: u32 = 256;
/// Groups that a step trains.
const GROUPS_A_STEP: usize = 64;
/// Steps that no training takes.
const STEPS_MAX: usize = 10_000;
/// How long a trainer pauses that can do nothing yet.
const PAUSE_OF_A_TRAINER: Duration = Duration::from_millis(1);
/// Leaves that a call gives.
const LEAVES_A_CALL: u32 = 16;

/// The compute node whose sessions may die: what a dead one has posted was executed, so there is nothing to
/// fence.
pub const MORTAL: u32 = u32::MAX;
/// The compute node that trains.
const TRAINER: u32 = MORTAL - 1;

/// Memory nodes, each a server with regions.
pub struct RawPool<F: FabricUnderTest> {
    nodes: Arc<Vec<(F, Running<F::Host>)>>,
    table_bytes: u64,
    sizes: GroupSizes,
    compute_nodes: Arc<AtomicU64>,
}

impl<F: FabricUnderTest> RawPool<F> {
    /// A memory node a subject, with up to `table_bytes` of leaves a table.
    #[must_use]
    pub fn start(subjects: impl IntoIterator<Item = F>, table_bytes: u64) -> Self {
        Self::with_sizes(subjects, table_bytes, GroupSizes::USUAL)
    }

    /// The same; trainers make groups of these sizes.
    #[must_use]
    pub fn with_sizes(subjects: impl IntoIterator<Item = F>, table_bytes: u64, sizes: GroupSizes) -> Self {
        let start = |subject: F| {
            let running = Running::start(subject.listen(FORMAT), 1);
            (subject, running)
        };
        let nodes = Arc::new(subjects.into_iter().map(start).collect());
        Self { nodes, table_bytes, sizes, compute_nodes: Arc::new(AtomicU64::new(1)) }
    }
}

impl<F: FabricUnderTest> EngineUnderTest for RawPool<F> {
    type Embedding = EightBytes;
    type Table = RawPoolTable<F>;

    fn table(&self, value_bytes: usize) -> Self::Table {
        let geometry = BlockGeometry::new(value_bytes).expect("a value size");
        let create = |node: &Running<F::Host>, bytes| {
            node.host().create_region(bytes, RegionRights::ReadWrite).expect("a region")
        };
        let regions: Vec<_> = self.nodes.iter().map(|(_, node)| create(node, self.table_bytes)).collect();
        for (word, content) in regions[0].words().iter().zip(geometry.first_leaf()) {
            // Relaxed: sessions are opened later, and by this thread.
            word.store(content, Ordering::Relaxed);
        }
        let meta_words = create(&self.nodes[0].1, META_BYTES);
        let meta = MetaRegion { region: meta_words.id(), lines: (META_BYTES / 64) as u32 };
        let regions: Vec<(RegionId, u64)> =
            regions.iter().map(|region| (region.id(), self.table_bytes)).collect();
        let table = PoolTable::new(geometry, &regions);
        let given: Vec<Given> = regions.iter().map(|_| Given::default()).collect();
        // Relaxed: as above. The coordinator's first leaf is the table's.
        given[0].next.store(1, Ordering::Relaxed);
        let given = Arc::new(given);
        let trainer = session(&table, meta, &given, ComputeNodeLocks::new(TRAINER));
        RawPoolTable {
            nodes: Arc::clone(&self.nodes),
            trainer: Mutex::new(Trainer::with_sizes(trainer, self.sizes)),
            lines: Lines { next: AtomicU32::new(1), end: meta.lines },
            table,
            meta,
            meta_words,
            given,
            compute_nodes: Arc::clone(&self.compute_nodes),
        }
    }

    fn rounds(&self, usual: usize) -> usize {
        self.nodes[0].0.rounds(usual)
    }

    fn pairs(&self, usual: usize) -> usize {
        self.nodes[0].0.pairs(usual)
    }
}

/// A table in the pool.
pub struct RawPoolTable<F: FabricUnderTest> {
    nodes: Arc<Vec<(F, Running<F::Host>)>>,
    table: PoolTable,
    meta: MetaRegion,
    meta_words: Arc<dyn Region>,
    /// By memory node.
    given: Arc<Vec<Given>>,
    compute_nodes: Arc<AtomicU64>,
    trainer: Mutex<Trainer>,
    lines: Lines,
}

/// Leaves of one memory node.
#[derive(Default)]
struct Given {
    /// Those from here on were never given out.
    next: AtomicU32,
    /// Those that came back.
    free: Mutex<Vec<u32>>,
}

/// What a session asks of memory nodes.
struct Calls {
    table: PoolTable,
    given: Arc<Vec<Given>>,
}

impl PoolCalls for Calls {
    fn more_leaves(&self, node: usize) -> CallResult<Range<u32>> {
        let (blocks, given) = (self.table.nodes()[node].blocks, &self.given[node]);
        if let Some(block) = given.free.lock().expect("no thread panics").pop() {
            return Ok(block..block + 1);
        }
        // Relaxed: ranges have to differ only.
        let first = given.next.fetch_add(LEAVES_A_CALL, Ordering::Relaxed).min(blocks);
        Ok(first..(first + LEAVES_A_CALL).min(blocks))
    }

    fn check_usable(&self) -> Result<(), FabricError> {
        Ok(())
    }

    fn give_up(&self) {}

    fn fence(&self, compute_node: u32, _seen: Option<(LeafPlace, LockWord)>) -> CallResult<Fenced> {
        if compute_node == MORTAL {
            return Ok(Fenced::Done);
        }
        Err(format!("compute node {compute_node} lives").into())
    }

    fn adopt(&self, _node: usize, known: Claim, _leaves: &[Blocks]) -> CallResult<Adopted> {
        Ok(Adopted { claim: known, is_done: true })
    }

    fn pin(&self, _node: usize, _of: (Space, Claim), _blocks: &[Blocks]) -> CallResult<()> {
        Ok(())
    }

    fn free(&self, node: usize, _of: (Space, Claim), blocks: &[Blocks]) -> CallResult<()> {
        let numbers = blocks.iter().flat_map(|run| run.first..run.first + run.count);
        self.given[node].free.lock().expect("no thread panics").extend(numbers);
        Ok(())
    }

    fn ended(&self, _node: usize, _space: Space) -> CallResult<Vec<u32>> {
        Ok(Vec::new())
    }

    fn take_orphans(&self, _node: usize, _space: Space, _of: u32) -> CallResult<TakenBlocks> {
        Ok(TakenBlocks { claim: Claim::ALLOCATED, blocks: Vec::new() })
    }
}

fn session(
    table: &PoolTable,
    meta: MetaRegion,
    given: &Arc<Vec<Given>>,
    locks: ComputeNodeLocks,
) -> RolexSession {
    let cache = RolexCache::new(table.clone(), meta);
    let calls = Calls { table: table.clone(), given: Arc::clone(given) };
    RolexSession::new(CacheSession::new(cache), locks, Box::new(calls))
}

impl<F: FabricUnderTest> TableUnderTest for RawPoolTable<F> {
    type Session = RawPoolSession<F, QueueOf<F>>;

    fn session(&self, _access: Access) -> Self::Session {
        // Relaxed: the numbers have to differ only.
        let number = self.compute_nodes.fetch_add(1, Ordering::Relaxed);
        self.session_of(u32::try_from(number).expect("few sessions"), |queue| queue)
    }

    fn await_training(&self) {
        let (mut queues, _connections) = self.queues(|queue| queue);
        let mut trainer = self.trainer.lock().expect("one trainer");
        for _ in 0..STEPS_MAX {
            let step = PoolLane::new(&mut queues)
                .block_on(async |slot| trainer.step(&slot, &&self.lines, GROUPS_A_STEP).await);
            let step = step.expect("the fabric works").expect("training works");
            if step.is_all() {
                return;
            }
            // What is locked by somebody who died comes to rest when its lease has run out, no sooner.
            if step.groups + step.lost + step.directories == 0 {
                std::thread::sleep(PAUSE_OF_A_TRAINER);
            }
        }
        panic!("training does not end");
    }
}

impl<F: FabricUnderTest> RawPoolTable<F> {
    /// A session of a compute node, the only one of that number, over its queue pairs as `wrap` has them.
    pub fn session_of<Q: QueuePair>(
        &self,
        compute_node: u32,
        wrap: impl Fn(QueueOf<F>) -> Q,
    ) -> RawPoolSession<F, Q> {
        let (queues, connections) = self.queues(wrap);
        let session = session(&self.table, self.meta, &self.given, ComputeNodeLocks::new(compute_node));
        RawPoolSession { session, queues, _connections: connections }
    }

    /// Blocks that sessions have, whether their leaves are linked or not.
    #[must_use]
    pub fn leaves_in_use(&self) -> usize {
        let used = |given: &Given| {
            let free = given.free.lock().expect("no thread panics").len();
            // Relaxed: no session allocates meanwhile.
            given.next.load(Ordering::Relaxed) as usize - free
        };
        self.given.iter().map(used).sum()
    }

    /// Lines of the meta region that trainers have.
    #[must_use]
    pub fn lines_in_use(&self) -> u32 {
        // Relaxed: as above.
        self.lines.next.load(Ordering::Relaxed)
    }

    /// The newest directory's number, and how many groups it has.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn directory(&self) -> (u32, usize) {
        // Relaxed: as above.
        let word = |line: u32, word: usize| -> u64 {
            self.meta_words.words()[line as usize * WORDS_PER_LINE + word].load(Ordering::Relaxed)
        };
        let root = RootWord(word(0, ROOT_WORD));
        let line = root.line().expect("a directory");
        let header: Vec<u64> = (0..DIRECTORY_HEADER_WORDS).map(|at| word(line, at)).collect();
        (root.number(), DirectoryShape::of_header(&header).expect("a directory's header").groups())
    }

    /// A trainer of groups of these sizes, whose locks are `locks`', over its queue pairs as `wrap` has them.
    pub fn trainer_of<Q: QueuePair>(
        &self,
        locks: ComputeNodeLocks,
        sizes: GroupSizes,
        wrap: impl Fn(QueueOf<F>) -> Q,
    ) -> RawPoolTrainer<'_, F, Q> {
        let (queues, connections) = self.queues(wrap);
        let session = session(&self.table, self.meta, &self.given, locks);
        let trainer = Trainer::with_sizes(session, sizes);
        RawPoolTrainer { trainer, queues, lines: &self.lines, _connections: connections }
    }

    /// A queue pair a memory node, with the table's regions, and the connections that they need.
    fn queues<Q: QueuePair>(&self, wrap: impl Fn(QueueOf<F>) -> Q) -> (Vec<Q>, Vec<F::Connection>) {
        let connections: Vec<F::Connection> =
            self.nodes.iter().map(|(node, _)| node.connect(FORMAT).expect("a connection")).collect();
        let open = |connection: &F::Connection| wrap(connection.open_queue().expect("a queue"));
        let mut queues: Vec<Q> = connections.iter().map(open).collect();
        for (queue, leaves) in queues.iter_mut().zip(self.table.nodes()) {
            queue.attach(leaves.region).expect("the leaves");
        }
        queues[0].attach(self.meta.region).expect("the meta region");
        (queues, connections)
    }
}

/// Lines of the meta region for its trainers.
struct Lines {
    next: AtomicU32,
    end: u32,
}

impl LineSource for &Lines {
    type Error = Infallible;

    async fn more<Q: QueuePair>(
        &self,
        _slot: &PoolSlot<'_, '_, Q>,
        lines: u32,
    ) -> Result<Option<Range<u32>>, Infallible> {
        let lines = lines.max(LINES_A_CALL);
        // Relaxed: ranges have to differ only.
        let first = self.next.fetch_add(lines, Ordering::Relaxed);
        assert!(first + lines <= self.end, "the meta region is full");
        Ok(Some(first..first + lines))
    }
}

/// A trainer of the table.
pub struct RawPoolTrainer<'t, F: FabricUnderTest, Q> {
    trainer: Trainer,
    queues: Vec<Q>,
    lines: &'t Lines,
    _connections: Vec<F::Connection>,
}

impl<F: FabricUnderTest, Q: QueuePair> RawPoolTrainer<'_, F, Q> {
    /// A step of training.
    ///
    /// # Errors
    /// As the trainer.
    pub fn step(&mut self) -> Result<Trained, TrainError<Infallible>> {
        let Self { trainer, queues, lines, .. } = self;
        PoolLane::new(queues).block_on(async |slot| trainer.step(&slot, lines, GROUPS_A_STEP).await)?
    }
}

/// A session on the table.
pub struct RawPoolSession<F: FabricUnderTest, Q> {
    session: RolexSession,
    queues: Vec<Q>,
    _connections: Vec<F::Connection>,
}

impl<F: FabricUnderTest, Q: QueuePair> RawPoolSession<F, Q> {
    /// One write, which may fail.
    ///
    /// # Errors
    /// As the session.
    pub fn try_write(
        &mut self,
        operation: WriteOperation,
        key: u64,
        value: &[u8],
    ) -> Result<WriteOutcome, RolexError> {
        self.try_writes(operation, &[(key, value)]).pop().expect("an outcome a write")
    }

    /// Writes of one call, each of which may fail.
    pub fn try_writes(
        &mut self,
        operation: WriteOperation,
        entries: &[(u64, &[u8])],
    ) -> Vec<Result<WriteOutcome, RolexError>> {
        let keys: Vec<u64> = entries.iter().map(|(key, _)| *key).collect();
        let values = entries.iter().map(|(_, value)| *value).collect::<Vec<_>>().concat();
        let mut outcomes = Vec::new();
        let writes = Writes { operation, keys: &keys, values: &values, bounds: &[] };
        self.session.write_many(&mut self.queues, writes, &mut outcomes, &mut OldValues::default());
        outcomes
    }

    /// What was asked of all queues.
    #[must_use]
    pub fn meters(&self) -> Meters {
        self.queues.iter().fold(Meters::default(), |mut sum, queue| {
            sum += queue.meters().without_checks();
            sum
        })
    }

    /// What the session counted.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.session.counters()
    }
}

impl<F: FabricUnderTest, Q: QueuePair> SessionUnderTest for RawPoolSession<F, Q> {
    type Key = u64;

    fn write(&mut self, operation: WriteOperation, entries: &[(u64, Vec<u8>)]) -> Vec<WriteOutcome> {
        let entries: Vec<(u64, &[u8])> = entries.iter().map(|(key, value)| (*key, &value[..])).collect();
        let outcomes = self.try_writes(operation, &entries);
        outcomes.into_iter().map(|outcome| outcome.expect("a write")).collect()
    }

    fn exchange(
        &mut self,
        operation: WriteOperation,
        entries: &[(u64, Vec<u8>)],
    ) -> Vec<(WriteOutcome, Option<Vec<u8>>)> {
        let keys: Vec<u64> = entries.iter().map(|(key, _)| *key).collect();
        let values = entries.iter().map(|(_, operand)| &operand[..]).collect::<Vec<_>>().concat();
        let (mut outcomes, mut old_values) = (Vec::new(), OldValues::default());
        let writes = Writes { operation, keys: &keys, values: &values, bounds: &[] };
        self.session.write_many(&mut self.queues, writes, &mut outcomes, &mut old_values);
        let outcomes = outcomes.into_iter().map(|outcome| outcome.expect("a write")).collect();
        with_old(operation, outcomes, &old_values)
    }

    fn get(&mut self, key: u64) -> Option<Stored> {
        self.multi_get(&[key]).pop().expect("an answer a key")
    }

    fn multi_get(&mut self, keys: &[u64]) -> Vec<Option<Stored>> {
        let mut answers = Answers::default();
        self.session.multi_get(&mut self.queues, keys, &mut answers).expect("GETs");
        let stored = |(value, version): (&[u8], u64)| (value.to_vec(), version);
        answers.iter().map(|answer| answer.map(stored)).collect()
    }

    fn scan_batch(&mut self, direction: Direction, scans: &[(u64, usize)]) -> Vec<Vec<(u64, Stored)>> {
        let mut pairs = Pairs::default();
        let requests: Vec<ScanRequest> =
            scans.iter().map(|(from, limit)| ScanRequest { from: *from, limit: *limit }).collect();
        let way = (direction, Extent::Pairs);
        self.session.scan_batch(&mut self.queues, way, &requests, &mut pairs).expect("scans");
        let stored = |pair: farsight_index::Pair<'_>| (pair.key, (pair.value.to_vec(), pair.version));
        (0..scans.len()).map(|scan| pairs.scan(scan).map(stored).collect()).collect()
    }

    fn scan_keys(&mut self, direction: Direction, from: u64, limit: usize) -> Vec<u64> {
        let (mut pairs, scans) = (Pairs::default(), [ScanRequest { from, limit }]);
        let way = (direction, Extent::Keys);
        self.session.scan_batch(&mut self.queues, way, &scans, &mut pairs).expect("a scan of keys");
        pairs.scan(0).map(|pair| pair.key).collect()
    }

    fn scan_all(&mut self, direction: Direction, from: u64) -> Vec<(u64, Stored)> {
        let mut all: Vec<(u64, Stored)> = Vec::new();
        let mut next = Some(from);
        while let Some(from) = next {
            let page = self.scan_batch(direction, &[(from, 100)]).pop().expect("a scan");
            next = page.last().filter(|_| page.len() == 100).and_then(|(key, _)| direction.next_key(*key));
            all.extend(page);
        }
        all
    }
}
