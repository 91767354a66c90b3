//! The calls of one worker of a compute node that serves.
//!
//! Invariant: each call is executed at most once, and answered once. A refusal says that nothing of it was
//! executed; where that is not known, the answer is [`ErrorCode::Bug`]'s.
//!
//! Protocol: the worker parks each call that is sound. In its next step, when it has looked at all that were
//! waiting, it executes those of one table as one batch. Writes of one key are combined there. Then it
//! answers them. So a call waits for those that came with it, and for no other.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use farsight_base::ClientId;
use farsight_base::clock::{Deadline, MonotonicNs};
use farsight_base::report::with_causes;
use farsight_client::{FixedSession, Origin};
use farsight_fabric::{Answer, CallHandler, ServerPort, Ticket};
use farsight_index::Writes;
use farsight_node::{Executor, answer};
use farsight_protocol::{
    ErrorCode, HEADER_BYTES, KeyKind, ReplaceEntry, Reply, ReplyWriter, Request, SentOutcome, ServerError,
    TableId, WriteOperation, WriteOutcome,
};

use crate::Serving;
use crate::serving::ServedTable;

/// Bytes of a refusal at most.
const REFUSAL_BYTES_MAX: usize = 640;

/// What executes one worker's calls.
pub struct ProxyCalls {
    serving: Arc<Serving>,
    listener: usize,
    /// The worker's name, for the report of a bug.
    name: String,
    sessions: HashMap<TableId, FixedSession>,
    /// By table and epoch.
    waiting: Vec<Batch>,
}

/// Calls that are executed together.
struct Batch {
    /// The table, and in which epoch of the pool.
    origin: Origin,
    /// The earliest time until which one of them may find out what it replaces; none without writes.
    until: Option<MonotonicNs>,
    /// Each with the number of its writes.
    calls: Vec<(Ticket, usize)>,
    /// Keys one behind the other, and where each begins, and the last one ends.
    keys: Vec<u8>,
    key_bounds: Vec<usize>,
    values: Vec<u8>,
    bounds: Vec<usize>,
}

impl ProxyCalls {
    pub(crate) fn new(serving: Arc<Serving>, listener: usize, name: String) -> Self {
        Self { serving, listener, name, sessions: HashMap::new(), waiting: Vec::new() }
    }

    /// Parks a call, and returns how many writes it has.
    fn park(&mut self, ticket: Ticket, frame: &[u8]) -> Result<usize, ServerError> {
        let Request::Replace { table, epoch, until, entries } = Request::decode(frame)? else {
            let text = "this is a compute node, which replaces values in FlexKV tables for others. Connect to \
                        the pool's memory nodes";
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        };
        let until = MonotonicNs(until);
        if until <= self.serving.clock.now() && !entries.is_empty() {
            let text = "the call came too late by this compute node's clock";
            return Err(ServerError::new(ErrorCode::Contended, text));
        }
        if self.serving.tables().get(&table).is_some_and(|served| !has_byte_keys(served)) {
            // Here, so that no other call of the batch is refused with it.
            entries.iter().try_for_each(|entry| integer(entry.key).map(drop))?;
        }
        let origin = Origin { epoch, table };
        let known = self.waiting.iter().position(|batch| batch.origin == origin);
        let number = known.unwrap_or_else(|| {
            self.waiting.push(Batch::new(origin));
            self.waiting.len() - 1
        });
        let until = Some(until).filter(|_| !entries.is_empty());
        Ok(self.waiting[number].push((ticket, until), entries.iter()))
    }

    /// Executes a batch. What became of its writes, in their order, is in `outcomes`.
    fn execute(&mut self, batch: &Batch, outcomes: &mut Vec<WriteOutcome>) -> Result<(), ServerError> {
        let Batch { origin, until, .. } = batch;
        let unknown = || {
            let text = format!("this compute node does not write in table {}", origin.table.0);
            ServerError::new(ErrorCode::UnknownTable, text)
        };
        let served = self.serving.tables().get(&origin.table).cloned().ok_or_else(unknown)?;
        let session = match self.sessions.entry(origin.table) {
            Entry::Occupied(known) if known.get().is_of(*origin) => known.into_mut(),
            // A caller of an earlier epoch ends no session of this one.
            other => other.insert_entry(session_on(&served, *origin)?).into_mut(),
        };
        let Some(until) = until else { return Ok(()) };
        let until = Deadline::new(&self.serving.clock, *until);
        let keys: Vec<&[u8]> = batch.keys().collect();
        let written = if has_byte_keys(&served) {
            session.write_until(until, batch.writes(&keys), outcomes)
        } else {
            let integers = keys.iter().map(|key| integer(key)).collect::<Result<Vec<_>, _>>()?;
            session.write_until(until, batch.writes(&integers), outcomes)
        };
        let Err(error) = written else {
            served.count(&keys, keys.iter().collect::<HashSet<_>>().len());
            return Ok(());
        };
        if session.is_lost(&error) {
            self.sessions.remove(&origin.table);
        }
        let code = match error.refusal() {
            _ if error.is_indeterminate() => ErrorCode::Bug,
            Some(code) if code != ErrorCode::Bug => code,
            _ => ErrorCode::OutOfResources,
        };
        Err(ServerError::new(code, with_causes(&error)))
    }
}

