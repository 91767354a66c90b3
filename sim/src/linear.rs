//! Is there an order in which the operations on one key could have happened, one after the other?
//!
//! Invariant: the answer is exact. A history passes if and only if some order of its operations explains it.
//! That order respects real time: what ended before another began comes first. It gives every operation the
//! answer that it got, and has growing versions. Writes whose values nobody read may share one: a write that
//! overtakes others leaves them none of their own.
//!
//! The search is Wing and Gong's with Lowe's memory of configurations, as porcupine does it. It takes any
//! operation that may come first, goes back where that leads nowhere, and never tries the same set of
//! operations with the same state twice. Versions leave it few choices. Every version that is known, from an
//! answer or from a read of the value, has its rank, and operations come in the order of the ranks. An
//! operation that fits and changes nothing is taken at once: if there is an order, there is one that begins
//! with it. Keys are independent, so each is searched by itself.
//!
//! Writes of unknown outcome make the configurations many: each of them may be taken or left. But one that
//! is left can still be taken later. So a configuration that led nowhere rules out every other with the same
//! operations of known outcome, the same state, and at least its writes of unknown outcome taken. One whose
//! caller stopped waiting may take effect later, but never over a write that begins behind that.

use std::collections::HashMap;

use farsight_oracles::Identity;
use farsight_protocol::{WriteOperation, WriteOutcome};

use crate::journal::{Action, Conditional, Entry, NEVER, Seen};

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
    pub key: Identity,
    /// What was found.
    pub what: String,
    /// The key's entries, in the order of their begins.
    pub entries: Vec<Entry>,
}

/// The first key whose entries of one life contradict each other. `entries` are sorted by key, life, begin.
///
/// # Errors
/// [`Violation`].
pub fn check(entries: &[Entry]) -> Result<(), Violation> {
    let mut search = Search::default();
    for history in entries.chunk_by(|a, b| (a.key, a.life) == (b.key, b.life)) {
        let violation = |what: String| Violation { key: history[0].key, what, entries: history.to_vec() };
        search.known.set(history);
        search.known.check_versions(history).map_err(violation)?;
        match search.is_linearizable(history) {
            Some(true) => {}
            Some(false) => return Err(violation("no order explains these answers".to_owned())),
            None => return Err(violation("too many orders to try".to_owned())),
        }
    }
    Ok(())
}

/// The version that an entry saw or made, if it tells.
fn version_of(action: &Action) -> Option<u64> {
    if let Action::Read(seen) = action {
        return seen.map(|seen| seen.version);
    }
    match action.written() {
        Some((_, _, Some(outcome))) => match outcome {
            WriteOutcome::Inserted(version)
            | WriteOutcome::Replaced(version)
            | WriteOutcome::Removed(version)
            | WriteOutcome::Exists(version)
            | WriteOutcome::Differs(version) => Some(version),
            WriteOutcome::Absent | WriteOutcome::Failed(_) => None,
        },
        _ => None,
    }
}

/// True of a write that nobody knows the outcome of.
fn is_unknown(entry: &Entry) -> bool {
    matches!(entry.action.written(), Some((_, _, None)))
}

/// When it is over. What nobody waits for may have its effect later.
fn end_of(entry: &Entry) -> u64 {
    if is_unknown(entry) { NEVER } else { entry.end }
}

/// The version that a write made, if its answer tells.
fn version_made(outcome: Option<WriteOutcome>) -> Option<u64> {
    match outcome {
        Some(WriteOutcome::Inserted(made) | WriteOutcome::Replaced(made)) => Some(made),
        _ => None,
    }
}

/// What a history says of versions and times, in order.
#[derive(Default)]
struct Known {
    /// The numbers of values that were read, each with its version.
    read: Vec<(u64, u64)>,
    /// The versions that writes made, as far as an answer or a read tells.
    made: Vec<u64>,
    /// The ends of all operations, each with its place in the history.
    ends: Vec<(u64, usize)>,
    /// The numbers that have to be told apart from others: those of values that somebody read or compared.
    told: Vec<u64>,
    /// The versions that were made, as far as an answer or a read tells, each with the number of its value.
    makers: Vec<(u64, u64)>,
    /// The key is a counter: its numbers are its values.
    is_counter: bool,
}

