//! The order of an insert's stores, seen from outside: when a key's line shows a slot, the slot's value is
//! there.
//!
//! Clients get over the opposite order, for a slot's version of zero makes them look again. So no wrong
//! answer betrays it, but a GET beside an insert could use up its READs for nothing. So this test looks at
//! the raw lines of one leaf, while the server's writer of leaves fills and empties it.

use std::time::{Duration, Instant};

use farsight_base::sync::{AtomicBool, AtomicU64, Ordering};
use farsight_base::words::{copy_stamped, next_incarnation};
use farsight_base::{LeafNumber, Line, WORDS_PER_LINE};
use farsight_layout::{
    Fences, Geometry, KEY_LINES, KeyLines, KeySearch, LEAF_SLOTS, LeafImage, LeafWriter, ValueFault,
};

const VALUE_BYTES: usize = 256;
const KEYS: u64 = LEAF_SLOTS as u64;
/// Inserts that the reader must have met while they were new.
const MET_MIN: u64 = 5_000;
const READING_MAX: Duration = Duration::from_secs(60);

/// Words of one leaf in ordinary memory, and where its first line begins in them.
fn leaf_memory(geometry: &Geometry) -> (Vec<AtomicU64>, usize) {
    let words: Vec<AtomicU64> =
        (0..geometry.leaf_words() + WORDS_PER_LINE).map(|_| AtomicU64::new(0)).collect();
    let first = (0..WORDS_PER_LINE).find(|word| (&raw const words[*word]).addr().is_multiple_of(64));
    (words, first.expect("one word in eight begins a line"))
}

/// Fills the leaf, key after key, and empties it under its next incarnation, until told to stop.
fn fill_and_empty(words: &[AtomicU64], geometry: &Geometry, stop: &AtomicBool) {
    let fences = Fences { low: 0, high: None };
    // Relaxed: the flag carries nothing with it.
    while !stop.load(Ordering::Relaxed) {
        let mut writer = LeafWriter::latch(words, geometry, 1).expect("there is one writer");
        let incarnation = next_incarnation(writer.key_lines()[0].stamp().incarnation());
        writer.rewrite(&LeafImage::new(geometry, incarnation, LeafNumber::NONE, fences));
        for key in 1..=KEYS {
            writer.insert(key, key, &[7; VALUE_BYTES]).expect("a slot a key");
        }
    }
}

/// A private copy of `lines` lines from `line` on.
fn read(words: &[AtomicU64], line: usize, into: &mut [Line]) {
    copy_stamped(&words[line * WORDS_PER_LINE..][..into.len() * WORDS_PER_LINE], into);
}

#[test]
fn a_visible_key_has_its_value() {
    let geometry = Geometry::new(VALUE_BYTES).expect("a value size");
    let (memory, first) = leaf_memory(&geometry);
    let words = &memory[first..first + geometry.leaf_words()];
    let stop = AtomicBool::new(false);
    let mut met = 0;
    let mut fault = None;
    std::thread::scope(|scope| {
        scope.spawn(|| fill_and_empty(words, &geometry, &stop));
        let started = Instant::now();
        let mut next = 1;
        let mut is_awaited = false;
        while met < MET_MIN && fault.is_none() && started.elapsed() < READING_MAX {
            let mut lines = [Line::ZERO; KEY_LINES];
            read(words, 0, &mut lines);
            let KeySearch::Hit { slot, incarnation } = KeyLines(&lines).search(next) else {
                is_awaited = true;
                continue;
            };
            // Only a key that was not there a moment ago is new.
            met += u64::from(std::mem::take(&mut is_awaited));
            next = next % KEYS + 1;
            let place = geometry.value_place(slot);
            let mut value_lines = vec![Line::ZERO; geometry.lines_per_value()];
            read(words, place.line, &mut value_lines);
            let mut value = [0; VALUE_BYTES];
            match geometry.read_value(&value_lines, place, incarnation, &mut value) {
                Ok(version) if value == [7; VALUE_BYTES] && version == slot.number() as u64 + 1 => {}
                Ok(version) => fault = Some(format!("{slot:?} has version {version}, value {value:?}")),
                Err(ValueFault::NotWritten) => fault = Some(format!("{slot:?} was not written")),
                // The leaf was emptied since, or its lines are being written for that.
                Err(ValueFault::OtherIncarnation) => {}
                Err(ValueFault::Changing) => {
                    read(words, 0, &mut lines);
                    if KeyLines(&lines).incarnation() == Some(incarnation) {
                        fault = Some(format!("{slot:?} was being written after its key"));
                    }
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(fault, None, "after {met} inserts");
    assert!(met >= MET_MIN, "only {met} inserts were met");
}
