//! Pairs with deadlines by the facade: no read returns one that has ended, whichever way it goes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use farsight::{
    Access, Answers, EngineKind, Lifetime, Neighbour, Options, Pairs, Session, Table, TableOptions,
    WriteError, WriteOutcome,
};
use farsight_base::prng::SplitMix64;

use crate::store::TestStore;

const MEMORY_BYTES: u64 = 32 << 20;
const HOUR: Duration = Duration::from_secs(3600);

/// A table whose pairs stay for an hour.
fn table(store: &TestStore, engine: &'static EngineKind, name: &str) -> Table<u64> {
    let options = TableOptions { engine: Some(engine), ..TableOptions::default() };
    let values = engine.longest_values().expiring(HOUR.as_millis() as u64);
    store.connect().create_table_of(name, values, &options).expect("a table")
}

fn sessions(table: &Table<u64>) -> [Session<u64>; 2] {
    let session = |access| table.session(Options { access }).expect("a session");
    [session(Access::OneSided), session(Access::Rpc)]
}

/// Long ranges of keys have ended, across pages of a scan and across nodes.
fn reads_leave_out_what_has_ended(engine: &'static EngineKind) {
    const KEYS: u64 = 3_000;
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = table(&store, engine, "t");
    let [mut session, mut by_calls] = sessions(&table);
    // Over all nodes' ranges.
    let key_of = |number: u64| number * (u64::MAX / KEYS);
    let has_ended = |number: u64| !(700..2_900).contains(&number) || number % 7 > 1 || number / 300 == 5;
    let value = |number: u64| vec![number as u8; number as usize % 50];
    for number in 0..KEYS {
        let lifetime = if has_ended(number) { Lifetime::For(Duration::ZERO) } else { Lifetime::Endless };
        session.set_lifetime(lifetime).expect("deadlines");
        session.put(key_of(number), &value(number)).expect("a put");
    }
    let lasting: Vec<u64> = (0..KEYS).filter(|number| !has_ended(*number)).collect();
    for session in [&mut session, &mut by_calls] {
        let keys: Vec<u64> = (0..KEYS).map(key_of).collect();
        let mut answers = Answers::default();
        session.multi_get(&keys, &mut answers).expect("values");
        for (number, found) in (0..KEYS).zip(answers.iter()) {
            let expected = (!has_ended(number)).then(|| value(number));
            assert_eq!(found.map(|(value, _)| value.to_vec()), expected, "number {number}");
        }
        assert_eq!(session.get(key_of(0)).expect("an answer"), None);
        let expected: Vec<_> = lasting.iter().map(|number| (key_of(*number), value(*number))).collect();
        let found = session.scan(..).map(|pair| pair.expect("a pair"));
        assert!(found.map(|(key, entry)| (key, entry.value.to_vec())).eq(expected.iter().cloned()));
        assert_eq!(session.count(..).expect("a count"), lasting.len() as u64);
        let found = session.keys_descending(..).map(|key| key.expect("a key"));
        assert!(found.eq(lasting.iter().rev().map(|number| key_of(*number))));
        let found = session.scan_descending(..).map(|pair| pair.expect("a pair"));
        assert!(found.map(|(key, entry)| (key, entry.value.to_vec())).eq(expected.into_iter().rev()));
        let mut pairs = Pairs::default();
        for which in Neighbour::ALL {
            session.neighbours(which, &keys, &mut pairs).expect("neighbours");
            for (number, index) in (0..KEYS).zip(0..) {
                let below = |least: u64| lasting.iter().rev().find(|lasting| **lasting + least <= number);
                let above = |least: u64| lasting.iter().find(|lasting| **lasting >= number + least);
                let expected = match which {
                    Neighbour::Lower => below(1),
                    Neighbour::Floor => below(0),
                    Neighbour::Ceiling => above(0),
                    Neighbour::Higher => above(1),
                };
                let found = pairs.scan(index).next().map(|pair| pair.key);
                assert_eq!(found, expected.map(|number| key_of(*number)), "{which:?} of number {number}");
            }
        }
        assert_eq!(
            session.last().expect("an answer").map(|(key, _)| key),
            lasting.last().map(|last| key_of(*last))
        );
    }
    let asynchronous = table.asynchronous(Options::default()).expect("a driver");
    let found = pollster::block_on(asynchronous.scan(.., usize::MAX)).expect("pairs");
    assert!(found.iter().map(|pair| pair.key).eq(lasting.iter().map(|number| key_of(*number))));
}

