//! Verbs that a region's bounds or rights forbid.

use farsight_base::sync::Ordering;
use farsight_base::{LINE_BYTES, Line, RegionId, RemoteAddress};
use farsight_fabric::{Connection, FabricError, QueuePair, ReadMode, Region, RegionRights};

use super::FabricUnderTest;
use super::harness::{Ask, Bench, QueueOf, assert_disconnected, at, call, read, request, ring_and_wait};

/// Asserts that the completed verb in slot 0 was refused there, and that the queue is dead.
fn assert_refused<Q: QueuePair>(queue: &mut Q, outcome: Result<(), FabricError>, where_: RemoteAddress) {
    match outcome {
        Err(FabricError::AccessDenied { address, .. }) => assert_eq!(address, where_, "the place is named"),
        other => panic!("a verb at {where_} came to {other:?}"),
    }
    queue.post_read(1, at(where_.region, 0), 1, ReadMode::Plain);
    assert_disconnected(&queue.doorbell().expect_err("an access error kills the queue"));
    let reason = queue.doorbell().expect_err("it stays dead").to_string();
    assert!(reason.contains("refused"), "the reason is told: {reason}");
}

/// Reads `count` lines at `offset_bytes` with a new queue and asserts that this is refused.
fn assert_read_refused<F: FabricUnderTest>(bench: &Bench<F>, offset_bytes: u64, count: usize) {
    let mut queue = bench.another_queue();
    let from = at(bench.region.id(), offset_bytes);
    let outcome = read(&mut queue, from, ReadMode::Stamped, &mut vec![Line::ZERO; count]);
    assert_refused(&mut queue, outcome, from);
}

/// A READ past the end is refused when taken, and nothing works on that queue afterwards. Others go on.
pub fn read_past_the_end_kills_the_queue<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let length_bytes = bench.region.words().len() as u64 * 8;
    assert_read_refused(&bench, length_bytes, 1);
    assert_read_refused(&bench, length_bytes - LINE_BYTES as u64, 2);
    let last = at(bench.region.id(), length_bytes - LINE_BYTES as u64);
    read(&mut bench.queue, last, ReadMode::Plain, &mut [Line::ZERO]).expect("the last line can be read");
    assert_eq!(call(&mut bench.queue, 0, &request(Ask::Echo, &[1])), request(Ask::Echo, &[1]));
}

/// No address and no length wraps around a check.
pub fn read_far_past_the_end_is_refused<F: FabricUnderTest>(subject: &F) {
    let bench = Bench::new(subject, RegionRights::ReadOnly);
    let length_bytes = bench.region.words().len() as u64 * 8;
    for offset_bytes in [u64::MAX - 63, 1 << 63, 1 << 40, length_bytes + 64] {
        assert_read_refused(&bench, offset_bytes, 1);
    }
    let mut queue = bench.another_queue();
    let from = at(bench.region.id(), 0);
    for line_count in [usize::MAX, 1 << 60, 1 << 58, (length_bytes / 64) as usize + 1] {
        queue.post_read(0, from, line_count, ReadMode::Plain);
    }
    ring_and_wait(&mut queue, &[0]);
    let error = queue.take_read(0, &mut []).expect_err("no region has so many lines");
    assert!(matches!(error, FabricError::AccessDenied { .. } | FabricError::Disconnected { .. }), "{error}");
}

/// READs begin at lines, WRITEs and atomics at words.
pub fn misaligned_addresses_are_refused<F: FabricUnderTest>(subject: &F) {
    let bench = Bench::new(subject, RegionRights::ReadWrite);
    for offset_bytes in [8, 63, 1] {
        assert_read_refused(&bench, offset_bytes, 1);
    }
    let place = at(bench.region.id(), 12);
    let mut queue = bench.another_queue();
    queue.post_write(0, place, &[1]);
    ring_and_wait(&mut queue, &[0]);
    let outcome = queue.take_word(0).map(drop);
    assert_refused(&mut queue, outcome, place);
    let mut queue = bench.another_queue();
    queue.post_fetch_add(0, place, 1);
    ring_and_wait(&mut queue, &[0]);
    let outcome = queue.take_word(0).map(drop);
    assert_refused(&mut queue, outcome, place);
}

