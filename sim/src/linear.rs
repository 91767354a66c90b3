//! Is there an order in which the operations on one key could have happened, one after the other?
//!
//! Invariant: the answer is exact. A history passes if and only if some order of its operations respects real
//! time (what ended before another began comes first), gives every one of them the answer that it got, and
//! has growing versions.
//!
//! The search is Wing and Gong's with Lowe's memory of configurations, as porcupine does it: take any
//! operation that may come first, go back where that leads nowhere, and never try the same set of operations
//! with the same state twice. Versions leave it few choices: every version that is known, from an answer or
//! from a read of the value, has its rank, and operations come in the order of the ranks. An operation that
//! fits and changes nothing is taken at once: whatever order there is, there is one that begins with it. Keys
//! are independent, so each is searched by itself.

use std::collections::HashSet;

use farsight_protocol::{WriteOperation, WriteOutcome};

use crate::journal::{Action, Entry, Seen};

/// Configurations after which a search gives up: no scenario's key comes near.
const CONFIGURATIONS_MAX: usize = 1 << 20;

/// What a key holds: the number of a write, and how many writes of known versions came before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Held {
    number: Option<u64>,
    rank: usize,
}

/// What is wrong with a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The key.
    pub key: u64,
    /// What was found.
    pub what: String,
    /// The key's entries, in the order of their begins.
    pub entries: Vec<Entry>,
}

/// The first key whose entries of one life contradict each other. `entries` are sorted by key and life.
///
/// # Errors
/// [`Violation`].
pub fn check(entries: &[Entry]) -> Result<(), Violation> {
    for history in entries.chunk_by(|a, b| (a.key, a.life) == (b.key, b.life)) {
        let violation = |what: String| Violation { key: history[0].key, what, entries: history.to_vec() };
        check_versions(history).map_err(violation)?;
        match is_linearizable(history) {
            Some(true) => {}
            Some(false) => return Err(violation("no order explains these answers".to_owned())),
            None => return Err(violation("too many orders to try".to_owned())),
        }
    }
    Ok(())
}

/// The version that an entry saw or made, and the write that it belongs to, if that is known.
fn version_of(action: &Action) -> Option<(Option<u64>, u64)> {
    match action {
        Action::Read(Some(Seen { number, version })) => Some((Some(*number), *version)),
        Action::Write { number, outcome: Some(outcome), .. } => match outcome {
            WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version) => {
                Some((Some(*number), *version))
            }
            WriteOutcome::Removed(version) | WriteOutcome::Exists(version) => Some((None, *version)),
            WriteOutcome::Absent | WriteOutcome::Failed(_) => None,
        },
        Action::Read(None) | Action::Write { .. } => None,
    }
}

/// A value has one version, and versions do not fall in real time.
fn check_versions(history: &[Entry]) -> Result<(), String> {
    let mut seen: Vec<(u64, u64)> = Vec::new();
    let mut ended: Vec<(u64, u64)> = Vec::new();
    for entry in history {
        let Some((number, version)) = version_of(&entry.action) else { continue };
        if let Some(number) = number {
            seen.push((number, version));
        }
        ended.push((entry.end, version));
    }
    seen.sort_unstable();
    if let Some(pair) = seen.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[0].1 != pair[1].1) {
        return Err(format!("write {} has versions {} and {}", pair[0].0, pair[0].1, pair[1].1));
    }
    ended.sort_unstable();
    let (mut next, mut newest) = (0, 0);
    for entry in history {
        while ended.get(next).is_some_and(|(end, _)| *end < entry.begin) {
            newest = newest.max(ended[next].1);
            next += 1;
        }
        if let Some((_, version)) = version_of(&entry.action).filter(|(_, version)| *version < newest) {
            return Err(format!("version {version} at {} after version {newest}", entry.begin));
        }
    }
    Ok(())
}

/// What an operation asks of the key before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wants {
    Anything,
    Absent,
    Present,
    Exactly(u64),
}

/// What an operation makes of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stores {
    Nothing,
    Absence,
    Value(u64),
}

/// An operation as the search sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Operation {
    /// Its outcome is known, so it has a place in the order.
    is_decided: bool,
    wants: Wants,
    /// Writes of known versions that come before it, if it tells.
    rank: Option<usize>,
    stores: Stores,
    /// It is a write of a known version.
    is_ranked: bool,
}

/// The number of all writes whose values nobody read: they need not be told apart.
const UNREAD: u64 = 0;