#[test]
fn reads_leave_out_what_has_ended_at_a_server() {
    reads_leave_out_what_has_ended(EngineKind::XSTORE);
}

#[test]
fn reads_leave_out_what_has_ended_over_nodes() {
    reads_leave_out_what_has_ended(EngineKind::XSTORE_D);
}

/// Many tasks' puts share calls, each with a lifetime of its own.
#[test]
fn tasks_put_pairs_that_stay_differently() {
    let store = TestStore::start(EngineKind::XSTORE, MEMORY_BYTES);
    let table = table(&store, EngineKind::XSTORE, "t");
    let tasks = table.asynchronous(Options::default()).expect("a driver");
    let executor = async_executor::Executor::new();
    let spawned: Vec<_> = (0..600_u64)
        .map(|key| {
            let tasks = tasks.clone();
            executor.spawn(async move {
                match key % 3 {
                    0 => tasks.put_for(key, b"ended", Duration::ZERO).await,
                    1 => tasks.put_for(key, b"lasting", HOUR * (1 + key as u32 % 5)).await,
                    _ => tasks.put(key, b"usual").await,
                }
            })
        })
        .collect();
    pollster::block_on(executor.run(async {
        for task in spawned {
            assert!(matches!(task.await, Ok(WriteOutcome::Inserted(_))));
        }
    }));
    let mut session = table.session(Options::default()).expect("a session");
    for key in 0..600 {
        let left = match session.time_to_live(key).expect("an answer") {
            Some(Lifetime::For(left)) => Some(left),
            None => None,
            other => panic!("{other:?}"),
        };
        let expected = [None, Some(HOUR * (1 + key as u32 % 5)), Some(HOUR)][key as usize % 3];
        let is_right = match (left, expected) {
            (Some(left), Some(expected)) => left <= expected && left + HOUR / 2 > expected,
            (left, expected) => left == expected,
        };
        assert!(is_right, "key {key}: {left:?}, not {expected:?}");
    }
    let plain = store.connect().create_blocks_table::<u64>("plain").expect("a table");
    let plain = plain.asynchronous(Options::default()).expect("a driver");
    let refused = pollster::block_on(plain.put_for(1, b"one", HOUR)).expect_err("no deadlines");
    assert!(matches!(&refused, WriteError::NoDeadlines { table } if table == "plain"), "{refused:?}");
    assert!(pollster::block_on(plain.put(1, b"one")).is_ok());
}

