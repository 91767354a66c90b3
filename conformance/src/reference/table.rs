//! The node's half: the map, and the requests that it executes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_index::{Decision, HeldPair, decide};
use farsight_node::{Call, Executed, HostedStats, HostedTable, Loader, Loading, NewTable, Piece, TableName};
use farsight_protocol::{
    Direction, ErrorCode, RegionInfo, ReplyWriter, Request, SentOutcome, ServerError, SpaceStats,
    WriteEntries, WriteEntry, WriteOperation, WriteOutcome, padded,
};

/// Bytes that a pair takes beside its value, about: key, version, and a place in the map.
const PAIR_BYTES: u64 = 64;

/// A table.
pub(super) struct ReferenceTable {
    name: Arc<TableName>,
    value_bytes: usize,
    contents: Arc<Mutex<Contents>>,
    loading: Loading<Collected>,
}

/// The pairs, and what writing them needs.
struct Contents {
    pairs: BTreeMap<u64, Pair>,
    capacity_pairs: u64,
    /// The version given last; versions are the table's, so a key's grow.
    last_version: u64,
}

struct Pair {
    version: u64,
    value: Box<[u8]>,
}

/// The pairs of a load.
struct Collected {
    pairs: Vec<(u64, Box<[u8]>)>,
    contents: Arc<Mutex<Contents>>,
}

impl ReferenceTable {
    pub(super) fn new(new: &NewTable<'_>) -> Self {
        let capacity_pairs = new.memory_bytes() / (PAIR_BYTES + new.value_bytes() as u64);
        let contents = Contents { pairs: BTreeMap::new(), capacity_pairs, last_version: 0 };
        Self {
            name: Arc::clone(new.name()),
            value_bytes: new.value_bytes(),
            contents: Arc::new(Mutex::new(contents)),
            loading: Loading::default(),
        }
    }

    fn get(&self, keys: impl Iterator<Item = u64>, answer: &mut ReplyWriter<'_>) -> Executed {
        let contents = lock(&self.contents);
        let (absent, mut count) = (vec![0; self.value_bytes], 0);
        for key in keys {
            let (version, value) =
                contents.pairs.get(&key).map_or((0, &absent[..]), |pair| (pair.version, &pair.value));
            answer.push_value(version, value);
            count += 1;
        }
        answer.set(count, 0);
        Executed::operations(count.into())
    }

    fn scan(&self, direction: Direction, from: u64, limit: usize, call: &mut Call<'_, '_>) -> Executed {
        let contents = lock(&self.contents);
        let limit = limit.min(call.room_bytes() / (16 + padded(self.value_bytes)));
        let (mut count, mut next) = (0, Some(from));
        let mut push = |(key, pair): (&u64, &Pair)| {
            call.answer.push_pair(*key, pair.version, &pair.value);
            (count, next) = (count + 1, direction.next_key(*key));
        };
        match direction {
            Direction::Ascending => contents.pairs.range(from..).take(limit).for_each(&mut push),
            Direction::Descending => contents.pairs.range(..=from).rev().take(limit).for_each(&mut push),
        }
        let is_limited = count as usize == limit;
        call.answer.set(count, direction.argument(next.filter(|_| is_limited)));
        Executed::operations(1)
    }

    fn write(
        &self,
        operation: WriteOperation,
        entries: WriteEntries<'_>,
        answer: &mut ReplyWriter<'_>,
    ) -> Executed {
        let mut contents = lock(&self.contents);
        for entry in entries.iter() {
            let (outcome, old) = contents.write(operation, &entry);
            let sent = SentOutcome { outcome, is_hint_wrong: false };
            if operation.returns_value() {
                answer.push_exchanged(sent, old.as_deref(), self.value_bytes);
            } else {
                answer.push_outcome(sent);
            }
        }
        drop(contents);
        self.loading.end_by_write();
        answer.set(entries.len() as u32, 0);
        Executed::operations(entries.len() as u64)
    }

    fn load(&self, piece: Piece<'_>, call: &mut Call<'_, '_>) -> Result<Executed, ServerError> {
        let begin = || Collected::new(&self.contents);
        let loaded = self.loading.take(&self.name, call.client, piece, begin)?;
        call.answer.set(piece.pairs(), loaded);
        Ok(Executed::operations(piece.pairs().into()))
    }
}

impl HostedTable for ReferenceTable {
    fn regions(&self) -> Vec<RegionInfo> {
        Vec::new()
    }

