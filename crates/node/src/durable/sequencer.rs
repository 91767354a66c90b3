//! The sequencer: it alone writes the tables of a node that keeps a log.
//!
//! Protocol of a group, of whatever waits:
//! 1. It decides each write, by the table and what the group has written before. It draws versions, and makes
//!    sure of the room.
//! 2. It appends the writes to the log as one frame, and makes that durable. A crash before leaves nothing of
//!    the group, or all of it, and nobody was told.
//! 3. It applies the writes: from now on clients see them.
//! 4. It answers.
//!
//! A group has one way to be acknowledged: durable, as above, or *memory*, where step 2 leaves the log to
//! the system. Calls to tables of memory are taken first. Calls to one table keep their order.
//!
//! Nothing can fail behind step 2. If something does, that is a bug: the node refuses every call, and a
//! restart finds the group in the log. If the disk fails, nobody knows what is in the log: the node refuses
//! every call, too.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use farsight_durability::{DurabilityError, Log};
use farsight_protocol::{Ack, ErrorCode, HEADER_BYTES, Request, ServerError, TableId, WriteOperation};

use super::group::{Entries, Group};
use super::load::LoggedLoad;
use super::queue::{Due, WaitingCall};
use super::{Durable, refused};
use crate::bulk_load::{Loading, Piece};
use crate::tables::View;
use crate::{LateReply, NodeState, Stop};

/// Where writes are acknowledged before they are durable: how long they take at most to be, and how many
/// bytes of them.
const SYNC_PAUSE: Duration = Duration::from_millis(50);
const SYNC_BYTES: u64 = 8 << 20;
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
    group: Group,
    /// How the group is acknowledged.
    group_ack: Ack,
    loads: BTreeMap<TableId, Loading<LoggedLoad>>,
    /// Since when something appended is not durable, and how much had been appended when all was.
    unsynced_since: Option<Instant>,
    synced_bytes: u64,
}

impl Sequencer {
    pub(super) fn new(state: Arc<NodeState>, durable: Arc<Durable>, log: Log) -> Self {
        durable.set_position(log.position(), log.appended_bytes());
        let group_ack = durable.ack;
        Self {
            group_ack,
            state,
            durable,
            log,
            view: View::default(),
            group: Group::default(),
            loads: BTreeMap::new(),
            unsynced_since: None,
            synced_bytes: 0,
        }
    }

    /// Works until `stop`.
    pub(crate) fn run(&mut self, stop: &Stop) {
        while !stop.is_raised() {
            if !self.step() {
                self.durable.queue.wait(self.unsynced_since.map_or(SLEEP_MAX, |_| SYNC_PAUSE));
            }
        }
        if self.state.failure().is_none() {
            let synced = self.sync();
            self.fail_if(synced.err());
        }
        self.durable.queue.close();
    }

