//! A campaign's seeds are those of a range, whichever threads run them and whenever it ends.

use std::sync::{Arc, Mutex};

use farsight_base::sync::{AtomicBool, Ordering};
use farsight_sim::{Campaign, SCENARIOS, Tally};

fn run(campaign: Campaign) -> Tally {
    campaign.run(|| false, &Arc::default(), |_| ())
}

#[test]
fn threads_share_the_seeds() {
    let campaign = Campaign { scenario: &SCENARIOS[1], first: 5, seeds: 6, threads: 3 };
    let whole = run(campaign);
    let one_by_one = run(Campaign { threads: 1, ..campaign });
    assert_eq!((whole.seeds, whole.events), (6, one_by_one.events), "the same seeds");
    assert!(whole.operations > 0 && whole.faults() > 0 && whole.failures.is_empty(), "{whole:?}");
    // It ends behind the seeds that were begun.
    let cut = Campaign { threads: 1, ..campaign };
    let done = Mutex::new(0);
    let is_over = || *done.lock().unwrap() == 2;
    let tally = cut.run(is_over, &Arc::default(), |tally| *done.lock().unwrap() = tally.seeds);
    assert_eq!(tally.seeds, 2);
    // No seed lies behind the last number.
    assert_eq!(run(Campaign { first: u64::MAX, seeds: 3, ..cut }).seeds, 1);
}

#[test]
fn what_was_begun_when_it_is_stopped_does_not_count() {
    let endless = Campaign { scenario: &SCENARIOS[1], first: 1, seeds: u64::MAX, threads: 3 };
    let stop = Arc::new(AtomicBool::new(false));
    let tally = endless.run(|| false, &stop, |tally| stop.store(tally.seeds >= 9, Ordering::Relaxed));
    assert!(tally.failures.is_empty(), "{:?}", tally.failures);
    // Each thread may have finished one more, or be the one that all the others waited for.
    assert!(tally.seeds >= 9, "{} seeds", tally.seeds);
    let same = run(Campaign { seeds: tally.seeds, ..endless });
    assert_eq!((same.events, same.operations), (tally.events, tally.operations), "a range from the first");
}
