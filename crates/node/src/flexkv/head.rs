//! The head of a shard: this node gives out its memory, of index and objects.
//!
//! Invariant: memory of an object is free, in a compute node's hand, or named by a slot. What a slot named is
//! in the hand of the compute node that changed the slot. This node's processor gives it out and takes it
//! back. It reads what compute nodes wrote only when one of them has ended, and writes nothing there.
//!
//! Where a shard has replicas, what a compute node had in hand stays there until it has [ended] everywhere.
//!
//! The replicas behind the head have what the head has, at the same places, or are one change of a slot
//! behind. So memory that no slot of the head names, and that an ended compute node wrote, may be named by
//! another replica yet. It is freed once a compute node has [settled](settling) the shard behind that.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farsight_base::clock::MonotonicNs;
use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};
use farsight_blocks::BlockSpace;
use farsight_fabric::Region;
use farsight_layout::Deadline;
use farsight_layout::hash_index::{COMBINED_BUCKETS, HashSlot, IndexShape, KeyHash, ObjectPlace, SlotState};
use farsight_layout::value_block::{BLOCK_HEADER_BYTES, BLOCK_KEY_LENGTH_SHIFT, ValueBlock};
use farsight_protocol::{
    BlockSpaceStats, ComputeNode, ErrorCode, HashIndexStats, ObjectGrant, ObjectMemory, POOL_ENDED_MAX,
    ServerError, SplitGrant,
};

use super::ended::Ended;
use super::objects::Objects;
use super::places::Places;
use super::settling::Settling;
use super::splits::Splits;
use crate::compute_nodes::Connected;
use crate::deadline_pass::SeenPiece;
#[cfg(injected)]
use crate::injected;
use crate::table_name::TableName;

/// What slots say of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Named {
    /// Nothing, and none ever did.
    Never,
    /// Nothing.
    Not,
    /// A writer has one for it.
    Reserved,
    /// It is a key's.
    Live,
}

/// What a head has of its index, how many lines that are, and what it has of objects.
pub(super) type HeadStats = (HashIndexStats, u64, BlockSpaceStats);

/// Objects of pairs that have ended, of which a head knows at most.
const PAST_MAX: usize = 1 << 12;

/// Leaves of memory that is in its order what shares no line with other memory. The rest stays taken: if some
/// of it were freed, the lines that it shares would be given out, or be freed twice.
fn leave_apart(named: &mut Vec<ObjectMemory>) {
    let end = |memory: &ObjectMemory| u64::from(memory.offset_lines) + u64::from(memory.lines);
    let begins = named.iter().skip(1).map(|next| next.offset_lines.into()).chain([u64::MAX]);
    let mut behind = 0;
    let are_apart: Vec<bool> = named
        .iter()
        .zip(begins)
        .map(|(memory, next)| {
            let is_apart = behind <= memory.offset_lines.into() && end(memory) <= next;
            behind = behind.max(end(memory));
            is_apart
        })
        .collect();
    let mut are_apart = are_apart.into_iter();
    named.retain(|_| are_apart.next().expect("as many"));
}

/// The place of an object in this memory.
fn place_of(memory: ObjectMemory) -> ObjectPlace {
    let ObjectMemory { offset_lines, lines, generation } = memory;
    ObjectPlace { offset_lines, lines, generation }
}

/// What stands where the deadline of an object's pair does, if the object is sound.
fn peek_deadline(words: &[AtomicU64]) -> Option<Deadline> {
    // Relaxed: as in `slot_of`.
    let word = |index: usize| Some(words.get(index)?.load(Ordering::Relaxed));
    let key_bytes = usize::from((word(0)? >> BLOCK_KEY_LENGTH_SHIFT) as u16);
    let (first, offset) = ((BLOCK_HEADER_BYTES + key_bytes) / 8, (BLOCK_HEADER_BYTES + key_bytes) % 8);
    if offset == 0 {
        return Some(Deadline(word(first)?));
    }
    let both = u128::from(word(first + 1)?) << 64 | u128::from(word(first)?);
    Some(Deadline((both >> (8 * offset)) as u64))
}

/// The head of a shard.
pub(super) struct ShardHead {
    name: Arc<TableName>,
    /// The shard's part of the index.
    index: Arc<dyn Region>,
    shape: IndexShape,
    splits: Mutex<Splits>,
    /// The shard's part of the objects.
    space: Arc<dyn Region>,
    objects: Mutex<Objects>,
    /// Other nodes have it, too.
    is_replicated: bool,
    settling: Mutex<Settling>,
    ended: Mutex<Ended>,
    /// Objects of pairs whose deadlines have passed, which nobody was told yet.
    past: Mutex<BTreeSet<ObjectMemory>>,
}

