//! Writes that another compute node executes: those of the partitions for which it writes.
//!
//! Invariants:
//! - a write goes to another compute node at most once. If it refuses, or was not reached, nothing was
//!   executed there, and the write goes on one-sided. If its answer is lost, the write is indeterminate, and
//!   is not repeated;
//! - once a call has ended, its writes replace nothing that anybody writes afterwards.
//!
//! Who writes for whom is a hint, so the safety of none of this depends on it. The other compute node is a
//! session like this one: it swaps a slot that it has compared with the word that it knows. It may have lost
//! its lease, or have been stopped for an hour.
//!
//! The second invariant needs a time. A call says until when the other compute node may find out what it
//! changes ([`FlexSession::is_late`]). No caller gives up before that. Words do not recur, so:
//! - *a replacement or a removal* swaps a word that stood in the slot before the caller gave up. The swap
//!   fails if anybody has replaced or removed the pair since;
//! - *an insert* swaps the word by which it has reserved its slot, and that stood there before the caller
//!   gave up. Whoever inserts the key afterwards finds it reserved, and clears it or gives way. Whoever
//!   removes the key afterwards clears it. So does a split. The swap fails then, and the insert begins anew,
//!   too late.
//!
//! All writes go there, one call a kind and compute node. That one has those of many clients at a time, and
//! executes those of one key together ([`crate::for_others`]). A value before that no message carries keeps a
//! write one-sided.

use farsight_base::Epoch;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::{FabricError, QueuePair};
use farsight_index::{Key, OldValues, ReadsByOthers, Writes};
use farsight_layout::hash_index::KeyHash;
use farsight_protocol::{
    DELEGATE_BYTES, DecodeError, DelegatedEntries, DelegatedEntry, ErrorCode, HEADER_BYTES, INTEGER_BYTES,
    OPERATIONS_MAX, Reply, ReplyWriter, Request, TableId, WriteOperation, WriteOutcome,
};

#[cfg(injected)]
use crate::injected;
use crate::row::Told;
use crate::session::{Done, Written};
use crate::{FlexError, FlexSession};

/// Why a compute node that writes for others did not answer.
#[derive(Debug)]
pub enum ProxyFailure {
    /// Nothing was sent.
    Unsent,
    /// It was sent, and nobody knows whether it was executed.
    Unknown(FabricError),
}

/// What a call asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyCall {
    /// Writes. Whether a lost call is executed yet has to be known.
    Writes,
    /// Where keys stand, or what they hold. A lost call changes nothing, whenever it is executed.
    Look,
}

/// What a session asks of compute nodes that write for others.
pub trait ProxyCalls: Send {
    /// The table, by the number that it has in this epoch of the coordinator.
    fn table(&self) -> (Epoch, TableId);

    /// Bytes of a request at most.
    fn message_bytes_max(&self) -> usize;

    /// Brings what is known of them up to date, if it is old. Called once a batch. The time, if there are
    /// any.
    fn refresh(&self) -> Option<MonotonicNs>;

    /// Takes note of a batch that began then, of so many writes that they may execute, and that has ended.
    /// By what is spent in writes it is decided for how many partitions they write.
    fn note_batch(&self, begun: MonotonicNs, writes: usize);

    /// Which one writes for a partition, by a number that counts until the next [`ProxyCalls::refresh`].
    /// Without one, the write is counted as this process's own.
    fn proxy_of(&self, partition: usize) -> Option<usize>;

    /// Until when it may find out what a call replaces that is sent now, by its own clock.
    ///
    /// # Errors
    /// [`ProxyFailure::Unsent`].
    fn until(&self, proxy: usize) -> Result<u64, ProxyFailure>;

    /// What they do for GETs.
    fn reads(&self) -> ReadsByOthers;

    /// Which one has a partition, to help with GETs.
    fn helper_of(&self, partition: usize) -> Option<usize>;

    /// Sends it a request. It has one under way at a time. Writes follow [`ProxyCalls::until`].
    ///
    /// # Errors
    /// [`ProxyFailure`].
    fn send(&self, proxy: usize, request: &[u8], call: ProxyCall) -> Result<(), ProxyFailure>;

    /// Waits for the reply to the request that was sent. Of writes it fails with [`ProxyFailure::Unknown`] no
    /// earlier than at the time that the request said.
    ///
    /// # Errors
    /// [`ProxyFailure`].
    fn receive(&self, proxy: usize, reply: &mut Vec<u8>, call: ProxyCall) -> Result<(), ProxyFailure>;

    /// Has none of this process ask it for a while: it failed, or refused.
    fn leave_out(&self, proxy: usize);

    /// Its name, for errors.
    fn name(&self, proxy: usize) -> String;
}

