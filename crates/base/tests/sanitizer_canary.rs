//! Bugs on purpose: `cargo xtask sanitize` runs them first, and believes a sanitizer only that finds them.

#![cfg(portable_words)]

use std::cell::UnsafeCell;
use std::thread;

use farsight_base::sync::{AtomicUsize, Ordering};

struct Word(UnsafeCell<u64>);

// SAFETY: none; the claim is wrong, which is what ThreadSanitizer must find.
unsafe impl Sync for Word {}

#[test]
#[ignore = "a bug on purpose, for `cargo xtask sanitize`"]
fn a_data_race() {
    static WORD: Word = Word(UnsafeCell::new(0));
    let started = AtomicUsize::new(0);
    let count = || {
        // Relaxed: they meet, so that neither ends before the other begins, and nothing is ordered by that.
        started.fetch_add(1, Ordering::Relaxed);
        while started.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        for _ in 0..10_000 {
            // SAFETY: none; two threads add to one word without an order, which ThreadSanitizer must find.
            unsafe { *WORD.0.get() += 1 };
        }
    };
    thread::scope(|scope| {
        scope.spawn(count);
        scope.spawn(count);
    });
}

#[test]
#[ignore = "a bug on purpose, for `cargo xtask sanitize`"]
fn a_use_after_free() {
    let word = Box::into_raw(Box::new(7_u64));
    // SAFETY: the box was leaked in the line above.
    drop(unsafe { Box::from_raw(word) });
    // SAFETY: none; the box is gone, which AddressSanitizer must find.
    let found = unsafe { word.read_volatile() };
    assert_ne!(found, 8, "the load must not be left out");
}