/// A WRITE that would reach over the end writes nothing at all.
pub fn write_past_the_end_is_refused<F: FabricUnderTest>(subject: &F) {
    let bench = Bench::new(subject, RegionRights::ReadWrite);
    let words = bench.region.words();
    for first in [words.len() - 1, words.len()] {
        let mut queue = bench.another_queue();
        let place = bench.word(first);
        queue.post_write(0, place, &[7, 7]);
        ring_and_wait(&mut queue, &[0]);
        let outcome = queue.take_word(0).map(drop);
        assert_refused(&mut queue, outcome, place);
    }
    assert_eq!(words[words.len() - 1].load(Ordering::Acquire), 0);
}

/// Nothing that a client posts changes a read-only region.
pub fn read_only_region_refuses_changes<F: FabricUnderTest>(subject: &F) {
    let bench = Bench::new(subject, RegionRights::ReadOnly);
    let place = bench.word(8);
    let changes: [fn(&mut QueueOf<F>, RemoteAddress); 3] = [
        |queue, place| queue.post_write(0, place, &[1]),
        |queue, place| queue.post_compare_swap(0, place, 0, 1),
        |queue, place| queue.post_fetch_add(0, place, 1),
    ];
    for change in changes {
        let mut queue = bench.another_queue();
        change(&mut queue, place);
        ring_and_wait(&mut queue, &[0]);
        let outcome = queue.take_word(0).map(drop);
        assert_refused(&mut queue, outcome, place);
        assert_eq!(bench.region.words()[8].load(Ordering::Acquire), 0);
    }
}

/// Verbs posted before a refused one complete; those after it do not.
pub fn verbs_before_a_refused_one_complete<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadWrite);
    bench.region.words()[0].store(77, Ordering::Release);
    let (good, bad) = (bench.word(0), bench.word(bench.region.words().len()));
    bench.queue.post_read(0, good, 1, ReadMode::Plain);
    bench.queue.post_fetch_add(1, bench.word(8), 3);
    bench.queue.post_read(2, bad, 1, ReadMode::Plain);
    bench.queue.post_fetch_add(3, bench.word(8), 100);
    ring_and_wait(&mut bench.queue, &[0, 1, 2, 3]);
    let mut line = [Line::ZERO];
    bench.queue.take_read(0, &mut line).expect("the READ before");
    assert_eq!(line[0].0[0], 77);
    assert_eq!(bench.queue.take_word(1).expect("the atomic before"), 0);
    assert_disconnected(&bench.queue.take_word(3).expect_err("the atomic after"));
    let outcome = bench.queue.take_read(2, &mut line);
    assert_refused(&mut bench.queue, outcome, bad);
    assert_eq!(bench.region.words()[8].load(Ordering::Acquire), 3);
}

/// A region that the server does not have, or that was not attached, is named in the error.
pub fn unknown_region_is_named<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    for region in [RegionId(0), RegionId(1_000_000), RegionId(u32::MAX), RegionId(bench.region.id().0 + 1)] {
        match bench.queue.attach(region) {
            Err(FabricError::UnknownRegion { region: named, .. }) => assert_eq!(named, region),
            other => panic!("attaching {region} came to {other:?}"),
        }
        match read(&mut bench.queue, at(region, 0), ReadMode::Plain, &mut [Line::ZERO]) {
            Err(FabricError::UnknownRegion { region: named, .. }) => assert_eq!(named, region),
            other => panic!("a READ of {region} came to {other:?}"),
        }
    }
    let mut unattached = bench.connection.open_queue().expect("a queue");
    let outcome = read(&mut unattached, bench.word(0), ReadMode::Plain, &mut [Line::ZERO]);
    assert!(matches!(outcome, Err(FabricError::UnknownRegion { .. })), "{outcome:?}");
    unattached.attach(bench.region.id()).expect("it can be attached still");
    read(&mut unattached, bench.word(0), ReadMode::Plain, &mut [Line::ZERO]).expect("a READ");
}
