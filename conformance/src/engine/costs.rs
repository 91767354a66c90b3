//! The prices of docs/costs.md, read off the meters, whatever the fabric.
//!
//! Invariant: a test names no fabric. One joins by implementing [`LoadedTable`] and naming it to
//! [`costs_suite!`](crate::costs_suite).

mod change;
mod floor;

use farsight::{Access, CacheStats, Counters, Meters, NodeStats, WriteOperation};
use farsight_base::prng::{SplitMix64, mix};
use farsight_oracles::{EightBytes, Embedding as _, sets};
use farsight_protocol::Direction;

use super::{Seed, SessionUnderTest};

pub use change::{
    a_new_tenants_keys_cost_what_loaded_ones_do, a_reader_of_merged_leaves_needs_no_calls,
    appended_keys_cost_what_loaded_ones_do, keys_between_two_neighbours_cost_what_loaded_ones_do,
    the_keys_of_a_queue_cost_what_loaded_ones_do,
};
pub use floor::{
    a_batch_reads_a_sub_model_once, a_cache_with_room_reads_a_sub_model_once,
    a_get_by_the_top_model_alone_is_a_read_more_and_no_call,
};

const KEYS: usize = 200_000;
const BATCH: usize = 64;
const KEY_PART_BYTES: u64 = 192;
const LINE_BYTES: u64 = 64;

/// A server with one table, loaded, trained and idle.
pub trait LoadedTable {
    /// Sessions of one client program, which share its cache.
    type Session: MeteredSession;

    /// A table of these pairs.
    fn load(pairs: impl Iterator<Item = (u64, Vec<u8>)>, value_bytes: usize) -> Self;

    /// A session.
    fn session(&self, access: Access) -> Self::Session;

    /// Makes `bytes` what the program's cache may take.
    fn set_cache_bytes(&self, bytes: u64);

    /// What the program has of the table's model.
    fn cache_stats(&self) -> CacheStats;

    /// Waits until the model has caught up with the writes.
    fn await_training(&self);

    /// What the server counted, without asking by a call.
    fn server_stats(&self) -> NodeStats;
}

/// A session that says what it cost.
pub trait MeteredSession: SessionUnderTest<Key = u64> {
    /// Fetches the whole model.
    fn prefill(&mut self);

    /// Verbs so far that the engine posted: the budgets are the engine's, whatever a device adds to each.
    fn meters(&self) -> Meters;

    /// What the engine counted so far.
    fn counters(&self) -> Counters;
}

/// A table and what it holds.
struct Loaded<L> {
    table: L,
    keys: Vec<u64>,
    seed: Seed,
}

fn value_of(key: u64, value_bytes: usize) -> Vec<u8> {
    let mut value = vec![0; value_bytes];
    value[..8].copy_from_slice(&mix(key).to_le_bytes());
    value
}

/// A table of `count` uniform keys.
fn load<L: LoadedTable>(test: &str, count: usize, value_bytes: usize) -> Loaded<L> {
    let seed = Seed::new(test);
    let keys = sets::uniform(&mut seed.random(0), count);
    let keys: Vec<u64> = keys.into_iter().map(|key| EightBytes::Plain.key(key)).collect();
    let table = L::load(keys.iter().map(|key| (*key, value_of(*key, value_bytes))), value_bytes);
    Loaded { table, keys, seed }
}

impl<L: LoadedTable> Loaded<L> {
    /// A session whose process has the whole model.
    fn warm(&self) -> L::Session {
        let mut session = self.table.session(Access::OneSided);
        session.prefill();
        session
    }

    /// `count` keys of the table, anywhere.
    fn some(&self, count: usize) -> Vec<u64> {
        let mut random = self.seed.random(1);
        (0..count).map(|_| self.keys[random.below(self.keys.len() as u64) as usize]).collect()
    }
}

