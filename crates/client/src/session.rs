//! What one thread reads and writes with.
//!
//! Invariant: a session works in one epoch of its peers at a time, with queue pairs and caches of that epoch.
//! It works in one table at a time: that to which its name led a second before the call began, or later.
//!
//! Protocol of a loss: reads can be repeated, so a read that finds the connection lost asks for the next
//! epoch, opens the table there and begins again. A write asks before it sends anything. Once something was
//! sent and the answer is lost, it goes on over the next connection as the same write (`repeat.rs`), or is
//! indeterminate.

mod writes;

use std::sync::Arc;

use farsight_base::Epoch;
use farsight_fabric::{FabricError, Meters};
use farsight_index::{Access, Answers, Counters, Direction, EngineError, Pairs, ScanRequest};
use farsight_protocol::{TableId, WriteOutcome};

use crate::attached::{Got, LetGo, Operations, Read, Working};
use crate::expiry::Expiring;
use crate::reconnect::{ATTEMPTS_MAX, Losses, OfFabric};
use crate::server_time::ServerTime;
use crate::session_key::SessionKey;
use crate::table::Table;
use crate::{CatalogueError, OpenError, ReadError, WriteError};

/// Where the answer to a read came from: what is read in several pieces is of one origin, or worth nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The server's epoch.
    pub epoch: Epoch,
    /// The table to which the name led.
    pub table: TableId,
}

impl Origin {
    /// Fails if a later piece is of another origin than this one, of the table of that name.
    ///
    /// # Errors
    /// [`ReadError::ScanCut`], [`ReadError::ScanMoved`].
    pub fn check_same(self, later: Self, table: &str) -> Result<(), ReadError> {
        let table = || table.to_owned();
        if self.epoch != later.epoch {
            return Err(ReadError::ScanCut { table: table(), was: self.epoch, is: later.epoch });
        }
        if self.table == later.table { Ok(()) } else { Err(ReadError::ScanMoved { table: table() }) }
    }
}

/// A session on one table: queue pairs and the engine over them. Use one a thread; a session is not shared.
pub struct Session {
    pub(crate) table: Table,
    value_bytes: usize,
    /// Bytes of what a value is copied into; more than any has if they have any length.
    buffer_bytes: usize,
    pub(crate) access: Access,
    pub(crate) working: Working,
    /// Room for keys and values of a batch of writes, and the outcome of a single one.
    keys: Vec<u64>,
    values: Vec<u8>,
    bounds: Vec<usize>,
    /// What is done besides, if pairs have deadlines.
    pub(crate) expiring: Option<Box<Expiring>>,
    /// Where a single value of any length is put.
    single: Answers,
    outcome: Vec<WriteOutcome>,
    /// What was counted in former epochs.
    past_counters: Counters,
    past_meters: Meters,
}

impl Session {
    pub(crate) fn new(table: Table, access: Access, working: Working) -> Self {
        Self {
            value_bytes: table.value_bytes(),
            buffer_bytes: if table.values().are_blocks() { usize::MAX } else { table.value_bytes() },
            expiring: table.values().expiry().map(|expiry| Box::new(Expiring::new(expiry))),
            table,
            access,
            working,
            keys: Vec::new(),
            values: Vec::new(),
            bounds: Vec::new(),
            single: Answers::default(),
            outcome: Vec::with_capacity(1),
            past_counters: Counters::default(),
            past_meters: Meters::default(),
        }
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Bytes of each value; of the longest, if they have any length.
    #[must_use]
    #[inline]
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Bytes of what [`Session::get`] copies a value into; more than any has if they have any length.
    #[must_use]
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// True if values have any length.
    #[must_use]
    #[inline]
    pub fn has_blocks(&self) -> bool {
        self.buffer_bytes == usize::MAX
    }

    /// The server's epoch in which the last call was executed. It changes in a call only, when that had to
    /// connect again.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.working.backend.epoch()
    }

    /// Where the last call was executed. It changes in a call only.
    #[must_use]
    pub fn origin(&self) -> Origin {
        Origin { epoch: self.epoch(), table: self.working.info.id }
    }

    /// Copies the value of `key` into `value`, which must be as long as the table's values, and returns its
    /// version; `None`, with `value` undefined, if the key is absent. Allocates nothing.
    ///
    /// # Errors
    /// [`ReadError`]; of a table whose values have any length always [`ReadError::WrongBufferSize`]: see
    /// [`Session::get_into`].
    #[inline]
    pub fn get<K: SessionKey>(&mut self, key: K, value: &mut [u8]) -> Result<Option<u64>, ReadError> {
        K::get(self, key, value)
    }

