//! Writes: look, decide, and one compare-and-swap that is the effect.
//!
//! Invariant: a write takes effect once, at the compare-and-swap that succeeds, or not at all. Until then
//! nobody sees its object. The word that is compared stood in the slot when the pair was read, and does not
//! recur. So nothing came between what the write decided by and what it did.

use farsight_base::Line;
use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_index::{HeldPair, Key, NewValue, Undecided};
use farsight_layout::hash_index::HashSlot;
use farsight_protocol::{INTEGER_BYTES, Operand, WriteOperation, WriteOutcome};

use crate::expiry::{ROOM_ATTEMPTS, is_without_room};
#[cfg(injected)]
use crate::injected;
use crate::look::{ATTEMPTS_MAX, Buckets, Found, Looked, post_buckets};
use crate::object::NewObject;
use crate::overtaken::Watch;
use crate::row::{Becomes, Row, Step, Told};
use crate::table::KeyLines;
use crate::{FlexError, FlexSession};

/// A write.
#[derive(Clone, Copy)]
pub(crate) struct Write<'w> {
    pub(crate) operation: WriteOperation,
    pub(crate) key: Key<'w>,
    pub(crate) operand: Operand<'w>,
    /// Writes of the key for which it stands, too, or that wait behind it.
    pub(crate) absorbed: u64,
    /// Writes of the key that wait behind it ([`crate::row`]).
    pub(crate) then: &'w [Step<'w>],
    /// It removes a pair that has ended; one that has not is absent to it.
    pub(crate) is_ending: bool,
}

/// What an attempt came to.
enum Attempt<'w> {
    /// With this version.
    Done(Row<'w>, u64),
    Again,
}

