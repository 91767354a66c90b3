//! Calls to the server's processor.

use std::time::{Duration, Instant};

use farsight_base::Line;
use farsight_base::pinned::PinnedMemory;
use farsight_base::sync::Ordering;
use farsight_fabric::lane::Lane;
use farsight_fabric::{Connection, FabricError, QueuePair, ReadMode, Region, RegionRights};

use super::FabricUnderTest;
use super::harness::{Ask, Bench, QueueOf, call, pattern, request, ring_and_wait, wait_for};

fn bench<F: FabricUnderTest>(subject: &F) -> Bench<F> {
    Bench::new(subject, RegionRights::ReadOnly)
}

/// A reply answers its request, whatever its length, and replaces what the buffer held.
pub fn echo<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    for length_bytes in (0..40).chain([63, 64, 65, 1000, 4096, 30_001]) {
        let mut asked = pattern(length_bytes, 9);
        if let Some(first) = asked.first_mut() {
            *first = Ask::Echo as u8;
        }
        assert_eq!(call(&mut bench.queue, length_bytes % 5, &asked), asked);
    }
}

/// Every slot may hold a call at once; batch after batch, far more than any ring holds.
pub fn many_in_flight<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    let slots: Vec<usize> = (0..QueueOf::<F>::SLOTS).collect();
    let rounds = 40;
    for round in 0..rounds {
        for slot in &slots {
            let mut asked = request(Ask::Echo, &[round, *slot as u32]);
            asked.resize(9 + 700 * (slot % 3), 0xee);
            bench.queue.post_call(*slot, &asked).expect("the request fits");
        }
        ring_and_wait(&mut bench.queue, &slots);
        for slot in &slots {
            let mut reply = Vec::new();
            bench.queue.take_reply(*slot, &mut reply).expect("a reply");
            assert_eq!(reply[..9], request(Ask::Echo, &[round, *slot as u32]));
            assert_eq!(reply.len(), 9 + 700 * (slot % 3));
        }
    }
    assert_eq!(bench.server.calls(), u64::from(rounds) * slots.len() as u64, "each ran exactly once");
}

/// Requests and replies of the greatest length pass, many at once.
pub fn longest_message<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    let mut asked = pattern(QueueOf::<F>::MESSAGE_BYTES_MAX, 3);
    asked[0] = Ask::Echo as u8;
    let slots: Vec<usize> = (0..24).collect();
    for slot in &slots {
        asked[1] = *slot as u8;
        bench.queue.post_call(*slot, &asked).expect("the request fits");
    }
    ring_and_wait(&mut bench.queue, &slots);
    for slot in &slots {
        asked[1] = *slot as u8;
        let mut reply = Vec::new();
        bench.queue.take_reply(*slot, &mut reply).expect("a reply");
        assert!(reply == asked, "the reply in slot {slot} differs");
    }
}

/// A request that is too long is refused with both sizes, and the queue goes on.
pub fn too_long_is_refused_before_posting<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    let limit = QueueOf::<F>::MESSAGE_BYTES_MAX;
    match bench.queue.post_call(0, &vec![1; limit + 1]) {
        Err(FabricError::TooLarge { length_bytes, limit_bytes }) => {
            assert_eq!((length_bytes, limit_bytes), (limit + 1, limit));
        }
        other => panic!("a request of {} B came to {other:?}", limit + 1),
    }
    bench.queue.doorbell().expect("an empty batch");
    assert_eq!(bench.queue.meters().calls, 0, "nothing was posted");
    assert_eq!(call(&mut bench.queue, 0, b"go on"), b"go on");
}

/// Replies are taken in any order, and each slot's is its own.
pub fn replies_belong_to_their_slots<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    let slots = [200, 3, 77, 0, 121];
    for (index, slot) in slots.iter().enumerate() {
        let asked = request(Ask::Pattern, &[10 * index as u32, *slot as u32]);
        bench.queue.post_call(*slot, &asked).expect("the request fits");
    }
    ring_and_wait(&mut bench.queue, &slots);
    for (index, slot) in slots.iter().enumerate().rev() {
        let mut reply = Vec::new();
        bench.queue.take_reply(*slot, &mut reply).expect("a reply");
        assert_eq!(reply, pattern(10 * index, *slot as u32));
    }
}

/// A worker that has been asleep is woken by a call, every time.
pub fn call_wakes_a_sleeping_server<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    for round in 0..20 {
        std::thread::sleep(Duration::from_millis(5));
        let started = Instant::now();
        let asked = request(Ask::Echo, &[round]);
        assert_eq!(call(&mut bench.queue, 0, &asked), asked);
        assert!(
            started.elapsed() < Duration::from_secs(2),
            "the server slept on for {:?}",
            started.elapsed()
        );
    }
}

