//! Values that processes keep, of tables of FlexKV.

use std::time::{Duration, Instant};

use farsight::{
    Client, ConnectOptions, EngineKind, Meters, Options, Server, ServerBuilder, Session, Table, TableOptions,
    ValueCache, ValueKind, WriteOutcome,
};
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use tempfile::TempDir;

const MEMORY_BYTES: u64 = 16 << 20;
/// Attempts to be quicker than a lease, on a machine that is busy.
const ATTEMPTS: u64 = 2_000;
/// Writes of a kept value until one does not wait for leases, on a machine that is busy.
const RECALLS_TRIED: u64 = 400;
/// Writes that are tried in any case.
const RECALLS_WANTED: u64 = 5;
const CACHE: ValueCache = ValueCache { bytes: 1 << 20, reads_a_write: 0 };

/// Memory nodes, at addresses of one fabric.
struct Cluster {
    directory: TempDir,
    nodes: Vec<Server>,
}

impl Cluster {
    fn start(nodes: usize, is_tcp: bool) -> Self {
        let mut cluster = Self { directory: tempfile::tempdir().unwrap(), nodes: Vec::new() };
        for number in 0..nodes {
            let builder = Server::builder().table_memory_bytes(MEMORY_BYTES);
            let builder: ServerBuilder = if is_tcp {
                builder.listen("tcp://127.0.0.1:0".parse().unwrap())
            } else {
                builder.socket(cluster.directory.path().join(format!("node-{number}")))
            };
            cluster.nodes.push(builder.start().unwrap());
        }
        cluster
    }

    fn client(&self) -> Client {
        let urls = self.nodes.iter().map(|node| node.url().clone()).collect();
        Client::connect_with(farsight::Addresses::new(urls), &ConnectOptions::default()).unwrap()
    }

    fn table(&self, values: ValueKind, replicas: Option<u8>) -> Table<u64> {
        let options = TableOptions { engine: Some(EngineKind::FLEXKV), replicas, ..TableOptions::default() };
        self.client().create_table_of::<u64>("t", values, &options).unwrap()
    }

    /// A session of another process, as far as the table is concerned.
    fn session(&self, cache: Option<ValueCache>) -> Session<u64> {
        let table = self.client().table::<u64>("t").unwrap();
        if let Some(cache) = cache {
            assert!(table.set_value_cache(cache).unwrap(), "values are kept");
        }
        table.session(Options::default()).unwrap()
    }
}

/// On each fabric, over one node, and over two with values of any length. Then with each pair on both, or on
/// two of three.
fn on_each(test: impl Fn(&Cluster, u64)) {
    for is_tcp in [false, true] {
        let (fixed, blocks) = (ValueKind::Fixed(8), ValueKind::blocks(1_000));
        for (nodes, values, replicas) in [(1, fixed, 1), (2, blocks, 1), (2, fixed, 2), (3, blocks, 2)] {
            let cluster = Cluster::start(nodes, is_tcp);
            cluster.table(values, (replicas > 1).then_some(replicas));
            test(&cluster, replicas.into());
        }
    }
}

fn number(session: &mut Session<u64>, key: u64) -> Option<u64> {
    let entry = session.get(key).unwrap()?;
    Some(u64::from_le_bytes(entry.value[..8].try_into().unwrap()))
}

/// GETs until one is answered by a kept value.
fn get_kept(session: &mut Session<u64>, key: u64, expected: u64) {
    for _ in 0..ATTEMPTS {
        let before = (session.meters(), session.counters().value_hits);
        assert_eq!(number(session, key), Some(expected));
        if session.counters().value_hits > before.1 {
            assert_eq!(session.meters() - before.0, Meters::default(), "a hit posts nothing");
            return;
        }
    }
    panic!("key {key}: no GET of {ATTEMPTS} was answered by a kept value");
}

#[test]
fn a_kept_value_costs_no_verb_and_is_gone_when_a_write_is_answered() {
    on_each(|cluster, replicas| {
        let [mut one, mut other] = [(); 2].map(|()| cluster.session(Some(CACHE)));
        let mut writer = cluster.session(None);
        for key in 0..3 {
            writer.put(key, &0_u64.to_le_bytes()).unwrap();
        }
        for turn in 1..20_u64 {
            let key = turn % 3;
            let now = number(&mut writer, key).unwrap();
            get_kept(&mut one, key, now);
            get_kept(&mut other, key, now);
            let (closings, before) = (writer.counters().closings, writer.meters());
            let outcome = writer.put(key, &turn.to_le_bytes()).unwrap();
            assert!(matches!(outcome, WriteOutcome::Replaced(_)), "{outcome:?}");
            let Meters { reads, writes, atomics, .. } = writer.meters() - before;
            // Buckets and object, the new object, to close the slot, to count that, to swap it. Each replica
            // has objects and swaps. The address knew no sharer: twice an object and a swap come before, in
            // vain. From then on the key's address is doubted.
            let in_vain = u64::from(turn <= 2 * 3);
            let expected = (3, (1 + in_vain) * replicas, 1 + 2 * replicas + in_vain);
            assert_eq!((reads, writes, atomics), expected, "turn {turn}");
            assert!(writer.counters().closings > closings, "it waited for the leases");
            assert_eq!([number(&mut one, key), number(&mut other, key)], [Some(turn); 2]);
            let closings = writer.counters().closings;
            let own = 100 + turn;
            writer.put(own, &turn.to_le_bytes()).unwrap();
            writer.put(own, &turn.to_le_bytes()).unwrap();
            writer.remove(own).unwrap();
            assert_eq!(writer.counters().closings, closings, "a key that nobody read");
        }
    });
}