impl<L: LoadedTable> Loaded<L> {
    /// Puts as many keys more, anywhere.
    fn grow(&mut self, random: &mut SplitMix64) {
        let new: Vec<u64> = (0..self.keys.len()).map(|_| random.next_u64()).collect();
        let pairs: Vec<(u64, Vec<u8>)> = new.iter().map(|key| (*key, value_of(*key, 8))).collect();
        self.table.session(Access::OneSided).write(WriteOperation::Put, &pairs);
        self.keys.extend(new);
        self.keys.sort_unstable();
        self.keys.dedup();
    }

    /// Removes all but one in twenty.
    fn drain(&mut self, random: &mut SplitMix64) {
        let (left, removed): (Vec<u64>, Vec<u64>) = self.keys.iter().partition(|_| random.below(20) == 0);
        let removed: Vec<(u64, Vec<u8>)> = removed.into_iter().map(|key| (key, Vec::new())).collect();
        self.table.session(Access::OneSided).write(WriteOperation::Remove, &removed);
        self.keys = left;
    }
}

/// What `body` cost.
fn cost<S: MeteredSession>(session: &mut S, body: impl FnOnce(&mut S)) -> (Meters, Counters) {
    let (meters, counters) = (session.meters(), session.counters());
    body(session);
    let now = session.counters();
    let counters = Counters {
        fallbacks: now.fallbacks - counters.fallbacks,
        slow_path: now.slow_path - counters.slow_path,
        sub_models_fetched: now.sub_models_fetched - counters.sub_models_fetched,
        ..Counters::default()
    };
    (session.meters() - meters, counters)
}

fn get_all(session: &mut impl MeteredSession, keys: &[u64], are_present: bool) {
    for batch in keys.chunks(BATCH) {
        let answers = session.multi_get(batch);
        assert!(answers.iter().all(|answer| answer.is_some() == are_present), "present or absent, as asked");
    }
}

fn per(total: u64, operations: usize) -> f64 {
    total as f64 / operations as f64
}

/// A get is two reads and no call.
pub fn a_get_is_two_reads_and_no_call<L: LoadedTable>() {
    let loaded = load::<L>("a get is two reads", KEYS, 8);
    let mut session = loaded.warm();
    let keys = loaded.some(KEYS);
    let operations = loaded.table.server_stats().operations;
    let (meters, counters) = cost(&mut session, |session| get_all(session, &keys, true));
    println!("{meters:?} {counters:?}");
    let reads = per(meters.reads, KEYS);
    assert!((2.0..=2.05).contains(&reads), "{reads} READs a GET");
    let bytes = per(meters.read_bytes, KEYS);
    let expected = (KEY_PART_BYTES + LINE_BYTES) as f64;
    assert!((expected..=expected * 1.025).contains(&bytes), "{bytes} B a GET");
    assert_eq!((meters.calls, meters.writes, meters.atomics), (0, 0, 0), "{meters:?}");
    assert_eq!((counters.fallbacks, counters.sub_models_fetched), (0, 0), "{counters:?}");
    let doorbells = per(meters.doorbells, KEYS.div_ceil(BATCH));
    // A batch in which hints tie rings again for the READs that follow: two more, or four.
    assert!((2.0..=2.5).contains(&doorbells), "{doorbells} doorbells a batch");
    assert_eq!(loaded.table.server_stats().operations, operations, "the server worked");
}

/// A batch without ties rings twice.
pub fn a_batch_without_ties_rings_twice<L: LoadedTable>() {
    let loaded = load::<L>("a batch without ties", KEYS, 8);
    let mut session = loaded.warm();
    let mut straight = 0;
    for batch in loaded.some(1_000 * BATCH).chunks(BATCH) {
        let (meters, counters) = cost(&mut session, |session| get_all(session, batch, true));
        if counters.slow_path == 0 {
            straight += 1;
            assert_eq!((meters.doorbells, meters.reads), (2, 2 * BATCH as u64), "{meters:?}");
        }
    }
    assert!(straight > 700, "only {straight} of 1,000 batches came out at first try");
}

