//! Prices of a table whose shape changes after the load: the keys just written cost what loaded ones do.
//!
//! Protocol of each test:
//! 1. A session writes the change; the trainer catches up.
//! 2. Another session of the same program reads all new keys. The first time it meets an outdated cache, and
//!    pays for what it lacks.
//! 3. It reads them again until no key takes a longer way, a bounded number of times. Then it has what it
//!    needs, and what it needs is counted.

use farsight::{Access, Counters, Meters, WriteOperation};
use farsight_base::prng::SplitMix64;

use super::{BATCH, Loaded, LoadedTable, cost, get_all, load, per, value_of};
use crate::engine::SessionUnderTest as _;

/// Pairs that are loaded before the change.
const LOADED: usize = 100_000;
/// Keys that come then.
const NEW: usize = 50_000;
/// Entries of one call of the writer.
const WRITTEN_TOGETHER: usize = 1_280;
/// READs a GET at most, once the cache has followed.
const READS_MAX: f64 = 2.1;
/// Fallbacks a GET at most, then.
const FALLBACKS_MAX: f64 = 0.001;
/// Times that all keys are read at most until the cache has followed. One takes a millisecond.
const PASSES_MAX: usize = 50;
/// Fallbacks a GET at most while the cache follows: each brings the sub-model of a few hundred keys.
const FOLLOWING_FALLBACKS_MAX: f64 = 0.01;

/// Writes `count` new pairs by `operation`, in batches.
fn write<L: LoadedTable>(table: &L, operation: WriteOperation, keys: &[u64]) {
    let mut writer = table.session(Access::OneSided);
    for keys in keys.chunks(WRITTEN_TOGETHER) {
        let value = |key| if operation == WriteOperation::Remove { Vec::new() } else { value_of(key, 8) };
        let entries: Vec<(u64, Vec<u8>)> = keys.iter().map(|key| (*key, value(*key))).collect();
        assert_eq!(writer.write(operation, &entries).len(), entries.len());
    }
}

/// `keys` in any order.
fn shuffled(mut keys: Vec<u64>, random: &mut SplitMix64) -> Vec<u64> {
    for last in (1..keys.len()).rev() {
        keys.swap(last, random.below(last as u64 + 1) as usize);
    }
    keys
}

/// Reads `keys`, which all are there, with a session whose program's cache is older than they are, and holds
/// it to the prices.
fn assert_cheap<L: LoadedTable>(table: &L, reader: &mut L::Session, keys: &[u64]) {
    table.await_training();
    let (_, following) = cost(reader, |session| get_all(session, keys, true));
    // What a session requests beside its GETs comes with later ones: when the server's threads get to it.
    for _ in 0..PASSES_MAX {
        let (_, counters) = cost(reader, |session| get_all(session, keys, true));
        if counters.slow_path == 0 {
            break;
        }
    }
    let (meters, counters): (Meters, Counters) = cost(reader, |session| get_all(session, keys, true));
    println!("{following:?}, then {meters:?} {counters:?}, {:?}", table.cache_stats());
    let fallbacks = per(following.fallbacks, keys.len());
    assert!(fallbacks <= FOLLOWING_FALLBACKS_MAX, "{fallbacks} fallbacks a GET at first");
    let reads = per(meters.reads, keys.len());
    assert!(reads <= READS_MAX, "{reads} READs a GET");
    let fallbacks = per(counters.fallbacks, keys.len());
    assert!(fallbacks <= FALLBACKS_MAX, "{fallbacks} fallbacks a GET");
    let doorbells = per(meters.doorbells, keys.len().div_ceil(BATCH));
    assert!(doorbells <= 2.5, "{doorbells} doorbells a batch");
}

/// The greatest gap between two loaded keys: the lower one, and the distance to the upper one.
fn widest_gap<L>(loaded: &Loaded<L>) -> (u64, u64) {
    let gaps = loaded.keys.windows(2).map(|pair| (pair[0], pair[1] - pair[0]));
    gaps.max_by_key(|(_, width)| *width).expect("two keys")
}

fn insert_and_read<L: LoadedTable>(loaded: &Loaded<L>, keys: &[u64]) {
    let mut reader = loaded.warm();
    write(&loaded.table, WriteOperation::Insert, keys);
    assert_cheap(&loaded.table, &mut reader, &shuffled(keys.to_vec(), &mut loaded.seed.random(4)));
    // Nobody else's keys got dearer.
    assert_cheap(&loaded.table, &mut reader, &loaded.some(NEW));
}

