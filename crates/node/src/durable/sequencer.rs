//! The sequencer: it alone writes the tables of a node that keeps a log.
//!
//! Protocol of a group, of whatever waits:
//! 1. It decides each write, by the table and what the group has written before. It draws versions, and makes
//!    sure of the room.
//! 2. It appends the writes to the log as one frame, and begins to make that durable: the group *flies*. A
//!    crash before the end leaves nothing of the group, or all of it, and nobody was told.
//! 3. It decides the next group meanwhile, by what the flying group has written, too. That one waits: at
//!    most one group flies. It is not even written if the sync fails.
//! 4. When the sync has ended, the next group is appended and its sync begun. Then it applies the one that
//!    has landed, call by call: from now on clients see its writes.
//! 5. It answers each call when it is applied, so its client goes on meanwhile. A group without writes that
//!    has seen flying ones is answered no earlier.
//!
//! A group waits for more calls as long as the disk is busy. As soon as the disk is free, it flies if it has
//! [`LAUNCHED_BYTES`], though calls wait that could join it: they are decided while the disk works. Smaller
//! ones gain more by the sync that they share.
//!
//! Such a group is acknowledged when it is durable. There is another one for tables that are acknowledged in
//! *memory*: it leaves the log to the system, and passes the flying group. A table is acknowledged in one way
//! as long as it lives, so neither group looks at the other's writes. Calls to tables of memory are taken
//! first. Calls to one table keep their order.
//!
//! The frame of a group says what its calls are answered, too, if they may be repeated
//! ([`authors`](crate::authors)). An author that begins is answered once it is in the log, as a call to a
//! table of memory: nobody waits for a sync.
//!
//! Whatever depends on all writes before waits until nothing flies: another catalogue, bulk loads, snapshots.
//!
//! Nothing can fail behind the sync. If something does, that is a bug: the node refuses every call, and a
//! restart finds the group in the log. If the disk fails, nobody knows what is in the log: the node refuses
//! every call, too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use farsight_base::ClientId;
use farsight_base::clock::MonotonicNs;
use farsight_durability::{DurabilityError, FrameWriter, Log, LogPosition, Who};
use farsight_protocol::{Ack, ErrorCode, HEADER_BYTES, Request, ServerError, TableId, WriteOperation};

use super::group::{Entries, Group};
use super::help::Alone;
use super::load::LoggedLoad;
use super::log_helper::LogHelper;
use super::queue::{Due, Repair, WaitingCall};
use super::{Durable, refused};
use crate::bulk_load::{Loading, Piece};
use crate::logged::LoggedTable;
use crate::tables::View;
use crate::{LateReply, NodeState, Stop};

/// Where writes are acknowledged before they are durable: how long they take at most to be, and how many
/// bytes of them.
const SYNC_PAUSE: Duration = Duration::from_millis(50);
const SYNC_BYTES: u64 = 8 << 20;
/// Bytes of a frame that takes about as long to decide and apply as to sync.
const LAUNCHED_BYTES: usize = 16 << 10;
/// Bytes of calls, and of a group, that a worker decides or applies in its place at most, or a little more.
const HELPED_BYTES: usize = 256 << 10;
/// How often it looks for more work that joins a group. Each time it takes a bounded piece.
const TAKEN_TOGETHER: usize = 4;
/// The longest sleep with nothing to do.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// The sequencer of one node.
pub struct Sequencer {
    state: Arc<NodeState>,
    durable: Arc<Durable>,
    log: Log,
    view: View,
    /// In the log, and perhaps not durable: not applied.
    flying: Group,
    /// What is decided now.
    group: Group,
    /// The same for tables that are acknowledged in memory.
    in_memory: Group,
    loads: BTreeMap<TableId, Loading<LoggedLoad>>,
    /// Groups in a row that a worker decided, of one call each, with none under way.
    alone: Alone,
    /// Who takes this step, as far as syncs matter.
    who: Who,
    /// Since when something appended is covered by no sync, and how much had been appended when all was.
    unsynced_since: Option<MonotonicNs>,
    synced_bytes: u64,
}

impl Sequencer {
    pub(super) fn new(state: Arc<NodeState>, durable: Arc<Durable>, log: Log) -> Self {
        durable.set_position(log.position(), log.appended_bytes());
        Self {
            state,
            durable,
            log,
            view: View::default(),
            flying: Group::default(),
            group: Group::default(),
            in_memory: Group::default(),
            loads: BTreeMap::new(),
            alone: Alone::default(),
            who: Who::Busy,
            unsynced_since: None,
            synced_bytes: 0,
        }
    }

