//! Tables whose pairs have deadlines: what a session does besides reading and writing.
//!
//! Invariant: a pair is returned only if its deadline has not passed by the servers' clock as this client
//! knows it, once the pair is here. So nobody sees a pair later after its deadline than that clock's error.
//!
//! Protocol:
//! 1. A write gets its deadline here: the servers' time now, and the lifetime of what the session writes.
//! 2. A read takes the deadlines off what is stored, and leaves pairs out that have ended. A scan that comes
//!    short by that goes on.

use std::time::{Duration, Instant};

use farsight_index::{Answers, Direction, EngineError, NoDeadline, OldValues, Pairs, ScanRequest, Writes};
use farsight_layout::Deadline;
use farsight_protocol::{ErrorCode, Expiry, Operand, WriteOperation, WriteOutcome};

use crate::reconnect::ATTEMPTS_MAX;
use crate::server_time::ServerTime;
use crate::session::Session;
use crate::session_key::SessionKey;
use crate::{OpenError, ReadError, WriteError};

/// Looks and writes that [`Session::set_time_to_live`] takes at most, if others write the key meanwhile.
const TOUCHES_MAX: usize = 64;

/// How long a pair stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Lifetime {
    /// As long as the table says.
    #[default]
    OfTable,
    /// Until it is removed.
    Endless,
    /// So long, in whole milliseconds.
    For(Duration),
}

impl Lifetime {
    /// When a pair ends that is written at `now_ms`, in a table with this expiry.
    pub(crate) fn deadline(self, expiry: Expiry, now_ms: u64) -> Deadline {
        let lasting_ms = match self {
            Self::OfTable if expiry.default_ms > 0 => expiry.default_ms,
            Self::OfTable | Self::Endless => return Deadline::NEVER,
            Self::For(duration) => u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        };
        Deadline(now_ms.saturating_add(lasting_ms).max(1))
    }
}

/// When pairs of a bulk load end.
#[derive(Clone, Copy)]
pub(crate) struct LoadDeadlines {
    pub(crate) expiry: Expiry,
    pub(crate) time: ServerTime,
}

impl LoadDeadlines {
    /// Of a pair that is loaded now.
    pub(crate) fn now(self) -> Deadline {
        Lifetime::OfTable.deadline(self.expiry, self.time.now_ms(Instant::now()))
    }
}

/// What a session on such a table knows.
pub(crate) struct Expiring {
    pub(crate) expiry: Expiry,
    /// Of what is written from now on.
    pub(crate) lifetime: Lifetime,
    /// The servers' time, once it was needed; of the epoch in which the session works.
    pub(crate) time: Option<ServerTime>,
    /// An operand with its deadline.
    pub(crate) operand: Vec<u8>,
    /// What scans found, with deadlines.
    stored: Pairs,
}

impl Expiring {
    pub(crate) fn new(expiry: Expiry) -> Self {
        let (operand, stored) = (Vec::new(), Pairs::default());
        Self { expiry, lifetime: Lifetime::OfTable, time: None, operand, stored }
    }

    /// An operand with the deadline of what is written at `now_ms`.
    pub(crate) fn with_deadline(&mut self, operation: WriteOperation, operand: &[u8], now_ms: u64) -> &[u8] {
        self.operand.clear();
        let deadline = self.lifetime.deadline(self.expiry, now_ms);
        let pushed = Operand::push_with_deadline(&mut self.operand, operation, operand, deadline);
        pushed.expect("an operand that was checked");
        &self.operand
    }
}

impl Session {
    /// Lets pairs stay so long that are written from now on.
    ///
    /// # Errors
    /// [`WriteError::NoDeadlines`] for a table whose pairs have none.
    pub fn set_lifetime(&mut self, lifetime: Lifetime) -> Result<(), WriteError> {
        match &mut self.expiring {
            Some(expiring) => expiring.lifetime = lifetime,
            None if lifetime == Lifetime::OfTable => {}
            None => return Err(WriteError::NoDeadlines { table: self.table().name().to_owned() }),
        }
        Ok(())
    }

    /// How long pairs stay that are written now.
    #[must_use]
    pub fn lifetime(&self) -> Lifetime {
        self.expiring.as_ref().map_or(Lifetime::OfTable, |expiring| expiring.lifetime)
    }

