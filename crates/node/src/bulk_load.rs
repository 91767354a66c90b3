//! Bulk load by pieces: the state between the calls of one load, whatever the table's engine.
//!
//! Invariant: a table has at most one load. Its pieces come from one client, in order, and nothing of them is
//! visible before the last. A load that ends early gives back what it holds. A value that no message carries
//! is gathered from parts, pieces in a row, and pushed with its last one. It ends by a refused piece, by
//! piece zero of another load, by a write to the table, which is not empty then, and with its client.

use std::sync::{Mutex, MutexGuard, PoisonError};

use farsight_base::ClientId;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_fabric::Reserved;
use farsight_protocol::{ErrorCode, ServerError, ValueEntries, ValuePiece, WriteEntries, WriteEntry};

use crate::table_name::TableName;

/// What collects the pairs of a load. Dropped, it gives everything back.
pub trait Loader: Send {
    /// Appends a pair.
    ///
    /// # Errors
    /// [`ServerError`] naming the pair: a key that does not ascend, a value of another size, no room.
    fn push(&mut self, key: u64, value: &[u8]) -> Result<(), ServerError>;

    /// Memory for a value of so many bytes that is gathered, until it is pushed.
    ///
    /// # Errors
    /// [`ErrorCode::NoMemory`].
    fn set_aside(&self, value_bytes: u64) -> Result<Option<Reserved>, ServerError> {
        let _ = value_bytes;
        Ok(None)
    }

    /// Makes all pairs visible at once; returns their number.
    ///
    /// # Errors
    /// [`ErrorCode::BadLoad`] if the table is not empty any more; otherwise as [`Loader::push`].
    fn finish(self) -> Result<u64, ServerError>;
}

/// One piece as it arrived.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    /// Its number, from zero.
    pub number: u64,
    /// True for the last.
    pub last: bool,
    entries: PieceEntries<'a>,
}

