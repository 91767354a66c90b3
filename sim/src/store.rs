//! Where a scenario's identities become keys of the table, and keys identities: around a client's session.

use std::borrow::Cow;

use farsight_client::{Direction, PairsCursor, ReadError, ScanRequest, Session, SessionKey, WriteError};
use farsight_index::{Answers, OldValues, Pairs};
use farsight_oracles::{EightBytes, Embedding as _, Identity, Strings};
use farsight_protocol::{KeyKind, WriteOperation, WriteOutcome};

/// Pairs from one key on, either way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan {
    pub(crate) direction: Direction,
    pub(crate) from: Identity,
    /// Pairs at most.
    pub(crate) limit: usize,
}

impl Scan {
    /// All pairs.
    pub(crate) const EVERYTHING: Self =
        Self { direction: Direction::Ascending, from: Identity::MIN, limit: usize::MAX };
}

/// A pair that a scan found.
pub(crate) struct Found<'p> {
    /// Whose it is, or the key, if that is nobody's.
    pub(crate) key: Result<Identity, u64>,
    pub(crate) value: Cow<'p, [u8]>,
    pub(crate) version: u64,
}

/// What identities are as keys of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableKeys {
    /// Integers.
    Integers(EightBytes),
    /// Byte strings, with so many bytes of filler at most.
    Bytes {
        /// The bytes.
        filler_bytes_max: usize,
    },
}

impl TableKeys {
    /// The kind of keys that the table has.
    pub(crate) fn kind(self) -> KeyKind {
        match self {
            Self::Integers(_) => KeyKind::U64,
            Self::Bytes { .. } => KeyKind::Bytes,
        }
    }

    /// How identities become byte strings, if they do.
    pub(crate) fn strings(self) -> Option<Strings> {
        match self {
            Self::Integers(_) => None,
            Self::Bytes { filler_bytes_max } => Some(Strings { prefix: Vec::new(), filler_bytes_max }),
        }
    }

    /// How identities become integers: of byte strings, that none is one.
    pub(crate) fn integers(self) -> EightBytes {
        match self {
            Self::Integers(embedding) => embedding,
            Self::Bytes { .. } => EightBytes::Plain,
        }
    }
}

/// A session that is asked about identities.
pub(crate) struct Store {
    /// For what concerns no key.
    pub(crate) session: Session,
    embedding: EightBytes,
    /// Of a table whose keys are bytes.
    strings: Option<Strings>,
    pairs: Pairs,
    /// Kept for its room.
    keys: Vec<u64>,
}

impl Store {
    pub(crate) fn new(session: Session, keys: TableKeys) -> Self {
        let (embedding, strings) = (keys.integers(), keys.strings());
        Self { session, embedding, strings, pairs: Pairs::default(), keys: Vec::new() }
    }

    pub(crate) fn get(&mut self, key: Identity, value: &mut Vec<u8>) -> Result<Option<u64>, ReadError> {
        match &self.strings {
            None => self.session.get_into(self.embedding.key(key), value),
            Some(strings) => self.session.get_into(&strings.key(key)[..], value),
        }
    }

    pub(crate) fn multi_get(&mut self, keys: &[Identity], answers: &mut Answers) -> Result<(), ReadError> {
        if let Some(strings) = &self.strings {
            let keys: Vec<Vec<u8>> = keys.iter().map(|key| strings.key(*key)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            return self.session.multi_get(&keys, answers);
        }
        self.keys.clear();
        self.keys.extend(keys.iter().map(|key| self.embedding.key(*key)));
        self.session.multi_get(&self.keys, answers)
    }

    /// Executes scans, which all go one way.
    pub(crate) fn scan_batch(&mut self, scans: &[Scan]) -> Result<(), ReadError> {
        let direction = scans.first().map_or(Direction::Ascending, |scan| scan.direction);
        let request = |scan: &Scan| ScanRequest { from: self.embedding.key(scan.from), limit: scan.limit };
        let requests: Vec<ScanRequest> = scans.iter().map(request).collect();
        self.session.scan_batch(direction, &requests, &mut self.pairs)
    }

    /// What the scan of this index in the last batch found.
    pub(crate) fn found(&self, index: usize) -> impl Iterator<Item = Found<'_>> {
        self.pairs.scan(index).map(|pair| Found {
            key: self.embedding.identity(&pair.key).ok_or(pair.key),
            value: pair.value.into(),
            version: pair.version,
        })
    }

    /// The next pair of a walk over all of them.
    pub(crate) fn next_pair(
        &mut self,
        cursor: &mut PairsCursor,
    ) -> Result<Option<Found<'static>>, ReadError> {
        let pair = cursor.next(&mut self.session)?;
        Ok(pair.map(|pair| {
            let key = pair.key.try_into().map_or(u64::MAX, u64::from_le_bytes);
            let key = self.embedding.identity(&key).ok_or(key);
            Found { key, value: pair.value.to_vec().into(), version: pair.version }
        }))
    }

    /// Executes writes, one by the call for one. `old_values` has what the operation returns.
    pub(crate) fn exchange<'v>(
        &mut self,
        operation: WriteOperation,
        entries: impl ExactSizeIterator<Item = (Identity, &'v [u8])>,
        outcomes: &mut Vec<WriteOutcome>,
        old_values: &mut OldValues,
    ) -> Result<(), WriteError> {
        let Some(strings) = &self.strings else {
            let entries = entries.map(|(key, operand)| (self.embedding.key(key), operand));
            return exchange_in(&mut self.session, operation, entries, outcomes, old_values);
        };
        let entries: Vec<_> = entries.map(|(key, operand)| (strings.key(key), operand)).collect();
        let entries = entries.iter().map(|(key, operand)| (&key[..], *operand));
        exchange_in(&mut self.session, operation, entries, outcomes, old_values)
    }
}

fn exchange_in<'v, K: SessionKey>(
    session: &mut Session,
    operation: WriteOperation,
    mut entries: impl ExactSizeIterator<Item = (K, &'v [u8])>,
    outcomes: &mut Vec<WriteOutcome>,
    old_values: &mut OldValues,
) -> Result<(), WriteError> {
    if entries.len() > 1 {
        return session.exchange(operation, entries, outcomes, old_values);
    }
    outcomes.clear();
    old_values.clear();
    let Some((key, operand)) = entries.next() else { return Ok(()) };
    outcomes.push(session.exchange_one(operation, key, operand, old_values)?);
    Ok(())
}
