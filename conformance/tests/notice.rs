//! A server's death is noticed within a second. The promise is one of time, so this program has this test
//! alone: no other runs beside it. Whatever else the machine does can only delay a notice: the quickest of
//! some counts.

use std::time::{Duration, Instant};

use farsight::{Access, Client, ConnectOptions, Options, Server, ServerUrl, with_causes};
use farsight_conformance::engine::harness::{Directory, PATIENCE};
use farsight_conformance::engine::processes::{Player, argument, role, say};

/// What is promised.
const NOTICE: Duration = Duration::from_secs(1);
const DEATHS: usize = 5;

#[test]
fn play() {
    if role().is_some() {
        let url: ServerUrl = argument("URL");
        let server = Server::builder().listen(url).table_memory_bytes(4 << 20).start().expect("a server");
        say(&server.url().to_string());
        loop {
            std::thread::park();
        }
    }
}

/// How long sessions go on after their server's death: one that READs, one that calls, and one that was idle.
fn notices(url: &str) -> [Duration; 3] {
    let mut server = Player::start("server", &[("URL", url.to_owned())]);
    let url: ServerUrl = server.hear().expect("a URL").parse().expect("a URL");
    let options = ConnectOptions { reconnect_timeout: Duration::ZERO, ..ConnectOptions::default() };
    let client = Client::connect_with(url, &options).expect("a connection");
    let table = client.create_table::<u64>("t", 8).expect("a table");
    let mut sessions = [Access::OneSided, Access::Rpc, Access::OneSided]
        .map(|access| table.session(Options { access }).expect("a session"));
    for session in &mut sessions {
        session.put(1, &[1; 8]).expect("a put");
    }
    server.kill();
    sessions.map(|mut session| {
        let died = Instant::now();
        let error = loop {
            match session.get(1) {
                Err(error) => break error,
                Ok(_) => assert!(died.elapsed() < PATIENCE, "gets go on after the server's death"),
            }
        };
        assert!(with_causes(&error).contains("is lost"), "{error}");
        died.elapsed()
    })
}

#[test]
fn a_death_is_noticed_within_a_second() {
    let directory = Directory::new();
    let shm = format!("shm://{}", directory.file("socket").display());
    for url in [shm.as_str(), "tcp://127.0.0.1:0"] {
        let all: Vec<[Duration; 3]> = (0..DEATHS).map(|_| notices(url)).collect();
        println!("{url}: {all:?}");
        for session in 0..3 {
            let quickest = all.iter().map(|took| took[session]).min().expect("some died");
            assert!(quickest < NOTICE, "{url}, session {session}: {all:?}");
        }
    }
}