impl FlexSession {
    /// Executes a batch of which other compute nodes write a part. False if they write none of it: then
    /// nothing was done.
    pub(crate) fn write_proxied<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        proxies: &dyn ProxyCalls,
        writes: Writes<'_, Key<'_>>,
        (outcomes, old_values): (&mut Vec<Written>, &mut OldValues),
    ) -> bool {
        let proxy_of = |(key, operand): (Key<'_>, &[u8])| {
            let proxy = proxies.proxy_of(KeyHash::of(key.as_bytes()).partition())?;
            // What is refused for its operand is refused here.
            self.operand(writes, key, operand).is_ok().then_some(proxy)
        };
        let by_write: Vec<Option<usize>> = writes.iter().map(proxy_of).collect();
        let mut asked: Vec<usize> = by_write.iter().flatten().copied().collect();
        if asked.is_empty() {
            return false;
        }
        asked.sort_unstable();
        asked.dedup();
        let mut done: Vec<Done> = Vec::new();
        done.resize_with(writes.keys.len(), Done::default);
        let of_proxy = |proxy| {
            let indexes = (0..by_write.len()).filter(|index| by_write[*index] == Some(proxy));
            Part { proxy, left: indexes.collect(), sent: 0 }
        };
        let parts = asked.into_iter().map(of_proxy).collect();
        let calls = ask_proxies((proxies, self.old_bytes_max(writes.operation)), writes, parts, &mut done);
        self.count(|counters| counters.calls_to_others += calls);
        self.write_left(queues, writes, &mut done);
        for (written, old) in done {
            outcomes.push(written.expect("each is done by somebody"));
            if writes.operation.returns_value() {
                old_values.push(&old);
            }
        }
        true
    }

    /// Bytes of a value before at most, of an operation that returns that.
    fn old_bytes_max(&self, operation: WriteOperation) -> Option<usize> {
        match operation {
            WriteOperation::FetchAdd => Some(INTEGER_BYTES),
            operation => operation.returns_value().then(|| self.table.values().bytes_max()),
        }
    }

    /// Executes one-sided what is not done.
    fn write_left<Q: QueuePair>(&self, queues: &mut [Q], writes: Writes<'_, Key<'_>>, done: &mut [Done]) {
        let left: Vec<usize> = (0..done.len()).filter(|index| done[*index].0.is_none()).collect();
        if left.is_empty() {
            return;
        }
        let (by_index, mut values, mut bounds) = (writes.by_index(), Vec::new(), vec![0]);
        let keys = left.iter().map(|index| {
            let (key, value) = by_index(*index);
            values.extend_from_slice(value);
            bounds.push(values.len());
            key
        });
        let keys: Vec<Key<'_>> = keys.collect();
        let writes = Writes { operation: writes.operation, keys: &keys, values: &values, bounds: &bounds };
        let (mut written, mut old) = (Vec::with_capacity(left.len()), OldValues::default());
        self.write_here(queues, writes, &mut written, &mut old);
        for (number, (index, written)) in left.into_iter().zip(written).enumerate() {
            done[index] = (Some(written), old.get(number).unwrap_or_default().to_vec());
        }
    }
}

/// The writes of a batch that another compute node is to execute.
struct Part {
    proxy: usize,
    /// By their numbers in the batch, those that it has not been sent, or not answered.
    left: Vec<usize>,
    /// The first of those are under way.
    sent: usize,
}

/// Has other compute nodes execute their parts, in as many calls as those need. The calls to all of them are
/// under way together. What they did not execute stays open. How many calls were sent.
fn ask_proxies(
    (proxies, old_bytes_max): (&dyn ProxyCalls, Option<usize>),
    writes: Writes<'_, Key<'_>>,
    mut parts: Vec<Part>,
    done: &mut [Done],
) -> u64 {
    let (mut frame, mut reply, mut calls) = (Vec::new(), Vec::new(), 0);
    // Each round sends at least a write of each part, or lets go of it.
    while !parts.is_empty() {
        let begin = |part: &mut Part| part.send((proxies, old_bytes_max), writes, &mut frame);
        let under_way: Vec<Result<(), ProxyFailure>> = parts.iter_mut().map(begin).collect();
        calls +=
            parts.iter().zip(&under_way).filter(|(part, sent)| part.sent > 0 && sent.is_ok()).count() as u64;
        let mut under_way = under_way.into_iter();
        parts.retain_mut(|part| {
            let sent = under_way.next().expect("as many as parts");
            part.receive(proxies, sent, &mut reply, writes, done) && !part.left.is_empty()
        });
    }
    calls
}

