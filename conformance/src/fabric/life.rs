//! Connecting, dying, restarting, fencing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{ClientId, Line};
use farsight_fabric::{
    Connection, Departure, FabricError, Host, QueuePair, ReadMode, Region, RegionRights, ServerPort,
};

use super::FabricUnderTest;
use super::harness::{
    Ask, Bench, FORMAT, NOTICE, PATIENCE, Running, assert_dies, assert_disconnected, at, call, death, read,
    request,
};

/// A call that executes when its server dies ends in `Disconnected` within a second.
pub fn peer_death_ends_a_call<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    bench.queue.post_call(0, &request(Ask::Sleep, &[3_000])).expect("the request fits");
    bench.queue.doorbell().expect("the doorbell rings");
    std::thread::sleep(Duration::from_millis(50));
    bench.server.die();
    assert_dies(&mut bench.queue);
    let mut reply = b"kept".to_vec();
    assert_disconnected(&bench.queue.take_reply(0, &mut reply).expect_err("nobody answered"));
    assert_eq!(reply, b"kept", "a failed call leaves the buffer alone");
}

/// Memory may outlive its server; READs end all the same, and so does everything else.
pub fn peer_death_ends_reads<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    bench.server.die();
    let died = Instant::now();
    let mut line = [Line::ZERO];
    loop {
        bench.queue.post_read(0, bench.word(0), 1, ReadMode::Plain);
        if let Err(error) = bench.queue.doorbell() {
            assert_disconnected(&error);
            break;
        }
        assert!(died.elapsed() < NOTICE, "READs go on after the server's death");
        // A READ that was rung before the death was noticed may still complete.
        if bench.queue.is_complete(0) {
            let _ = bench.queue.take_read(0, &mut line);
        }
    }
    assert_disconnected(&bench.connection.open_queue().err().expect("no new queue"));
    assert_disconnected(&bench.queue.attach(bench.region.id()).expect_err("no more regions"));
}

