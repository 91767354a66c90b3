//! Conditional writes of several sessions at once, each in a thread of its own, to few keys. They are of one
//! client, or of clients of their own, as processes are. What each is told is judged when all have ended.
//!
//! Invariant: no value is written twice in a run. So a write that changed a key says which write it followed:
//! by the version or the value that it named, or by the value before. The changes of a key must be one chain
//! from *absent* to what is there at the end. A change that is lost breaks it, and so do two that follow the
//! same one.
//!
//! In a *race* all clients read the same pair, meet, and then write. Exactly one of them may change it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use farsight::{Access, WriteOperation, WriteOutcome};
use farsight_base::prng::SplitMix64;
use farsight_oracles::{EightBytes, Embedding as _, Identity};

use super::expected::Operands;
use super::{EngineUnderTest, Seed, SessionUnderTest, TableUnderTest};

const CLIENTS: usize = 4;
/// Neighbours, which share lines, and one far away.
const KEYS: [Identity; 3] = [Identity(1 << 40), Identity((1 << 40) + 1), Identity(77)];
/// Rounds of a client, half of them races.
const ROUNDS: usize = 400;
/// Calls of a client that add.
const ADDITIONS: usize = 300;
/// How long a client waits for the others: more than any of them takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A value that a write stored: its number, and the version that it got.
pub type Held = (u64, u64);

/// A write that changed a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The number of the value that it followed, if there was one.
    pub before: Option<u64>,
    /// What it stored; a removal stores nothing.
    pub after: Option<Held>,
}

/// Judges all changes of a key that was absent at first, and holds `end` now.
///
/// # Errors
/// What is wrong with them.
pub fn judge_changes(changes: &[Change], end: Option<Held>) -> Result<(), String> {
    let (mut inserts, mut following) = (Vec::new(), BTreeMap::new());
    for change in changes {
        let Some(before) = change.before else {
            inserts.push(*change);
            continue;
        };
        if let Some(other) = following.insert(before, *change) {
            return Err(format!("{change:?} and {other:?} follow the same write"));
        }
    }
    inserts.sort_by_key(|change| change.after.map(|(_, version)| version));
    let (mut inserts, mut held, mut newest) = (inserts.into_iter(), None, 0);
    // A step uses a change up.
    for _ in 0..changes.len() {
        let next = match held {
            None => inserts.next(),
            Some((number, _)) => following.remove(&number),
        };
        let Some(change) = next else {
            return Err(format!("nothing follows {held:?}: left are {inserts:?} and {following:?}"));
        };
        if change.after.is_some_and(|(_, version)| version <= newest) {
            return Err(format!("{change:?} behind version {newest}"));
        }
        held = change.after;
        newest = held.map_or(newest, |(_, version)| version);
    }
    if held == end { Ok(()) } else { Err(format!("the last change left {held:?}, and {end:?} is there")) }
}

/// Judges the sums before that the clients of one counter were told, client by client, and its `end`.
///
/// # Errors
/// What is wrong with them.
pub fn judge_sums(told: &[Vec<u64>], end: u64) -> Result<(), String> {
    if let Some(sums) = told.iter().find(|sums| !sums.is_sorted_by(|one, next| one < next)) {
        return Err(format!("a client's own additions go back: {sums:?}"));
    }
    let mut all: Vec<u64> = told.concat();
    all.sort_unstable();
    match all.iter().zip(0..).find(|(sum, expected)| *sum != expected) {
        Some((sum, expected)) => Err(format!("sum {expected} was told to nobody or {sum} twice")),
        None if all.len() as u64 != end => Err(format!("{} additions of one made {end}", all.len())),
        None => Ok(()),
    }
}

/// Where threads wait for each other.
#[derive(Default)]
struct Gathering {
    /// How often threads came.
    arrivals: Mutex<usize>,
    all_came: Condvar,
}

impl Gathering {
    /// Waits until every client has come as often as this one.
    fn meet(&self) {
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let all = (*arrivals / CLIENTS + 1) * CLIENTS;
        *arrivals += 1;
        self.all_came.notify_all();
        let waited = self.all_came.wait_timeout_while(arrivals, PATIENCE, |arrivals| *arrivals < all);
        let (arrivals, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "{} of {all} arrivals: another client has failed", *arrivals);
    }
}