    /// Works until `stop`. Workers help it meanwhile.
    pub(crate) fn run(self, stop: &Stop) {
        let durable = Arc::clone(&self.durable);
        let shared = Arc::new(Mutex::new(self));
        durable.help.offer(&shared);
        while !stop.is_raised() {
            // A worker that panicked in its place left who knows what: calls that wait are refused.
            let Ok(mut own) = shared.lock() else { return durable.queue.close() };
            let sleep_max = own.unsynced_since.map_or(SLEEP_MAX, |_| SYNC_PAUSE);
            let is_any = own.advance();
            drop(own);
            if !is_any
                && !durable.queue.wait(sleep_max)
                && let Ok(mut own) = shared.lock()
            {
                own.finish_all();
            }
        }
        if let Ok(mut own) = shared.lock() {
            own.finish_all();
            if own.state.failure().is_none() {
                let synced = own.sync();
                own.fail_if(synced.err());
            }
        }
        durable.queue.close();
    }

    /// Takes a step in a worker's thread, if it is a short one that waits for nothing: decides short calls,
    /// and lets them fly if the disk is free. A worker for `who` nobody else waits does the sync of a write
    /// that is alone. `tell` is called if a sync is under way then: the worker is to help again when that has
    /// ended. False if something is left to the sequencer's own thread.
    pub(super) fn help(&mut self, who: Who, tell: impl FnOnce()) -> bool {
        let is_short = self.group.frame.len().max(self.flying.frame.len()) <= HELPED_BYTES;
        if !is_short || !self.view.is_current(&self.state.tables) || self.state.failure().is_some() {
            return false;
        }
        let is_free = self.flying.is_empty();
        for due in self.durable.queue.take_short(HELPED_BYTES) {
            self.take(due);
        }
        if !self.group.is_empty() {
            self.alone.note(is_free && self.group.is_single() && self.in_memory.is_empty());
        }
        // To begin a segment takes several syncs.
        if !self.log.has_room(&[self.in_memory.frame_bytes_max(), self.group.frame_bytes_max()]) {
            return false;
        }
        let had_unsynced = self.unsynced_since.is_some();
        self.finish_in_memory();
        if !self.log.is_syncing() {
            self.who = if who == Who::Idle { self.alone.who() } else { Who::Busy };
            self.launch();
            self.who = Who::Busy;
        }
        if self.log.is_syncing() {
            tell();
        }
        // The thread sleeps no longer than until it has to sync what is acknowledged in memory.
        let is_thread_asleep_too_long = !had_unsynced && self.unsynced_since.is_some();
        !is_thread_asleep_too_long && !self.is_sync_due() && self.durable.queue.is_empty()
    }

    /// What does its syncs and makes its spares, in threads of their own.
    pub(crate) fn helper(&self) -> LogHelper {
        let (syncs, spares) = (Arc::clone(self.log.syncs()), Arc::clone(self.log.spares()));
        LogHelper::new(Arc::clone(&self.durable), syncs, spares)
    }

    /// True if a sync was begun, and nobody has done it.
    #[must_use]
    pub fn is_syncing(&self) -> bool {
        self.log.is_syncing()
    }

    /// Does the sync that was begun, in the place of a helper. What it said is met in the next step.
    pub fn do_sync(&self) {
        self.log.syncs().do_wanted();
    }

    /// Does what waits, or some of it, to its end. Returns whether there was any.
    pub fn step(&mut self) -> bool {
        let is_any = self.advance();
        self.finish_all();
        is_any
    }

    /// Does what waits, or some of it. Returns whether there was any. The last group may fly then, and
    /// another be decided: the next step goes on with them.
    ///
    /// What comes while it decides joins the group, also while another one flies: a sync costs the same
    /// whatever it covers.
    pub fn advance(&mut self) -> bool {
        self.refresh();
        self.loads.retain(|id, _| self.view.has(*id));
        let mut is_any = false;
        for _ in 0..TAKEN_TOGETHER {
            let work = self.durable.queue.take();
            if work.is_empty() {
                break;
            }
            is_any = true;
            self.alone.note(false);
            self.take_all(work);
        }
        self.finish_in_memory();
        if !self.log.is_syncing() || self.group.is_full() {
            self.launch();
        }
        if self.is_sync_due() && !self.log.is_syncing() && self.state.failure().is_none() {
            let begun = self.begin_sync();
            self.fail_if(begun.err());
        }
        is_any
    }

