//! ROLEX tables that grow, shrink and move where it hurts most, in virtual time, trained as a memory node
//! trains its own: in steps, with rests three times as long. Whatever the order, a GET takes few READs.
//!
//! The judge counts READs, those of the index included. It does so for each so many GETs, by a compute node
//! that knows of changes what it READs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::clock::MonotonicNs;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_client::{Access, ClientOptions, PoolClient, Session};
use farsight_fabric_sim::{ReliableConnection, SimConnection, Simulation, Timing};
use farsight_layout::FORMAT_VERSION;
use farsight_node::NodeOptions;
use farsight_protocol::{KeyKind, TableDefinition, WriteOperation};
use farsight_sim::Node;

const ADDRESSES: [&str; 2] = ["sim://first", "sim://second"];
const TABLE: &str = "t";
const TABLE_BYTES: u64 = 16 << 20;
const SEED: u64 = 11;
/// Virtual time that nothing here takes.
const LASTS_MAX: Duration = Duration::from_secs(600);
/// Writes of one call.
const BATCH: usize = 64;
/// GETs whose READs are counted together, and READs of them at most: two more than one each.
const GETS: u64 = 500;
const READS_MAX: u64 = 3 * GETS;
/// Of the keys, those that were written last: of them are all GETs, or half of them.
const RECENT: usize = 64;
/// The rests of a memory node that trains itself: see `training.rs` of the facade.
const REST_ROUNDS: u32 = 3;
const REST_MIN: Duration = Duration::from_millis(1);
const REST_MAX: Duration = Duration::from_millis(50);
const IDLE_PAUSE: Duration = Duration::from_millis(20);

/// What a writer does to the table, one call after the other.
type Calls = Vec<(WriteOperation, Vec<u64>)>;

/// What the processes of a test share.
struct World {
    simulation: Simulation,
    /// Keys that were written and not removed, in the order in which they were.
    present: Mutex<Vec<u64>>,
    is_over: AtomicBool,
}

/// What came of a test.
#[derive(Default)]
struct Seen {
    gets: u64,
    /// The most READs of so many GETs.
    reads_max: u64,
    leaves_max: u64,
}

impl World {
    fn present(&self) -> MutexGuard<'_, Vec<u64>> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> PoolClient<SimConnection<ReliableConnection>> {
        let connect = |address: &str| self.simulation.connect(address, FORMAT_VERSION).expect("a connection");
        PoolClient::of_pool(ADDRESSES.map(connect).into(), ClientOptions::default()).expect("a client")
    }

    fn session(&self) -> Session {
        let table = self.client().open_table(TABLE).expect("the table");
        table.session(Access::OneSided).expect("a session")
    }

    // Relaxed, here and below: all of it happens on one thread.
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn write(&self, calls: Calls) {
        let mut session = self.session();
        for (operation, keys) in calls {
            let value = if operation == WriteOperation::Remove { &[][..] } else { &[7; 8] };
            let entries = keys.iter().map(|key| (*key, value));
            session.write(operation, entries, &mut Vec::new()).expect("writes");
            let mut present = self.present();
            match operation {
                WriteOperation::Remove => present.retain(|key| !keys.contains(key)),
                _ => present.extend(&keys),
            }
        }
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// GETs of keys that are present, until all is written, and once more.
    fn read(&self, seen: &Mutex<Seen>, is_hot: bool) {
        let mut random = SplitMix64::new(SEED);
        let mut session = self.session();
        let (mut value, mut is_last) = ([0; 8], false);
        while !is_last {
            is_last = self.is_over();
            let before = session.meters().reads;
            for get in 0..GETS {
                let key = {
                    let present = self.present();
                    let recent = if get % 2 == 0 || is_hot { RECENT } else { usize::MAX };
                    let from = present.len().saturating_sub(recent);
                    let among = (present.len() - from).max(1) as u64;
                    present.get(from + random.below(among) as usize).copied()
                };
                // Some are removed meanwhile.
                session.get(key.unwrap_or(random.next_u64()), &mut value).expect("a GET");
            }
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.gets += GETS;
            seen.reads_max = seen.reads_max.max(session.meters().reads - before);
        }
    }

    fn train(&self) {
        let client = self.client();
        let (_, training) = client.training(TABLE).expect("a trainer");
        let mut training = training.expect("the pool's tables are trained by clients");
        while !self.is_over() {
            let begun = self.simulation.now();
            let is_busy = training.step().expect("a step");
            let rest = (self.simulation.now().since(begun) * REST_ROUNDS).clamp(REST_MIN, REST_MAX);
            self.simulation.sleep(if is_busy { rest } else { IDLE_PAUSE });
        }
    }
}

