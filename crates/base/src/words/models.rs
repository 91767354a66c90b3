//! Models of stamped lines.

use std::sync::Arc;

use super::*;
use crate::injected;
use crate::injection::assert_found;
use crate::sync::model::{check, thread};

type Words = [AtomicU64; WORDS_PER_LINE];

fn new_line() -> Words {
    std::array::from_fn(|_| AtomicU64::new(0))
}

/// One write of a line: two words, far apart.
fn write(line: &Words, content: u64) {
    let stamp = begin_write(line);
    line[2].store(content, Ordering::Relaxed);
    line[7].store(content, Ordering::Relaxed);
    end_write(line, stamp);
}

fn copy(line: &Words) -> Line {
    let mut copies = [Line::ZERO];
    copy_stamped(line, &mut copies);
    copies[0]
}

/// A copy with an even version is one write's, and the one that its version counts.
fn a_copy_is_a_snapshot() {
    let line = Arc::new(new_line());
    let written = Arc::clone(&line);
    let writer = thread::spawn(move || {
        write(&written, 1);
        write(&written, 2);
    });
    for _ in 0..2 {
        let copied = copy(&line);
        if !copied.stamp().is_changing() {
            let writes = u64::from(copied.stamp().version() / 2);
            assert_eq!((copied.0[2], copied.0[7]), (writes, writes), "a torn copy");
        }
    }
    writer.join().unwrap();
    let copied = copy(&line);
    assert_eq!((copied.stamp().version(), copied.0[2], copied.0[7]), (4, 2, 2), "after the last write");
}

/// The same for the few words that are read without a copy.
fn read_words_are_a_snapshot() {
    let line = Arc::new(new_line());
    let written = Arc::clone(&line);
    let writer = thread::spawn(move || {
        write(&written, 1);
        write(&written, 2);
    });
    for _ in 0..2 {
        if let Some((_, [first, second])) = read_stamped_words(&line, [2, 7]) {
            assert_eq!(first, second, "torn words");
        }
    }
    writer.join().unwrap();
    assert_eq!(read_stamped_words(&line, [2, 7]).map(|(_, words)| words), Some([2, 2]));
}

/// A reader that sees a line written sees what was written before it, as a value before its key.
fn lines_are_seen_in_the_order_of_their_writes() {
    let lines = Arc::new([new_line(), new_line()]);
    let written = Arc::clone(&lines);
    let writer = thread::spawn(move || {
        write(&written[0], 1);
        write(&written[1], 1);
    });
    for _ in 0..2 {
        let key = copy(&lines[1]);
        if !key.stamp().is_changing() && key.0[2] == 1 {
            let value = copy(&lines[0]);
            assert_eq!((value.stamp().version(), value.0[2]), (2, 1), "the key is there, its value is not");
        }
    }
    writer.join().unwrap();
}

#[test]
fn stamped_lines_hold() {
    check(2, a_copy_is_a_snapshot);
    check(2, read_words_are_a_snapshot);
    check(2, lines_are_seen_in_the_order_of_their_writes);
}

/// Shuttle's memory knows no orderings.
#[cfg(loom)]
#[test]
fn each_ordering_of_a_stamped_line_is_needed() {
    for bug in [&injected::ACQUIRE_FENCES, &injected::RELEASE_FENCES, &injected::RELEASE_STORES] {
        assert_found(bug, || check(2, a_copy_is_a_snapshot));
        assert_found(bug, || check(2, read_words_are_a_snapshot));
    }
    // The writer's side is ordered twice: by the first line's even stamp and by the second line's fence.
    assert_found(&injected::ACQUIRE_FENCES, || check(2, lines_are_seen_in_the_order_of_their_writes));
}

#[test]
fn the_second_look_is_needed() {
    assert_found(&injected::NO_SECOND_LOOK, || check(2, a_copy_is_a_snapshot));
}
