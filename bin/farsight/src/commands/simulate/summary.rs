//! What came of a run, for people.

use std::fmt::Write as _;

use farsight_sim::{CLASSES, Class, Cover, Tally};
use indicatif::HumanCount;

use super::record::{COMMIT, Record};
use crate::listing::listing;

/// Failures that are printed in full.
const FAILURES_SHOWN: usize = 10;

/// The whole text. `asked` is the number of seeds requested.
pub(super) fn text(record: &Record, tally: &Tally, asked: Option<u64>) -> String {
    let mut classes = listing(["", "class of faults", "met"]);
    for class in CLASSES {
        classes.add_row([class.id, class.name, &met(class, tally)]);
    }
    let mut text = format!("{classes}\n");
    let rate = record.seeds as f64 / record.elapsed_s.max(1e-9);
    let count = |number| HumanCount(number).to_string();
    let _ = writeln!(
        text,
        "{} seeds of {} from {} in {:.1} s: {rate:.0}/s on {} threads; commit {COMMIT}\n\
         {} answers judged, {} of them writes of unknown outcome; {} faults, {} splits; {} of virtual time",
        count(record.seeds),
        record.scenario,
        record.first_seed,
        record.elapsed_s,
        record.threads,
        count(record.operations),
        count(record.unknown_writes),
        count(record.faults),
        count(record.splits),
        time(record.virtual_s),
    );
    for (failure, told) in record.failures.iter().zip(&tally.failures).take(FAILURES_SHOWN) {
        let _ = writeln!(text, "\nFAILED {told}\nreplay: {}   (commit {COMMIT})", failure.replay);
    }
    let hidden = record.failures.len().saturating_sub(FAILURES_SHOWN);
    if hidden > 0 {
        let _ = writeln!(text, "\nand {hidden} more; --json has all");
    }
    for id in &record.unmet {
        let _ = writeln!(text, "NEVER MET: class {id}");
    }
    if asked.is_some_and(|asked| record.seeds < asked) {
        let next = record.end();
        let _ = writeln!(text, "go on with: farsight simulate --scenario {} --seed {next}", record.scenario);
    }
    let failed = record.failures.len();
    let _ = writeln!(
        text,
        "{}",
        if failed == 0 { "no seed failed".to_owned() } else { format!("{failed} failed") }
    );
    text
}

/// Virtual time.
pub(super) fn time(seconds: f64) -> String {
    if seconds < 3600.0 { format!("{seconds:.2} s") } else { format!("{:.1} h", seconds / 3600.0) }
}

fn met(class: &Class, tally: &Tally) -> String {
    match class.cover {
        Cover::By(_) | Cover::Counted(_) => {
            HumanCount(tally.coverage.met(class).unwrap_or_default()).to_string()
        }
        Cover::Elsewhere(tests) => format!("elsewhere: {tests}"),
        Cover::Nothing(why) => format!("cannot be: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use farsight_sim::{Campaign, Failure, SCENARIOS, Trace};

    use super::*;

    /// A run of so many seeds of all scenarios, the last of which failed.
    fn ended(seeds: u64, fails: bool) -> (Record, Tally) {
        let failure = Failure {
            scenario: "mixed",
            seed: 17,
            what: "key 4: no order explains these answers".to_owned(),
            entries: Vec::new(),
            trace: Trace::default(),
        };
        let failures = fails.then_some(failure).into_iter().collect();
        let tally = Tally { seeds, failures, ..Tally::default() };
        let campaign = Campaign { scenario: &SCENARIOS[0], first: 1, seeds: 10_000, threads: 2 };
        (Record::of(&campaign, &tally, Duration::from_secs(10)), tally)
    }

    #[test]
    fn a_failure_has_the_line_that_repeats_it() {
        let (record, tally) = ended(100, true);
        assert!(!record.has_passed());
        let text = text(&record, &tally, Some(100));
        assert!(text.contains("FAILED scenario mixed seed 17: key 4: no order explains"), "{text}");
        let replay =
            format!("replay: farsight simulate --scenario mixed --seed 17 --trace   (commit {COMMIT})");
        assert!(text.contains(&replay) && text.ends_with("1 failed\n"), "{text}");
        assert!(!text.contains("go on with"), "{text}");
    }

    #[test]
    fn a_class_that_many_seeds_did_not_meet_is_a_failure() {
        let (few, tally) = ended(1_999, false);
        assert!(few.has_passed());
        assert!(text(&few, &tally, Some(10_000)).contains("--scenario any --seed 2000\n"));
        let (many, tally) = ended(2_000, false);
        assert!(!many.has_passed());
        assert!(text(&many, &tally, None).contains("NEVER MET: class 1\n"));
    }
}