/// A proved miss is one read.
pub fn a_proved_miss_is_one_read<L: LoadedTable>() {
    let loaded = load::<L>("a proved miss", KEYS, 8);
    let mut session = loaded.warm();
    let absent: Vec<u64> = loaded.some(KEYS).into_iter().map(|key| key ^ 1).collect();
    let absent: Vec<u64> = absent.into_iter().filter(|key| loaded.keys.binary_search(key).is_err()).collect();
    let (meters, counters) = cost(&mut session, |session| get_all(session, &absent, false));
    println!("{meters:?} {counters:?}");
    let reads = per(meters.reads, absent.len());
    assert!((1.0..=1.05).contains(&reads), "{reads} READs a miss");
    assert_eq!((meters.calls, counters.fallbacks), (0, 0));
    assert!(meters.read_bytes == meters.reads * KEY_PART_BYTES, "{meters:?}");
}

/// Long values are still two reads.
pub fn long_values_are_still_two_reads<L: LoadedTable>() {
    // One row for each number of lines that a value can have.
    for (value_bytes, lines) in [(16, 1), (48, 1), (49, 2), (105, 3), (161, 4), (256, 5)] {
        let loaded = load::<L>("long values", 5_000, value_bytes);
        let mut session = loaded.warm();
        let keys = loaded.some(20_000);
        let (meters, _) = cost(&mut session, |session| get_all(session, &keys, true));
        let reads = per(meters.reads, keys.len());
        assert!((2.0..=2.05).contains(&reads), "{reads} READs a GET of {value_bytes} B");
        let key_parts = meters.reads - keys.len() as u64;
        let expected = key_parts * KEY_PART_BYTES + keys.len() as u64 * lines * LINE_BYTES;
        assert_eq!(meters.read_bytes, expected, "bytes of GETs of {value_bytes} B");
        assert_eq!(meters.calls, 0);
    }
}

/// A single get of a short value is one read.
pub fn a_single_get_of_a_short_value_is_one_read<L: LoadedTable>() {
    // Value bytes, READs a GET, lines a GET: a leaf of up to eleven lines is fetched whole.
    for (value_bytes, reads, lines) in [(8, 1, 7), (16, 1, 11), (17, 2, 4), (49, 2, 5), (256, 2, 8)] {
        let loaded = load::<L>("single gets", 5_000, value_bytes);
        let mut session = loaded.warm();
        let keys = loaded.some(20_000);
        let mut straight = 0;
        let (all, _) = cost(&mut session, |session| {
            for key in keys {
                let (meters, counters) = cost(session, |session| {
                    let (value, _) = session.get(key).expect("every key is stored");
                    assert_eq!(value, value_of(key, value_bytes), "the value of {key}");
                });
                if counters.slow_path == 0 {
                    straight += 1;
                    let expected = Meters {
                        reads,
                        read_bytes: lines * LINE_BYTES,
                        doorbells: reads,
                        ..Meters::default()
                    };
                    assert_eq!(meters, expected, "a GET of {value_bytes} B");
                }
            }
        });
        assert!(straight > 19_500, "{straight} of 20,000 GETs of {value_bytes} B came out at first try");
        assert_eq!(all.calls, 0);
    }
}

/// A get costs the same at ten times the keys.
pub fn a_get_costs_the_same_at_ten_times_the_keys<L: LoadedTable>() {
    let costs = [20_000, 200_000].map(|count| {
        let loaded = load::<L>("ten times the keys", count, 8);
        let mut session = loaded.warm();
        let keys = loaded.some(100_000);
        let (meters, _) = cost(&mut session, |session| get_all(session, &keys, true));
        (per(meters.reads, keys.len()), per(meters.read_bytes, keys.len()))
    });
    println!("{costs:?}");
    let [(few_reads, few_bytes), (many_reads, many_bytes)] = costs;
    assert!((few_reads - many_reads).abs() < 0.02, "{costs:?}");
    assert!((few_bytes - many_bytes).abs() < 4.0, "{costs:?}");
}