/// Dropping a connection ends its queues, and the server forgets the client.
pub fn closing_ends_the_queues<F: FabricUnderTest>(subject: &F) {
    let Bench { mut queue, connection, region: _region, server } =
        Bench::new(subject, RegionRights::ReadOnly);
    drop(connection);
    assert_dies(&mut queue);
    let started = Instant::now();
    while server.host().client_count() > 0 {
        assert!(started.elapsed() < NOTICE, "the server still counts a client that left");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A queue for which the server has no memory is refused by its words. What is closed makes room again.
pub fn queues_are_opened_within_their_memory<F: FabricUnderTest>(subject: &F) {
    const QUEUES: usize = 3;
    if !subject.queues_take_memory() {
        return;
    }
    let host = subject.listen(FORMAT);
    // What is set aside holds the counter.
    let (set_aside, held_most) = (Arc::new(()), Arc::new(AtomicU64::new(0)));
    let (weak, held) = (Arc::downgrade(&set_aside), Arc::clone(&held_most));
    host.limit_queues(Arc::new(move |held_bytes, bytes| {
        assert!((1..64 << 20).contains(&bytes), "a queue takes {bytes} B");
        // Relaxed: read behind a reply.
        held.fetch_max(held_bytes, Ordering::Relaxed);
        match weak.upgrade().filter(|set_aside| Arc::strong_count(set_aside) <= QUEUES + 2) {
            Some(set_aside) => Ok(Box::new(set_aside)),
            None => Err("the test has no memory left".to_owned()),
        }
    }));
    let _server = Running::start(host, 1);
    let connection = subject.connect(FORMAT).expect("a connection");
    let mut queues: Vec<_> = Vec::new();
    let refused = loop {
        match connection.open_queue() {
            Ok(mut queue) => {
                assert_eq!(call(&mut queue, 0, b"hello"), b"hello");
                queues.push(queue);
                assert!(queues.len() <= QUEUES + 1, "each takes its part");
            }
            Err(error) => break error.to_string(),
        }
    };
    assert!(refused.contains("the test has no memory left"), "{refused}");
    assert!(queues.len() >= QUEUES && held_most.load(Ordering::Relaxed) > 0, "{} queues", queues.len());
    connection.check().expect("the client lives");
    assert_eq!(call(&mut queues[0], 0, b"hello"), b"hello");
    drop(queues.pop());
    let started = Instant::now();
    while let Err(error) = connection.open_queue() {
        assert!(started.elapsed() < PATIENCE, "what was closed makes no room: {error}");
        std::thread::sleep(Duration::from_millis(1));
    }
    drop((queues, connection));
    while Arc::strong_count(&set_aside) > 1 {
        assert!(started.elapsed() < PATIENCE, "what was set aside is kept");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A server at the same address has another epoch; the old connection stays dead.
pub fn restart_is_another_epoch<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let epoch = bench.connection.epoch();
    assert_eq!(epoch, bench.server.host().epoch(), "both sides name one epoch");
    bench.server.die();
    let server = Running::start(subject.listen(FORMAT), 1);
    assert_ne!(server.host().epoch(), epoch);
    assert_dies(&mut bench.queue);
    assert_disconnected(&bench.connection.check().expect_err("its server is dead"));
    let fresh = subject.connect(FORMAT).expect("a connection");
    let renewed = bench.connection.reconnect(PATIENCE).expect("the old address");
    for connection in [fresh, renewed] {
        assert_eq!(connection.epoch(), server.host().epoch());
        connection.check().expect("its server lives");
        let mut queue = connection.open_queue().expect("a queue");
        assert_eq!(call(&mut queue, 0, b"hello"), b"hello");
    }
    assert_disconnected(&bench.connection.check().expect_err("a new connection does not repair the old"));
}

/// A client of another format version is told which version each side speaks.
pub fn other_format_is_refused_by_name<F: FabricUnderTest>(subject: &F) {
    let server = Running::start(subject.listen(3), 1);
    for version in [2, 4, u32::MAX] {
        match subject.connect(version) {
            Err(FabricError::Refused { reason, .. }) => {
                assert!(
                    reason.contains("format 3") && reason.contains(&format!("format {version}")),
                    "{reason}"
                );
                assert!(reason.contains("same version"), "the remedy is named: {reason}");
            }
            Err(other) => panic!("format {version} came to {other}"),
            Ok(_) => panic!("format {version} was let in"),
        }
    }
    assert_eq!(server.host().client_count(), 0);
    subject.connect(3).expect("its own version is let in");
}

/// The server counts its clients as they come and go.
pub fn clients_are_counted<F: FabricUnderTest>(subject: &F) {
    let server = Running::start(subject.listen(FORMAT), 1);
    let connections: Vec<_> = (0..5).map(|_| subject.connect(FORMAT).expect("a connection")).collect();
    assert_eq!(server.host().client_count(), 5);
    drop(connections);
    let started = Instant::now();
    while server.host().client_count() > 0 {
        assert!(started.elapsed() < NOTICE, "{} clients are left", server.host().client_count());
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// After a fence the client's calls end, none of its requests executes, and others go on.
pub fn fenced_client_is_cut_off<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let other = subject.connect(FORMAT).expect("a connection");
    let mut other_queue = other.open_queue().expect("a queue");
    fence_the_first(bench.server.host());
    let calls = bench.server.calls();
    let _ = bench.queue.post_call(0, b"too late");
    let _ = bench.queue.doorbell();
    for error in death(&mut bench.queue) {
        assert!(matches!(error, FabricError::Dismissed { .. }), "{error}");
    }
    let error = bench.connection.check().expect_err("it was fenced");
    assert!(matches!(error, FabricError::Dismissed { .. }), "{error}");
    assert_eq!(call(&mut other_queue, 0, b"go on"), b"go on");
    assert_eq!(bench.server.calls(), calls + 1, "a request of a fenced client was executed");
}

/// Fences the client that connected first: ids only grow.
fn fence_the_first(host: &impl Host) {
    let fenced = (1..100).map(ClientId).find(|client| {
        let before = host.client_count();
        host.fence(*client).expect("a fence");
        host.client_count() < before
    });
    assert!(fenced.is_some(), "no client could be fenced");
}

/// Dismisses the client that connected first, until it has gone.
fn dismiss_the_first(host: &impl Host) {
    let dismissed = (1..100).map(ClientId).find(|client| {
        let (before, started) = (host.client_count(), Instant::now());
        while host.dismiss(*client).expect("a dismissal") != Departure::Gone {
            assert!(started.elapsed() < PATIENCE, "{client} stays");
            std::thread::sleep(Duration::from_micros(100));
        }
        host.client_count() < before
    });
    assert!(dismissed.is_some(), "no client could be dismissed");
}

/// When a fence returns, no WRITE and no atomic of the client executes any more, though it rings on and on.
pub fn nothing_changes_after_a_fence<F: FabricUnderTest>(subject: &F) {
    changes_end_with(subject, fence_the_first);
}

/// Once a dismissed client has gone, no WRITE and no atomic of it executes any more either.
pub fn nothing_changes_after_a_departure<F: FabricUnderTest>(subject: &F) {
    changes_end_with(subject, dismiss_the_first);
}

fn changes_end_with<F: FabricUnderTest>(subject: &F, end_the_first: impl Fn(&F::Host)) {
    for round in 0..20 {
        let Bench { mut queue, connection: _connection, region, server } =
            Bench::new(subject, RegionRights::ReadWrite);
        let place = at(region.id(), 0);
        let ring_on = move || {
            let started = Instant::now();
            loop {
                for slot in 0..64 {
                    queue.post_fetch_add(slot, place, 1);
                }
                if let Err(error) = queue.doorbell().and_then(|()| queue.poll()) {
                    return error;
                }
                assert!(started.elapsed() < PATIENCE, "a fenced client rings on");
            }
        };
        std::thread::scope(|scope| {
            let client = scope.spawn(ring_on);
            let started = Instant::now();
            while region.words()[0].load(Ordering::Acquire) == 0 {
                assert!(started.elapsed() < PATIENCE, "no atomic executes");
            }
            std::thread::sleep(Duration::from_micros(50 * round));
            end_the_first(server.host());
            let fenced_at = region.words()[0].load(Ordering::Acquire);
            let error = client.join().expect("the client");
            assert!(matches!(error, FabricError::Dismissed { .. }), "{error}");
            assert_eq!(region.words()[0].load(Ordering::Acquire), fenced_at, "changed after the fence");
        });
    }
}

/// A client that is not there is fenced already.
pub fn fencing_nobody_succeeds<F: FabricUnderTest>(subject: &F) {
    let server = Running::start(subject.listen(FORMAT), 1);
    server.host().fence(ClientId(12_345)).expect("nobody to fence");
}

/// A wait for nothing ends at its timeout, neither long before nor long after.
pub fn wait_ends_in_time<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    for timeout_ms in [0, 1, 50] {
        let timeout = Duration::from_millis(timeout_ms);
        let started = Instant::now();
        bench.queue.wait(timeout).expect("waiting");
        let took = started.elapsed();
        assert!(took >= timeout, "{took:?} of {timeout:?}");
        assert!(took < timeout + NOTICE, "{took:?} of {timeout:?}");
    }
    let mut line = [Line::ZERO];
    let from = bench.word(0);
    read(&mut bench.queue, from, ReadMode::Plain, &mut line).expect("the queue lives on");
}

/// `wake` ends `step` and every port's `wait`.
pub fn wake_ends_the_servers_sleep<F: FabricUnderTest>(subject: &F) {
    let host = subject.listen(FORMAT);
    let mut ports = [host.open_port().expect("a port"), host.open_port().expect("a port")];
    let started = Instant::now();
    std::thread::scope(|scope| {
        for port in &mut ports {
            scope.spawn(|| port.wait(PATIENCE));
        }
        scope.spawn(|| host.step(PATIENCE).expect("a step"));
        std::thread::sleep(Duration::from_millis(20));
        host.wake();
    });
    assert!(started.elapsed() < NOTICE + NOTICE, "a sleeper slept on for {:?}", started.elapsed());
}

/// Sessions tell each other until when something holds: whichever queue pair is asked, it is one time.
pub fn queues_of_a_process_have_one_clock<F: FabricUnderTest>(subject: &F) {
    let bench = Bench::new(subject, RegionRights::ReadOnly);
    std::thread::sleep(Duration::from_millis(20));
    let same = bench.connection.open_queue().expect("a queue");
    let another = subject.connect(FORMAT).expect("a connection");
    let other = another.open_queue().expect("a queue");
    let read = [bench.queue.now(), same.now(), other.now(), bench.queue.now()];
    assert!(read.is_sorted(), "one clock, read four times: {read:?}");
}