    #[inline]
    pub(crate) fn get_integer(&mut self, key: u64, value: &mut [u8]) -> Result<Option<u64>, ReadError> {
        if value.len() != self.buffer_bytes {
            return Err(self.wrong_buffer_size(value.len()));
        }
        match self.working.engine.get(self.working.name_changes, key, value) {
            Got::Settled(version) => Ok((version != 0).then_some(version)),
            got => self.go_on_with_get(got, key, value),
        }
    }

    /// [`Session::get`] by a batch of one key.
    pub(crate) fn get_single<K: SessionKey>(
        &mut self,
        key: K,
        value: &mut [u8],
    ) -> Result<Option<u64>, ReadError> {
        if value.len() != self.buffer_bytes {
            return Err(self.wrong_buffer_size(value.len()));
        }
        self.with_single(key, |bytes| value.copy_from_slice(bytes))
    }

    /// A GET whose first attempt failed, or whose table may be another one by now.
    #[cold]
    #[inline(never)]
    fn go_on_with_get(&mut self, got: Got, key: u64, value: &mut [u8]) -> Result<Option<u64>, ReadError> {
        let mut first = Some(got);
        self.read(|engine, knows| first.take().unwrap_or_else(|| engine.get(knows, key, value)).into_read())
    }

    /// The value of `key`, whatever its length, in place of what `value` holds; returns its version. Returns
    /// `None`, with `value` undefined, if the key is absent. Allocates nothing once `value` is long enough.
    ///
    /// # Errors
    /// [`ReadError`].
    #[inline]
    pub fn get_into<K: SessionKey>(&mut self, key: K, value: &mut Vec<u8>) -> Result<Option<u64>, ReadError> {
        if self.has_blocks() {
            value.clear();
            return self.with_single(key, |bytes| value.extend_from_slice(bytes));
        }
        value.resize(self.value_bytes, 0);
        self.get(key, value)
    }

    /// Hands the value of `key` to `take`, if it is there, and returns its version.
    fn with_single<K: SessionKey>(
        &mut self,
        key: K,
        take: impl FnOnce(&[u8]),
    ) -> Result<Option<u64>, ReadError> {
        let mut single = std::mem::take(&mut self.single);
        let got = self.multi_get(&[key], &mut single);
        let found = single.iter().next().flatten().filter(|_| got.is_ok());
        let version = found.map(|(bytes, version)| {
            take(bytes);
            version
        });
        self.single = single;
        got.map(|()| version)
    }

    /// Values and versions of `keys`, any number of them, in their order. READs of many keys share a
    /// doorbell, so this is how to read fast. Allocates nothing once `answers` is warm.
    ///
    /// # Errors
    /// [`ReadError`]; then `answers` is undefined.
    #[inline]
    pub fn multi_get<K: SessionKey>(&mut self, keys: &[K], answers: &mut Answers) -> Result<(), ReadError> {
        self.read(|engine, knows| K::multi_get(engine, knows, keys, answers))?;
        self.take_deadlines(answers)
    }

    /// For each of `scans` the first pairs on the way from its start on, at most its limit.
    ///
    /// # Errors
    /// [`ReadError`]; then `pairs` is undefined.
    pub fn scan_batch(
        &mut self,
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), ReadError> {
        if self.expiring.is_some() {
            return self.scan_lasting(direction, scans, pairs);
        }
        self.scan_stored(direction, scans, pairs)
    }

    /// [`Session::scan_batch`] of keys alone: values are empty then, and versions mean nothing. What holds
    /// values is not read, unless pairs have deadlines, which stand there.
    ///
    /// # Errors
    /// [`ReadError`]; then `pairs` is undefined.
    pub fn scan_keys(
        &mut self,
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), ReadError> {
        if self.expiring.is_some() {
            self.scan_lasting(direction, scans, pairs)?;
            pairs.drop_values();
            return Ok(());
        }
        self.read(|engine, knows| engine.scan_keys(knows, direction, scans, pairs))
    }

    /// [`Session::scan_batch`] of what is stored of values, whether their deadlines have passed or not.
    pub(crate) fn scan_stored(
        &mut self,
        direction: Direction,
        scans: &[ScanRequest],
        pairs: &mut Pairs,
    ) -> Result<(), ReadError> {
        self.read(|engine, knows| engine.scan_batch(knows, direction, scans, pairs))
    }

