//! Memory nodes and compute nodes that come, go, fill up and use themselves up, as programs see it: over any
//! fabric, and with tables of either engine of a pool.
//!
//! Invariant: whatever is answered is right. What cannot be answered is an error that names the cause.

use std::sync::Arc;

use farsight::{
    Access, Answers, EngineKind, ErrorCode, Options, ServerUrl, Session, TableOptions, WriteError,
    WriteOperation, WriteOutcome, with_causes,
};
use farsight_base::prng::mix;
use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_client::{GroupSizes, Reclaimed};
use farsight_index_rolex::LOCKS_A_NUMBER;
use farsight_protocol::POOL_NUMBERS_MAX;

use super::harness::{Directory, eventually};
use super::pool::Pool;
use super::pool_store::PoolStore;
use crate::fabric::FabricUnderTest;

const TABLE: &str = "t";
/// Keys of the tests of memory nodes; three ranges of XStore-D begin at 0 and at each third of them.
const KEYS: u64 = 3_000;
const MEMORY_NODES: usize = 3;

/// Compute nodes that join and leave, and keys of each.
const VISITORS: u64 = 24;
const VISITOR_KEYS: u64 = 40;
/// Compute nodes that stay, and keys of each.
const RESIDENTS: u64 = 2;
const RESIDENT_KEYS: u64 = 300;

/// Bytes of a value that fills small tables soon.
const LARGE_VALUE_BYTES: usize = 256;

/// A session on the table, made with ranges that have the same number of [`KEYS`].
fn session_on_new_table(pool: &Pool, engine: &'static EngineKind, value_bytes: usize) -> Session<u64> {
    let options = TableOptions {
        engine: Some(engine),
        sample: (0..KEYS).step_by(100).collect(),
        ..TableOptions::default()
    };
    let table = pool.connect().create_table_with::<u64>(TABLE, value_bytes, &options).expect("a table");
    table.session(Options::default()).expect("a session")
}

fn session_on(pool: &Pool) -> Session<u64> {
    let table = pool.connect().table::<u64>(TABLE).expect("the table");
    table.session(Options::default()).expect("a session")
}

fn is_restart_of(error: &(dyn std::error::Error + 'static), node: &str) -> bool {
    let words = with_causes(error);
    words.contains(node) && words.contains("was started again")
}

/// A memory node ends, and comes back empty, under a session that is open. The session names it, and no other
/// node answers in its place. What the others hold is theirs still, and right.
///
/// # Panics
/// If a promise is broken.
pub fn a_lost_memory_node_is_named(
    engine: &'static EngineKind,
    url: impl Fn(&Directory, usize) -> ServerUrl,
) {
    for lost in 0..MEMORY_NODES {
        let mut pool = Pool::start(MEMORY_NODES, 16 << 20, &url);
        let mut session = session_on_new_table(&pool, engine, 8);
        let pairs: Vec<(u64, [u8; 8])> = (0..KEYS).map(|key| (key, key.to_le_bytes())).collect();
        let mut outcomes = Vec::new();
        session.put_many(&pairs, &mut outcomes).expect("puts");
        assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Inserted(_))), "{outcomes:?}");

        pool.stop(lost);
        let url = pool.url(lost).to_string();
        let (_, name) = url.split_once("://").expect("a URL");
        // The others' keys are READ as before, and over shared memory those of a node that ended just now,
        // until the loss is known.
        let mut answers = Answers::default();
        let everywhere: Vec<u64> = (0..KEYS).step_by(100).collect();
        eventually("the loss", || match session.multi_get(&everywhere, &mut answers) {
            Ok(()) => {
                check(&everywhere, &answers);
                false
            }
            Err(error) => {
                assert!(with_causes(&error).contains(name), "{}", with_causes(&error));
                true
            }
        });

        pool.start_again(lost);
        let mut refused = 0;
        for &key in &everywhere {
            match session.get(key) {
                Ok(found) => {
                    assert_eq!(found.map(|entry| entry.value.into_vec()), Some(key.to_le_bytes().to_vec()));
                }
                Err(error) => {
                    assert!(is_restart_of(&error, name), "{}", with_causes(&error));
                    refused += 1;
                }
            }
            let error = session.put(key, b"anything").expect_err("the pool has lost a part");
            assert!(!matches!(error, WriteError::Indeterminate { .. }), "nothing was sent: {error}");
            assert!(is_restart_of(&error, name), "{}", with_causes(&error));
        }
        assert!(refused > 0, "node {lost} held nothing");
        let failures: Vec<_> = session.scan(..).filter_map(Result::err).collect();
        assert!(matches!(&failures[..], [error] if is_restart_of(error, name)), "{failures:?}");
        let error = pool.connect().table::<u64>(TABLE).err().expect("the pool has lost a part");
        assert!(is_restart_of(&error, name), "{}", with_causes(&error));
    }
}

