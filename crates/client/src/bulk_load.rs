//! A bulk load: ascending pairs into an empty table, in pieces as long as the fabric carries.
//!
//! Invariant: the pieces that were sent hold ascending keys; the table shows none of them before the last
//! piece has been acknowledged, and then all.

use farsight_base::LeafNumber;
use farsight_fabric::{Connection, QueuePair};
use farsight_protocol::{HEADER_BYTES, Reply, Request, WriteEntries, WriteEntry, padded};

use crate::LoadError;
use crate::call::call;
use crate::life::Life;
use crate::table::{Place, Table};

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

/// A bulk load under way. Dropped before [`BulkLoad::finish`], it leaves the table empty. It belongs to one
/// life of its server and ends with that: what was sent is gone then.
pub struct BulkLoad<C: Connection> {
    table: Table<Life<C>>,
    place: Place<Life<C>>,
    /// The entries of the piece being filled.
    entries: Vec<u8>,
    entry_count: usize,
    frame: Vec<u8>,
    reply: Vec<u8>,
    piece: u32,
    sequence: Sequence,
    pairs_acknowledged: u64,
}

impl<C: Connection> BulkLoad<C> {
    pub(crate) fn new(table: Table<Life<C>>, place: Place<Life<C>>) -> Self {
        Self {
            table,
            place,
            entries: Vec::new(),
            entry_count: 0,
            frame: Vec::new(),
            reply: Vec::new(),
            piece: 0,
            sequence: Sequence::default(),
            pairs_acknowledged: 0,
        }
    }

    /// Adds a pair, whose key must be greater than that of the pair before; sends a piece when one is full.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn push(&mut self, key: u64, value: &[u8]) -> Result<(), LoadError> {
        let expected_bytes = self.table.value_bytes();
        self.sequence.next(self.table.name(), expected_bytes, key, value)?;
        let entry_bytes = ENTRY_HEAD_BYTES + padded(expected_bytes);
        if HEADER_BYTES + self.entries.len() + entry_bytes > C::Queue::MESSAGE_BYTES_MAX {
            self.send(false)?;
        }
        WriteEntries::push(&mut self.entries, WriteEntry { key, hint: LeafNumber::NONE, value });
        self.entry_count += 1;
        Ok(())
    }

    /// Sends what is left and makes the pairs visible, all at once. Returns their number.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn finish(mut self) -> Result<u64, LoadError> {
        self.send(true)?;
        Ok(self.sequence.pairs)
    }

    fn send(&mut self, last: bool) -> Result<(), LoadError> {
        let table = &self.place.open.info;
        let value_bytes = self.table.value_bytes();
        Request::begin_bulk_load(&mut self.frame, table.id, last, self.piece, self.entry_count, value_bytes);
        self.frame.extend_from_slice(&self.entries);
        let name = || table.definition.name.clone();
        call(&mut self.place.links, &self.frame, &mut self.reply).map_err(|source| LoadError::Fabric {
            table: name(),
            pairs: self.pairs_acknowledged,
            source,
        })?;
        Reply::decode(&self.reply)
            .map_err(|source| LoadError::Decode { table: name(), source })?
            .map_err(|source| LoadError::Refused { table: name(), source })?;
        self.entries.clear();
        self.entry_count = 0;
        self.piece += 1;
        self.pairs_acknowledged = self.sequence.pairs;
        Ok(())
    }
}