impl Known {
    fn set(&mut self, history: &[Entry]) {
        let Self { read, made, ends, told, makers, is_counter } = self;
        read.clear();
        for entry in history {
            if let Action::Read(Some(Seen { number, version })) = entry.action
                && read.last() != Some(&(number, version))
            {
                read.push((number, version));
            }
        }
        read.sort_unstable();
        read.dedup();
        ends.clear();
        ends.extend(history.iter().enumerate().map(|(index, entry)| (end_of(entry), index)));
        ends.sort_unstable();
        made.clear();
        made.extend(history.iter().filter_map(|entry| made_by(read, &entry.action)));
        made.sort_unstable();
        told.clear();
        told.extend(read.iter().map(|(number, _)| *number));
        makers.clear();
        *is_counter = false;
        let conditional = |entry: &Entry| match entry.action {
            Action::Conditional(conditional) => Some(conditional),
            _ => None,
        };
        if history.iter().any(|entry| conditional(entry).is_some()) {
            let written = history.iter().filter_map(|entry| {
                let (_, number, outcome) = entry.action.written()?;
                let stored = conditional(entry).map_or(Some(number), |conditional| conditional.stored());
                version_made(outcome).zip(stored)
            });
            makers.extend(written.chain(read.iter().map(|(number, version)| (*version, *number))));
            makers.sort_unstable();
            // Whatever has a version may be compared with.
            told.extend(makers.iter().map(|(_, number)| *number));
        }
        for conditional in history.iter().filter_map(conditional) {
            *is_counter |= conditional.operation == WriteOperation::FetchAdd;
            told.extend(conditional.old);
            told.extend([conditional.argument]);
        }
        told.sort_unstable();
        told.dedup();
    }

    /// The number of the value that has this version, if an answer or a read tells.
    fn maker(&self, version: u64) -> Option<u64> {
        let place = self.makers.binary_search_by_key(&version, |(version, _)| *version).ok()?;
        Some(self.makers[place].1)
    }

    /// The number by which a value goes.
    fn tell(&self, number: u64) -> u64 {
        let is_told = self.is_counter || self.told.binary_search(&number).is_ok();
        if is_told { number } else { UNREAD }
    }

    /// The version of the value of write `number`, if somebody read it.
    fn version_read(&self, number: u64) -> Option<u64> {
        version_in(&self.read, number)
    }

    /// A value has one version, and versions do not fall in real time.
    fn check_versions(&self, history: &[Entry]) -> Result<(), String> {
        let differ = |number, one, other| Err(format!("write {number} has versions {one} and {other}"));
        if let Some(pair) = self.read.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return differ(pair[0].0, pair[0].1, pair[1].1);
        }
        let is_read = |version: u64| self.read.iter().any(|(_, read)| *read == version);
        let is_twice = |pair: &&[u64]| pair[0] == pair[1] && is_read(pair[0]);
        if let Some([version, _]) = self.made.windows(2).find(is_twice) {
            return Err(format!("two writes made version {version}, which was read"));
        }
        let (mut next, mut newest) = (0, 0);
        for entry in history {
            let stored = match entry.action {
                Action::Conditional(conditional) => conditional.stored(),
                action => action.written().map(|(_, number, _)| number),
            };
            if let Some(number) = stored
                && let Some((_, _, outcome)) = entry.action.written()
                && let Some((made, read)) = version_made(outcome).zip(self.version_read(number))
                && made != read
            {
                return differ(number, made, read);
            }
            let Some(version) = version_of(&entry.action) else { continue };
            while let Some((_, index)) = self.ends.get(next).filter(|(end, _)| *end < entry.begin) {
                newest = newest.max(version_of(&history[*index].action).unwrap_or(0));
                next += 1;
            }
            if version < newest {
                return Err(format!("version {version} at {} after version {newest}", entry.begin));
            }
        }
        Ok(())
    }
}

/// The version of value `number` in a list by number.
fn version_in(read: &[(u64, u64)], number: u64) -> Option<u64> {
    read.binary_search_by_key(&number, |(number, _)| *number).ok().map(|index| read[index].1)
}

/// The version that an action made, if it is a write and its answer or somebody who read it tells.
fn made_by(read: &[(u64, u64)], action: &Action) -> Option<u64> {
    match action.written()? {
        // What it made of a counter nobody knows.
        (WriteOperation::FetchAdd, _, None) => None,
        (_, number, None) => version_in(read, number),
        (_, _, outcome) => version_made(outcome),
    }
}

