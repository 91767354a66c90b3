//! A warm session allocates nothing: single operations, batches, conditional writes, scans both ways, and
//! keys that leave a batch for the lane, of every engine, over shared memory and TCP.
//!
//! A session does all its work in its caller's thread, so the test counts the allocations of its own. By
//! design these allocate: parts of the model that come in, splits in ROLEX, and over TCP the question where
//! the table's name leads, twice a second. So each kind of operation is repeated until its buffers are warm.
//! Then the least of a few short windows counts, among those in which nothing of the model came.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use farsight::{Access, Answers, WriteOperation, WriteOutcome};
use farsight_base::prng::mix;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_client::{Direction, ScanRequest, Session, Table};
use farsight_conformance::engine::harness::eventually;
use farsight_conformance::engine::pool_store::{PoolStore, await_training};
use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_index::{OldValues, Pairs};

const KEYS: u64 = 20_000;
const TABLE_BYTES: u64 = 64 << 20;
/// Operations, or batches of them, before anything is counted, and in a window.
const WARM: usize = 100;
const COUNTED: usize = 10;
/// Windows at most. Over TCP a slot gets a place for lines when these are first copied out of what arrives.
/// That happens when the server is late, and once for each slot of a queue.
const WINDOWS_MAX: usize = 600;
/// Half of the time between two questions where a name leads. Longer windows are followed by shorter ones.
const WINDOW_MAX: Duration = Duration::from_millis(250);
const BATCH: usize = 64;
/// More than what engines do together.
const LARGE_BATCH: usize = 500;

/// A session, and what a careful caller keeps from call to call.
struct Caller {
    session: Session,
    /// Stored keys: even numbers.
    stored: Vec<u64>,
    value: Vec<u8>,
    keys: Vec<u64>,
    scans: Vec<ScanRequest>,
    answers: Answers,
    pairs: Pairs,
    outcomes: Vec<WriteOutcome>,
    operand: Vec<u8>,
    old_values: OldValues,
    turn: u64,
}

impl Caller {
    fn new(table: &Table, stored: Vec<u64>, access: Access) -> Self {
        Self {
            session: table.session(access).expect("a session"),
            stored,
            value: vec![7; table.value_bytes()],
            keys: Vec::new(),
            scans: Vec::new(),
            answers: Answers::default(),
            pairs: Pairs::default(),
            outcomes: Vec::new(),
            operand: Vec::new(),
            old_values: OldValues::default(),
            turn: 0,
        }
    }

    /// Another stored key with every call.
    fn key(&mut self) -> u64 {
        self.turn += 1;
        self.stored[mix(self.turn) as usize % self.stored.len()]
    }

    fn get(&mut self, key: u64) -> bool {
        self.session.get(key, &mut self.value).expect("an answer").is_some()
    }

    /// GETs of so many keys, of which every `absent`th is absent.
    fn multi_get(&mut self, count: usize, absent: usize) {
        self.choose(count, absent);
        self.session.multi_get(&self.keys, &mut self.answers).expect("answers");
        let found = self.answers.versions().iter().filter(|version| **version != 0).count();
        assert_eq!(found, count - count / absent);
    }

    fn choose(&mut self, count: usize, absent: usize) {
        self.keys.clear();
        for index in 0..count {
            let key = self.key() | u64::from((index + 1).is_multiple_of(absent));
            self.keys.push(key);
        }
    }

    fn write_one(&mut self, operation: WriteOperation, key: u64) -> WriteOutcome {
        let value = if operation.has_value() { &self.value[..] } else { &[] };
        self.session.write_one(operation, key, value).expect("an outcome")
    }

    /// Writes what [`Caller::choose`] chose.
    fn write(&mut self, operation: WriteOperation) {
        let value = if operation.has_value() { &self.value[..] } else { &[] };
        let entries = self.keys.iter().map(|key| (*key, value));
        self.session.write(operation, entries, &mut self.outcomes).expect("outcomes");
        assert_eq!(self.outcomes.len(), self.keys.len());
    }