/// A scan reads its leaves in one doorbell.
pub fn a_scan_reads_its_leaves_in_one_doorbell<L: LoadedTable>() {
    const LEAF_BYTES: u64 = 448;
    const SCANS: usize = 4_000;
    const GROUP: usize = 8;
    let loaded = load::<L>("scans", KEYS, 8);
    let mut session = loaded.warm();
    let mut random = loaded.seed.random(2);
    let mut leaves_planned = 0;
    let (meters, counters) = cost(&mut session, |session| {
        for group in loaded.some(SCANS).chunks(GROUP) {
            let scans: Vec<(u64, usize)> =
                group.iter().map(|from| (*from, 1 + random.below(100) as usize)).collect();
            leaves_planned += scans.iter().map(|scan| scan.1.div_ceil(12) as u64 + 1).sum::<u64>();
            let found = session.scan_batch(Direction::Ascending, &scans);
            assert_eq!(found.len(), scans.len());
        }
    });
    println!("{meters:?} {counters:?}, {leaves_planned} leaves planned");
    assert_eq!((meters.calls, counters.fallbacks), (0, 0));
    assert_eq!(meters.read_bytes, meters.reads * LEAF_BYTES);
    // At the table's end fewer leaves stand than were planned; where hints tie, one is not enough.
    assert!(meters.reads as f64 <= 1.02 * leaves_planned as f64, "{} READs", meters.reads);
    let doorbells = per(meters.doorbells, SCANS / GROUP);
    assert!((1.0..=1.2).contains(&doorbells), "{doorbells} doorbells a group of {GROUP} scans");
}

/// A scan of keys alone reads the key parts of its leaves, however long the values are.
pub fn a_scan_of_keys_reads_key_parts<L: LoadedTable>() {
    const KEY_PART_BYTES: u64 = 192;
    const SCANS: usize = 200;
    const LIMIT: usize = 100;
    for value_bytes in [8, 100] {
        let loaded = load::<L>("scans of keys", 20_000, value_bytes);
        let mut session = loaded.warm();
        for direction in Direction::ALL {
            let (meters, counters) = cost(&mut session, |session| {
                for from in loaded.some(SCANS) {
                    let found = session.scan_keys(direction, from, LIMIT);
                    assert_eq!(found.first(), Some(&from), "each of these keys is there");
                }
            });
            println!("{direction:?} of {value_bytes} B: {meters:?} {counters:?}");
            assert_eq!((meters.calls, counters.fallbacks), (0, 0));
            assert_eq!(meters.read_bytes, meters.reads * KEY_PART_BYTES);
            // A page asks for more keys than are taken of it, by as many as a page has.
            assert!(per(meters.reads, SCANS) < 24.0, "{} READs a scan", per(meters.reads, SCANS));
        }
    }
}

/// A batch of floors reads a leaf a key, and a second one where the key's leaf has nothing below it.
pub fn a_floor_reads_about_one_leaf<L: LoadedTable>() {
    const FLOORS: usize = 4_000;
    let loaded = load::<L>("floors", KEYS, 8);
    let mut session = loaded.warm();
    let (meters, counters) = cost(&mut session, |session| {
        for group in loaded.some(FLOORS).chunks(64) {
            let floors: Vec<(u64, usize)> = group.iter().map(|key| (*key, 1)).collect();
            let found = session.scan_batch(Direction::Descending, &floors);
            // Each of these keys is there.
            assert!(found.iter().zip(group).all(|(pairs, key)| pairs.len() == 1 && pairs[0].0 == *key));
        }
    });
    println!("{meters:?} {counters:?}");
    assert_eq!((meters.calls, counters.fallbacks), (0, 0));
    assert!(per(meters.reads, FLOORS) <= 1.35, "{} READs of leaves", meters.reads);
}