impl Operation {
    /// The operations of a history.
    fn all(history: &[Entry]) -> Vec<Self> {
        // The versions of values that were read, by number; then all that are known of writes.
        let mut read: Vec<(u64, u64)> = history
            .iter()
            .filter_map(|entry| if let Action::Read(Some(seen)) = entry.action { Some(seen) } else { None })
            .map(|seen| (seen.number, seen.version))
            .collect();
        read.sort_unstable();
        read.dedup();
        let version_read = |number: u64| {
            read.binary_search_by_key(&number, |(number, _)| *number).ok().map(|index| read[index].1)
        };
        let version_made = |action: &Action| match *action {
            Action::Write {
                outcome: Some(WriteOutcome::Inserted(made) | WriteOutcome::Replaced(made)),
                ..
            } => Some(made),
            Action::Write { outcome: None, number, .. } => version_read(number),
            _ => None,
        };
        let mut versions: Vec<u64> = history.iter().filter_map(|entry| version_made(&entry.action)).collect();
        versions.sort_unstable();
        let before = |version: u64| versions.partition_point(|other| *other < version);
        let up_to = |version: u64| versions.partition_point(|other| *other <= version);
        let operation = |entry: &Entry| {
            let made = version_made(&entry.action);
            let told = match entry.action {
                Action::Read(Some(Seen { version, .. }))
                | Action::Write {
                    outcome: Some(WriteOutcome::Removed(version) | WriteOutcome::Exists(version)),
                    ..
                } => Some(version),
                _ => None,
            };
            let rank = made.map(before).or_else(|| told.map(up_to));
            let number = |number: u64| if version_read(number).is_some() { number } else { UNREAD };
            let (is_decided, wants, stores) = meaning(&entry.action, number);
            Self { is_decided, wants, rank, stores, is_ranked: made.is_some() }
        };
        history.iter().map(operation).collect()
    }

    /// What the key holds after it, if it fits what the key held.
    fn after(&self, held: Held) -> Option<Held> {
        let fits = match self.wants {
            Wants::Anything => true,
            Wants::Absent => held.number.is_none(),
            Wants::Present => held.number.is_some(),
            Wants::Exactly(number) => held.number == Some(number),
        };
        let in_turn = self.rank.is_none_or(|rank| rank == held.rank);
        let number = match self.stores {
            Stores::Nothing => held.number,
            Stores::Absence => None,
            Stores::Value(number) => Some(number),
        };
        (fits && in_turn).then_some(Held { number, rank: held.rank + usize::from(self.is_ranked) })
    }
}

/// Whether an action's outcome is known, what it wants, and what it stores. `tell` gives the number by which
/// a write's value goes.
fn meaning(action: &Action, tell: impl Fn(u64) -> u64) -> (bool, Wants, Stores) {
    use WriteOperation::{Insert, Put, Remove, Update};
    let (operation, number, outcome) = match action {
        Action::Read(None) => return (true, Wants::Absent, Stores::Nothing),
        Action::Read(Some(seen)) => return (true, Wants::Exactly(seen.number), Stores::Nothing),
        Action::Write { operation, number, outcome } => (*operation, tell(*number), *outcome),
    };
    let (wants, stores) = match (operation, outcome) {
        (_, Some(WriteOutcome::Failed(_))) => (Wants::Anything, Stores::Nothing),
        (Insert | Put, Some(WriteOutcome::Inserted(_))) | (Insert, None) => {
            (Wants::Absent, Stores::Value(number))
        }
        (Update | Put, Some(WriteOutcome::Replaced(_))) | (Update, None) => {
            (Wants::Present, Stores::Value(number))
        }
        (Put, None) => (Wants::Anything, Stores::Value(number)),
        (Remove, Some(WriteOutcome::Removed(_)) | None) => (Wants::Present, Stores::Absence),
        (Insert, Some(WriteOutcome::Exists(_))) => (Wants::Present, Stores::Nothing),
        (Update | Remove, Some(WriteOutcome::Absent)) => (Wants::Absent, Stores::Nothing),
        // No answer to this operation: nothing explains it.
        _ => (Wants::Exactly(u64::MAX), Stores::Nothing),
    };
    (outcome.is_some(), wants, stores)
}

/// Begins and ends in one list from which operations are lifted and put back.
struct Moments {
    /// Of each moment: the operation, and whether it is its end.
    events: Vec<(usize, bool)>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Where each operation begins and ends.
    places: Vec<(usize, usize)>,
}

