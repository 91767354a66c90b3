//! The calls of one worker of a compute node that serves.
//!
//! Invariant: each call is executed at most once, and answered once. A refusal says that nothing of it was
//! executed; where that is not known, the answer is [`ErrorCode::Bug`]'s.
//!
//! Protocol: the worker parks each call that is sound. In its next step, when it has looked at all that were
//! waiting, it executes those of one table as one batch, whatever they do. Writes of one key are executed
//! together there. Then it answers them. Questions about keys of one table are another batch, behind the
//! writes ([`looks`](crate::looks)). So a call waits for those that came with it, and for no other.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use farsight_base::ClientId;
use farsight_base::clock::{Deadline, MonotonicNs};
use farsight_base::report::with_causes;
use farsight_client::{FixedSession, Origin};
use farsight_fabric::{Answer, CallHandler, ServerPort, Ticket};
use farsight_index::{EngineError, Key, MixedWrites, OldValues};
use farsight_node::{Executor, answer};
use farsight_protocol::{
    DelegatedEntries, DelegatedEntry, ErrorCode, FindWanted, HEADER_BYTES, INTEGER_BYTES, KeyKind, Reply,
    ReplyWriter, Request, SentOutcome, ServerError, TableId, WriteOperation, WriteOutcome,
};

use crate::Serving;
use crate::looks::{self, FindError, Found, Looks};
use crate::serving::ServedTable;

/// Bytes of a refusal at most.
pub(crate) const REFUSAL_BYTES_MAX: usize = 640;

/// What executes one worker's calls.
pub struct ProxyCalls {
    serving: Arc<Serving>,
    listener: usize,
    /// The worker's name, for the report of a bug.
    name: String,
    sessions: HashMap<TableId, FixedSession>,
    /// By table and epoch.
    waiting: Vec<Batch>,
    looking: Vec<Looks>,
}

/// Calls that are executed together.
struct Batch {
    /// The table, and in which epoch of the pool.
    origin: Origin,
    /// The earliest time until which one of them may find out what it replaces; none without writes.
    until: Option<MonotonicNs>,
    calls: Vec<Call>,
    operations: Vec<WriteOperation>,
    /// Keys one behind the other, and where each begins, and the last one ends.
    keys: Vec<u8>,
    key_bounds: Vec<usize>,
    operands: Vec<u8>,
    bounds: Vec<usize>,
}

/// A call of a batch.
struct Call {
    ticket: Ticket,
    /// Its writes, all of one kind.
    writes: usize,
    operation: WriteOperation,
    /// Bytes of its reply at most.
    reply_bytes_max: usize,
}

impl ProxyCalls {
    pub(crate) fn new(serving: Arc<Serving>, listener: usize, name: String) -> Self {
        Self { serving, listener, name, sessions: HashMap::new(), waiting: Vec::new(), looking: Vec::new() }
    }

    /// Parks a call, and returns how many bytes its reply has at most.
    fn park(&mut self, ticket: Ticket, frame: &[u8], limit_bytes: usize) -> Result<usize, ServerError> {
        let request = Request::decode(frame)?;
        if let Request::Find { table, epoch, wanted, entries } = request {
            return self.park_look((ticket, limit_bytes), Origin { epoch, table }, wanted, entries);
        }
        let Request::Delegate { table, epoch, until, operation, entries } = request else {
            let text = "this is a compute node, which serves others in FlexKV tables. Connect to the \
                        pool's memory nodes";
            return Err(ServerError::new(ErrorCode::BadRequest, text));
        };
        let until = MonotonicNs(until);
        if until <= self.serving.clock.now() && !entries.is_empty() {
            let text = "the call came too late by this compute node's clock";
            return Err(ServerError::new(ErrorCode::Contended, text));
        }
        // Here, so that no other call of the batch is refused with it.
        let served = self.serving.table(table)?;
        if !has_byte_keys(&served) {
            entries.iter().try_for_each(|entry| integer(entry.key).map(drop))?;
        }
        let reply_bytes_max = check_reply(reply_bytes_max(&served, operation, entries.len()), limit_bytes)?;
        let origin = Origin { epoch, table };
        let known = self.waiting.iter().position(|batch| batch.origin == origin);
        let number = known.unwrap_or_else(|| {
            self.waiting.push(Batch::new(origin));
            self.waiting.len() - 1
        });
        let until = Some(until).filter(|_| !entries.is_empty());
        let call = Call { ticket, writes: entries.len(), operation, reply_bytes_max };
        self.waiting[number].push(call, until, entries.iter());
        Ok(reply_bytes_max)
    }

