//! Tables that are dropped, renamed and swapped under sessions that are open, over any fabric and of any
//! engine.
//!
//! Invariant: a session answers from the table to which its name led a second ago or later, and each batch
//! from one table. Where the name leads nowhere, the error says so. Nobody ever gets another table's bytes:
//! each value here names the table that it was written to.

use std::time::{Duration, Instant};

use farsight::{Access, Answers, ErrorCode, WriteOperation, WriteOutcome};
use farsight_base::prng::{SplitMix64, mix};
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_client::{
    CatalogueError, Client, Direction, OpenError, ReadError, ScanCursor, Session, Table, WriteError,
};

use super::pool_store::PoolStore;
use super::seed::Seed;
use crate::fabric::FabricUnderTest;

/// Within this time a session hears that its name leads elsewhere.
const HEARD: Duration = Duration::from_secs(1);
/// What a machine that is busy with other tests may add to that.
const BUSY: Duration = Duration::from_secs(4);
const KEYS: u64 = 500;
const BATCH: usize = 40;
/// Swaps under readers, and tables of one name under writers.
const SWAPS: usize = 60;
const LIVES: usize = 40;

fn key(index: u64) -> u64 {
    mix(index)
}

fn session(table: &Table) -> Session {
    table.session(Access::OneSided).expect("a session")
}

/// Puts all keys, whose values name the table's `life`.
fn fill(session: &mut Session, life: u64) {
    let life = life.to_le_bytes();
    let mut outcomes = Vec::new();
    session
        .write(WriteOperation::Put, (0..KEYS).map(|index| (key(index), &life[..])), &mut outcomes)
        .expect("puts");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Inserted(_))), "{outcomes:?}");
}

fn get(session: &mut Session, index: u64) -> Result<Option<u64>, ReadError> {
    let mut value = [0; 8];
    let found = session.get(key(index), &mut value)?;
    Ok(found.map(|_| u64::from_le_bytes(value)))
}

/// True if the name led nowhere, and the error says so.
fn is_gone(error: &OpenError, name: &str) -> bool {
    let text = error.to_string();
    matches!(error, OpenError::TableGone { was, is, .. } if was == is)
        && text.contains(&format!("{name:?}"))
        && text.contains("dropped or renamed")
}

fn read_is_gone(error: &ReadError, name: &str) -> bool {
    matches!(error, ReadError::Reopen { source, .. } if is_gone(source, name))
}

fn write_is_gone(error: &WriteError, name: &str) -> bool {
    matches!(error, WriteError::Reopen { source, .. } if is_gone(source, name))
}

fn refused(result: Result<(), CatalogueError>) -> ErrorCode {
    match result {
        Err(CatalogueError::Refused { source, .. }) => source.code,
        other => panic!("not refused: {other:?}"),
    }
}

fn drop_all(client: &Client, names: &[&str]) {
    for name in names {
        client.drop_table(name).expect("a drop");
    }
}

/// Waits until `reached`, as long as a change may take to be heard.
fn soon(what: &str, mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < HEARD + BUSY, "{what}: not within a second");
    }
}

/// A table that is dropped is gone for everybody within a second, and nobody else's.
///
/// # Panics
/// If a promise is broken.
pub fn a_dropped_table_is_gone<F: FabricUnderTest>(store: &PoolStore<F>) {
    let owner = store.connect();
    let other = store.create("other", 8);
    let mut beside = session(&other);
    fill(&mut beside, 7);
    for life in 1..4 {
        let table = store.create("t", 8);
        let (mut reader, mut writer, mut scanner) = (session(&table), session(&table), session(&table));
        fill(&mut writer, life);
        assert_eq!(get(&mut reader, 3).expect("a get"), Some(life));
        let mut scan = ScanCursor::new(Direction::Ascending, 0, u64::MAX);
        scan.next(&mut scanner).expect("a scan").expect("a pair");

        owner.drop_table("t").expect("a drop");
        assert_eq!(refused(owner.drop_table("t")), ErrorCode::UnknownTable, "it is dropped once");
        assert!(owner.tables().expect("a list").iter().all(|info| info.definition.name != "t"));
        soon("a get finds its table gone", || match get(&mut reader, 3) {
            Ok(found) => {
                assert_eq!(found, Some(life), "another table's value");
                false
            }
            Err(error) => {
                assert!(read_is_gone(&error, "t"), "{error:?}");
                true
            }
        });
        soon("a put finds its table gone", || {
            match writer.write_one(WriteOperation::Put, key(3), &life.to_le_bytes()) {
                Ok(_) => false,
                Err(error) => {
                    assert!(write_is_gone(&error, "t"), "{error:?}");
                    true
                }
            }
        });
        let cut = std::iter::from_fn(|| scan.next(&mut scanner).map(|pair| pair.map(drop)).transpose());
        assert!(cut.take(KEYS as usize).any(|pair| pair.is_err()), "a scan goes on in a dropped table");
        assert!(is_gone(&table.session(Access::OneSided).err().expect("no table"), "t"));

        // Another one of the name is another one.
        drop(store.create("t", 8));
        assert_eq!(get(&mut reader, 3).expect("a get"), None, "the dropped table's pair");
        writer.write_one(WriteOperation::Insert, key(3), &[9; 8]).expect("an insert");
        assert_eq!(get(&mut reader, 3).expect("a get"), Some(u64::from_le_bytes([9; 8])));
        owner.drop_table("t").expect("a drop");
        assert_eq!(get(&mut beside, 5).expect("a get"), Some(7), "another table's session");
    }
}