    /// Writes a stored key's value if its version is the expected one.
    fn compare_and_set(&mut self, key: u64, version: u64) -> WriteOutcome {
        self.operand.clear();
        self.operand.extend_from_slice(&version.to_le_bytes());
        self.operand.extend_from_slice(&self.value);
        self.session.write_one(WriteOperation::CompareAndSet, key, &self.operand).expect("an outcome")
    }

    fn scan(&mut self, count: usize, limit: usize) {
        self.choose_scans(count, limit);
        self.session.scan_batch(Direction::Ascending, &self.scans, &mut self.pairs).expect("pairs");
    }

    fn choose_scans(&mut self, count: usize, limit: usize) {
        self.scans.clear();
        for index in 0..count {
            let from = self.key();
            self.scans.push(ScanRequest { from, limit: 1 + (index + limit - 1) % limit });
        }
    }
}

/// What is done again and again.
type Operation = (&'static str, fn(&mut Caller));

const READS: &[Operation] = &[
    ("a GET", |caller| {
        let key = caller.key();
        assert!(caller.get(key));
    }),
    ("a GET of an absent key", |caller| {
        let key = caller.key() | 1;
        assert!(!caller.get(key));
    }),
    ("GETs in a batch", |caller| caller.multi_get(BATCH, usize::MAX)),
    ("GETs of absent keys", |caller| caller.multi_get(BATCH, 1)),
    ("GETs in a large batch", |caller| caller.multi_get(LARGE_BATCH, 7)),
];

const SCANS: &[Operation] = &[
    ("a scan", |caller| caller.scan(1, 20)),
    ("a long scan", |caller| caller.scan(1, 2_000)),
    ("scans in a batch", |caller| caller.scan(BATCH, 100)),
    ("scans for a pair each", |caller| caller.scan(BATCH, 1)),
    ("scans downwards", |caller| {
        caller.choose_scans(BATCH, 100);
        let scans = (&caller.scans, &mut caller.pairs);
        caller.session.scan_batch(Direction::Descending, scans.0, scans.1).expect("pairs");
    }),
    ("scans of keys alone", |caller| {
        caller.choose_scans(BATCH, 100);
        let scans = (&caller.scans, &mut caller.pairs);
        caller.session.scan_keys(Direction::Ascending, scans.0, scans.1).expect("keys");
    }),
];

const WRITES: &[Operation] = &[
    ("an update", |caller| {
        let key = caller.key();
        assert!(matches!(caller.write_one(WriteOperation::Update, key), WriteOutcome::Replaced(_)));
    }),
    ("a put", |caller| {
        let key = caller.key();
        assert!(matches!(caller.write_one(WriteOperation::Put, key), WriteOutcome::Replaced(_)));
    }),
    ("an insert of a present key", |caller| {
        let key = caller.key();
        assert!(matches!(caller.write_one(WriteOperation::Insert, key), WriteOutcome::Exists(_)));
    }),
    ("an update of an absent key", |caller| {
        let key = caller.key() | 1;
        assert_eq!(caller.write_one(WriteOperation::Update, key), WriteOutcome::Absent);
    }),
    ("updates in a batch", |caller| {
        caller.choose(BATCH, usize::MAX);
        caller.write(WriteOperation::Update);
    }),
    ("updates in a large batch", |caller| {
        caller.choose(LARGE_BATCH, 7);
        caller.write(WriteOperation::Update);
    }),
    ("updates of one key over and over", |caller| {
        caller.choose(BATCH, usize::MAX);
        let key = caller.keys[0];
        caller.keys.iter_mut().step_by(3).for_each(|other| *other = key);
        caller.write(WriteOperation::Put);
    }),
];

const CONDITIONAL: &[Operation] = &[
    ("a write by its version", |caller| {
        let key = caller.key();
        let version = caller.session.get(key, &mut caller.value).expect("an answer").expect("stored");
        assert!(matches!(caller.compare_and_set(key, version), WriteOutcome::Replaced(_)));
    }),
    ("a write by a version that is not there", |caller| {
        let key = caller.key();
        assert!(matches!(caller.compare_and_set(key, u64::MAX >> 20), WriteOutcome::Differs(_)));
    }),
    ("a swap", |caller| {
        let key = caller.key();
        caller.old_values.clear();
        let (value, old_values) = (&caller.value, &mut caller.old_values);
        let outcome = caller.session.exchange_one(WriteOperation::Swap, key, value, old_values);
        assert!(matches!(outcome.expect("an outcome"), WriteOutcome::Replaced(_)));
    }),
];

/// Into leaves that have room: a split makes a leaf, and that takes memory.
const INSERTS: &[Operation] = &[
    ("an insert, and its removal", |caller| {
        let key = caller.key() | 1;
        assert!(matches!(caller.write_one(WriteOperation::Insert, key), WriteOutcome::Inserted(_)));
        assert!(matches!(caller.write_one(WriteOperation::Remove, key), WriteOutcome::Removed(_)));
    }),
    ("inserts in a batch, and their removal", |caller| {
        caller.choose(BATCH, 1);
        caller.write(WriteOperation::Insert);
        caller.write(WriteOperation::Remove);
    }),
];

/// The fewest allocations of so many runs of `body`, in a window in which no part of the model came in.
fn least(caller: &mut Caller, mut runs: usize, mut body: impl FnMut(&mut Caller)) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..WINDOWS_MAX {
        let fetched = caller.session.counters().sub_models_fetched;
        let begun = Instant::now();
        let counted = measure(|| (0..runs).for_each(|_| body(&mut *caller))).count_total;
        // On a busy machine each longer window may meet the question where the name leads.
        if begun.elapsed() > WINDOW_MAX {
            runs = (runs / 2).max(1);
        }
        if caller.session.counters().sub_models_fetched == fetched {
            least = least.min(counted);
        }
        if least == 0 {
            break;
        }
    }
    least
}

