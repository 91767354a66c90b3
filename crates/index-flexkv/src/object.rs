//! A new object: memory that nobody else knows, and what is to be written there.
//!
//! Invariant: the memory is unpublished until a slot names it as live. An object that was not published is
//! overwritten, or its memory goes back. It stands at all replicas before any slot names it. So who finds
//! such a slot at one of them may have the others name it, too ([`crate::chain`]).

use farsight_base::clock::MonotonicNs;
use farsight_base::{LINE_BYTES, RemoteAddress};
use farsight_fabric::QueuePair;
use farsight_fabric::lane::PoolSlot;
use farsight_index::{Key, PairVersion};
use farsight_layout::hash_index::{OBJECT_LINES_MAX, ObjectPlace, ObjectRef};
use farsight_layout::value_block::{RecordKind, block_bytes, block_lines, push_record};
use farsight_protocol::ObjectMemory;

use crate::look::KEY_LINES;
use crate::table::Replica;
use crate::{FlexError, FlexSession};

/// The verb of an object's WRITE, behind those of buckets.
const OBJECT_VERB: usize = KEY_LINES;

/// An object that is to be published.
#[derive(Default)]
pub(crate) struct NewObject {
    /// Its memory.
    memory: Option<ObjectMemory>,
    /// Its version; 0: none yet.
    pub(crate) version: u64,
    /// Versions next below its own that belong to it, too: those of writes for which it stands.
    absorbed: u64,
    /// Its write tells of the value before, or that there is none: so none came right before it.
    pub(crate) has_looked: bool,
    bytes: Vec<u8>,
    key_bytes: usize,
    value_bytes: usize,
    words: Vec<u64>,
    /// What stands in its memory is this object.
    is_written: bool,
}

/// The place of an object in this memory.
pub(crate) fn place_of(memory: ObjectMemory) -> ObjectPlace {
    let ObjectMemory { offset_lines, lines, generation } = memory;
    ObjectPlace { offset_lines, lines, generation }
}

/// The memory of the object at this place.
pub(crate) fn memory_of(place: ObjectPlace) -> ObjectMemory {
    let ObjectPlace { offset_lines, lines, generation } = place;
    ObjectMemory { offset_lines, lines, generation }
}

/// Bytes of a key and its value at most, together.
const PAIR_BYTES_MAX: usize = OBJECT_LINES_MAX as usize * LINE_BYTES - block_bytes(0, 0);

/// Lines of the object of a pair, if there is one so long.
pub(crate) fn object_lines(key: &[u8], value_bytes: usize) -> Option<u8> {
    u8::try_from(block_lines(key.len(), value_bytes)).ok().filter(|lines| *lines <= OBJECT_LINES_MAX)
}

impl NewObject {
    /// None yet, of a write that stands for so many others ([`crate::combine`]).
    pub(crate) fn absorbing(absorbed: u64) -> Self {
        Self { absorbed, ..Self::default() }
    }

    /// Its memory.
    ///
    /// # Panics
    /// Before it was [prepared](FlexSession::prepare).
    pub(crate) fn memory(&self) -> ObjectMemory {
        self.memory.expect("an object that was prepared")
    }

    /// What a slot says of it, by its key.
    pub(crate) fn reference(&self, key: &[u8]) -> ObjectRef {
        ObjectRef::new(key, place_of(self.memory()))
    }

    /// True if it is prepared, and does not stand in its memory.
    pub(crate) fn is_to_be_written(&self) -> bool {
        self.memory.is_some() && !self.is_written
    }

    /// Notes that it stands in its memory, at all replicas.
    pub(crate) fn note_written(&mut self) {
        self.is_written = true;
    }

    /// Forgets its memory, of which nobody knows whether a slot names it. Its node finds out when this
    /// compute node has ended.
    pub(crate) fn forget(&mut self) {
        self.is_written = false;
        self.memory = None;
    }

    /// Where it is to be written at a replica, and what.
    pub(crate) fn words_at(&self, at: &Replica) -> (RemoteAddress, &[u64]) {
        (at.object_address(place_of(self.memory())), &self.words)
    }