impl ShardHead {
    /// The head of a shard without a pair.
    pub(super) fn new(
        name: Arc<TableName>,
        index: Arc<dyn Region>,
        (shape, splits): (IndexShape, Splits),
        space: Arc<BlockSpace>,
        is_replicated: bool,
    ) -> Self {
        let region = Arc::clone(space.region());
        let objects = Mutex::new(Objects::new(Places::new(space)));
        let (splits, settling, ended) = (Mutex::new(splits), Mutex::default(), Mutex::default());
        let past = Mutex::default();
        Self { name, index, shape, splits, space: region, objects, is_replicated, settling, ended, past }
    }

    /// The head of a shard whose head was lost. It gives out nothing until a compute node has settled the
    /// shard. Then it takes as given out what slots name.
    pub(super) fn successor(
        name: Arc<TableName>,
        index: Arc<dyn Region>,
        (shape, splits): (IndexShape, Splits),
        space: Arc<dyn Region>,
        is_replicated: bool,
    ) -> Self {
        let objects = Mutex::new(Objects::new(Places::with_taken(Arc::clone(&space), &[])));
        let settling = Mutex::new(Settling::of_successor());
        // All that had memory of the former head have ended at each node that is left.
        let (splits, ended, past) = (Mutex::new(splits), Mutex::default(), Mutex::default());
        Self { name, index, shape, splits, space, objects, is_replicated, settling, ended, past }
    }

    /// Takes note of what became of memory that compute nodes had in hand, and gives `owner` more.
    pub(super) fn exchange(
        &self,
        (owner, connected): (ComputeNode, Connected),
        (lines, count): (u8, u16),
        (published, freed): (&[ObjectMemory], &[ObjectMemory]),
        now: MonotonicNs,
    ) -> Result<ObjectGrant, ServerError> {
        if let settle @ Some(_) = self.settling().taken_over() {
            return Ok(ObjectGrant { settle, ..ObjectGrant::default() });
        }
        let orphans = self.objects().take_orphans();
        self.settle(orphans);
        let mut objects = self.objects();
        objects.note_published(owner, published);
        objects.free(freed);
        let given = objects.give(owner, connected, lines, count);
        drop(objects);
        let (settle, fence, ended) = (self.settling().ask(now), self.ended().tell(now), self.tell_past());
        match given {
            Ok(given) => Ok(ObjectGrant { given, settle, fence, ended }),
            // What the caller settles then, whom it fences, and what it removes, makes room.
            Err(_) if settle.is_some() || !fence.is_empty() || !ended.is_empty() => {
                Ok(ObjectGrant { given: Vec::new(), settle, fence, ended })
            }
            Err(error) => {
                let code = if error.system.is_some() { ErrorCode::NoMemory } else { ErrorCode::RegionFull };
                Err(ServerError::new(code, format!("table {:?}: {error}", self.name)))
            }
        }
    }

    /// Takes note that all replicas have what this one had when it requested that under this number.
    pub(super) fn settled(&self, number: u32) {
        let mut settling = self.settling();
        if settling.taken_over() == Some(number) {
            self.take_over();
            settling.end_taking_over(number);
            return;
        }
        let unnamed = settling.end(number);
        drop(settling);
        self.objects().free(&unnamed.objects);
        self.splits().settled(&unnamed.units);
    }

    /// Takes over what these compute nodes had in hand: they write nowhere any more.
    pub(super) fn fenced(&self, owners: &[ComputeNode]) {
        for owner in owners {
            let is_new = self.ended().end(*owner);
            if is_new {
                self.take_hand(*owner);
            }
        }
    }