/// Fills a table by one writer, then does `calls`, beside a reader and a trainer.
fn grow_beside(filled: Vec<u64>, calls: Calls, is_hot: bool) -> Seen {
    let simulation = Simulation::new(SEED, Timing::default(), Vec::new());
    let options = NodeOptions { table_memory_bytes: TABLE_BYTES, ..NodeOptions::default() };
    let nodes = ADDRESSES.map(|address| {
        let node = Node::<ReliableConnection>::start(&simulation, address, &options, SEED);
        node.hear_departed(SEED);
        node
    });
    let (present, is_over) = (Mutex::default(), AtomicBool::new(false));
    let world = Arc::new(World { simulation: simulation.clone(), present, is_over });
    world.client().create_table(TableDefinition::new(TABLE, KeyKind::U64, 8)).expect("a table");
    if !filled.is_empty() {
        let mut load = world.client().open_table(TABLE).expect("the table").bulk_load().expect("a load");
        for key in &filled {
            load.push(*key, &[7; 8]).expect("a pair");
        }
        load.finish().expect("a load");
        *world.present() = filled;
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (writing, reading, training) = (Arc::clone(&world), Arc::clone(&world), Arc::clone(&world));
    let of_reader = Arc::clone(&seen);
    simulation.process("writer", 1, move || writing.write(calls));
    simulation.process("reader", 2, move || reading.read(&of_reader, is_hot));
    simulation.process("trainer", 3, move || training.train());
    assert!(simulation.run_processes(MonotonicNs(0).plus(LASTS_MAX)), "a process still waits");
    let leaves = nodes.iter().map(|node| node.stats().tables[0].leaves.used).sum();
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    seen.leaves_max = leaves;
    std::mem::take(&mut seen)
}

/// The same beside a reader of all keys, and beside one that wants the newest alone; what the worst came to.
fn grow(filled: impl IntoIterator<Item = u64>, calls: &[(WriteOperation, Vec<u64>)]) -> Seen {
    let filled: Vec<u64> = filled.into_iter().collect();
    let of = |is_hot| grow_beside(filled.clone(), calls.to_vec(), is_hot);
    let [all, hot] = [of(false), of(true)];
    println!("{} READs of all keys, {} of the newest", all.reads_max, hot.reads_max);
    Seen { gets: all.gets.min(hot.gets), reads_max: all.reads_max.max(hot.reads_max), ..hot }
}

#[track_caller]
fn assert_few_reads(what: &str, leaves_min: u64, seen: &Seen) {
    let Seen { gets, reads_max, leaves_max } = seen;
    println!("{what}: {gets} GETs, at most {reads_max} READs of {GETS}, {leaves_max} leaves");
    assert!(*gets > 4 * GETS, "{what}: {gets} GETs");
    assert!(*leaves_max >= leaves_min, "{what}: {leaves_max} leaves");
    assert!(*reads_max <= READS_MAX, "{what}: {reads_max} READs of {GETS} GETs");
}

fn puts(keys: impl IntoIterator<Item = u64>) -> Calls {
    let keys: Vec<u64> = keys.into_iter().collect();
    keys.chunks(BATCH).map(|keys| (WriteOperation::Put, keys.to_vec())).collect()
}

#[test]
fn ascending() {
    let seen = grow([], &puts(0..50_000));
    assert_few_reads("ascending", 3_000, &seen);
}

#[test]
fn descending() {
    let seen = grow([], &puts((0..30_000).rev()));
    assert_few_reads("descending", 3_000, &seen);
}

/// All keys between two neighbours of a table that is trained, from both ends to the middle.
#[test]
fn into_one_gap() {
    const GAP: u64 = 1 << 40;
    let inwards = (0..30_000).map(|at| if at % 2 == 0 { GAP + at } else { 2 * GAP - at });
    let seen = grow((0..4_000).map(|key| key * GAP), &puts(inwards));
    assert_few_reads("one gap", 3_000, &seen);
}

/// As many keys are removed at one end as are put at the other.
#[test]
fn a_queue() {
    const LENGTH: u64 = 20_000;
    let calls = puts(LENGTH..3 * LENGTH).into_iter().flat_map(|(put, keys)| {
        let removed = keys.iter().map(|key| key - LENGTH).collect();
        [(put, keys), (WriteOperation::Remove, removed)]
    });
    let seen = grow(0..LENGTH, &calls.collect::<Vec<_>>());
    assert_few_reads("a queue", LENGTH / 16, &seen);
    assert!(seen.leaves_max < LENGTH / 4, "{} leaves: those that emptied are used again", seen.leaves_max);
}

/// All but a few keys are removed.
#[test]
fn a_mass_delete() {
    const KEYS: u64 = 40_000;
    let keys: Vec<u64> = (0..KEYS).filter(|key| key % 1_000 != 0).collect();
    let calls: Vec<_> = keys.chunks(BATCH).map(|keys| (WriteOperation::Remove, keys.to_vec())).collect();
    let seen = grow(0..KEYS, &calls);
    assert_few_reads("a mass delete", 40, &seen);
}

/// Nobody trains here. A walk over many leaves makes all of them known, and not only the one at its end.
#[test]
fn a_walk_knows_its_way() {
    const KEYS: u64 = 400;
    let simulation = Simulation::new(SEED, Timing::default(), Vec::new());
    let options = NodeOptions { table_memory_bytes: TABLE_BYTES, ..NodeOptions::default() };
    let _nodes =
        ADDRESSES.map(|address| Node::<ReliableConnection>::start(&simulation, address, &options, SEED));
    let world = World { simulation, present: Mutex::default(), is_over: AtomicBool::new(false) };
    world.client().create_table(TableDefinition::new(TABLE, KeyKind::U64, 8)).expect("a table");
    world.write(puts(0..KEYS));
    let mut session = world.session();
    let mut value = [0; 8];
    for key in (0..KEYS).rev() {
        session.get(key, &mut value).expect("a GET").expect("the pair");
    }
    let (reads, steps) = (session.meters().reads, session.counters().sibling_steps);
    println!("{reads} READs of {KEYS} GETs, {steps} steps");
    assert!(steps > 20, "{steps} steps: the table has leaves enough");
    assert!(steps < KEYS / 4 && reads < KEYS + 2 * steps, "{reads} READs of {KEYS} GETs, {steps} steps");
}
