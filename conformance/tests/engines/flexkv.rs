//! The suite of the engine contract over FlexKV: over shared memory, TCP and simulated cards, on one node and
//! on several, with values of one size and of any length. It keeps no order, so what the suite scans of other
//! engines it gets here.

use farsight_base::LINE_BYTES;
use farsight_conformance::engine::Seed;
use farsight_conformance::engine::byte_keys::ByteKeys;
use farsight_conformance::engine::pool_store::PoolStore;
use farsight_conformance::fabric::shm::Shm;
use farsight_conformance::fabric::sim::SimNode;
use farsight_conformance::fabric::slow::Slow;
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric_sim::Weakest;

mod repairs;
mod walks;

const TABLE_BYTES: u64 = 64 << 20;
/// Regions of the simulation keep a history.
const SIMULATED_TABLE_BYTES: u64 = 16 << 20;

mod one_node {
    use super::*;

    farsight_conformance::engine_suite!(@unordered PoolStore::flexkv([Shm::new()], TABLE_BYTES), true);
}

mod blocks_on_three_nodes {
    use super::*;

    farsight_conformance::block_suite!(@unordered
        PoolStore::flexkv([Shm::new(), Shm::new(), Shm::new()], TABLE_BYTES));
}

mod over_tcp {
    use super::*;

    farsight_conformance::engine_suite!(@unordered
        PoolStore::flexkv([Slow::<Tcp>::default(), Slow::default()], TABLE_BYTES), true);
}

mod blocks_over_tcp {
    use super::*;

    farsight_conformance::block_suite!(@unordered PoolStore::flexkv([Slow::<Tcp>::default()], TABLE_BYTES));
}

mod over_simulated_cards {
    use super::*;

    fn start() -> PoolStore<Slow<SimNode<Weakest>>> {
        let seed = Seed::new("FlexKV over simulated cards").random(0).next_u64();
        PoolStore::flexkv(SimNode::several(seed, 2).into_iter().map(Slow), SIMULATED_TABLE_BYTES)
    }

    farsight_conformance::engine_suite!(@unordered start(), true);
}

mod replicated {
    use super::*;

    farsight_conformance::engine_suite!(@unordered
        PoolStore::replicated([Shm::new(), Shm::new(), Shm::new()], 3, TABLE_BYTES), true);
}

mod replicated_blocks_over_tcp {
    use super::*;

    farsight_conformance::block_suite!(@unordered
        PoolStore::replicated([Slow::<Tcp>::default(), Slow::default()], 2, TABLE_BYTES));
}

mod replicated_over_simulated_cards {
    use super::*;

    fn start() -> PoolStore<Slow<SimNode<Weakest>>> {
        let seed = Seed::new("replicas over simulated cards").random(0).next_u64();
        PoolStore::replicated(SimNode::several(seed, 3).into_iter().map(Slow), 2, SIMULATED_TABLE_BYTES)
    }

    farsight_conformance::engine_suite!(@unordered start(), true);
}

mod byte_keys {
    use super::*;

    farsight_conformance::engine_suite!(@unordered
        ByteKeys::of(PoolStore::flexkv([Shm::new(), Shm::new()], TABLE_BYTES), 0), true);
}

mod long_byte_keys_and_blocks_over_tcp {
    use super::*;

    farsight_conformance::block_suite!(@unordered
        ByteKeys::of(PoolStore::flexkv([Slow::<Tcp>::default(), Slow::default()], TABLE_BYTES), 300));
}

mod replicated_byte_keys {
    use super::*;

    farsight_conformance::block_suite!(@unordered
        ByteKeys::of(PoolStore::replicated([Shm::new(), Shm::new()], 2, TABLE_BYTES), 100));
}

mod byte_keys_over_simulated_cards {
    use super::*;

    fn start() -> ByteKeys<Slow<SimNode<Weakest>>> {
        let seed = Seed::new("byte keys over simulated cards").random(0).next_u64();
        let nodes = SimNode::several(seed, 2).into_iter().map(Slow);
        ByteKeys::of(PoolStore::flexkv(nodes, SIMULATED_TABLE_BYTES), 40)
    }

    farsight_conformance::engine_suite!(@unordered start(), true);
}

