//! Many connections to one server.

use std::time::{Duration, Instant};

use farsight_base::Line;
use farsight_base::sync::Ordering;
use farsight_conformance::fabric::FabricUnderTest as _;
use farsight_conformance::fabric::harness::{
    FORMAT, NOTICE, Running, at, call, death, raise_descriptors, read,
};
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric::{Connection as _, FabricError, Host as _, QueuePair as _, ReadMode, RegionRights};

/// Queue pairs; each takes a descriptor on either side, and both sides are this process.
const QUEUES: usize = 1_000;

#[test]
fn a_thousand_queue_pairs_are_served_and_fenced() {
    if !raise_descriptors(4096) {
        assert!(std::env::var_os("FARSIGHT_CI").is_none(), "no descriptors for {QUEUES} queue pairs");
        println!("skipped: {QUEUES} queue pairs need 4096 descriptors (ulimit -n)");
        return;
    }
    let subject = Tcp::default();
    let server = Running::start(subject.listen(FORMAT), 2);
    let region = server.host().create_region(1 << 20, RegionRights::ReadOnly).expect("a region");
    let connections = [(); 4].map(|()| subject.connect(FORMAT).expect("a connection"));
    let mut queues: Vec<_> = (0..QUEUES)
        .map(|index| {
            let mut queue = connections[index % connections.len()].open_queue().expect("a queue");
            queue.attach(region.id()).expect("the region attaches");
            queue
        })
        .collect();
    for round in 1..=3_u64 {
        region.words()[0].store(round, Ordering::Release);
        // All at once, then each its own.
        for queue in &mut queues {
            queue.post_read(0, at(region.id(), 0), 1, ReadMode::Plain);
            queue.post_call(1, format!("round {round}").as_bytes()).expect("it fits");
            queue.doorbell().expect("a doorbell");
        }
        for queue in &mut queues {
            queue.drain().expect("a READ");
            let mut line = [Line::ZERO];
            queue.take_read(0, &mut line).expect("a READ");
            assert_eq!(line[0].0[0], round);
            while !queue.is_complete(1) {
                queue.wait(NOTICE).expect("waiting");
                queue.poll().expect("polling");
            }
            let mut reply = Vec::new();
            queue.take_reply(1, &mut reply).expect("a reply");
            assert_eq!(reply, format!("round {round}").as_bytes());
        }
    }
    server.host().fence(connections[0].client()).expect("a fence");
    for (index, queue) in queues.iter_mut().enumerate() {
        if index % connections.len() == 0 {
            for error in death(queue) {
                assert!(matches!(error, FabricError::Dismissed { .. }), "{error}");
            }
        } else {
            assert_eq!(call(queue, 0, b"go on"), b"go on");
        }
    }
}

/// Clients that come and go leave nothing behind, and hold up nobody.
#[test]
fn clients_come_and_go() {
    let subject = Tcp::default();
    let server = Running::start(subject.listen(FORMAT), 1);
    let region = server.host().create_region(4096, RegionRights::ReadOnly).expect("a region");
    for _ in 0..200 {
        let connection = subject.connect(FORMAT).expect("a connection");
        let mut queue = connection.open_queue().expect("a queue");
        queue.attach(region.id()).expect("the region attaches");
        read(&mut queue, at(region.id(), 0), ReadMode::Plain, &mut [Line::ZERO]).expect("a READ");
    }
    let begun = Instant::now();
    while server.host().client_count() > 0 {
        assert!(begun.elapsed() < NOTICE, "{} clients are left", server.host().client_count());
        std::thread::sleep(Duration::from_millis(1));
    }
}
