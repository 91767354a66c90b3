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
//! The second invariant needs a time. A call says until when the other compute node may find out which word
//! it replaces ([`FlexSession::is_late`]). No caller gives up before that. So the word stood in the slot
//! before the caller gave up, and words do not recur: the swap fails if anybody has written since.
//!
//! Replacements alone go there, of keys that are present. Another compute node has those of many clients at a
//! time, and [combines](crate::combine) those of one key. A key that it finds absent is the caller's to
//! insert.

use farsight_base::Epoch;
use farsight_base::clock::MonotonicNs;
use farsight_fabric::{FabricError, QueuePair};
use farsight_index::{Key, OldValues, Writes};
use farsight_layout::hash_index::KeyHash;
use farsight_protocol::{
    ErrorCode, OPERATIONS_MAX, REPLACE_BYTES, ReplaceEntries, ReplaceEntry, Reply, Request, TableId,
    WriteOperation, WriteOutcome,
};

#[cfg(injected)]
use crate::injected;
use crate::session::Written;
use crate::write::replaces_any_value;
use crate::{FlexError, FlexSession};

/// Why a compute node that writes for others did not answer.
#[derive(Debug)]
pub enum ProxyFailure {
    /// Nothing was sent.
    Unsent,
    /// It was sent, and nobody knows whether it was executed.
    Unknown(FabricError),
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

    /// Sends it a request. It has one under way at a time.
    ///
    /// # Errors
    /// [`ProxyFailure`].
    fn send(&self, proxy: usize, request: &[u8]) -> Result<(), ProxyFailure>;

    /// Waits for the reply to the request that was sent. Fails with [`ProxyFailure::Unknown`] no earlier than
    /// at the time that the request said.
    ///
    /// # Errors
    /// [`ProxyFailure`].
    fn receive(&self, proxy: usize, reply: &mut Vec<u8>) -> Result<(), ProxyFailure>;

    /// Has none of this process ask it for a while: it failed, or refused.
    fn leave_out(&self, proxy: usize);

    /// Its name, for errors.
    fn name(&self, proxy: usize) -> String;
}

impl FlexSession {
    /// Who may execute this batch in place of this session.
    pub(crate) fn proxies_of(&self, writes: Writes<'_, Key<'_>>) -> Option<&dyn ProxyCalls> {
        self.proxies.as_deref().filter(|_| replaces_any_value(writes.operation))
    }