/// A renamed table is found by its new name, with all that it holds.
///
/// # Panics
/// If a promise is broken.
pub fn a_renamed_table_keeps_its_pairs<F: FabricUnderTest>(store: &PoolStore<F>) {
    let client = store.connect();
    let (table, other) = (store.create("from", 8), store.create("other", 8));
    let mut old = session(&table);
    fill(&mut old, 1);
    drop(other);
    assert_eq!(refused(client.rename_table("nothing", "to")), ErrorCode::UnknownTable);
    assert_eq!(refused(client.rename_table("from", "other")), ErrorCode::TableExists);
    assert_eq!(refused(client.rename_table("from", "no name")), ErrorCode::BadName);
    assert_eq!(refused(client.swap_tables("from", "nothing")), ErrorCode::UnknownTable);
    assert_eq!(get(&mut old, 1).expect("a get"), Some(1), "nothing was renamed");

    client.rename_table("from", "to").expect("a rename");
    let mut new = session(&client.open_table("to").expect("the table"));
    for index in 0..KEYS {
        assert_eq!(get(&mut new, index).expect("a get"), Some(1));
    }
    soon("the old name leads nowhere", || match get(&mut old, 1) {
        Ok(found) => {
            assert_eq!(found, Some(1));
            false
        }
        Err(error) => {
            assert!(read_is_gone(&error, "from"), "{error:?}");
            true
        }
    });
    // A table that is called so now is the one that the session goes on with.
    let mut anew = session(&store.create("from", 8));
    fill(&mut anew, 2);
    assert_eq!(get(&mut old, 1).expect("a get"), Some(2));
    client.rename_table("to", "to").expect("the same name");
    client.swap_tables("to", "to").expect("the same name");
    assert_eq!(get(&mut new, 1).expect("a get"), Some(1));
    drop_all(&client, &["from", "to", "other"]);
}

/// Two tables change places under readers and writers. Each batch is of one of them, and a second later of
/// the one that has the name. So is a batch after a long silence.
///
/// # Panics
/// If a promise is broken.
pub fn sessions_follow_a_swap<F: FabricUnderTest>(store: &PoolStore<F>) {
    let tables = [store.create("one", 8), store.create("two", 8)];
    for (table, life) in tables.iter().zip(1..) {
        fill(&mut session(table), life);
    }
    let client = store.connect();
    let seed = Seed::new("swaps");
    let ended = AtomicBool::new(false);
    let swaps = store.subject().rounds(SWAPS);
    std::thread::scope(|scope| {
        for (table, reader) in tables.iter().zip(0..) {
            let (ended, seed) = (&ended, &seed);
            scope.spawn(move || {
                let mut random = seed.random(reader);
                let mut session = session(table);
                let mut answers = Answers::default();
                while !ended.load(Ordering::Relaxed) {
                    let keys: Vec<u64> = (0..BATCH).map(|_| key(random.next_u64() % KEYS)).collect();
                    session.multi_get(&keys, &mut answers).expect("gets");
                    let lives: Vec<u64> = answers
                        .iter()
                        .map(|answer| u64::from_le_bytes(answer.expect("it is stored").0.try_into().unwrap()))
                        .collect();
                    assert!(
                        lives.windows(2).all(|pair| pair[0] == pair[1]),
                        "a batch of two tables: {lives:?}"
                    );
                }
            });
        }
        for _ in 0..swaps {
            client.swap_tables("one", "two").expect("a swap");
            std::thread::sleep(Duration::from_millis(5));
        }
        ended.store(true, Ordering::Relaxed);
    });
    after_a_silence(&client, &tables, swaps as u64);
}

