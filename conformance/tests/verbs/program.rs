//! The facade and the program over `rdma://`: serve, put, get, doctor. `FARSIGHT_PROGRAM` names a program
//! that was built with RDMA; `cargo xtask softroce` builds one.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use farsight::{Access, ConnectOptions, Options, Server, ServerUrl, Waiting};
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};

const TABLE_BYTES: u64 = 16 << 20;

#[test]
fn the_facade_serves_and_connects() {
    if is_asked_for() {
        [Waiting::Briefly, Waiting::Asleep, Waiting::Spinning].into_iter().for_each(serve_and_connect);
    }
}

/// A server and a client that wait as they are told.
fn serve_and_connect(waiting: Waiting) {
    let url: ServerUrl = format!("rdma://{}", Verbs::new().address()).parse().expect("a URL");
    let builder = Server::builder().allow_plaintext(true).table_memory_bytes(TABLE_BYTES).waiting(waiting);
    let server = builder.listen(url.clone()).start().expect("a server");
    assert_eq!(server.url(), &url);
    let options = ConnectOptions { allow_plaintext: true, waiting, ..ConnectOptions::default() };
    let client = farsight::Client::connect_with(&url, &options).expect("a client");
    let table = client.create_table::<u64>("prices", 8).expect("a table");
    let mut session = table.session(Options { access: Access::OneSided }).expect("a session");
    session.put(4711, b"12345678").expect("a put");
    // Long enough for who sleeps to sleep.
    std::thread::sleep(Duration::from_millis(20));
    let mut value = [0; 8];
    assert!(session.get_into(4711, &mut value).expect("a get").is_some());
    assert_eq!(&value, b"12345678");
    assert!(session.get_into(4712, &mut value).expect("a get").is_none());
    assert!(server.stats().calls > 0);
    server.shutdown().expect("its threads end");
}

/// A table whose region takes longer to register than a client waits for a call is made nevertheless, takes
/// pairs meanwhile, and is read one-sided once its region is registered.
#[test]
fn a_table_is_made_while_its_region_is_registered() {
    const LARGE_BYTES: u64 = 980 << 20;
    if !is_asked_for() {
        return;
    }
    let url: ServerUrl = format!("rdma://{}", Verbs::new().address()).parse().expect("a URL");
    let server =
        Server::builder().table_memory_bytes(LARGE_BYTES).listen(url.clone()).start().expect("a server");
    let client = farsight::Client::connect(&url).expect("a client");
    let begun = Instant::now();
    let table = client.create_table::<u64>("prices", 8).expect("a table");
    let made = begun.elapsed();
    let mut caller = table.session(Options { access: Access::Rpc }).expect("a session");
    caller.put(1, b"12345678").expect("a put");
    let mut session = table.session(Options { access: Access::OneSided }).expect("a session");
    for key in 2..200_u64 {
        caller.put(key, &key.to_le_bytes()).expect("a put");
    }
    let mut value = [0; 8];
    for key in 2..200 {
        assert!(session.get_into(key, &mut value).expect("a get").is_some(), "key {key}");
        assert_eq!(value, key.to_le_bytes(), "key {key}");
    }
    println!("made after {made:?}, read after {:?}", begun.elapsed());
    server.shutdown().expect("its threads end");
}

/// A server, or a memory node, in a process of its own; killed when it is dropped.
pub(crate) struct Serving {
    process: Child,
    /// Where it listens.
    pub(crate) url: String,
}

impl Serving {
    /// Starts `program` with these arguments, and waits until it says that it is ready.
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        let process = command.args(arguments).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut serving = Self { process, url: String::new() };
        let mut ready = String::new();
        let output = serving.process.stdout.take().expect("a pipe");
        BufReader::new(output).read_line(&mut ready).expect("a line");
        let url = ready.split_whitespace().find_map(|word| word.strip_prefix("url="));
        url.unwrap_or_else(|| panic!("its URL in {ready:?}")).clone_into(&mut serving.url);
        serving
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program, if there is one; says so if not.
pub(crate) fn program() -> Option<String> {
    let program = std::env::var("FARSIGHT_PROGRAM").ok();
    if program.is_none() {
        println!("NOT RUN: FARSIGHT_PROGRAM names no program; cargo xtask softroce builds one");
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "FARSIGHT_PROGRAM is missing");
    }
    program
}

/// What the program prints, which must end well.
pub(crate) fn run(program: &str, url: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).env("FARSIGHT_URL", url).output().expect("it starts");
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}: {}: {out}{error}", output.status);
    out.into_owned()
}

#[test]
fn the_program_serves() {
    if !is_asked_for() {
        return;
    }
    let Some(program) = program() else { return };
    let serving = Serving::start(&program, &["serve", "--listen", "rdma://127.0.0.1:0", "--memory", "16M"]);
    let url = serving.url.as_str();
    assert!(url.starts_with("rdma://127.0.0.1:"), "{url}");
    run(&program, url, &["create", "prices", "--value-size", "8"]);
    assert_eq!(run(&program, url, &["put", "prices", "4711", "hello"]), "inserted, version 1\n");
    assert_eq!(run(&program, url, &["get", "prices", "4711"]), "hello\n");
    assert_eq!(run(&program, url, &["scan", "prices"]), "4711\thello\n");
    assert!(run(&program, url, &["stats"]).contains("prices"));
    // Its exit status tells of huge pages and limits, too, which are not in question.
    let doctor = Command::new(&program).arg("doctor").env("FARSIGHT_URL", url).output().expect("it starts");
    let doctor = String::from_utf8_lossy(&doctor.stdout);
    for part in ["rdma", "READs begun and", "atomics ", "inline", &format!("answers at {url}")] {
        assert!(doctor.contains(part), "{part:?} in {doctor}");
    }
}
