//! What a server that was sent these frames and gave these replies must hold.

use std::collections::BTreeMap;

use farsight_base::ClientId;
use farsight_model::TopModel;
use farsight_protocol::{
    Direction, ModelReader, PairsReader, Reply, Request, SentModel, WriteEntries, WriteEntry, WriteOperation,
    WriteOutcome,
};

use super::TABLE;
use crate::engine::expected::{Expected, Operands, expected};

/// A stored value and its version, if any reply has named it yet.
type Stored = (Vec<u8>, Option<u64>);

/// A bulk load as far as the server took it.
struct Load {
    client: ClientId,
    next_piece: u64,
    pairs: Vec<(u64, Vec<u8>)>,
}

pub(super) struct Twin {
    value_bytes: usize,
    pub(super) pairs: BTreeMap<u64, Stored>,
    /// The greatest version that each key ever had.
    versions: BTreeMap<u64, u64>,
    load: Option<Load>,
}

impl Twin {
    pub(super) fn new(value_bytes: usize) -> Self {
        Self { value_bytes, pairs: BTreeMap::new(), versions: BTreeMap::new(), load: None }
    }

    /// Judges one reply, and takes in what its request did.
    pub(super) fn check(&mut self, client: ClientId, request: &[u8], reply: &[u8]) {
        // A refusal changes nothing.
        let Ok(reply) = Reply::decode(reply).expect("a well-formed reply") else { return };
        match Request::decode(request).expect("only what decodes is answered") {
            Request::Get { table: TABLE, keys } => {
                let mut values = self.reader(&reply);
                for key in keys.iter() {
                    let (version, value) = values.value().expect("a value a key");
                    self.saw(key, version, value);
                }
                assert!(values.rest().is_empty(), "more values than keys");
            }
            Request::Lookup { table: TABLE, key, .. } => {
                let mut values = self.reader(&reply);
                let (version, value) = values.value().expect("a value");
                self.saw(key, version, value);
                check_model(ModelReader::new(values.rest()), reply.count);
            }
            Request::Scan { table: TABLE, direction, from, limit } => {
                self.check_scan(direction, from, limit, &reply);
            }
            Request::Write { table: TABLE, operation, entries } => {
                if operation.returns_value() {
                    let exchanged = reply.exchanged(entries.len(), self.value_bytes);
                    for (entry, sent) in entries.iter().zip(exchanged.expect("an outcome an entry")) {
                        let (sent, old) = sent.expect("an outcome");
                        if matches!(sent.outcome, WriteOutcome::Replaced(_)) {
                            assert_eq!(
                                old, self.pairs[&entry.key].0,
                                "the value before, of key {}",
                                entry.key
                            );
                        }
                        self.wrote(operation, entry, sent.outcome);
                    }
                    return;
                }
                let outcomes = reply.outcomes(entries.len()).expect("an outcome an entry");
                for (entry, outcome) in entries.iter().zip(outcomes) {
                    self.wrote(operation, entry, outcome.expect("an outcome").outcome);
                }
            }
            Request::BulkLoad { table: TABLE, last, piece, entries } => {
                self.loaded(client, last, piece, entries);
            }
            Request::SubModels { table: TABLE, .. } => {
                let mut words = reply.words().expect("words");
                if reply.argument > 0 {
                    words.take_last("the key behind").expect("a word behind the models");
                }
                check_model(ModelReader::new(words), reply.count);
            }
            Request::TopModel { table: TABLE, first_word, .. } => {
                let words: Vec<u64> = reply.words().expect("words").iter().collect();
                if first_word == 0 && words.len() == reply.count as usize && !words.is_empty() {
                    TopModel::from_words(&words).expect("a model that can be evaluated");
                }
            }
            _ => {}
        }
    }