    /// Takes as given out what slots name, and units that directories lead to. What slots name of the same
    /// lines is never freed.
    fn take_over(&self) {
        let (splits, subtables) = self.splits().found_in(&*self.index);
        let mut named = Vec::new();
        for (_, of) in subtables {
            let first = self.shape.unit_line(of.unit()) as usize * WORDS_PER_LINE;
            let words = self.shape.buckets().lines() as usize * WORDS_PER_LINE;
            for (at, word) in self.index.words()[first..first + words].iter().enumerate() {
                // Relaxed: as in `slot_of`.
                let word = HashSlot(word.load(Ordering::Relaxed));
                let (SlotState::Live(object) | SlotState::Sealed(Some(object))) = word.state() else {
                    continue;
                };
                let ObjectPlace { offset_lines, lines, generation } = object.place;
                if at % WORDS_PER_LINE > 0 {
                    named.push(ObjectMemory { offset_lines, lines, generation });
                }
            }
        }
        // A slot that was damaged, or that a compute node wrote which keeps no rule, may name any lines.
        named.retain(|memory| self.words_of(place_of(*memory)).is_some());
        named.sort_unstable();
        // One that was copied into both halves of its subtable.
        named.dedup();
        let taken: Vec<_> =
            named.iter().map(|memory| (memory.offset_lines.into(), memory.lines.into())).collect();
        leave_apart(&mut named);
        let places = Places::with_taken(Arc::clone(&self.space), &taken);
        *self.splits() = splits;
        *self.objects() = Objects::with_named(places, &named);
    }

    fn settling(&self) -> MutexGuard<'_, Settling> {
        // As of objects.
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> MutexGuard<'_, Ended> {
        // As of objects.
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a compute node gets that wants to split this subtable of a partition.
    pub(super) fn begin_split(
        &self,
        who: (ComputeNode, Connected),
        (partition, number): (usize, u32),
        now: MonotonicNs,
    ) -> Result<SplitGrant, ServerError> {
        let refused = || {
            let text =
                format!("table {:?} has no subtable {number} of partition {partition} here", self.name);
            ServerError::new(ErrorCode::BadRequest, text)
        };
        let granted = self.splits().begin(&*self.index, who, (partition, number), now);
        let granted = granted.map_err(|error| ServerError::new(ErrorCode::NoMemory, error.to_string()))?;
        granted.ok_or_else(refused)
    }

    /// Takes note that `owner` writes these units no more.
    pub(super) fn end_split(&self, owner: ComputeNode, units: [u32; 2]) {
        self.splits().end(&*self.index, owner, units);
    }

    fn splits(&self) -> MutexGuard<'_, Splits> {
        // As of objects.
        self.splits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        // Each change is complete, or a bug that ends all answers.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a slot says of this object, which its compute node has published, or left when it ended. A slot
    /// that was sealed names it still, unless the subtable has halves by now.
    fn slot_of(&self, memory: ObjectMemory) -> Named {
        let place = place_of(memory);
        let Some(hash) = self.hash_at(place) else { return Named::Never };
        let subtable = self.splits().subtable(&*self.index, hash);
        for first_line in self.shape.first_lines(hash, subtable) {
            let first = first_line as usize * WORDS_PER_LINE;
            for slot in &self.index.words()[first..first + COMBINED_BUCKETS * WORDS_PER_LINE] {
                // Relaxed, here and below: who published it has said so, or has ended and the fabric has
                // waited for that. What others make of the slot meanwhile names no earlier object.
                match HashSlot(slot.load(Ordering::Relaxed)).state() {
                    SlotState::Live(object) | SlotState::Sealed(Some(object)) if object.place == place => {
                        return Named::Live;
                    }
                    SlotState::Reserved(object) if object.place == place => return Named::Reserved,
                    _ => {}
                }
            }
        }
        Named::Not
    }

    /// Frees what ended compute nodes had in hand and no slot names. What one has reserved is looked at again
    /// later: cards and processors do not agree on atomics, so compute nodes alone change slots.
    fn settle(&self, held: Vec<(ComputeNode, ObjectMemory)>) {
        for (owner, memory) in held {
            match self.slot_of(memory) {
                Named::Live => self.objects().note_published(owner, &[memory]),
                // Another replica may be behind.
                Named::Not if self.is_replicated => self.objects().note_published(owner, &[memory]),
                Named::Never | Named::Not => self.objects().free_held(owner, memory),
                Named::Reserved => self.objects().orphan(owner, memory),
            }
        }
    }

    /// The hash of the key of the object that stands there, if one does.
    fn hash_at(&self, place: ObjectPlace) -> Option<KeyHash> {
        self.object_at(place, |block| Some(KeyHash::of(block.key())))
    }