    /// Takes work, calls to tables of memory before other calls. What is no call keeps its place among them.
    fn take_all(&mut self, work: impl IntoIterator<Item = Due>) {
        let mut waiting_for_disk = Vec::new();
        for due in work {
            match due {
                Due::Call(call) if self.ack_of(&call) == Ack::Memory => self.take_call(call),
                Due::Call(call) => waiting_for_disk.push(call),
                other => {
                    self.take_calls(&mut waiting_for_disk);
                    self.take(other);
                }
            }
        }
        self.take_calls(&mut waiting_for_disk);
    }

    /// Takes calls that wait for the disk. Those before that do not are answered first.
    fn take_calls(&mut self, waiting_for_disk: &mut Vec<WaitingCall>) {
        if !waiting_for_disk.is_empty() {
            self.finish_in_memory();
        }
        for call in waiting_for_disk.drain(..) {
            self.take_call(call);
            if self.group.frame.len() >= LAUNCHED_BYTES && !self.log.is_syncing() {
                self.launch();
            }
        }
    }

    /// When a call is acknowledged.
    fn ack_of(&self, call: &WaitingCall) -> Ack {
        call.ack.unwrap_or(self.durable.ack)
    }

    /// Looks at the catalogue again if it has changed. Groups are applied by the view by which they were
    /// decided, so they end before.
    fn refresh(&mut self) {
        if !self.view.is_current(&self.state.tables) {
            self.finish_all();
            self.view.refresh(&self.state.tables);
        }
    }

    /// The same if the view lacks this table.
    fn see(&mut self, table: TableId) {
        if !self.view.has(table) {
            self.refresh();
        }
    }

    fn take(&mut self, work: Due) {
        match work {
            Due::Call(call) => self.take_call(call),
            Due::Departed(client) => self.loads.values().for_each(|load| load.end_of(client)),
            Due::Repair(repair) => {
                self.see(repair.table);
                let Repair { table, key, version, value, done } = repair;
                let hosted = self.view.get(table).map(|found| found.hosted().logged());
                let repaired = hosted.and_then(|logged| match logged {
                    Some(logged) => logged.repair(key, version, &value),
                    None => Ok(false),
                });
                // As below.
                let _ = done.try_send(repaired);
            }
            Due::BeginAuthor(author, reply) => self.in_memory.begin_author(author, reply),
            Due::BeginRound(begun) => {
                self.finish_all();
                let position = self.log.position();
                let synced = self.note_authors().and_then(|()| self.sync());
                if self.fail_if(synced.err()) {
                    // As below.
                    let _ = begun.try_send(position);
                }
            }
            Due::Settle(settled) => {
                self.finish_all();
                let synced = self.sync();
                if self.fail_if(synced.err()) {
                    // One that does not wait any more needs no answer.
                    let _ = settled.try_send(self.log.position());
                }
            }
        }
    }

    fn take_call(&mut self, call: WaitingCall) {
        let ack = self.ack_of(&call);
        let WaitingCall { client, request, reply, .. } = call;
        if let Err(error) = self.state.failure.check() {
            return reply.refuse(&error);
        }
        match Request::decode(&request) {
            Ok(Request::Write { table, operation, entries }) => {
                self.decide(ack, table, operation, Entries::OfOneSize(entries), reply);
            }
            Ok(Request::WriteValues { table, operation, entries }) => {
                let room_bytes = reply.bytes_max() - HEADER_BYTES;
                self.decide(ack, table, operation, Entries::OfAnyLength(entries, room_bytes), reply);
            }
            Ok(Request::WriteStaged { table, write }) => {
                self.decide_in(ack, table, reply, |group, flying, logged, reply| {
                    group.decide_staged(flying, table, logged, client, write, reply);
                });
            }
            Ok(Request::BulkLoad { table, last, piece, entries }) => {
                self.load(table, client, Piece::of_one_size(piece, last, entries), reply);
            }
            Ok(Request::LoadValues { table, last, piece, entries }) => {
                self.load(table, client, Piece::of_any_length(piece, last, entries), reply);
            }
            Ok(Request::LoadLong { table, part }) => {
                self.load(table, client, Piece::of_long_value(part), reply);
            }
            Ok(_) => reply.refuse(&ServerError::new(ErrorCode::BadRequest, "this call writes nothing")),
            Err(error) => reply.refuse(&error.into()),
        }
    }

    fn decide(
        &mut self,
        ack: Ack,
        table: TableId,
        operation: WriteOperation,
        entries: Entries<'_>,
        reply: LateReply,
    ) {
        self.decide_in(ack, table, reply, |group, flying, logged, reply| {
            group.decide(flying, table, logged, operation, entries, reply);
        });
    }