/// Each key is its own value.
fn check(keys: &[u64], answers: &Answers) {
    for (key, answer) in keys.iter().zip(answers.iter()) {
        assert_eq!(answer.map(|(value, _)| value), Some(&key.to_le_bytes()[..]), "key {key}");
    }
}

/// Puts ascending keys from `from` on until the pool has no more room; returns the keys that were stored.
fn fill(session: &mut Session<u64>, from: u64) -> Vec<u64> {
    let mut stored = Vec::new();
    for key in (from..).map(mix) {
        match session.insert(key, &value_of(key)) {
            Ok(outcome) => {
                assert!(matches!(outcome, WriteOutcome::Inserted(_)), "{outcome:?}");
                stored.push(key);
            }
            Err(WriteError::Refused { code: ErrorCode::RegionFull, .. }) => return stored,
            Err(error) => panic!("a full pool says another thing: {}", with_causes(&error)),
        }
    }
    unreachable!("keys do not end")
}

fn value_of(key: u64) -> [u8; LARGE_VALUE_BYTES] {
    let mut value = [0; LARGE_VALUE_BYTES];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value
}

fn check_all(session: &mut Session<u64>, stored: &[u64]) {
    let mut answers = Answers::default();
    session.multi_get(stored, &mut answers).expect("reads go on");
    for (key, answer) in stored.iter().zip(answers.iter()) {
        assert_eq!(answer.map(|(value, _)| value), Some(&value_of(*key)[..]), "key {key}");
    }
    let scanned: Vec<u64> = session.scan(..).map(|pair| pair.expect("scans go on").0).collect();
    assert!(scanned.len() == stored.len() && scanned.is_sorted(), "{} of {}", scanned.len(), stored.len());
}

/// A full pool refuses what needs room, by name, and does everything else; when pairs are removed it has room
/// again.
///
/// # Panics
/// If a promise is broken.
pub fn a_full_pool_goes_on(engine: &'static EngineKind, url: impl Fn(&Directory, usize) -> ServerUrl) {
    let pool = Pool::start(2, 256 << 10, url);
    let mut session = session_on_new_table(&pool, engine, LARGE_VALUE_BYTES);
    let stored = fill(&mut session, 0);
    assert!(stored.len() > 100, "{} pairs in 512 KiB", stored.len());
    check_all(&mut session, &stored);
    check_all(&mut session_on(&pool), &stored);
    for key in stored.iter().step_by(7) {
        let outcome = session.update(*key, &value_of(*key)).expect("updates need no room");
        assert!(matches!(outcome, WriteOutcome::Replaced(_)), "{outcome:?}");
    }
    assert!(session.get(mix(1 << 40)).expect("reads go on").is_none());
    check_all(&mut session, &stored);

    let mut outcomes = Vec::new();
    session.remove_many(&stored, &mut outcomes).expect("removals need no room");
    assert!(outcomes.iter().all(|outcome| matches!(outcome, WriteOutcome::Removed(_))), "{outcomes:?}");
    let _training = pool.train();
    let mut again = Vec::new();
    eventually("room again", || {
        again.extend(fill(&mut session, (1 << 20) + again.len() as u64));
        again.len() > stored.len() / 2
    });
    check_all(&mut session_on(&pool), &again);
}