    /// What an object says of itself, if one stands there.
    fn object_at<T>(&self, place: ObjectPlace, of: impl FnOnce(&ValueBlock<'_>) -> Option<T>) -> Option<T> {
        // Relaxed: as in `slot_of`.
        let bytes: Vec<u8> = self
            .words_of(place)?
            .iter()
            .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
            .collect();
        let block = ValueBlock::parse(&bytes).ok()?;
        if block.table() == place.generation { of(&block) } else { None }
    }

    fn words_of(&self, place: ObjectPlace) -> Option<&[AtomicU64]> {
        let first = place.offset_lines as usize * WORDS_PER_LINE;
        self.space.words().get(first..first + usize::from(place.lines) * WORDS_PER_LINE)
    }

    /// Looks at a piece of the memory that is out for pairs whose deadlines have passed.
    pub(super) fn look_for_past(&self, piece: usize, now_ms: u64) -> SeenPiece {
        let (published, is_last) = {
            let objects = self.objects();
            (objects.piece(piece).unwrap_or_default(), piece + 1 >= objects.pieces())
        };
        let has_ended = |memory: &&ObjectMemory| self.is_past(place_of(**memory), now_ms);
        let found: Vec<ObjectMemory> = published.iter().filter(has_ended).copied().collect();
        let mut past = self.past();
        let room = PAST_MAX.saturating_sub(past.len());
        past.extend(found.iter().take(room));
        SeenPiece { pairs: published.len(), ended: found.len().min(room), is_last }
    }

    /// True if the deadline of the object's pair has passed. Only an object whose checksum fits has one: a
    /// flipped bit ends no pair.
    fn is_past(&self, place: ObjectPlace, now_ms: u64) -> bool {
        let is_near = self.words_of(place).and_then(peek_deadline).is_some_and(|near| near.is_past(now_ms));
        let deadline = |block: &ValueBlock<'_>| Deadline::split(block.value()).map(|(deadline, _)| deadline);
        is_near && self.object_at(place, deadline).is_some_and(|deadline| deadline.is_past(now_ms))
    }

    /// Some objects of pairs that have ended, for a compute node that calls.
    fn tell_past(&self) -> Vec<ObjectMemory> {
        let (mut past, mut told) = (self.past(), Vec::new());
        while told.len() < POOL_ENDED_MAX
            && let Some(memory) = past.pop_first()
        {
            told.push(memory);
        }
        drop(past);
        let mut objects = self.objects();
        told.retain(|memory| objects.is_out(*memory));
        told
    }

    fn past(&self) -> MutexGuard<'_, BTreeSet<ObjectMemory>> {
        // As of objects.
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a piece of the memory that is out. False if none is left to be looked at.
    pub(super) fn sweep(&self) -> bool {
        let orphans = self.objects().take_orphans();
        self.settle(orphans);
        let piece = self.objects().next_piece();
        let Some(piece) = piece else { return false };
        // An object that is in no hand was named by a slot. If none names it any more, none ever will.
        let of = |of: &ObjectMemory| (self.slot_of(*of), *of);
        let unnamed = piece.iter().map(of).filter(|(named, _)| matches!(named, Named::Never | Named::Not));
        if self.is_replicated {
            // Here none does. What is damaged another replica may have whole.
            let unnamed = unnamed.filter(|(named, _)| *named == Named::Not).map(|(_, memory)| memory);
            let unnamed: Vec<_> = unnamed.collect();
            self.settling().note(unnamed.into_iter());
        } else {
            let unnamed: Vec<_> = unnamed.map(|(_, memory)| memory).collect();
            self.objects().free(&unnamed);
        }
        true
    }

    /// Pieces that are to be looked at.
    pub(super) fn pieces_left(&self) -> u64 {
        self.objects().pieces_left() as u64
    }

    /// Takes note that a compute node has ended here, and takes over what it had once it has everywhere.
    pub(super) fn end(&self, owner: ComputeNode) {
        #[cfg(injected)]
        let is_replicated = self.is_replicated && !injected::HAND_FREED_UNFENCED.is_injected();
        #[cfg(not(injected))]
        let is_replicated = self.is_replicated;
        let has_memory = || !self.objects().held_by(owner).is_empty();
        if is_replicated && (has_memory() || self.splits().has_granted(owner)) {
            self.ended().note(owner);
        } else {
            self.take_hand(owner);
        }
        // What it replaced, and had not said so yet, is in nobody's hand.
        self.objects().begin_sweep();
    }

    /// Takes over what a compute node had in hand that writes nothing any more.
    fn take_hand(&self, owner: ComputeNode) {
        let left = self.splits().end_all(&*self.index, owner);
        if self.is_replicated {
            // The head's directory leads past these, and the tail's may not.
            self.settling().note_units(left);
        } else {
            self.splits().settled(&left);
        }
        let held = self.objects().held_by(owner);
        self.settle(held);
        self.objects().begin_sweep();
    }

    /// What it has of its index, and how many lines that are; what it has of objects.
    pub(super) fn stats(&self) -> HeadStats {
        // Each lock is let go before the next one is taken.
        let of_blocks;
        let unnamed: Vec<ObjectMemory> = self.settling().unnamed().copied().collect();
        let (objects, quarantined_lines) = {
            let mut objects = self.objects();
            of_blocks = objects.stats();
            let out = unnamed.into_iter().filter(|memory| objects.is_out(*memory));
            let unnamed_lines: u64 = out.map(|memory| u64::from(memory.lines)).sum();
            (objects.published(), objects.resting_lines() + unnamed_lines)
        };
        let (hash_index, used) = {
            let splits = self.splits();
            (splits.stats(objects), splits.used_lines())
        };
        let blocks = BlockSpaceStats {
            live_bytes: of_blocks.live_bytes,
            free_bytes: of_blocks.free_bytes,
            quarantined_bytes: quarantined_lines * LINE_BYTES as u64,
            lost_bytes: of_blocks.lost_bytes,
            used_bytes: of_blocks.used_bytes,
            limit_bytes: of_blocks.limit_bytes,
        };
        (hash_index, used, blocks)
    }
}

#[cfg(test)]
mod tests {
    use farsight_base::prng::SplitMix64;
    use farsight_layout::hash_index::{BUCKET_SLOTS, ObjectRef};