/// Beside each store a compute node writes for all clients.
mod served {
    use farsight::ReadsByOthers;

    use super::*;

    /// The suites below are of that compute node, too: every write is a call to it.
    #[test]
    fn writes_go_through_it() {
        use farsight::{Access, WriteOperation, WriteOutcome};
        use farsight_conformance::engine::{
            EngineUnderTest as _, SessionUnderTest as _, TableUnderTest as _,
        };

        let store = PoolStore::flexkv([Shm::new(), Shm::new()], TABLE_BYTES)
            .served(Shm::new(), ReadsByOthers::Addresses);
        let mut session = store.table(8).session(Access::OneSided);
        let pairs: Vec<_> = (0..100).map(|key| (key, vec![7; 8])).collect();
        session.write(WriteOperation::Put, &pairs);
        for (outcome, old) in session.exchange(WriteOperation::Swap, &pairs) {
            assert!(matches!(outcome, WriteOutcome::Replaced(_)) && old == Some(vec![7; 8]), "{outcome:?}");
        }
        let none: Vec<_> = (0..100).map(|key| (key, Vec::new())).collect();
        let outcomes = session.write(WriteOperation::Remove, &none);
        assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Removed(_))), "{outcomes:?}");
        assert_eq!(session.get(7), None, "a key whose address nobody knows");
        let work = store.served_work();
        assert_eq!((work.writes, work.found), (300, 1));
    }

    mod over_shared_memory {
        use super::*;

        farsight_conformance::engine_suite!(@unordered
            PoolStore::flexkv([Shm::new(), Shm::new()], TABLE_BYTES)
                .served(Shm::new(), ReadsByOthers::Addresses), true);
    }

    mod blocks_over_tcp {
        use super::*;

        farsight_conformance::block_suite!(@unordered
            PoolStore::flexkv([Slow::<Tcp>::default(), Slow::default()], TABLE_BYTES)
                .served(Slow::default(), ReadsByOthers::Values));
    }

    mod replicated_byte_keys {
        use super::*;

        farsight_conformance::block_suite!(@unordered ByteKeys::of(
            PoolStore::replicated([Shm::new(), Shm::new()], 2, TABLE_BYTES)
                .served(Shm::new(), ReadsByOthers::Addresses), 100));
    }
}

mod keys_of_one_hash {
    use farsight::{Access, WriteOperation, WriteOutcome};
    use farsight_base::prng::mix;
    use farsight_base::report::with_causes;
    use farsight_conformance::engine::{EngineUnderTest as _, SessionUnderTest as _, TableUnderTest as _};
    use farsight_layout::hash_index::KeyHash;

    use super::*;

    /// Keys of 16 B that somebody has chosen so that all of them have one hash.
    fn chosen(count: u64) -> Vec<Vec<u8>> {
        let behind_first = |word: u64| mix(mix(16 + 1).rotate_left(1) ^ word).rotate_left(1);
        let meeting = behind_first(0) ^ 0x1234;
        let key = |word: u64| [word, behind_first(word) ^ meeting].map(u64::to_le_bytes).concat();
        (0..count).map(key).collect()
    }

