//! Regions that a server withdraws, as the bytes say it, and clients that are slow or lie.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_base::sync::Ordering;
use farsight_conformance::fabric::harness::{Bench, PATIENCE, call};
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric::mapped::read_alone;
use farsight_fabric::{FabricError, Host as _, QueuePair as _, ReadMode, Region as _, RegionRights};

use super::raw::{Raw, RawClient, batch, packet, verb};

/// What a filtered READ carries: the word wanted, 9, and a filter for word 5 with a part of one line.
const FILTER: [u8; 16] = [9, 0, 0, 0, 0, 0, 0, 0, 1 << 5, 0, 0, 0, 3, 1, 0, 0];

/// What a heading says: kind, verbs executed, denial, lines, words, picks, notice, withdrawn.
fn heading(queue: &mut Raw) -> [u64; 8] {
    let line = queue.line().expect("a heading");
    let half = |at: usize| u64::from(u32::from_le_bytes(line[at..at + 4].try_into().expect("four bytes")));
    let word = |at: usize| u64::from_le_bytes(line[at..at + 8].try_into().expect("eight bytes"));
    [half(0), half(4), half(16), half(20), half(24), half(28), word(32), word(40)]
}

/// Verbs on a withdrawn region are passed over, others of the batch are executed, and the queue goes on.
#[test]
fn verbs_on_a_withdrawn_region_are_passed_over() {
    let bench = Bench::new(&Tcp::default(), RegionRights::ReadWrite);
    let host = bench.server.host();
    let gone = host.create_region(4096, RegionRights::ReadWrite).expect("a region");
    let mut client = RawClient::connect(host.local_address());
    let tokens = [client.attach(bench.region.id().0), client.attach(gone.id().0)];
    let mut queue = client.open_queue();
    let verbs = [
        verb(7, 1, 7, 0),
        verb(2, 1, 3, 0),
        verb(5, 0, 1, 8),
        verb(5, 1, 1, 8),
        verb(3, 1, 1, 64),
        verb(1, 0, 2, 0),
        verb(4, 1, 1, 8),
    ]
    .concat();
    let payload = [&FILTER[..], &5_u64.to_le_bytes(), &[1; 8], &[1; 8], &[0; 16]].concat();
    let body = [tokens.as_flattened(), &verbs, &payload].concat();
    queue.say(&batch(1, 2, 7, &body));
    // Nothing is picked: one line says so, and the one that was looked through follows.
    let lines = 1 + 1 + 3 + 2;
    assert_eq!(heading(&mut queue), [1, 7, 0, lines, 3, 1, 0, 0], "all regions are there");
    (0..=lines).for_each(|_| assert!(queue.line().is_some(), "what the heading says"));
    let before = gone.words()[1].load(Ordering::Acquire);
    host.withdraw_region(gone.id()).expect("it was there");
    host.notify(77);
    queue.say(&batch(2, 2, 7, &body));
    assert_eq!(heading(&mut queue), [1, 7, 0, 2, 1, 0, 77, 0b10]);
    (0..2).for_each(|_| assert!(queue.line().is_some(), "a line of the READ"));
    let word = queue.line().expect("what the atomic found");
    assert_eq!(word[..8], 5_u64.to_le_bytes());
    assert_eq!(bench.region.words()[1].load(Ordering::Acquire), 10);
    assert_eq!(gone.words()[1].load(Ordering::Acquire), before, "changed behind the withdrawal");
}

/// A token for a region that never was, or of another client, opens nothing and tells nothing.
#[test]
fn made_up_tokens_of_withdrawn_regions_open_nothing() {
    let bench = Bench::new(&Tcp::default(), RegionRights::ReadOnly);
    let host = bench.server.host();
    let gone = host.create_region(4096, RegionRights::ReadOnly).expect("a region").id();
    host.withdraw_region(gone).expect("it was there");
    let client = RawClient::connect(host.local_address());
    let named = |region: u32| {
        let mut token = [9; 16];
        token[..4].copy_from_slice(&region.to_le_bytes());
        token
    };
    for (region, denial, withdrawn) in
        [(bench.region.id().0, 1, 0), (gone.0, 0, 1), (gone.0 + 1, 1, 0), (0, 1, 0), (u32::MAX, 1, 0)]
    {
        let mut queue = client.open_queue();
        queue.say(&batch(1, 1, 1, &[&named(region)[..], &verb(1, 0, 1, 0)].concat()));
        let executed = u64::from(denial == 0);
        assert_eq!(heading(&mut queue), [1, executed, denial, 0, 0, 0, 0, withdrawn], "region {region}");
    }
}

/// A client that does not take its results keeps no withdrawn region: its queue ends, and others go on.
#[test]
fn a_client_that_does_not_read_keeps_no_withdrawn_region() {
    const LINES: u32 = 1 << 16;
    let mut bench = Bench::new(&Tcp::default(), RegionRights::ReadOnly);
    let gone =
        bench.server.host().create_region(u64::from(LINES) * 64, RegionRights::ReadOnly).expect("memory");
    let mut client = RawClient::connect(bench.server.host().local_address());
    let token = client.attach(gone.id().0);
    let mut queue = client.open_queue();
    // More than kernel and server keep for one client.
    for sequence in 1..=16 {
        let verbs = verb(1, 0, LINES, 0);
        if queue.0.write_all(&batch(sequence, 1, 1, &[&token[..], &verbs].concat())).is_err() {
            break;
        }
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        assert_eq!(call(&mut bench.queue, 0, b"others are served"), b"others are served");
    }
    let memory = Arc::downgrade(&gone);
    let id = gone.id();
    drop(gone);
    bench.server.host().withdraw_region(id).expect("it was there");
    let started = Instant::now();
    while memory.strong_count() > 0 {
        assert!(started.elapsed() < PATIENCE, "the memory stays");
        std::thread::yield_now();
    }
    // What was sent before it was withdrawn comes; then the queue ends.
    while queue.line().is_some() {}
    assert_eq!(call(&mut bench.queue, 0, b"others go on"), b"others go on");
    client.control.say(&packet(&[&2_u32.to_le_bytes()[..], &id.0.to_le_bytes()].concat()));
    let answer = client.control.hear().expect("the client goes on");
    assert_eq!(answer[..4], 133_u32.to_le_bytes(), "no such region");
}

/// What a real client makes of it: the first verb that meets the withdrawal fails, the queue pair goes on.
#[test]
fn the_first_batch_behind_the_withdrawal_hears_of_it() {
    let mut bench = Bench::new(&Tcp::default(), RegionRights::ReadOnly);
    let host = bench.server.host();
    let gone = host.create_region(4096, RegionRights::ReadOnly).expect("a region").id();
    bench.queue.attach(gone).expect("it is there");
    host.withdraw_region(gone).expect("it was there");
    host.notify(3);
    let place = farsight_base::RemoteAddress { region: gone, offset_bytes: 0 };
    let error = read_alone(&mut bench.queue, place, &mut [farsight_base::Line::ZERO], ReadMode::Stamped);
    assert!(matches!(error, Err(FabricError::RegionWithdrawn { region, .. }) if region == gone), "{error:?}");
    assert_eq!(bench.queue.notice(), 3);
    let before = bench.queue.meters();
    let again = read_alone(&mut bench.queue, place, &mut [farsight_base::Line::ZERO], ReadMode::Stamped);
    assert!(matches!(again, Err(FabricError::RegionWithdrawn { .. })), "{again:?}");
    assert_eq!(bench.queue.meters(), before, "the server is not asked again");
}