    /// Has the group of tables that are acknowledged so decide something.
    fn decide_in(
        &mut self,
        ack: Ack,
        table: TableId,
        reply: LateReply,
        decide: impl FnOnce(&mut Group, &mut Group, &dyn LoggedTable, LateReply),
    ) {
        self.see(table);
        if let Some(load) = self.loads.get(&table) {
            load.end_by_write();
        }
        let group = match ack {
            Ack::Durable => &mut self.group,
            Ack::Memory => &mut self.in_memory,
        };
        match self.view.get(table).map(|found| found.hosted().logged()) {
            Ok(Some(logged)) => decide(group, &mut self.flying, logged, reply),
            Ok(None) => reply.refuse(&unlogged(table)),
            Err(error) => reply.refuse(&error),
        }
    }

    /// Takes a piece of a load and answers it. The load is of an empty table: all writes before are applied.
    fn load(&mut self, table: TableId, client: ClientId, piece: Piece<'_>, reply: LateReply) {
        self.finish_all();
        self.see(table);
        match self.take_piece(table, client, piece) {
            Ok(loaded) => reply.answer(|writer| writer.set(piece.pairs(), loaded)),
            Err(error) => reply.refuse(&error),
        }
    }

    fn take_piece(&mut self, id: TableId, client: ClientId, piece: Piece<'_>) -> Result<u64, ServerError> {
        let table = self.view.get(id)?;
        let logged = table.hosted().logged().ok_or_else(|| unlogged(id))?;
        let (durable, failure) = (Arc::clone(&self.durable), Arc::clone(&self.state.failure));
        let begin = || {
            let load = logged.begin_load(None)?;
            Ok(LoggedLoad::begin(durable, failure, id.0, load, logged.version_max()))
        };
        let loading = self.loads.entry(id).or_default();
        let loaded = loading.take(table.name(), client, piece, begin)?;
        if piece.last {
            logged.want_training();
            self.state.wake_background();
        }
        Ok(loaded)
    }

    /// Logs, applies and answers what was decided for tables of memory, whatever flies.
    fn finish_in_memory(&mut self) {
        if self.in_memory.is_empty() {
            return;
        }
        if !self.in_memory.is_logged() {
            return self.in_memory.answer();
        }
        if let Err(error) = self.append(Ack::Memory) {
            return self.refuse_unlogged(Ack::Memory, error);
        }
        if self.in_memory.has_changes() {
            self.unsynced_since.get_or_insert(self.durable.pace.now());
        }
        // What flies stands before it in the log, and is not applied.
        let end = self.flying.is_empty().then(|| self.end());
        self.complete(Ack::Memory, end);
    }

    /// Appends what was decided for such tables, with its notes, as one frame.
    fn append(&mut self, ack: Ack) -> Result<(), DurabilityError> {
        let group = match ack {
            Ack::Durable => &mut self.group,
            Ack::Memory => &mut self.in_memory,
        };
        let authors = &self.state.authors;
        #[cfg(injected)]
        if crate::injected::NOTE_BEHIND_WRITES.is_injected() && group.has_changes() {
            self.log.append(&mut group.frame)?;
            let mut behind = FrameWriter::default();
            group.note_in(&mut behind, authors);
            return if behind.is_empty() { Ok(()) } else { self.log.append(&mut behind) };
        }
        group.note(authors);
        self.log.append(&mut group.frame)
    }

    /// Notes all authors anew, so that a round of snapshots may remove segments that have noted them. On a
    /// full disk it does not: a restart will not know them, and executes nothing twice for that.
    fn note_authors(&mut self) -> Result<(), DurabilityError> {
        #[cfg(injected)]
        if crate::injected::NOTES_END_WITH_SEGMENT.is_injected() {
            return Ok(());
        }
        let mut frame = FrameWriter::default();
        self.state.authors.push_all(&mut frame);
        if frame.is_empty() {
            return Ok(());
        }
        match self.log.append(&mut frame) {
            Err(DurabilityError::Full { .. }) => Ok(()),
            appended => appended,
        }
    }

    /// Ends the sync that was begun, lets what was decided fly, and applies and answers what flew. On a disk
    /// whose syncs are quick that has landed already: nobody would come back for it.
    fn launch(&mut self) {
        self.launch_once();
        if !self.flying.is_empty() && self.log.has_landed() {
            self.launch_once();
        }
    }