    /// Keys of one hash fill their buckets, are refused then by name, and are never taken for each other.
    #[test]
    fn they_are_told_apart() {
        let keys = chosen(64);
        assert!(keys.iter().all(|key| KeyHash::of(key) == KeyHash::of(&keys[0])), "all have one hash");
        let pool = ByteKeys::of(PoolStore::flexkv([Shm::new(), Shm::new()], TABLE_BYTES), 0);
        let table = pool.table(8);
        let (mut first, mut second) = (table.session(Access::OneSided), table.session(Access::OneSided));
        let value = |key: usize, round: u64| (key as u64 * 1_000 + round).to_le_bytes().to_vec();
        let entry = |key: usize, round: u64| (keys[key].clone(), value(key, round));
        let is_inserted = |key: &usize| {
            let (key, value) = entry(*key, 0);
            match first.session().write_one(WriteOperation::Insert, &key[..], &value) {
                Ok(WriteOutcome::Inserted(_)) => true,
                Err(error) => {
                    let why = with_causes(&error);
                    assert!(why.contains("all slots in which it may stand are used"), "{why}");
                    false
                }
                done => panic!("{done:?}"),
            }
        };
        let (there, refused): (Vec<usize>, Vec<usize>) = (0..keys.len()).partition(is_inserted);
        // Two combined buckets have 28 slots, or 21 if they share their overflow.
        assert!((21..=28).contains(&there.len()), "{} of them have room", there.len());
        for round in 1..4 {
            let session = if round % 2 == 0 { &mut first } else { &mut second };
            // By addresses that are known, and in one batch.
            let entries: Vec<_> = there.iter().map(|key| entry(*key, round)).collect();
            assert!(
                session
                    .write(WriteOperation::Put, &entries)
                    .iter()
                    .all(|outcome| { matches!(outcome, WriteOutcome::Replaced(_)) })
            );
            for session in [&mut first, &mut second] {
                for (key, got) in session.multi_get(&keys).into_iter().enumerate() {
                    let expected = there.contains(&key).then(|| value(key, round));
                    assert_eq!(got.map(|got| got.0), expected, "key {key} in round {round}");
                }
            }
        }
        let removed = first.write(WriteOperation::Remove, &[(keys[there[3]].clone(), Vec::new())]);
        assert!(matches!(removed[..], [WriteOutcome::Removed(_)]));
        let instead = second.write(WriteOperation::Insert, &[entry(refused[0], 9)]);
        assert!(matches!(instead[..], [WriteOutcome::Inserted(_)]), "there is room again: {instead:?}");
        assert_eq!(first.get(keys[there[3]].clone()), None);
        assert_eq!(first.get(keys[refused[0]].clone()).map(|got| got.0), Some(value(refused[0], 9)));
    }
}

mod costs {
    use std::time::Duration;

    use farsight::{Access, Meters, WriteOperation, WriteOutcome};
    use farsight_conformance::engine::costs::MeteredSession as _;
    use farsight_conformance::engine::direct::SessionView;
    use farsight_conformance::engine::{EngineUnderTest as _, SessionUnderTest as _, TableUnderTest as _};

    use super::*;

    const KEYS: u64 = 1_000;
    /// Keys of each step of a test.
    const ASKED: u64 = 200;

    /// Whether the session that is measured knows the addresses of the keys that are there.
    #[derive(Clone, Copy)]
    enum Addresses {
        Known,
        Unknown,
    }

    /// What one operation of `run` costs over two nodes, on a table with the first [`KEYS`] keys.
    fn cost_each(addresses: Addresses, run: impl Fn(&mut SessionView, u64)) -> [f64; 4] {
        cost_in(&PoolStore::flexkv([Shm::new(), Shm::new()], TABLE_BYTES), addresses, run)
    }

    /// The same in this pool.
    fn cost_in(pool: &PoolStore<Shm>, addresses: Addresses, run: impl Fn(&mut SessionView, u64)) -> [f64; 4] {
        let table = pool.table(8);
        let (mut session, mut former) = (table.session(Access::OneSided), Vec::new());
        let entries: Vec<_> = (0..KEYS).map(|key| (key, key.to_le_bytes().to_vec())).collect();
        session.write(WriteOperation::Put, &entries);
        if let Addresses::Unknown = addresses {
            // Another compute node's, whose clock may be behind. It learns that from the newest version.
            // The first one stays: the end of a compute node has shards settled, which is no write's cost.
            former.push(std::mem::replace(&mut session, table.session(Access::OneSided)));
            session.write(WriteOperation::Put, &[(KEYS - 1, vec![7; 8])]);
        }
        let before = session.meters();
        (0..ASKED).for_each(|key| run(&mut session, key));
        let Meters { doorbells, reads, writes, atomics, .. } = session.meters() - before;
        [doorbells, reads, writes, atomics].map(|count| count as f64 / ASKED as f64)
    }

    fn write(addresses: Addresses, operation: WriteOperation, first: u64) -> [f64; 4] {
        cost_each(addresses, |session, key| {
            let value = if operation.has_value() { vec![7; 8] } else { Vec::new() };
            session.write(operation, &[(first + key, value)]);
        })
    }