#[test]
fn writers_wait_for_those_who_keep_values_and_not_for_their_leases() {
    on_each(|cluster, _| {
        let [mut one, mut other] = [(); 2].map(|()| cluster.session(Some(CACHE)));
        let mut writer = cluster.session(None);
        writer.put(1, &0_u64.to_le_bytes()).unwrap();
        let mut quickest = Duration::MAX;
        for turn in 0..RECALLS_TRIED {
            get_kept(&mut one, 1, turn);
            get_kept(&mut other, 1, turn);
            let (before, began) = ((writer.counters(), writer.meters().calls), Instant::now());
            writer.put(1, &(turn + 1).to_le_bytes()).unwrap();
            if writer.counters().recalls > before.0.recalls {
                quickest = quickest.min(began.elapsed());
                assert!(writer.meters().calls > before.1);
            }
            assert_eq!([&mut one, &mut other].map(|session| number(session, 1)), [Some(turn + 1); 2]);
            if quickest < Duration::MAX && turn >= RECALLS_WANTED {
                break;
            }
        }
        let recalls = writer.counters().recalls;
        assert!(recalls > 0, "each of {RECALLS_TRIED} writes of a kept value waited for leases");
        println!("the quickest of {recalls} recalls took {quickest:?}");
    });
}

#[test]
fn batches_conditional_writes_and_removals_wait_for_leases() {
    on_each(|cluster, _| {
        let (mut reader, mut writer) = (cluster.session(Some(CACHE)), cluster.session(Some(CACHE)));
        let pairs: Vec<(u64, [u8; 8])> = (0..8).map(|key| (key, 1_u64.to_le_bytes())).collect();
        for (key, value) in &pairs {
            writer.put(*key, value).unwrap();
        }
        (0..8).for_each(|key| get_kept(&mut reader, key, 1));
        assert_eq!(writer.fetch_add(0, 5).unwrap().old, 1);
        assert_eq!(number(&mut reader, 0), Some(6));
        get_kept(&mut reader, 1, 1);
        writer.remove(1).unwrap();
        assert_eq!(number(&mut reader, 1), None);
        writer.put(1, &9_u64.to_le_bytes()).unwrap();
        get_kept(&mut reader, 1, 9);
        (2..8).for_each(|key| get_kept(&mut reader, key, 1));
        let closings = writer.counters().closings;
        let many: Vec<(u64, [u8; 8])> = (2..8).map(|key| (key, 7_u64.to_le_bytes())).collect();
        writer.put_many(&many, &mut Vec::new()).unwrap();
        assert!(writer.counters().closings > closings);
        (2..8).for_each(|key| assert_eq!(number(&mut reader, key), Some(7)));
    });
}

#[test]
fn readers_of_kept_values_see_every_write_that_was_answered() {
    const KEYS: u64 = 3;
    const WRITES: u64 = 120;
    on_each(|cluster, _| {
        let (answered, is_over) = ([const { AtomicU64::new(0) }; KEYS as usize], AtomicBool::new(false));
        let mut writer = cluster.session(None);
        (0..KEYS).for_each(|key| _ = writer.put(key, &0_u64.to_le_bytes()).unwrap());
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let mut session = cluster.session(Some(CACHE));
                    let (answered, is_over) = (&answered, &is_over);
                    scope.spawn(move || {
                        let mut last = [0; KEYS as usize];
                        // Acquire: what a writer did before it said so is seen. Partner: the Release below.
                        while !is_over.load(Ordering::Acquire) {
                            for (key, last) in (0..KEYS).zip(&mut last) {
                                let expected = answered[key as usize].load(Ordering::Acquire).max(*last);
                                *last = number(&mut session, key).unwrap();
                                assert!(*last >= expected, "key {key}: {last} behind {expected}");
                            }
                        }
                        session.counters().value_hits
                    })
                })
                .collect();
            for turn in 1..=WRITES {
                let key = turn % KEYS;
                writer.put(key, &turn.to_le_bytes()).unwrap();
                // Release: as said above.
                answered[key as usize].store(turn, Ordering::Release);
                std::thread::sleep(Duration::from_millis(turn % 4));
            }
            is_over.store(true, Ordering::Release);
            let hits: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
            println!("{hits} hits, {} closings", writer.counters().closings);
            assert!(hits > WRITES && writer.counters().closings > WRITES / 10, "{hits} hits");
        });
    });
}

#[test]
fn nothing_is_kept_unless_said() {
    let cluster = Cluster::start(1, false);
    let table = cluster.table(ValueKind::Fixed(8), None);
    let mut session = table.session(Options::default()).unwrap();
    session.put(1, &[1; 8]).unwrap();
    let get_all = |session: &mut Session<u64>| {
        for _ in 0..2_000 {
            session.get(1).unwrap();
        }
        session.counters().value_hits
    };
    assert_eq!((get_all(&mut session), table.cache_stats().value_bytes), (0, 0));
    assert!(table.set_value_cache(ValueCache::of_bytes(1 << 20)).unwrap());
    assert!(get_all(&mut session) > 0, "2,000 reads and one write");
    assert!((1..=1 << 20).contains(&table.cache_stats().value_bytes));
    assert!(table.set_value_cache(ValueCache::of_bytes(0)).unwrap());
    let hits = session.counters().value_hits;
    assert_eq!((get_all(&mut session), table.cache_stats().value_bytes), (hits, 0));
}