/// Repeats each operation, and tells which of them allocated.
fn allocating(caller: &mut Caller, operations: &[Operation]) -> Vec<String> {
    let mut found = Vec::new();
    for (what, operation) in operations {
        (0..WARM).for_each(|_| operation(caller));
        let least = least(caller, COUNTED, *operation);
        if least > 0 {
            found.push(format!("{what}: {least} allocations in up to {COUNTED}"));
        }
    }
    found
}

fn assert_none(engine: &str, found: &[String]) {
    assert!(found.is_empty(), "{engine}:\n{}", found.join("\n"));
}

fn even_keys() -> Vec<u64> {
    let keys: BTreeSet<u64> = (0..KEYS).map(|index| mix(index) & !1).collect();
    keys.into_iter().collect()
}

/// A loaded table, of which a session knows the whole model.
fn warm<F: FabricUnderTest>(store: &PoolStore<F>, value_bytes: usize, access: Access) -> Caller {
    let table = store.create(&format!("t{value_bytes}{access:?}"), value_bytes);
    let keys = even_keys();
    let mut load = table.bulk_load().expect("a load");
    for key in &keys {
        load.push(*key, &vec![7; value_bytes]).expect("ascending");
    }
    load.finish().expect("the load");
    await_training(&store.connect());
    let mut caller = Caller::new(&table, keys, access);
    caller.session.prefill().expect("the model");
    caller
}

fn all_operations<F: FabricUnderTest>(engine: &str, store: &PoolStore<F>) {
    for value_bytes in [8, 100] {
        let mut caller = warm(store, value_bytes, Access::OneSided);
        let kinds = [READS, SCANS, WRITES, CONDITIONAL, INSERTS];
        let found = kinds.map(|operations| allocating(&mut caller, operations)).concat();
        assert_none(&format!("{engine}, values of {value_bytes} B"), &found);
    }
}

const HALF: u64 = 1 << 63;

#[test]
fn x_store() {
    all_operations("XStore", &PoolStore::x_store_d([Shm::new()], &[], TABLE_BYTES));
}