    /// Nearly one: some objects have the fingerprint of another key, and are read, too.
    #[track_caller]
    fn assert_about(what: &str, got: [f64; 4], expected: [f64; 4]) {
        println!("{what}: round trips, READs, WRITEs, atomics: {got:?}");
        for (got, expected) in got.iter().zip(expected) {
            assert!((expected..=expected + 0.1).contains(got), "{what}: {got}, budget {expected}");
        }
    }

    #[test]
    fn a_get_is_two_round_trips_and_one_with_an_address() {
        let get = |addresses| cost_each(addresses, |session, key| drop(session.get(key)));
        assert_about("GET", get(Addresses::Unknown), [2.0, 3.0, 0.0, 0.0]);
        assert_about("GET by address", get(Addresses::Known), [1.0, 2.0, 0.0, 0.0]);
        let absent = cost_each(Addresses::Known, |session, key| drop(session.get(KEYS + key)));
        assert_about("GET of an absent key", absent, [1.0, 2.0, 0.0, 0.0]);
    }

    #[test]
    fn an_update_is_three_round_trips_and_one_with_an_address() {
        for operation in [WriteOperation::Update, WriteOperation::Put] {
            let unknown = write(Addresses::Unknown, operation, 0);
            assert_about(&format!("{operation:?}"), unknown, [3.0, 3.0, 1.0, 1.0]);
            let known = write(Addresses::Known, operation, 0);
            assert_about(&format!("{operation:?} by address"), known, [1.0, 0.0, 1.0, 1.0]);
        }
        let swap = write(Addresses::Known, WriteOperation::Swap, 0);
        assert_about("Swap by address", swap, [2.0, 2.0, 1.0, 1.0]);
    }

    /// Two compute nodes write the same keys in turns, so no address holds. Then one of them has the keys to
    /// itself.
    #[test]
    fn an_update_looks_first_where_others_write_all_the_time() {
        let pool = PoolStore::flexkv([Shm::new(), Shm::new()], TABLE_BYTES);
        let table = pool.table(8);
        let [mut one, mut other] = [(); 2].map(|()| table.session(Access::OneSided));
        let entries: Vec<_> = (0..KEYS).map(|key| (key, vec![1; 8])).collect();
        one.write(WriteOperation::Put, &entries);
        // Clocks tell who is newer, to the microsecond: no version is guessed too low.
        let later = || std::thread::sleep(Duration::from_micros(20));
        let mut round = |is_contested: bool| {
            let before = one.meters();
            for key in 0..ASKED {
                if is_contested {
                    later();
                    other.write(WriteOperation::Put, &[(key, vec![2; 8])]);
                }
                later();
                one.write(WriteOperation::Put, &[(key, vec![1; 8])]);
            }
            let Meters { doorbells, reads, writes, atomics, .. } = one.meters() - before;
            [doorbells, reads, writes, atomics].map(|count| count as f64 / ASKED as f64)
        };
        assert_about("put by an address that does not hold", round(true), [4.0, 3.0, 2.0, 2.0]);
        round(true);
        assert_about("put that looks first", round(true), [3.0, 3.0, 1.0, 1.0]);
        assert_about("put that still looks", round(false), [3.0, 3.0, 1.0, 1.0]);
        round(false);
        assert_about("put by address again", round(false), [1.0, 0.0, 1.0, 1.0]);
    }

    #[test]
    fn replicas_cost_writes_alone() {
        for replicas in [2, 3] {
            let pool = PoolStore::replicated([Shm::new(), Shm::new(), Shm::new()], replicas, TABLE_BYTES);
            let get = cost_in(&pool, Addresses::Known, |session, key| drop(session.get(key)));
            assert_about("GET by address", get, [1.0, 2.0, 0.0, 0.0]);
            let count = f64::from(replicas);
            let put = |session: &mut SessionView, key| {
                session.write(WriteOperation::Put, &[(key, vec![7; 8])]);
            };
            let known = cost_in(&pool, Addresses::Known, put);
            // Doorbells: one a node, where a round trip rings several. WRITEs, then one swap after the other.
            assert_about("put by address", known, [2.0 * count, 0.0, count, count]);
            let unknown = cost_in(&pool, Addresses::Unknown, put);
            assert_about("put", unknown, [2.0 * count + 1.0, 3.0, count, count]);
        }
    }

