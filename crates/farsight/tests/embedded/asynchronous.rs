//! Futures of many tasks on several runtimes against `BTreeMap`, their cancellation, and the server's end.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use async_executor::Executor;
use farsight::{Answers, AsyncTable, EngineKind, Entry, Key, Options, ValueKind, WriteError, WriteOutcome};
use farsight_base::prng::SplitMix64;

use crate::server::TestServer;
use crate::store::{TestStore, on_every_engine};

const MEMORY_BYTES: u64 = 64 << 20;
const TASKS: u64 = 10_000;
const OPERATIONS: usize = 8;
/// The keys of each task, so that it knows what it must find.
const KEYS: u64 = 3;
/// More than any of these tests takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

type Model = BTreeMap<u64, Vec<u8>>;

fn table<K: Key>(server: &TestServer, value_bytes: usize) -> AsyncTable<K> {
    let table = server.connect().create_table::<K>("t", value_bytes).expect("a table");
    table.asynchronous(Options::default()).expect("a driver")
}

fn table_of<K: Key>(store: &TestStore, value_bytes: usize) -> AsyncTable<K> {
    store.create_table::<K>("t", value_bytes).asynchronous(Options::default()).expect("a driver")
}

on_every_engine!(ten_thousand_tasks_on_tokio, tasks_go_on_in_the_next_life, ordered_reads_agree_with_a_map);

/// One task: random operations on keys of its own, each checked at once. Returns what it leaves.
async fn check_own_keys(table: AsyncTable<u64>, task: u64) -> Model {
    let mut random = SplitMix64::new(task);
    let mut model = Model::new();
    for _ in 0..OPERATIONS {
        let key = task + TASKS * random.below(KEYS);
        let value = random.next_u64().to_le_bytes();
        let present = model.contains_key(&key);
        let outcome = match random.below(5) {
            0 => table.insert(key, &value).await,
            1 => table.update(key, &value).await,
            2 => table.put(key, &value).await,
            3 => table.remove(key).await,
            _ => {
                let found = table.get(key).await.expect("a read succeeds");
                assert_eq!(
                    found.map(|entry| entry.value.into_vec()).as_ref(),
                    model.get(&key),
                    "seed {task}"
                );
                continue;
            }
        };
        match outcome.expect("a write succeeds") {
            WriteOutcome::Inserted(_) => assert!(!present && model.insert(key, value.to_vec()).is_none()),
            WriteOutcome::Replaced(_) => assert!(present && model.insert(key, value.to_vec()).is_some()),
            WriteOutcome::Removed(_) => assert!(present && model.remove(&key).is_some()),
            WriteOutcome::Exists(_) => assert!(present, "seed {task}"),
            WriteOutcome::Absent => assert!(!present, "seed {task}"),
            other @ (WriteOutcome::Differs(_) | WriteOutcome::Failed(_)) => {
                panic!("a single write returned {other:?} as an outcome")
            }
        }
    }
    let keys: Vec<u64> = (0..KEYS).map(|index| task + TASKS * index).collect();
    let answers = table.multi_get(&keys).await.expect("a read succeeds");
    for (key, answer) in keys.iter().zip(answers.iter()) {
        assert_eq!(answer.map(|(value, _)| value), model.get(key).map(Vec::as_slice), "seed {task}");
    }
    model
}

/// The table holds exactly `expected`, and its GETs went in batches.
async fn check_table(table: &AsyncTable<u64>, expected: &Model) {
    assert!(expected.len() > 1_000, "the run has stored too little to say anything");
    let pairs = table.scan(.., usize::MAX).await.expect("a scan succeeds");
    let found: Model = pairs.iter().map(|pair| (pair.key, pair.value.to_vec())).collect();
    assert_eq!((pairs.len(), &found), (expected.len(), expected));
    let (meters, counters) = (table.meters(), table.counters());
    assert_eq!(counters.writes + counters.gets, TASKS * (OPERATIONS as u64 + KEYS));
    let calls_of_writes_alone = counters.writes - counters.writes / 4;
    assert!(meters.calls < calls_of_writes_alone, "{} calls for {} writes", meters.calls, counters.writes);
}

fn ten_thousand_tasks_on_tokio(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = table_of(&store, 8);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    let runtime = runtime.expect("a runtime");
    runtime.block_on(async {
        let tasks: Vec<_> =
            (0..TASKS).map(|task| tokio::spawn(check_own_keys(table.clone(), task))).collect();
        let mut expected = Model::new();
        for task in tasks {
            let done = tokio::time::timeout(PATIENCE, task).await.expect("no task hangs");
            expected.extend(done.expect("no task panics"));
        }
        check_table(&table, &expected).await;
    });
}

