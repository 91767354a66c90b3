//! Histories that an order explains, and others.

use super::*;

fn entry(begin: u64, end: u64, action: Action) -> Entry {
    Entry { key: Identity(7), life: 1, process: 0, begin, end, action }
}

fn read(begin: u64, end: u64, number: Option<u64>) -> Entry {
    let seen = number.map(|number| Seen { number, version: number });
    entry(begin, end, Action::Read(seen))
}

fn write(begin: u64, end: u64, operation: WriteOperation, number: u64, outcome: WriteOutcome) -> Entry {
    entry(begin, end, Action::Write { operation, number, outcome: Some(outcome) })
}

fn unknown(begin: u64, operation: WriteOperation, number: u64) -> Entry {
    entry(begin, NEVER, Action::Write { operation, number, outcome: None })
}

const PUT: WriteOperation = WriteOperation::Put;

#[test]
fn what_can_be_explained_passes() {
    let inserted = write(1, 4, PUT, 1, WriteOutcome::Inserted(1));
    let replaced = write(5, 9, PUT, 2, WriteOutcome::Replaced(2));
    let removed = write(20, 30, WriteOperation::Remove, 3, WriteOutcome::Removed(2));
    let histories = [
        vec![read(1, 2, None)],
        vec![inserted, read(2, 3, None), read(3, 6, Some(1))],
        vec![inserted, replaced, read(6, 7, Some(1)), read(8, 9, Some(2)), read(10, 11, Some(2))],
        vec![inserted, replaced, removed, read(21, 22, Some(2)), read(23, 24, None), read(31, 32, None)],
        vec![inserted, unknown(5, PUT, 9), read(6, 7, Some(1)), read(90, 91, Some(9))],
        vec![inserted, unknown(5, PUT, 9), read(90, 91, Some(1))],
    ];
    for mut history in histories {
        history.sort_by_key(|entry| entry.begin);
        assert_eq!(check(&history), Ok(()));
    }
}

#[test]
fn what_cannot_be_explained_is_found() {
    let inserted = write(1, 4, PUT, 1, WriteOutcome::Inserted(1));
    let replaced = write(5, 9, PUT, 2, WriteOutcome::Replaced(2));
    let histories = [
        ("a lost key", vec![inserted, read(5, 6, None)]),
        ("a stale value", vec![inserted, replaced, read(10, 11, Some(1))]),
        ("a value from nowhere", vec![inserted, read(5, 6, Some(77))]),
        ("two readers disagree", vec![inserted, replaced, read(6, 7, Some(2)), read(8, 9, Some(1))]),
        (
            "executed twice",
            vec![inserted, replaced, write(10, 12, WriteOperation::Insert, 3, WriteOutcome::Inserted(3))],
        ),
        ("before its time", vec![read(1, 2, Some(9)), unknown(5, PUT, 9)]),
        (
            "absent in between",
            vec![inserted, unknown(5, PUT, 9), read(6, 7, Some(9)), read(8, 9, None), read(10, 11, Some(9))],
        ),
    ];
    for (name, mut history) in histories {
        history.sort_by_key(|entry| entry.begin);
        assert!(check(&history).is_err(), "{name}");
    }
}

/// Two writes that a third one overtook have one version, which nobody can have read.
#[test]
fn writes_that_another_one_overtook_share_a_version() {
    use WriteOutcome::{Inserted, Replaced};
    let before = [write(1, 4, PUT, 1, Inserted(1)), write(5, 20, PUT, 8, Replaced(8))];
    let overtaken = [write(5, 30, PUT, 2, Replaced(7)), write(6, 30, PUT, 3, Replaced(7))];
    let history = |others: &[Entry]| {
        let mut history = [&before, &overtaken, others].concat();
        history.sort_by_key(|entry| entry.begin);
        history
    };
    assert_eq!(check(&history(&[read(2, 9, Some(1)), read(31, 40, Some(8))])), Ok(()));
    let seen = |number, version| entry(7, 29, Action::Read(Some(Seen { number, version })));
    let violation = check(&history(&[seen(2, 7)])).expect_err("a shared version was read");
    assert!(violation.what.contains("version 7"), "{}", violation.what);
    // It is one of the two that remains, if the third did not come last.
    let last = |number, version| entry(31, 40, Action::Read(Some(Seen { number, version })));
    assert!(check(&history(&[last(1, 1)])).is_err());
    assert!(check(&history(&[last(3, 7)])).is_err());
    let behind = write(31, 40, PUT, 4, Replaced(7));
    assert!(check(&history(&[behind])).is_err(), "a version falls");
}

