//! A pool of memory nodes in this process, whose leaves the test writes itself.

use std::cell::Cell;
use std::convert::Infallible;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use farsight_base::Stamp;
use farsight_base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{Connection as _, FabricError, Host as _, QueuePair, Region as _, RegionRights};
use farsight_fabric_shm::{ConnectOptions, ListenOptions, ShmConnection, ShmHost};
use farsight_index_rolex::{
    CacheSession, CallResult, ComputeNodeLocks, GroupSizes, LeafPlace, LineSource, MetaRegion, PoolCalls,
    PoolTable, RolexCache, RolexSession, Trainer,
};
use farsight_layout::pool::{BlockGeometry, LockWord};
use farsight_layout::{
    HIGH_FENCE_WORD, INFINITE_FLAG_BIT, KEY_LINES, LOW_FENCE_WORD, LeafSlot, NEXT_WORD, OWNER_WORD,
};
use farsight_protocol::{Adopted, Blocks, Claim, Fenced, Space, TakenBlocks};

pub(crate) type Queue = <ShmConnection as farsight_fabric::Connection>::Queue;
type HostRegion = Arc<dyn farsight_fabric::Region>;

const FORMAT: u32 = 5;
const EVEN_OF_INCARNATION_1: u64 = 1 << 32 | 2;

/// Memory nodes with a table whose leaves hold a key each, and no values.
pub(crate) struct Pool {
    pub(crate) table: PoolTable,
    pub(crate) meta: MetaRegion,
    connections: Vec<ShmConnection>,
    leaves: Vec<HostRegion>,
    meta_words: HostRegion,
    /// Blocks used, by node.
    used: Arc<Vec<AtomicU32>>,
    lines: Lines,
    stop: Arc<AtomicBool>,
    hosts: Vec<(Arc<ShmHost>, Option<JoinHandle<()>>)>,
    directory: PathBuf,
}

/// The leaf of a chain that owns `key`.
pub(crate) fn owner(chain: &[(u64, LeafPlace)], key: u64) -> LeafPlace {
    chain[chain.partition_point(|(low, _)| *low <= key) - 1].1
}

/// Lines of the meta region, given out one after the other.
pub(crate) struct Lines {
    next: Cell<u32>,
    end: u32,
    /// The longest run that is left, where they are short.
    longest: Cell<Option<u32>>,
}

impl Lines {
    /// Says how long runs are that are left; none: as long as anybody likes.
    pub(crate) fn leave(&self, longest: Option<u32>) {
        self.longest.set(longest);
    }
}

impl LineSource for &Lines {
    type Error = Infallible;

    async fn more<Q: QueuePair>(
        &self,
        _slot: &PoolSlot<'_, '_, Q>,
        lines: u32,
    ) -> Result<Option<Range<u32>>, Infallible> {
        let given = match self.longest.get() {
            Some(longest) if lines > longest => return Ok(None),
            Some(_) => lines,
            None => lines.max(256),
        };
        let first = self.next.get();
        self.next.set(first + given);
        assert!(self.next.get() <= self.end, "the meta region is full");
        Ok(Some(first..self.next.get()))
    }
}

/// What sessions ask of memory nodes: blocks, and never a fence.
struct Calls {
    used: Arc<Vec<AtomicU32>>,
    leaves: u32,
}

impl PoolCalls for Calls {
    fn more_leaves(&self, node: usize) -> CallResult<Range<u32>> {
        // Relaxed: ranges only have to differ.
        let first = self.used[node].fetch_add(16, Ordering::Relaxed).min(self.leaves);
        Ok(first..(first + 16).min(self.leaves))
    }

    fn check_usable(&self) -> Result<(), FabricError> {
        Ok(())
    }

    fn give_up(&self) {}

    fn fence(&self, compute_node: u32, _seen: Option<(LeafPlace, LockWord)>) -> CallResult<Fenced> {
        Err(format!("compute node {compute_node} lives").into())
    }

    fn adopt(&self, _node: usize, known: Claim, _leaves: &[Blocks]) -> CallResult<Adopted> {
        Ok(Adopted { claim: known, is_done: true })
    }