/// One compute node that writes and reads keys of its own, which lie between everybody's. Returns what it
/// leaves: each key with the sequence in its value.
fn work(pool: &Pool, own: u64, keys: u64, mut go_on: impl FnMut(u64) -> bool) -> Vec<(u64, u64)> {
    let mut session = session_on(pool);
    let key_of = |index: u64| index * (VISITORS + RESIDENTS) + own;
    let mut rounds = 0;
    while go_on(rounds) {
        rounds += 1;
        let pairs: Vec<(u64, [u8; 8])> =
            (0..keys).map(|index| (key_of(index), rounds.to_le_bytes())).collect();
        let mut outcomes = Vec::new();
        session.put_many(&pairs, &mut outcomes).expect("puts");
        let removed: Vec<u64> = (0..keys).step_by(3).map(key_of).collect();
        session.remove_many(&removed, &mut outcomes).expect("removals");
        let asked: Vec<u64> = (0..keys).map(key_of).collect();
        let mut answers = Answers::default();
        session.multi_get(&asked, &mut answers).expect("GETs");
        for (index, answer) in answers.iter().enumerate() {
            let expected = (index % 3 != 0).then(|| rounds.to_le_bytes());
            assert_eq!(answer.map(|(value, _)| value), expected.as_ref().map(|value| &value[..]), "{own}");
        }
    }
    (0..keys).filter(|index| index % 3 != 0).map(|index| (key_of(index), rounds)).collect()
}

