//! What goes wrong, and what the errors say.

use std::time::{Duration, Instant};

use crate::server::TestServer;
use farsight::{
    CatalogueError, Client, ConnectError, ConnectOptions, ErrorCode, FabricError, KeyKind, LoadError,
    Options, ReadError, Server, StartError, TableError, ValueKind, WriteError, WriteOperation, WriteOutcome,
};

const MEMORY_BYTES: u64 = 1 << 20;
/// Within this time a server's end is noticed, however busy the machine is.
const NOTICE: Duration = Duration::from_secs(10);

#[test]
fn tables_are_refused_by_name_kind_and_size() {
    let server = TestServer::start(MEMORY_BYTES);
    let client = server.connect();
    client.create_table::<u64>("prices", 16).unwrap();
    client.create_table::<u64>("prices", 16).expect("the same definition again");

    let refused = |result: Result<_, TableError>| match result {
        Err(TableError::Catalogue(CatalogueError::Refused { source, .. })) => source.code,
        Err(other) => panic!("another error: {other}"),
        Ok(()) => panic!("no error"),
    };
    assert_eq!(refused(client.table::<u64>("price").map(drop)), ErrorCode::UnknownTable);
    assert_eq!(refused(client.create_table::<u64>("prices", 8).map(drop)), ErrorCode::TableExists);
    assert_eq!(refused(client.create_table::<i64>("prices", 16).map(drop)), ErrorCode::TableExists);
    assert_eq!(refused(client.create_table::<u64>("a b", 16).map(drop)), ErrorCode::BadName);
    assert_eq!(refused(client.create_table::<u64>("", 16).map(drop)), ErrorCode::BadName);

    let error = client.table::<f64>("prices").map(drop).unwrap_err();
    assert!(matches!(error, TableError::KeyKind { expected: KeyKind::F64, got: KeyKind::U64, .. }));
    assert_eq!(error.to_string(), "table \"prices\" has keys of kind u64, the program opens it with f64");
    for got in [0, 7, 257, 65_544] {
        let error = client.create_table::<u64>("x", got).map(drop).unwrap_err();
        assert!(matches!(error, TableError::ValueSize { got_bytes, .. } if got_bytes == got), "{error}");
    }
    assert_eq!(client.tables().unwrap().len(), 1);
}

#[test]
fn sizes_are_checked_when_the_call_is_made() {
    let server = TestServer::start(MEMORY_BYTES);
    let table = server.connect().create_table::<u64>("prices", 16).unwrap();
    let mut session = table.session(Options::default()).unwrap();
    let calls = session.meters().calls;

    let error = session.put(1, b"short").unwrap_err();
    assert_eq!(error.to_string(), "table \"prices\" has values of 16 B, value 0 of the call has 5 B");
    let mixed = [(1, vec![0; 16]), (2, vec![0; 17])];
    let error = session.insert_many(&mixed, &mut Vec::new()).unwrap_err();
    assert!(matches!(
        error,
        WriteError::WrongValueSize { index: 1, expected: ValueKind::Fixed(16), got_bytes: 17, .. }
    ));
    let error = session.get_into(1, &mut [0; 15]).unwrap_err();
    assert!(matches!(
        error,
        ReadError::WrongBufferSize { expected: ValueKind::Fixed(16), got_bytes: 15, .. }
    ));
    assert_eq!(session.meters().calls, calls, "nothing was sent");
    assert_eq!(session.get(1).unwrap(), None, "nothing was stored");
}

#[test]
fn a_load_needs_an_empty_table_and_ascending_keys() {
    let server = TestServer::start(MEMORY_BYTES);
    let table = server.connect().create_table::<i64>("t", 8).unwrap();
    let mut load = table.bulk_load().unwrap();
    load.push(-5, &[1; 8]).unwrap();
    assert!(matches!(load.push(-5, &[1; 8]).unwrap_err(), LoadError::NotAscending { index: 1, .. }));
    assert!(matches!(load.push(-6, &[1; 8]).unwrap_err(), LoadError::NotAscending { index: 1, .. }));
    assert!(matches!(load.push(1, &[1; 9]).unwrap_err(), LoadError::WrongValueSize { got_bytes: 9, .. }));
    drop(load);

    let mut session = table.session(Options::default()).unwrap();
    assert_eq!(session.scan(..).count(), 0, "a load that was dropped leaves nothing");
    session.put(7, &[2; 8]).unwrap();
    let mut load = table.bulk_load().unwrap();
    load.push(8, &[3; 8]).unwrap();
    let error = load.finish().unwrap_err();
    assert!(
        matches!(&error, LoadError::Refused { source, .. } if source.code == ErrorCode::BadLoad),
        "{error}"
    );
    assert_eq!(session.scan(..).map(|pair| pair.unwrap().0).collect::<Vec<_>>(), [7]);
}