    fn pin(&self, _node: usize, _of: (Space, Claim), _blocks: &[Blocks]) -> CallResult<()> {
        Ok(())
    }

    fn free(&self, _node: usize, _of: (Space, Claim), _blocks: &[Blocks]) -> CallResult<()> {
        Ok(())
    }

    fn ended(&self, _node: usize, _space: Space) -> CallResult<Vec<u32>> {
        Ok(Vec::new())
    }

    fn take_orphans(&self, _node: usize, _space: Space, _of: u32) -> CallResult<TakenBlocks> {
        Ok(TakenBlocks { claim: Claim::ALLOCATED, blocks: Vec::new() })
    }
}

impl Pool {
    pub(crate) fn new(nodes: usize, leaves: u32, meta_lines: u32) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number only has to differ.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("farsight-rolex-{}-{number}", std::process::id()));
        std::fs::create_dir(&directory).expect("a new directory");
        let stop = Arc::new(AtomicBool::new(false));
        let geometry = BlockGeometry::new(8).expect("values of 8 B");
        let bytes = u64::from(leaves) * geometry.bytes() as u64;
        let (mut hosts, mut regions, mut connections) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..nodes {
            let socket = directory.join(node.to_string());
            let host = Arc::new(ShmHost::listen(&socket, ListenOptions::new(FORMAT)).expect("a host"));
            regions.push(host.create_region(bytes, RegionRights::ReadWrite).expect("a region"));
            let (stepped, stop) = (Arc::clone(&host), Arc::clone(&stop));
            let control = std::thread::spawn(move || {
                // Relaxed: the flag carries nothing with it.
                while !stop.load(Ordering::Relaxed) {
                    stepped.step(Duration::from_secs(10)).expect("a step");
                }
            });
            connections
                .push(ShmConnection::connect(&socket, ConnectOptions::new(FORMAT)).expect("a connection"));
            hosts.push((host, Some(control)));
        }
        let meta_bytes = u64::from(meta_lines) * 64;
        let meta_words = hosts[0].0.create_region(meta_bytes, RegionRights::ReadWrite).expect("a region");
        let of_node: Vec<_> = regions.iter().map(|region| (region.id(), bytes)).collect();
        let pool = Self {
            table: PoolTable::new(geometry, &of_node),
            meta: MetaRegion { region: meta_words.id(), lines: meta_lines },
            connections,
            leaves: regions,
            meta_words,
            used: Arc::new((0..nodes).map(|_| AtomicU32::new(0)).collect()),
            lines: Lines { next: Cell::new(1), end: meta_lines, longest: Cell::new(None) },
            stop,
            hosts,
            directory,
        };
        let first = pool.new_leaf(0);
        for (word, content) in geometry.first_leaf().into_iter().enumerate() {
            pool.store(first, word, content);
        }
        pool
    }

    pub(crate) fn lines(&self) -> &Lines {
        &self.lines
    }

    /// A queue to each node, with all regions attached.
    pub(crate) fn queues(&self) -> Vec<Queue> {
        let open = |(node, connection): (usize, &ShmConnection)| {
            let mut queue = connection.open_queue().expect("a queue");
            queue.attach(self.leaves[node].id()).expect("the leaves' region");
            if node == 0 {
                queue.attach(self.meta.region).expect("the meta region");
            }
            queue
        };
        self.connections.iter().enumerate().map(open).collect()
    }

    /// A session of a compute node of its own.
    pub(crate) fn session(&self, compute_node: u32) -> RolexSession {
        let hints = CacheSession::new(RolexCache::new(self.table.clone(), self.meta));
        let calls = Calls { used: Arc::clone(&self.used), leaves: self.table.nodes()[0].blocks };
        RolexSession::new(hints, ComputeNodeLocks::new(compute_node), Box::new(calls))
    }

    /// A trainer: a compute node of its own.
    pub(crate) fn trainer(&self) -> Trainer {
        self.trainer_of(GroupSizes::USUAL)
    }

    /// The same, with groups of these sizes.
    pub(crate) fn trainer_of(&self, sizes: GroupSizes) -> Trainer {
        static COUNT: AtomicU64 = AtomicU64::new(1_000);
        // Relaxed: the number only has to differ.
        Trainer::with_sizes(self.session(COUNT.fetch_add(1, Ordering::Relaxed) as u32), sizes)
    }

    /// A block of `node` that is no leaf yet.
    pub(crate) fn new_leaf(&self, node: usize) -> LeafPlace {
        // Relaxed: numbers only have to differ.
        let number = self.used[node].fetch_add(1, Ordering::Relaxed);
        LeafPlace::new(node, number).expect("a small number")
    }

    /// Writes a leaf that shows its least key, so that nobody merges it.
    pub(crate) fn write_leaf(&self, place: LeafPlace, low: u64, high: Option<u64>, next: Option<LeafPlace>) {
        let next = u64::from(next.map_or(u32::MAX, |next| next.leaf_number().0));
        let infinite = u64::from(high.is_none()) << INFINITE_FLAG_BIT;
        self.store(place, LOW_FENCE_WORD, low);
        self.store(place, HIGH_FENCE_WORD, high.unwrap_or_default());
        self.store(place, NEXT_WORD, next | infinite);
        self.store(place, LeafSlot::FIRST.key_word(), low);
        for line in 0..self.table.geometry().leaf().leaf_lines() {
            let is_keys = line == LeafSlot::FIRST.key_line();
            let occupancy = if is_keys { LeafSlot::FIRST.occupancy_bit() } else { 0 };
            self.store(place, line * 8, Stamp(EVEN_OF_INCARNATION_1).with_occupancy(occupancy).0);
        }
    }

    /// Closes a block and leaves its key lines odd.
    pub(crate) fn begin_leaf(&self, place: LeafPlace) {
        for line in 0..KEY_LINES {
            self.store(place, line * 8, EVEN_OF_INCARNATION_1 + 1);
        }
        self.store(place, OWNER_WORD, LockWord::CLOSED.0);
    }

    /// Splits a leaf, whose high fence and right sibling are these, at `key`; gives the right half's place.
    pub(crate) fn split(&self, left: LeafPlace, key: u64) -> LeafPlace {
        let [next, low, high] = [NEXT_WORD, LOW_FENCE_WORD, HIGH_FENCE_WORD].map(|it| self.load(left, it));
        let high = (next >> INFINITE_FLAG_BIT & 1 == 0).then_some(high);
        assert!(low < key && high.is_none_or(|high| key < high), "{key} splits nothing");
        let right = self.new_leaf(left.node());
        let behind = self.table.place(farsight_base::LeafNumber(next as u32));
        self.write_leaf(right, key, high, behind);
        self.write_leaf(left, low, Some(key), Some(right));
        right
    }

    /// Low fences and places of all leaves, by the chain.
    pub(crate) fn chain(&self) -> Vec<(u64, LeafPlace)> {
        let mut next = LeafPlace::new(0, 0);
        let mut chain = Vec::new();
        while let Some(place) = next {
            chain.push((self.load(place, LOW_FENCE_WORD), place));
            next = self.table.place(farsight_base::LeafNumber(self.load(place, NEXT_WORD) as u32));
        }
        chain
    }

    /// All words of the meta region.
    pub(crate) fn meta_words(&self) -> &[AtomicU64] {
        self.meta_words.words()
    }

    fn word(&self, place: LeafPlace, word: usize) -> &AtomicU64 {
        let at = place.number() as usize * self.table.geometry().bytes() / 8 + word;
        &self.leaves[place.node()].words()[at]
    }

    // Relaxed: the test's own thread is the only one that uses leaves.
    fn load(&self, place: LeafPlace, word: usize) -> u64 {
        self.word(place, word).load(Ordering::Relaxed)
    }

    fn store(&self, place: LeafPlace, word: usize, value: u64) {
        self.word(place, word).store(value, Ordering::Relaxed);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Relaxed: as above.
        self.stop.store(true, Ordering::Relaxed);
        for (host, control) in &mut self.hosts {
            host.wake();
            let outcome = control.take().expect("joined once").join();
            assert!(std::thread::panicking() || outcome.is_ok(), "a control thread panicked");
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
