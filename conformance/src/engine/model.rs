//! The judge: a `BTreeMap` that knows what each operation must answer.

use std::collections::{BTreeMap, HashMap};

use farsight::{WriteOperation, WriteOutcome};
use farsight_base::prng::SplitMix64;
use farsight_oracles::{EightBytes, Embedding, Identity};
use farsight_protocol::Direction;

use super::asking::Asking;
use super::expected::{Expected, Operands, expected};
use super::{SessionUnderTest, Stored};

/// What a table must hold.
pub struct Model<E = EightBytes> {
    embedding: E,
    pairs: BTreeMap<Identity, Stored>,
    /// The newest version of each key that was ever written, removed ones included.
    newest: HashMap<Identity, u64>,
    operands: Operands,
}

impl<E: Embedding> Model<E> {
    /// Of an empty table with such keys.
    #[must_use]
    pub fn new(embedding: E) -> Self {
        Self::with(embedding, Operands::OfOneSize)
    }

    /// Of an empty table with such keys and operands.
    #[must_use]
    pub fn with(embedding: E, operands: Operands) -> Self {
        Self { embedding, pairs: BTreeMap::new(), newest: HashMap::new(), operands }
    }

    /// The pairs.
    #[must_use]
    pub fn pairs(&self) -> &BTreeMap<Identity, Stored> {
        &self.pairs
    }

    /// Executes `entries` on `session`, compares each outcome and takes it over. Returns how many were
    /// refused for want of room, which `may_be_full` must allow.
    pub fn write(
        &mut self,
        session: &mut impl SessionUnderTest<Key = E::Key>,
        operation: WriteOperation,
        entries: &[(Identity, Vec<u8>)],
        may_be_full: bool,
    ) -> usize {
        let outcomes = Asking::of(session, &self.embedding).write(operation, entries);
        assert_eq!(outcomes.len(), entries.len(), "outcomes of {operation:?}");
        let mut refused = 0;
        for ((key, value), outcome) in entries.iter().zip(outcomes) {
            let is_full = outcome == WriteOutcome::Failed(farsight::ErrorCode::RegionFull);
            if is_full && may_be_full && !self.pairs.contains_key(key) {
                assert!(matches!(operation, WriteOperation::Insert | WriteOperation::Put), "{operation:?}");
                refused += 1;
                continue;
            }
            self.take_over(operation, *key, value, outcome);
        }
        refused
    }

