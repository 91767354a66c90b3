//! Futures on keys of any length against `BTreeMap`, in many tasks, and their cancellation.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

use farsight::{AsyncTable, EngineKind, Options, TableOptions, WriteOutcome};
use farsight_base::prng::SplitMix64;

use crate::server::TestServer;

const MEMORY_BYTES: u64 = 64 << 20;
const TASKS: u64 = 500;
const OPERATIONS: usize = 40;
/// More keys than a piece of a multi-GET has.
const MANY: u64 = 700;
/// Lengths of keys and of values: none, a word's neighbours, and some that only several lines hold.
const LENGTHS: [usize; 7] = [0, 1, 7, 8, 9, 200, 5_000];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn table(server: &TestServer) -> AsyncTable<[u8]> {
    let table = server.connect().create_blocks_table::<[u8]>("t").expect("a table");
    table.asynchronous(Options::default()).expect("a driver")
}

/// A key of this task alone, of any length. The task's number stands behind what may be alike in others.
fn key_of(task: u64, number: u64) -> Vec<u8> {
    let filler = LENGTHS[(task + number) as usize % LENGTHS.len()];
    [&vec![0xff; filler][..], &task.to_be_bytes(), &number.to_be_bytes()[6..]].concat()
}

/// Random operations on keys of one task, each checked at once. Returns what they leave.
async fn check_own_keys(table: AsyncTable<[u8]>, task: u64, seed: u64) -> Model {
    let mut random = SplitMix64::new(seed ^ (task << 32));
    let mut model = Model::new();
    for _ in 0..OPERATIONS {
        let key = key_of(task, random.below(4));
        let length = LENGTHS[random.below(LENGTHS.len() as u64) as usize];
        let value: Vec<u8> = (0..length).map(|_| random.next_u64() as u8).collect();
        let before = model.get(&key).cloned();
        let found = table.get(&key).await.expect("a read succeeds");
        let version = found.as_ref().map_or(0, |entry| entry.version);
        assert_eq!(found.map(|entry| entry.value.into_vec()), before, "seed {seed}, task {task}");
        let is_there = before.is_some();
        let (outcome, stored, is_stored) = match random.below(7) {
            0 => (table.insert(&key, &value).await, before.or(Some(value)), !is_there),
            1 => (table.update(&key, &value).await, before.map(|_| value), is_there),
            2 => (table.put(&key, &value).await, Some(value), true),
            3 => (table.remove(&key).await, None, false),
            4 => (table.compare_and_set(&key, version, &value).await, Some(value), true),
            5 => (table.remove_if(&key, version + 1).await, before, false),
            _ => {
                let swapped = table.swap(&key, &value).await.expect("a write succeeds");
                assert_eq!(swapped.old.map(farsight::Value::into_vec), before, "seed {seed}, task {task}");
                model.insert(key, value);
                continue;
            }
        };
        let outcome = outcome.expect("a write succeeds");
        let was_stored = matches!(outcome, WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_));
        assert_eq!(was_stored, is_stored, "seed {seed}, task {task}: {outcome:?}");
        match stored {
            Some(value) => drop(model.insert(key, value)),
            None => drop(model.remove(&key)),
        }
    }
    let keys: Vec<Vec<u8>> = (0..4).map(|number| key_of(task, number)).collect();
    let lent: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let answers = table.multi_get(&lent).await.expect("a read succeeds");
    for (key, answer) in keys.iter().zip(answers.iter()) {
        assert_eq!(answer.map(|(value, _)| value), model.get(key).map(Vec::as_slice), "seed {seed}");
    }
    model
}

#[test]
fn tasks_with_keys_of_any_length() {
    let server = TestServer::start(MEMORY_BYTES);
    let table = table(&server);
    let seed = SplitMix64::fresh().next_u64();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
    let expected = runtime.expect("a runtime").block_on(async {
        let tasks: Vec<_> =
            (0..TASKS).map(|task| tokio::spawn(check_own_keys(table.clone(), task, seed))).collect();
        let mut expected = Model::new();
        for task in tasks {
            expected.extend(task.await.expect("no task panics"));
        }
        expected
    });
    assert!(expected.len() > 500, "seed {seed} has stored too little to say anything");
    let (meters, counters) = (table.meters(), table.counters());
    assert!(meters.doorbells < counters.gets + counters.writes, "{meters:?} for {counters:?}");
    let stored = server.connect().table::<[u8]>("t").expect("the table");
    let mut session = stored.session(Options::default()).expect("a session");
    let pairs = session.pairs().map(|pair| pair.map(|(key, entry)| (key, entry.value.into_vec())));
    let found: Vec<_> = pairs.collect::<Result<_, _>>().expect("a walk succeeds");
    assert_eq!(found.len(), expected.len(), "seed {seed}: no key comes twice");
    assert_eq!(found.into_iter().collect::<Model>(), expected, "seed {seed}");
}

#[test]
fn many_keys_of_any_length_are_answered_in_pieces() {
    let server = TestServer::start(MEMORY_BYTES);
    let options = TableOptions { engine: Some(EngineKind::FLEXKV), ..TableOptions::default() };
    let sums = server.connect().create_table_with::<[u8]>("sums", 8, &options).expect("a table");
    let sums = sums.asynchronous(Options::default()).expect("a driver");
    let keys: Vec<Vec<u8>> = (0..MANY).map(|number| key_of(7, number)).collect();
    pollster::block_on(async {
        for (number, key) in keys.iter().enumerate().step_by(2) {
            for _ in 0..2 {
                sums.fetch_add(key, number as i64).await.expect("a sum");
            }
        }
        for count in [0, 1, 255, 256, 257, keys.len()] {
            let lent: Vec<&[u8]> = keys[..count].iter().map(Vec::as_slice).collect();
            let answers = sums.multi_get(&lent).await.expect("answers");
            assert_eq!(answers.len(), count);
            for (number, answer) in answers.iter().enumerate() {
                let expected = (number % 2 == 0).then(|| (2 * number as u64).to_le_bytes());
                assert_eq!(answer.map(|(value, _)| value), expected.as_ref().map(|value| &value[..]));
            }
        }
    });
}

/// What is requested was the future's own, and the future is gone.
#[test]
fn keys_outlive_futures_that_are_dropped() {
    fn poll_once(future: impl Future + Send) {
        let mut future = Box::pin(future);
        let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending | Poll::Ready(_)));
    }
    let server = TestServer::start(MEMORY_BYTES);
    let table = table(&server);
    let mut random = SplitMix64::fresh();
    for number in 0..3_000 {
        let key = key_of(1, number);
        match random.below(3) {
            0 => poll_once(table.put(&key, &key)),
            1 => poll_once(table.get(&key)),
            _ => poll_once(table.multi_get(&[&key, &key])),
        }
    }
    pollster::block_on(table.put(b"", b"the last")).expect("a write succeeds");
    let stored = server.connect().table::<[u8]>("t").expect("the table");
    let mut session = stored.session(Options::default()).expect("a session");
    let mut found = 0;
    for pair in session.pairs() {
        let (key, entry) = pair.expect("a walk succeeds");
        assert!(entry.value == key[..] || key.is_empty(), "a write as it was requested, or none");
        found += 1;
    }
    assert!(found > 0, "the last one is there");
}