#[test]
fn x_store_by_calls() {
    let store = PoolStore::x_store_d([Shm::new()], &[], TABLE_BYTES);
    let mut caller = warm(&store, 8, Access::Rpc);
    assert_none("XStore by calls", &[READS, SCANS].map(|kinds| allocating(&mut caller, kinds)).concat());
}

#[test]
fn x_store_d() {
    all_operations("XStore-D", &PoolStore::x_store_d([Shm::new(), Shm::new()], &[HALF], TABLE_BYTES));
}

#[test]
fn rolex_on_one_node() {
    all_operations("ROLEX on one node", &PoolStore::rolex([Shm::new()], TABLE_BYTES));
}

#[test]
fn rolex_on_two_nodes() {
    all_operations("ROLEX on two nodes", &PoolStore::rolex([Shm::new(), Shm::new()], TABLE_BYTES));
}

mod over_tcp {
    use super::*;

    #[test]
    fn x_store() {
        all_operations("XStore", &PoolStore::x_store_d([Tcp::default()], &[], TABLE_BYTES));
    }

    #[test]
    fn x_store_d() {
        let nodes = [Tcp::default(), Tcp::default()];
        all_operations("XStore-D", &PoolStore::x_store_d(nodes, &[HALF], TABLE_BYTES));
    }

    #[test]
    fn rolex_on_two_nodes() {
        all_operations("ROLEX", &PoolStore::rolex([Tcp::default(), Tcp::default()], TABLE_BYTES));
    }
}

/// Another session changes the lines that are read, so keys leave the batch for the lane.
#[test]
fn x_store_in_the_lane_beside_a_writer() {
    const LEFT: u64 = 5;
    let store = PoolStore::x_store_d([Shm::new()], &[], TABLE_BYTES);
    let table = store.create("t", 100);
    let keys: Vec<u64> = (0..BATCH as u64).map(|index| 2 * index).collect();
    let [mut reader, mut writer] = [(); 2].map(|()| Caller::new(&table, keys.clone(), Access::OneSided));
    writer.keys.clone_from(&keys);
    writer.write(WriteOperation::Insert);
    await_training(&store.connect());
    reader.keys = keys;
    reader.session.prefill().expect("the model");
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Relaxed: nothing else is told by it.
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                writer.write(WriteOperation::Update);
            }
        });
        // Also when the test fails: nobody waits for a writer that goes on for ever.
        let _ends = RaisedWhenDropped(&has_ended);
        let read_until_left = |reader: &mut Caller| {
            let enough = reader.session.counters().slow_path + LEFT;
            eventually("keys that leave the batch", || {
                (0..1000).for_each(|_| {
                    reader.session.multi_get(&reader.keys, &mut reader.answers).expect("answers");
                    assert!(reader.get(0));
                });
                reader.session.counters().slow_path >= enough
            });
        };
        read_until_left(&mut reader);
        let least = least(&mut reader, 1, read_until_left);
        assert_eq!(least, 0, "{:?}", reader.session.counters());
    });
}

/// A flag that is raised when this goes, however it goes.
struct RaisedWhenDropped<'f>(&'f AtomicBool);

impl Drop for RaisedWhenDropped<'_> {
    fn drop(&mut self) {
        // Relaxed: nothing else is told by it.
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Nobody trains: the cache knows the first leaf and a bounded number of others, so that operations walk.
#[test]
fn rolex_in_the_lane_without_training() {
    let store = PoolStore::rolex([Shm::new(), Shm::new()], TABLE_BYTES);
    let table = store.create("t", 8);
    let mut caller = Caller::new(&table, even_keys(), Access::OneSided);
    caller.keys = caller.stored.clone();
    caller.write(WriteOperation::Insert);
    // Until the cache has met as many leaves as it keeps.
    (0..WARM).for_each(|_| caller.multi_get(LARGE_BATCH, usize::MAX));
    let before = caller.session.counters().slow_path;
    let found = [READS, SCANS, WRITES].map(|operations| allocating(&mut caller, operations)).concat();
    assert!(caller.session.counters().slow_path - before > 10_000, "keys walk");
    assert_none("ROLEX, in the lane", &found);
}
