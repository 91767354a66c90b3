//! Models of writers at one gate: each write is executed once, by its own session or another.

use std::sync::Arc;

use farsight_base::injection::assert_found;
use farsight_base::sync::model::{check, thread};

use super::*;
use crate::injected;

/// Times that a writer looks at its request before it gives up.
const LOOKS: u32 = 3;

/// What a leaf's lock protects: the keys that were written.
type Leaf = Mutex<Vec<u64>>;

fn place() -> LeafPlace {
    LeafPlace::new(0, 7).expect("a small number")
}

/// Writes `key` and what is taken along.
fn execute(leaf: &Leaf, key: u64, hold: Option<Hold<'_>>) {
    let mut written = leaf.lock().expect("nobody panics under it");
    written.push(key);
    let Some(mut hold) = hold else { return };
    let mut taken = Vec::new();
    hold.take(&mut taken);
    written.extend(taken.iter().map(|asked| asked.key));
    drop(written);
    hold.end(taken.iter().map(|asked| (asked, End::Done(WriteOutcome::Inserted(asked.key)))));
}

/// Writes `key`: how often that may have been executed, at least and at most.
fn write(gates: &Gates, leaf: &Leaf, key: u64) -> [usize; 2] {
    let write = Write { operation: WriteOperation::Insert, key, value: &[], old: &[] };
    let mut ticket = match gates.enter(place(), &write) {
        Entered::Held(hold) => return (execute(leaf, key, Some(hold)), [1, 1]).1,
        Entered::Passed => return (execute(leaf, key, None), [1, 1]).1,
        Entered::Queued(ticket) => ticket,
    };
    for _ in 0..LOOKS {
        match ticket.poll(&write) {
            Polled::Waiting => thread::yield_now(),
            Polled::Own(hold, _) => return (execute(leaf, key, hold), [1, 1]).1,
            Polled::Ended(End::Done(outcome)) => {
                assert_eq!(outcome, WriteOutcome::Inserted(key), "another's outcome");
                return [1, 1];
            }
            Polled::Ended(end) => panic!("{end:?} of a write that is done along"),
        }
    }
    if ticket.withdraw() { [0, 1] } else { [0, 0] }
}

fn each_write_is_executed_once() {
    let shared = Arc::new((Gates::new(), Leaf::default()));
    let others = [1, 2].map(|key| {
        let shared = Arc::clone(&shared);
        thread::spawn(move || (key, write(&shared.0, &shared.1, key)))
    });
    let mut bounds = vec![(0, write(&shared.0, &shared.1, 0))];
    bounds.extend(others.map(|other| other.join().expect("no panic")));
    let written = shared.1.lock().expect("all have ended");
    for (key, [least, most]) in bounds {
        let count = written.iter().filter(|written| **written == key).count();
        assert!(
            (least..=most).contains(&count),
            "key {key} was written {count} times, not {least} to {most}"
        );
    }
    assert_eq!(shared.0.0[0].waiting.load(Ordering::Relaxed), 0, "nobody waits");
    assert!(shared.0.0[0].locked().requests.is_empty(), "no request is left");
}

/// A holder that breaks off loses what it took, and the next one goes on.
fn what_a_holder_took_is_lost_with_it() {
    let shared = Arc::new(Gates::new());
    let gates = Arc::clone(&shared);
    let breaks_off = thread::spawn(move || {
        let write = Write { operation: WriteOperation::Insert, key: 1, value: &[], old: &[] };
        if let Entered::Held(mut hold) = gates.enter(place(), &write) {
            hold.take(&mut Vec::new());
        }
    });
    let write = Write { operation: WriteOperation::Insert, key: 2, value: &[], old: &[] };
    if let Entered::Queued(mut ticket) = shared.enter(place(), &write) {
        for _ in 0..LOOKS {
            match ticket.poll(&write) {
                Polled::Waiting => thread::yield_now(),
                Polled::Own(hold, _) => {
                    assert!(hold.is_some(), "the gate is free");
                    break;
                }
                Polled::Ended(end) => {
                    assert!(matches!(end, End::Lost(_)), "{end:?}");
                    break;
                }
            }
        }
    }
    breaks_off.join().expect("no panic");
    let again = shared.enter(place(), &write);
    assert!(matches!(again, Entered::Held(_)), "{again:?}");
}

#[test]
fn writes_are_executed_once() {
    check(2, each_write_is_executed_once);
    check(3, what_a_holder_took_is_lost_with_it);
}

#[test]
fn what_is_taken_is_marked() {
    assert_found(&injected::TAKEN_UNMARKED, || check(2, each_write_is_executed_once));
}