/// Compute nodes join and leave while others work in the same leaves: nobody is held up or loses anything,
/// and what those that left had goes back.
///
/// # Panics
/// If a promise is broken.
pub fn compute_nodes_join_and_leave_under_load(url: impl Fn(&Directory, usize) -> ServerUrl) {
    let pool = Pool::start(2, 16 << 20, url);
    drop(session_on_new_table(&pool, EngineKind::ROLEX, 8));
    let training = pool.train();
    let (has_begun, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut left: Vec<(u64, u64)> = Vec::new();
    std::thread::scope(|scope| {
        let residents: Vec<_> = (0..RESIDENTS)
            .map(|own| {
                let (pool, has_begun, stop) = (&pool, &has_begun, &stop);
                // Relaxed, here and below: the words carry nothing with them.
                let go_on = move |rounds| {
                    has_begun.fetch_add(u64::from(rounds == 1), Ordering::Relaxed);
                    rounds < 2 || !stop.load(Ordering::Relaxed)
                };
                scope.spawn(move || work(pool, own, RESIDENT_KEYS, go_on))
            })
            .collect();
        eventually("load", || has_begun.load(Ordering::Relaxed) == RESIDENTS);
        for visitor in 0..VISITORS {
            left.extend(work(&pool, RESIDENTS + visitor, VISITOR_KEYS, |rounds| rounds < 1));
        }
        stop.store(true, Ordering::Relaxed);
        left.extend(residents.into_iter().flat_map(|resident| resident.join().expect("a resident")));
    });
    left.sort_unstable();
    let mut session = session_on(&pool);
    let found: Vec<(u64, u64)> = session
        .scan(..)
        .map(|pair| pair.expect("a scan"))
        .map(|(key, entry)| (key, u64::from_le_bytes(entry.value.try_into().expect("8 B"))))
        .collect();
    assert_eq!(found, left);
    // This session's compute node, and the trainer's.
    eventually("those that left are gone", || pool.nodes().all(|node| node.stats().compute_nodes == 2));
    eventually("what they had", || pool.sum(|table| table.leaves.orphaned) == 0);
    drop(training);
}

/// What an ended compute node left is looked at once. Its linked leaves are the table's own from then on: the
/// next trainer does not look at them. They are merged and given back as any others.
///
/// # Panics
/// If a promise is broken.
pub fn linked_leaves_are_looked_at_once<F: FabricUnderTest>(subjects: impl IntoIterator<Item = F>) {
    const KEYS: u64 = 3_000;
    let pool = PoolStore::rolex(subjects, 1 << 20);
    drop(pool.create(TABLE, 8));
    let leaves = || {
        let stats = pool.nodes().iter().map(|node| node.stats().tables[0].leaves);
        stats.fold((0, 0, 0), |(used, owned, orphaned), leaves| {
            (used + leaves.used, owned + leaves.owned, orphaned + leaves.orphaned)
        })
    };
    let write = |operation: WriteOperation| {
        let client = pool.connect();
        let table = client.open_table(TABLE).expect("the table");
        let mut session = table.session(Access::OneSided).expect("a session");
        for key in 0..KEYS {
            session
                .write_one(operation, key, &key.to_le_bytes()[..operation_bytes(operation)])
                .expect("a write");
        }
    };
    write(WriteOperation::Put);
    eventually("its blocks are orphans", || leaves().1 == 0 && leaves().2 > 100);
    let (used, _, orphaned) = leaves();
    let look = || {
        let client = pool.connect();
        let mut trainer = client.trainer(TABLE, GroupSizes::USUAL).expect("a trainer");
        let (mut kept, mut freed) = (0, 0);
        while let Reclaimed { kept: more, freed: also } = trainer.reclaim().expect("a look")
            && more + also > 0
        {
            (kept, freed) = (kept + more, freed + also);
        }
        (kept, freed)
    };
    let (kept, freed) = look();
    assert_eq!((kept + freed, leaves()), (orphaned, (used - freed, 0, 0)));
    assert!(kept > 100, "{kept} linked leaves");
    eventually("the trainer is gone", || pool.nodes().iter().all(|node| node.stats().compute_nodes == 0));
    assert_eq!(look(), (0, 0), "they were looked at");

    // They go, as any others.
    write(WriteOperation::Remove);
    let client = pool.connect();
    let mut trainer = client.trainer(TABLE, GroupSizes::USUAL).expect("a trainer");
    eventually("the leaves are merged", || {
        trainer.reclaim().expect("a look");
        trainer.catch_up(100, 64).expect("training");
        leaves().0 < used / 8
    });
}

/// Bytes of a value of an operation of the tests.
fn operation_bytes(operation: WriteOperation) -> usize {
    if operation == WriteOperation::Remove { 0 } else { 8 }
}

/// A compute node that has drawn many lock values goes on under another number, over the same connections.
/// That costs its sessions and trainers no verb, and callers notice nothing. Once it has all the numbers that
/// one may have, it connects anew, and keeps its cache.
///
/// # Panics
/// If a promise is broken.
pub fn a_compute_node_changes_its_number<F: FabricUnderTest>(subjects: impl IntoIterator<Item = F>) {
    let pool = PoolStore::rolex(subjects, 1 << 20);
    drop(pool.create(TABLE, 8));
    let client = pool.connect();
    let table = client.open_table(TABLE).expect("the table");
    let mut sessions = [(); 2].map(|()| table.session(Access::OneSided).expect("a session"));
    let mut trainer = client.trainer(TABLE, GroupSizes::USUAL).expect("a trainer");
    let mut put = |session: usize, key: u64| {
        let before = sessions[session].meters();
        sessions[session].write_one(WriteOperation::Put, key, &key.to_le_bytes()).expect("a put");
        sessions[session].meters() - before
    };
    let links = client.links(TABLE).expect("the table");
    let number = || client.links(TABLE).expect("the table").locks.compute_node();
    let first = number();
    for session in 0..2 {
        for key in 0..400 {
            let _ = put(session, key);
        }
    }
    trainer.catch_up(100, 64).expect("training");
    // Again, so that nothing is new to the cache.
    for key in 0..400 {
        let _ = put(0, key);
    }
    assert_eq!(number(), first, "there are lock values left");
    let usual = [put(0, 7), put(1, 7)];
    let compute_nodes = || pool.nodes().iter().map(|node| node.stats().compute_nodes).max();
    assert_eq!(compute_nodes(), Some(1));

    let mut numbers = vec![first];
    for change in 1..POOL_NUMBERS_MAX {
        let (_, drawn) = links.locks.draw(LOCKS_A_NUMBER);
        assert!(change > 1 || drawn >= 1_200, "{drawn} lock values for 1,200 writes");
        if change % 3 == 0 {
            trainer.step(64).expect("a trainer goes on under the other number");
        }
        assert_eq!([put(0, 7), put(1, 7)], usual, "another number costs no verb");
        numbers.push(number());
    }
    assert!(numbers.is_sorted_by(|number, next| number < next), "{numbers:?}");
    assert_eq!(compute_nodes(), Some(1), "over the same connections");

    // That was the last one.
    let _ = links.locks.draw(LOCKS_A_NUMBER);
    assert_eq!([put(0, 7), put(1, 7)], usual, "there are values left");
    let _ = links.locks.draw(LOCKS_A_NUMBER / 2);
    trainer.step(64).map(drop).expect_err("its compute node has to connect anew");
    let _ = put(0, 400);
    let anew = number();
    assert!(numbers.last().is_some_and(|last| *last < anew), "another number");
    let cache = client.links(TABLE).expect("the table").cache;
    assert!(Arc::ptr_eq(&cache, &links.cache), "under which the cache is kept");
    drop(links);
    let _ = put(1, 401);
    assert_eq!(number(), anew, "both are the same compute node again");
    drop(trainer);
    eventually("the former number's connections end", || compute_nodes() == Some(1));
    client.trainer(TABLE, GroupSizes::USUAL).expect("a trainer").catch_up(100, 64).expect("training");
    let mut value = [0; 8];
    for key in 0..=401 {
        sessions[1].get(key, &mut value).expect("a GET").expect("the pair");
        assert_eq!(u64::from_le_bytes(value), key);
    }
}

/// Sessions of a compute node add to counters while its number changes again and again. No call fails, no
/// addition is lost, and nobody fences anybody.
///
/// # Panics
/// If a promise is broken.
pub fn numbers_change_under_load<F: FabricUnderTest>(subjects: impl IntoIterator<Item = F>) {
    const THREADS: u64 = 4;
    const ADDITIONS: u64 = 2_000;
    const COUNTERS: u64 = 3;
    const CHANGES: usize = 200;
    let pool = PoolStore::rolex(subjects, 1 << 20);
    drop(pool.create(TABLE, 8));
    // Two compute nodes, so that some wait for locks of others.
    let clients = [pool.connect(), pool.connect()];
    let (added, changed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let adders: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (client, added, changed) = (&clients[(thread % 2) as usize], &added, &changed);
                scope.spawn(move || {
                    let table = client.open_table(TABLE).expect("the table");
                    let mut session = table.session(Access::OneSided).expect("a session");
                    let mut own = 0;
                    // Relaxed, here and below: the words carry nothing with them.
                    while own < ADDITIONS || changed.load(Ordering::Relaxed) < CHANGES as u64 {
                        session
                            .write_one(WriteOperation::FetchAdd, own % COUNTERS, &1_u64.to_le_bytes())
                            .expect("an addition");
                        own += 1;
                        added.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for change in 0..CHANGES {
            let before = added.load(Ordering::Relaxed);
            let locks = clients[change % 2].links(TABLE).expect("the table").locks;
            let number = locks.compute_node();
            let _ = locks.draw(LOCKS_A_NUMBER);
            eventually("another number", || locks.compute_node() != number);
            eventually("additions", || added.load(Ordering::Relaxed) > before + THREADS);
            changed.fetch_add(1, Ordering::Relaxed);
        }
        for adder in adders {
            adder.join().expect("no addition fails");
        }
    });
    let table = clients[0].open_table(TABLE).expect("the table");
    let mut session = table.session(Access::OneSided).expect("a session");
    let mut value = [0; 8];
    let counted = (0..COUNTERS).map(|key| {
        session.get(key, &mut value).expect("a GET").expect("a counter");
        u64::from_le_bytes(value)
    });
    assert_eq!(counted.sum::<u64>(), added.load(Ordering::Relaxed));
    for node in pool.nodes() {
        let stats = node.stats();
        assert_eq!((stats.compute_nodes, stats.fenced), (2, 0));
    }
}