#[test]
fn ten_thousand_tasks_on_another_runtime() {
    let server = TestServer::start(MEMORY_BYTES);
    let table = table(&server, 8);
    let executor = Executor::new();
    pollster::block_on(executor.run(async {
        let tasks: Vec<_> =
            (0..TASKS).map(|task| executor.spawn(check_own_keys(table.clone(), task))).collect();
        let mut expected = Model::new();
        for task in tasks {
            expected.extend(task.await);
        }
        check_table(&table, &expected).await;
    }));
}

#[test]
fn long_requests_are_answered_whole() {
    const PAIRS: u64 = 5_000;
    let server = TestServer::start(MEMORY_BYTES);
    let sync = server.connect().create_table::<f64>("t", 16).expect("a table");
    let value = |key: u64| [key.to_le_bytes(), (!key).to_le_bytes()].concat();
    let mut load = sync.bulk_load().expect("an empty table");
    for key in 0..PAIRS {
        load.push(key as f64, &value(key)).expect("ascending keys");
    }
    load.finish().expect("a loaded table");
    let table = sync.asynchronous(Options::default()).expect("a driver");
    pollster::block_on(async {
        for count in [0, 1, 255, 256, 257, 3_000] {
            // Every other key is absent.
            let keys: Vec<f64> = (0..count).map(|index| f64::from(index) / 2.0).collect();
            let answers: Answers = table.multi_get(&keys).await.expect("answers");
            assert_eq!(answers.len(), keys.len());
            for (key, answer) in keys.iter().zip(answers.iter()) {
                let expected = (key.fract() == 0.0).then(|| value(*key as u64));
                assert_eq!(answer.map(|(value, _)| value.to_vec()), expected, "{key}");
            }
        }
        for (from, to, limit) in
            [(0, 0, 9), (7, 7, 0), (7, 9, 9), (7, 900, 893), (0, PAIRS, 2_000), (9, PAIRS, 9_999)]
        {
            let pairs = table.scan(from as f64..to as f64, limit).await.expect("pairs");
            let found: Vec<_> = pairs.iter().map(|pair| (pair.key as u64, pair.value.to_vec())).collect();
            let expected: Vec<_> = (from..to).take(limit).map(|key| (key, value(key))).collect();
            assert_eq!(found, expected, "{from}..{to}, {limit}");
            assert_eq!(pairs.scans(), 1);
        }
        let error = table.put(1.0, &[0; 15]).await.expect_err("too short a value");
        assert!(matches!(
            error,
            WriteError::WrongValueSize { expected: ValueKind::Fixed(16), got_bytes: 15, .. }
        ));
    });
}

/// Polls `future` once, and drops it.
fn poll_once<T>(future: impl Future<Output = T>) -> bool {
    let mut future = Box::pin(future);
    matches!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(_))
}

#[test]
fn cancelled_operations_harm_no_other() {
    const STORM: u64 = 30_000;
    let server = TestServer::start(MEMORY_BYTES);
    let table = table::<u64>(&server, 8);
    let steady: Vec<u64> = (0..100).map(|index| STORM + index).collect();
    pollster::block_on(async {
        for key in &steady {
            table.put(*key, &key.to_le_bytes()).await.expect("a write succeeds");
        }
    });
    std::thread::scope(|scope| {
        let storm = table.clone();
        scope.spawn(move || {
            let mut random = SplitMix64::new(1);
            for key in 0..STORM {
                match random.below(6) {
                    0 => drop(storm.put(key, &[9; 8])),
                    1 | 2 => drop(poll_once(storm.put(key, &key.to_le_bytes()))),
                    3 => drop(poll_once(storm.get(key))),
                    4 => drop(poll_once(storm.multi_get(&[key, key + 1]))),
                    _ => drop(poll_once(storm.scan(key.., 100))),
                }
            }
        });
        pollster::block_on(async {
            for key in steady.iter().cycle().take(2_000) {
                let found = table.get(*key).await.expect("a read succeeds");
                assert_eq!(found.expect("it is stored").value, key.to_le_bytes());
            }
        });
    });
    // A cancelled write happened as it was requested or not at all; one never polled did not happen.
    let pairs = pollster::block_on(table.scan(..STORM, usize::MAX)).expect("a scan succeeds");
    for pair in pairs.iter() {
        assert_eq!(pair.value, pair.key.to_le_bytes());
    }
}

#[test]
fn all_tasks_learn_that_the_server_is_gone() {
    let TestServer { server, directory } = TestServer::start(MEMORY_BYTES);
    let client = farsight::connect(&server.url().to_string()).expect("a client");
    let table = client.create_table::<u64>("t", 8).expect("a table");
    let table = table.asynchronous(Options::default()).expect("a driver");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let mut tasks = Vec::new();
        for key in 0..200 {
            let table = table.clone();
            tasks.push(tokio::spawn(async move {
                if key % 2 == 0 {
                    while table.get(key).await.is_ok() {}
                    return;
                }
                let error = loop {
                    if let Err(error) = table.put(key, &[1; 8]).await {
                        break error;
                    }
                };
                assert!(
                    matches!(error, WriteError::Indeterminate { entries: 1, .. } | WriteError::Engine { .. }),
                    "{error:?}"
                );
            }));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        tokio::task::spawn_blocking(|| server.shutdown()).await.expect("no panic").expect("it stops");
        for task in tasks {
            tokio::time::timeout(PATIENCE, task).await.expect("no task hangs").expect("no task panics");
        }
    });
    drop(directory);
}