    /// Parks a question about keys, and returns how many bytes its reply has at most.
    fn park_look(
        &mut self,
        (ticket, limit_bytes): (Ticket, usize),
        origin: Origin,
        wanted: FindWanted,
        entries: DelegatedEntries<'_>,
    ) -> Result<usize, ServerError> {
        let served = self.serving.table(origin.table)?;
        if !has_byte_keys(&served) {
            entries.iter().try_for_each(|entry| integer(entry.key).map(drop))?;
        }
        let most = looks::reply_bytes_max(&served, wanted, entries.len());
        let reply_bytes_max = check_reply(most, limit_bytes)?;
        let is_one = |looks: &Looks| looks.origin == origin && looks.wanted == wanted;
        let known = self.looking.iter().position(is_one);
        let number = known.unwrap_or_else(|| {
            self.looking.push(Looks::new(origin, wanted));
            self.looking.len() - 1
        });
        self.looking[number].push(ticket, reply_bytes_max, entries);
        Ok(reply_bytes_max)
    }

    /// A session on a table, in this epoch, and the table.
    fn session(&mut self, origin: Origin) -> Result<(&mut FixedSession, Arc<ServedTable>), ServerError> {
        let served = self.serving.table(origin.table)?;
        let session = match self.sessions.entry(origin.table) {
            Entry::Occupied(known) if known.get().is_of(origin) => known.into_mut(),
            // A caller of an earlier epoch ends no session of this one.
            other => other.insert_entry(session_on(&served, origin)?).into_mut(),
        };
        Ok((session, served))
    }

    /// Finds keys.
    fn find(&mut self, looks: &Looks) -> Result<Found, ServerError> {
        let (session, served) = self.session(looks.origin)?;
        match looks.find(&served, session) {
            Ok(found) => {
                served.count_found(looks.len());
                Ok(found)
            }
            Err(FindError::Refused(error)) => Err(error),
            Err(FindError::Engine(error)) => {
                if session.is_lost(&error) {
                    self.sessions.remove(&looks.origin.table);
                }
                Err(ServerError::new(code_of(&error), with_causes(&error)))
            }
        }
    }

    /// Executes a batch. What became of its writes, in their order, is in `outcomes`, with the values before.
    fn execute(
        &mut self,
        batch: &Batch,
        (outcomes, old_values): (&mut Vec<WriteOutcome>, &mut OldValues),
    ) -> Result<(), ServerError> {
        let Batch { origin, until, .. } = batch;
        let clock = Arc::clone(&self.serving.clock);
        let (session, served) = self.session(*origin)?;
        let Some(until) = until else { return Ok(()) };
        let until = Deadline::new(&clock, *until);
        let keys: Vec<&[u8]> = batch.keys().collect();
        let typed: Vec<Key<'_>> = if has_byte_keys(&served) {
            keys.iter().map(|key| Key::Bytes(key)).collect()
        } else {
            keys.iter().map(|key| integer(key).map(Key::from)).collect::<Result<_, _>>()?
        };
        let writes = MixedWrites {
            operations: &batch.operations,
            keys: &typed,
            operands: &batch.operands,
            bounds: &batch.bounds,
        };
        let Err(error) = session.write_until(until, writes, outcomes, old_values) else {
            served.count(&keys, keys.iter().collect::<HashSet<_>>().len());
            return Ok(());
        };
        if session.is_lost(&error) {
            self.sessions.remove(&origin.table);
        }
        let code = if error.is_indeterminate() { ErrorCode::Bug } else { code_of(&error) };
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

/// The code of a refusal: nothing was executed.
fn code_of(error: &EngineError) -> ErrorCode {
    error.refusal().filter(|code| *code != ErrorCode::Bug).unwrap_or(ErrorCode::OutOfResources)
}

/// Refuses a call whose reply no message may carry.
fn check_reply(reply_bytes_max: usize, limit_bytes: usize) -> Result<usize, ServerError> {
    if reply_bytes_max <= limit_bytes {
        return Ok(reply_bytes_max);
    }
    let text = format!("the answer may have {reply_bytes_max} B, a message carries {limit_bytes} B");
    Err(ServerError::new(ErrorCode::BadRequest, text))
}

/// Bytes of the reply to so many writes at most.
fn reply_bytes_max(served: &ServedTable, operation: WriteOperation, writes: usize) -> usize {
    let entry_bytes = match operation {
        WriteOperation::FetchAdd => ReplyWriter::exchanged_value_bytes(INTEGER_BYTES),
        operation if operation.returns_value() => {
            ReplyWriter::exchanged_value_bytes(served.table.info().definition.values.bytes_max())
        }
        _ => size_of::<u64>(),
    };
    (HEADER_BYTES + entry_bytes * writes).max(REFUSAL_BYTES_MAX)
}

/// True if the table's keys are bytes of any length.
pub(crate) fn has_byte_keys(served: &ServedTable) -> bool {
    served.table.info().definition.key_kind == KeyKind::Bytes
}

/// A key of a table whose keys are integers.
pub(crate) fn integer(key: &[u8]) -> Result<u64, ServerError> {
    key.try_into().map(u64::from_le_bytes).map_err(|_| {
        let text = format!("the table's keys are integers of 8 B, and a key of the call has {} B", key.len());
        ServerError::new(ErrorCode::BadRequest, text)
    })
}

impl Call {
    /// Writes its reply, by what became of its writes.
    fn write_reply<'t>(
        &self,
        told: impl Iterator<Item = (&'t WriteOutcome, &'t [u8])>,
        now: MonotonicNs,
        reply: &mut Vec<u8>,
    ) {
        let mut writer = ReplyWriter::new(reply);
        for (outcome, old) in told {
            let outcome = SentOutcome { outcome: *outcome, is_hint_wrong: false };
            if self.operation.returns_value() {
                writer.push_exchanged_value(outcome, Some(old));
            } else {
                writer.push_outcome(outcome);
            }
        }
        writer.set(self.writes as u32, now.0);
        if reply.len() > self.reply_bytes_max {
            // Memory says that a value is longer than the table's are.
            let text = format!("the values before have more than {} B", self.reply_bytes_max);
            ReplyWriter::new(reply).refuse(&ServerError::new(ErrorCode::Bug, text));
        }
    }
}

