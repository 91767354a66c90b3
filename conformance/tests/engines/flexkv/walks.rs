//! Walks over all pairs of a table, while others write it and its index is split: keys that nobody touches
//! come exactly once, with their value. Others come at most once, with a value that they had.

use std::collections::HashMap;

use farsight::{Access, WriteOperation};
use farsight_base::prng::SplitMix64;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_base::{LINE_BYTES, Line, RemoteAddress};
use farsight_client::PairsCursor;
use farsight_conformance::engine::blocks::HasBlocks as _;
use farsight_conformance::engine::direct::SessionView;
use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::engine::{EngineUnderTest as _, SessionUnderTest as _, TableUnderTest};
use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::sim::SimNode;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric::{Connection as _, QueuePair as _, ReadMode};
use farsight_fabric_shm::ShmConnection;
use farsight_fabric_sim::Weakest;
use farsight_protocol::{Space, ValueKind};

use super::growth::{BYTES, keys};

/// Rounds of writers in a batch, and walks beside them.
const WALKS: u64 = 6;

/// The value that round `round` writes to a key.
fn value(key: u64, round: u64) -> Vec<u8> {
    (key.rotate_left(17) ^ round).to_le_bytes().to_vec()
}

fn put(session: &mut SessionView, keys: &[u64], round: u64) {
    for keys in keys.chunks(64) {
        let entries: Vec<_> = keys.iter().map(|key| (*key, value(*key, round))).collect();
        session.write(WriteOperation::Put, &entries);
    }
}

fn remove(session: &mut SessionView, keys: &[u64]) {
    let entries: Vec<_> = keys.iter().map(|key| (*key, Vec::new())).collect();
    session.write(WriteOperation::Remove, &entries);
}

/// All pairs, with something done behind each one.
fn walk(view: &mut SessionView, mut behind_each: impl FnMut()) -> HashMap<u64, Vec<u8>> {
    let mut cursor = PairsCursor::new(view.session());
    assert!(!cursor.is_ordered());
    let mut came = HashMap::new();
    while let Some(pair) = cursor.next(view.session()).expect("a walk") {
        let key = u64::from_le_bytes(pair.key.try_into().expect("eight bytes"));
        assert!(pair.version > 0);
        assert_eq!(came.insert(key, pair.value.to_vec()), None, "{key:#x} came twice");
        behind_each();
    }
    assert_eq!(cursor.next(view.session()).expect("the end"), None);
    came
}

/// What came is right if `quiet` keys have the value of round 0, and `busy` ones that of any before `rounds`.
fn check(mut came: HashMap<u64, Vec<u8>>, quiet: &[u64], busy: &[u64], rounds: u64) {
    for key in quiet {
        assert_eq!(came.remove(key), Some(value(*key, 0)), "{key:#x}, which nobody touches");
    }
    for key in busy {
        let had = |found: &Vec<u8>| (0..rounds).any(|round| *found == value(*key, round));
        assert!(came.remove(key).as_ref().is_none_or(had), "{key:#x}");
    }
    assert_eq!(came, HashMap::new(), "keys that nobody wrote");
}

/// One thread walks, and behind each pair writes and removes others: so each page is at each place between
/// two splits.
fn the_index_is_split_under_a_walk<F: FabricUnderTest>(pool: &PoolStore<F>) {
    let mut random = SplitMix64::fresh();
    let keys = keys(&mut random);
    let (quiet, busy) = keys.split_at(keys.len() / 4);
    let table = pool.table(8);
    let (mut walker, mut writer) = (table.session(Access::OneSided), table.session(Access::OneSided));
    put(&mut writer, quiet, 0);
    let mut rest = busy.chunks(6);
    let came = walk(&mut walker, || {
        // Half of them are removed, and come again elsewhere.
        let Some(some) = rest.next() else { return };
        put(&mut writer, some, 0);
        remove(&mut writer, &some[..3]);
        put(&mut writer, &some[..3], 1);
        put(&mut writer, &some[2..], 2);
    });
    assert!(rest.next().is_none(), "all keys are written under the walk");
    check(came, quiet, busy, 3);
    // Nobody writes any more; a session that knows no directory finds all.
    let came = walk(&mut table.session(Access::OneSided), || ());
    assert_eq!(came.len(), keys.len());
    check(came, quiet, busy, 3);
}

#[test]
fn over_shared_memory() {
    the_index_is_split_under_a_walk(&PoolStore::flexkv([Shm::new()], BYTES));
}

#[test]
fn with_replicas() {
    let nodes = [Shm::new(), Shm::new(), Shm::new()];
    the_index_is_split_under_a_walk(&PoolStore::replicated(nodes, 2, 2 * BYTES));
}

#[test]
fn over_simulated_cards() {
    let nodes = SimNode::<Weakest>::several(SplitMix64::fresh().next_u64(), 2);
    the_index_is_split_under_a_walk(&PoolStore::flexkv(nodes, BYTES));
}