/// What an operation asks of the key before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wants {
    Anything,
    Absent,
    Present,
    Exactly(u64),
    /// A value, and not this one.
    Other(u64),
    /// Whatever it is, it does not explain the answer.
    Nothing,
}

/// What an operation makes of the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stores {
    Nothing,
    Absence,
    Value(u64),
    /// So much more than the key held.
    Sum(u64),
}

/// An operation as the search sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Operation {
    /// Its outcome is known, so it has a place in the order.
    is_decided: bool,
    wants: Wants,
    /// Writes of known versions that come before it, at least and at most, if it tells.
    rank: Option<[usize; 2]>,
    stores: Stores,
    /// It is a write of a known version.
    is_ranked: bool,
    /// Of a write of unknown outcome, when its caller stopped waiting. It comes before all writes that begin
    /// later.
    waited_until: u64,
}

/// The number of all writes whose values nobody read: they need not be told apart.
const UNREAD: u64 = 0;

impl Operation {
    /// What an entry of a history is in the search.
    fn of(entry: &Entry, known: &Known) -> Self {
        let before = |version: u64| known.made.partition_point(|other| *other < version);
        let up_to = |version: u64| known.made.partition_point(|other| *other <= version);
        let made = made_by(&known.read, &entry.action);
        // Writes that one and the same other write overtook share a version, and have any order.
        let of_write = made.map(|version| [before(version), up_to(version) - 1]);
        let rank = of_write.or_else(|| version_of(&entry.action).map(|version| [up_to(version); 2]));
        let (is_decided, wants, stores) = match &entry.action {
            Action::Conditional(conditional) => {
                let (wants, stores) = meaning_of_conditional(conditional, known);
                (conditional.outcome.is_some(), wants, stores)
            }
            action => meaning(action, |number| known.tell(number)),
        };
        let waited_until = if is_unknown(entry) { entry.end } else { NEVER };
        Self { is_decided, wants, rank, stores, is_ranked: made.is_some(), waited_until }
    }