    #[test]
    fn writes_of_one_key_in_one_batch_cost_one() {
        const TOGETHER: u64 = 16;
        let cost = cost_each(Addresses::Known, |session, key| {
            let entries: Vec<_> = (0..TOGETHER).map(|value| (key, value.to_le_bytes().to_vec())).collect();
            let outcomes = session.write(WriteOperation::Put, &entries);
            let versions: Vec<u64> = outcomes
                .iter()
                .map(|outcome| match outcome {
                    WriteOutcome::Replaced(version) => *version,
                    other => panic!("key {key}: {other:?}"),
                })
                .collect();
            assert!(versions.is_sorted_by(|first, second| first < second), "{versions:?}");
            let got = session.get(key).expect("the key is there");
            assert_eq!(got, ((TOGETHER - 1).to_le_bytes().to_vec(), versions[versions.len() - 1]));
        });
        // Each batch is one round trip, and the GET behind it another.
        assert_about("puts of one key, and a GET", cost, [2.0, 2.0, 1.0, 1.0]);
    }

    #[test]
    fn an_insert_is_three_round_trips() {
        let insert = write(Addresses::Known, WriteOperation::Insert, KEYS);
        assert_about("insert", insert, [3.0, 4.0, 1.0, 2.0]);
    }

    #[test]
    fn a_remove_is_four_round_trips() {
        let got = write(Addresses::Unknown, WriteOperation::Remove, 0);
        // The overflow may say enough by then: a compare-and-swap less.
        assert!((1.5..=2.1).contains(&got[3]), "{got:?}");
        assert_about("remove", got, [4.0, 5.0, 0.0, got[3]]);
    }
}

/// A compute node that ends has told what became of memory, so nobody has to look for it.
mod ends {
    use farsight::{Access, WriteOperation};
    use farsight_conformance::engine::{EngineUnderTest as _, SessionUnderTest as _, TableUnderTest as _};

    use super::*;

    const KEYS: u64 = 300;

    #[test]
    fn a_session_that_ends_tells_what_it_wrote_and_replaced() {
        let pool = PoolStore::replicated([Shm::new(), Shm::new(), Shm::new()], 2, TABLE_BYTES);
        let table = pool.table(8);
        // Of each shard fewer than a session tells by itself.
        for round in 0..3_u64 {
            let mut session = table.session(Access::OneSided);
            let entries: Vec<_> = (0..KEYS).map(|key| (key, round.to_le_bytes().to_vec())).collect();
            session.write(WriteOperation::Put, &entries);
        }
        let tables = pool.nodes().iter().map(|node| node.stats().tables.pop().expect("a table"));
        let (mut objects, mut live_bytes) = (0, 0);
        for table in tables {
            objects += table.hash_index.expect("a hash index").objects;
            live_bytes += table.blocks.expect("objects").live_bytes;
        }
        assert_eq!(objects, KEYS, "what was replaced is free, and the rest is known to be live");
        assert_eq!(live_bytes, KEYS * LINE_BYTES as u64, "what was not used was given back");
    }
}

/// The index is split while threads write, remove and read: the partitions that they write grow from the
/// least table's one subtable to 64.
mod growth {
    use std::collections::HashMap;
    use std::sync::Barrier;

    use farsight::{Access, WriteOperation, WriteOutcome};
    use farsight_base::prng::SplitMix64;
    use farsight_base::sync::{AtomicU64, Ordering};
    use farsight_conformance::engine::direct::SessionView;
    use farsight_conformance::engine::{EngineUnderTest as _, SessionUnderTest as _, TableUnderTest as _};
    use farsight_conformance::fabric::FabricUnderTest;
    use farsight_layout::hash_index::{HASH_PARTITION_BITS, HASH_SPLIT_BITS, KeyHash};

    use super::*;

    /// An index with a group for each partition, and room for splits of a few.
    pub(super) const BYTES: u64 = 3 << 20;
    const PARTITIONS: usize = 2;
    const SUBTABLES: usize = PARTITIONS << HASH_SPLIT_BITS;
    /// Keys of each of the deepest subtables, which have 21 slots: so two of them are more than one holds.
    const KEYS_EACH: usize = 16;
    const THREADS: usize = 3;
    const ROUNDS: usize = 40;
    /// Keys of a thread's batch.
    const BATCH: usize = 32;

