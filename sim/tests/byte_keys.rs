//! The journal and its judge over keys that are byte strings, of a reference. FlexKV's are in the scenario
//! `hashed-strings`.

use std::collections::BTreeMap;
use std::ops::Bound;

use farsight_base::prng::SplitMix64;
use farsight_oracles::{EightBytes, Embedding, Identity, Strings, values};
use farsight_protocol::{WriteOperation, WriteOutcome};
use farsight_sim::{Action, Entry, Journal, NEVER, Seen, Violation, check};

const OPERATIONS: usize = 4_000;
const KEYS: u64 = 40;
const VALUE_BYTES: usize = 20;
/// Kinds of operations: those of single keys, and with scans.
const SINGLE: u64 = 6;
const ALL: u64 = 8;

/// What a store makes of a key before it looks.
type HeardAs = fn(Vec<u8>) -> Vec<u8>;

/// A store of one process. What it makes of a key before it looks is what a test breaks.
struct Reference<K> {
    pairs: BTreeMap<K, (Vec<u8>, u64)>,
    version: u64,
    heard_as: fn(K) -> K,
}

impl<K: Ord + Clone> Reference<K> {
    fn put(&mut self, key: K, value: Vec<u8>) -> WriteOutcome {
        self.version += 1;
        match self.pairs.insert((self.heard_as)(key), (value, self.version)) {
            None => WriteOutcome::Inserted(self.version),
            Some(_) => WriteOutcome::Replaced(self.version),
        }
    }

    fn remove(&mut self, key: K) -> WriteOutcome {
        let removed = self.pairs.remove(&(self.heard_as)(key));
        removed.map_or(WriteOutcome::Absent, |(_, version)| WriteOutcome::Removed(version))
    }

    /// The first pair from a key on.
    fn first_from(&self, key: K) -> Option<(&K, &(Vec<u8>, u64))> {
        self.pairs.range((Bound::Included((self.heard_as)(key)), Bound::Unbounded)).next()
    }
}

fn seen(stored: &(Vec<u8>, u64)) -> Seen {
    Seen { number: values::first_word(&stored.0).expect("a whole value"), version: stored.1 }
}

/// Random operations, judged; `kinds` says which. A scan of one pair reads the keys that it passes,
/// too.
fn judged<E: Embedding<Key: Clone>>(
    embedding: &E,
    identities: &[Identity],
    kinds: u64,
    heard_as: fn(E::Key) -> E::Key,
) -> Result<usize, Violation> {
    let (journal, mut random) = (Journal::default(), SplitMix64::new(5));
    let mut store = Reference { pairs: BTreeMap::new(), version: 0, heard_as };
    for _ in 0..OPERATIONS {
        let at = random.below(identities.len() as u64) as usize;
        let (identity, key) = (identities[at], embedding.key(identities[at]));
        let begin = journal.moment();
        let note = |key, end, action| journal.note(Entry { key, life: 1, process: 0, begin, end, action });
        match random.below(kinds) {
            0..3 => {
                let number = journal.write_number(identity);
                let mut value = vec![0; VALUE_BYTES];
                values::write(number, &mut value);
                let outcome = store.put(key, value);
                // Some answers are lost, though the write was executed.
                let is_lost = random.below(10) == 0;
                let (end, outcome) = if is_lost { (NEVER, None) } else { (journal.moment(), Some(outcome)) };
                note(identity, end, Action::Write { operation: WriteOperation::Put, number, outcome });
            }
            3 => {
                let number = journal.write_number(identity);
                let outcome = Some(store.remove(key));
                let action = Action::Write { operation: WriteOperation::Remove, number, outcome };
                note(identity, journal.moment(), action);
            }
            4..6 => {
                let found = store.pairs.get(&heard_as(key)).map(seen);
                note(identity, journal.moment(), Action::Read(found));
            }
            _ => {
                let found = store.first_from(key);
                let found = found.map(|(key, stored)| {
                    (embedding.identity(key).expect("a key that somebody wrote"), seen(stored))
                });
                let end = journal.moment();
                let passed = identities[at..]
                    .iter()
                    .take_while(|passed| found.is_none_or(|(found, _)| **passed < found));
                passed.for_each(|passed| note(*passed, end, Action::Read(None)));
                if let Some((identity, seen)) = found {
                    note(identity, end, Action::Read(Some(seen)));
                }
            }
        }
    }
    let entries = journal.take_entries(identities);
    check(&entries).map(|()| entries.len())
}

fn strings() -> Strings {
    Strings { prefix: b"tenant/".to_vec(), filler_bytes_max: 200 }
}

/// Neighbours, whose strings begin with one another, at three places.
fn identities() -> Vec<Identity> {
    [0, 1 << 53, u64::MAX - KEYS].into_iter().flat_map(|at| (at..at + KEYS).map(Identity)).collect()
}

#[test]
fn a_store_of_strings_passes() {
    let entries =
        judged(&strings(), &identities(), ALL, |key| key).unwrap_or_else(|found| panic!("{found:?}"));
    assert!(entries > OPERATIONS, "{entries} entries");
}

#[test]
fn a_store_of_eight_bytes_passes() {
    let dense: Vec<Identity> = (0..KEYS).map(Identity).collect();
    for seed in 0..20 {
        let drawn = EightBytes::draw(&mut SplitMix64::new(seed), Identity(KEYS - 1));
        judged(&drawn, &dense, ALL, |key| key).unwrap_or_else(|found| panic!("{drawn:?}: {found:?}"));
    }
}

/// Each wrong way with keys makes one of two keys, and what was written under one is found under the other.
#[test]
fn a_store_that_confuses_strings_is_found() {
    let wrong: [(&str, HeardAs); 3] = [
        ("zeros at the end are left out", |mut key| {
            key.truncate(key.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
            key
        }),
        ("what is longer than 64 bytes is cut", |mut key| {
            key.truncate(64);
            key
        }),
        ("a key ends at its first zero", |key| {
            key.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
        }),
    ];
    for (what, heard_as) in wrong {
        let found = judged(&strings(), &identities(), SINGLE, heard_as);
        assert!(found.is_err(), "{what}, and nobody notices");
    }
}