    use super::*;
    use crate::flexkv::zeroed_region::ZeroedRegion;

    const OWNER: ComputeNode = ComputeNode(9);
    const CONNECTED: Connected = Connected { oldest: 9, newest: 9 };
    const OBJECT_LINES: usize = 1 << 10;

    /// A head that took the place of a lost one, whose slots name these objects.
    fn successor(named: &[ObjectMemory]) -> ShardHead {
        let least = IndexShape::new(1, 0).expect_err("no room").needed_lines;
        let (index, shape) =
            (Arc::new(ZeroedRegion::of_lines(least as usize)), IndexShape::new(1, least).expect("room"));
        let first = shape.unit_line(0) as usize * WORDS_PER_LINE;
        for (number, memory) in named.iter().enumerate() {
            let object = ObjectRef::new(b"a key", place_of(*memory));
            let at = number / BUCKET_SLOTS * WORDS_PER_LINE + 1 + number % BUCKET_SLOTS;
            index.words()[first + at].store(HashSlot::live(object).0, Ordering::Relaxed);
        }
        let (name, splits) = (Arc::new(TableName::new("t")), Splits::new(shape, 1, 0));
        let head = ShardHead::successor(
            name,
            index,
            (shape, splits),
            Arc::new(ZeroedRegion::of_lines(OBJECT_LINES)),
            false,
        );
        head.settled(1);
        head
    }

    /// Whatever slots name, what is freed is freed once, and what is given is nobody's.
    #[test]
    fn a_new_head_bears_whatever_slots_name() {
        let mut random = SplitMix64::fresh();
        for _ in 0..500 {
            let lines_max = [OBJECT_LINES as u64 + 9, 40, u32::MAX.into()][random.below(3) as usize];
            let named: Vec<ObjectMemory> = (0..random.below(30))
                .map(|_| ObjectMemory {
                    offset_lines: random.below(lines_max) as u32,
                    lines: 1 + random.below(9) as u8,
                    generation: 1 + random.below(3) as u16,
                })
                .collect();
            let head = successor(&named);
            let end = |memory: &ObjectMemory| memory.offset_lines as usize + usize::from(memory.lines);
            // What reaches beyond the region is nobody's memory.
            let mut out: Vec<_> =
                named.iter().copied().filter(|memory| end(memory) <= OBJECT_LINES).collect();
            for _ in 0..20 {
                let wanted = (1 + random.below(4) as u8, 9);
                let freed: Vec<ObjectMemory> = (0..random.below(5))
                    .filter_map(|_| out.get(random.below(out.len().max(1) as u64) as usize).copied())
                    .collect();
                let granted = head.exchange((OWNER, CONNECTED), wanted, (&[], &freed), MonotonicNs(0));
                out.retain(|memory| !freed.contains(memory));
                let given = granted.map_or(Vec::new(), |granted| granted.given);
                for memory in given {
                    assert!(end(&memory) <= OBJECT_LINES, "{memory:?} of {named:?}");
                    let meets = |other: &&ObjectMemory| {
                        end(other) > memory.offset_lines as usize
                            && end(&memory) > other.offset_lines as usize
                    };
                    assert_eq!(out.iter().find(meets), None, "{memory:?} of {named:?}");
                    out.push(memory);
                }
            }
        }
    }
}