/// Runs a test with each engine whose pairs have deadlines.
fn of_each_engine(test: fn(&'static EngineKind)) {
    [EngineKind::XSTORE, EngineKind::XSTORE_D, EngineKind::FLEXKV].into_iter().for_each(test);
}

#[test]
fn a_lifetime_is_told_and_changed() {
    of_each_engine(lifetimes_are_told_and_changed);
}

fn lifetimes_are_told_and_changed(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let mut session = table(&store, engine, "t").session(Options::default()).expect("a session");
    let put = session.put(1, b"one").expect("a put");
    assert!(matches!(put, WriteOutcome::Inserted(_)));
    let left = |lifetime| match lifetime {
        Some(Lifetime::For(left)) => left,
        other => panic!("{other:?}"),
    };
    let of_table = left(session.time_to_live(1).expect("an answer"));
    assert!(of_table <= HOUR && of_table > HOUR / 2, "{of_table:?}");
    let day = 24 * HOUR;
    session.put_for(2, b"two", day).expect("a put");
    assert!(left(session.time_to_live(2).expect("an answer")) > day / 2);
    assert_eq!(session.lifetime(), Lifetime::OfTable, "a put's own lifetime is no other's");
    assert!(session.set_time_to_live(2, Lifetime::Endless).expect("an answer"));
    assert_eq!(session.time_to_live(2).expect("an answer"), Some(Lifetime::Endless));
    assert_eq!(session.get(2).expect("an answer").expect("a pair").value, b"two");
    assert!(session.set_time_to_live(2, Lifetime::For(Duration::ZERO)).expect("an answer"));
    assert_eq!(session.time_to_live(2).expect("an answer"), None);
    assert!(!session.set_time_to_live(2, Lifetime::Endless).expect("an answer"), "it has ended");
    // A sum keeps the deadline of the pair that was there.
    session.put_for(3, &7_u64.to_le_bytes(), day).expect("a put");
    assert_eq!(session.fetch_add(3, 5).expect("a sum").old, 7);
    assert!(left(session.time_to_live(3).expect("an answer")) > day / 2);
    session.set_lifetime(Lifetime::For(day)).expect("deadlines");
    assert!(session.fetch_add(4, 5).expect("a sum").is_inserted);
    assert!(left(session.time_to_live(4).expect("an answer")) > day / 2);
    let error = session.clock_error().expect("an answer").expect("a clock");
    assert!(error < Duration::from_secs(5), "{error:?}");

    let options = TableOptions { engine: Some(engine), ..TableOptions::default() };
    let plain = store.connect().create_table_of::<u64>("plain", engine.longest_values(), &options);
    let plain = plain.expect("a table");
    let mut plain = plain.session(Options::default()).expect("a session");
    let refused = plain.put_for(1, b"one", HOUR).expect_err("no deadlines");
    assert!(matches!(&refused, WriteError::NoDeadlines { table } if table == "plain"), "{refused:?}");
    plain.put(1, b"one").expect("a put");
    assert_eq!(plain.time_to_live(1).expect("an answer"), Some(Lifetime::Endless));
    assert_eq!(plain.clock_error().expect("an answer"), None);
}

#[test]
fn a_load_s_pairs_stay_as_long_as_the_table_says() {
    of_each_engine(pairs_of_a_load_stay_as_long_as_the_table_says);
}

fn pairs_of_a_load_stay_as_long_as_the_table_says(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = table(&store, engine, "t");
    let mut session = table.session(Options::default()).expect("a session");
    let mut load = table.bulk_load().expect("a load");
    for key in 0..2_000_u64 {
        load.push(key, &key.to_le_bytes()).expect("a pair");
    }
    load.finish().expect("loaded");
    assert_eq!(session.pairs().collect::<Result<Vec<_>, _>>().expect("pairs").len(), 2_000);
    assert!(
        matches!(session.time_to_live(1_999).expect("an answer"), Some(Lifetime::For(left)) if left > HOUR / 2)
    );
    if !engine.is_ordered {
        // It is loaded by writes, into a table that may have pairs.
        return;
    }
    let mut again = table.bulk_load().expect("a load");
    let refused = again.push(5_000, b"late").and_then(|()| again.finish().map(drop));
    let refused = farsight::with_causes(&refused.expect_err("the table has pairs"));
    assert!(refused.contains("this one has 2000 pairs"), "{refused}");
}

/// A client makes deadlines by what it knows of the server's clock. To the server they may pass so much
/// later.
fn wait_for_the_server(session: &mut Session<u64>) {
    let error = session.clock_error().expect("an answer").expect("a clock");
    std::thread::sleep(error + Duration::from_millis(1));
}

/// By the clock of the test, which began before the pair was written.
#[test]
fn nothing_is_returned_after_its_deadline_and_the_clocks_errors() {
    of_each_engine(nothing_is_returned_late);
}

fn nothing_is_returned_late(engine: &'static EngineKind) {
    const STAYS: Duration = Duration::from_millis(40);
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = table(&store, engine, "t");
    let second = if engine.answers_reads { Access::Rpc } else { Access::OneSided };
    let [mut session, mut by_calls] =
        [Access::OneSided, second].map(|access| table.session(Options { access }).expect("a session"));
    let error = |session: &mut Session<u64>| session.clock_error().expect("an answer").expect("a clock");
    for round in 0..10_u64 {
        session.put_for(round, b"short", STAYS).expect("a put");
        let (written, writers) = (Instant::now(), error(&mut session));
        let (mut sees, mut attempts) = (true, 0);
        while sees {
            let asked = Instant::now();
            let reader = if attempts % 2 == 0 { &mut session } else { &mut by_calls };
            sees = reader.get(round).expect("an answer").is_some();
            // The writer may be wrong about the time, too.
            let errors = writers + error(reader);
            assert!(!sees || asked <= written + STAYS + errors, "{:?} after the put", asked - written);
            attempts += 1;
            assert!(written.elapsed() < Duration::from_secs(60), "it never ends");
        }
        wait_for_the_server(&mut session);
        assert!(matches!(session.insert(round, b"again").expect("an insert"), WriteOutcome::Inserted(_)));
    }
}

#[test]
fn random_operations_agree_with_a_map() {
    of_each_engine(operations_agree_with_a_map);
}

fn operations_agree_with_a_map(engine: &'static EngineKind) {
    let mut random = SplitMix64::fresh();
    let store = TestStore::start(engine, MEMORY_BYTES);
    let mut session = table(&store, engine, "t").session(Options::default()).expect("a session");
    // Pairs that last; those that have ended are nowhere.
    let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for _ in 0..2_000 {
        let (key, ends) = (random.below(100), random.below(3) == 0);
        let lifetime = match (ends, random.below(2)) {
            (true, _) => Lifetime::For(Duration::ZERO),
            (false, 0) => Lifetime::Endless,
            (false, _) => Lifetime::OfTable,
        };
        session.set_lifetime(lifetime).expect("deadlines");
        let value = vec![random.next_u64() as u8; random.below(60) as usize];
        let held = model.get(&key).cloned();
        let store = |model: &mut BTreeMap<u64, Vec<u8>>| {
            if ends { model.remove(&key) } else { model.insert(key, value.clone()) }
        };
        match random.below(6) {
            0 => {
                let outcome = session.insert(key, &value).expect("an insert");
                assert_eq!(matches!(outcome, WriteOutcome::Inserted(_)), held.is_none(), "{outcome:?}");
                if held.is_none() {
                    store(&mut model);
                }
            }
            1 => {
                let outcome = session.update(key, &value).expect("an update");
                assert_eq!(matches!(outcome, WriteOutcome::Replaced(_)), held.is_some(), "{outcome:?}");
                if held.is_some() {
                    store(&mut model);
                }
            }
            2 => {
                let outcome = session.remove(key).expect("a removal");
                assert_eq!(outcome == WriteOutcome::Absent, held.is_none(), "{outcome:?}");
                model.remove(&key);
            }
            3 => {
                let swapped = session.swap(key, &value).expect("a swap");
                assert_eq!(swapped.old.map(|old| old.to_vec()), held);
                store(&mut model);
            }
            4 => {
                let touched = session.set_time_to_live(key, lifetime).expect("a touch");
                assert_eq!(touched, held.is_some());
                if ends {
                    model.remove(&key);
                }
            }
            _ => {
                let found = session.get(key).expect("an answer").map(|entry| entry.value.to_vec());
                assert_eq!(found, held);
            }
        }
        if ends {
            wait_for_the_server(&mut session);
        }
    }
    let found = session.pairs().map(|pair| pair.expect("a pair"));
    let found: BTreeMap<u64, Vec<u8>> = found.map(|(key, entry)| (key, entry.value.to_vec())).collect();
    assert_eq!(found, model);
}

/// Puts a pair, once there is room for it: a pass over the table finds what has ended, and writers remove it.
fn put_with_patience(session: &mut Session<u64>, key: u64, value: &[u8]) {
    let begun = Instant::now();
    loop {
        match session.put(key, value) {
            Ok(_) => return,
            Err(WriteError::Refused { .. } | WriteError::Engine { .. })
                if begun.elapsed() < Duration::from_secs(60) =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("key {key}, after {:?}: {error}", begun.elapsed()),
        }
    }
}

/// A table of FlexKV takes several times its memory, of pairs that end. Its writers give the memory back.
#[test]
fn memory_of_pairs_that_ended_is_taken_again() {
    let store = TestStore::start(EngineKind::FLEXKV, 2 << 20);
    for keys_are_new in [false, true] {
        let table = table(&store, EngineKind::FLEXKV, &format!("t{keys_are_new}"));
        let mut session = table.session(Options::default()).expect("a session");
        session.set_lifetime(Lifetime::For(Duration::ZERO)).expect("deadlines");
        let (value, mut room) = (vec![7; 1_000], 0_u64);
        while session.put(room, &value).is_ok() {
            room += 1;
            assert!(room < 1 << 14, "more than the memory holds, before any pass");
        }
        assert!(room > 500, "{room} pairs of 1 kB in 4 MiB");
        for number in 0..3 * room {
            let key = if keys_are_new { 1 << 32 | number } else { number % room };
            put_with_patience(&mut session, key, &value);
        }
        session.set_lifetime(Lifetime::Endless).expect("deadlines");
        for key in 0..room / 2 {
            put_with_patience(&mut session, 1 << 60 | key, &value);
        }
        let lasting = session.pairs().map(|pair| pair.expect("a pair").0).collect::<BTreeSet<_>>();
        assert!(lasting.into_iter().eq((0..room / 2).map(|key| 1 << 60 | key)), "no other, and none lost");
    }
}

/// Whoever removes pairs that have ended removes none that was written anew.
#[test]
fn a_pair_that_is_written_anew_stays() {
    const THREADS: u64 = 3;
    let store = TestStore::start(EngineKind::FLEXKV, 1 << 20);
    let table = table(&store, EngineKind::FLEXKV, "t");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (table, mut random) = (&table, SplitMix64::fresh());
            scope.spawn(move || {
                let mut session = table.session(Options::default()).expect("a session");
                let begun = Instant::now();
                // Several passes find what has ended.
                while begun.elapsed() < Duration::from_secs(4) {
                    let key = random.below(60) * THREADS + thread;
                    session.set_lifetime(Lifetime::For(Duration::ZERO)).expect("deadlines");
                    put_with_patience(&mut session, key, &vec![0; [0, 100, 1_000][random.below(3) as usize]]);
                    if random.below(4) > 0 {
                        continue;
                    }
                    session.set_lifetime(Lifetime::OfTable).expect("deadlines");
                    let value = random.next_u64().to_le_bytes();
                    put_with_patience(&mut session, key, &value);
                    for _ in 0..random.below(40) {
                        let found = session.get(key).expect("an answer").map(|entry| entry.value.to_vec());
                        assert_eq!(found.as_deref(), Some(&value[..]), "key {key}");
                    }
                }
            });
        }
    });
}

