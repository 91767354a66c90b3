//! READs and WRITEs without contention.

use farsight_base::pinned::PinnedMemory;
use farsight_base::sync::Ordering;
use farsight_base::words::{begin_write, end_write};
use farsight_base::{LINE_BYTES, Line, RegionId, Stamp, WORDS_PER_LINE};
use farsight_fabric::lane::Lane;
use farsight_fabric::mapped::read_alone;
use farsight_fabric::{FabricError, QueuePair, ReadMode, Region, RegionRights};

use super::FabricUnderTest;
use super::harness::{Bench, QueueOf, at, read, ring_and_wait};

/// A READ returns what the server wrote before, each time anew.
pub fn read_sees_what_the_server_wrote<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    for round in 1..100_u64 {
        for (index, word) in bench.region.words()[8..16].iter().enumerate() {
            word.store(round * 1000 + index as u64, Ordering::Release);
        }
        let mut line = [Line::ZERO];
        let from = bench.word(8);
        read(&mut bench.queue, from, ReadMode::Plain, &mut line).expect("a READ");
        assert_eq!(line[0].0, std::array::from_fn(|index| round * 1000 + index as u64));
    }
}

/// A READ of many lines returns them all, in their places, up to the region's very end.
pub fn read_of_many_lines<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let words = bench.region.words();
    for (index, word) in words.iter().enumerate() {
        word.store(index as u64 * 2, Ordering::Relaxed);
    }
    let lines = words.len() / WORDS_PER_LINE;
    for (first, count) in [(0, 1), (1, 3), (5, 200), (lines - 1, 1), (lines - 64, 64)] {
        for mode in [ReadMode::Plain, ReadMode::Stamped] {
            let mut copy = vec![Line::ZERO; count];
            let from = bench.word(first * WORDS_PER_LINE);
            read(&mut bench.queue, from, mode, &mut copy).expect("a READ");
            let copied = copy.iter().flat_map(|line| line.0);
            let expected = (first * WORDS_PER_LINE..).map(|index| index as u64 * 2);
            assert!(copied.eq(expected.take(count * WORDS_PER_LINE)), "{count} lines at {first}, {mode:?}");
        }
    }
}

/// Every slot of a batch may hold a READ; each yields its own lines, in any order of taking.
pub fn reads_of_a_full_batch<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    for (index, line) in bench.region.words().chunks(WORDS_PER_LINE).enumerate() {
        line[0].store(index as u64 * 2, Ordering::Relaxed);
    }
    let slots = QueueOf::<F>::SLOTS;
    for slot in 0..slots {
        bench.queue.post_read(slot, bench.word(slot * 3 * WORDS_PER_LINE), 2, ReadMode::Stamped);
        assert!(!bench.queue.is_complete(slot), "nothing is complete before the doorbell");
    }
    let all: Vec<usize> = (0..slots).collect();
    ring_and_wait(&mut bench.queue, &all);
    for slot in all.into_iter().rev() {
        let mut lines = [Line::ZERO; 2];
        bench.queue.take_read(slot, &mut lines).expect("a READ");
        assert_eq!([lines[0].0[0], lines[1].0[0]], [slot as u64 * 6, slot as u64 * 6 + 2]);
    }
}

/// A READ alone is a batch of its own: the same lines, counted alike, and refused alike.
pub fn a_read_alone_is_a_batch_of_one<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    for (index, word) in bench.region.words().iter().enumerate() {
        word.store(index as u64 * 2, Ordering::Relaxed);
    }
    for (first, count) in [(0, 1), (1, 3), (5, 200), (7, 7)] {
        for mode in [ReadMode::Plain, ReadMode::Stamped] {
            let from = bench.word(first * WORDS_PER_LINE);
            let mut copies = [vec![Line::ZERO; count], vec![Line::ZERO; count]];
            let begun = bench.queue.meters();
            read(&mut bench.queue, from, mode, &mut copies[0]).expect("a READ");
            let between = bench.queue.meters();
            read_alone(&mut bench.queue, from, &mut copies[1], mode).expect("a READ alone");
            assert_eq!(copies[0], copies[1], "{count} lines at {first}, {mode:?}");
            assert_eq!(bench.queue.meters() - between, between - begun);
        }
    }
    let stamp = begin_write(&bench.region.words()[8..16]);
    let mut lines = [Line::ZERO; 3];
    let from = bench.word(0);
    read_alone(&mut bench.queue, from, &mut lines, ReadMode::Stamped).expect("a READ alone");
    assert_eq!(lines.map(|line| line.stamp().is_changing()), [false, true, false]);
    end_write(&bench.region.words()[8..16], stamp);
    let past_the_end = bench.word(bench.region.words().len() - WORDS_PER_LINE);
    let mut queue = bench.another_queue();
    let error =
        read_alone(&mut queue, past_the_end, &mut lines, ReadMode::Stamped).expect_err("it ends before");
    assert!(
        matches!(&error, FabricError::AccessDenied { address, .. } if *address == past_the_end),
        "{error}"
    );
    read_alone(&mut queue, from, &mut lines, ReadMode::Stamped).expect_err("an access error kills the queue");
    let elsewhere = at(RegionId(bench.region.id().0 + 100), 0);
    let error =
        read_alone(&mut bench.queue, elsewhere, &mut lines, ReadMode::Stamped).expect_err("no such region");
    assert!(matches!(error, FabricError::UnknownRegion { .. }), "{error}");
}

