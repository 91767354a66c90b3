//! Servers that listen at other addresses than a socket, and at several.

use std::time::Duration;

use farsight::{
    Answers, Client, ConnectOptions, Endpoint, Options, Server, ServerBuilder, ServerUrl, Session,
    StartError, Tls, Waiting, WriteOutcome,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

const MEMORY_BYTES: u64 = 4 << 20;
/// What no wait of a passing test comes near.
const PATIENCE: Duration = Duration::from_secs(60);

fn tcp(port: u16) -> ServerUrl {
    ServerUrl::Tcp(Endpoint { host: "127.0.0.1".to_owned(), port })
}

fn builder() -> ServerBuilder {
    Server::builder().table_memory_bytes(MEMORY_BYTES)
}

fn start_on_both(directory: &TempDir) -> Server {
    builder().listen(tcp(0)).socket(directory.path().join("server.sock")).start().unwrap()
}

fn session(url: &ServerUrl) -> Session<u64> {
    let client = Client::connect(url).unwrap();
    client.create_table::<u64>("t", 8).unwrap().session(Options::default()).unwrap()
}

#[test]
fn nobody_is_let_in_before_the_memory_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("server.sock");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let urls = [format!("shm://{}", socket.display()).parse().unwrap(), tcp(port)];
    let mut refused = 0;
    let starting = builder().listen(tcp(port)).socket(&socket).prefault([MEMORY_BYTES]);
    let server = starting.start_reporting(|_| {
        for url in &urls {
            let asked = std::time::Instant::now();
            let error = Client::connect(url).err().expect("nobody accepts yet");
            assert!(asked.elapsed() < Duration::from_secs(1), "{url} let a client wait: {error}");
            refused += 1;
        }
        std::ops::ControlFlow::Continue(())
    });
    let server = server.unwrap();
    assert!(refused >= 2, "it was asked while memory was taken");
    for url in &urls {
        session(url).put(1, &[1; 8]).unwrap();
    }
    drop(server);
}

#[test]
fn clients_of_two_fabrics_share_the_tables() {
    let directory = tempfile::tempdir().unwrap();
    let server = start_on_both(&directory);
    let [here @ ServerUrl::Shm(_), there @ ServerUrl::Tcp(endpoint)] = server.urls() else {
        panic!("shared memory first, then TCP: {:?}", server.urls())
    };
    assert_ne!(endpoint.port, 0, "the system's choice is named");

    let far = Client::connect(there).unwrap();
    let table = far.create_table::<u64>("t", 8).unwrap();
    let mut load = table.bulk_load().unwrap();
    for key in 0..10_000_u64 {
        load.push(3 * key, &key.to_le_bytes()).unwrap();
    }
    assert_eq!(load.finish().unwrap(), 10_000);

    let (mut near, mut far_session) = (session(here), table.session(Options::default()).unwrap());
    assert_eq!(near.insert(1, &[1; 8]).unwrap(), WriteOutcome::Inserted(10_001));
    assert_eq!(far_session.insert(2, &[2; 8]).unwrap(), WriteOutcome::Inserted(10_002));
    let keys: Vec<u64> = (0..30_000).collect();
    let (mut near_answers, mut far_answers) = (Answers::default(), Answers::default());
    near.multi_get(&keys, &mut near_answers).unwrap();
    far_session.multi_get(&keys, &mut far_answers).unwrap();
    for key in 0..30_000 {
        assert_eq!(near_answers.get(key), far_answers.get(key), "key {key}");
        assert_eq!(near_answers.get(key).is_some(), key % 3 == 0 || key < 3, "key {key}");
    }
    assert_eq!(far_session.scan(..).map(Result::unwrap).count(), 10_002);

    let stats = far.stats().unwrap();
    let listeners: Vec<(&str, u64)> =
        stats.listeners.iter().map(|listener| (listener.address.as_str(), listener.clients)).collect();
    let (here, there) = (here.to_string(), there.to_string());
    assert_eq!(listeners, [(here.as_str(), 1), (there.as_str(), 1)]);
}

#[test]
fn tcp_alone_needs_no_socket() {
    let server = builder().listen(tcp(0)).start().unwrap();
    let mut session = session(server.url());
    session.put(7, &[7; 8]).unwrap();
    assert_eq!(session.get(7).unwrap().unwrap().value, [7; 8]);
    assert_eq!(session.get(8).unwrap(), None);
}