    /// How long the pair of `key` stays from now on; `None` if the key is absent.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn time_to_live<K: SessionKey>(&mut self, key: K) -> Result<Option<Lifetime>, ReadError> {
        let mut answers = Answers::default();
        self.multi_get(&[key], &mut answers)?;
        if answers.get(0).is_none() {
            return Ok(None);
        }
        let Some(deadline) = answers.deadline(0).filter(|deadline| *deadline != Deadline::NEVER) else {
            return Ok(Some(Lifetime::Endless));
        };
        let now_ms = self.time_for_read()?;
        let left_ms = deadline.0.saturating_sub(now_ms);
        Ok(Some(Lifetime::For(Duration::from_millis(left_ms))))
    }

    /// Lets the pair of `key` stay so long from now on; its value stays as it is. False if the key is absent.
    /// That is a GET and a compare-and-set by version, again if others write the key meanwhile.
    ///
    /// # Errors
    /// [`WriteError`]; [`ErrorCode::Contended`] if others always came first.
    pub fn set_time_to_live<K: SessionKey>(
        &mut self,
        key: K,
        lifetime: Lifetime,
    ) -> Result<bool, WriteError> {
        let before = self.lifetime();
        self.set_lifetime(lifetime)?;
        let touched = self.touch(key);
        self.set_lifetime(before)?;
        touched
    }

    /// Puts pairs that end at their own instants, in milliseconds since 1970 by the servers' time; 0: they do
    /// not. Otherwise as [`Session::write`].
    ///
    /// # Errors
    /// [`WriteError`]; [`WriteError::NoDeadlines`] for a pair that ends, in a table whose pairs do not.
    pub fn put_until<'v, K: SessionKey>(
        &mut self,
        entries: impl Iterator<Item = (K, u64, &'v [u8])>,
        outcomes: &mut Vec<WriteOutcome>,
    ) -> Result<(), WriteError> {
        let operation = WriteOperation::Put;
        let (mut keys, mut values, mut bounds) = (Vec::new(), Vec::new(), vec![0]);
        outcomes.clear();
        let has_deadlines = self.expiring.is_some();
        for (index, (key, ends_at_ms, value)) in entries.enumerate() {
            self.table().check_operand(operation, index, key.bytes(), value)?;
            if !has_deadlines && ends_at_ms != Deadline::NEVER.0 {
                return Err(WriteError::NoDeadlines { table: self.table().name().to_owned() });
            }
            if has_deadlines {
                values.extend(Deadline(ends_at_ms).to_bytes());
            }
            values.extend_from_slice(value);
            keys.push(key);
            bounds.push(values.len());
        }
        let bounds: &[usize] = if self.has_blocks() { &bounds } else { &[] };
        let writes = Writes { operation, keys: &keys, values: &values, bounds };
        self.write_all(writes, outcomes, &mut OldValues::default())
    }

    /// Writes the value of `key` once more.
    fn touch<K: SessionKey>(&mut self, key: K) -> Result<bool, WriteError> {
        let (mut value, mut operand) = (Vec::new(), Vec::new());
        for _ in 0..TOUCHES_MAX {
            let looked = self.get_into(key, &mut value).map_err(|source| WriteError::Look {
                table: self.table().name().to_owned(),
                source: Box::new(source),
            });
            let Some(version) = looked? else { return Ok(false) };
            operand.clear();
            operand.extend_from_slice(&version.to_le_bytes());
            operand.extend_from_slice(&value);
            match self.write_one(WriteOperation::CompareAndSet, key, &operand)? {
                WriteOutcome::Absent => return Ok(false),
                WriteOutcome::Differs(_) => {}
                _ => return Ok(true),
            }
        }
        let (table, operation) = (self.table().name().to_owned(), WriteOperation::CompareAndSet);
        Err(WriteError::Refused { table, operation, code: ErrorCode::Contended })
    }

    /// How wrong this client may be about the servers' clocks. A pair may be returned so much later than at
    /// its deadline, or left out so much sooner. `None` if pairs have no deadlines.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn clock_error(&mut self) -> Result<Option<Duration>, ReadError> {
        if self.expiring.is_none() {
            return Ok(None);
        }
        self.time_for_read()?;
        let time = self.expiring.as_ref().and_then(|expiring| expiring.time);
        Ok(time.map(|time| time.error(Instant::now())))
    }

    /// Takes the deadlines off what was read, if pairs have any.
    #[inline]
    pub(crate) fn take_deadlines(&mut self, answers: &mut Answers) -> Result<(), ReadError> {
        if self.expiring.is_none() {
            return Ok(());
        }
        let now_ms = self.time_for_read()?;
        answers.take_deadlines(now_ms).map_err(|error| self.without_deadline(error))
    }

    /// [`Session::scan_batch`] in a table whose pairs have deadlines. It begins again if a server was started
    /// again, or the table's name came to lead elsewhere, before it could go on.
    pub(crate) fn scan_lasting(
        &mut self,
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), ReadError> {
        let mut stored = self.expiring.as_mut().map(|expiring| std::mem::take(&mut expiring.stored));
        let stored = stored.get_or_insert_default();
        let mut scanned = self.try_scan_lasting(direction, scans, stored, pairs);
        for _ in 1..ATTEMPTS_MAX {
            let Err(ReadError::ScanCut { .. } | ReadError::ScanMoved { .. }) = scanned else { break };
            scanned = self.try_scan_lasting(direction, scans, stored, pairs);
        }
        if let Some(expiring) = &mut self.expiring {
            expiring.stored = std::mem::take(stored);
        }
        scanned
    }

    fn try_scan_lasting(
        &mut self,
        direction: Direction,
        scans: &[ScanRequest],
        stored: &mut Pairs,
        pairs: &mut Pairs,
    ) -> Result<(), ReadError> {
        stored.bound_bytes(pairs.bytes_max());
        self.scan_stored(direction, scans, stored)?;
        let origin = self.origin();
        pairs.reset_any_length();
        let mut behind = Pairs::default();
        behind.bound_bytes(pairs.bytes_max());
        for (index, scan) in scans.iter().enumerate() {
            let end = pairs.len().saturating_add(scan.limit);
            let mut rest = self.append_lasting((&*stored, index), (direction, *scan), pairs)?;
            // It ends: a scan that goes on begins behind its last pair.
            while let Some(from) = rest.filter(|_| pairs.len() < end) {
                if pairs.bytes_left() == 0 {
                    pairs.cut();
                    break;
                }
                let scan = ScanRequest { from, limit: end - pairs.len() };
                self.scan_stored(direction, &[scan], &mut behind)?;
                origin.check_same(self.origin(), self.table().name())?;
                rest = self.append_lasting((&behind, 0), (direction, scan), pairs)?;
            }
            pairs.end_scan();
        }
        Ok(())
    }

    /// Appends the pairs of a scan that have not ended. Returns where the scan goes on, if there may be more.
    fn append_lasting(
        &mut self,
        (stored, index): (&Pairs, usize),
        (direction, scan): (Direction, ScanRequest),
        pairs: &mut Pairs,
    ) -> Result<Option<u64>, ReadError> {
        let now_ms = self.time_for_read()?;
        pairs.append_lasting(stored, index, now_ms).map_err(|error| self.without_deadline(error))?;
        let found = stored.scan(index);
        let is_full = found.len() == scan.limit || stored.is_cut();
        let last = found.last().filter(|_| is_full);
        Ok(last.and_then(|pair| direction.next_key(pair.key)))
    }

    fn without_deadline(&self, error: NoDeadline) -> ReadError {
        let table = self.table().name().to_owned();
        ReadError::Engine { table, source: Box::new(EngineError::Engine(std::sync::Arc::new(error))) }
    }

    /// What is stored of a value has so few bytes that there is no deadline.
    pub(crate) fn too_short(&self, got_bytes: usize) -> ReadError {
        self.without_deadline(NoDeadline { index: 0, got_bytes })
    }

    pub(crate) fn time_for_read(&mut self) -> Result<u64, ReadError> {
        self.server_time_ms().map_err(|error| self.reopen_for_read(error))
    }

    /// The servers' time of day. They are asked once a minute, and it goes on while none answers.
    pub(crate) fn server_time_ms(&mut self) -> Result<u64, OpenError> {
        let now = Instant::now();
        let known = self.expiring.as_ref().and_then(|expiring| expiring.time);
        if let Some(time) = known.filter(|time| !time.is_old(now)) {
            return Ok(time.now_ms(now));
        }
        let time = self.ask_time()?;
        if let Some(expiring) = &mut self.expiring {
            expiring.time = Some(time);
        }
        Ok(time.now_ms(Instant::now()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_has_its_deadline() {
        let deadline = |lifetime: Lifetime, default_ms| lifetime.deadline(Expiry { default_ms }, 1_000).0;
        assert_eq!([deadline(Lifetime::OfTable, 0), deadline(Lifetime::OfTable, 5)], [0, 1_005]);
        assert_eq!([deadline(Lifetime::Endless, 0), deadline(Lifetime::Endless, 5)], [0, 0]);
        let lasting = [Duration::ZERO, Duration::from_micros(2_900), Duration::MAX];
        let deadlines = lasting.map(|duration| deadline(Lifetime::For(duration), 5));
        assert_eq!(deadlines, [1_000, 1_002, u64::MAX]);
    }
}