    /// Does what waits, or some of it. Returns whether there was any.
    ///
    /// What comes while it decides joins the group: a sync costs the same whatever it covers.
    pub fn step(&mut self) -> bool {
        self.view.refresh(&self.state.tables);
        self.loads.retain(|id, _| self.view.has(*id));
        let mut is_any = false;
        for _ in 0..TAKEN_TOGETHER {
            let work = self.durable.queue.take();
            if work.is_empty() {
                break;
            }
            is_any = true;
            self.take_all(work);
        }
        self.finish_group();
        let is_due = self.unsynced_since.is_some_and(|since| since.elapsed() >= SYNC_PAUSE)
            || self.log.appended_bytes() - self.synced_bytes > SYNC_BYTES;
        if is_due && self.state.failure().is_none() {
            let synced = self.sync();
            self.fail_if(synced.err());
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
                    for call in waiting_for_disk.drain(..) {
                        self.take_call(call);
                    }
                    self.take(other);
                }
            }
        }
        for call in waiting_for_disk {
            self.take_call(call);
        }
    }

    /// When a call is acknowledged.
    fn ack_of(&self, call: &WaitingCall) -> Ack {
        call.ack.unwrap_or(self.durable.ack)
    }

    /// Looks at the catalogue again if it has come to hold this table since the group began. A group is
    /// applied by the view by which it was decided, so it ends before.
    fn see(&mut self, table: TableId) {
        if !self.view.has(table) {
            self.finish_group();
            self.view.refresh(&self.state.tables);
        }
    }

    fn take(&mut self, work: Due) {
        match work {
            Due::Call(call) => self.take_call(call),
            Due::Departed(client) => self.loads.values().for_each(|load| load.end_of(client)),
            Due::Settle(settled) => {
                self.finish_group();
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
        if ack != self.group_ack {
            self.finish_group();
            self.group_ack = ack;
        }
        let WaitingCall { client, request, reply, .. } = call;
        if let Err(error) = self.state.failure.check() {
            return reply.refuse(&error);
        }
        match Request::decode(&request) {
            Ok(Request::Write { table, operation, entries }) => {
                self.decide(table, operation, Entries::OfOneSize(entries), reply);
            }
            Ok(Request::WriteValues { table, operation, entries }) => {
                let room_bytes = reply.bytes_max() - HEADER_BYTES;
                self.decide(table, operation, Entries::OfAnyLength(entries, room_bytes), reply);
            }
            Ok(Request::BulkLoad { table, last, piece, entries }) => {
                // The load is of an empty table: all writes before are applied.
                self.finish_group();
                self.see(table);
                let piece = Piece { number: piece, last, entries };
                match self.load(table, client, piece) {
                    Ok(loaded) => reply.answer(|writer| writer.set(entries.len() as u32, loaded)),
                    Err(error) => reply.refuse(&error),
                }
            }
            Ok(_) => reply.refuse(&ServerError::new(ErrorCode::BadRequest, "this call writes nothing")),
            Err(error) => reply.refuse(&error.into()),
        }
    }

    fn decide(&mut self, table: TableId, operation: WriteOperation, entries: Entries<'_>, reply: LateReply) {
        self.see(table);
        if let Some(load) = self.loads.get(&table) {
            load.end_by_write();
        }
        match self.view.get(table).map(|found| found.hosted().logged()) {
            Ok(Some(logged)) => self.group.decide(table, logged, operation, entries, reply),
            Ok(None) => reply.refuse(&unlogged(table)),
            Err(error) => reply.refuse(&error),
        }
    }

    fn load(
        &mut self,
        id: TableId,
        client: farsight_base::ClientId,
        piece: Piece<'_>,
    ) -> Result<u64, ServerError> {
        let table = self.view.get(id)?;
        let logged = table.hosted().logged().ok_or_else(|| unlogged(id))?;
        let (durable, failure) = (Arc::clone(&self.durable), Arc::clone(&self.state.failure));
        let begin =
            || LoggedLoad::begin(durable, failure, id.0, logged.begin_load(None)?, logged.version_max());
        let loading = self.loads.entry(id).or_default();
        let loaded = loading.take(table.name(), client, piece, begin)?;
        if piece.last {
            logged.want_training();
            self.state.wake_background();
        }
        Ok(loaded)
    }

    /// Logs, applies and answers the group.
    fn finish_group(&mut self) {
        if self.group.is_empty() {
            return;
        }
        if self.group.frame.is_empty() {
            return self.group.answer();
        }
        let logged = self.log.append(&mut self.group.frame).and_then(|()| self.make_durable());
        if let Err(error) = logged {
            self.group.unstage(&self.view);
            if matches!(error, DurabilityError::Full { .. }) {
                return self.group.refuse(&refused(&error));
            }
            self.fail_if(Some(error));
            return self.group.refuse(&self.state.failure.unknown_outcome());
        }
        match self.group.apply(&self.view) {
            Ok(wants_training) => {
                self.durable.set_position(self.log.position(), self.log.appended_bytes());
                self.group.answer();
                if wants_training {
                    self.state.wake_background();
                }
            }
            Err(error) => {
                self.state.failure.record("applying what the log has", &error.to_string());
                self.group.refuse(&self.state.failure.unknown_outcome());
            }
        }
    }

    fn make_durable(&mut self) -> Result<(), DurabilityError> {
        #[cfg(injected)]
        if crate::injected::ANSWERED_BEFORE_SYNC.is_injected() {
            return Ok(());
        }
        match self.group_ack {
            Ack::Durable => self.sync(),
            Ack::Memory => {
                self.unsynced_since.get_or_insert_with(Instant::now);
                Ok(())
            }
        }
    }

    fn sync(&mut self) -> Result<(), DurabilityError> {
        if !self.log.is_durable() {
            self.log.sync()?;
        }
        self.unsynced_since = None;
        self.synced_bytes = self.log.appended_bytes();
        Ok(())
    }

    /// Lets the node refuse everything after an error. True without one.
    fn fail_if(&self, error: Option<DurabilityError>) -> bool {
        let Some(error) = error else { return true };
        self.state.failure.record("the log", &error.to_string());
        false
    }
}

fn unlogged(table: TableId) -> ServerError {
    let text = format!("table number {} has no log", table.0);
    ServerError::new(ErrorCode::BadRequest, text)
}
