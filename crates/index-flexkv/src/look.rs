//! A look at a key: its buckets, and the objects that its slots name.
//!
//! Invariant: a pair that is found stood in the table at some moment of the look, and so did the absence of
//! one that is not found. A slot is read before its object. An object of another generation than its slot's
//! was used anew meanwhile: the look begins again. So it does if an object's bytes do not fit their checksum,
//! unless slot and object say the same twice. Then memory lost a bit.
//!
//! A key that moves from one slot to another is removed in between, so a look that misses it is right.
//!
//! Sealed slots say what was live before their subtable was split. They count if the directory, READ behind
//! them, does not have the halves yet: until it does nobody writes the keys anywhere else ([`crate::split`]).

use std::time::Duration;

use farsight_base::Line;
use farsight_base::words::bytes_of;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::{Key, Lent};
use farsight_layout::hash_index::{
    COMBINED_BUCKETS, Candidate, CombinedBucket, HashSlot, SlotPlace, SlotState,
};
use farsight_layout::value_block::{BlockFault, ValueBlock};

use crate::addresses::Address;
#[cfg(injected)]
use crate::injected;
use crate::object::NewObject;
use crate::table::{KeyLines, Replica};
use crate::{FlexError, FlexSession};

/// Attempts of an operation.
pub(crate) const ATTEMPTS_MAX: u32 = 256;
/// Attempts without a pause between them.
const PROMPT_ATTEMPTS: u32 = 4;
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Lines of a key's two combined buckets.
pub(crate) const KEY_LINES: usize = 2 * COMBINED_BUCKETS;

/// What a look found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Looked {
    /// No slot has the key.
    Absent,
    /// This slot has it, with an object of this version, which is in the buffer.
    Present {
        /// The slot and its object.
        found: Candidate,
        /// The pair's version.
        version: u64,
    },
}

impl Looked {
    /// True if the pair's slot has the remembered word: nobody has written it since, or shared its value.
    pub(crate) fn is_at(self, address: Address) -> bool {
        let Self::Present { found, .. } = self else { return false };
        found.place == address.place && found.live() == address.word
    }
}

/// The buckets of a key as they were read.
#[derive(Clone)]
pub(crate) struct Buckets {
    pub(crate) lines: [Line; KEY_LINES],
}

/// What an object turned out to be.
pub(crate) enum Object {
    /// The key's, with this version.
    OfKey(u64),
    /// Another key's.
    OfOther,
    /// None of this slot's any more, or torn.
    Stale(BlockFault),
}

impl Default for Buckets {
    fn default() -> Self {
        Self { lines: [Line::ZERO; KEY_LINES] }
    }
}

impl Buckets {
    /// Takes what the READs of both combined buckets at this node brought.
    pub(crate) fn take<Q: QueuePair>(
        &mut self,
        slot: &PoolSlot<'_, '_, Q>,
        node: usize,
    ) -> Result<(), FlexError> {
        for (verb, lines) in self.lines.chunks_mut(COMBINED_BUCKETS).enumerate() {
            slot.take_read(node, verb, lines)?;
        }
        Ok(())
    }