    fn launch_once(&mut self) {
        if let Err(error) = self.log.end_sync() {
            self.fail_if(Some(error));
            self.flying.unstage(&self.view);
            self.flying.refuse(&self.state.failure.unknown_outcome());
            // Nothing of it was written.
            self.group.unstage(&self.view);
            return self.group.refuse(&self.state.failure.check().expect_err("one was recorded"));
        }
        let end = self.end();
        let has_writes = !self.group.frame.is_empty();
        let logged =
            if has_writes { self.append(Ack::Durable).and_then(|()| self.begin_sync()) } else { Ok(()) };
        if !self.flying.is_empty() {
            self.complete(Ack::Durable, Some(end));
        }
        match logged {
            Ok(()) if has_writes => {
                std::mem::swap(&mut self.group, &mut self.flying);
                #[cfg(injected)]
                self.hurry();
            }
            // All that it has seen is durable.
            Ok(()) => self.group.answer(),
            Err(error) => self.refuse_unlogged(Ack::Durable, error),
        }
    }

    /// Finishes all that was decided: nothing flies then.
    fn finish_all(&mut self) {
        self.finish_in_memory();
        self.launch();
        self.launch();
    }

    /// Applies and answers a group that is in the log as its tables want: the flying one, or that of memory.
    /// `end` is where the log ended, if all before is applied then.
    fn complete(&mut self, ack: Ack, end: Option<(LogPosition, u64)>) {
        let group = match ack {
            Ack::Durable => &mut self.flying,
            Ack::Memory => &mut self.in_memory,
        };
        match self.state.failure.check().and_then(|()| group.complete(&self.view, &self.durable.touched)) {
            Ok(wants_training) => {
                if let Some((position, appended_bytes)) = end {
                    self.durable.set_position(position, appended_bytes);
                }
                if wants_training {
                    self.state.wake_background();
                }
            }
            Err(error) => {
                self.state.failure.record("applying what the log has", &error.to_string());
                group.refuse(&self.state.failure.unknown_outcome());
            }
        }
    }

    /// Refuses a group that the log did not take.
    fn refuse_unlogged(&mut self, ack: Ack, error: DurabilityError) {
        let is_full = matches!(error, DurabilityError::Full { .. });
        let refusal = if is_full {
            refused(&error)
        } else {
            self.fail_if(Some(error));
            self.state.failure.unknown_outcome()
        };
        let group = match ack {
            Ack::Durable => &mut self.group,
            Ack::Memory => &mut self.in_memory,
        };
        group.unstage(&self.view);
        group.refuse(&refusal);
    }

    /// What the injected bugs do with a group whose sync has begun.
    #[cfg(injected)]
    fn hurry(&mut self) {
        if crate::injected::APPLIED_BEFORE_SYNC.is_injected() {
            self.flying.apply_early(&self.view);
        }
        if crate::injected::ANSWERED_BEFORE_SYNC.is_injected() {
            self.complete(Ack::Durable, Some(self.end()));
        }
    }

    /// True if something that was acknowledged in memory should become durable now.
    fn is_sync_due(&self) -> bool {
        self.unsynced_since.is_some_and(|since| self.durable.pace.now().since(since) >= SYNC_PAUSE)
            || self.log.appended_bytes() - self.synced_bytes > SYNC_BYTES
    }

    /// Where the log ends, and how much was appended.
    fn end(&self) -> (LogPosition, u64) {
        (self.log.position(), self.log.appended_bytes())
    }

    fn begin_sync(&mut self) -> Result<(), DurabilityError> {
        self.log.begin_sync(self.who)?;
        self.unsynced_since = None;
        self.synced_bytes = self.log.appended_bytes();
        Ok(())
    }

    /// Makes all durable that was appended. Nothing flies.
    fn sync(&mut self) -> Result<(), DurabilityError> {
        if !self.log.is_durable() {
            self.begin_sync()?;
        }
        self.log.end_sync()
    }

    /// Lets the node refuse everything after an error. True without one.
    fn fail_if(&self, error: Option<DurabilityError>) -> bool {
        let Some(error) = error else { return true };
        self.state.failure.record("the log", &error.to_string());
        false
    }
}

/// Nobody takes its place: calls that wait are refused, and who waits for it is told.
impl Drop for Sequencer {
    fn drop(&mut self) {
        self.durable.queue.close();
    }
}

fn unlogged(table: TableId) -> ServerError {
    let text = format!("table number {} has no log", table.0);
    ServerError::new(ErrorCode::BadRequest, text)
}
