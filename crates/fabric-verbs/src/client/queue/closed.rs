//! Queues that their client has asked to close, and goes on using or not. Needs a device, so tests here are
//! ignored unless they are requested.

use std::time::Instant;

use farsight_base::RemoteAddress;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric::{Connection, Host, QueuePair, Region, RegionRights};

use super::VerbsQueue;
use crate::client::refused::{PATIENCE, outcome, with_server, with_worker};
use crate::control::FromClient;
use crate::ibv::ffi::{self, WorkCompletion};
use crate::{ConnectOptions, VerbsConnection, VerbsPort};

fn connect(address: &str) -> VerbsConnection {
    let options = ConnectOptions { allow_plaintext: true, ..ConnectOptions::new(1) };
    VerbsConnection::connect(address, options).expect("a connection")
}

/// Posts a WRITE, whatever the connection has come to, and waits for what the card says.
fn write_at_any_rate(queue: &mut VerbsQueue, to: RemoteAddress, word: u64) -> i32 {
    queue.post_write(0, to, &[word]);
    let works = queue.chain.left();
    // SAFETY: the queue's memory stays registered until its pair is dropped.
    unsafe { queue.chain.post(&queue.pair, works) }.expect("the card takes it");
    let (started, mut found) = (Instant::now(), [WorkCompletion::default()]);
    while queue.completions.poll(&mut found).expect("a completion queue") == 0 {
        assert!(started.elapsed() < PATIENCE, "the WRITE neither completes nor fails");
        std::thread::yield_now();
    }
    found[0].status
}

/// The worker that destroys closed queue pairs is busy for as long as it likes. A fence waits for no worker:
/// behind it the card executes nothing of the client, closed or not.
#[test]
#[ignore = "needs an RDMA device: cargo xtask softroce runs it where there is one"]
fn a_closed_queue_that_its_client_uses_is_fenced() {
    let busy = |_: &mut VerbsPort, _: &AtomicBool| ();
    with_worker(None, busy, |host, address| {
        let region = host.create_region(1 << 20, RegionRights::ReadWrite).expect("a region");
        // Acquire: the partner is the card.
        let word = || region.words()[0].load(Ordering::Acquire);
        let to = RemoteAddress { region: region.id(), offset_bytes: 0 };
        let connection = connect(address);
        let mut queue = connection.open_queue().expect("a queue");
        queue.attach(region.id()).expect("the region attaches");
        queue.post_write(0, to, &[1]);
        outcome(&mut queue).expect("a WRITE");
        queue.link.tell(FromClient::CloseQueue { queue: queue.calls.queue() }).expect("it is sent");
        let _other = connection.open_queue().expect("a queue, behind the end of the first");
        queue.post_write(0, to, &[2]);
        outcome(&mut queue).expect("a WRITE by a queue pair that nobody has destroyed yet");
        assert_eq!(word(), 2);
        host.fence(connection.client()).expect("a fence");
        let status = write_at_any_rate(&mut queue, to, 3);
        assert_ne!((status, word()), (ffi::STATUS_SUCCESS, 3), "a fenced client's WRITE");
        assert_eq!(word(), 2);
    });
}

/// What a server keeps of queues is what they are, however many a client has closed.
#[test]
#[ignore = "needs an RDMA device: cargo xtask softroce runs it where there is one"]
fn queues_that_are_closed_are_forgotten() {
    with_server(None, |host, address| {
        let connection = connect(address);
        let kept = connection.open_queue().expect("a queue");
        for _ in 0..20 {
            drop(connection.open_queue().expect("a queue"));
        }
        let started = Instant::now();
        while host.queue_count() > 1 {
            assert!(started.elapsed() < PATIENCE, "{} queues are kept", host.queue_count());
            std::thread::yield_now();
        }
        drop(kept);
    });
}
