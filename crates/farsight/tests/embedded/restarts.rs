//! Servers that are stopped and started again while their clients live on.

use std::time::{Duration, Instant};

use crate::server::TestServer;
use crate::store::{TestStore, on_every_engine};
use farsight::{
    Client, ConnectOptions, EngineKind, LoadError, OpenError, Options, ReadError, Session, WriteError,
    WriteOutcome,
};

const MEMORY_BYTES: u64 = 1 << 20;
/// What no wait of a passing test comes near.
const PATIENCE: Duration = Duration::from_secs(60);

fn patient(server: &TestServer) -> Client {
    Client::connect_with(
        server.server.url(),
        &ConnectOptions { reconnect_timeout: PATIENCE, ..ConnectOptions::default() },
    )
    .unwrap()
}

fn get(session: &mut Session<u64>, key: u64) -> Option<Vec<u8>> {
    session.get(key).unwrap().map(|entry| entry.value.into_vec())
}

/// Inserts key 1. A write that is sent before the loss is noticed is indeterminate, and not repeated by
/// itself.
fn insert(session: &mut Session<u64>) -> WriteOutcome {
    let begun = Instant::now();
    loop {
        match session.insert(1, &[9; 8]) {
            Err(WriteError::Indeterminate { .. }) => assert!(begun.elapsed() < PATIENCE),
            outcome => return outcome.unwrap(),
        }
    }
}

on_every_engine!(
    everything_goes_on_in_the_next_life,
    a_table_that_is_gone_is_named_until_it_is_there_again,
    a_table_that_is_defined_otherwise_is_refused,
);