    /// Executes a batch of which other compute nodes write a part. False if they write none of it: then
    /// nothing was done.
    pub(crate) fn write_proxied<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        proxies: &dyn ProxyCalls,
        writes: Writes<'_, Key<'_>>,
        outcomes: &mut Vec<Written>,
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
        let mut done: Vec<Option<Written>> = Vec::new();
        done.resize_with(writes.keys.len(), || None);
        let of_proxy = |proxy| {
            let indexes = (0..by_write.len()).filter(|index| by_write[*index] == Some(proxy));
            Part { proxy, left: indexes.collect(), sent: 0 }
        };
        ask_proxies(proxies, writes, asked.into_iter().map(of_proxy).collect(), &mut done);
        self.write_left(queues, writes, &mut done);
        outcomes.extend(done.into_iter().map(|written| written.expect("each is done by somebody")));
        true
    }

    /// Executes one-sided what is not done.
    fn write_left<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        writes: Writes<'_, Key<'_>>,
        done: &mut [Option<Written>],
    ) {
        let left: Vec<usize> = (0..done.len()).filter(|index| done[*index].is_none()).collect();
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
        let mut written = Vec::with_capacity(left.len());
        // Operations that replace any value return none.
        self.write_here(queues, writes, &mut written, &mut OldValues::default());
        for (index, written) in left.into_iter().zip(written) {
            done[index] = Some(written);
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
/// under way together. What they did not execute stays open.
fn ask_proxies(
    proxies: &dyn ProxyCalls,
    writes: Writes<'_, Key<'_>>,
    mut parts: Vec<Part>,
    done: &mut [Option<Written>],
) {
    let (mut frame, mut reply) = (Vec::new(), Vec::new());
    // Each round sends at least a write of each part, or lets go of it.
    while !parts.is_empty() {
        let begin = |part: &mut Part| part.send(proxies, writes, &mut frame);
        let under_way: Vec<Result<(), ProxyFailure>> = parts.iter_mut().map(begin).collect();
        let mut under_way = under_way.into_iter();
        parts.retain_mut(|part| {
            let sent = under_way.next().expect("as many as parts");
            part.receive(proxies, sent, &mut reply, writes, done) && !part.left.is_empty()
        });
    }
}

impl Part {
    /// Sends the first writes that are left, as many as a message carries.
    fn send(
        &mut self,
        proxies: &dyn ProxyCalls,
        writes: Writes<'_, Key<'_>>,
        frame: &mut Vec<u8>,
    ) -> Result<(), ProxyFailure> {
        let (by_index, mut room_bytes) = (writes.by_index(), proxies.message_bytes_max() - REPLACE_BYTES);
        let fits = |index: &&usize| {
            let (key, value) = by_index(**index);
            let bytes = ReplaceEntries::entry_bytes(key.as_bytes().len(), value.len());
            let fits = bytes <= room_bytes;
            room_bytes = room_bytes.saturating_sub(bytes);
            fits
        };
        self.sent = self.left.iter().take(OPERATIONS_MAX).take_while(fits).count();
        if self.sent == 0 {
            // No message carries it.
            return Ok(());
        }
        let until = proxies.until(self.proxy)?;
        encode((proxies.table(), until), writes, &self.left[..self.sent], frame);
        proxies.send(self.proxy, frame)
    }

    /// Waits for the answer to what was `sent`. False if nothing more is to go there.
    fn receive(
        &mut self,
        proxies: &dyn ProxyCalls,
        sent: Result<(), ProxyFailure>,
        reply: &mut Vec<u8>,
        writes: Writes<'_, Key<'_>>,
        done: &mut [Option<Written>],
    ) -> bool {
        if self.sent == 0 && sent.is_ok() {
            return false;
        }
        let now: Vec<usize> = self.left.drain(..self.sent).collect();
        let answered = sent.and_then(|()| proxies.receive(self.proxy, reply));
        match answered.and_then(|()| outcomes_of(reply, now.len(), &proxies.name(self.proxy))) {
            Ok(outcomes) => {
                for (index, outcome) in now.iter().zip(outcomes) {
                    done[*index] = is_final(writes.operation, outcome).then_some(Ok(outcome));
                }
                // What follows may be of the same keys, and must not come first.
                return now.iter().all(|index| done[*index].is_some());
            }
            Err(ProxyFailure::Unsent) => {}
            #[cfg(injected)]
            Err(ProxyFailure::Unknown(_)) if injected::LOST_CALL_REPEATED.is_injected() => {}
            Err(ProxyFailure::Unknown(source)) => {
                for index in now {
                    let key = writes.keys[index].into();
                    done[index] = Some(Err(FlexError::Indeterminate { key, source: source.clone() }));
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
    Request::begin_replace(frame, table, until, indexes.len());
    for index in indexes {
        let (key, value) = by_index(*index);
        ReplaceEntries::push(frame, ReplaceEntry { key: key.as_bytes(), value });
    }
}

/// False of a write that changed nothing there, and has still to be executed.
fn is_final(operation: WriteOperation, outcome: WriteOutcome) -> bool {
    match outcome {
        WriteOutcome::Absent => operation == WriteOperation::Update,
        WriteOutcome::Failed(_) => false,
        _ => true,
    }
}

/// What a reply says became of so many writes. A refusal says that none of them was executed.
fn outcomes_of(reply: &[u8], count: usize, from: &str) -> Result<Vec<WriteOutcome>, ProxyFailure> {
    let unknown =
        |reason: String| ProxyFailure::Unknown(FabricError::Disconnected { peer: from.to_owned(), reason });
    let reply = match Reply::decode(reply).map_err(|error| unknown(error.to_string()))? {
        Ok(reply) => reply,
        Err(error) if error.code == ErrorCode::Bug => return Err(unknown(error.text)),
        Err(_) => return Err(ProxyFailure::Unsent),
    };
    let outcomes = reply.outcomes(count).map_err(|error| unknown(error.to_string()))?;
    outcomes.map(|sent| sent.map(|sent| sent.outcome).map_err(|error| unknown(error.to_string()))).collect()
}