    /// The two combined buckets, as far as they are this key's.
    pub(crate) fn views(&self, of: KeyLines) -> impl Iterator<Item = CombinedBucket<'_>> {
        let (halves, _) = self.lines.as_chunks::<COMBINED_BUCKETS>();
        let view = move |(lines, first)| CombinedBucket::parse(lines, first, of.hash).ok();
        halves.iter().zip(of.first_lines).filter_map(view)
    }

    /// Live slots with the key's fingerprint, in the order of their places, each once.
    pub(crate) fn candidates(&self, of: KeyLines, into: &mut Vec<Candidate>) {
        into.clear();
        into.extend(self.views(of).flat_map(|bucket| bucket.candidates(of.fingerprint)));
        sort(into);
    }

    /// Reserved slots with the key's fingerprint, likewise.
    pub(crate) fn reserved(&self, of: KeyLines, into: &mut Vec<Candidate>) {
        into.clear();
        into.extend(self.views(of).flat_map(|bucket| bucket.reserved(of.fingerprint)));
        sort(into);
    }

    /// A free slot and its word, of the bucket that has more of them.
    pub(crate) fn free(&self, of: KeyLines) -> Option<(SlotPlace, HashSlot)> {
        let emptiest = self.views(of).min_by_key(|bucket| bucket.used())?;
        emptiest.free()
    }

    /// A free slot whose word it has at another replica, too.
    pub(crate) fn free_in(&self, of: KeyLines, other: &Self) -> Option<(SlotPlace, HashSlot)> {
        let is_free = |(place, word): &(SlotPlace, HashSlot)| {
            word.state() == SlotState::Unused && other.word(of, *place) == Some(*word)
        };
        self.slots(of).find(is_free)
    }

    /// A slot that a writer has for any key.
    pub(crate) fn any_reserved(&self, of: KeyLines) -> Option<(SlotPlace, HashSlot)> {
        let is_reserved = |(_, word): &(SlotPlace, HashSlot)| matches!(word.state(), SlotState::Reserved(_));
        self.slots(of).find(is_reserved)
    }

    /// The greatest version that a pair of the key can have had, if the key is not there.
    pub(crate) fn removed_version(&self, of: KeyLines) -> u64 {
        self.views(of).map(CombinedBucket::removed_version).max().unwrap_or(0)
    }

    /// True if a slot is sealed: the subtable is being split, or was.
    pub(crate) fn are_sealed(&self, of: KeyLines) -> bool {
        self.views(of).any(CombinedBucket::is_sealed)
    }

    /// Every slot and its word. Combined buckets may share an overflow, whose slots come twice then.
    pub(crate) fn slots(&self, of: KeyLines) -> impl Iterator<Item = (SlotPlace, HashSlot)> {
        self.views(of).flat_map(CombinedBucket::slots)
    }

    /// The word of a slot.
    pub(crate) fn word(&self, of: KeyLines, place: SlotPlace) -> Option<HashSlot> {
        self.slots(of).find(|(at, _)| *at == place).map(|(_, word)| word)
    }
}

/// In the order of their places, each once: combined buckets may share an overflow.
fn sort(candidates: &mut Vec<Candidate>) {
    candidates.sort_unstable_by_key(|candidate| candidate.place);
    candidates.dedup_by_key(|candidate| candidate.place);
}

