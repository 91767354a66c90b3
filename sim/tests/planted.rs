//! The checkers checked: each planted bug is found within its number of seeds. Built with `--cfg planted`:
//! `RUSTFLAGS="--cfg planted" cargo test --release -p farsight-sim --test planted`.

#![cfg(planted)]

use farsight_base::sync::planted::{Bug, plant};
use farsight_fabric_sim::{Fault, Rule};
use farsight_sim::{Failure, Scenario};

/// The first seed that fails, of as many as allowed, and how.
fn first_failure(seeds: u64, run: impl Fn(u64) -> Result<(), Box<Failure>>) -> Option<(u64, String)> {
    (1..=seeds).find_map(|seed| run(seed).err().map(|failure| (seed, failure.what)))
}

#[track_caller]
fn assert_found(name: &str, seeds: u64, run: impl Fn(u64) -> Result<(), Box<Failure>>) {
    match first_failure(seeds, run) {
        Some((seed, what)) => println!("{name}: found by seed {seed} of {seeds}: {what}"),
        None => panic!("{name}: not found by {seeds} seeds"),
    }
}

fn assert_bug_is_found(bug: Bug, seeds: u64) {
    assert_found(&format!("{bug:?}"), seeds, |seed| {
        plant(bug, || Scenario::of_seed(seed).run(false).map(drop))
    });
}

macro_rules! found {
    ($($name:ident: $bug:ident within $seeds:literal;)+) => {
        $(
            #[test]
            fn $name() {
                assert_bug_is_found(Bug::$bug, $seeds);
            }
        )+
    };
}

found! {
    a_value_of_another_incarnation: AnyIncarnation within 10;
    a_value_that_is_being_written: OddAccepted within 100;
    a_value_that_is_not_there_yet: UnwrittenAccepted within 500;
    a_miss_without_fences: MissWithoutFences within 10;
    no_step_to_the_sibling: NoSiblingStep within 10;
    a_slot_used_twice: SlotReused within 10;
    lines_that_stay_even: OpenedInPart within 100;
    an_incarnation_kept: IncarnationKept within 10;
    a_hint_trusted: HintTrusted within 10;
    a_retrain_dropped: DroppedRetrain within 10;
    an_answer_before_its_effect: AnsweredBeforeVisible within 100;
    no_second_look_at_a_stamp: NoSecondLook within 500;
}

#[test]
fn a_call_executed_twice() {
    assert_found("DoubledCall", 10, |seed| {
        let mut scenario = Scenario::of_seed(seed);
        scenario.rules.push(Rule::always(Fault::DoubledCall, 10, 0));
        scenario.run(false).map(drop)
    });
}