    /// As many keys of each of the deepest subtables of some partitions.
    pub(super) fn keys(random: &mut SplitMix64) -> Vec<u64> {
        let first_partition = random.below((1 << HASH_PARTITION_BITS) - PARTITIONS as u64) as usize;
        let mut of_each = vec![Vec::new(); SUBTABLES];
        let mut missing = SUBTABLES * KEYS_EACH;
        while missing > 0 {
            let key = random.next_u64();
            let hash = KeyHash::of(&key.to_le_bytes());
            let subtable = hash.prefix(HASH_PARTITION_BITS + HASH_SPLIT_BITS) as usize;
            let subtable = subtable.wrapping_sub(first_partition << HASH_SPLIT_BITS);
            if let Some(keys) = of_each.get_mut(subtable).filter(|keys| keys.len() < KEYS_EACH) {
                keys.push(key);
                missing -= 1;
            }
        }
        // In no order.
        let mut keys = of_each.concat();
        for index in (1..keys.len()).rev() {
            keys.swap(index, random.below(index as u64 + 1) as usize);
        }
        keys
    }

    /// Subtables, partitions and splits of all nodes.
    fn counted<F: FabricUnderTest>(pool: &PoolStore<F>) -> [u64; 3] {
        let mut sums = [0; 3];
        for node in pool.nodes() {
            let index = node.stats().tables.pop().and_then(|table| table.hash_index).expect("a hash index");
            let counts = [index.subtables.into(), index.partitions.into(), index.splits];
            sums = std::array::from_fn(|count| sums[count] + counts[count]);
        }
        sums
    }

    fn an_index_grows_under_load<F: FabricUnderTest + Send + Sync>(subjects: impl IntoIterator<Item = F>) {
        let mut random = SplitMix64::fresh();
        let keys = keys(&mut random);
        let pool = PoolStore::flexkv(subjects, BYTES);
        let table = pool.table(8);
        let partitions = 1 << HASH_PARTITION_BITS;
        assert_eq!(counted(&pool), [partitions, partitions, 0]);
        // A part of the keys is inserted by all threads; each of the others is one thread's.
        let (contested, own) = keys.split_at(keys.len() / 4);
        let (inserted, begin) = (AtomicU64::new(0), Barrier::new(THREADS));
        let models: Vec<HashMap<u64, u64>> = std::thread::scope(|scope| {
            let start = |thread: usize| {
                let own: Vec<u64> = own.iter().copied().skip(thread).step_by(THREADS).collect();
                let mut random = SplitMix64::new(random.next_u64());
                let (table, begin, inserted) = (&table, &begin, &inserted);
                scope.spawn(move || {
                    let open = || table.session(Access::OneSided);
                    begin.wait();
                    // Relaxed: it is read when the threads have ended.
                    inserted.fetch_add(insert_all(&mut open(), contested), Ordering::Relaxed);
                    write_all(open, &own, &mut random)
                })
            };
            let threads: Vec<_> = (0..THREADS).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
        });
        assert_eq!(inserted.into_inner(), contested.len() as u64, "each was inserted once");
        let mut session = table.session(Access::OneSided);
        let contested = contested.iter().map(|key| (*key, *key));
        for (key, value) in models.into_iter().flatten().chain(contested) {
            let found = session.get(key).unwrap_or_else(|| panic!("{key:#x} is missing"));
            assert_eq!(found.0, value.to_le_bytes(), "{key:#x}");
        }
        let splits = (SUBTABLES - PARTITIONS) as u64;
        assert_eq!(counted(&pool), [partitions + splits, partitions, splits]);
    }

    /// Inserts each of these keys, as others do. Returns how many it was the first to insert.
    fn insert_all(session: &mut SessionView, keys: &[u64]) -> u64 {
        let mut inserted = 0;
        for keys in keys.chunks(BATCH) {
            let entries: Vec<_> = keys.iter().map(|key| (*key, key.to_le_bytes().to_vec())).collect();
            let outcomes = session.write(WriteOperation::Insert, &entries);
            inserted +=
                outcomes.iter().filter(|outcome| matches!(outcome, WriteOutcome::Inserted(_))).count();
        }
        inserted as u64
    }