impl Batch {
    fn new(origin: Origin) -> Self {
        let (calls, operations, keys, operands) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (key_bounds, bounds) = (vec![0], vec![0]);
        Self { origin, until: None, calls, operations, keys, key_bounds, operands, bounds }
    }

    /// Their keys, in order.
    fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.key_bounds.windows(2).map(|ends| &self.keys[ends[0]..ends[1]])
    }

    /// Takes up a call.
    fn push<'e>(
        &mut self,
        call: Call,
        until: Option<MonotonicNs>,
        entries: impl Iterator<Item = DelegatedEntry<'e>>,
    ) {
        self.until = self.until.into_iter().chain(until).min();
        for DelegatedEntry { key, operand } in entries {
            self.operations.push(call.operation);
            self.keys.extend_from_slice(key);
            self.key_bounds.push(self.keys.len());
            self.operands.extend_from_slice(operand);
            self.bounds.push(self.operands.len());
        }
        self.calls.push(call);
    }
}

impl CallHandler for ProxyCalls {
    fn handle(&mut self, _: ClientId, ticket: Ticket, frame: &[u8], reply: &mut Vec<u8>) -> Answer {
        let (serving, name) = (Arc::clone(&self.serving), std::mem::take(&mut self.name));
        let limit_bytes = serving.listeners.get(self.listener).message_bytes_max();
        let mut when = Answer::Now;
        answer(&serving.failure, &name, limit_bytes, reply, |_| {
            when = Answer::Later { reply_bytes_max: self.park(ticket, frame, limit_bytes)? };
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
            let mut outcomes = Vec::with_capacity(batch.operations.len());
            let mut old_values = OldValues::default();
            answer(&serving.failure, &name, usize::MAX, &mut refusal, |reply| {
                ReplyWriter::new(reply);
                self.execute(&batch, (&mut outcomes, &mut old_values)).map(|()| 0)
            });
            let is_refused = Reply::decode(&refusal).is_ok_and(|reply| reply.is_err());
            let mut told = outcomes.iter().zip(old_values.iter());
            for call in &batch.calls {
                if is_refused {
                    port.finish(call.ticket, &refusal);
                } else {
                    call.write_reply(told.by_ref().take(call.writes), serving.clock.now(), &mut reply);
                    port.finish(call.ticket, &reply);
                }
                finished += 1;
            }
        }
        for looks in std::mem::take(&mut self.looking) {
            let mut found = None;
            answer(&serving.failure, &name, usize::MAX, &mut refusal, |reply| {
                ReplyWriter::new(reply);
                found = Some(self.find(&looks)?);
                Ok(0)
            });
            finished += looks.finish(found.as_ref().ok_or(&refusal[..]), serving.clock.now(), port);
        }
        finished
    }

    fn end(&mut self, _: &mut dyn ServerPort, _: usize) -> usize {
        0
    }

    fn has_late(&self) -> bool {
        !self.waiting.is_empty() || !self.looking.is_empty()
    }
}