/// The longest values and keys, with deadlines before them.
#[test]
fn long_keys_and_values_have_their_deadlines() {
    let store = TestStore::start(EngineKind::FLEXKV, 8 << 20);
    let client = store.connect();
    let values = EngineKind::FLEXKV.longest_values().expiring(HOUR.as_millis() as u64);
    let options = TableOptions { engine: Some(EngineKind::FLEXKV), ..TableOptions::default() };
    let longest = values.bytes_max();
    let by_integer = client.create_table_of::<u64>("integers", values, &options).expect("a table");
    let mut session = by_integer.session(Options::default()).expect("a session");
    session.put(1, &vec![3; longest]).expect("the longest value");
    assert_eq!(session.get(1).expect("an answer").expect("a pair").value, vec![3; longest]);
    session.put(1, &vec![3; longest + 1]).expect_err("a longer one");
    let options = TableOptions { engine: Some(EngineKind::FLEXKV), ..TableOptions::default() };
    let by_bytes = client.create_table_of::<[u8]>("bytes", values, &options).expect("a table");
    let mut session = by_bytes.session(Options::default()).expect("a session");
    for key_bytes in [0, 1, 7, 8, 9, 255, 5_000, 16_000] {
        let key = vec![5; key_bytes];
        let room = EngineKind::FLEXKV.byte_pair_bytes_max - key_bytes - 8;
        let value = vec![key_bytes as u8; room.min(longest)];
        session.put_for(&key[..], &value, Duration::ZERO).expect("a put");
        assert_eq!(session.get(&key[..]).expect("an answer").map(|entry| entry.value), None);
        session.put(&key[..], &value).expect("a put");
        assert_eq!(session.get(&key[..]).expect("an answer").expect("a pair").value, value);
        if room <= longest {
            session.put(&key[..], &vec![0; room + 1]).expect_err("a pair that is too long");
        }
    }
    assert_eq!(session.pairs().collect::<Result<Vec<_>, _>>().expect("pairs").len(), 8);
}
