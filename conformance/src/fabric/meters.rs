//! Counters of verbs, bytes and round trips.

use farsight_base::Line;
use farsight_fabric::{Meters, QueuePair, ReadMode, Region, RegionRights};

use super::FabricUnderTest;
use super::harness::{Bench, at, ring_and_wait};

/// Each verb counts once, with its bytes, at the doorbell of its batch, whatever the fabric adds to check it;
/// an empty doorbell counts nothing.
pub fn a_batch_is_counted_at_its_doorbell<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadWrite);
    assert_eq!(bench.queue.meters(), Meters::default());
    let place = bench.word(0);
    let mut expected = Meters::default();
    for round in 1..=3 {
        bench.queue.post_read(0, place, 3, ReadMode::Stamped);
        bench.queue.post_read(1, place, 1, ReadMode::Plain);
        bench.queue.post_write(2, place, &[1, 2, 3]);
        bench.queue.post_compare_swap(3, place, 0, 1);
        bench.queue.post_fetch_add(4, place, 1);
        bench.queue.post_call(5, &[1; 21]).expect("the request fits");
        assert_eq!(bench.queue.meters().without_checks(), expected, "nothing counts before the doorbell");
        ring_and_wait(&mut bench.queue, &[0, 1, 2, 3, 4, 5]);
        let mut lines = [Line::ZERO; 3];
        bench.queue.take_read(0, &mut lines).expect("a READ");
        bench.queue.take_reply(5, &mut Vec::new()).expect("a reply");
        expected += Meters {
            reads: 2,
            read_bytes: 4 * 64,
            writes: 1,
            write_bytes: 24,
            atomics: 2,
            calls: 1,
            call_bytes: 21,
            doorbells: 1,
            ..Meters::default()
        };
        let counted = bench.queue.meters();
        assert_eq!(counted.without_checks(), expected, "round {round}");
        bench.queue.doorbell().expect("an empty batch");
        assert_eq!(bench.queue.meters(), counted, "an empty doorbell is no round trip");
    }
}

/// A verb that was refused went nowhere.
pub fn refused_verbs_are_not_counted<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    bench.queue.post_read(0, at(bench.region.id(), u64::MAX - 63), 1, ReadMode::Plain);
    ring_and_wait(&mut bench.queue, &[0]);
    assert_eq!(bench.queue.meters(), Meters::default());
}