impl FlexSession {
    /// READs both combined buckets at a replica.
    pub(crate) async fn read_buckets<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: KeyLines,
        at: &Replica,
        buckets: &mut Buckets,
    ) -> Result<(), FlexError> {
        post_buckets(slot, of, at);
        slot.completed().await;
        buckets.take(slot, at.node)
    }

    /// Finds the key among the objects that the tail's buckets name; its object is left in `object`.
    pub(crate) async fn find<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        buckets: &Buckets,
        object: &mut Vec<Line>,
    ) -> Result<Found, FlexError> {
        let mut candidates = self.buffers.candidates.lend();
        buckets.candidates(of, &mut candidates);
        let mut stale = None;
        for candidate in candidates.iter() {
            match self
                .read_object(slot, (key, of.shard), self.table.tail(of.shard), *candidate, object)
                .await?
            {
                Object::OfKey(version) => {
                    return Ok(Found::Settled(self.present(of, *candidate, version)));
                }
                Object::OfOther => {}
                Object::Stale(fault) => stale = Some((*candidate, fault)),
            }
        }
        Ok(match stale {
            None => Found::Settled(Looked::Absent),
            Some((candidate, fault)) => Found::Stale(candidate, fault),
        })
    }

    /// READs the object of a slot at one of its replicas.
    pub(crate) async fn read_object<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, shard): (Key<'_>, usize),
        at: &Replica,
        candidate: Candidate,
        into: &mut Vec<Line>,
    ) -> Result<Object, FlexError> {
        let place = candidate.object.place;
        if !self.table.has_object(shard, place) {
            let got_bytes = 0;
            let needed_bytes = usize::from(place.lines) * size_of::<Line>();
            return Ok(Object::Stale(BlockFault::Cut { needed_bytes, got_bytes }));
        }
        into.resize(place.lines.into(), Line::ZERO);
        slot.read(at.node, at.object_address(place), into, ReadMode::Plain).await?;
        Ok(identify(key, place.generation, into))
    }

    /// Looks a key up. `object` holds its object then, if it is there.
    pub(crate) async fn look<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        key: Key<'_>,
        object: &mut Vec<Line>,
    ) -> Result<Looked, FlexError> {
        let of = self.table.lines_of(key);
        if let Some(looked) = self.recall(slot, (key, of), &mut NewObject::default(), object).await? {
            return Ok(looked);
        }
        let mut buckets = Buckets::default();
        let mut stale_before = None;
        for attempt in 0..ATTEMPTS_MAX {
            let of = self.table.lines_of(key);
            self.read_buckets(slot, of, self.table.tail(of.shard), &mut buckets).await?;
            let is_moving = buckets.are_sealed(of);
            #[cfg(injected)]
            let is_moving = is_moving && !injected::OLD_DIRECTORY_TRUSTED.is_injected();
            if is_moving && self.is_split(slot, (key, of)).await? {
                continue;
            }
            match self.find(slot, (key, of), &buckets, object).await? {
                Found::Settled(looked) => return Ok(looked),
                Found::Stale(candidate, fault) => {
                    self.note_stale((key, of), &mut stale_before, candidate, fault)?;
                }
            }
            self.pause(slot, attempt).await;
        }
        Err(FlexError::Contended { key: key.into(), attempts: ATTEMPTS_MAX })
    }

    /// Fails if a slot named what is not its object twice: its word does not recur, so nobody changed it in
    /// between.
    pub(crate) fn note_stale(
        &self,
        (key, of): (Key<'_>, KeyLines),
        before: &mut Option<Candidate>,
        candidate: Candidate,
        source: BlockFault,
    ) -> Result<(), FlexError> {
        self.count(|counters| counters.retries += 1);
        if before.replace(candidate) == Some(candidate) {
            let line = candidate.object.place.offset_lines;
            let node = self.table.tail(of.shard).node;
            return Err(FlexError::Damaged { key: key.into(), node, line, source });
        }
        Ok(())
    }

    /// Lets others go on before another attempt.
    pub(crate) async fn pause<Q: QueuePair>(&self, slot: &PoolSlot<'_, '_, Q>, attempt: u32) {
        if attempt < PROMPT_ATTEMPTS {
            return;
        }
        let doublings = (attempt - PROMPT_ATTEMPTS).min(10);
        let longest = Duration::from_micros(1 << doublings).min(PAUSE_MAX);
        // Operations that met once do not meet again in step.
        slot.pause(longest.mul_f64(0.5 + 0.5 * self.random_part())).await;
    }

    pub(crate) fn object_buffer(&self) -> Lent<'_, Vec<Line>> {
        self.buffers.objects.lend()
    }
}

/// Posts READs of both combined buckets at a replica, as verbs 0 and 1.
pub(crate) fn post_buckets<Q: QueuePair>(slot: &PoolSlot<'_, '_, Q>, of: KeyLines, at: &Replica) {
    for (verb, line) in of.first_lines.into_iter().enumerate() {
        slot.post_read(at.node, verb, at.index_address(line), COMBINED_BUCKETS, ReadMode::Plain);
    }
}

/// What buckets and their objects say of a key.
pub(crate) enum Found {
    /// This.
    Settled(Looked),
    /// Nothing: the object of this slot is not what the slot says.
    Stale(Candidate, BlockFault),
}

/// What was read as the object of a slot.
pub(crate) fn identify(key: Key<'_>, generation: u16, lines: &[Line]) -> Object {
    let block = match ValueBlock::parse(bytes_of(lines)) {
        Ok(block) => block,
        Err(fault) => return Object::Stale(fault),
    };
    let is_same = block.table() == generation;
    #[cfg(injected)]
    let is_same = is_same || injected::GENERATION_NOT_COMPARED.is_injected();
    if !is_same {
        return Object::Stale(BlockFault::OtherTable { expected: generation, got: block.table() });
    }
    if block.key() == key.as_bytes() { Object::OfKey(block.version()) } else { Object::OfOther }
}

/// The value of the object of a key that was found.
pub(crate) fn value_of(lines: &[Line]) -> &[u8] {
    ValueBlock::parse(bytes_of(lines)).map_or(&[], |block| block.value())
}