#[test]
fn a_client_over_tcp_finds_the_next_life() {
    let server = builder().listen(tcp(0)).start().unwrap();
    let url = server.url().clone();
    let options = ConnectOptions { reconnect_timeout: PATIENCE, ..ConnectOptions::default() };
    let client = Client::connect_with(&url, &options).unwrap();
    let table = client.create_table::<u64>("t", 8).unwrap();
    let mut session = table.session(Options::default()).unwrap();
    session.put(1, &[1; 8]).unwrap();
    let epoch = client.epoch();
    server.shutdown().unwrap();
    let _server = builder().listen(url.clone()).start().unwrap();
    Client::connect(&url).unwrap().create_table::<u64>("t", 8).unwrap();
    assert_eq!(session.get(1).unwrap(), None, "data of a former epoch");
    assert_ne!(client.epoch(), epoch);
}

#[test]
fn tasks_wait_for_tcp_as_for_memory() {
    let server = builder().listen(tcp(0)).start().unwrap();
    let table = Client::connect(server.url()).unwrap().create_table::<u64>("t", 8).unwrap();
    let table = table.asynchronous(Options::default()).unwrap();
    pollster::block_on(async {
        table.put(5, &[5; 8]).await.unwrap();
        assert_eq!(table.get(5).await.unwrap().unwrap().value, [5; 8]);
    });
}

/// However either side waits, the other is heard; after a pause, too, in which both sleep if they may.
#[test]
fn each_way_of_waiting_hears_the_other_side() {
    let ways = [Waiting::Briefly, Waiting::Asleep, Waiting::Spinning];
    for (of_server, of_client) in ways.into_iter().flat_map(|way| ways.map(|other| (way, other))) {
        let server = builder().listen(tcp(0)).waiting(of_server).start().unwrap();
        let options = ConnectOptions { waiting: of_client, ..ConnectOptions::default() };
        let client = Client::connect_with(server.url(), &options).unwrap();
        let mut session = client.create_table::<u64>("t", 8).unwrap().session(Options::default()).unwrap();
        for value in 0..3_u8 {
            session.put(7, &[value; 8]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
            assert_eq!(session.get(7).unwrap().unwrap().value, [value; 8], "{of_server:?}, {of_client:?}");
        }
    }
}

#[test]
fn what_nobody_may_reach_unprotected_is_not_served() {
    let everywhere = ServerUrl::Tcp(Endpoint { host: "0.0.0.0".to_owned(), port: 0 });
    let error = builder().listen(everywhere.clone()).start().err().unwrap();
    assert!(matches!(error, StartError::Tcp(_)) && error.to_string().contains("plaintext"), "{error}");
    let server = builder().listen(everywhere).allow_plaintext(true).start().unwrap();
    let ServerUrl::Tcp(endpoint) = server.url() else { panic!("{}", server.url()) };
    session(&tcp(endpoint.port)).put(1, &[1; 8]).unwrap();
}

/// Two sides that believe each other, and one whose authority is another.
fn sides() -> [Tls; 3] {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = || {
        let key = KeyPair::generate().unwrap();
        (parameters.self_signed(&key).unwrap().pem(), Issuer::new(parameters.clone(), key))
    };
    let side = |(authority, issuer): &(String, Issuer<'_, KeyPair>)| {
        let key = KeyPair::generate().unwrap();
        let names = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = names.signed_by(&key, issuer).unwrap().pem();
        Tls::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes(), authority.as_bytes()).unwrap()
    };
    let (ours, theirs) = (authority(), authority());
    [side(&ours), side(&ours), side(&theirs)]
}

#[test]
fn certificates_let_in_who_has_the_right_one() {
    let [server_side, client_side, stranger] = sides();
    let server = builder().listen(tcp(0)).tls(server_side).start().unwrap();
    let connect =
        |tls| Client::connect_with(server.url(), &ConnectOptions { tls, ..ConnectOptions::default() });
    let table = connect(Some(client_side)).unwrap().create_table::<u64>("t", 8).unwrap();
    let mut session = table.session(Options::default()).unwrap();
    session.put(1, &[1; 8]).unwrap();
    assert_eq!(session.get(1).unwrap().unwrap().value, [1; 8]);
    assert!(connect(Some(stranger)).is_err(), "another authority's certificate");
    assert!(connect(None).is_err(), "in the clear");
}

#[test]
fn addresses_that_cannot_be_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let error = builder().socket(path("a")).socket(path("b")).start().err().unwrap();
    assert!(error.to_string().contains("one shm:// address"), "{error}");
    let taken = builder().listen(tcp(0)).start().unwrap();
    let error = builder().listen(taken.url().clone()).start().err().unwrap();
    assert!(error.to_string().contains("in use"), "{error}");
}
