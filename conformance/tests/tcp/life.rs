//! Half-open peers, and regions taken away.

use std::net::{Shutdown, SocketAddr};

use farsight_base::sync::Ordering;
use farsight_conformance::fabric::harness::{Bench, PATIENCE, assert_disconnected, call, ring_and_wait};
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric::{
    Connection as _, FabricError, Host as _, QueuePair as _, ReadMode, Region as _, RegionRights,
};

use super::raw::RawClient;

/// When the host has taken a region away nothing of the client touches it any more, and others go on.
#[test]
fn a_region_taken_away_is_gone_at_once() {
    let subject = Tcp::default();
    let mut bench = Bench::new(&subject, RegionRights::ReadWrite);
    let mut other = bench.another_queue();
    let place = bench.word(8);
    bench.queue.post_fetch_add(0, place, 1);
    ring_and_wait(&mut bench.queue, &[0]);
    bench.server.host().revoke(bench.connection.client(), bench.region.id());
    bench.queue.post_fetch_add(0, place, 1);
    bench.queue.post_read(1, place, 1, ReadMode::Plain);
    ring_and_wait(&mut bench.queue, &[0, 1]);
    match bench.queue.take_word(0) {
        Err(FabricError::AccessDenied { address, reason, .. }) => {
            assert_eq!(address, place);
            assert!(reason.contains("taken"), "{reason}");
        }
        outcome => panic!("a verb on a region taken away came to {outcome:?}"),
    }
    assert_disconnected(&bench.queue.take_read(1, &mut []).expect_err("a verb behind it"));
    assert_disconnected(&bench.queue.doorbell().expect_err("the queue is dead"));
    bench.connection.check().expect("the client lives");
    assert_eq!(call(&mut other, 0, b"go on"), b"go on");
    assert_eq!(bench.region.words()[8].load(Ordering::Acquire), 1);
}

/// Who ends its control connection ends all, even if its queue pairs stay open.
#[test]
fn half_a_client_is_none() {
    let bench = Bench::new(&Tcp::default(), RegionRights::ReadOnly);
    let client = RawClient::connect(bench.server.host().local_address());
    let mut queue = client.open_queue();
    assert_eq!(bench.server.host().client_count(), 2);
    client.control.0.shutdown(Shutdown::Write).expect("a half-closed connection");
    queue.assert_ends();
    let begun = std::time::Instant::now();
    while bench.server.host().client_count() > 1 {
        assert!(begun.elapsed() < PATIENCE, "half a client is counted");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// True if the kernel watches the connection between these two for signs of life, on the side of `own`.
fn is_watched(own: SocketAddr, peer: SocketAddr) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let port = |field: &str| u16::from_str_radix(field.rsplit(':').next().unwrap_or_default(), 16).ok();
    let rows = table.lines().map(|row| row.split_ascii_whitespace().collect::<Vec<_>>());
    let mut found = rows
        .filter(|row| row.len() > 5 && (port(row[1]), port(row[2])) == (Some(own.port()), Some(peer.port())));
    // The timer that runs: 2 is keep-alive.
    found.next().is_some_and(|row| row[5].starts_with("02:"))
}

/// A peer that vanished without a word is asked whether it lives: each kind of connection, on the server.
#[test]
fn silent_peers_are_asked_for_signs_of_life() {
    let bench = Bench::new(&Tcp::default(), RegionRights::ReadOnly);
    let client = RawClient::connect(bench.server.host().local_address());
    let queue = client.open_queue();
    for raw in [&client.control, &queue] {
        let own = raw.0.local_addr().expect("an address");
        assert!(is_watched(client.server, own), "nobody asks {own}");
    }
}