    /// Writes keys that nobody else writes, and checks what it reads. All of them are there in the end.
    fn write_all(open: impl Fn() -> SessionView, own: &[u64], random: &mut SplitMix64) -> HashMap<u64, u64> {
        let (mut session, mut model) = (open(), HashMap::new());
        for round in 0..ROUNDS {
            write_some(&mut session, own, &mut model, random);
            check_some(&mut session, own, &model, random);
            if round % 8 == 0 {
                // One that knows no directory, and no address.
                session = open();
            }
        }
        for keys in own.chunks(BATCH) {
            let entries: Vec<_> = keys.iter().map(|key| (*key, 0_u64.to_le_bytes().to_vec())).collect();
            session.write(WriteOperation::Put, &entries);
            model.extend(keys.iter().map(|key| (*key, 0)));
        }
        model
    }

    fn write_some(
        session: &mut SessionView,
        own: &[u64],
        model: &mut HashMap<u64, u64>,
        random: &mut SplitMix64,
    ) {
        let operation = [
            WriteOperation::Put,
            WriteOperation::Put,
            WriteOperation::Insert,
            WriteOperation::Update,
            WriteOperation::Remove,
        ][random.below(5) as usize];
        let entries: Vec<(u64, Vec<u8>)> = (0..BATCH)
            .map(|_| {
                let key = own[random.below(own.len() as u64) as usize];
                let value =
                    if operation.has_value() { random.next_u64().to_le_bytes().to_vec() } else { Vec::new() };
                (key, value)
            })
            .collect();
        let outcomes = session.write(operation, &entries);
        for ((key, value), outcome) in entries.into_iter().zip(outcomes) {
            let known = model.contains_key(&key);
            let stores = match operation {
                WriteOperation::Insert => !known,
                WriteOperation::Update => known,
                WriteOperation::Remove => false,
                _ => true,
            };
            let is_right = match outcome {
                WriteOutcome::Inserted(_) => stores && !known,
                WriteOutcome::Replaced(_) => stores && known,
                WriteOutcome::Removed(_) => operation == WriteOperation::Remove && known,
                WriteOutcome::Exists(_) => operation == WriteOperation::Insert && known,
                WriteOutcome::Absent => !stores && !known,
                _ => false,
            };
            assert!(is_right, "{operation:?} of {key:#x}, known: {known}, came to {outcome:?}");
            if operation == WriteOperation::Remove {
                model.remove(&key);
            } else if stores {
                model.insert(key, u64::from_le_bytes(value.try_into().expect("eight bytes")));
            }
        }
    }

    fn check_some(
        session: &mut SessionView,
        own: &[u64],
        model: &HashMap<u64, u64>,
        random: &mut SplitMix64,
    ) {
        let keys: Vec<u64> = (0..BATCH).map(|_| own[random.below(own.len() as u64) as usize]).collect();
        for (key, found) in keys.iter().zip(session.multi_get(&keys)) {
            let found = found.map(|stored| u64::from_le_bytes(stored.0.try_into().expect("eight bytes")));
            assert_eq!(found, model.get(key).copied(), "{key:#x}");
        }
    }

    #[test]
    fn over_shared_memory() {
        an_index_grows_under_load([Shm::new()]);
    }

    #[test]
    fn over_tcp_and_two_nodes() {
        an_index_grows_under_load([Tcp::default(), Tcp::default()]);
    }
}

/// Scans are refused by the engine's name.
#[test]
fn what_needs_an_order_is_refused() {
    use farsight::Access;
    use farsight_conformance::engine::{EngineUnderTest as _, TableUnderTest as _};
    use farsight_index::Pairs;
    use farsight_protocol::Direction;

    let pool = PoolStore::flexkv([Shm::new()], TABLE_BYTES);
    let mut view = pool.table(8).session(Access::OneSided);
    let scans = [farsight_client::ScanRequest { from: 0, limit: 1 }];
    let error = view.session().scan_batch(Direction::Ascending, &scans, &mut Pairs::default());
    let text = farsight::with_causes(&error.expect_err("no order"));
    assert!(text.contains("flexkv keeps no order") && text.contains("use xstore or rolex"), "{text}");
}