    /// Asks the nodes of this epoch, or of the next, what time it is.
    pub(crate) fn ask_time(&mut self) -> Result<ServerTime, OpenError> {
        let mut attempts = 1;
        loop {
            match self.working.backend.time() {
                Ok(time) => return Ok(time),
                Err(error) => {
                    let error = OpenError::from(error);
                    let Some(loss) = error.loss(&*self.working.backend).cloned() else { return Err(error) };
                    self.renew(&mut attempts, loss)?;
                }
            }
        }
    }

    /// Fetches the whole model and translation table into the shared cache, instead of piece by piece on
    /// demand.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn prefill(&mut self) -> Result<(), ReadError> {
        self.read(|engine, knows| engine.prefill(knows))
    }

    /// What the engine counted since the session began.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = self.past_counters;
        counters += self.working.engine.counters();
        counters
    }

    /// What went over the queue pairs since the session began.
    #[must_use]
    pub fn meters(&self) -> Meters {
        let mut meters = self.past_meters;
        meters += self.working.engine.meters();
        meters
    }

    /// Runs a read, again if the connection turns out to be lost.
    #[inline]
    pub(crate) fn read<T>(
        &mut self,
        mut run: impl FnMut(&mut dyn Operations, u64) -> Read<T>,
    ) -> Result<T, ReadError> {
        let mut attempts = 1;
        loop {
            match run(&mut *self.working.engine, self.working.name_changes) {
                Ok(read) if read.is_settled => return Ok(read.found),
                Ok(read) => {
                    if !self.is_to_be_repeated(&mut attempts)? {
                        return Ok(read.found);
                    }
                }
                Err(error) => self.renew_for_read(&mut attempts, error)?,
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn wrong_buffer_size(&self, got_bytes: usize) -> ReadError {
        let table = self.table.name().to_owned();
        ReadError::WrongBufferSize { table, expected: self.table.values(), got_bytes }
    }

    /// Looks why a read that is done may be of another table than its name's. True if it is.
    #[cold]
    #[inline(never)]
    fn is_to_be_repeated(&mut self, attempts: &mut u32) -> Result<bool, ReadError> {
        match self.working.engine.name_changes() {
            Ok(Some(count)) if count <= self.working.name_changes => Ok(false),
            changed => self.has_moved_in_read(attempts, changed),
        }
    }

    /// Asks where the table's name leads, for a read that is done. True if it has to be done again.
    #[cold]
    fn has_moved_in_read(
        &mut self,
        attempts: &mut u32,
        changed: Result<Option<u64>, CatalogueError>,
    ) -> Result<bool, ReadError> {
        if *attempts >= ATTEMPTS_MAX && matches!(changed, Ok(Some(_))) {
            // It was done in the table to which the name led by the last answer, in this very call.
            return Ok(false);
        }
        let moved = changed.map_err(OpenError::from).and_then(|count| self.follow(count));
        match moved {
            Ok(has_moved) => {
                *attempts += u32::from(has_moved);
                Ok(has_moved)
            }
            Err(error) => match error.loss(&*self.working.backend).cloned() {
                Some(loss) => {
                    self.renew(attempts, loss).map_err(|error| self.reopen_for_read(error)).map(|()| true)
                }
                None => Err(self.reopen_for_read(error)),
            },
        }
    }

    #[cold]
    #[inline(never)]
    fn renew_for_read(&mut self, attempts: &mut u32, error: EngineError) -> Result<(), ReadError> {
        if LetGo::is_cause_of(&error) {
            return self.has_moved_in_read(attempts, Ok(None)).map(drop);
        }
        if let Some(loss) = error.loss(&*self.working.backend).cloned() {
            return self.renew(attempts, loss).map_err(|error| self.reopen_for_read(error));
        }
        *attempts += 1;
        let moved = self.has_moved_from(Some(&error)).map_err(|error| self.reopen_for_read(error))?;
        if moved && *attempts <= ATTEMPTS_MAX {
            return Ok(());
        }
        Err(ReadError::Engine { table: self.table.name().to_owned(), source: Box::new(error) })
    }

    pub(crate) fn reopen_for_read(&self, error: OpenError) -> ReadError {
        let table = self.table.name().to_owned();
        match error {
            OpenError::Catalogue(CatalogueError::Fabric(error)) => {
                ReadError::Engine { table, source: Box::new(error.into()) }
            }
            other => ReadError::Reopen { table, source: Box::new(other) },
        }
    }

    fn reopen_for_write(&self, error: OpenError) -> WriteError {
        let table = self.table.name().to_owned();
        match error {
            OpenError::Catalogue(CatalogueError::Fabric(error)) => {
                WriteError::Engine { table, source: Box::new(error.into()) }
            }
            other => WriteError::Reopen { table, source: Box::new(other) },
        }
    }

    /// Makes sure that what is sent next is not sent over a connection that is known to be lost, nor to a
    /// table that the name has left. A look at two words, if neither is so.
    fn connect_for_write(&mut self) -> Result<(), WriteError> {
        let mut attempts = 1;
        loop {
            let checked = self.working.engine.check().map_err(OpenError::from);
            let changed = checked.and_then(|()| Ok(self.working.engine.name_changes()?));
            match changed {
                Ok(Some(count)) if count <= self.working.name_changes => return Ok(()),
                changed => match changed.and_then(|count| self.follow(count)) {
                    Ok(_) => return Ok(()),
                    Err(error) => self.renew_for_write(&mut attempts, error)?,
                },
            }
        }
    }

    #[cold]
    fn renew_for_write(&mut self, attempts: &mut u32, error: OpenError) -> Result<(), WriteError> {
        let renewed = match error.loss(&*self.working.backend).cloned() {
            Some(loss) => self.renew(attempts, loss),
            None => Err(error),
        };
        renewed.map_err(|error| self.reopen_for_write(error))
    }

    /// Asks where the table's name leads after an operation failed. True if the session has moved; an error
    /// if the name leads nowhere. A session that cannot tell says that nothing has changed.
    fn has_moved_from(&mut self, error: Option<&EngineError>) -> Result<bool, OpenError> {
        if let Some(EngineError::Fabric(FabricError::TimedOut { .. } | FabricError::Forked)) = error {
            return Ok(false);
        }
        match self.follow(None) {
            Err(gone @ (OpenError::TableGone { .. } | OpenError::OtherDefinition { .. })) => Err(gone),
            followed => Ok(followed.unwrap_or(false)),
        }
    }

    /// Moves to the table to which the name leads, if that is another one; true if so. Of one that is gone
    /// the session lets go. `heard` is the count of name changes that its queue pair has heard of.
    #[cold]
    fn follow(&mut self, heard: Option<u64>) -> Result<bool, OpenError> {
        let backend = Arc::clone(&self.working.backend);
        let name_changes = backend.heard_name_changes()?.max(heard.unwrap_or_default());
        match self.table.open_in(&backend) {
            Ok(open) if Arc::ptr_eq(open.info(), &self.working.info) => {
                self.working.name_changes = self.working.name_changes.max(name_changes);
                return Ok(false);
            }
            Ok(_) => {}
            Err(gone @ (OpenError::TableGone { .. } | OpenError::OtherDefinition { .. })) => {
                self.keep_counts();
                self.working.engine = Box::new(LetGo);
                // A copy: no table that is opened is this one.
                self.working.info = Arc::new((*self.working.info).clone());
                return Err(gone);
            }
            Err(error) => return Err(error),
        }
        let working = self.table.attach(&backend, self.access, name_changes)?;
        self.work_with(working);
        Ok(true)
    }

    /// Goes on with something else.
    pub(crate) fn work_with(&mut self, working: Working) {
        self.keep_counts();
        if let Some(expiring) = &mut self.expiring {
            // Another server may have another clock.
            expiring.time = None;
        }
        self.working = working;
    }

    fn keep_counts(&mut self) {
        self.past_counters += self.working.engine.counters();
        self.past_meters += self.working.engine.meters();
    }

    /// Moves to an epoch with a connection, and opens the table there. Each loss, `loss` the first of them,
    /// counts as an attempt; but not, within a bound, a pool that changes its list of nodes meanwhile.
    fn renew(&mut self, attempts: &mut u32, mut loss: FabricError) -> Result<(), OpenError> {
        // The first one is over.
        let mut losses = Losses::behind(*attempts);
        while losses.attempts < ATTEMPTS_MAX {
            *attempts = losses.attempts + 1;
            let backend = self.table.shared().renew(&loss)?;
            match self.table.attach(&backend, self.access, 0) {
                Ok(working) => {
                    self.work_with(working);
                    return Ok(());
                }
                Err(error) => match error.loss(&*backend) {
                    Some(again) => {
                        losses.count(&*backend);
                        loss = again.clone();
                    }
                    None => return Err(error),
                },
            }
        }
        Err(loss.into())
    }
}