/// Threads write while others walk.
fn walks_beside_writers<F: FabricUnderTest + Send + Sync>(nodes: impl IntoIterator<Item = F>) {
    let mut random = SplitMix64::fresh();
    let keys = keys(&mut random);
    let (quiet, busy) = keys.split_at(keys.len() / 4);
    let pool = PoolStore::flexkv(nodes, BYTES);
    let table = pool.table(8);
    put(&mut table.session(Access::OneSided), quiet, 0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for own in busy.chunks(busy.len().div_ceil(2)) {
            let (table, is_over, mut random) = (&table, &is_over, SplitMix64::new(random.next_u64()));
            scope.spawn(move || {
                let mut session = table.session(Access::OneSided);
                // Relaxed: it only has to end some time.
                while !is_over.load(Ordering::Relaxed) {
                    let first = random.below(own.len() as u64 - 32) as usize;
                    let some = &own[first..first + 32];
                    match random.below(3) {
                        0 => remove(&mut session, some),
                        round => put(&mut session, some, round),
                    }
                }
            });
        }
        let walked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..WALKS {
                check(walk(&mut table.session(Access::OneSided), || ()), quiet, busy, 3);
            }
        }));
        // Relaxed: as above.
        is_over.store(true, Ordering::Relaxed);
        walked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

#[test]
fn beside_writers_over_shared_memory() {
    walks_beside_writers([Shm::new()]);
}

#[test]
fn beside_writers_over_tcp() {
    walks_beside_writers([Tcp::default(), Tcp::default()]);
}

/// Subtables are split while compute nodes come and leave, so the units of some are used again for others.
/// Who comes afterwards finds in the directory what was where.
#[test]
fn newcomers_read_no_unit_that_is_used_again() {
    let keys = keys(&mut SplitMix64::fresh());
    let pool = PoolStore::flexkv([Shm::new()], BYTES);
    let table = pool.table(8);
    for (number, some) in keys.chunks(keys.len() / 16).enumerate() {
        put(&mut table.session(Access::OneSided), some, 0);
        let written = &keys[..(number + 1) * some.len()];
        check(walk(&mut table.session(Access::OneSided), || ()), written, &[], 0);
    }
}

#[test]
fn values_have_any_length() {
    let pool = PoolStore::flexkv([Shm::new(), Shm::new()], super::TABLE_BYTES);
    let table = pool.block_table(ValueKind::blocks(pool.value_bytes_max()));
    let mut session = table.session(Access::OneSided);
    let mut expected = HashMap::new();
    for key in 0..500 {
        let value = vec![key as u8; [0, 1, 100, 5_000, 16_216][key as usize % 5]];
        session.write(WriteOperation::Put, &[(key, value.clone())]);
        expected.insert(key, value);
    }
    assert_eq!(walk(&mut table.session(Access::OneSided), || ()), expected);
    assert_eq!(walk(&mut pool.table(8).session(Access::OneSided), || ()), HashMap::new(), "an empty table");
}

#[test]
fn a_damaged_object_is_named() {
    let pool = PoolStore::flexkv([Shm::new()], super::TABLE_BYTES);
    let table = pool.create("t", 8);
    let mut view = SessionView::new(table.session(Access::OneSided).expect("a session"));
    put(&mut view, &[7], 0);
    let region = *table.info().region_of(Space::Blocks).expect("objects");
    let at = |line: u64, word: u64| {
        let offset_bytes = line * LINE_BYTES as u64 + word * 8;
        RemoteAddress { region: region.id(), offset_bytes }
    };
    let client = pool.connect();
    drop(client.open_table("t").expect("the table"));
    let mut queues = client.with_connections(|connection: &ShmConnection| connection.open_queue());
    let mut queue = queues.pop().expect("one node").expect("a queue pair");
    queue.attach(region.id()).expect("the region");
    let mut read = |line| {
        let mut lines = [Line::ZERO];
        queue.post_read(0, at(line, 0), 1, ReadMode::Plain);
        queue.doorbell().and_then(|()| queue.drain()).expect("a READ");
        queue.take_read(0, &mut lines).expect("a line");
        lines[0]
    };
    let (line, object) = (0..u64::from(region.capacity))
        .map(|line| (line, read(line)))
        .find(|(_, read)| *read != Line::ZERO)
        .expect("the object");
    // Behind three words of the header and the key stands the value.
    queue.post_write(0, at(line, 4), &[object.0[4] ^ 4]);
    queue.doorbell().and_then(|()| queue.drain()).expect("a WRITE");
    queue.take_word(0).expect("it is complete");
    let error = PairsCursor::new(view.session()).next(view.session()).expect_err("a lost bit");
    let text = farsight::with_causes(&error);
    let expected = format!("the object at line {line} of the pool's memory node 1 is damaged: ");
    assert!(text.contains(&expected), "{text}");
}