/// A client that waits for a slow call is woken by its reply, not by the end of its patience.
pub fn slow_call_sleeps_the_client<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    let started = Instant::now();
    bench.queue.post_call(0, &request(Ask::Sleep, &[200])).expect("the request fits");
    bench.queue.doorbell().expect("the doorbell rings");
    let mut waits = 0;
    while !bench.queue.is_complete(0) {
        bench.queue.wait(Duration::from_secs(10)).expect("waiting");
        bench.queue.poll().expect("polling");
        waits += 1;
    }
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(200) && took < Duration::from_secs(5), "{took:?}");
    assert!(waits < 20, "{waits} waits for one reply: that was no sleep");
}

/// A reply that comes after its slot was posted to again is not taken for the new call's.
pub fn late_reply_to_a_reposted_slot_is_dropped<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    for round in 0..20 {
        bench.queue.post_call(5, &request(Ask::Sleep, &[20, round])).expect("the request fits");
        bench.queue.doorbell().expect("the doorbell rings");
        let asked = request(Ask::Echo, &[round]);
        assert_eq!(call(&mut bench.queue, 5, &asked), asked, "the first reply must not stand in");
        // The same with a READ in between.
        bench.queue.post_call(5, &request(Ask::Sleep, &[1, round])).expect("the request fits");
        bench.queue.doorbell().expect("the doorbell rings");
        bench.queue.post_read(5, bench.word(0), 1, ReadMode::Plain);
        ring_and_wait(&mut bench.queue, &[5]);
        bench.queue.take_read(5, &mut [Line::ZERO]).expect("the READ");
    }
}

/// Replies that together exceed every buffer come through, because the server waits for room.
pub fn large_replies_flow_through<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    let length_bytes = QueueOf::<F>::MESSAGE_BYTES_MAX as u32;
    let slots: Vec<usize> = (0..QueueOf::<F>::SLOTS).collect();
    for slot in &slots {
        let asked = request(Ask::Pattern, &[length_bytes, *slot as u32]);
        bench.queue.post_call(*slot, &asked).expect("the request fits");
    }
    bench.queue.doorbell().expect("the doorbell rings");
    // The server runs into the wall, and sleeps there.
    std::thread::sleep(Duration::from_millis(50));
    wait_for(&mut bench.queue, &slots);
    for slot in &slots {
        let mut reply = Vec::new();
        bench.queue.take_reply(*slot, &mut reply).expect("a reply");
        assert!(reply == pattern(length_bytes as usize, *slot as u32), "the reply in slot {slot} differs");
    }
}

/// READs complete while a call is still executing.
pub fn reads_go_on_beside_calls<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    bench.region.words()[0].store(5, Ordering::Release);
    bench.queue.post_call(0, &request(Ask::Sleep, &[300])).expect("the request fits");
    bench.queue.post_read(1, bench.word(0), 1, ReadMode::Plain);
    ring_and_wait(&mut bench.queue, &[1]);
    let mut line = [Line::ZERO];
    bench.queue.take_read(1, &mut line).expect("a READ");
    assert_eq!(line[0].0[0], 5);
    if QueueOf::<F>::GUARANTEES.one_sided {
        assert!(!bench.queue.is_complete(0), "a one-sided READ waits for no processor");
    }
    wait_for(&mut bench.queue, &[0]);
}

/// Queues of one connection, used by two threads, do not see each other's replies.
pub fn two_queues_do_not_mix<F: FabricUnderTest>(subject: &F) {
    let bench = bench(subject);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let mut queue = bench.connection.open_queue().expect("a queue");
            scope.spawn(move || {
                let slots: Vec<usize> = (0..8).collect();
                for round in 0..300 {
                    for slot in &slots {
                        let asked = request(Ask::Echo, &[thread, round, *slot as u32]);
                        queue.post_call(*slot, &asked).expect("the request fits");
                    }
                    ring_and_wait(&mut queue, &slots);
                    for slot in &slots {
                        let mut reply = Vec::new();
                        queue.take_reply(*slot, &mut reply).expect("a reply");
                        assert_eq!(reply, request(Ask::Echo, &[thread, round, *slot as u32]));
                    }
                }
            });
        }
    });
}

/// Calls as futures, beside READs.
pub fn the_lane_calls<F: FabricUnderTest>(subject: &F) {
    let mut bench = bench(subject);
    let place = bench.word(0);
    let done = std::cell::Cell::new(0);
    let lane = Lane::new(&mut bench.queue);
    let outcome = lane.run(&mut PinnedMemory::default(), 32, 0..500_u32, |slot, index| {
        let done = &done;
        async move {
            let mut reply = Vec::new();
            let asked = request(Ask::Echo, &[index]);
            slot.read(place, &mut [Line::ZERO], ReadMode::Plain).await.expect("a READ");
            slot.call(&asked, &mut reply).await.expect("a call");
            assert_eq!(reply, asked);
            done.set(done.get() + 1);
        }
    });
    outcome.expect("the lane ends well");
    assert_eq!(done.get(), 500);
}