impl FlexSession {
    /// Executes a write. `old` holds the value before, if the operation returns that and there is one.
    pub(crate) async fn write<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        write: Write<'_>,
        old: &mut Vec<u8>,
    ) -> Result<WriteOutcome, FlexError> {
        self.write_row(slot, write, old, &mut Vec::new()).await
    }

    /// The same of a write behind which others wait. What became of those that its effect is of, too, is
    /// appended to `others`.
    pub(crate) async fn write_row<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        write: Write<'_>,
        old: &mut Vec<u8>,
        others: &mut Vec<Told>,
    ) -> Result<WriteOutcome, FlexError> {
        let of = self.table.lines_of(write.key);
        let mut object = NewObject::absorbing(write.absorbed);
        let mut outcome = self.attempts(slot, (write, of), &mut object, (old, others)).await;
        if self.has_deadlines() && !write.is_ending {
            for _ in 1..ROOM_ATTEMPTS {
                if !is_without_room(&outcome) || !self.end_some(slot).await? {
                    break;
                }
                outcome = self.attempts(slot, (write, of), &mut object, (old, others)).await;
            }
        }
        match &outcome {
            Err(FlexError::Indeterminate { .. } | FlexError::Fabric(_)) => object.forget(),
            _ => self.abandon(of.shard, &mut object),
        }
        outcome
    }

    async fn attempts<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (write, of): (Write<'_>, KeyLines),
        object: &mut NewObject,
        (old, others): (&mut Vec<u8>, &mut Vec<Told>),
    ) -> Result<WriteOutcome, FlexError> {
        let (key, mut of) = (write.key, of);
        let known = self.known_address(of);
        // A put of a key that nobody remembers may insert it.
        let is_blind = write.then.is_empty() && self.is_blind(write.operation);
        object.has_looked = !is_blind || write.operation == WriteOperation::Put && known.is_none();
        if let Some(value) = write.likely_value() {
            let last = known.map_or(0, |address| address.version);
            self.prepare(slot.now(), object, of.shard, (key, value), last)?;
        }
        if self.is_late() {
            return Err(FlexError::Late { key: key.into() });
        }
        let is_trusted = is_blind && !self.doubts.is_doubtful(of.hash);
        if let Some(address) = known.filter(|_| is_trusted)
            && let Some(outcome) = self.replace_recalled(slot, (key, of), object, address).await?
        {
            return Ok(outcome);
        }
        let (mut buckets, mut lines) = (Buckets::default(), self.object_buffer());
        let mut recalled = match known {
            // What is blind has tried the address already.
            Some(_) if write.are_all(needs_no_bucket) && !is_blind => {
                self.recall(slot, (key, of), object, &mut lines).await?
            }
            _ => None,
        };
        let (mut stale_before, mut watch) = (None, Watch::default());
        for attempt in 0..ATTEMPTS_MAX {
            let found = if let Some(looked) = recalled.take() {
                Found::Settled(looked)
            } else {
                of = self.table.lines_of(key);
                self.read_beside(slot, of, object, &mut buckets).await?;
                if buckets.are_sealed(of) {
                    self.split(slot, (key, of)).await?;
                    continue;
                }
                self.find(slot, (key, of), &buckets, &mut lines).await?
            };
            match found {
                Found::Stale(candidate, fault) => {
                    self.note_stale((key, of), &mut stale_before, candidate, fault)?;
                }
                Found::Settled(looked) => {
                    if let Some(address) = known.filter(|_| attempt == 0 && is_blind && !is_trusted) {
                        self.doubts.note(of.hash, looked.is_at(address));
                    }
                    if let Some(outcome) = watch.look(&write, looked) {
                        return Ok(outcome);
                    }
                    let found = (looked, &lines[..]);
                    let done = self.act(slot, (write, of), found, &mut buckets, object, attempt).await?;
                    if let Attempt::Done(row, version) = done {
                        let (outcome, value) = row.tell(version, others);
                        *old = value;
                        return Ok(outcome);
                    }
                    self.count(|counters| counters.retries += 1);
                }
            }
            self.pause(slot, attempt).await;
        }
        Err(FlexError::Contended { key: key.into(), attempts: ATTEMPTS_MAX })
    }

    /// READs the tail's buckets, and beside that WRITEs the object if it is not there yet.
    async fn read_beside<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: KeyLines,
        object: &mut NewObject,
        buckets: &mut Buckets,
    ) -> Result<(), FlexError> {
        let (is_written_beside, tail) = (object.is_to_be_written(), self.table.tail(of.shard));
        post_buckets(slot, of, tail);
        if is_written_beside {
            self.post_object(slot, object, of.shard);
        }
        slot.completed().await;
        buckets.take(slot, tail.node)?;
        if is_written_beside {
            self.take_written(slot, object, of.shard)?;
        }
        Ok(())
    }

    /// Decides by what was found, and does that.
    async fn act<'w, Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (write, of): (Write<'w>, KeyLines),
        (looked, lines): (Looked, &[Line]),
        buckets: &mut Buckets,
        object: &mut NewObject,
        attempt: u32,
    ) -> Result<Attempt<'w>, FlexError> {
        let key = write.key;
        let held = self.held(&write, looked, lines)?;
        check_integer(&write, held.pair)?;
        let row = Row::decide(&write, held.pair);
        if matches!(row.becomes(), Becomes::Same) {
            return Ok(Attempt::Done(row, 0));
        }
        let Some(looked) = self.close(slot, (key, of), looked).await? else { return Ok(Attempt::Again) };
        if self.is_late() {
            return Err(FlexError::Late { key: key.into() });
        }
        let Becomes::Value(value) = row.becomes() else {
            let Looked::Present { found, version } = looked else {
                unreachable!("a key that is absent is not removed")
            };
            let is_done = self.remove(slot, (key, of), buckets, (found, version)).await?;
            return Ok(if is_done { Attempt::Done(row, version) } else { Attempt::Again });
        };
        let last = match looked {
            Looked::Absent => buckets.removed_version(of),
            Looked::Present { version, .. } => version,
        };
        object.has_looked |= held.pair.is_none();
        let sum = match value {
            NewValue::Given(_) => Vec::new(),
            NewValue::Sum(sum) => self.stored_sum(write.operand, held, sum),
        };
        let value = if let NewValue::Given(value) = value { value } else { &sum[..] };
        self.ready(slot, (key, of), object, value, last).await?;
        let (is_done, freed) = match looked {
            Looked::Absent => (self.insert(slot, (key, of), (buckets, object), value, attempt).await?, None),
            Looked::Present { found, .. } => {
                let new = HashSlot::live(object.reference(key.as_bytes()));
                let expected = found.live();
                #[cfg(injected)]
                if injected::FREED_BEFORE_REPLACED.is_injected() {
                    self.note_freed(of.shard, found.object.place);
                }
                let replaced = self.change(slot, (key, of), found.place, (expected, new)).await?;
                if replaced {
                    self.remember(of, found.place, new, object.version);
                }
                (replaced, Some(found.object.place))
            }
        };
        if !is_done {
            return Ok(Attempt::Again);
        }
        let version = object.version;
        self.publish(of.shard, object, freed);
        Ok(Attempt::Done(row, version))
    }

    /// Makes sure that the object stands in its memory, with this value and a version above `last`.
    pub(crate) async fn ready<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        object: &mut NewObject,
        value: &[u8],
        last: u64,
    ) -> Result<(), FlexError> {
        if object.is_of(value, last) {
            return Ok(());
        }
        self.prepare(slot.now(), object, of.shard, (key, value), last)?;
        self.post_object(slot, object, of.shard);
        slot.completed().await;
        self.take_written(slot, object, of.shard)
    }
}

/// True if the value that a write stores is known before the key is looked up, and mostly stored.
pub(crate) fn stores_its_value(operation: WriteOperation) -> bool {
    use WriteOperation::{Insert, Put, Swap, Update};
    matches!(operation, Insert | Put | Swap | Update)
}

/// True if a pair is replaced whatever its value and its version are.
pub(crate) fn replaces_any_value(operation: WriteOperation) -> bool {
    matches!(operation, WriteOperation::Put | WriteOperation::Update)
}

/// True if a pair that is found is replaced or left: a removal has to know of its bucket.
fn needs_no_bucket(operation: WriteOperation) -> bool {
    !matches!(operation, WriteOperation::Remove | WriteOperation::RemoveIf)
}

/// Refuses to add to what is no integer.
fn check_integer(write: &Write<'_>, held: Option<HeldPair<'_>>) -> Result<(), FlexError> {
    match held {
        Some(held) if write.operation == WriteOperation::FetchAdd && held.value.len() != INTEGER_BYTES => {
            let source = Undecided::NotInteger { value_bytes: held.value.len() };
            Err(FlexError::Undecided { key: write.key.into(), source })
        }
        _ => Ok(()),
    }
}