    fn execute(&self, request: &Request<'_>, call: &mut Call<'_, '_>) -> Result<Executed, ServerError> {
        match *request {
            Request::Get { keys, .. } => Ok(self.get(keys.iter(), call.answer)),
            Request::Scan { direction, from, limit, .. } => {
                Ok(self.scan(direction, from, limit.into(), call))
            }
            Request::Write { operation, entries, .. } => Ok(self.write(operation, entries, call.answer)),
            Request::BulkLoad { last, piece, entries, .. } => {
                self.load(Piece::of_one_size(piece, last, entries), call)
            }
            Request::GetValues { .. }
            | Request::ScanValues { .. }
            | Request::WriteValues { .. }
            | Request::StageValue { .. }
            | Request::WriteStaged { .. }
            | Request::FetchValue { .. }
            | Request::LetGo { .. }
            | Request::LoadValues { .. }
            | Request::LoadLong { .. } => {
                unreachable!("such requests are of tables of blocks")
            }
            Request::Delegate { .. }
            | Request::Find { .. }
            | Request::Lookup { .. }
            | Request::TopModel { .. }
            | Request::SubModels { .. }
            | Request::Control(_) => {
                let text = format!("table {:?} has no model: get its keys", self.name);
                Err(ServerError::new(ErrorCode::BadRequest, text))
            }
        }
    }

    fn stats(&self, _: MonotonicNs) -> HostedStats {
        let contents = lock(&self.contents);
        let leaves = SpaceStats {
            capacity: contents.capacity_pairs,
            block_bytes: PAIR_BYTES + self.value_bytes as u64,
            used: contents.pairs.len() as u64,
            ..SpaceStats::default()
        };
        HostedStats { leaves, ..HostedStats::default() }
    }

    fn forget(&self, client: ClientId) {
        self.loading.end_of(client);
    }

    fn leave_out_versions(&self, last: u64) -> bool {
        let mut contents = lock(&self.contents);
        contents.last_version = contents.last_version.max(last);
        true
    }
}

impl Contents {
    /// What became of a write, and the value before.
    fn write(
        &mut self,
        operation: WriteOperation,
        entry: &WriteEntry<'_>,
    ) -> (WriteOutcome, Option<Box<[u8]>>) {
        let pair = self.pairs.get(&entry.key);
        let held = pair.map(|pair| HeldPair { version: pair.version, value: &pair.value });
        let decision = decide(operation, entry.value, held);
        let (former, old) = (
            pair.map(|pair| pair.version),
            pair.map(|pair| &pair.value).filter(|_| operation.returns_value()),
        );
        let old = old.cloned();
        let outcome = match (decision, former) {
            (Decision::Leave(outcome), _) => outcome,
            (Decision::Remove, version) => {
                self.pairs.remove(&entry.key);
                WriteOutcome::Removed(version.expect("a removal is of a present key"))
            }
            (Decision::Store(_), None) if self.pairs.len() as u64 >= self.capacity_pairs => {
                WriteOutcome::Failed(ErrorCode::RegionFull)
            }
            (Decision::Store(value), None) => {
                WriteOutcome::Inserted(self.store(entry.key, value.bytes().into()))
            }
            (Decision::Store(value), Some(_)) => {
                WriteOutcome::Replaced(self.store(entry.key, value.bytes().into()))
            }
        };
        (outcome, old)
    }

    fn store(&mut self, key: u64, value: Box<[u8]>) -> u64 {
        self.last_version += 1;
        let version = self.last_version;
        self.pairs.insert(key, Pair { version, value });
        version
    }

    fn check_empty(&self) -> Result<(), ServerError> {
        if self.pairs.is_empty() {
            return Ok(());
        }
        let text = format!("a bulk load needs an empty table, this one has {} pairs", self.pairs.len());
        Err(ServerError::new(ErrorCode::BadLoad, text))
    }
}

impl Collected {
    fn new(contents: &Arc<Mutex<Contents>>) -> Result<Self, ServerError> {
        lock(contents).check_empty()?;
        Ok(Self { pairs: Vec::new(), contents: Arc::clone(contents) })
    }
}

impl Loader for Collected {
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), ServerError> {
        let refused = |code, text| Err(ServerError::new(code, text));
        if let Some((previous, _)) = self.pairs.last().filter(|(previous, _)| *previous >= key) {
            return refused(ErrorCode::BadLoad, format!("key {key} does not ascend after {previous}"));
        }
        if self.pairs.len() as u64 >= lock(&self.contents).capacity_pairs {
            return refused(ErrorCode::RegionFull, format!("no room behind {} pairs", self.pairs.len()));
        }
        self.pairs.push((key, value.into()));
        Ok(())
    }

    fn finish(self) -> Result<u64, ServerError> {
        let mut contents = lock(&self.contents);
        contents.check_empty()?;
        let count = self.pairs.len() as u64;
        for (key, value) in self.pairs {
            contents.store(key, value);
        }
        Ok(count)
    }
}

fn lock(contents: &Mutex<Contents>) -> MutexGuard<'_, Contents> {
    // No write is ever half done under it.
    contents.lock().unwrap_or_else(PoisonError::into_inner)
}
