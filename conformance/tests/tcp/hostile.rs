//! Hostile peers: they break the protocol, say nothing, or do not read. What becomes of them, and of others.

use std::io::Write as _;
use std::time::{Duration, Instant};

use farsight_base::Line;
use farsight_base::sync::Ordering;
use farsight_conformance::fabric::harness::{Bench, PATIENCE, call, read};
use farsight_conformance::fabric::tcp::Tcp;
use farsight_fabric::{Host as _, ReadMode, Region as _, RegionRights};

use super::raw::{Raw, RawClient, batch, filter, hello, packet, verb};

/// An honest client beside whom the others misbehave.
fn bench(rights: RegionRights) -> Bench<Tcp> {
    let bench = Bench::new(&Tcp::default(), rights);
    bench.region.words()[0].store(77, Ordering::Release);
    bench
}

fn assert_goes_on(bench: &mut Bench<Tcp>) {
    let (from, mut line) = (bench.word(0), [Line::ZERO]);
    read(&mut bench.queue, from, ReadMode::Plain, &mut line).expect("a READ");
    assert_eq!(line[0].0[0], 77);
    assert_eq!(call(&mut bench.queue, 0, b"go on"), b"go on");
}

#[test]
fn hellos_that_are_none_are_refused_by_name() {
    let mut bench = bench(RegionRights::ReadOnly);
    let server = bench.server.host().local_address();
    let mut other_magic = hello(&1_u32.to_le_bytes());
    other_magic[8] ^= 1;
    let mut other_fabric = hello(&1_u32.to_le_bytes());
    other_fabric[16] = 1;
    let excess = packet(&[&hello(&1_u32.to_le_bytes())[4..], &[0]].concat());
    let cases = [
        (other_magic, "no farsight client"),
        (other_fabric, "fabric 4"),
        (excess, "longer"),
        (hello(&3_u32.to_le_bytes()), "purpose 3"),
        (packet(&2_u32.to_le_bytes()), "ends inside"),
        (packet(&[&2_u32.to_le_bytes()[..], &[1, 0, 0, 0]].concat()), "no hello"),
        (packet(&[9; 12]), "do not exist"),
        (packet(&[]), "ends inside"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "limit"),
        (vec![22, 3, 1, 2, 0, 1, 0, 1], "TLS"),
    ];
    for (bytes, reason) in cases {
        let mut raw = Raw::connect(server);
        raw.say(&bytes);
        let text = raw.hear_text(131);
        assert!(text.contains(reason), "{text:?} does not name {reason:?}");
        raw.assert_ends();
    }
    assert_goes_on(&mut bench);
    assert_eq!(bench.server.host().client_count(), 1);
}

#[test]
fn silent_connections_go_and_never_stand_in_the_way() {
    let mut bench = bench(RegionRights::ReadOnly);
    let server = bench.server.host().local_address();
    let begun = Instant::now();
    let mut silent: Vec<Raw> = (0..700).map(|_| Raw::connect(server)).collect();
    // The oldest made room for the others.
    assert!(silent[0].hear_text(131).contains("too many"), "the first of 700 is still there");
    let client = RawClient::connect(server);
    drop(client.open_queue());
    assert_goes_on(&mut bench);
    let text = silent[600].hear_text(131);
    assert!(text.contains("no hello"), "{text}");
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    silent[600].assert_ends();
}

#[test]
fn frames_that_are_none_end_their_client_alone() {
    let mut bench = bench(RegionRights::ReadWrite);
    let server = bench.server.host().local_address();
    let token = [7; 16];
    let one = |verb: Vec<u8>, payload: &[u8]| batch(1, 1, 1, &[&token[..], &verb, payload].concat());
    let mut unknown_frame = one(verb(1, 0, 1, 0), &[]);
    unknown_frame[0] = 2;
    let mut reserved = one(verb(1, 0, 1, 0), &[]);
    reserved[16 + 16 + 2] = 1;
    let mut endless = one(verb(1, 0, 1, 0), &[]);
    endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let cases = [
        unknown_frame,
        reserved,
        endless,
        batch(1, 0, 0, &[]),
        batch(1, 17, 1, &[0; 17 * 16 + 16]),
        batch(1, 0, 1025, &vec![0; 1025 * 16]),
        batch(2, 1, 1, &[&token[..], &verb(1, 0, 1, 0)].concat()),
        batch(1, 1, 1, &token),
        one(verb(0, 0, 1, 0), &[]),
        one(verb(8, 0, 1, 0), &[]),
        one(verb(7, 0, 7, 0), &[]),
        one(verb(7, 0, 7, 0), &filter(0, 3, 1)),
        one(verb(7, 0, 7, 0), &filter(1, 3, 1)),
        one(verb(7, 0, 7, 0), &filter(1 << 5, 7, 1)),
        one(verb(7, 0, 2, 0), &filter(1 << 17, 0, 1)),
        one(verb(7, 0, 7, 0), &[&filter(1 << 5, 3, 1)[..15], &[1]].concat()),
        one(verb(1, 1, 1, 0), &[]),
        one(verb(1, 0, (1 << 16) + 1, 0), &[]),
        one(verb(3, 0, 2, 0), &[0; 8]),
        one(verb(3, 0, u32::MAX, 0), &[0; 8]),
        one(verb(4, 0, 2, 0), &[0; 16]),
        one(verb(5, 0, 1, 0), &[0; 16]),
        one(verb(6, 0, 5, 0), &[1, 2, 3, 4, 5, 6, 0, 0]),
        one(verb(6, 0, 8, 8), &[0; 8]),
        one(verb(6, 0, (64 << 10) + 1, 0), &vec![0; (64 << 10) + 8]),
        batch(1, 1, 2, &[&token[..], &verb(6, 0, 0, 0), &verb(1, 0, 1, 0)].concat()),
    ];
    for (index, frame) in cases.iter().enumerate() {
        let mut client = RawClient::connect(server);
        let (mut queue, mut other) = (client.open_queue(), client.open_queue());
        // The server may hang up before it has read all.
        let _ = queue.0.write_all(frame);
        let text = client.control.hear_text(136);
        assert!(text.contains("broke the protocol"), "case {index}: {text}");
        for raw in [&mut client.control, &mut queue, &mut other] {
            raw.assert_ends();
        }
    }
    assert_goes_on(&mut bench);
    assert_eq!(bench.region.words()[1].load(Ordering::Acquire), 0);
}