    fn reader<'r>(&self, reply: &Reply<'r>) -> PairsReader<'r> {
        PairsReader::new(reply.words().expect("whole words"), self.value_bytes)
    }

    /// A read found `value` (version zero: nothing) under `key`.
    fn saw(&mut self, key: u64, version: u64, value: &[u8]) {
        match self.pairs.get_mut(&key) {
            None => assert_eq!(version, 0, "key {key} is absent"),
            Some((stored, known)) => {
                assert_eq!(value, stored.as_slice(), "the value of key {key}, version {version}");
                assert_eq!(*known.get_or_insert(version), version, "the version of key {key}");
            }
        }
    }

    fn check_scan(&mut self, direction: Direction, from: u64, limit: u16, reply: &Reply<'_>) {
        let mut reader = self.reader(reply);
        let mut found = Vec::new();
        while let Some(pair) = reader.pair().expect("whole pairs") {
            found.push((pair.key, pair.version, pair.value));
        }
        assert!(found.len() == reply.count as usize && found.len() <= usize::from(limit), "{}", found.len());
        // All pairs up to where the next scan begins. A scan for nothing goes on where it was to begin.
        let next = if limit == 0 { Some(from) } else { direction.goes_on_at(reply.argument) };
        let is_further = next.is_none_or(|next| direction.is_behind(next, from) || limit == 0);
        assert!(is_further, "a {direction:?} scan of {limit} from {from}: {next:?}");
        let is_met = |key: &u64| next.is_none_or(|next| direction.is_behind(next, *key));
        let pairs = self.pairs.keys().copied();
        let expected: Vec<u64> = match direction {
            Direction::Ascending => pairs.skip_while(|key| *key < from).take_while(is_met).collect(),
            Direction::Descending => pairs.rev().skip_while(|key| *key > from).take_while(is_met).collect(),
        };
        assert!(found.iter().map(|pair| pair.0).eq(expected), "a {direction:?} scan of {limit} from {from}");
        for (key, version, value) in found {
            assert_ne!(version, 0, "a scan found key {key}");
            self.saw(key, version, value);
        }
    }

    fn wrote(&mut self, operation: WriteOperation, entry: WriteEntry<'_>, outcome: WriteOutcome) {
        let WriteEntry { key, value, .. } = entry;
        if matches!(outcome, WriteOutcome::Failed(_)) {
            return;
        }
        // A version that no reply has named yet is the one that this outcome tells, or any.
        let told = match outcome {
            WriteOutcome::Exists(version)
            | WriteOutcome::Differs(version)
            | WriteOutcome::Removed(version) => Some(version),
            _ => None,
        };
        let wanted = matches!(operation, WriteOperation::CompareAndSet | WriteOperation::RemoveIf)
            .then(|| u64::from_le_bytes(*value.first_chunk().expect("an expected version")));
        let held = self.pairs.get(&key).map(|(held, version)| {
            let version = version.or(told).or(wanted.filter(|wanted| *wanted > 0)).unwrap_or(1);
            (held.as_slice(), version)
        });
        let expected = expected((operation, Operands::OfOneSize), value, held);
        let of_key = || format!("{operation:?} of key {key}, which holds {held:02x?}: {outcome:?}");
        match (expected, outcome) {
            (Expected::Nothing(expected), outcome) => assert_eq!(outcome, expected, "{}", of_key()),
            (Expected::Absence, WriteOutcome::Removed(_)) => drop(self.pairs.remove(&key)),
            (Expected::Value(value), WriteOutcome::Inserted(version) | WriteOutcome::Replaced(version)) => {
                let is_replaced = matches!(outcome, WriteOutcome::Replaced(_));
                assert_eq!(is_replaced, held.is_some(), "{}", of_key());
                let last = self.versions.insert(key, version);
                assert!(last.is_none_or(|last| last < version), "key {key}: {last:?}, then {version}");
                self.pairs.insert(key, (value, Some(version)));
            }
            (expected, _) => panic!("{expected:02x?} is to be. {}", of_key()),
        }
    }

    /// The server took a piece of a load.
    fn loaded(&mut self, client: ClientId, last: bool, piece: u64, entries: WriteEntries<'_>) {
        let mut load = match self.load.take() {
            _ if piece == 0 => Load { client, next_piece: 0, pairs: Vec::new() },
            Some(load) => load,
            None => panic!("piece {piece} of no load was taken"),
        };
        assert_eq!((load.client, load.next_piece), (client, piece), "the piece that was taken");
        load.next_piece += 1;
        load.pairs.extend(entries.iter().map(|entry| (entry.key, entry.value.to_vec())));
        if !last {
            self.load = Some(load);
            return;
        }
        assert!(load.pairs.is_sorted_by(|left, right| left.0 < right.0), "a load out of order was taken");
        assert!(self.pairs.is_empty() || load.pairs.is_empty(), "a load into a table with pairs was taken");
        self.pairs.extend(load.pairs.into_iter().map(|(key, value)| (key, (value, None))));
    }
}

fn check_model(mut sent: ModelReader<'_>, count: u32) {
    let mut found = 0;
    while let Some(part) = sent.read().expect("whole sub-models and branches") {
        if let SentModel::SubModel(sub_model) = part {
            assert!(sub_model.record.leaf_count > 0, "an empty record was sent");
        }
        found += 1;
    }
    assert_eq!(found, count, "sub-models and branches sent");
}
