//! Filtered READs: whatever part of its lines a provider brings, it is the part that was requested.

use farsight_base::sync::Ordering;
use farsight_base::{Line, Stamp, WORDS_PER_LINE};
use farsight_fabric::filter::{Filter, Filtered};
use farsight_fabric::{FabricError, QueuePair, ReadMode, Region, RegionRights};

use super::FabricUnderTest;
use super::harness::{Bench, QueueOf, at, ring_and_wait};

/// A record of seven lines: words 5 to 7 of the first line and 1 to 3 of the second may be wanted, two
/// share a part of one line.
const FILTER: Filter = Filter { words: 0b1110_1110_0000, parts_begin: 3, part_lines: 1, sharing_log2: 1 };
const RECORD_LINES: usize = 7;
/// The words of [`FILTER`].
const WORDS: [usize; 6] = [5, 6, 7, 9, 10, 11];

/// The value of a record's word, wherever it is not a stamp.
fn word_of(record: usize, word: usize) -> u64 {
    (record * 1_000 + word) as u64
}

/// Fills the region with records whose named words are all occupied but for the last.
fn fill<F: FabricUnderTest>(bench: &Bench<F>) -> usize {
    let records = bench.region.words().len() / WORDS_PER_LINE / RECORD_LINES;
    for record in 0..records {
        let words = &bench.region.words()[record * RECORD_LINES * WORDS_PER_LINE..];
        for (word, shared) in words[..RECORD_LINES * WORDS_PER_LINE].iter().enumerate() {
            let value = match word {
                0 => Stamp::new(4, 9, 0b1110_0000).0,
                8 => Stamp::new(6, 9, 0b0110).0,
                _ if word % WORDS_PER_LINE == 0 => Stamp::new(2, 9, 0).0,
                _ => word_of(record, word),
            };
            // Relaxed: nobody looks yet.
            shared.store(value, Ordering::Relaxed);
        }
    }
    records
}

fn assert_words(lines: &[Line], record: usize, first_line: usize) {
    for (index, line) in lines.iter().enumerate() {
        for word in 1..WORDS_PER_LINE {
            let place = (first_line + index) * WORDS_PER_LINE + word;
            assert_eq!(line.0[word], word_of(record, place), "word {place} of record {record}");
        }
        assert!(!line.stamp().is_changing() && line.stamp().incarnation() == 9, "a line's stamp");
    }
}

/// What is wanted and is there, what is not, and what is there without being occupied; beside other verbs.
pub fn filtered_reads_bring_what_is_wanted<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let records = fill(&bench).min(64);
    let slots = QueueOf::<F>::SLOTS.min(256);
    for round in 0..20 {
        let chosen = |slot: usize| ((slot * 7 + round) % records, WORDS[(slot + round) % WORDS.len()]);
        let wanted = |slot: usize| {
            let (record, word) = chosen(slot);
            if slot % 5 == 4 { u64::MAX } else { word_of(record, word) }
        };
        for slot in 0..slots {
            let from = at(bench.region.id(), (chosen(slot).0 * RECORD_LINES * 64) as u64);
            if slot % 8 == 3 {
                bench.queue.post_read(slot, from, RECORD_LINES, ReadMode::Stamped);
            } else {
                bench.queue.post_filtered_read(slot, from, RECORD_LINES, wanted(slot), FILTER);
            }
        }
        let all: Vec<usize> = (0..slots).collect();
        ring_and_wait(&mut bench.queue, &all);
        for slot in 0..slots {
            let ((record, chosen_word), mut room) = (chosen(slot), [Line::ZERO; RECORD_LINES]);
            if slot % 8 == 3 {
                bench.queue.take_read(slot, &mut room).expect("a READ");
                assert_words(&room, record, 0);
                continue;
            }
            // The last word's occupancy is not set.
            let is_there = slot % 5 != 4 && chosen_word != 11;
            match bench.queue.view_filtered(slot, &mut room).expect("a READ") {
                Filtered::Whole(lines) => {
                    assert_eq!(lines.len(), RECORD_LINES);
                    assert_words(lines, record, 0);
                }
                Filtered::Missed(lines) => {
                    assert!(!is_there, "word {chosen_word} of record {record} is there");
                    assert_words(lines, record, 0);
                    assert_eq!(lines.len(), FILTER.filtered_lines());
                }
                Filtered::Picked { word, line, part } => {
                    assert!(is_there && word == chosen_word, "word {word} instead of {chosen_word}");
                    assert_words(std::slice::from_ref(line), record, word / WORDS_PER_LINE);
                    let pair = WORDS.iter().position(|named| *named == word).expect("a named word") / 2;
                    assert_eq!(part.len(), 1);
                    assert_words(part, record, 3 + pair);
                }
            }
        }
    }
}

/// Bounds hold for all lines of the READ, whichever would come back.
pub fn filtered_reads_are_refused_as_reads_are<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let end_bytes = bench.region.words().len() as u64 * 8;
    let from = at(bench.region.id(), end_bytes - 64 * (RECORD_LINES as u64 - 1));
    bench.queue.post_filtered_read(0, from, RECORD_LINES, 5, FILTER);
    ring_and_wait(&mut bench.queue, &[0]);
    let mut room = [Line::ZERO; RECORD_LINES];
    let outcome = bench.queue.view_filtered(0, &mut room);
    assert!(matches!(outcome, Err(FabricError::AccessDenied { .. })), "{outcome:?}");
}

/// Results are there one by one, whatever is under way behind them.
pub fn results_are_taken_in_the_order_of_posting<F: FabricUnderTest>(subject: &F) {
    let mut bench = Bench::new(subject, RegionRights::ReadOnly);
    let records = fill(&bench).min(64);
    let slots = QueueOf::<F>::SLOTS.min(200);
    for _ in 0..20 {
        for slot in 0..slots {
            let from = at(bench.region.id(), (slot % records * RECORD_LINES * 64) as u64);
            bench.queue.post_read(slot, from, RECORD_LINES, ReadMode::Stamped);
            if slot % 30 == 29 || slot + 1 == slots {
                bench.queue.doorbell().expect("a doorbell");
            }
        }
        for slot in 0..slots {
            bench.queue.drain_slot(slot).expect("a READ");
            assert!(bench.queue.is_complete(slot), "slot {slot}");
            let mut lines = [Line::ZERO; RECORD_LINES];
            bench.queue.take_read(slot, &mut lines).expect("a READ");
            assert_words(&lines, slot % records, 0);
        }
    }
}