#[derive(Clone, Copy)]
enum PieceEntries<'a> {
    OfOneSize(WriteEntries<'a>),
    OfAnyLength(ValueEntries<'a>),
    /// A part of one pair's value.
    Part(ValuePiece<'a>),
}

impl<'a> Piece<'a> {
    /// Pairs whose values have one size.
    #[must_use]
    pub fn of_one_size(number: u64, last: bool, entries: WriteEntries<'a>) -> Self {
        Self { number, last, entries: PieceEntries::OfOneSize(entries) }
    }

    /// Pairs whose values have any length.
    #[must_use]
    pub fn of_any_length(number: u64, last: bool, entries: ValueEntries<'a>) -> Self {
        Self { number, last, entries: PieceEntries::OfAnyLength(entries) }
    }

    /// A part of a pair's value. It is no load's last piece.
    #[must_use]
    pub fn of_long_value(part: ValuePiece<'a>) -> Self {
        Self { number: part.number, last: false, entries: PieceEntries::Part(part) }
    }

    /// Pairs that it ends.
    #[must_use]
    pub fn pairs(&self) -> u32 {
        match &self.entries {
            PieceEntries::OfOneSize(entries) => entries.len() as u32,
            PieceEntries::OfAnyLength(entries) => entries.len() as u32,
            PieceEntries::Part(part) => part.is_last().into(),
        }
    }
}

/// A table's load, if one is under way.
pub struct Loading<L> {
    load: Mutex<Option<Load<L>>>,
    /// True while `load` holds one: lets writes pass by the lock.
    is_under_way: AtomicBool,
}

struct Load<L> {
    client: ClientId,
    next_piece: u64,
    pairs: u64,
    /// The value of which parts have come.
    gathered: Option<Gathered>,
    loader: L,
}

struct Gathered {
    key: u64,
    value_bytes: u32,
    value: Vec<u8>,
    _reserved: Option<Reserved>,
}

impl<L> Default for Loading<L> {
    fn default() -> Self {
        Self { load: Mutex::default(), is_under_way: AtomicBool::new(false) }
    }
}

impl<L: Loader> Loading<L> {
    /// Takes one piece of `client` for the table called `table`; with piece zero `begin` makes the loader.
    /// Returns the pairs of the load so far.
    ///
    /// # Errors
    /// [`ErrorCode::BadLoad`] for a piece that does not follow; what `begin` and the loader refuse.
    pub fn take(
        &self,
        table: &TableName,
        client: ClientId,
        piece: Piece<'_>,
        begin: impl FnOnce() -> Result<L, ServerError>,
    ) -> Result<u64, ServerError> {
        let number = piece.number;
        let refused = |error: ServerError| {
            let text = format!("bulk load of table {table:?}, piece {number}: {}", error.text);
            ServerError::new(error.code, text)
        };
        let mut slot = self.lock();
        // Taken out: whatever goes wrong from here on ends the load.
        let load = slot.take();
        // Relaxed: a write that misses the change is not ordered with this call.
        self.is_under_way.store(false, Ordering::Relaxed);
        let load = match load {
            former if number == 0 => {
                // An earlier load gives back what it holds before this one looks whether the table is new.
                drop(former);
                Load { client, next_piece: 0, pairs: 0, gathered: None, loader: begin().map_err(refused)? }
            }
            Some(load) if load.client == client && load.next_piece == number => load,
            other => {
                let error = unexpected(other.as_ref(), client);
                // Somebody else's load goes on.
                if let Some(load) = other.filter(|load| load.client != client) {
                    self.keep(&mut slot, load);
                }
                return Err(refused(error));
            }
        };
        let (pairs, unfinished) = load.advance(piece).map_err(refused)?;
        if let Some(load) = unfinished {
            self.keep(&mut slot, load);
        }
        Ok(pairs)
    }

    /// Ends the load that a write to the table has made pointless.
    #[inline]
    pub fn end_by_write(&self) {
        // Relaxed: a load that begins at this moment meets the write's pair at its end, and is refused then.
        if self.is_under_way.load(Ordering::Relaxed) {
            self.end(&mut self.lock());
        }
    }

    /// Ends the load of a client that has ended: none of its pieces is on its way any more.
    pub fn end_of(&self, client: ClientId) {
        let mut slot = self.lock();
        if slot.as_ref().is_some_and(|load| load.client == client) {
            self.end(&mut slot);
        }
    }

    fn keep(&self, slot: &mut Option<Load<L>>, load: Load<L>) {
        *slot = Some(load);
        // Relaxed: as in `end_by_write`.
        self.is_under_way.store(true, Ordering::Relaxed);
    }

    fn end(&self, slot: &mut Option<Load<L>>) {
        *slot = None;
        // Relaxed: as in `end_by_write`.
        self.is_under_way.store(false, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Load<L>>> {
        // A load is taken out while it is worked on: after a panic there is none, never half of one.
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<L: Loader> Load<L> {
    /// Takes the piece's pairs. Returns the pairs so far, and the load unless this was the last piece.
    fn advance(mut self, piece: Piece<'_>) -> Result<(u64, Option<Self>), ServerError> {
        if let PieceEntries::Part(part) = piece.entries {
            self.gather(part)?;
        } else if let Some(Gathered { key, value_bytes, value, .. }) = &self.gathered {
            let text = format!("expected a part of key {key} from byte {} of {value_bytes} on", value.len());
            return Err(ServerError::new(ErrorCode::BadLoad, text));
        }
        match piece.entries {
            PieceEntries::OfOneSize(entries) => self.push_all(entries.iter())?,
            PieceEntries::OfAnyLength(entries) => self.push_all(entries.iter())?,
            PieceEntries::Part(_) => {}
        }
        self.pairs += u64::from(piece.pairs());
        self.next_piece += 1;
        if piece.last { Ok((self.loader.finish()?, None)) } else { Ok((self.pairs, Some(self))) }
    }

    fn push_all<'e>(&mut self, entries: impl Iterator<Item = WriteEntry<'e>>) -> Result<(), ServerError> {
        for entry in entries {
            self.loader.push(entry.key, entry.value)?;
        }
        Ok(())
    }

    /// Takes a part of a value, and pushes the pair if that was the last.
    fn gather(&mut self, part: ValuePiece<'_>) -> Result<(), ServerError> {
        let ValuePiece { key, value_bytes, offset, piece, .. } = part;
        let mut gathered = if let Some(gathered) = self.gathered.take() {
            gathered
        } else {
            let reserved = self.loader.set_aside(value_bytes.into())?;
            Gathered { key, value_bytes, value: Vec::new(), _reserved: reserved }
        };
        let expected = (gathered.key, gathered.value_bytes, gathered.value.len());
        if expected != (key, value_bytes, offset as usize) {
            let text = format!(
                "expected a part of key {} of {} B from byte {} on, got one of key {key} of {value_bytes} B from byte \
                 {offset} on",
                expected.0, expected.1, expected.2
            );
            return Err(ServerError::new(ErrorCode::BadLoad, text));
        }
        gathered.value.extend_from_slice(piece);
        if part.is_last() {
            return self.loader.push(key, &gathered.value);
        }
        self.gathered = Some(gathered);
        Ok(())
    }
}

/// The refusal of a piece that does not follow.
fn unexpected<L>(load: Option<&Load<L>>, client: ClientId) -> ServerError {
    let text = match load {
        Some(load) if load.client != client => "another client is loading this table".to_owned(),
        Some(load) => format!("expected piece {}", load.next_piece),
        None => "no load is under way, expected piece 0 (a refused piece, a write to the table or another load ends \
                 one)"
        .to_owned(),
    };
    ServerError::new(ErrorCode::BadLoad, text)
}
