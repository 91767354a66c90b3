//! Conditional writes by the facade: what is refused by name, counters of many tasks, every kind of key.

use farsight::{EngineKind, Exchanges, Key, Options, WriteError, WriteOutcome};

use crate::store::{TestStore, on_every_engine};

const MEMORY_BYTES: u64 = 16 << 20;
const TASKS: u64 = 200;

on_every_engine!(operands_are_checked, tasks_count_together, each_kind_of_key_has_them);

fn operands_are_checked(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let mut session = store.create_table::<u64>("t", 16).session(Options::default()).expect("a session");
    let (mut outcomes, mut exchanges) = (Vec::new(), Exchanges::default());
    let (value, short) = ([7; 16], [7; 8]);
    let sizes = |error: WriteError| match error {
        WriteError::WrongValueSize { index, expected, got_bytes, .. } => {
            (index, expected.bytes_max(), got_bytes)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(sizes(session.compare_and_set(1, 0, &short).expect_err("8 B")), (0, 16, 8));
    // Together they are as long as two values.
    let swapped = session.compare_and_set_value(1, &short, &[7; 24]).expect_err("8 B and 24 B");
    assert_eq!(sizes(swapped), (0, 16, 8));
    assert_eq!(sizes(session.swap(1, &short).expect_err("8 B")), (0, 16, 8));
    let sets = [(1, 0, &value[..]), (2, 0, &short[..])];
    assert_eq!(sizes(session.compare_and_set_many(&sets, &mut outcomes).expect_err("8 B")), (1, 16, 8));
    let swaps = [(1, &value[..]), (2, &short[..])];
    assert_eq!(sizes(session.swap_many(&swaps, &mut exchanges).expect_err("8 B")), (1, 16, 8));
    let adding = session.fetch_add(1, 1).expect_err("16 B are no integer");
    assert!(matches!(adding, WriteError::NotInteger { value_bytes: 16, .. }), "{adding:?}");
    assert!(adding.to_string().contains("integers of 8 B"), "{adding}");
    let many = session.fetch_add_many(&[(1, 1)], &mut exchanges);
    assert!(matches!(many, Err(WriteError::NotInteger { .. })), "{many:?}");
    assert_eq!(session.get(1).expect("a get"), None, "nothing of it was done");

    let integers =
        store.create_table::<u64>("integers", 8).asynchronous(Options::default()).expect("a driver");
    let wide = pollster::block_on(integers.compare_and_set(1, 0, &value)).expect_err("16 B");
    assert_eq!(sizes(wide), (0, 8, 16));
}

fn tasks_count_together(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = store.create_table::<u64>("t", 8).asynchronous(Options::default()).expect("a driver");
    let executor = async_executor::Executor::new();
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let table = table.clone();
            executor.spawn(async move {
                let added = table.fetch_add(7, 1).await.expect("an addition");
                let swapped = table.swap(100 + task % 10, &task.to_le_bytes()).await.expect("a swap");
                (added.old, swapped.old.map(|old| u64::from_le_bytes(old.try_into().expect("8 B"))))
            })
        })
        .collect();
    let told = pollster::block_on(executor.run(async {
        let mut told = Vec::new();
        for task in tasks {
            told.push(task.await);
        }
        told
    }));
    let mut sums: Vec<u64> = told.iter().map(|(old, _)| *old).collect();
    sums.sort_unstable();
    assert!(sums.into_iter().eq(0..TASKS), "each sum before is told to one task");
    // Each value that was swapped in is either swapped out by one task or there at the end.
    let mut values: Vec<u64> = told.iter().filter_map(|(_, old)| *old).collect();
    let last = pollster::block_on(table.multi_get(&(100..110).collect::<Vec<u64>>())).expect("a get");
    values.extend(last.iter().flatten().map(|(value, _)| u64::from_le_bytes(value.try_into().expect("8 B"))));
    values.sort_unstable();
    assert!(values.into_iter().eq(0..TASKS));

    let read = pollster::block_on(table.get(7)).expect("a get").expect("a counter");
    let stale = pollster::block_on(table.remove_if(7, read.version - 1)).expect("an outcome");
    assert_eq!(stale, WriteOutcome::Differs(read.version));
    let set = pollster::block_on(table.compare_and_set_value(7, &read.value, &[0; 8])).expect("an outcome");
    assert!(matches!(set, WriteOutcome::Replaced(version) if version > read.version), "{set:?}");
}

fn each_kind_of_key_has_them(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    kind::<i64>(&store, "i64", [i64::MIN, -1, i64::MAX]);
    kind::<f64>(&store, "f64", [f64::NEG_INFINITY, -0.0, f64::NAN]);
    kind::<[u8; 8]>(&store, "bytes", [[0; 8], *b"farsight", [255; 8]]);
}

fn kind<K: Key>(store: &TestStore, name: &str, keys: [K; 3]) {
    let mut session = store.create_table::<K>(name, 8).session(Options::default()).expect("a session");
    let mut exchanges = Exchanges::default();
    session.fetch_add_many(&keys.map(|key| (key, -5)), &mut exchanges).expect("additions");
    assert!(exchanges.outcomes().iter().all(|outcome| matches!(outcome, WriteOutcome::Inserted(_))));
    session.fetch_add_many(&[(keys[0], 7), (keys[0], i64::MIN)], &mut exchanges).expect("additions");
    assert_eq!([exchanges.old_integer(0).cast_signed(), exchanges.old_integer(1).cast_signed()], [-5, 2]);
    let held = session.get(keys[0]).expect("a get").expect("a sum");
    assert_eq!(held.value, (i64::MIN + 2).to_le_bytes());
    let added = session.fetch_add(keys[0], i64::MIN).expect("an addition");
    assert_eq!((added.old.cast_signed(), added.is_inserted), (i64::MIN + 2, false));
    let removed = session.remove_if(keys[0], added.version).expect("an outcome");
    assert_eq!(removed, WriteOutcome::Removed(added.version));
    let again = session.fetch_add(keys[0], 1).expect("an addition");
    assert!(again.is_inserted && again.old == 0 && again.version > added.version, "{again:?}");
}
