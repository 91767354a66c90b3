//! Models of a set: a session reads an address while others change the set.

use std::sync::Arc;

#[cfg(loom)]
use farsight_base::injected as orderings;
#[cfg(loom)]
use farsight_base::injection::assert_found;
use farsight_base::sync::model::{check, thread};

use super::*;

type Words = Arc<[AtomicU64; SET_WORDS]>;

fn address(number: u64) -> Address {
    Address { place: SlotPlace { line: number as u32, slot: 1 }, word: HashSlot(number), version: number }
}

/// A reader finds what somebody remembered of the key, whole, or nothing.
fn an_address_is_found_whole() {
    let words: Words = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
    Set::new(&words).put(1, address(10));
    let other = Arc::clone(&words);
    let writer = thread::spawn(move || {
        // Another key, for which the first one moves; then a new address of that.
        Set::new(&other).put(2, address(20));
        Set::new(&other).put(1, address(11));
    });
    for _ in 0..2 {
        let found = Set::new(&words).get(1, CachePolicy::Sieve);
        assert!([None, Some(address(10)), Some(address(11))].contains(&found), "{found:?}");
    }
    writer.join().expect("the writer ends");
    assert_eq!(Set::new(&words).get(1, CachePolicy::Sieve), Some(address(11)));
}

/// Of two changes at once one may be left out, and none is made by halves.
fn changes_exclude_each_other() {
    let words: Words = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
    let other = Arc::clone(&words);
    let writer = thread::spawn(move || {
        Set::new(&other).put(1, address(10));
        Set::new(&other).remove(1, HashSlot(10));
    });
    Set::new(&words).put(2, address(20));
    writer.join().expect("the writer ends");
    let set = Set::new(&words);
    let (first, second) = (set.get(1, CachePolicy::Sieve), set.get(2, CachePolicy::Sieve));
    assert!([None, Some(address(10))].contains(&first), "{first:?}");
    assert!([None, Some(address(20))].contains(&second), "{second:?}");
    assert!(second.is_some() || first.is_none(), "who excluded the other one has ended its change");
}

#[test]
fn models() {
    check(3, an_address_is_found_whole);
    check(3, changes_exclude_each_other);
}

/// Shuttle's memory knows no orderings.
#[cfg(loom)]
#[test]
fn models_need_each_ordering() {
    use orderings::{ACQUIRE_FENCES, ACQUIRE_LOADS, RELEASE_FENCES, RELEASE_STORES};
    for bug in [&ACQUIRE_LOADS, &RELEASE_STORES, &ACQUIRE_FENCES, &RELEASE_FENCES] {
        assert_found(bug, || check(3, an_address_is_found_whole));
    }
}