/// Pairs that the scans of [`scan_alone`] are for.
const LIMITS: [usize; 5] = [1, 10, 100, 1_000, 5_000];

/// What `count` scans of `limit` pairs cost, each alone, from anywhere in `keys`; their pairs are looked at.
fn scan_alone<S: MeteredSession>(
    session: &mut S,
    keys: &[u64],
    (count, limit): (usize, usize),
    random: &mut SplitMix64,
) -> (Meters, Counters) {
    cost(session, |session| {
        for _ in 0..count {
            let first = random.below((keys.len() - limit) as u64) as usize;
            let found = session.scan_batch(Direction::Ascending, &[(keys[first], limit)]).remove(0);
            let found: Vec<u64> = found.into_iter().map(|(key, _)| key).collect();
            assert!(found == keys[first..first + limit], "{limit} pairs from {}", keys[first]);
        }
    })
}

/// A scan of any length has many leaves in flight: over a fresh table, one that has grown, and one of which
/// little is left.
pub fn a_long_scan_has_many_leaves_in_flight<L: LoadedTable>() {
    let mut loaded = load::<L>("long scans", KEYS, 8);
    let mut random = loaded.seed.random(2);
    scan_every_limit("fresh", &loaded, &mut random);
    loaded.grow(&mut random);
    scan_every_limit("grown", &loaded, &mut random);
    loaded.drain(&mut random);
    scan_every_limit("drained", &loaded, &mut random);
}

/// Scans of each of [`LIMITS`] READ little more than the leaves that their pairs are in. A doorbell brings
/// half of the slots at least, once the scan knows how full leaves are.
fn scan_every_limit<L: LoadedTable>(state: &str, loaded: &Loaded<L>, random: &mut SplitMix64) {
    const SCANS: usize = 40;
    const LEAF_BYTES: u64 = 448;
    const HALF_OF_SLOTS: f64 = 127.0;
    loaded.table.await_training();
    let mut session = loaded.warm();
    let leaves_per_pair = per(loaded.table.server_stats().tables[0].part().tree.leaves, loaded.keys.len());
    for limit in LIMITS {
        let (meters, counters) = scan_alone(&mut session, &loaded.keys, (SCANS, limit), random);
        let (reads, doorbells) = (per(meters.reads, SCANS), per(meters.doorbells, SCANS));
        let leaves = leaves_per_pair * limit as f64;
        println!("{state}, {limit} pairs in {leaves:.1} leaves: {reads} READs, {doorbells} doorbells a scan");
        assert_eq!((meters.calls, counters.fallbacks), (0, 0), "{meters:?}");
        assert_eq!(meters.read_bytes, meters.reads * LEAF_BYTES);
        assert!(reads <= 1.1 * leaves + 4.0, "{reads} READs for {leaves} leaves");
        // Where leaves are as full as after a load the first plan is right.
        let doorbells_max = match state {
            "fresh" => 1.0 + (leaves / HALF_OF_SLOTS - 1.0).ceil(),
            _ => 3.0 + leaves / HALF_OF_SLOTS,
        };
        assert!(doorbells <= doorbells_max, "{doorbells} doorbells for {leaves} leaves");
    }
}