/// Appended keys cost what loaded ones do: time stamps, sequences.
pub fn appended_keys_cost_what_loaded_ones_do<L: LoadedTable>() {
    let loaded = load::<L>("appended keys", LOADED, 8);
    let greatest = *loaded.keys.last().expect("keys");
    let step = ((u64::MAX - greatest) / (NEW as u64 + 1)).clamp(1, 1 << 20);
    let keys: Vec<u64> = (1..=NEW as u64).map(|index| greatest + index * step).collect();
    insert_and_read(&loaded, &keys);
}

/// Keys between two neighbours cost what loaded ones do.
pub fn keys_between_two_neighbours_cost_what_loaded_ones_do<L: LoadedTable>() {
    let loaded = load::<L>("keys between two neighbours", LOADED, 8);
    let (low, width) = widest_gap(&loaded);
    let from = low + width / 3;
    let keys = shuffled((from..from + NEW as u64).collect(), &mut loaded.seed.random(3));
    insert_and_read(&loaded, &keys);
}

/// A new tenant's keys cost what loaded ones do: they come in any order, and fill a gap evenly.
pub fn a_new_tenants_keys_cost_what_loaded_ones_do<L: LoadedTable>() {
    let loaded = load::<L>("a new tenant", LOADED, 8);
    let (low, width) = widest_gap(&loaded);
    let step = width / (NEW as u64 + 1);
    let keys = (1..=NEW as u64).map(|index| low + index * step).collect();
    insert_and_read(&loaded, &shuffled(keys, &mut loaded.seed.random(3)));
}

/// Leaves are merged under a reader whose cache is older: its keys take more READs, and no calls. A call
/// would wait for the server, which the writer keeps busy.
pub fn a_reader_of_merged_leaves_needs_no_calls<L: LoadedTable>() {
    let loaded = load::<L>("merged leaves", LOADED, 8);
    let mut reader = loaded.warm();
    let (kept, removed): (Vec<_>, Vec<_>) = (0..).zip(&loaded.keys).partition(|(index, _)| index % 6 == 0);
    let keys = |part: Vec<(usize, &u64)>, stream| {
        shuffled(part.into_iter().map(|(_, key)| *key).collect(), &mut loaded.seed.random(stream))
    };
    let leaves = |table: &L| table.server_stats().tables[0].part().tree.leaves;
    let before = leaves(&loaded.table);
    write(&loaded.table, WriteOperation::Remove, &keys(removed, 3));
    let after = leaves(&loaded.table);
    let kept = keys(kept, 4);
    let (meters, counters): (Meters, Counters) = cost(&mut reader, |session| get_all(session, &kept, true));
    println!("{before} leaves, then {after}: {meters:?} {counters:?}");
    assert!(after < before / 2, "few leaves were merged: of {before} are {after}");
    let fallbacks = per(counters.fallbacks, kept.len());
    assert!(fallbacks <= FALLBACKS_MAX, "{fallbacks} fallbacks a GET");
}

/// The keys of a queue cost what loaded ones do: new ones come at the top while the oldest go.
pub fn the_keys_of_a_queue_cost_what_loaded_ones_do<L: LoadedTable>() {
    const LIVE: usize = 20_000;
    let loaded = load::<L>("a queue", LIVE, 8);
    let mut reader = loaded.warm();
    let greatest = *loaded.keys.last().expect("keys");
    let step = ((u64::MAX - greatest) / (NEW as u64 + 1)).clamp(1, 1 << 20);
    let mut keys = loaded.keys.clone();
    for index in (1..=NEW as u64).collect::<Vec<_>>().chunks(WRITTEN_TOGETHER) {
        let new: Vec<u64> = index.iter().map(|index| greatest + index * step).collect();
        write(&loaded.table, WriteOperation::Insert, &new);
        keys.extend(new);
        let oldest: Vec<u64> = keys.drain(..index.len()).collect();
        write(&loaded.table, WriteOperation::Remove, &oldest);
    }
    assert_cheap(&loaded.table, &mut reader, &shuffled(keys, &mut loaded.seed.random(4)));
}