impl Part {
    /// Sends the first writes that are left, as many as a message carries.
    fn send(
        &mut self,
        (proxies, old_bytes_max): (&dyn ProxyCalls, Option<usize>),
        writes: Writes<'_, Key<'_>>,
        frame: &mut Vec<u8>,
    ) -> Result<(), ProxyFailure> {
        let (by_index, mut room_bytes) = (writes.by_index(), proxies.message_bytes_max() - DELEGATE_BYTES);
        let answers_max = old_bytes_max.map_or(OPERATIONS_MAX, |bytes| {
            (proxies.message_bytes_max() - HEADER_BYTES) / ReplyWriter::exchanged_value_bytes(bytes)
        });
        let fits = |index: &&usize| {
            let (key, value) = by_index(**index);
            let bytes = DelegatedEntries::entry_bytes(key.as_bytes().len(), value.len());
            let fits = bytes <= room_bytes;
            room_bytes = room_bytes.saturating_sub(bytes);
            fits
        };
        self.sent = self.left.iter().take(OPERATIONS_MAX.min(answers_max)).take_while(fits).count();
        if self.sent == 0 {
            // No message carries it, or the answer.
            return Ok(());
        }
        let until = proxies.until(self.proxy)?;
        encode((proxies.table(), until), writes, &self.left[..self.sent], frame);
        proxies.send(self.proxy, frame, ProxyCall::Writes)
    }

    /// Waits for the answer to what was `sent`. False if nothing more is to go there.
    fn receive(
        &mut self,
        proxies: &dyn ProxyCalls,
        sent: Result<(), ProxyFailure>,
        reply: &mut Vec<u8>,
        writes: Writes<'_, Key<'_>>,
        done: &mut [Done],
    ) -> bool {
        if self.sent == 0 && sent.is_ok() {
            return false;
        }
        let now: Vec<usize> = self.left.drain(..self.sent).collect();
        let answered = sent.and_then(|()| proxies.receive(self.proxy, reply, ProxyCall::Writes));
        let name = proxies.name(self.proxy);
        match answered.and_then(|()| outcomes_of(reply, (writes.operation, now.len()), &name)) {
            Ok(outcomes) => {
                for (index, (outcome, old)) in now.iter().zip(outcomes) {
                    done[*index] = (is_final(outcome).then_some(Ok(outcome)), old);
                }
                // What follows may be of the same keys, and must not come first.
                return now.iter().all(|index| done[*index].0.is_some());
            }
            Err(ProxyFailure::Unsent) => {}
            #[cfg(injected)]
            Err(ProxyFailure::Unknown(_)) if injected::LOST_CALL_REPEATED.is_injected() => {}
            #[cfg(injected)]
            Err(ProxyFailure::Unknown(_))
                if writes.operation == WriteOperation::Remove
                    && injected::LOST_REMOVAL_REPEATED.is_injected() => {}
            Err(ProxyFailure::Unknown(source)) => {
                for index in now {
                    let key = writes.keys[index].into();
                    done[index].0 = Some(Err(FlexError::Indeterminate { key, source: source.clone() }));
                }
            }
        }
        proxies.leave_out(self.proxy);
        false
    }
}

fn encode(
    (table, until): ((Epoch, TableId), u64),
    writes: Writes<'_, Key<'_>>,
    indexes: &[usize],
    frame: &mut Vec<u8>,
) {
    let by_index = writes.by_index();
    Request::begin_delegate(frame, table, until, writes.operation, indexes.len());
    for index in indexes {
        let (key, operand) = by_index(*index);
        DelegatedEntries::push(frame, DelegatedEntry { key: key.as_bytes(), operand });
    }
}

/// False of a write that changed nothing there, and has still to be executed.
fn is_final(outcome: WriteOutcome) -> bool {
    !matches!(outcome, WriteOutcome::Failed(_))
}

/// What a reply says became of so many writes, with the values before where the operation returns them. A
/// refusal says that none of them was executed.
fn outcomes_of(
    reply: &[u8],
    (operation, count): (WriteOperation, usize),
    from: &str,
) -> Result<Vec<Told>, ProxyFailure> {
    let unknown =
        |reason: String| ProxyFailure::Unknown(FabricError::Disconnected { peer: from.to_owned(), reason });
    let undecoded = |error: DecodeError| unknown(error.to_string());
    let reply = match Reply::decode(reply).map_err(undecoded)? {
        Ok(reply) => reply,
        Err(error) if error.code == ErrorCode::Bug => return Err(unknown(error.text)),
        Err(_) => return Err(ProxyFailure::Unsent),
    };
    if !operation.returns_value() {
        let outcomes = reply.outcomes(count).map_err(undecoded)?;
        let told = outcomes.map(|sent| sent.map(|sent| (sent.outcome, Vec::new())));
        return told.collect::<Result<_, _>>().map_err(undecoded);
    }
    let told = reply.exchanged_values(count).map_err(undecoded)?;
    let told = told.map(|told| told.map(|(sent, old)| (sent.outcome, old.to_vec())));
    let told: Vec<Told> = told.collect::<Result<_, _>>().map_err(undecoded)?;
    if told.len() == count {
        return Ok(told);
    }
    Err(unknown(format!("{} outcomes for {count} writes", told.len())))
}