/// Writes are one call for 128 entries.
pub fn writes_are_one_call_for_128_entries<L: LoadedTable>() {
    const WRITES: usize = 1_280;
    let loaded = load::<L>("writes", 50_000, 8);
    let mut session = loaded.warm();
    let keys: Vec<u64> = loaded.keys.iter().step_by(30).take(WRITES).copied().collect();
    let pairs: Vec<(u64, Vec<u8>)> = keys.iter().map(|key| (*key, vec![7; 8])).collect();
    let new: Vec<(u64, Vec<u8>)> = keys.iter().map(|key| (key ^ 1, vec![7; 8])).collect();
    let bare: Vec<(u64, Vec<u8>)> = keys.iter().map(|key| (*key, Vec::new())).collect();
    // Where connections may break, the first write of a session asks the server for a name.
    session.write(WriteOperation::Put, &pairs[..1]);
    for (operation, entries) in [
        (WriteOperation::Insert, &new),
        (WriteOperation::Update, &pairs),
        (WriteOperation::Put, &pairs),
        (WriteOperation::Remove, &bare),
    ] {
        let (meters, counters) = cost(&mut session, |session| {
            assert_eq!(session.write(operation, entries).len(), WRITES);
        });
        assert_eq!(meters.calls, WRITES as u64 / 128, "calls of {operation:?}: {meters:?}");
        assert_eq!(meters.doorbells, meters.calls, "doorbells of {operation:?}");
        assert_eq!((meters.reads, meters.writes, meters.atomics), (0, 0, 0), "verbs of {operation:?}");
        assert_eq!(counters.fallbacks, 0);
    }
    let tree = loaded.table.server_stats().tables[0].part().tree;
    assert!(tree.hint_hits as f64 > 0.9 * (4 * WRITES) as f64, "hints led to their leaves: {tree:?}");

    let (meters, _) = cost(&mut session, |session| {
        session.write(WriteOperation::Put, &[(keys[0], vec![1; 8])]);
    });
    assert_eq!((meters.calls, meters.doorbells, meters.reads), (1, 1, 0), "{meters:?}");
}

/// Access by calls reads nothing.
pub fn access_by_calls_reads_nothing<L: LoadedTable>() {
    let loaded = load::<L>("access by calls", 10_000, 8);
    let mut session = loaded.table.session(Access::Rpc);
    let keys = loaded.some(64 * 100);
    let (meters, counters) = cost(&mut session, |session| get_all(session, &keys, true));
    assert_eq!((meters.reads, meters.calls, meters.doorbells), (0, 100, 100), "{meters:?}");
    assert_eq!(counters.fallbacks, 0, "what was requested is no fallback");
}

/// Access by calls reads nothing, whatever another session of the program put into the cache that they share:
/// before this session began, or after.
pub fn access_by_calls_reads_nothing_beside_one_sided<L: LoadedTable>() {
    for value_bytes in [8, 24] {
        let loaded = load::<L>("access by calls beside one-sided", 10_000, value_bytes);
        let early = loaded.table.session(Access::Rpc);
        let mut beside = loaded.warm();
        let late = loaded.table.session(Access::Rpc);
        let keys = loaded.some(BATCH);
        for mut session in [early, late] {
            let (meters, _) = cost(&mut beside, |session| get_all(session, &keys, true));
            assert!(meters.reads > 0 && meters.calls == 0, "the cache is filled: {meters:?}");
            let (meters, counters) = cost(&mut session, |session| by_every_way(session, &loaded.keys, &keys));
            assert_eq!((meters.reads, meters.read_bytes, counters.fallbacks), (0, 0, 0), "{meters:?}");
            assert!(meters.calls > keys.len() as u64, "each of the single GETs is a call: {meters:?}");
        }
    }
}

/// Single GETs, batches, scans and writes of some of all `keys`.
fn by_every_way(session: &mut impl MeteredSession, keys: &[u64], some: &[u64]) {
    for key in some {
        let (value, _) = session.get(*key).expect("a stored key");
        assert!(session.get(key ^ 1).is_none() || keys.binary_search(&(key ^ 1)).is_ok());
        session.write(WriteOperation::Update, &[(*key, value)]);
    }
    get_all(session, some, true);
    let scans: Vec<(u64, usize)> = some.iter().map(|key| (*key, 30)).collect();
    let pairs = session.scan_batch(Direction::Ascending, &scans);
    assert!(pairs.iter().zip(some).all(|(pairs, key)| pairs[0].0 == *key), "scans begin with their keys");
    let last = &keys[keys.len() - 600..];
    let scanned: Vec<u64> =
        session.scan_all(Direction::Ascending, last[0]).into_iter().map(|(key, _)| key).collect();
    assert_eq!(scanned, last);
}

