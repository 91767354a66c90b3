//! Clients that are stopped wherever they are, and are kept from writing although their processes live.

use std::process::Child;
use std::time::Duration;

use farsight_base::ClientId;
use farsight_base::prng::SplitMix64;
use farsight_base::sync::Ordering;
use farsight_fabric::{Departure, Host, Region, RegionRights};
use rustix::process::Signal;

use crate::harness::{Directory, Running, eventually, play};
use crate::killed::{kill, signal, stop};
use crate::roles::{COUNT_WORD, DISMISSED, REGION_BYTES, await_ready, await_word};

/// How long a stopped client is awaited that may not be kept from writing.
const WINDOW: Duration = Duration::from_millis(300);

fn sum(region: &dyn Region) -> u64 {
    region.words().iter().fold(0, |sum, word| sum.wrapping_add(word.load(Ordering::Acquire)))
}

/// The doorbells that clients have counted.
fn count(region: &dyn Region) -> u64 {
    region.words()[COUNT_WORD as usize].load(Ordering::Acquire)
}

/// Stops `client`, which began at `counted`, somewhere, ends it at the server, and lets it run again. Nothing
/// that it does reaches the region once it is gone. What the server writes meanwhile stays.
fn check(
    (server, region): (&Running, &dyn Region),
    (client, id): (&mut Child, ClientId),
    counted: u64,
    maps_anew: bool,
    random: &mut SplitMix64,
) {
    let before = sum(region);
    eventually("writes", || sum(region) != before);
    std::thread::sleep(Duration::from_micros(random.below(3_000)));
    stop(client);
    let mut is_at_work = false;
    eventually("its end", || match server.host.dismiss(id).expect("a dismissal") {
        Departure::Gone => true,
        // It maps its region anew, and cannot be kept from writing while it does.
        Departure::Awaited(lingering) if lingering.told_for > WINDOW => {
            is_at_work = true;
            true
        }
        _ => false,
    });
    if is_at_work {
        assert!(maps_anew, "it was not kept from writing");
        signal(client, Signal::CONT);
        await_word(client, DISMISSED);
        return eventually("its leaving", || {
            server.host.dismiss(id).expect("a dismissal") == Departure::Gone
        });
    }
    let counted = count(region) - counted;
    for word in region.words().iter().step_by(511) {
        word.fetch_add(random.next_u64(), Ordering::AcqRel);
    }
    let fenced = sum(region);
    signal(client, Signal::CONT);
    let told: u64 = await_word(client, DISMISSED).parse().expect("a number");
    // Of its last doorbell it knows only that it failed.
    assert!([told, told + 1].contains(&counted), "{counted} of {told} doorbells that it was told of");
    assert_eq!(sum(region), fenced, "it wrote after it had gone");
    assert!(client.try_wait().expect("its state").is_none(), "its process ended");
}

fn scattering(role: &str, rounds: u64, maps_anew: bool) {
    let mut random = SplitMix64::fresh();
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let region = server.host.create_region(REGION_BYTES, RegionRights::ReadWrite).expect("a region");
    for round in 1..=rounds {
        let counted = count(&*region);
        let mut client = play(role, &directory.socket());
        await_ready(&mut client);
        check((&server, &*region), (&mut client, ClientId(round)), counted, maps_anew, &mut random);
        kill(client);
    }
    assert_eq!(server.host.client_count(), 0);
}

#[test]
fn a_client_that_is_stopped_anywhere_is_kept_from_writing_and_lives() {
    scattering("scattering client", 12, false);
}

#[test]
fn so_is_one_that_has_requested_huge_pages_or_mapped_its_region_anew() {
    scattering("scattering client that has mapped anew", 3, false);
    scattering("scattering client that maps anew", 12, true);
}

#[test]
fn so_is_one_that_serves_memory() {
    scattering("scattering client that serves", 3, false);
}

#[test]
fn other_clients_write_on() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let region = server.host.create_region(REGION_BYTES, RegionRights::ReadWrite).expect("a region");
    let mut clients = [(); 2].map(|()| {
        let mut client = play("writing client", &directory.socket());
        await_ready(&mut client);
        client
    });
    stop(&clients[0]);
    eventually("an end", || server.host.dismiss(ClientId(1)).expect("a dismissal") == Departure::Gone);
    let count = || region.words()[0].load(Ordering::Acquire);
    let before = count();
    eventually("more writes", || count() > before + 1000);
    signal(&clients[0], Signal::CONT);
    let before = count();
    eventually("more writes", || count() > before + 1000);
    assert!(clients.iter_mut().all(|client| client.try_wait().expect("its state").is_none()));
    clients.into_iter().for_each(kill);
}

#[test]
fn a_fence_of_a_client_that_writes_nothing_costs_its_connection_alone() {
    let directory = Directory::new();
    let server = Running::start(&directory.socket());
    let _region = server.host.create_region(1 << 20, RegionRights::ReadOnly).expect("a region");
    let mut client = play("busy client", &directory.socket());
    await_ready(&mut client);
    stop(&client);
    server.host.fence(ClientId(1)).expect("a fence");
    assert_eq!(server.host.client_count(), 0);
    assert!(client.try_wait().expect("its state").is_none(), "it was killed");
    server.host.fence(ClientId(1)).expect("fenced already");
    kill(client);
}