fn conditional(
    begin: u64,
    end: u64,
    (operation, number, argument): (WriteOperation, u64, u64),
    old: Option<u64>,
    outcome: Option<WriteOutcome>,
) -> Entry {
    entry(begin, end, Action::Conditional(Conditional { operation, number, argument, old, outcome }))
}

#[test]
fn conditional_writes_have_the_predecessors_that_they_name() {
    use WriteOperation::{CompareAndSet, CompareAndSetValue, RemoveIf, Swap};
    use WriteOutcome::{Absent, Differs, Inserted, Removed, Replaced};
    let inserted = write(1, 4, PUT, 1, Inserted(1));
    let put = write(3, 9, PUT, 2, Replaced(2));
    let set = |expected, outcome| conditional(3, 9, (CompareAndSet, 9, expected), None, Some(outcome));
    let of_value = |number, outcome| conditional(3, 9, (CompareAndSetValue, 9, number), None, Some(outcome));
    let remove = |expected, outcome| conditional(3, 9, (RemoveIf, 9, expected), None, Some(outcome));
    let swap = |old, outcome| conditional(3, 9, (Swap, 9, 0), old, Some(outcome));
    for explained in [
        vec![inserted, set(1, Replaced(2))],
        vec![set(0, Inserted(1))],
        vec![inserted, put, set(1, Differs(2))],
        vec![inserted, of_value(1, Replaced(2))],
        vec![inserted, put, of_value(1, Differs(2))],
        vec![inserted, remove(1, Removed(1)), read(10, 11, None)],
        vec![inserted, put, swap(Some(2), Replaced(3))],
        vec![set(7, Absent)],
        vec![inserted, conditional(5, NEVER, (CompareAndSet, 9, 1), None, None), read(6, 7, Some(1))],
        vec![inserted, conditional(5, NEVER, (CompareAndSet, 9, 1), None, None), read(6, 7, Some(9))],
    ] {
        assert_eq!(check(&explained), Ok(()), "{explained:?}");
    }
    for (name, unexplained) in [
        (
            "another version",
            vec![
                inserted,
                write(5, 6, PUT, 2, Replaced(2)),
                conditional(7, 9, (CompareAndSet, 9, 1), None, Some(Replaced(3))),
            ],
        ),
        ("the very version", vec![inserted, set(1, Differs(1))]),
        ("an absent key", vec![inserted, conditional(5, 9, (CompareAndSet, 9, 0), None, Some(Inserted(2)))]),
        ("another value", vec![inserted, of_value(77, Replaced(2))]),
        ("the very value", vec![inserted, of_value(1, Differs(1))]),
        ("a removal of another version", vec![inserted, remove(7, Removed(1))]),
        ("the value of nobody before", vec![inserted, swap(Some(5), Replaced(2))]),
        ("no value before", vec![inserted, swap(None, Replaced(2))]),
        (
            "two successes of one version",
            vec![
                inserted,
                conditional(5, 9, (CompareAndSet, 8, 1), None, Some(Replaced(2))),
                conditional(6, 9, (CompareAndSet, 9, 1), None, Some(Replaced(3))),
            ],
        ),
        (
            "an unanswered one that another version follows",
            vec![
                inserted,
                write(3, 4, PUT, 2, Replaced(2)),
                conditional(5, NEVER, (CompareAndSet, 9, 1), None, None),
                read(6, 7, Some(9)),
            ],
        ),
    ] {
        assert!(check(&unexplained).is_err(), "{name}");
    }
}