    /// What the key holds after it, if it fits what the key held.
    fn after(&self, held: Held) -> Option<Held> {
        let fits = match self.wants {
            Wants::Anything => true,
            Wants::Absent => held.number.is_none(),
            Wants::Present => held.number.is_some(),
            Wants::Exactly(number) => held.number == Some(number),
            Wants::Other(number) => held.number.is_some_and(|held| held != number),
            Wants::Nothing => false,
        };
        let in_turn = self.rank.is_none_or(|[least, most]| (least..=most).contains(&held.rank));
        let number = match self.stores {
            Stores::Nothing => held.number,
            Stores::Absence => None,
            Stores::Value(number) => Some(number),
            Stores::Sum(addend) => Some(held.number.unwrap_or(0).wrapping_add(addend)),
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
        Action::Conditional(_) => return (true, Wants::Nothing, Stores::Nothing),
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
        _ => (Wants::Nothing, Stores::Nothing),
    };
    (outcome.is_some(), wants, stores)
}

/// What a conditional write wants, and what it stores. Every success has the predecessor that it names.
fn meaning_of_conditional(conditional: &Conditional, known: &Known) -> (Wants, Stores) {
    use WriteOperation::{CompareAndSet, CompareAndSetValue, FetchAdd, RemoveIf, Swap};
    use WriteOutcome::{Absent, Differs, Inserted, Removed, Replaced};
    let Conditional { operation, number, argument, old, outcome } = *conditional;
    let value = Stores::Value(known.tell(conditional.stored().unwrap_or(number)));
    let of_old = || old.map_or(Wants::Nothing, |old| Wants::Exactly(known.tell(old)));
    // A version that nothing tells of may be that of a write without an answer.
    let of_version =
        || known.maker(argument).map_or(Wants::Present, |maker| Wants::Exactly(known.tell(maker)));
    match (operation, outcome) {
        (_, Some(WriteOutcome::Failed(_))) => (Wants::Anything, Stores::Nothing),
        (CompareAndSet, Some(Inserted(_)) | None) if argument == 0 => (Wants::Absent, value),
        (CompareAndSet, Some(Replaced(_)) | None) if argument > 0 => (of_version(), value),
        (CompareAndSet, Some(Absent)) if argument > 0 => (Wants::Absent, Stores::Nothing),
        (CompareAndSetValue, Some(Replaced(_)) | None) => (Wants::Exactly(known.tell(argument)), value),
        (CompareAndSetValue, Some(Differs(_))) => (Wants::Other(known.tell(argument)), Stores::Nothing),
        (CompareAndSetValue | RemoveIf, Some(Absent)) => (Wants::Absent, Stores::Nothing),
        (RemoveIf, None) => (of_version(), Stores::Absence),
        (RemoveIf, Some(Removed(version))) if version == argument => (of_version(), Stores::Absence),
        (CompareAndSet | RemoveIf, Some(Differs(version))) if version != argument => {
            (Wants::Present, Stores::Nothing)
        }
        (FetchAdd | Swap, Some(Inserted(_))) => (Wants::Absent, value),
        (FetchAdd | Swap, Some(Replaced(_))) => (of_old(), value),
        (FetchAdd, None) => (Wants::Anything, Stores::Sum(argument)),
        (Swap, None) => (Wants::Anything, value),
        // No answer to this operation: nothing explains it.
        _ => (Wants::Nothing, Stores::Nothing),
    }
}

/// Begins and ends in one list from which operations are lifted and put back.
#[derive(Default)]
struct EventList {
    /// Of each moment: the operation, and whether it is its end.
    events: Vec<(usize, bool)>,
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Where each operation begins and ends.
    places: Vec<(usize, usize)>,
}

impl EventList {
    /// Makes it the list of a history with these ends. Place 0 is the head, the last one the tail.
    fn set(&mut self, history: &[Entry], ends: &[(u64, usize)]) {
        let Self { events, next, previous, places } = self;
        events.clear();
        events.push((usize::MAX, false));
        places.clear();
        places.resize(history.len(), (0, 0));
        let mut ends = ends.iter().peekable();
        for (index, entry) in history.iter().enumerate() {
            // Begins before ends of the same moment: such operations overlap.
            while let Some((_, ended)) = ends.next_if(|(end, _)| *end < entry.begin) {
                places[*ended].1 = events.len();
                events.push((*ended, true));
            }
            places[index].0 = events.len();
            events.push((index, false));
        }
        for (_, ended) in ends {
            places[*ended].1 = events.len();
            events.push((*ended, true));
        }
        events.push((usize::MAX, false));
        next.clear();
        next.extend(1..=events.len());
        previous.clear();
        previous.extend((0..events.len()).map(|place| place.wrapping_sub(1)));
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
    /// The newest begin of a write among those that were taken before.
    newest_before: u64,
    /// It fitted and changed nothing: nothing else need be tried in its place.
    is_free: bool,
}

/// The search for an order, and its memory, which serves one history after the other.
#[derive(Default)]
struct Search {
    known: Known,
    operations: Vec<Operation>,
    moments: EventList,
    /// The operations taken, a bit each, and in their order.
    set: Vec<u64>,
    taken: Vec<Taken>,
    /// The newest begin of a write among them.
    newest: u64,
    /// Of the bits, those of operations whose outcome is known.
    decided: Vec<u64>,
    tried: Tried,
}

/// Configurations that led nowhere.
#[derive(Default)]
struct Tried {
    /// By the decided operations taken and what the key held then: the sets of undecided ones.
    undecided: HashMap<(Vec<u64>, Held), Vec<Vec<u64>>>,
    count: usize,
}

impl Tried {
    fn clear(&mut self) {
        self.undecided.clear();
        self.count = 0;
    }

    /// Whether the operations of `set` with this state lead nowhere, because fewer undecided ones did.
    fn rules_out(&self, set: &[u64], decided: &[u64], held: Held) -> bool {
        let key = (masked(set, decided, 0), held);
        let is_in = |fewer: &Vec<u64>| fewer.iter().zip(set).all(|(fewer, set)| fewer & !set == 0);
        self.undecided.get(&key).is_some_and(|sets| sets.iter().any(is_in))
    }