    /// True if it is this value's, with a version above `last`, and stands in its memory.
    pub(crate) fn is_of(&self, value: &[u8], last: u64) -> bool {
        self.is_written
            && !(self.has_looked && PairVersion(self.version).is_blind())
            && self.version > last.saturating_add(self.absorbed)
            && self.value_bytes == value.len()
            && self.bytes[block_bytes(self.key_bytes, 0)..].starts_with(value)
    }
}

impl FlexSession {
    /// Bytes of a key's value at most, behind its deadline.
    pub(crate) fn value_bytes_max(&self, key: Key<'_>) -> usize {
        let values = self.table.values();
        let beside = key.as_bytes().len() + values.deadline_bytes();
        values.bytes_max().min(PAIR_BYTES_MAX.saturating_sub(beside))
    }

    /// Refuses a value that has no room in an object, beside its key.
    fn too_long(&self, key: Key<'_>, value: &[u8]) -> FlexError {
        let max_bytes = self.value_bytes_max(key);
        FlexError::Operand { key: key.into(), got_bytes: value.len(), max_bytes }
    }

    /// Makes `object` that of a pair of a shard, with a version above `last`. It is not written yet.
    pub(crate) fn prepare(
        &self,
        now: MonotonicNs,
        object: &mut NewObject,
        shard: usize,
        (key, value): (Key<'_>, &[u8]),
        last: u64,
    ) -> Result<(), FlexError> {
        let lines = object_lines(key.as_bytes(), value.len()).ok_or_else(|| self.too_long(key, value))?;
        let newest = last.saturating_add(object.absorbed);
        let version = self.versions.above(newest, now, object.has_looked)?;
        if object.memory.is_some_and(|memory| memory.lines != lines) {
            self.abandon(shard, object);
        }
        let memory = match object.memory {
            Some(memory) => memory,
            None => self.stock.take(&*self.calls, shard, lines)?,
        };
        if !self.table.has_object(shard, place_of(memory)) || !place_of(memory).is_sound() {
            return Err(FlexError::Call {
                source: format!("the node gave {memory:?}, which it has not").into(),
            });
        }
        object.bytes.clear();
        push_record(&mut object.bytes, RecordKind::Pair, version, memory.generation, key.as_bytes(), value)
            .map_err(|_| self.too_long(key, value))?;
        object.words.clear();
        object.words.extend(object.bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
        (object.memory, object.version, object.is_written) = (Some(memory), version, false);
        (object.key_bytes, object.value_bytes) = (key.as_bytes().len(), value.len());
        Ok(())
    }

    /// Posts the WRITEs of an object to all replicas, as verb [`OBJECT_VERB`] of each.
    pub(crate) fn post_object<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        object: &NewObject,
        shard: usize,
    ) {
        for at in self.table.chain(shard) {
            let (to, words) = object.words_at(at);
            slot.post_write(at.node, OBJECT_VERB, to, words);
        }
    }

    /// Takes the completions of those WRITEs.
    pub(crate) fn take_written<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        object: &mut NewObject,
        shard: usize,
    ) -> Result<(), FlexError> {
        for at in self.table.chain(shard) {
            slot.take_word(at.node, OBJECT_VERB)?;
        }
        object.note_written();
        Ok(())
    }

    /// Gives an object's memory back: no slot names it, or ever named it as live.
    pub(crate) fn abandon(&self, shard: usize, object: &mut NewObject) {
        object.is_written = false;
        if let Some(memory) = object.memory.take() {
            self.stock.give_back(shard, memory);
        }
    }

    /// Notes that a slot names it now. Its memory is not the session's any more.
    pub(crate) fn publish(&self, shard: usize, object: &mut NewObject, freed: Option<ObjectPlace>) {
        object.is_written = false;
        let published = object.memory.take();
        self.stock.note(&*self.calls, shard, published, freed.map(memory_of));
    }

    /// Notes that no slot names the object at this place any more.
    pub(crate) fn note_freed(&self, shard: usize, freed: ObjectPlace) {
        self.stock.note(&*self.calls, shard, None, Some(memory_of(freed)));
    }
}
