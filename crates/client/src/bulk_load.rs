//! A bulk load: ascending pairs into an empty table, in pieces as long as the fabric carries. A value that
//! no piece carries goes in parts, a piece each. Where pairs have deadlines, they stay as long as the table
//! says.
//!
//! Invariant: the pieces that were sent hold ascending keys; the table shows none of them before the last
//! piece has been acknowledged, and then all.

use std::sync::Arc;

use farsight_base::LeafNumber;
use farsight_fabric::QueuePair;
use farsight_protocol::{
    HEADER_BYTES, PIECE_HEAD_BYTES, Reply, Request, TableId, TableInfo, ValueEntries, ValueKind, ValuePiece,
    WriteEntries, WriteEntry, padded,
};

use crate::LoadError;
use crate::backend::Backend;
use crate::call::call;
use crate::expiry::LoadDeadlines;

/// Bytes of an entry before its value: key and hint.
const ENTRY_HEAD_BYTES: usize = 16;

/// What one server gets of a load: pieces as long as its fabric carries.
struct Pieces {
    table: TableId,
    name: String,
    values: ValueKind,
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
            values: table.definition.values,
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
        let entry_bytes = if self.values.are_blocks() {
            ValueEntries::entry_bytes(value.len())
        } else {
            ENTRY_HEAD_BYTES + padded(value.len())
        };
        if self.entry_count > 0 && HEADER_BYTES + self.entries.len() + entry_bytes > Q::MESSAGE_BYTES_MAX {
            self.send(queue, false)?;
        }
        if HEADER_BYTES + entry_bytes > Q::MESSAGE_BYTES_MAX {
            return self.send_in_parts(queue, key, value);
        }
        let entry = WriteEntry { key, hint: LeafNumber::NONE, value };
        if self.values.are_blocks() {
            ValueEntries::push(&mut self.entries, entry);
        } else {
            WriteEntries::push(&mut self.entries, entry);
        }
        self.entry_count += 1;
        Ok(())
    }

    /// Sends a pair that no piece carries, with nothing before it that waits.
    fn send_in_parts<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        value: &[u8],
    ) -> Result<(), LoadError> {
        // In whole words.
        let part_bytes = (Q::MESSAGE_BYTES_MAX - PIECE_HEAD_BYTES) / 8 * 8;
        let value_bytes = u32::try_from(value.len()).expect("a value that the table allows");
        for (index, piece) in value.chunks(part_bytes).enumerate() {
            let (number, offset) = (self.piece.into(), (index * part_bytes) as u32);
            let part = ValuePiece { number, key, value_bytes, offset, piece };
            Request::load_long(&mut self.frame, self.table, part);
            self.call(queue, part.is_last().into())?;
        }
        Ok(())
    }

    /// Sends what is left: the server shows all pairs.
    fn finish<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), LoadError> {
        self.send(queue, true)
    }

    fn send<Q: QueuePair>(&mut self, queue: &mut Q, last: bool) -> Result<(), LoadError> {
        let (piece, count) = (self.piece, self.entry_count);
        if self.values.are_blocks() {
            Request::begin_load_values(&mut self.frame, self.table, last, piece, count);
        } else {
            let value_bytes = self.values.leaf_bytes();
            Request::begin_bulk_load(&mut self.frame, self.table, last, piece, count, value_bytes);
        }
        self.frame.extend_from_slice(&self.entries);
        self.call(queue, count as u64)?;
        self.entries.clear();
        self.entry_count = 0;
        Ok(())
    }

    /// Sends the frame, a piece that ends so many pairs.
    fn call<Q: QueuePair>(&mut self, queue: &mut Q, pairs: u64) -> Result<(), LoadError> {
        let name = || self.name.clone();
        call(queue, &self.frame, &mut self.reply).map_err(|source| LoadError::Fabric {
            table: name(),
            pairs: self.acknowledged,
            source,
        })?;
        Reply::decode(&self.reply)
            .map_err(|source| LoadError::Decode { table: name(), source })?
            .map_err(|source| LoadError::Refused { table: name(), source })?;
        self.acknowledged += pairs;
        self.piece += 1;
        Ok(())
    }
}