    fn note(&mut self, set: &[u64], decided: &[u64], held: Held) {
        let sets = self.undecided.entry((masked(set, decided, 0), held)).or_default();
        let own = masked(set, decided, u64::MAX);
        let before = sets.len();
        sets.retain(|more| own.iter().zip(more).any(|(own, more)| own & !more != 0));
        sets.push(own);
        self.count = self.count + sets.len() - before;
    }
}

/// The bits of `set` that are in `mask`, or those that are not where `flip` is all ones.
fn masked(set: &[u64], mask: &[u64], flip: u64) -> Vec<u64> {
    set.iter().zip(mask).map(|(set, mask)| set & (mask ^ flip)).collect()
}

impl Search {
    /// True if there is such an order, false if there is none, `None` if the search ended without an answer.
    ///
    /// Writes of unknown outcome need no place in the order: they are tried where nothing else leads on, and
    /// only if they change something. Of several that do the same the first is as good as any.
    fn is_linearizable(&mut self, history: &[Entry]) -> Option<bool> {
        self.begin(history);
        let mut held = Held::default();
        let mut decided_left = self.operations.iter().filter(|operation| operation.is_decided).count();
        let mut wants_decided = true;
        let mut at = self.moments.next[0];
        while decided_left > 0 {
            let (operation, is_end) = self.moments.events[at];
            if is_end || at == self.moments.tail() {
                if wants_decided {
                    wants_decided = false;
                    at = self.moments.next[0];
                    continue;
                }
                // Nothing before this end can come first: the last choice was wrong.
                let Some((wrong, before)) = self.go_back(held, &mut decided_left) else { return Some(false) };
                if self.tried.count > CONFIGURATIONS_MAX {
                    return None;
                }
                held = before;
                wants_decided = self.operations[wrong].is_decided;
                at = self.moments.next[self.moments.places[wrong].0];
                continue;
            }
            match self.becomes(operation, at, held, wants_decided) {
                Some(becomes) => {
                    let (newest_before, is_free) = (self.newest, becomes == held);
                    self.taken.push(Taken { operation, before: held, newest_before, is_free });
                    if self.operations[operation].stores != Stores::Nothing {
                        self.newest = newest_before.max(history[operation].begin);
                    }
                    held = becomes;
                    decided_left -= usize::from(wants_decided);
                    self.moments.lift(operation);
                    wants_decided = true;
                    at = self.moments.next[0];
                }
                None => at = self.moments.next[at],
            }
        }
        Some(true)
    }

    fn begin(&mut self, history: &[Entry]) {
        self.operations.clear();
        self.operations.extend(history.iter().map(|entry| Operation::of(entry, &self.known)));
        self.moments.set(history, &self.known.ends);
        self.set.clear();
        self.set.resize(history.len().div_ceil(64), 0);
        self.decided.clear();
        self.decided.resize(self.set.len(), 0);
        for (index, _) in self.operations.iter().enumerate().filter(|(_, operation)| operation.is_decided) {
            self.decided[index / 64] |= 1 << (index % 64);
        }
        self.taken.clear();
        self.newest = 0;
        self.tried.clear();
    }

    /// Takes the operation that begins at `at`, if it may come next and has not led nowhere before; what the
    /// key holds then.
    fn becomes(&mut self, operation: usize, at: usize, held: Held, wants_decided: bool) -> Option<Held> {
        let own = &self.operations[operation];
        let becomes = own.after(held).filter(|becomes| {
            own.is_decided == wants_decided
                && self.newest <= own.waited_until
                && (wants_decided
                    || *becomes != held && self.moments.is_first_of_its_kind(at, &self.operations))
        })?;
        self.set[operation / 64] |= 1 << (operation % 64);
        // A way leads to larger and larger sets, so only an abandoned set can come again.
        let is_old = becomes != held
            && self.tried.count > 0
            && self.tried.rules_out(&self.set, &self.decided, becomes);
        if is_old {
            self.set[operation / 64] &= !(1 << (operation % 64));
            return None;
        }
        Some(becomes)
    }

    /// Takes back the last operation that was chosen, and all behind it; returns it, and what the key held
    /// before. `None` if there was no choice.
    fn go_back(&mut self, mut held: Held, decided_left: &mut usize) -> Option<(usize, Held)> {
        loop {
            let Taken { operation, before, newest_before, is_free } = self.taken.pop()?;
            if !is_free {
                self.tried.note(&self.set, &self.decided, held);
            }
            held = before;
            self.newest = newest_before;
            self.set[operation / 64] &= !(1 << (operation % 64));
            self.moments.put_back(operation);
            *decided_left += usize::from(self.operations[operation].is_decided);
            // Nothing else need be tried in the place of what fitted and changed nothing.
            if !is_free {
                return Some((operation, held));
            }
        }
    }
}

#[cfg(test)]
mod tests;
