//! Bulk load by pieces: the state between the calls of one load.
//!
//! Invariant: a table has at most one load. Its pieces come from one client, in order, and nothing of them is
//! visible before the last. Whatever ends a load early (a refused piece, another load's piece zero, a write
//! to the table, which makes it no longer empty, the end of its client) gives its leaves back.

use std::sync::{Mutex, MutexGuard, PoisonError};

use farsight_base::ClientId;
use farsight_base::sync::{AtomicBool, Ordering};
use farsight_index_xstore::server::{BulkLoadError, BulkLoader, WriteError, XStoreLeaf};
use farsight_protocol::{ErrorCode, ServerError, WriteEntries};

use super::{Tree, code_of};
use crate::table_name::TableName;

/// One piece as it arrived.
#[derive(Clone, Copy)]
pub(crate) struct Piece<'a> {
    /// Who sent it.
    pub(crate) client: ClientId,
    /// Its number, from zero.
    pub(crate) number: u64,
    /// True for the last.
    pub(crate) last: bool,
    /// Its pairs.
    pub(crate) entries: WriteEntries<'a>,
}

/// A table's load, if one is under way.
#[derive(Default)]
pub(crate) struct Loading {
    load: Mutex<Option<Load>>,
    /// True while `load` holds one: lets writes pass by the lock.
    is_under_way: AtomicBool,
}

struct Load {
    client: ClientId,
    next_piece: u64,
    pairs: u64,
    loader: BulkLoader<XStoreLeaf>,
}

impl Loading {
    /// Takes one piece for `tree`, the tree of the table called `table`. Returns the pairs of the load so
    /// far.
    pub(crate) fn take(&self, table: &TableName, tree: &Tree, piece: Piece<'_>) -> Result<u64, ServerError> {
        let refused = |code, text: String| {
            let number = piece.number;
            Err(ServerError::new(code, format!("bulk load of table {table:?}, piece {number}: {text}")))
        };
        let mut slot = self.lock();
        // Taken out: whatever goes wrong from here on ends the load.
        let load = slot.take();
        // Relaxed: a write that misses the change is not ordered with this call.
        self.is_under_way.store(false, Ordering::Relaxed);
        let load = if piece.number == 0 {
            // An earlier load gives its leaves back before this one looks whether the tree is new.
            drop(load);
            match tree.begin_bulk_load() {
                Ok(loader) => Load { client: piece.client, next_piece: 0, pairs: 0, loader },
                Err(error) => return refused(load_code(&error), error.to_string()),
            }
        } else {
            match load {
                Some(load) if load.client == piece.client && load.next_piece == piece.number => load,
                // Somebody else's load goes on.
                Some(load) if load.client != piece.client => {
                    self.keep(&mut slot, load);
                    return refused(ErrorCode::BadLoad, "another client is loading this table".into());
                }
                Some(load) => {
                    return refused(ErrorCode::BadLoad, format!("expected piece {}", load.next_piece));
                }
                None => {
                    let text = "no load is under way, expected piece 0 (a refused piece, a write to the table or \
                                another load ends one)";
                    return refused(ErrorCode::BadLoad, text.into());
                }
            }
        };
        match load.advance(piece) {
            Ok((pairs, unfinished)) => {
                if let Some(load) = unfinished {
                    self.keep(&mut slot, load);
                }
                Ok(pairs)
            }
            Err(error) => refused(load_code(&error), error.to_string()),
        }
    }

    /// Ends the load that a write to the table has made pointless.
    #[inline]
    pub(crate) fn end_by_write(&self) {
        // Relaxed: a load that begins at this moment meets the write's pair at its end, and is refused then.
        if self.is_under_way.load(Ordering::Relaxed) {
            let mut slot = self.lock();
            *slot = None;
            self.is_under_way.store(false, Ordering::Relaxed);
        }
    }

    /// Ends the load of a client that has ended: none of its pieces is on its way any more.
    pub(crate) fn end_of(&self, client: ClientId) {
        let mut slot = self.lock();
        if slot.as_ref().is_some_and(|load| load.client == client) {
            *slot = None;
            self.is_under_way.store(false, Ordering::Relaxed);
        }
    }

    fn keep(&self, slot: &mut Option<Load>, load: Load) {
        *slot = Some(load);
        self.is_under_way.store(true, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, Option<Load>> {
        // A load is taken out while it is worked on: after a panic there is none, never half of one.
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Load {
    /// Takes the piece's pairs. Returns the pairs so far, and the load unless this was the last piece.
    fn advance(mut self, piece: Piece<'_>) -> Result<(u64, Option<Self>), BulkLoadError> {
        for entry in piece.entries.iter() {
            self.loader.push(entry.key, entry.value)?;
        }
        self.pairs += piece.entries.len() as u64;
        self.next_piece += 1;
        if piece.last {
            self.loader.finish().map(|loaded| (loaded.pairs, None))
        } else {
            Ok((self.pairs, Some(self)))
        }
    }
}

fn load_code(error: &BulkLoadError) -> ErrorCode {
    match error {
        BulkLoadError::Write { error: WriteError::ValueSize { .. }, .. } => ErrorCode::WrongValueSize,
        BulkLoadError::Write { error, .. } => code_of(error),
        BulkLoadError::NotEmpty { .. } | BulkLoadError::Unsorted { .. } | BulkLoadError::Duplicate { .. } => {
            ErrorCode::BadLoad
        }
    }
}
