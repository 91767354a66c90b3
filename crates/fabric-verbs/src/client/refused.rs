//! What the server's card refuses when a client does not check its verbs itself. Needs a device, so tests
//! here are ignored unless they are requested.

use std::time::{Duration, Instant};

use farsight_base::sync::{AtomicBool, Ordering};
use farsight_base::{ClientId, Line, RemoteAddress};
use farsight_fabric::mapped::read_alone;
use farsight_fabric::{
    Answer, CallHandler, Connection, FabricError, Host, QueuePair, ReadMode, Region, RegionRights,
    ServerPort, Ticket,
};

use farsight_fabric_net::Tls;

use super::queue::VerbsQueue;
use crate::{ConnectOptions, ListenOptions, VerbsConnection, VerbsHost, VerbsPort};

pub(super) const PATIENCE: Duration = Duration::from_secs(20);

struct Echo;

impl CallHandler for Echo {
    fn handle(&mut self, _: ClientId, _: Ticket, request: &[u8], reply: &mut Vec<u8>) -> Answer {
        reply.extend(request);
        Answer::Now
    }
}

/// Has threads end with what they run beside, also if that panics.
struct Stopping<'h>(&'h AtomicBool, &'h VerbsHost);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        // Relaxed: the flag carries nothing with it.
        self.0.store(true, Ordering::Relaxed);
        self.1.wake();
    }
}

/// Runs `test` with a server's host and address, its threads beside.
pub(super) fn with_server(tls: Option<Tls>, test: impl FnOnce(&VerbsHost, &str)) {
    let serve = |port: &mut VerbsPort, stop: &AtomicBool| {
        // Relaxed: as above.
        while !stop.load(Ordering::Relaxed) {
            if port.serve(16, &mut Echo) == 0 {
                port.wait(PATIENCE);
            }
        }
    };
    with_worker(tls, serve, test);
}

/// The same, with a worker that does what `work` says.
pub(super) fn with_worker(
    tls: Option<Tls>,
    work: impl FnOnce(&mut VerbsPort, &AtomicBool) + Send,
    test: impl FnOnce(&VerbsHost, &str),
) {
    let address = std::env::var("FARSIGHT_VERBS_ADDRESS").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let options = ListenOptions { tls, allow_plaintext: true, ..ListenOptions::new(1) };
    let host = VerbsHost::listen(&format!("{address}:0"), &options).expect("a server");
    let stop = AtomicBool::new(false);
    let mut port = host.open_port().expect("a port");
    std::thread::scope(|scope| {
        let _stopping = Stopping(&stop, &host);
        scope.spawn(|| work(&mut port, &stop));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                host.step(PATIENCE).expect("the server listens");
            }
        });
        test(&host, &host.socket_address().to_string());
    });
}

/// Waits for the end of a batch, whichever it is.
pub(super) fn outcome(queue: &mut VerbsQueue) -> Result<(), FabricError> {
    queue.doorbell()?;
    let started = Instant::now();
    while !queue.is_complete(0) {
        assert!(started.elapsed() < PATIENCE, "the verb neither completes nor fails");
        queue.poll()?;
        queue.wait(Duration::from_millis(50))?;
    }
    Ok(())
}

/// A verb that the client's own checks let through and the server's card does not.
type Lie = fn(&mut VerbsQueue, &dyn Region);

fn write_read_only(queue: &mut VerbsQueue, region: &dyn Region) {
    queue.region_mut(region.id()).rights = RegionRights::ReadWrite;
    queue.post_write(0, RemoteAddress { region: region.id(), offset_bytes: 0 }, &[1]);
}

fn add_to_read_only(queue: &mut VerbsQueue, region: &dyn Region) {
    queue.region_mut(region.id()).rights = RegionRights::ReadWrite;
    queue.post_fetch_add(0, RemoteAddress { region: region.id(), offset_bytes: 0 }, 1);
}

fn read_past_the_end(queue: &mut VerbsQueue, region: &dyn Region) {
    let end = region.words().len() as u64 * 8;
    queue.region_mut(region.id()).length_bytes = end + 64;
    queue.post_read(0, RemoteAddress { region: region.id(), offset_bytes: end }, 1, ReadMode::Plain);
}

fn read_by_a_wrong_key(queue: &mut VerbsQueue, region: &dyn Region) {
    queue.region_mut(region.id()).key ^= 0x55;
    queue.post_read(0, RemoteAddress { region: region.id(), offset_bytes: 0 }, 1, ReadMode::Plain);
}

/// The card says no, the connection is over, nothing has changed, and other clients go on.
#[test]
#[ignore = "needs an RDMA device: cargo xtask softroce runs it where there is one"]
fn the_card_refuses_what_the_client_does_not_check() {
    let lies: [Lie; 4] = [write_read_only, add_to_read_only, read_past_the_end, read_by_a_wrong_key];
    with_server(None, |host, address| {
        let region = host.create_region(1 << 20, RegionRights::ReadOnly).expect("a region");
        let honest = VerbsConnection::connect(
            address,
            ConnectOptions { allow_plaintext: true, ..ConnectOptions::new(1) },
        )
        .expect("a connection");
        let mut honest_queue = honest.open_queue().expect("a queue");
        honest_queue.attach(region.id()).expect("the region attaches");
        for lie in lies {
            let liar = VerbsConnection::connect(
                address,
                ConnectOptions { allow_plaintext: true, ..ConnectOptions::new(1) },
            )
            .expect("a connection");
            let mut queue = liar.open_queue().expect("a queue");
            queue.attach(region.id()).expect("the region attaches");
            lie(&mut queue, &*region);
            let error = outcome(&mut queue).expect_err("the card refuses it");
            assert!(
                matches!(error, FabricError::Disconnected { .. } | FabricError::Dismissed { .. }),
                "{error}"
            );
            liar.check().expect_err("the connection is over");
            assert!(region.words().iter().all(|word| word.load(Ordering::Acquire) == 0), "something changed");
            let from = RemoteAddress { region: region.id(), offset_bytes: 0 };
            let mut line = [Line([1; 8])];
            read_alone(&mut honest_queue, from, &mut line, ReadMode::Stamped).expect("others go on");
            assert_eq!(line, [Line::ZERO]);
        }
    });
}
