//! Control connections that keep no rule: each ends alone, and an honest client beside them does not notice.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use farsight_conformance::fabric::FabricUnderTest;
use farsight_conformance::fabric::harness::{FORMAT, Running, call, raise_descriptors};
use farsight_conformance::fabric::verbs::{Verbs, is_asked_for};
use farsight_fabric::{Connection, Host};
use rustix::net::{AddressFamily, SocketType};

/// Longer than the server waits for a hello.
const PATIENCE: Duration = Duration::from_secs(10);

fn frame(kind: u32, fields: &[u8]) -> Vec<u8> {
    let length_bytes = u32::try_from(4 + fields.len()).expect("a short frame");
    [&length_bytes.to_le_bytes()[..], &kind.to_le_bytes(), fields].concat()
}

fn hello() -> Vec<u8> {
    frame(1, &[&b"FARVERBS"[..], &2_u32.to_le_bytes(), &FORMAT.to_le_bytes()].concat())
}

/// An endpoint of nobody, with these bytes for packet length, link, READs begun and READs served.
fn endpoint(small: [u8; 4]) -> Vec<u8> {
    [&[9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0][..], &small, &[0xfe; 16]].concat()
}

/// Sends `bytes` and returns all that the server says until it hangs up.
fn say(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let begun = Instant::now();
    // It may hang up before all is sent.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let outcome = stream.read_to_end(&mut answer);
    assert!(begun.elapsed() < PATIENCE, "the server listens on and on: {outcome:?}");
    String::from_utf8_lossy(&answer).into_owned()
}

/// A connection to `server` from another address, if it is on loopback: so many would take ports of this one
/// that other tests have chosen to listen at.
fn connect_from_elsewhere(server: SocketAddr) -> TcpStream {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    if server.ip().is_loopback() {
        rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 2], 0))).expect("an address of loopback");
    }
    rustix::net::connect(&socket, &server).expect("the server listens");
    TcpStream::from(socket)
}

/// Connections that say nothing are no clients: more of them than a server has clients keep nobody out, and
/// the oldest make room for the others.
#[test]
fn silent_connections_take_no_clients_place() {
    const SILENT: usize = 1100;
    if !is_asked_for() {
        return;
    }
    assert!(raise_descriptors(4096), "no descriptors for {SILENT} connections");
    let subject = Verbs::new();
    let server = Running::start(subject.listen(FORMAT), 1);
    let address: SocketAddr = subject.address().parse().expect("an address");
    let mut silent: Vec<TcpStream> = (0..SILENT).map(|_| connect_from_elsewhere(address)).collect();
    let honest = subject.connect(FORMAT).expect("a connection beside them");
    assert_eq!(server.host().client_count(), 1);
    let mut queue = honest.open_queue().expect("a queue");
    assert_eq!(call(&mut queue, 0, b"go on"), b"go on");
    silent[0].set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut reason = Vec::new();
    silent[0].read_to_end(&mut reason).expect("the oldest has gone");
    let reason = String::from_utf8_lossy(&reason);
    assert!(reason.contains("not said hello") || reason.contains("no hello"), "{reason}");
}

/// Whatever comes, the server says why it hangs up, and others go on.
#[test]
fn disorder_ends_its_client_alone() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let server = Running::start(subject.listen(FORMAT), 1);
    let honest = subject.connect(FORMAT).expect("a connection");
    let mut queue = honest.open_queue().expect("a queue");
    let bad_magic = frame(1, &[&b"FARSHM\0\0"[..], &[1, 0, 0, 0, 7, 0, 0, 0]].concat());
    let bad_version = frame(1, &[&b"FARVERBS"[..], &[9, 0, 0, 0, 7, 0, 0, 0]].concat());
    let after_hello = |rest: &[u8]| [&hello(), rest].concat();
    let cases: [(Vec<u8>, &str); 9] = [
        (Vec::new(), "no hello came in time"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "a packet announces"),
        (frame(3, &[1, 0, 0, 0]), "the first message was no hello"),
        (bad_magic, "no farsight client"),
        (bad_version, "fabric 2, this client fabric 9"),
        (after_hello(&hello()), "a second hello"),
        (after_hello(&frame(99, &[])), "kind 99"),
        (after_hello(&frame(2, &endpoint([9, 0, 1, 1]))), "packet length 9"),
        (after_hello(&frame(3, &[1, 0, 0, 0, 0])), "longer than its message"),
    ];
    for (bytes, reason) in cases {
        let answer = say(subject.address(), &bytes);
        assert!(answer.contains(reason), "{bytes:?} came to {answer:?}, not {reason:?}");
        assert_eq!(call(&mut queue, 0, b"go on"), b"go on");
    }
    let started = Instant::now();
    while server.host().client_count() > 1 {
        assert!(started.elapsed() < PATIENCE, "{} clients are left", server.host().client_count());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A queue pair that reaches nobody takes nothing from those that do, and goes with its connection.
#[test]
fn an_endpoint_of_nobody_harms_nobody() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let server = Running::start(subject.listen(FORMAT), 1);
    let honest = subject.connect(FORMAT).expect("a connection");
    let mut queue = honest.open_queue().expect("a queue");
    for _ in 0..3 {
        let mut stream = TcpStream::connect(subject.address()).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let question = frame(2, &endpoint([3, 0, 1, 1]));
        stream.write_all(&[hello(), question].concat()).expect("it is sent");
        let mut welcome = [0; 24];
        stream.read_exact(&mut welcome).expect("a welcome");
        let mut answer = [0; 8];
        stream.read_exact(&mut answer).expect("an answer, be it that there is no way there");
        assert_eq!(call(&mut queue, 0, b"go on"), b"go on");
    }
    let started = Instant::now();
    while server.host().client_count() > 1 {
        assert!(started.elapsed() < PATIENCE, "{} clients are left", server.host().client_count());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Who says more at once than is heard in a turn is heard to the end.
#[test]
fn what_comes_in_one_piece_is_heard_to_its_end() {
    if !is_asked_for() {
        return;
    }
    let subject = Verbs::new();
    let _server = Running::start(subject.listen(FORMAT), 1);
    let mut stream = TcpStream::connect(subject.address()).expect("the server listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut all = hello();
    // Queues that it does not have: there is no answer to that.
    (0..200_u64).for_each(|queue| all.extend(frame(4, &queue.to_le_bytes())));
    all.extend(frame(3, &77_u32.to_le_bytes()));
    stream.write_all(&all).expect("it is sent");
    let mut answers = [0; 24 + 12];
    stream.read_exact(&mut answers).expect("a welcome and an answer");
    assert_eq!(answers[24..], frame(133, &77_u32.to_le_bytes()));
}