#[test]
fn a_full_region_refuses_writes_and_serves_reads() {
    let server = TestServer::start(64 << 10);
    let table = server.connect().create_table::<u64>("small", 256).unwrap();
    let mut session = table.session(Options::default()).unwrap();
    let mut inserts = (0..10_000).map(|key| (key, session.insert(key, &[key as u8; 256]).err()));
    let failed = inserts.find_map(|(key, error)| error.map(|error| (key, error)));
    let (stored, error) = failed.expect("64 KiB hold fewer than 10,000 values of 256 B");
    let WriteError::Refused { code, operation, .. } = &error else { panic!("another error: {error}") };
    assert_eq!((*code, *operation), (ErrorCode::RegionFull, WriteOperation::Insert));
    assert!(error.to_string().contains("region is full"));
    assert!(stored > 0);
    for key in 0..stored {
        assert_eq!(session.get(key).unwrap().unwrap().value, [key as u8; 256]);
    }
    // A batch tells which of its writes failed, and does the others.
    let mut outcomes = Vec::new();
    session.put_many(&[(0, [1; 256]), (stored, [1; 256])], &mut outcomes).unwrap();
    assert!(matches!(outcomes[..], [WriteOutcome::Replaced(_), WriteOutcome::Failed(ErrorCode::RegionFull)]));
}

#[test]
fn a_stopped_server_is_noticed_by_every_call() {
    let TestServer { server, directory } = TestServer::start(MEMORY_BYTES);
    let client = Client::connect_with(
        server.url(),
        &ConnectOptions { reconnect_timeout: Duration::ZERO, ..ConnectOptions::default() },
    )
    .unwrap();
    let table = client.create_table::<u64>("t", 8).unwrap();
    let mut session = table.session(Options::default()).unwrap();
    session.put(1, &[1; 8]).unwrap();
    let url = server.url().to_string();
    server.shutdown().unwrap();

    let begun = Instant::now();
    let error = until_error(|| session.get(1).map(drop));
    let ReadError::Engine { source, .. } = &error else { panic!("another error: {error}") };
    assert!(source.to_string().contains("is lost"), "{source}");
    assert!(source.to_string().contains("Connecting again failed 1 time"), "{source}");
    let error = session.put(1, &[2; 8]).unwrap_err();
    assert!(matches!(&error, WriteError::Engine { .. }), "nothing was sent: {error}");
    let mut scan = session.scan(..);
    assert!(scan.next().is_some_and(|pair| pair.is_err()));
    assert!(scan.next().is_none(), "a scan ends after its error");
    assert!(matches!(client.stats().unwrap_err(), CatalogueError::Fabric(FabricError::Disconnected { .. })));
    assert!(table.session(Options::default()).is_err());
    assert!(farsight::connect(&url).is_err());
    assert!(begun.elapsed() < NOTICE, "it took {:?}", begun.elapsed());
    drop(directory);
}

/// Repeats `call` until it fails.
fn until_error<T, E>(mut call: impl FnMut() -> Result<T, E>) -> E {
    let begun = Instant::now();
    loop {
        match call() {
            Err(error) => return error,
            Ok(_) => assert!(begun.elapsed() < NOTICE, "calls to a stopped server go on"),
        }
    }
}

#[test]
fn servers_and_clients_say_why_they_cannot_meet() {
    let TestServer { server, directory } = TestServer::start(MEMORY_BYTES);
    let socket = directory.path().join("test.sock");
    let start = |socket: &std::path::Path| Server::builder().socket(socket).start().map(drop).unwrap_err();
    assert!(matches!(start(&socket), StartError::Socket(_)));
    assert!(start(&directory.path().join("none/test.sock")).to_string().contains("mkdir"));
    assert!(start(&directory.path().join("x".repeat(120))).to_string().contains("limit"));
    let error =
        Server::builder().socket(directory.path().join("w.sock")).workers(0).start().map(drop).unwrap_err();
    assert!(matches!(error, StartError::Serve(_)), "{error}");

    let missing = format!("shm://{}/missing.sock", directory.path().display());
    let error = farsight::connect(&missing).map(drop).unwrap_err();
    assert!(matches!(&error, ConnectError::Fabric(_)), "{error}");
    assert!(
        error.to_string().contains("missing.sock") && error.to_string().contains("farsight serve"),
        "{error}"
    );
    assert!(matches!(farsight::connect("tcp://host").map(drop).unwrap_err(), ConnectError::Url(_)));
    drop(server);
}
