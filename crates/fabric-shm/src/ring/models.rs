//! Models of rings, sleep and wake-up.

use std::sync::Arc;

#[cfg(loom)]
use farsight_base::injected::{ACQUIRE_LOADS, RELEASE_STORES, SEQ_CST_FENCES};
use farsight_base::injection::assert_found;
use farsight_base::sync::model::{WakeUp, check, thread};

use super::*;
use crate::mapping::Mapping;

/// Both sides of one ring's memory, and a descriptor for each side's wake-ups.
struct Shared {
    memory: SharedWords,
    wakes: [WakeUp; 2],
}

const CONSUMER: usize = 0;
const PRODUCER: usize = 1;

fn shared() -> Arc<Shared> {
    let memory = SharedWords::new(Arc::new(Mapping::of_model(HEADER_WORDS + RING_WORDS)));
    Arc::new(Shared { memory, wakes: [WakeUp::new(), WakeUp::new()] })
}

fn header(sequence: u64) -> FrameHeader {
    FrameHeader { slot: sequence as u32 + 7, sequence }
}

/// The payload of frame `sequence`: lengths differ, so frames lie differently in each round of the ring.
fn payload(sequence: u64) -> Vec<u8> {
    let byte = sequence as u8;
    if sequence.is_multiple_of(2) { vec![byte; 16] } else { vec![byte; 3] }
}

/// Takes `count` frames, in their order, asleep while there are none.
fn consume(shared: &Shared, count: u64) {
    let mut frames = Consumer::new(shared.memory.clone(), REQUESTS);
    let own = Sleeper::server(shared.memory.clone());
    let peer = Sleeper::client(shared.memory.clone());
    let mut taken = Vec::new();
    let mut sequence = 0;
    while sequence < count {
        match frames.take(&mut taken).expect("an honest peer") {
            Some(found) => {
                assert_eq!((found, &taken), (header(sequence), &payload(sequence)), "another frame");
                sequence += 1;
                frames.publish();
                wake(&peer, || shared.wakes[PRODUCER].send());
            }
            None => {
                sleep(std::iter::once(&own), || frames.is_ready(), || shared.wakes[CONSUMER].wait());
            }
        }
    }
    assert_eq!(frames.take(&mut taken), Ok(None), "a frame twice");
}

/// Pushes `count` frames, asleep while there is no room.
fn produce(shared: &Shared, count: u64) {
    let mut frames = Producer::new(shared.memory.clone(), REQUESTS);
    let own = Sleeper::client(shared.memory.clone());
    let peer = Sleeper::server(shared.memory.clone());
    let mut sequence = 0;
    while sequence < count {
        if frames.try_push(header(sequence), &payload(sequence)).expect("an honest peer") {
            sequence += 1;
            frames.publish();
            wake(&peer, || shared.wakes[CONSUMER].send());
        } else {
            sleep(std::iter::once(&own), || frames.is_ready(), || shared.wakes[PRODUCER].wait());
        }
    }
}

/// `count` frames go through: none is lost, doubled or garbled, and nobody sleeps for ever, which a
/// checker reports as a deadlock.
fn frames_arrive(count: u64) {
    let shared = shared();
    let consuming = Arc::clone(&shared);
    let consumer = thread::spawn(move || consume(&consuming, count));
    produce(&shared, count);
    consumer.join().unwrap();
}

/// A peer that writes counters and words as it likes, while this side looks at them. Whatever comes out is a
/// frame no longer than the limit or a [`Disorder`], and no more words than a ring has.
fn lies_are_bounded() {
    let shared = shared();
    let lying = Arc::clone(&shared);
    let liar = thread::spawn(move || {
        let words = lying.memory.words();
        words[HEADER_WORDS].store(u64::MAX, Ordering::Relaxed);
        words[REQUESTS.tail].store(4, Ordering::Relaxed);
        words[HEADER_WORDS].store(9, Ordering::Relaxed);
        words[REQUESTS.tail].store(RING_WORDS as u64 + 6, Ordering::Relaxed);
    });
    let mut frames = Consumer::new(shared.memory.clone(), REQUESTS);
    let mut taken = Vec::new();
    let mut words = 0;
    while let Ok(Some(_)) = frames.take(&mut taken) {
        assert!(taken.len() <= PAYLOAD_BYTES_MAX);
        words += frame_words(taken.len());
        assert!(words <= RING_WORDS, "frames of {words} words out of a ring that was filled once");
    }
    liar.join().unwrap();
}

#[test]
fn no_frame_and_no_wake_up_is_lost() {
    check(5, || frames_arrive(2));
}

#[test]
fn a_full_ring_neither_overflows_nor_sleeps_for_ever() {
    check(3, || frames_arrive(3));
}

#[test]
fn a_lying_peer_is_survived() {
    check(5, lies_are_bounded);
}

/// Shuttle's memory knows no orderings.
#[cfg(loom)]
#[test]
fn each_ordering_of_ring_and_sleep_is_needed() {
    for bug in [&ACQUIRE_LOADS, &RELEASE_STORES, &SEQ_CST_FENCES] {
        assert_found(bug, || check(2, || frames_arrive(2)));
    }
}

#[test]
fn the_last_look_is_needed() {
    assert_found(&injected::NO_LAST_LOOK, || check(2, || frames_arrive(2)));
}

#[test]
fn a_believed_counter_is_found() {
    assert_found(&injected::COUNTER_BELIEVED, || check(2, lies_are_bounded));
}
