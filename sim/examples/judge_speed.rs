//! How long the judge of histories takes for a million operations, by how many of them overlap.
//!
//! `cargo run --release -p farsight-sim --example judge_speed`

#![forbid(unsafe_code)]

use std::time::Instant;

use farsight_base::prng::SplitMix64;
use farsight_protocol::{WriteOperation, WriteOutcome};
use farsight_sim::{Action, Entry, Identity, NEVER, Seen, check};

const OPERATIONS: u64 = 1_000_000;
const KEYS: u64 = 1_000;
/// Of the writes, one in so many is never answered; half of those take effect.
const UNKNOWN_ONE_IN: u64 = 100;

fn main() {
    println!("| operations of a key at once | a million of {KEYS} keys |");
    println!("|---|---|");
    for at_once in [1, 8, 32] {
        let entries = histories(at_once);
        let begun = Instant::now();
        let judged = check(&entries);
        let took = begun.elapsed();
        assert!(judged.is_ok(), "{judged:?}");
        println!("| {at_once} | {:.2} s |", took.as_secs_f64());
    }
}

/// What keys that behave answer to readers and writers, about `at_once` at a time.
fn histories(at_once: u64) -> Vec<Entry> {
    let mut random = SplitMix64::new(at_once);
    let mut entries = Vec::new();
    for key in (0..KEYS).map(Identity) {
        let mut held = None;
        let own = entries.len();
        for number in 1..=OPERATIONS / KEYS {
            // Each takes effect at its own moment, within its begin and its end.
            let at = (at_once + number) * 10;
            let (begin, end) = (at - random.below(5 * at_once), at + 1 + random.below(5 * at_once));
            let entry = |end, action| Entry { key, life: 1, process: 0, begin, end, action };
            if random.below(2) == 0 {
                entries.push(entry(end, Action::Read(held)));
                continue;
            }
            let is_unknown = random.below(UNKNOWN_ONE_IN) == 0;
            let takes_effect = !is_unknown || random.below(2) == 0;
            let outcome = match held {
                None => WriteOutcome::Inserted(number),
                Some(_) => WriteOutcome::Replaced(number),
            };
            let (end, outcome) = if is_unknown { (NEVER, None) } else { (end, Some(outcome)) };
            entries.push(entry(end, Action::Write { operation: WriteOperation::Put, number, outcome }));
            if takes_effect {
                held = Some(Seen { number, version: number });
            }
        }
        entries[own..].sort_by_key(|entry| entry.begin);
    }
    entries
}