/// A value of a run: nobody writes its number again.
fn value_of(number: u64) -> Vec<u8> {
    [number.to_le_bytes(), (!number).to_le_bytes()].concat()
}

fn number_of(value: &[u8]) -> u64 {
    let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("eight bytes"));
    assert!(value.len() == 16 && word(0) == !word(8), "nobody wrote {value:?}");
    word(0)
}

/// One of the clients.
struct Client<'m, S> {
    session: S,
    random: SplitMix64,
    operands: Operands,
    keys: Vec<u64>,
    meeting: &'m Gathering,
    /// The value that it wrote last.
    number: u64,
    /// What it changed, each with its key's place.
    changes: Vec<(usize, Change)>,
    /// Versions of pairs that its writes met instead of what they named, each with its key's place.
    met: Vec<(usize, u64)>,
    /// Races that it won.
    won: usize,
}

impl<S: SessionUnderTest<Key = u64>> Client<'_, S> {
    fn run(mut self, rounds: usize) -> Self {
        for round in 0..rounds {
            let is_race = round < rounds / 2;
            let place = if is_race { round } else { self.random.below(KEYS.len() as u64) as usize };
            let place = place % KEYS.len();
            let held = self.session.get(self.keys[place]);
            let held = held.map(|(value, version)| (number_of(&value), version));
            if is_race {
                self.meeting.meet();
            }
            let has_won = self.write(place, held, !is_race);
            if is_race {
                self.won += usize::from(has_won);
                self.meeting.meet();
            }
        }
        self
    }

    /// Writes to a key that held this. True if that changed it.
    fn write(&mut self, place: usize, held: Option<Held>, may_swap: bool) -> bool {
        self.number += 1;
        let number = self.number;
        let named = |version: u64| [&version.to_le_bytes()[..], &value_of(number)].concat();
        let (operation, operand) = match (held, self.random.below(if may_swap { 4 } else { 3 })) {
            (_, 3) => (WriteOperation::Swap, value_of(number)),
            (None, 0) => (WriteOperation::CompareAndSet, named(0)),
            (None, _) => (WriteOperation::Insert, value_of(number)),
            (Some((_, version)), 0) => (WriteOperation::CompareAndSet, named(version)),
            (Some((old, _)), 1) => {
                let operand = self.operands.compare_value(&value_of(old), &value_of(number));
                (WriteOperation::CompareAndSetValue, operand)
            }
            (Some((_, version)), _) => (WriteOperation::RemoveIf, version.to_le_bytes().to_vec()),
        };
        let done = self.session.exchange(operation, &[(self.keys[place], operand)]).remove(0);
        let (outcome, old) = done;
        let before = if operation == WriteOperation::Swap {
            old.as_deref().map(number_of)
        } else {
            held.map(|(number, _)| number)
        };
        let after = match outcome {
            WriteOutcome::Inserted(version) if before.is_none() => Some((number, version)),
            WriteOutcome::Replaced(version) if before.is_some() => Some((number, version)),
            WriteOutcome::Removed(version) if held.is_some_and(|held| held.1 == version) => None,
            WriteOutcome::Differs(found) | WriteOutcome::Exists(found) => {
                assert!(held.is_none_or(|held| held.1 != found), "{operation:?} at {held:?}: {outcome:?}");
                self.met.push((place, found));
                return false;
            }
            WriteOutcome::Absent if held.is_some() => return false,
            outcome => panic!("{operation:?} at {held:?}, before {before:?}: {outcome:?}"),
        };
        self.changes.push((place, Change { before, after }));
        true
    }

    /// Adds one to each of these counters in one call, and appends the sums before.
    fn add(&mut self, places: &[usize], told: &mut [Vec<u64>]) {
        let one = 1_u64.to_le_bytes().to_vec();
        let entries: Vec<_> = places.iter().map(|place| (self.keys[*place], one.clone())).collect();
        let done = self.session.exchange(WriteOperation::FetchAdd, &entries);
        for (place, (outcome, old)) in places.iter().zip(done) {
            let is_done = matches!(outcome, WriteOutcome::Inserted(_) | WriteOutcome::Replaced(_));
            assert!(is_done, "an addition: {outcome:?}");
            told[*place].push(old.map_or(0, |old| u64::from_le_bytes(old.try_into().expect("8 B"))));
        }
    }
}