fn everything_goes_on_in_the_next_life(engine: &'static EngineKind) {
    let mut store = TestStore::start(engine, MEMORY_BYTES);
    let client = store.connect();
    let table = store.create_table_by::<u64>(&client, "t", 8);
    let mut session = table.session(Options::default()).unwrap();
    let mut epochs = vec![client.epoch()];
    for start in 1..=4_u8 {
        session.put(1, &[start; 8]).unwrap();
        session.prefill().unwrap();
        assert_eq!(get(&mut session, 1), Some(vec![start; 8]));
        assert_eq!((session.epoch(), client.epoch()), (epochs[0], epochs[0]));
        let (counters, meters) = (session.counters(), session.meters());
        assert!(counters.writes >= u64::from(start), "counted over all epochs: {counters:?}");

        store = store.restart();
        drop(store.create_table::<u64>("t", 8));
        // What finds the loss first differs from start to start.
        match start {
            1 => assert_eq!(get(&mut session, 1), None, "data of a former epoch"),
            2 => assert!(matches!(insert(&mut session), WriteOutcome::Inserted(_))),
            3 => assert_eq!(client.tables().unwrap().len(), 1),
            _ => assert_eq!(session.scan(..).count(), 0, "data of a former epoch"),
        }
        assert_ne!(client.epoch(), epochs[0], "a restart has another epoch");
        epochs.insert(0, client.epoch());
        session.get(2).unwrap();
        assert_eq!(session.epoch(), client.epoch());
        assert!(session.counters().gets > counters.gets && session.meters().doorbells > meters.doorbells);
        assert!(table.cache_stats().generation < 2, "the cache began empty");
    }
    let begun = Instant::now();
    while store.clients().iter().any(|clients| *clients != 1) {
        assert!(begun.elapsed() < PATIENCE, "one connection for the client and its session");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn a_table_that_is_gone_is_named_until_it_is_there_again(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let table = store.create_table::<u64>("prices", 8);
    let mut session = table.session(Options::default()).unwrap();
    session.put(1, &[1; 8]).unwrap();
    let store = store.restart();

    for _ in 0..2 {
        let error = session.get(1).unwrap_err();
        let ReadError::Reopen { source, .. } = &error else { panic!("another error: {error}") };
        let OpenError::TableGone { was, is, .. } = &**source else { panic!("another error: {source}") };
        assert_ne!(was, is);
        assert!(source.to_string().contains("\"prices\""), "{source}");
        assert!(source.to_string().contains("started again"), "{source}");
        let error = session.put(1, &[2; 8]).unwrap_err();
        assert!(matches!(error, WriteError::Reopen { .. }), "{error}");
        assert!(matches!(table.session(Options::default()).err(), Some(OpenError::TableGone { .. })));
        assert!(matches!(table.bulk_load().err(), Some(OpenError::TableGone { .. })));
    }
    drop(store.create_table::<u64>("prices", 8));
    assert_eq!(get(&mut session, 1), None);
    let put = session.put(1, &[3; 8]).unwrap();
    assert!(matches!(put, WriteOutcome::Inserted(_)), "the refused put was not done: {put:?}");
    assert_eq!(get(&mut session, 1), Some(vec![3; 8]));
}

fn a_table_that_is_defined_otherwise_is_refused(engine: &'static EngineKind) {
    let store = TestStore::start(engine, MEMORY_BYTES);
    let client = store.connect();
    let mut session = store.create_table_by::<u64>(&client, "t", 8).session(Options::default()).unwrap();
    session.put(1, &[1; 8]).unwrap();
    let store = store.restart();
    drop(store.create_table::<u64>("t", 16));

    for _ in 0..2 {
        let error = session.get(1).unwrap_err();
        let ReadError::Reopen { source, .. } = &error else { panic!("another error: {error}") };
        assert!(matches!(**source, OpenError::OtherDefinition { .. }), "{source}");
        assert!(source.to_string().contains("16 B") && source.to_string().contains("8 B"), "{source}");
        assert!(matches!(session.put(1, &[2; 8]).unwrap_err(), WriteError::Reopen { .. }));
    }
    // Opened anew it is the table that is there.
    let mut anew = client.table::<u64>("t").unwrap().session(Options::default()).unwrap();
    anew.put(1, &[2; 16]).unwrap();
    assert_eq!(get(&mut anew, 1), Some(vec![2; 16]));
}

#[test]
fn calls_wait_for_a_server_that_comes_back() {
    let server = TestServer::start(MEMORY_BYTES);
    let client = patient(&server);
    let table = client.create_table::<u64>("t", 8).unwrap();
    let mut sessions: Vec<_> = (0..4).map(|_| table.session(Options::default()).unwrap()).collect();
    let TestServer { server, directory } = server;
    server.shutdown().unwrap();
    let (server, outcomes) = std::thread::scope(|scope| {
        let call = |(index, session): (usize, &'_ mut Session<u64>)| match index {
            0 => session.put(1, &[1; 8]).map(drop).map_err(|error| error.to_string()),
            1 => session.scan(..).try_for_each(|pair| pair.map(drop)).map_err(|error| error.to_string()),
            _ => session.get(2).map(drop).map_err(|error| error.to_string()),
        };
        let calls = sessions.iter_mut().enumerate().map(|one| scope.spawn(move || call(one)));
        let calls: Vec<_> = calls.collect();
        std::thread::sleep(Duration::from_millis(150));
        assert!(!calls[2].is_finished(), "a read did not wait");
        let server = TestServer::start_in(directory, MEMORY_BYTES);
        let outcomes: Vec<_> = calls.into_iter().map(|call| call.join().unwrap()).collect();
        (server, outcomes)
    });
    for (index, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.expect_err("nobody has made the table again");
        // The put may have been sent before the server's end was noticed.
        let sent = index == 0 && error.contains("is unknown");
        assert!(sent || error.contains("any more"), "{error}");
    }
    server.connect().create_table::<u64>("t", 8).unwrap();
    for session in &mut sessions {
        session.put(1, &[7; 8]).unwrap();
        assert_eq!(session.epoch(), client.epoch());
    }
    assert_eq!(server.server.stats().clients, 1, "all of them share the new connection");
}

#[test]
fn calls_fail_at_once_when_the_time_is_over() {
    let server = TestServer::start(MEMORY_BYTES);
    let timeout = Duration::from_millis(300);
    let client = Client::connect_with(
        server.server.url(),
        &ConnectOptions { reconnect_timeout: timeout, ..ConnectOptions::default() },
    )
    .unwrap();
    let table = client.create_table::<u64>("t", 8).unwrap();
    let mut session = table.session(Options::default()).unwrap();
    let TestServer { server, directory } = server;
    server.shutdown().unwrap();
    let begun = Instant::now();
    let error = session.get(1).unwrap_err();
    let waited = begun.elapsed();
    assert!(waited > timeout / 2, "only {waited:?} were waited");
    let ReadError::Engine { source, .. } = error else { panic!("another error: {error}") };
    assert!(source.to_string().contains("farsight serve"), "the remedy is named: {source}");
    let begun = Instant::now();
    for _ in 0..100 {
        session.get(1).unwrap_err();
        client.stats().unwrap_err();
    }
    assert!(begun.elapsed() < 100 * timeout, "200 calls took {:?}", begun.elapsed());
    // The first call after its return finds the server.
    let server = TestServer::start_in(directory, MEMORY_BYTES);
    assert!(client.tables().unwrap().is_empty());
    assert_eq!(client.epoch(), server.connect().epoch());
}

#[test]
fn a_scan_does_not_mix_two_lives() {
    let server = TestServer::start(MEMORY_BYTES);
    let pairs: Vec<(u64, [u8; 8])> = (0..1_000).map(|key| (key, [1; 8])).collect();
    let table = server.connect().create_table::<u64>("t", 8).unwrap();
    let mut session = table.session(Options::default()).unwrap();
    session.put_many(&pairs, &mut Vec::new()).unwrap();
    let mut scan = session.scan(..);
    for key in 0..10 {
        assert_eq!(scan.next().unwrap().unwrap().0, key);
    }
    let server = server.restart();
    let again = server.connect().create_table::<u64>("t", 8).unwrap();
    again.session(Options::default()).unwrap().put_many(&pairs, &mut Vec::new()).unwrap();
    let rest: Vec<_> = scan.collect();
    let (last, fetched) = rest.split_last().unwrap();
    assert!(fetched.len() < 500 && fetched.iter().all(Result::is_ok), "what was fetched before is returned");
    assert!(matches!(last, Err(ReadError::ScanCut { .. })), "{last:?}");
    assert_eq!(session.scan(..).count(), 1_000, "a new scan is of the new epoch");
}

#[test]
fn a_bulk_load_ends_with_its_server() {
    let server = TestServer::start(MEMORY_BYTES);
    let table = server.connect().create_table::<u64>("t", 8).unwrap();
    let mut load = table.bulk_load().unwrap();
    (0..1_000).for_each(|key| load.push(key, &[1; 8]).unwrap());
    let server = server.restart();
    server.connect().create_table::<u64>("t", 8).unwrap();
    let error = load.finish().unwrap_err();
    assert!(matches!(error, LoadError::Fabric { pairs: 0, .. }), "{error}");
    let mut load = table.bulk_load().unwrap();
    (0..100).for_each(|key| load.push(key, &[2; 8]).unwrap());
    assert_eq!(load.finish().unwrap(), 100);
    assert_eq!(table.session(Options::default()).unwrap().scan(..).count(), 100);
}
