//! Models of a lease: a session gives values out while others renew it.

use std::sync::Arc;

#[cfg(loom)]
use farsight_base::injected as orderings;
#[cfg(loom)]
use farsight_base::injection::assert_found;
use farsight_base::sync::model::{check, thread};

use super::*;

/// One counter stands for all.
type OneCounter = Arc<Lease<1>>;

fn found(closings: u64) -> [Line; 1] {
    let mut line = Line::ZERO;
    line.0[0] = closings;
    [line]
}

/// Who finds a lease holding finds the counter as its READ found it.
fn a_lease_comes_with_its_counters() {
    let lease = OneCounter::default();
    let other = Arc::clone(&lease);
    let renewer = thread::spawn(move || other.renew(MonotonicNs(100), &found(5)));
    if lease.holds(MonotonicNs(100)) {
        assert_eq!(lease.closings(0), 5);
    }
    renewer.join().expect("the renewer ends");
}

/// Of two READs that are taken in any order, the older one takes nothing back, and lasts no longer.
fn the_newer_of_two_reads_counts() {
    let lease = OneCounter::default();
    let behind = MonotonicNs(100).plus(LEASE);
    let (older, newer) = (Arc::clone(&lease), Arc::clone(&lease));
    let older = thread::spawn(move || older.renew(MonotonicNs(100), &found(5)));
    let newer = thread::spawn(move || newer.renew(MonotonicNs(200), &found(6)));
    if lease.holds(behind) {
        assert_eq!(lease.closings(0), 6);
    }
    older.join().expect("it ends");
    newer.join().expect("it ends");
    assert!(lease.holds(behind) && lease.closings(0) == 6);
}

/// A GET that begins behind a write's answer is not answered by what the write had this process let go of,
/// also while an older READ is taken.
fn what_was_let_go_of_is_not_given_out() {
    let lease = OneCounter::default();
    lease.renew(MonotonicNs(100), &found(4));
    let is_answered = Arc::new(AtomicBool::new(false));
    let (keeper, renewer, answer) = (Arc::clone(&lease), Arc::clone(&lease), Arc::clone(&is_answered));
    let keeper = thread::spawn(move || {
        keeper.raise(0, 5);
        // Release: the call that says so, and the write's answer. Partner: the Acquire below.
        answer.store(true, Ordering::Release);
    });
    let renewer = thread::spawn(move || renewer.renew(MonotonicNs(200), &found(4)));
    // Acquire: the GET begins behind the answer. Partner: the Release above.
    if is_answered.load(Ordering::Acquire) && lease.holds(MonotonicNs(100)) {
        assert_eq!(lease.closings(0), 5, "what was noted at 4 is given out");
    }
    keeper.join().expect("it ends");
    renewer.join().expect("it ends");
}

#[test]
fn models() {
    check(3, a_lease_comes_with_its_counters);
    check(3, the_newer_of_two_reads_counts);
    check(3, what_was_let_go_of_is_not_given_out);
}

/// Shuttle's memory knows no orderings.
#[cfg(loom)]
#[test]
fn models_need_each_ordering() {
    use orderings::{ACQUIRE_LOADS, RELEASE_STORES};
    for bug in [&ACQUIRE_LOADS, &RELEASE_STORES] {
        assert_found(bug, || check(3, a_lease_comes_with_its_counters));
        assert_found(bug, || check(3, what_was_let_go_of_is_not_given_out));
    }
}