/// How an engine takes the pairs of a load.
pub trait Load: Send {
    /// Adds a pair, of which key and value may follow those before.
    ///
    /// # Errors
    /// [`LoadError`].
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError>;

    /// Makes the pairs visible.
    ///
    /// # Errors
    /// [`LoadError`].
    fn finish(self: Box<Self>) -> Result<(), LoadError>;
}

/// A bulk load under way. Dropped before [`BulkLoad::finish`], it leaves the table empty. It belongs to one
/// epoch of every node and ends with that: what was sent is gone then. (A table that keeps no order is filled
/// by writes, which show as they come.)
pub struct BulkLoad {
    info: Arc<TableInfo>,
    previous: Option<u64>,
    pairs: u64,
    load: Box<dyn Load>,
}

impl BulkLoad {
    /// Of the table that is described so.
    pub(crate) fn new(info: Arc<TableInfo>, load: Box<dyn Load>) -> Self {
        Self { info, previous: None, pairs: 0, load }
    }

    /// Adds a pair, whose key must be greater than that of the pair before.
    ///
    /// # Errors
    /// [`LoadError`].
    #[inline]
    pub fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        let expected = self.info.definition.values;
        let (index, got_bytes) = (self.pairs, value.len());
        if !expected.allows(got_bytes) {
            let table = self.info.definition.name.clone();
            return Err(LoadError::WrongValueSize { table, index, expected, got_bytes });
        }
        if let Some(previous) = self.previous.filter(|previous| *previous >= key) {
            return Err(LoadError::NotAscending { index, previous, key });
        }
        self.previous = Some(key);
        self.pairs += 1;
        self.load.push(key, value)
    }

    /// Sends what is left and makes the pairs visible: all at once, or an XStore-D table's part by part.
    /// Returns their number.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(self) -> Result<u64, LoadError> {
        self.load.finish()?;
        Ok(self.pairs)
    }
}

/// A load by calls: of a server's table, or of an XStore-D table, one part after the other.
///
/// Invariant: no part shows a pair before the load's end: the last piece of each is held back until then.
pub(crate) struct CallsLoad<Q> {
    queues: Vec<Q>,
    boundaries: Arc<[u64]>,
    parts: Vec<Pieces>,
    /// The part that takes pairs now.
    part: usize,
    deadlines: Option<LoadDeadlines>,
    /// What is stored of a value behind its deadline.
    stored: Vec<u8>,
    /// The queue pairs end with it.
    _backend: Arc<dyn Backend>,
}

impl<Q: QueuePair> CallsLoad<Q> {
    /// Of the table whose parts are described so, one a queue pair.
    pub(crate) fn new(
        parts: &[TableInfo],
        deadlines: Option<LoadDeadlines>,
        boundaries: Arc<[u64]>,
        queues: Vec<Q>,
        backend: Arc<dyn Backend>,
    ) -> Self {
        let parts = parts.iter().map(Pieces::new).collect();
        Self { queues, boundaries, parts, part: 0, deadlines, stored: Vec::new(), _backend: backend }
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

impl<Q: QueuePair + Send> Load for CallsLoad<Q> {
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        while self.boundaries.get(self.part).is_some_and(|boundary| *boundary <= key) {
            self.part += 1;
        }
        let part = self.part;
        let stored = match self.deadlines {
            None => value,
            Some(deadlines) => {
                self.stored.clear();
                self.stored.extend_from_slice(&deadlines.now().to_bytes());
                self.stored.extend_from_slice(value);
                &self.stored
            }
        };
        let pushed = self.parts[part].push(&mut self.queues[part], key, stored);
        pushed.map_err(|error| self.with_all_pairs(part, error))
    }

    fn finish(mut self: Box<Self>) -> Result<(), LoadError> {
        // Parts without a pair, too: whether they are empty is seen there.
        for part in 0..self.parts.len() {
            let finished = self.parts[part].finish(&mut self.queues[part]);
            finished.map_err(|error| self.with_all_pairs(part, error))?;
        }
        Ok(())
    }
}