/// A session that has been silent for long hears of a swap before its first batch.
fn after_a_silence(client: &Client, tables: &[Table; 2], mut swaps: u64) {
    let mut sessions = [session(&tables[0]), session(&tables[1])];
    for session in &mut sessions {
        get(session, 0).expect("a get");
    }
    for is_write in [false, true] {
        client.swap_tables("two", "one").expect("a swap");
        swaps += 1;
        std::thread::sleep(HEARD + Duration::from_millis(200));
        for (place, session) in sessions.iter_mut().enumerate() {
            let life = 1 + (place as u64 + swaps) % 2;
            if is_write {
                let outcome = session.write_one(WriteOperation::Update, key(1), &(life + 10).to_le_bytes());
                outcome.expect("an update");
            } else {
                assert_eq!(get(session, 2).expect("a get"), Some(life), "a second after the swap");
            }
        }
    }
    // What was written went to the tables that had the names.
    for (place, session) in sessions.iter_mut().enumerate() {
        let life = 1 + (place as u64 + swaps) % 2;
        assert_eq!(get(session, 1).expect("a get"), Some(life + 10), "written to the other table");
        assert_eq!(get(session, 2).expect("a get"), Some(life));
    }
    drop_all(client, &["one", "two"]);
}

/// Tables of one name come and go under readers, writers, loads and several that drop them. Whatever is read
/// was written to a table that had the name not longer than a moment ago.
///
/// # Panics
/// If a promise is broken.
pub fn drops_race_with_everything<F: FabricUnderTest + Send + Sync>(store: &PoolStore<F>) {
    let (seed, newest, ended) = (Seed::new("drops"), AtomicU64::new(0), AtomicBool::new(false));
    let (newest, ended) = (&newest, &ended);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let random = seed.random(reader);
            scope.spawn(move || read_until(store, random, newest, ended));
        }
        scope.spawn(move || load_until(store, ended));
        scope.spawn(move || {
            let client = store.connect();
            while !ended.load(Ordering::Relaxed) {
                // Another one may have dropped it.
                let _ = client.drop_table("racing");
                std::thread::sleep(Duration::from_millis(7));
            }
        });
        let client = store.connect();
        for life in 1..=store.subject().rounds(LIVES) as u64 {
            newest.store(life, Ordering::SeqCst);
            let made = client.create_table(store.new_table("racing", 8));
            if let Ok(mut session) = made.map_err(OpenError::from).and_then(|t| t.session(Access::OneSided)) {
                let value = life.to_le_bytes();
                let mut outcomes = Vec::new();
                for index in 0..KEYS {
                    let entries = [(key(index), &value[..])];
                    if session.write(WriteOperation::Put, entries.into_iter(), &mut outcomes).is_err() {
                        break;
                    }
                }
            }
            let _ = client.drop_table("racing");
        }
        ended.store(true, Ordering::Relaxed);
    });
    let left = store.connect().tables().expect("a list");
    assert!(left.iter().all(|info| info.definition.name != "racing"), "{left:?}");
}

/// Reads what has the name, which is never of a life that has not begun.
fn read_until<F: FabricUnderTest>(
    store: &PoolStore<F>,
    mut random: SplitMix64,
    newest: &AtomicU64,
    ended: &AtomicBool,
) {
    let client = store.connect();
    let mut open: Option<Session> = None;
    while !ended.load(Ordering::Relaxed) {
        let Some(session) = &mut open else {
            let table = client.open_table("racing").map_err(OpenError::from);
            open = table.and_then(|table| table.session(Access::OneSided)).ok();
            continue;
        };
        let found = get(session, random.next_u64() % KEYS);
        match found {
            Ok(Some(life)) => {
                let newest = newest.load(Ordering::SeqCst);
                // The loads wrote under number zero.
                assert!(life <= newest, "a value of life {life}, the newest is {newest}");
            }
            Ok(None) => {}
            Err(error) => {
                assert!(matches!(error, ReadError::Reopen { .. } | ReadError::Engine { .. }), "{error}");
            }
        }
    }
}

/// Loads whatever has the name, with values of life zero.
fn load_until<F: FabricUnderTest>(store: &PoolStore<F>, ended: &AtomicBool) {
    let client = store.connect();
    let mut keys: Vec<u64> = (0..KEYS).map(key).collect();
    keys.sort_unstable();
    while !ended.load(Ordering::Relaxed) {
        let Ok(mut load) =
            client.open_table("racing").map_err(OpenError::from).and_then(|table| table.bulk_load())
        else {
            continue;
        };
        // It may hold pairs, or be gone.
        if keys.iter().try_for_each(|key| load.push(*key, &[0; 8])).is_ok() {
            let _ = load.finish();
        }
    }
}

/// Instantiates every test of the suite for the stores that `$make` makes anew for each; where that needs
/// what not every machine has, if `$ready`.
#[macro_export]
macro_rules! names_suite {
    ($make:expr) => {
        $crate::names_suite!($make, if true);
    };
    ($make:expr, if $ready:expr) => {
        $crate::names_suite!(@tests $make, $ready;
            a_dropped_table_is_gone, a_renamed_table_keeps_its_pairs, sessions_follow_a_swap,
            drops_race_with_everything
        );
    };
    (@tests $make:expr, $ready:expr; $($test:ident),+) => {
        $(
            #[test]
            fn $test() {
                if $ready {
                    $crate::engine::names::$test(&$make);
                }
            }
        )+
    };
}