/// A session on the table of this number, in this epoch. Numbers recur in the next one.
fn session_on(served: &ServedTable, origin: Origin) -> Result<FixedSession, ServerError> {
    let session = served
        .table
        .fixed_session()
        .map_err(|error| ServerError::new(ErrorCode::OutOfResources, with_causes(&error)))?;
    if session.is_of(origin) {
        return Ok(session);
    }
    let Origin { epoch, table } = session.origin();
    let text = format!(
        "the name {:?} leads to table {} of epoch {}, and not to {} of {}",
        served.table.name(),
        table.0,
        epoch.0,
        origin.table.0,
        origin.epoch.0
    );
    Err(ServerError::new(ErrorCode::UnknownTable, text))
}

/// True if the table's keys are bytes of any length.
fn has_byte_keys(served: &ServedTable) -> bool {
    served.table.info().definition.key_kind == KeyKind::Bytes
}

/// A key of a table whose keys are integers.
fn integer(key: &[u8]) -> Result<u64, ServerError> {
    key.try_into().map(u64::from_le_bytes).map_err(|_| {
        let text = format!("the table's keys are integers of 8 B, and a key of the call has {} B", key.len());
        ServerError::new(ErrorCode::BadRequest, text)
    })
}

impl Batch {
    fn new(origin: Origin) -> Self {
        let (calls, keys, values) = (Vec::new(), Vec::new(), Vec::new());
        Self { origin, until: None, calls, keys, key_bounds: vec![0], values, bounds: vec![0] }
    }

    /// How many writes it has.
    fn len(&self) -> usize {
        self.bounds.len() - 1
    }

    /// Their keys, in order.
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.key_bounds.windows(2).map(|ends| &self.keys[ends[0]..ends[1]])
    }

    /// The writes of these keys.
    fn writes<'b, K>(&'b self, keys: &'b [K]) -> Writes<'b, K> {
        Writes { operation: WriteOperation::Update, keys, values: &self.values, bounds: &self.bounds }
    }

    /// Takes up a call, and returns how many writes it has.
    fn push<'e>(
        &mut self,
        (ticket, until): (Ticket, Option<MonotonicNs>),
        entries: impl Iterator<Item = ReplaceEntry<'e>>,
    ) -> usize {
        self.until = self.until.into_iter().chain(until).min();
        let before = self.len();
        for ReplaceEntry { key, value } in entries {
            self.keys.extend_from_slice(key);
            self.key_bounds.push(self.keys.len());
            self.values.extend_from_slice(value);
            self.bounds.push(self.values.len());
        }
        let count = self.len() - before;
        self.calls.push((ticket, count));
        count
    }
}

impl CallHandler for ProxyCalls {
    fn handle(&mut self, _: ClientId, ticket: Ticket, frame: &[u8], reply: &mut Vec<u8>) -> Answer {
        let (serving, name) = (Arc::clone(&self.serving), std::mem::take(&mut self.name));
        let limit_bytes = serving.listeners.get(self.listener).message_bytes_max();
        let mut when = Answer::Now;
        answer(&serving.failure, &name, limit_bytes, reply, |_| {
            let count = self.park(ticket, frame)?;
            when = Answer::Later { reply_bytes_max: (HEADER_BYTES + 8 * count).max(REFUSAL_BYTES_MAX) };
            Ok(0)
        });
        self.name = name;
        when
    }
}

impl Executor for ProxyCalls {
    fn begin(&mut self, _: MonotonicNs) {}

    fn finish_late(&mut self, port: &mut dyn ServerPort) -> usize {
        let waiting = std::mem::take(&mut self.waiting);
        let (mut finished, mut reply, mut refusal) = (0, Vec::new(), Vec::new());
        let (serving, name) = (Arc::clone(&self.serving), self.name.clone());
        for batch in waiting {
            let mut outcomes = Vec::with_capacity(batch.len());
            answer(&serving.failure, &name, usize::MAX, &mut refusal, |reply| {
                ReplyWriter::new(reply);
                self.execute(&batch, &mut outcomes).map(|()| 0)
            });
            let is_refused = Reply::decode(&refusal).is_ok_and(|reply| reply.is_err());
            let mut rest = &outcomes[..];
            for (ticket, count) in &batch.calls {
                if is_refused {
                    port.finish(*ticket, &refusal);
                } else {
                    let (own, later) = rest.split_at(*count);
                    rest = later;
                    let mut writer = ReplyWriter::new(&mut reply);
                    for outcome in own {
                        writer.push_outcome(SentOutcome { outcome: *outcome, is_hint_wrong: false });
                    }
                    writer.set(*count as u32, serving.clock.now().0);
                    port.finish(*ticket, &reply);
                }
                finished += 1;
            }
        }
        finished
    }

    fn end(&mut self, _: &mut dyn ServerPort, _: usize) -> usize {
        0
    }

    fn has_late(&self) -> bool {
        !self.waiting.is_empty()
    }
}