/// A table whose sessions may share a client, and so what a process has of a table: caches, and places where
/// writes wait for each other.
pub trait OneClient: TableUnderTest {
    /// A session for each of these, of one client.
    fn sessions_of_one_client(&self, accesses: &[Access]) -> Vec<Self::Session>;
}

/// The server's processor serves one of the sessions.
const ACCESSES: [Access; CLIENTS] = [Access::OneSided, Access::Rpc, Access::OneSided, Access::OneSided];

/// A session for each of [`ACCESSES`], of clients of their own or of one.
fn sessions_of<T: OneClient>(table: &T, of_one: bool) -> Vec<T::Session> {
    if of_one {
        return table.sessions_of_one_client(&ACCESSES);
    }
    ACCESSES.iter().map(|access| table.session(*access)).collect()
}

/// Runs sessions at once, each in a thread.
fn at_once<E, S, R>(
    engine: &E,
    seed: &Seed,
    sessions: Vec<S>,
    run: impl Fn(Client<'_, S>) -> R + Sync,
) -> Vec<R>
where
    E: EngineUnderTest<Embedding = EightBytes>,
    S: Send,
    R: Send,
{
    let (meeting, embedding) = (Gathering::default(), engine.embedding());
    std::thread::scope(|scope| {
        let clients = sessions.into_iter().enumerate().map(|(index, session)| {
            let client = Client {
                session,
                random: seed.random(index as u64),
                operands: engine.operands(),
                keys: KEYS.iter().map(|key| embedding.key(*key)).collect(),
                meeting: &meeting,
                number: (index as u64) << 32,
                changes: Vec::new(),
                met: Vec::new(),
                won: 0,
            };
            let run = &run;
            scope.spawn(move || run(client))
        });
        let clients: Vec<_> = clients.collect();
        clients.into_iter().map(|client| client.join().expect("a client ends well")).collect()
    })
}

/// Compare-and-set by version and by value, insert if absent, removal if the version is this, and swap; by
/// sessions of clients of their own, or of one.
pub fn each_version_is_won_once<E>(engine: &E, of_one: bool)
where
    E: EngineUnderTest<Embedding = EightBytes>,
    E::Table: OneClient<Session: Send>,
{
    let (seed, table) = (Seed::new("conditional writes at once"), engine.table(16));
    let rounds = engine.rounds(ROUNDS);
    let clients = at_once(engine, &seed, sessions_of(&table, of_one), |client| {
        let client = client.run(rounds);
        (client.changes, client.met, client.won)
    });
    let won: usize = clients.iter().map(|(.., won)| won).sum();
    assert_eq!(won, rounds / 2, "each race has one winner");
    let mut session = table.session(Access::OneSided);
    for (place, key) in KEYS.iter().enumerate() {
        let changes = clients.iter().flat_map(|(changes, ..)| changes);
        let changes: Vec<Change> =
            changes.filter(|(of, _)| *of == place).map(|(_, change)| *change).collect();
        let end = session.get(engine.embedding().key(*key));
        let end = end.map(|(value, version)| (number_of(&value), version));
        judge_changes(&changes, end).unwrap_or_else(|fault| panic!("key {key}: {fault}"));
        let made: BTreeSet<u64> =
            changes.iter().filter_map(|change| change.after).map(|held| held.1).collect();
        let met = clients.iter().flat_map(|(_, met, _)| met).filter(|(of, _)| *of == place);
        for (_, version) in met {
            assert!(*version == 0 || made.contains(version), "key {key}: nobody made version {version}");
        }
    }
}

/// Fetch-and-add, alone and in batches that hold a counter twice; by such sessions.
pub fn each_addition_counts_once<E>(engine: &E, of_one: bool)
where
    E: EngineUnderTest<Embedding = EightBytes>,
    E::Table: OneClient<Session: Send>,
{
    let (seed, table) = (Seed::new("additions at once"), engine.table(8));
    let calls = engine.rounds(ADDITIONS);
    let told = at_once(engine, &seed, sessions_of(&table, of_one), |mut client| {
        let mut told = vec![Vec::new(); KEYS.len()];
        client.meeting.meet();
        for _ in 0..calls {
            let places: &[usize] = if client.random.below(4) == 0 { &[0, 1, 0, 2] } else { &[0] };
            client.add(places, &mut told);
        }
        told
    });
    let mut session = table.session(Access::OneSided);
    for (place, key) in KEYS.iter().enumerate() {
        let told: Vec<_> = told.iter().map(|of_client| of_client[place].clone()).collect();
        let end = session.get(engine.embedding().key(*key));
        let end = end.map_or(0, |(value, _)| u64::from_le_bytes(value.try_into().expect("8 B")));
        judge_sums(&told, end).unwrap_or_else(|fault| panic!("counter {key}: {fault}"));
    }
}

/// Instantiates the tests of clients at once for the engine that `$make` makes anew for each.
#[macro_export]
macro_rules! contended_suite {
    ($make:expr) => {
        #[test]
        fn each_version_is_won_once() {
            $crate::engine::contended::each_version_is_won_once(&$make, false);
        }

        #[test]
        fn sessions_of_one_client_win_each_version_once() {
            $crate::engine::contended::each_version_is_won_once(&$make, true);
        }

        #[test]
        fn each_addition_counts_once() {
            $crate::engine::contended::each_addition_counts_once(&$make, false);
        }

        #[test]
        fn additions_of_one_client_count_once() {
            $crate::engine::contended::each_addition_counts_once(&$make, true);
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn change(before: Option<u64>, after: Option<Held>) -> Change {
        Change { before, after }
    }

    /// Inserted, replaced, removed, inserted.
    const CHAIN: [Change; 4] = [
        change(None, Some((20, 9))),
        change(Some(10), Some((11, 6))),
        change(None, Some((10, 4))),
        change(Some(11), None),
    ];

    #[test]
    fn a_chain_in_any_order_is_right() {
        let mut changes = CHAIN;
        for _ in 0..CHAIN.len() {
            changes.rotate_left(1);
            judge_changes(&changes, Some((20, 9))).expect("a chain");
        }
        judge_changes(&[], None).expect("nothing happened");
    }

    #[test]
    fn the_judge_of_changes_sees_each_fault() {
        let fault = |changes: &[Change], end| judge_changes(changes, end).expect_err("a fault");
        let twice = [&CHAIN[..], &[change(Some(10), Some((12, 7)))]].concat();
        assert!(fault(&twice, Some((20, 9))).contains("the same write"));
        // An insert that found the key absent while it was there.
        let inserted = [&CHAIN[..], &[change(None, Some((13, 5)))]].concat();
        assert!(fault(&inserted, Some((20, 9))).contains("behind version"));
        let unremoved = [CHAIN[0], CHAIN[1], CHAIN[2]];
        assert!(fault(&unremoved, Some((20, 9))).contains("nothing follows"));
        assert!(fault(&CHAIN, None).contains("the last change"));
        assert!(fault(&CHAIN, Some((20, 8))).contains("the last change"));
        assert!(fault(&CHAIN[..3], Some((11, 6))).contains("nothing follows"));
        let back = [change(None, Some((1, 5))), change(Some(1), Some((2, 5)))];
        assert!(fault(&back, Some((2, 5))).contains("behind version"));
    }

    #[test]
    fn the_judge_of_sums_sees_each_fault() {
        judge_sums(&[vec![0, 2], vec![1, 3]], 4).expect("each once");
        let fault = |told: &[Vec<u64>], end| judge_sums(told, end).expect_err("a fault");
        assert!(fault(&[vec![0, 1], vec![1, 2]], 4).contains("twice"));
        assert!(fault(&[vec![0, 3], vec![1, 4]], 4).contains("told to nobody"));
        assert!(fault(&[vec![2, 1], vec![0, 3]], 4).contains("go back"));
        assert!(fault(&[vec![0, 2], vec![1, 3]], 5).contains("made 5"));
    }
}