    /// Executes writes of any kind on `session`, compares each outcome and value before, and takes them over.
    ///
    /// # Panics
    /// If one is not what it must be.
    pub fn exchange(
        &mut self,
        session: &mut impl SessionUnderTest<Key = E::Key>,
        operation: WriteOperation,
        entries: &[(Identity, Vec<u8>)],
    ) {
        let exchanged = Asking::of(session, &self.embedding).exchange(operation, entries);
        assert_eq!(exchanged.len(), entries.len(), "outcomes of {operation:?}");
        for ((key, operand), (outcome, old)) in entries.iter().zip(exchanged) {
            let before = self.pairs.get(key).cloned();
            let held = before.as_ref().map(|(value, version)| (&value[..], *version));
            let of_key = || format!("{operation:?} of key {key}, which holds {held:02x?}: {outcome:?}");
            let is_returned = operation.returns_value() && !matches!(outcome, WriteOutcome::Failed(_));
            let expected_old = held.filter(|_| is_returned).map(|(value, _)| value.to_vec());
            assert_eq!(old, expected_old, "the value before {}", of_key());
            match (expected((operation, self.operands), operand, held), outcome) {
                (Expected::Nothing(expected), outcome) => assert_eq!(outcome, expected, "{}", of_key()),
                (Expected::Absence, WriteOutcome::Removed(version)) => {
                    assert_eq!(Some(version), held.map(|(_, version)| version), "{}", of_key());
                    self.pairs.remove(key);
                }
                (
                    Expected::Value(value),
                    WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version),
                ) => {
                    let is_replaced = matches!(outcome, WriteOutcome::Replaced(_));
                    assert_eq!(is_replaced, held.is_some(), "{}", of_key());
                    let newest = self.newest.insert(*key, version).unwrap_or(0);
                    assert!(version > newest, "version {newest}, then {}", of_key());
                    self.pairs.insert(*key, (value, version));
                }
                (expected, _) => panic!("{expected:02x?} is to be. {}", of_key()),
            }
        }
    }

    fn take_over(&mut self, operation: WriteOperation, key: Identity, value: &[u8], outcome: WriteOutcome) {
        let present = self.pairs.get(&key).map(|(_, version)| *version);
        let written = match (operation, present, outcome) {
            (WriteOperation::Insert | WriteOperation::Put, None, WriteOutcome::Inserted(version))
            | (WriteOperation::Update | WriteOperation::Put, Some(_), WriteOutcome::Replaced(version)) => {
                version
            }
            (WriteOperation::Insert, Some(expected), WriteOutcome::Exists(version))
                if version == expected =>
            {
                return;
            }
            (WriteOperation::Update | WriteOperation::Remove, None, WriteOutcome::Absent) => return,
            (WriteOperation::Remove, Some(expected), WriteOutcome::Removed(version))
                if version == expected =>
            {
                self.pairs.remove(&key);
                return;
            }
            _ => panic!("{operation:?} of key {key}, present with version {present:?}, was {outcome:?}"),
        };
        let before = self.newest.insert(key, written).unwrap_or(0);
        assert!(written > before, "key {key}: version {written} after {before}");
        self.pairs.insert(key, (value.to_vec(), written));
    }

    /// Compares one GET.
    pub fn check_get(&self, session: &mut impl SessionUnderTest<Key = E::Key>, key: Identity) {
        assert_eq!(
            Asking::of(session, &self.embedding).get(key).as_ref(),
            self.pairs.get(&key),
            "get of key {key}"
        );
    }

    /// Compares one batch of GETs.
    pub fn check_multi_get(&self, session: &mut impl SessionUnderTest<Key = E::Key>, keys: &[Identity]) {
        let found = Asking::of(session, &self.embedding).multi_get(keys);
        assert_eq!(found.len(), keys.len(), "answers of a batch");
        for (index, (key, answer)) in keys.iter().zip(&found).enumerate() {
            assert_eq!(answer.as_ref(), self.pairs.get(key), "answer {index} of {}: key {key}", keys.len());
        }
    }

    /// Compares one batch of scans, and one the other way; of each of them the keys alone, too.
    pub fn check_scans(
        &self,
        session: &mut impl SessionUnderTest<Key = E::Key>,
        scans: &[(Identity, usize)],
    ) {
        if !session.is_ordered() {
            let keys: Vec<Identity> = scans.iter().map(|(from, _)| *from).collect();
            return self.check_multi_get(session, &keys);
        }
        for direction in Direction::ALL {
            let found = Asking::of(session, &self.embedding).scan_batch(direction, scans);
            assert_eq!(found.len(), scans.len(), "scans of a batch");
            for ((from, limit), found) in scans.iter().zip(&found) {
                self.check_scan(found, direction, *from, *limit);
                let keys = Asking::of(session, &self.embedding).scan_keys(direction, *from, *limit);
                let expected = self.on_the_way(direction, *from, *limit);
                let expected = expected.iter().map(|(key, _)| **key);
                assert!(keys.iter().copied().eq(expected), "keys of the {direction:?} scan from {from}");
            }
        }
    }

    fn check_scan(&self, found: &[(Identity, Stored)], direction: Direction, from: Identity, limit: usize) {
        let expected = self.on_the_way(direction, from, limit);
        for (index, ((key, stored), (expected_key, expected))) in found.iter().zip(&expected).enumerate() {
            assert_eq!(key, *expected_key, "pair {index} of the {direction:?} scan of {limit} from {from}");
            assert_eq!(stored, *expected, "pair {index} of the {direction:?} scan from {from}, key {key}");
        }
        assert_eq!(found.len(), expected.len(), "pairs of the {direction:?} scan of {limit} from {from}");
    }

    /// The first pairs that a scan from `from` on meets.
    fn on_the_way(&self, direction: Direction, from: Identity, limit: usize) -> Vec<(&Identity, &Stored)> {
        match direction {
            Direction::Ascending => self.pairs.range(from..).take(limit).collect(),
            Direction::Descending => self.pairs.range(..=from).rev().take(limit).collect(),
        }
    }

    /// Compares of one scan the pairs that nobody else changes meanwhile; the others must come in order, too.
    pub fn check_own_part(
        &self,
        session: &mut impl SessionUnderTest<Key = E::Key>,
        (from, limit): (Identity, usize),
        is_own: impl Fn(Identity) -> bool,
    ) {
        for direction in Direction::ALL {
            let found = Asking::of(session, &self.embedding).scan_batch(direction, &[(from, limit)]);
            let found = found.into_iter().next().expect("a scan");
            let is_behind = |key: Identity, before: Identity| direction.is_behind(key.0, before.0);
            assert!(found.is_sorted_by(|(one, _), (other, _)| is_behind(*other, *one)), "a scan in order");
            let end = found.last().filter(|_| found.len() == limit).map(|(key, _)| *key);
            let own = found.iter().filter(|(key, _)| is_own(*key)).map(|(key, stored)| (key, stored));
            let mut expected = self.on_the_way(direction, from, usize::MAX);
            expected.retain(|(key, _)| end.is_none_or(|end| !is_behind(**key, end)));
            assert!(own.eq(expected), "own pairs of the {direction:?} scan from {from}: {found:?}");
        }
    }

    /// Compares the whole table with what this model and others, whose keys differ, know of it.
    pub fn check_with(&self, others: &[Self], session: &mut impl SessionUnderTest<Key = E::Key>) {
        let found: BTreeMap<Identity, Stored> = Asking::of(session, &self.embedding)
            .scan_all(Direction::Ascending, Identity::MIN)
            .into_iter()
            .collect();
        let expected: BTreeMap<Identity, Stored> =
            others.iter().chain([self]).flat_map(|model| model.pairs.clone()).collect();
        assert_eq!(found, expected);
    }

    /// Compares the whole table: by one scan and page by page, if it has an order, and key by key.
    pub fn check_all(&self, session: &mut impl SessionUnderTest<Key = E::Key>) {
        self.check_scans(session, &[(Identity::MIN, self.pairs.len() + 10)]);
        let greatest = self.newest.keys().max().copied().unwrap_or_default();
        let directions = if session.is_ordered() { &Direction::ALL[..] } else { &[] };
        for (&direction, from) in directions.iter().zip([Identity::MIN, greatest]) {
            let all = Asking::of(session, &self.embedding).scan_all(direction, from);
            self.check_scan(&all, direction, from, usize::MAX);
        }
        let keys: Vec<Identity> = self.newest.keys().copied().collect();
        self.check_multi_get(session, &keys);
    }
}

/// A value of random bytes.
#[must_use]
pub fn random_value(random: &mut SplitMix64, value_bytes: usize) -> Vec<u8> {
    let words = (0..value_bytes.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes());
    words.take(value_bytes).collect()
}
