//! `compare_swap` and `fetch_add`.

use farsight_base::Line;
use farsight_base::sync::Ordering;
use farsight_fabric::{QueuePair, ReadMode, Region, RegionRights};

use super::FabricUnderTest;
use super::harness::{Bench, QueueOf, ring_and_wait};

/// A compare-and-swap yields the word as it was, and changes it only if that was expected.
pub fn compare_swap_yields_what_it_found<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadWrite);
    let place = bench.word(100);
    for (expected, new, found, after) in [(0, 5, 0, 5), (0, 9, 5, 5), (5, u64::MAX, 5, u64::MAX)] {
        bench.queue.post_compare_swap(3, place, expected, new);
        ring_and_wait(&mut bench.queue, &[3]);
        assert_eq!(bench.queue.take_word(3).expect("an atomic"), found);
        assert_eq!(bench.region.words()[100].load(Ordering::Acquire), after);
    }
    // Within one batch they execute in posting order.
    bench.queue.post_compare_swap(0, place, u64::MAX, 1);
    bench.queue.post_compare_swap(1, place, 1, 2);
    bench.queue.post_fetch_add(2, place, 40);
    ring_and_wait(&mut bench.queue, &[0, 1, 2]);
    let found = [0, 1, 2].map(|slot| bench.queue.take_word(slot).expect("an atomic"));
    assert_eq!(found, [u64::MAX, 1, 2]);
    assert_eq!(bench.region.words()[100].load(Ordering::Acquire), 42);
}

/// Additions of several clients, and of the server's processor where that is coherent, all count once.
pub fn fetch_add_counts_every_addition<F: FabricUnderTest>(subject: &F) {
    const ROUNDS: u64 = 2_000;
    const BATCH: usize = 8;
    let bench = Bench::new(subject, RegionRights::ReadWrite);
    let place = bench.word(0);
    let coherent = QueueOf::<F>::GUARANTEES.atomics_coherent_with_cpu;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut queue = bench.another_queue();
            scope.spawn(move || {
                let slots: Vec<usize> = (0..BATCH).collect();
                for _ in 0..ROUNDS {
                    for slot in &slots {
                        queue.post_fetch_add(*slot, place, 1);
                    }
                    ring_and_wait(&mut queue, &slots);
                    let found: Vec<u64> =
                        slots.iter().map(|slot| queue.take_word(*slot).expect("an atomic")).collect();
                    assert!(found.is_sorted_by(|a, b| a < b), "additions of one batch in order: {found:?}");
                }
            });
        }
        if coherent {
            for _ in 0..ROUNDS {
                bench.region.words()[0].fetch_add(1, Ordering::AcqRel);
            }
        }
    });
    let expected = 2 * ROUNDS * BATCH as u64 + if coherent { ROUNDS } else { 0 };
    assert_eq!(bench.region.words()[0].load(Ordering::Acquire), expected);
}

/// A READ posted after an atomic in one batch sees what that did, where the provider promises so.
pub fn read_follows_atomic<F: FabricUnderTest>(subject: &F) {
    if !QueueOf::<F>::GUARANTEES.read_after_atomic {
        return;
    }
    let mut bench = Bench::new(subject, RegionRights::ReadWrite);
    for round in 0..1_000 {
        let place = bench.word(16);
        bench.queue.post_compare_swap(0, place, round, round + 1);
        bench.queue.post_read(1, place, 1, ReadMode::Plain);
        ring_and_wait(&mut bench.queue, &[0, 1]);
        let mut line = [Line::ZERO];
        bench.queue.take_read(1, &mut line).expect("a READ");
        assert_eq!(line[0].0[0], round + 1);
    }
}