fn tasks_go_on_in_the_next_life(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = table_of::<u64>(&store, 8);
    pollster::block_on(table.put(1, &[1; 8])).expect("a write succeeds");
    let store = store.restart();
    drop(store.create_table::<u64>("t", 8));
    pollster::block_on(async {
        assert_eq!(table.scan(.., 10).await.expect("a read succeeds").len(), 0);
        let put = table.put(1, &[2; 8]).await.expect("a write succeeds");
        assert!(matches!(put, WriteOutcome::Inserted(_)), "{put:?}");
        assert_eq!(table.get(1).await.expect("a read succeeds").expect("it is stored").value, [2; 8]);
    });
}

#[test]
fn futures_may_move_between_threads() {
    fn sent<T: Send>(value: T) -> T {
        value
    }
    let server = TestServer::start(MEMORY_BYTES);
    let table = Arc::new(table::<[u8; 8]>(&server, 8));
    pollster::block_on(async {
        sent(table.put(*b"a key...", b"a value.")).await.expect("a write succeeds");
        sent(table.insert(*b"a key...", b"another.")).await.expect("a write succeeds");
        sent(table.update(*b"a key...", b"a third.")).await.expect("a write succeeds");
        assert!(sent(table.get(*b"a key...")).await.expect("a read succeeds").is_some());
        assert_eq!(sent(table.multi_get(&[*b"a key..."])).await.expect("a read succeeds").len(), 1);
        assert_eq!(sent(table.scan(.., 5)).await.expect("a read succeeds").len(), 1);
        sent(table.remove(*b"a key...")).await.expect("a write succeeds");
    });
}

/// Scans both ways in pieces, and neighbours of keys that are there, that are not, and beyond all.
fn ordered_reads_agree_with_a_map(engine: &'static EngineKind) {
    const PAIRS: u64 = 5_000;
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = table_of::<u64>(&store, 8);
    let mut random = SplitMix64::fresh();
    let mut keys: Vec<u64> = (0..PAIRS).map(|_| random.next_u64() >> (8 * random.below(8))).collect();
    keys.extend([0, 1, u64::MAX - 1, u64::MAX, 1 << 53, (1 << 53) + 1]);
    pollster::block_on(async {
        assert_eq!(table.first().await.expect("a read succeeds"), None);
        let mut model = Model::new();
        for key in &keys {
            table.put(*key, &key.to_le_bytes()).await.expect("a write succeeds");
            model.insert(*key, key.to_le_bytes().to_vec());
        }
        let pair = |found: Option<(u64, Entry)>| found.map(|(key, entry)| (key, entry.value.into_vec()));
        let owned = |found: Option<(&u64, &Vec<u8>)>| found.map(|(key, value)| (*key, value.clone()));
        assert_eq!(pair(table.first().await.expect("a read")), owned(model.first_key_value()));
        assert_eq!(pair(table.last().await.expect("a read")), owned(model.last_key_value()));
        for _ in 0..300 {
            let near = keys[random.below(keys.len() as u64) as usize];
            let key = near.wrapping_add(random.below(3)).wrapping_sub(1);
            let above = (Bound::Excluded(key), Bound::Unbounded);
            let found = [
                table.lower(key).await,
                table.floor(key).await,
                table.ceiling(key).await,
                table.higher(key).await,
            ];
            let expected = [
                model.range(..key).next_back(),
                model.range(..=key).next_back(),
                model.range(key..).next(),
                model.range(above).next(),
            ];
            assert_eq!(found.map(|found| pair(found.expect("a read"))), expected.map(owned), "of {key}");
            let limit = random.below(2 * PAIRS) as usize;
            let pairs = table.scan_descending(..=key, limit).await.expect("a scan succeeds");
            let expected = model.range(..=key).rev().take(limit).map(|(key, _)| *key);
            assert!(pairs.iter().map(|pair| pair.key).eq(expected), "{limit} pairs from {key} down");
            let pairs = table.scan(key.., limit).await.expect("a scan succeeds");
            assert!(
                pairs.iter().map(|pair| pair.key).eq(model.range(key..).take(limit).map(|(key, _)| *key))
            );
        }
        assert!(table.scan_descending(7..7, 10).await.expect("a scan succeeds").is_empty());
    });
}