#[test]
fn counters_are_sums() {
    use WriteOutcome::{Inserted, Replaced};
    let add = |begin, end, addend, old, outcome| {
        conditional(begin, end, (WriteOperation::FetchAdd, 1_000 + begin, addend), old, outcome)
    };
    let sum = |begin, number, version| entry(begin, begin + 1, Action::Read(Some(Seen { number, version })));
    let first = add(1, 4, 5, None, Some(Inserted(1)));
    let unknown = add(5, NEVER, 7, None, None);
    for explained in [
        vec![first, add(2, 9, 3, Some(5), Some(Replaced(2))), sum(10, 8, 2)],
        vec![first, unknown, sum(6, 5, 1), sum(20, 12, 2)],
        vec![first, unknown, add(6, 9, 1, Some(12), Some(Replaced(3)))],
        vec![first, unknown, add(6, 9, 1, Some(5), Some(Replaced(2))), sum(20, 13, 3)],
    ] {
        assert_eq!(check(&explained), Ok(()), "{explained:?}");
    }
    for (name, unexplained) in [
        ("lost", vec![first, add(5, 9, 3, Some(5), Some(Replaced(2))), sum(10, 5, 3)]),
        ("twice", vec![first, add(5, 9, 3, Some(5), Some(Replaced(2))), sum(10, 11, 3)]),
        ("an unknown one twice", vec![first, unknown, sum(10, 19, 3)]),
        ("of nobody", vec![first, add(5, 9, 3, Some(6), Some(Replaced(2)))]),
    ] {
        assert!(check(&unexplained).is_err(), "{name}");
    }
}

/// A hundred writes that nobody got an answer to neither hide what is wrong nor make the search give up.
#[test]
fn writes_of_unknown_outcome_do_not_hide_a_contradiction() {
    use WriteOperation::{Insert, Remove, Update};
    let mut history = vec![write(1, 4, PUT, 1, WriteOutcome::Inserted(1))];
    let mut begin = 5;
    for number in 0..25 {
        for (place, operation) in [PUT, Insert, Update, Remove].into_iter().enumerate() {
            history.push(unknown(begin, operation, 100 + 4 * number + place as u64));
            begin += 1;
        }
        history.push(read(begin, begin + 1, Some(1)));
        begin += 2;
    }
    history.push(write(begin, begin + 3, PUT, 2, WriteOutcome::Inserted(2)));
    history.push(read(begin + 4, begin + 5, Some(2)));
    assert_eq!(check(&history), Ok(()), "a removal came before");
    history.push(read(begin + 6, begin + 7, Some(77)));
    let violation = check(&history).expect_err("a value from nowhere");
    assert_eq!(violation.what, "no order explains these answers");
}

#[test]
fn a_write_that_nobody_waits_for_replaces_nothing_that_begins_later() {
    let history = |end: u64| {
        let inserted = write(1, 4, PUT, 1, WriteOutcome::Inserted(1));
        let lost = Entry { end, ..unknown(5, PUT, 9) };
        vec![inserted, lost, write(10, 12, PUT, 2, WriteOutcome::Replaced(2)), read(90, 91, Some(9))]
    };
    assert_eq!(check(&history(NEVER)), Ok(()));
    // Both are under way.
    assert_eq!(check(&history(11)), Ok(()));
    check(&history(8)).expect_err("it comes behind a write that began later");
    // It may take effect late, as long as nobody writes.
    let [inserted, lost, _, late] = history(8)[..] else { unreachable!("four entries") };
    assert_eq!(check(&[inserted, lost, read(20, 21, Some(1)), late]), Ok(()));
}

/// Whatever a register tells clients that overlap is explained; any answer swapped for another is not.
#[test]
fn long_histories_are_decided() {
    let mut random = farsight_base::prng::SplitMix64::new(5);
    let mut history = Vec::new();
    let mut held = None;
    for number in 1..=400 {
        // Each takes effect at 10 * number, and overlaps some neighbours.
        let at = 10 * number;
        let (begin, end) = (at - random.below(25).min(at), at + 1 + random.below(25));
        if random.below(2) == 0 {
            history.push(read(begin, end, held));
        } else {
            let outcome = match held {
                None => WriteOutcome::Inserted(number),
                Some(_) => WriteOutcome::Replaced(number),
            };
            history.push(write(begin, end, PUT, number, outcome));
            held = Some(number);
        }
    }
    history.sort_by_key(|entry| entry.begin);
    assert_eq!(check(&history), Ok(()));
    let late = history.iter().rposition(|entry| matches!(entry.action, Action::Read(_))).expect("a read");
    history[late].action = Action::Read(Some(Seen { number: 1, version: 1 }));
    assert!(check(&history).is_err());
}
