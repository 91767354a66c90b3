//! Bugs on purpose: `cargo xtask sanitize` runs them first, and believes a sanitizer only that finds them.

#![cfg(portable_words)]

use std::cell::UnsafeCell;
use std::thread;

struct Word(UnsafeCell<u64>);

// SAFETY: none; the claim is wrong, which is what ThreadSanitizer must find.
unsafe impl Sync for Word {}

#[test]
#[ignore = "a bug on purpose, for `cargo xtask sanitize`"]
fn a_data_race() {
    static WORD: Word = Word(UnsafeCell::new(0));
    let count = || {
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
