//! Values on their way between a table and its clients, piece by piece.
//!
//! Invariant: each belongs to one client, under a number that the client chose, and to nobody else. What a
//! client has of all tables is bounded, and each value keeps its share of that ([`ValueShare`]). It is given
//! back when its client ends, and when nothing was heard of it for [`SILENCE_MAX`].
//!
//! Protocol: a call takes the value out of the list, works on it, and puts it back. So no two calls work on
//! one value, and the pass of the background finds none that is worked on. A call that finds another value
//! where it puts its own gives that one back.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_index_xstore::server::StagedValue;
use farsight_protocol::{ErrorCode, ServerError};

use crate::memory_limit::ValueShare;
use crate::table_name::TableName;

/// How long a value stays of which nothing is heard, or a little longer.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(60);

/// A value under way.
pub(super) enum UnderWay {
    /// From its client: a draft in the table's blocks.
    Coming(Coming),
    /// To its client: a copy.
    Going(Going),
}

/// A value that comes in pieces.
pub(super) struct Coming {
    pub(super) staged: StagedValue,
    pub(super) share: ValueShare,
}

/// A value that is sent in pieces.
pub(super) struct Going {
    pub(super) key: u64,
    pub(super) version: u64,
    pub(super) value: Vec<u8>,
    pub(super) _share: ValueShare,
}

/// The values of one table.
#[derive(Default)]
pub(super) struct InPieces {
    values: Mutex<BTreeMap<(ClientId, u64), Kept>>,
}

struct Kept {
    value: UnderWay,
    /// When the background saw it first since it was put here.
    seen: Option<MonotonicNs>,
}

impl InPieces {
    /// Takes a value out.
    pub(super) fn take(&self, client: ClientId, number: u64) -> Option<UnderWay> {
        self.lock().remove(&(client, number)).map(|kept| kept.value)
    }

    /// Takes out a value that comes from its client.
    pub(super) fn take_coming(
        &self,
        table: &TableName,
        client: ClientId,
        number: u64,
    ) -> Result<Coming, ServerError> {
        match self.take(client, number) {
            Some(UnderWay::Coming(coming)) => Ok(coming),
            // A copy is nobody else's.
            Some(UnderWay::Going(_)) | None => Err(none(table, client, number, "comes")),
        }
    }

    /// Takes out a value that goes to its client.
    pub(super) fn take_going(
        &self,
        table: &TableName,
        client: ClientId,
        number: u64,
    ) -> Result<Going, ServerError> {
        let mut values = self.lock();
        // Another one's place is the table's: it stays for who gives it back.
        if let Entry::Occupied(known) = values.entry((client, number))
            && matches!(known.get().value, UnderWay::Going(_))
            && let UnderWay::Going(going) = known.remove().value
        {
            return Ok(going);
        }
        Err(none(table, client, number, "goes"))
    }

    /// Puts a value here. Returns what was under its number, to be given back: a client with several
    /// connections may begin two values under one number at once.
    #[must_use = "its place is the table's"]
    pub(super) fn put(&self, client: ClientId, number: u64, value: UnderWay) -> Option<UnderWay> {
        let other = self.lock().insert((client, number), Kept { value, seen: None });
        other.map(|kept| kept.value)
    }

    /// Takes out all values of a client.
    pub(super) fn take_all_of(&self, client: ClientId) -> Vec<UnderWay> {
        let mut values = self.lock();
        let own: Vec<_> = values.range((client, 0)..=(client, u64::MAX)).map(|(own, _)| *own).collect();
        own.iter().filter_map(|own| values.remove(own)).map(|kept| kept.value).collect()
    }

    /// Takes out the values of which nothing was heard for too long. Returns them, and when to look again if
    /// there are others.
    pub(super) fn take_silent(&self, now: MonotonicNs) -> (Vec<UnderWay>, Option<MonotonicNs>) {
        let mut values = self.lock();
        let mut again_at: Option<MonotonicNs> = None;
        let silent: Vec<_> = values
            .iter_mut()
            .filter_map(|(own, kept)| {
                let due = kept.seen.get_or_insert(now).plus(SILENCE_MAX);
                let is_silent = due <= now;
                if !is_silent {
                    again_at = again_at.into_iter().chain([due]).min();
                }
                is_silent.then_some(*own)
            })
            .collect();
        let taken = silent.iter().filter_map(|own| values.remove(own)).map(|kept| kept.value).collect();
        (taken, again_at)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(ClientId, u64), Kept>> {
        // Each change is complete.
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The refusal of a number under which there is no such value.
fn none(table: &TableName, client: ClientId, number: u64, way: &str) -> ServerError {
    let text = format!(
        "table {table:?}: no value {way} in pieces under number {number:#x} of {client} (one of which nothing is heard \
         for {SILENCE_MAX:?} is let go)"
    );
    ServerError::new(ErrorCode::BadRequest, text)
}