impl Moments {
    /// Place 0 is the head, the last one the tail.
    fn of(history: &[Entry]) -> Self {
        let mut events: Vec<(u64, usize, bool)> = Vec::with_capacity(2 * history.len());
        for (index, entry) in history.iter().enumerate() {
            events.push((entry.begin, index, false));
            events.push((entry.end, index, true));
        }
        // Begins before the ends that never come; those in any order.
        events.sort_unstable_by_key(|(at, index, is_end)| (*at, *is_end, *index));
        let mut places = vec![(0, 0); history.len()];
        for (place, (_, index, is_end)) in events.iter().enumerate() {
            let own = &mut places[*index];
            if *is_end { own.1 = place + 1 } else { own.0 = place + 1 }
        }
        let length = events.len() + 2;
        let mut all = vec![(usize::MAX, false)];
        all.extend(events.into_iter().map(|(_, index, is_end)| (index, is_end)));
        all.push((usize::MAX, false));
        let next = (1..=length).collect();
        let previous = (0..length).map(|place| place.wrapping_sub(1)).collect();
        Self { events: all, next, previous, places }
    }

    fn tail(&self) -> usize {
        self.events.len() - 1
    }

    /// True if no operation of equal meaning begins before the one that begins at `place`.
    fn is_first_of_its_kind(&self, place: usize, operations: &[Operation]) -> bool {
        let own = &operations[self.events[place].0];
        let mut at = self.next[0];
        while at != place {
            let (operation, is_end) = self.events[at];
            if !is_end && operations[operation] == *own {
                return false;
            }
            at = self.next[at];
        }
        true
    }

    fn lift(&mut self, operation: usize) {
        let (begin, end) = self.places[operation];
        for place in [begin, end] {
            let (before, behind) = (self.previous[place], self.next[place]);
            self.next[before] = behind;
            self.previous[behind] = before;
        }
    }

    fn put_back(&mut self, operation: usize) {
        let (begin, end) = self.places[operation];
        for place in [end, begin] {
            let (before, behind) = (self.previous[place], self.next[place]);
            self.next[before] = place;
            self.previous[behind] = place;
        }
    }
}

/// An operation that was taken.
struct Taken {
    operation: usize,
    /// What the key held before.
    before: Held,
    /// It fitted and changed nothing: nothing else need be tried in its place.
    is_free: bool,
}

/// True if there is such an order, false if there is none, `None` if the search was given up.
///
/// Writes of unknown outcome need no place in the order: they are tried where nothing else leads on, and only
/// if they change something. Of several that do the same the first is as good as any.
fn is_linearizable(history: &[Entry]) -> Option<bool> {
    let operations = Operation::all(history);
    let mut moments = Moments::of(history);
    let mut set = vec![0_u64; history.len().div_ceil(64)];
    let mut tried: HashSet<(Vec<u64>, Held)> = HashSet::new();
    let mut taken: Vec<Taken> = Vec::new();
    let mut held = Held::default();
    let mut decided_left = operations.iter().filter(|operation| operation.is_decided).count();
    let mut wants_decided = true;
    let mut at = moments.next[0];
    while decided_left > 0 {
        let (operation, is_end) = moments.events[at];
        if is_end || at == moments.tail() {
            if wants_decided {
                wants_decided = false;
                at = moments.next[0];
                continue;
            }
            // Nothing before this end can come first: the last choice was wrong.
            loop {
                let Some(Taken { operation, before, is_free }) = taken.pop() else { return Some(false) };
                held = before;
                set[operation / 64] &= !(1 << (operation % 64));
                moments.put_back(operation);
                wants_decided = operations[operation].is_decided;
                decided_left += usize::from(wants_decided);
                at = moments.next[moments.places[operation].0];
                if !is_free {
                    break;
                }
            }
            continue;
        }
        let own = &operations[operation];
        let becomes = own.after(held).filter(|becomes| {
            own.is_decided == wants_decided
                && (wants_decided || *becomes != held && moments.is_first_of_its_kind(at, &operations))
        });
        if let Some(becomes) = becomes {
            let is_free = becomes == held;
            set[operation / 64] |= 1 << (operation % 64);
            if is_free || tried.insert((set.clone(), becomes)) {
                if tried.len() > CONFIGURATIONS_MAX {
                    return None;
                }
                taken.push(Taken { operation, before: held, is_free });
                held = becomes;
                decided_left -= usize::from(wants_decided);
                moments.lift(operation);
                wants_decided = true;
                at = moments.next[0];
                continue;
            }
            set[operation / 64] &= !(1 << (operation % 64));
        }
        at = moments.next[at];
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::NEVER;

    fn entry(begin: u64, end: u64, action: Action) -> Entry {
        Entry { key: 7, life: 1, process: 0, begin, end, action }
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
                vec![
                    inserted,
                    unknown(5, PUT, 9),
                    read(6, 7, Some(9)),
                    read(8, 9, None),
                    read(10, 11, Some(9)),
                ],
            ),
        ];
        for (name, mut history) in histories {
            history.sort_by_key(|entry| entry.begin);
            assert!(check(&history).is_err(), "{name}");
        }
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
}