/// A cache filled on demand costs a call a sub model.
pub fn a_cache_filled_on_demand_costs_a_read_a_sub_model<L: LoadedTable>() {
    let loaded = load::<L>("filled on demand", 50_000, 8);
    let mut session = loaded.table.session(Access::OneSided);
    let keys = loaded.some(100_000);
    let (_, first) = cost(&mut session, |session| get_all(session, &keys, true));
    let stats = loaded.table.cache_stats();
    println!("{first:?} {stats:?}");
    // Keys of one batch may ask for the same sub-model at once.
    assert!(stats.sub_models_filled <= stats.sub_models, "{stats:?}");
    // The first batch has no top model, and brings a sub-model a key.
    assert!(first.fallbacks <= BATCH as u64, "{first:?} {stats:?}");
    assert!(first.sub_models_fetched >= stats.sub_models_filled, "{first:?} {stats:?}");
    let (meters, again) = cost(&mut session, |session| get_all(session, &keys, true));
    assert_eq!((meters.calls, again.fallbacks), (0, 0), "what was requested is there: {meters:?}");
}

/// The cache of a million keys is small.
pub fn the_cache_of_a_million_keys_is_small<L: LoadedTable>() {
    const MILLION: usize = 1_000_000;
    let loaded = load::<L>("the cache of a million keys", MILLION, 8);
    let mut session = loaded.warm();
    let stats = loaded.table.cache_stats();
    println!("{stats:?}");
    assert_eq!(stats.sub_models_filled, stats.sub_models, "the whole model was fetched");
    let models = per(stats.model_bytes, MILLION);
    let all = per(stats.model_bytes + stats.table_bytes, MILLION);
    assert!(models <= 0.15, "{models} B a key for models");
    assert!(all <= 0.9, "{all} B a key");
    let keys = loaded.some(100_000);
    let (meters, _) = cost(&mut session, |session| get_all(session, &keys, true));
    let reads = per(meters.reads, keys.len());
    assert!(reads <= 2.05 && meters.calls == 0, "{reads} READs a GET, {} calls", meters.calls);
}

/// Instantiates every test of the suite for the [`LoadedTable`] of a fabric.
#[macro_export]
macro_rules! costs_suite {
    ($loaded:ty) => {
        $crate::costs_suite!(@tests $loaded;
            a_get_is_two_reads_and_no_call,
            a_batch_without_ties_rings_twice,
            a_proved_miss_is_one_read,
            long_values_are_still_two_reads,
            a_single_get_of_a_short_value_is_one_read,
            a_get_costs_the_same_at_ten_times_the_keys,
            a_scan_reads_its_leaves_in_one_doorbell, a_scan_of_keys_reads_key_parts,
            a_floor_reads_about_one_leaf,
            a_long_scan_has_many_leaves_in_flight,
            writes_are_one_call_for_128_entries,
            access_by_calls_reads_nothing,
            access_by_calls_reads_nothing_beside_one_sided,
            a_cache_filled_on_demand_costs_a_read_a_sub_model,
            a_get_by_the_top_model_alone_is_a_read_more_and_no_call,
            a_batch_reads_a_sub_model_once,
            a_cache_with_room_reads_a_sub_model_once,
            the_cache_of_a_million_keys_is_small,
            appended_keys_cost_what_loaded_ones_do,
            keys_between_two_neighbours_cost_what_loaded_ones_do,
            a_new_tenants_keys_cost_what_loaded_ones_do,
            a_reader_of_merged_leaves_needs_no_calls,
            the_keys_of_a_queue_cost_what_loaded_ones_do);
    };
    (@tests $loaded:ty; $($test:ident),+) => {
        $(
            #[test]
            fn $test() {
                $crate::engine::costs::$test::<$loaded>();
            }
        )+
    };
}