/// Posting to a slot whose result was never taken replaces it.
pub fn a_slot_may_be_posted_again<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    bench.region.words()[0].store(10, Ordering::Relaxed);
    bench.region.words()[8].store(20, Ordering::Relaxed);
    bench.queue.post_read(4, bench.word(0), 1, ReadMode::Plain);
    ring_and_wait(&mut bench.queue, &[4]);
    bench.queue.post_read(4, bench.word(8), 1, ReadMode::Plain);
    ring_and_wait(&mut bench.queue, &[4]);
    let mut line = [Line::ZERO];
    bench.queue.take_read(4, &mut line).expect("a READ");
    assert_eq!(line[0].0[0], 20);
}

/// A stamped READ of a line that is being written says so; after the write it is even again.
pub fn line_being_written_comes_back_odd<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let mut lines = [Line::ZERO; 3];
    let stamp = begin_write(&bench.region.words()[8..16]);
    let from = bench.word(0);
    read(&mut bench.queue, from, ReadMode::Stamped, &mut lines).expect("a READ");
    assert_eq!(lines.map(|line| line.stamp().is_changing()), [false, true, false]);
    end_write(&bench.region.words()[8..16], stamp.with_occupancy(5));
    read(&mut bench.queue, from, ReadMode::Stamped, &mut lines).expect("a READ");
    assert_eq!(lines.map(|line| line.stamp().is_changing()), [false; 3]);
    assert_eq!(lines[1].stamp(), Stamp::new(2, 0, 5));
}

/// What a client WRITEs, the server and other READs see; nothing beside it changes.
pub fn write_is_seen_by_server_and_reader<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadWrite);
    let words: Vec<u64> = (1..=20).collect();
    bench.queue.post_write(9, bench.word(13), &words);
    assert_eq!(bench.region.words()[13].load(Ordering::Acquire), 0, "nothing is sent before the doorbell");
    ring_and_wait(&mut bench.queue, &[9]);
    assert_eq!(bench.queue.take_word(9).expect("a WRITE"), 0);
    let seen: Vec<u64> =
        bench.region.words()[12..34].iter().map(|word| word.load(Ordering::Acquire)).collect();
    assert_eq!(seen[1..21], words);
    assert_eq!((seen[0], seen[21]), (0, 0));
    let mut lines = [Line::ZERO; 4];
    let from = at(bench.region.id(), LINE_BYTES as u64);
    read(&mut bench.queue, from, ReadMode::Plain, &mut lines).expect("a READ");
    let read_back: Vec<u64> = lines.iter().flat_map(|line| line.0).collect();
    assert_eq!(read_back[5..25], words);
}

/// READs as futures: many operations, few places, each its own line.
pub fn the_lane_reads<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    for (index, line) in bench.region.words().chunks(WORDS_PER_LINE).enumerate() {
        line[0].store(index as u64 * 2, Ordering::Relaxed);
    }
    let region = bench.region.id();
    let sum = std::cell::Cell::new(0);
    let lane = Lane::new(&mut bench.queue);
    let outcome = lane.run(&mut PinnedMemory::default(), 16, 0..1000_u64, |slot, index| {
        let sum = &sum;
        async move {
            let mut copy = [Line::ZERO];
            let from = at(region, index * LINE_BYTES as u64);
            slot.read(from, &mut copy, ReadMode::Stamped).await.expect("a READ");
            assert_eq!(copy[0].0[0], index * 2);
            sum.set(sum.get() + index);
        }
    });
    outcome.expect("the lane ends well");
    assert_eq!(sum.get(), 999 * 1000 / 2);
}