#[test]
fn what_was_not_granted_is_denied_at_each_verb() {
    let mut bench = bench(RegionRights::ReadOnly);
    let server = bench.server.host().local_address();
    let region = bench.region.id().0;
    let end_bytes = bench.region.words().len() as u64 * 8;
    let mut thief = RawClient::connect(server);
    let stolen = RawClient::connect(server).attach(region);
    let own = thief.attach(region);
    assert_ne!(own, stolen, "a token is one client's");
    let cases = [
        (stolen, verb(1, 0, 1, 0), vec![], 1),
        ([0; 16], verb(1, 0, 1, 0), vec![], 1),
        (own, verb(2, 0, 2, end_bytes - 64), vec![], 2),
        (own, verb(2, 0, 1, u64::MAX - 63), vec![], 2),
        (own, verb(2, 0, 1, 8), vec![], 3),
        (own, verb(7, 0, 7, end_bytes - 64 * 6), filter(1 << 5, 3, 1), 2),
        (stolen, verb(7, 0, 7, 0), filter(1 << 5, 3, 1), 1),
        (own, verb(3, 0, 1, 8), vec![1; 8], 4),
        (own, verb(4, 0, 1, 8), vec![0; 16], 4),
        (own, verb(5, 0, 1, 8), vec![1; 8], 4),
    ];
    for (token, denied, payload, denial) in cases {
        let mut queue = thief.open_queue();
        let verbs = [verb(1, 0, 1, 0), denied, verb(1, 0, 1, 0)].concat();
        // The first verb of those with the thief's own token is a good one.
        queue.say(&batch(1, 1, 3, &[&token[..], &verbs, &payload].concat()));
        let heading = queue.line().expect("completions");
        let half = |at: usize| u32::from_le_bytes(heading[at..at + 4].try_into().expect("four bytes"));
        let executed = u32::from(token == own);
        assert_eq!([half(0), half(4), half(16), half(20)], [1, executed, denial, executed]);
        if executed == 1 {
            let line = queue.line().expect("the READ before");
            assert_eq!(line[..8], 77_u64.to_le_bytes());
        }
        queue.assert_ends();
    }
    drop(thief.open_queue());
    assert_eq!(bench.region.words()[1].load(Ordering::Acquire), 0);
    assert_goes_on(&mut bench);
}

#[test]
fn a_queue_pair_needs_its_clients_key() {
    let bench = bench(RegionRights::ReadOnly);
    let client = RawClient::connect(bench.server.host().local_address());
    let mut queue = Raw::connect(client.server);
    queue.say(&hello(&client.purpose(&[3; 16])));
    assert!(queue.hear_text(131).contains("another key"));
    queue.assert_ends();
}

#[test]
fn a_client_that_does_not_read_is_not_served_and_loses_nothing() {
    const FRAMES: u64 = 4_000;
    const LINES: u32 = 256;
    let mut bench = bench(RegionRights::ReadOnly);
    for (index, line) in bench.region.words().chunks(8).enumerate().skip(1) {
        line[1].store(index as u64, Ordering::Relaxed);
    }
    let mut client = RawClient::connect(bench.server.host().local_address());
    let token = client.attach(bench.region.id().0);
    let mut queue = client.open_queue();
    // 64 MiB of lines are requested, more than kernel and server keep for one client.
    let mut written = 0;
    for sequence in 1..=FRAMES {
        let frame = batch(sequence, 1, 1, &[&token[..], &verb(1, 0, LINES, 0)].concat());
        if queue.0.write_all(&frame).is_err() {
            break;
        }
        written = sequence;
    }
    let patience = Instant::now();
    while patience.elapsed() < Duration::from_millis(300) {
        assert_goes_on(&mut bench);
    }
    for sequence in 1..=written {
        let heading = queue.line().expect("completions");
        assert_eq!(heading[8..16], sequence.to_le_bytes());
        for index in 0..u64::from(LINES) {
            let line = queue.line().expect("a line");
            assert!(index == 0 || line[8..16] == index.to_le_bytes(), "line {index} of frame {sequence}");
        }
    }
}
