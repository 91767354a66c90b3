//! A bulk load: ascending pairs into an empty table, in pieces as long as the fabric carries.
//!
//! Invariant: the pieces that were sent hold ascending keys; the table shows none of them before the last
//! piece has been acknowledged, and then all.

use farsight_base::LeafNumber;
use farsight_fabric::{Connection, QueuePair};
use farsight_protocol::{HEADER_BYTES, Reply, Request, TableId, TableInfo, WriteEntries, WriteEntry, padded};

use crate::LoadError;
use crate::call::call;
use crate::life::Life;
use crate::table::Place;

/// Bytes of an entry before its value: key and hint.
const ENTRY_HEAD_BYTES: usize = 16;

/// The pairs of a load so far.
#[derive(Default)]
pub(crate) struct Sequence {
    previous: Option<u64>,
    pub(crate) pairs: u64,
}

impl Sequence {
    /// Takes the next pair, if it may follow.
    pub(crate) fn next(
        &mut self,
        table: &str,
        expected_bytes: usize,
        key: u64,
        value: &[u8],
    ) -> Result<(), LoadError> {
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
pub(crate) struct Pieces {
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
    pub(crate) fn new(table: &TableInfo) -> Self {
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
    pub(crate) fn acknowledged_pairs(&self) -> u64 {
        self.acknowledged
    }

    /// Adds a pair that may follow; sends a piece when one is full.
    pub(crate) fn push<Q: QueuePair>(
        &mut self,
        queue: &mut Q,
        key: u64,
        value: &[u8],
    ) -> Result<(), LoadError> {
        let entry_bytes = ENTRY_HEAD_BYTES + padded(self.value_bytes);
        if HEADER_BYTES + self.entries.len() + entry_bytes > Q::MESSAGE_BYTES_MAX {
            self.send(queue, false)?;
        }
        WriteEntries::push(&mut self.entries, WriteEntry { key, hint: LeafNumber::NONE, value });
        self.entry_count += 1;
        Ok(())
    }

    /// Sends what is left: the server shows all pairs.
    pub(crate) fn finish<Q: QueuePair>(&mut self, queue: &mut Q) -> Result<(), LoadError> {
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

/// A bulk load under way. Dropped before [`BulkLoad::finish`], it leaves the table empty. It belongs to one
/// life of its server and ends with that: what was sent is gone then.
pub struct BulkLoad<C: Connection> {
    place: Place<Life<C>>,
    pieces: Pieces,
    sequence: Sequence,
}

impl<C: Connection> BulkLoad<C> {
    pub(crate) fn new(place: Place<Life<C>>) -> Self {
        Self { pieces: Pieces::new(&place.open.info), place, sequence: Sequence::default() }
    }

    /// Adds a pair, whose key must be greater than that of the pair before; sends a piece when one is full.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        self.sequence.next(&self.pieces.name, self.pieces.value_bytes, key, value)?;
        self.pieces.push(&mut self.place.queues[0], key, value)
    }

    /// Sends what is left and makes the pairs visible, all at once. Returns their number.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(mut self) -> Result<u64, LoadError> {
        self.pieces.finish(&mut self.place.queues[0])?;
        Ok(self.sequence.pairs)
    }
}
