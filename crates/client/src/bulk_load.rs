//! A bulk load: ascending pairs into an empty table, in pieces as long as the fabric carries.
//!
//! Invariant: the pieces that were sent hold ascending keys; the table shows none of them before the last
//! piece has been acknowledged, and then all.

use std::sync::Arc;

use farsight_base::LeafNumber;
use farsight_fabric::QueuePair;
use farsight_protocol::{HEADER_BYTES, Reply, Request, TableId, TableInfo, WriteEntries, WriteEntry, padded};

use crate::LoadError;
use crate::backend::Backend;
use crate::call::call;

/// Bytes of an entry before its value: key and hint.
const ENTRY_HEAD_BYTES: usize = 16;

/// The pairs of a load so far.
#[derive(Default)]
struct Sequence {
    previous: Option<u64>,
    pairs: u64,
}

impl Sequence {
    /// Takes the next pair, if it may follow.
    fn next(&mut self, table: &str, expected_bytes: usize, key: u64, value: &[u8]) -> Result<(), LoadError> {
        let index = self.pairs;
        if value.len() != expected_bytes {
            let (table, got_bytes) = (table.to_owned(), value.len());
            return Err(LoadError::WrongValueSize { table, index, expected_bytes, got_bytes });
        }
        if let Some(previous) = self.previous.filter(|previous| *previous >= key) {
            return Err(LoadError::NotAscending { index, previous, key });
        }
        self.previous = Some(key);
        self.pairs += 1;
        Ok(())
    }
}

/// What one server gets of a load: pieces as long as its fabric carries.
struct Pieces {
    table: TableId,
    name: String,
    value_bytes: usize,
    /// The entries of the piece being filled.
    entries: Vec<u8>,
    entry_count: usize,
    frame: Vec<u8>,
    reply: Vec<u8>,
    piece: u32,
    acknowledged: u64,
}

impl Pieces {
    fn new(table: &TableInfo) -> Self {
        Self {
            table: table.id,
            name: table.definition.name.clone(),
            value_bytes: usize::from(table.definition.value_bytes),
            entries: Vec::new(),
            entry_count: 0,
            frame: Vec::new(),
            reply: Vec::new(),
            piece: 0,
            acknowledged: 0,
        }
    }

    /// Pairs that the server has acknowledged.
    fn acknowledged_pairs(&self) -> u64 {
        self.acknowledged
    }

    /// Adds a pair that may follow; sends a piece when one is full.
    fn push<Q: QueuePair>(&mut self, queue: &mut Q, key: u64, value: &[u8]) -> Result<(), LoadError> {
        let entry_bytes = ENTRY_HEAD_BYTES + padded(self.value_bytes);
        if HEADER_BYTES + self.entries.len() + entry_bytes > Q::MESSAGE_BYTES_MAX {
            self.send(queue, false)?;
        }
        WriteEntries::push(&mut self.entries, WriteEntry { key, hint: LeafNumber::NONE, value });
        self.entry_count += 1;
        Ok(())
    }

    /// Sends what is left: the server shows all pairs.
    fn finish<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), LoadError> {
        self.send(queue, true)
    }

    fn send<Q: QueuePair>(&mut self, queue: &mut Q, last: bool) -> Result<(), LoadError> {
        let (piece, count) = (self.piece, self.entry_count);
        Request::begin_bulk_load(&mut self.frame, self.table, last, piece, count, self.value_bytes);
        self.frame.extend_from_slice(&self.entries);
        let name = || self.name.clone();
        call(queue, &self.frame, &mut self.reply).map_err(|source| LoadError::Fabric {
            table: name(),
            pairs: self.acknowledged,
            source,
        })?;
        Reply::decode(&self.reply)
            .map_err(|source| LoadError::Decode { table: name(), source })?
            .map_err(|source| LoadError::Refused { table: name(), source })?;
        self.acknowledged += count as u64;
        self.entries.clear();
        self.entry_count = 0;
        self.piece += 1;
        Ok(())
    }
}

/// What a load under way takes, whatever the engine.
pub(crate) trait Load: Send {
    /// Adds a pair.
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError>;
    /// Makes the pairs visible.
    fn finish(self: Box<Self>) -> Result<u64, LoadError>;
}

/// A bulk load under way. Dropped before [`BulkLoad::finish`], it leaves the table empty. It belongs to one
/// epoch of every node and ends with that: what was sent is gone then.
pub struct BulkLoad(pub(crate) Box<dyn Load>);

impl BulkLoad {
    /// Adds a pair, whose key must be greater than that of the pair before.
    ///
    /// # Errors
    /// [`LoadError`].
    #[inline]
    pub fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        self.0.push(key, value)
    }

    /// Sends what is left and makes the pairs visible: all at once, or an XStore-D table's part by part.
    /// Returns their number.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(self) -> Result<u64, LoadError> {
        self.0.finish()
    }
}

/// A load by calls: of a server's table, or of an XStore-D table, one part after the other.
///
/// Invariant: no part shows a pair before the load's end: the last piece of each is held back until then.
pub(crate) struct PartsLoad<Q> {
    queues: Vec<Q>,
    info: Arc<TableInfo>,
    boundaries: Arc<[u64]>,
    parts: Vec<Pieces>,
    sequence: Sequence,
    /// The part that takes pairs now.
    part: usize,
    /// The queue pairs end with it.
    _backend: Arc<dyn Backend>,
}

impl<Q: QueuePair> PartsLoad<Q> {
    /// Of the whole table `info` whose parts are described so, one a queue pair.
    pub(crate) fn new(
        info: &Arc<TableInfo>,
        parts: &[TableInfo],
        boundaries: Arc<[u64]>,
        queues: Vec<Q>,
        backend: Arc<dyn Backend>,
    ) -> Self {
        let parts = parts.iter().map(Pieces::new).collect();
        let (info, sequence) = (Arc::clone(info), Sequence::default());
        Self { queues, info, boundaries, parts, sequence, part: 0, _backend: backend }
    }

    /// A part's error, which knows of that part's pairs alone.
    fn with_all_pairs(&self, failed: usize, error: LoadError) -> LoadError {
        let others = self.parts.iter().enumerate().filter(|(part, _)| *part != failed);
        let pairs_of_others: u64 = others.map(|(_, part)| part.acknowledged_pairs()).sum();
        match error {
            LoadError::Fabric { table, pairs, source } => {
                LoadError::Fabric { table, pairs: pairs + pairs_of_others, source }
            }
            other => other,
        }
    }
}

impl<Q: QueuePair + Send> Load for PartsLoad<Q> {
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        let definition = &self.info.definition;
        self.sequence.next(&definition.name, usize::from(definition.value_bytes), key, value)?;
        while self.boundaries.get(self.part).is_some_and(|boundary| *boundary <= key) {
            self.part += 1;
        }
        let part = self.part;
        let pushed = self.parts[part].push(&mut self.queues[part], key, value);
        pushed.map_err(|error| self.with_all_pairs(part, error))
    }

    fn finish(mut self: Box<Self>) -> Result<u64, LoadError> {
        // Parts without a pair, too: whether they are empty is seen there.
        for part in 0..self.parts.len() {
            let finished = self.parts[part].finish(&mut self.queues[part]);
            finished.map_err(|error| self.with_all_pairs(part, error))?;
        }
        Ok(self.sequence.pairs)
    }
}
