//! Leaves whose values are references to blocks: XStore's leaf with values of one word, and what happens to
//! the blocks when a word changes.
//!
//! Invariant: at most one pair names a block. (While two leaves are merged both show the pair.) The latch's
//! holder seals a block before its word is stored, and a block is retired after its word is gone.

use std::sync::Arc;

use farsight_base::clock::UnixTime;
use farsight_base::sync::AtomicU64;
use farsight_base::{LeafNumber, Line};
use farsight_blocks::BlockSpace;
use farsight_index::{
    Decision, Direction, HeldPair, LatchedLeaf, LeafAnswer, LeafFormat, LeafSpan, NewValue, Pair, Pairs,
    Place, Room, ScanRequest, Undecided, decide_parts,
};
use farsight_layout::value_block::{
    BLOCK_VALUE_BYTES_MAX, BlockPlace, BlockRef, SealedHeader, seal, write_draft,
};
use farsight_layout::{DEADLINE_BYTES, Deadline, LEAF_SLOTS, SHORT_VALUE_BYTES};
use farsight_protocol::{INTEGER_BYTES, Operand, WriteOperation};

use super::block_copy::{Named, copy, is_longer};
use super::expiry::{deadline_of, drafted_deadline};
use super::leaf::{LatchedXStoreLeaf, XStoreLeaf};

/// The format of leaves whose values are [`BlockRef`]s to blocks of one space.
pub struct BlockLeaf {
    leaf: XStoreLeaf,
    space: Arc<BlockSpace>,
    table: u16,
    /// By which pairs end, if they have deadlines.
    unix_time: Option<Arc<dyn UnixTime>>,
}

impl BlockLeaf {
    /// Leaves of this table, whose number is cut to 16 bits, over blocks of `space`. Pairs have deadlines if
    /// there is a clock.
    #[must_use]
    pub fn new(space: Arc<BlockSpace>, table: u32, unix_time: Option<Arc<dyn UnixTime>>) -> Self {
        let leaf = XStoreLeaf::new(SHORT_VALUE_BYTES).expect("a size of the format");
        Self { leaf, space, table: table as u16, unix_time }
    }

    /// The time by which pairs end now; `None` if they have no deadlines.
    pub(super) fn now_ms(&self) -> Option<u64> {
        self.unix_time.as_ref().map(|clock| clock.now_ms())
    }

    /// Where the blocks stand.
    #[must_use]
    pub fn space(&self) -> &Arc<BlockSpace> {
        &self.space
    }

    /// The place of the block of this version that `reference` names. `None` if that block does not say that
    /// it is, because memory lost a bit of it or of the reference: then its memory stays as it is. To give
    /// back what may be another pair's would do more harm than to lose it.
    pub(super) fn place_of(&self, reference: BlockRef, version: u64) -> Option<BlockPlace> {
        let place = self.space.place(reference)?;
        let expected = SealedHeader { version, table: self.table, lines: place.lines as usize };
        let header = SealedHeader::read(self.space.words(place)?);
        (header == expected).then_some(place)
    }

    /// The table's number, as blocks have it.
    #[must_use]
    pub fn table(&self) -> u16 {
        self.table
    }
}

/// The reference in a value's bytes.
pub(super) fn reference_in(value: &[u8]) -> BlockRef {
    BlockRef(u64::from_le_bytes(value.try_into().expect("a reference is one word")))
}

/// Bytes that a swap's answer has room for, as its operand says.
fn room_bytes(argument: &[u8]) -> u64 {
    u64::from_le_bytes(argument.try_into().expect("a swap's operand says its room"))
}

impl LeafFormat for BlockLeaf {
    type Latched<'a> = LatchedBlockLeaf<'a>;

    fn leaf_words(&self) -> usize {
        self.leaf.leaf_words()
    }

    fn value_bytes(&self) -> usize {
        self.leaf.value_bytes()
    }

    fn bulk_load_pairs(&self) -> usize {
        self.leaf.bulk_load_pairs()
    }

    fn few_pairs(&self) -> usize {
        self.leaf.few_pairs()
    }

    #[inline]
    fn get(&self, words: &[AtomicU64], key: u64, into: &mut [u8]) -> LeafAnswer<u64> {
        self.leaf.get(words, key, into)
    }

    #[inline]
    fn look(&self, words: &[AtomicU64], key: u64) -> LeafAnswer<usize> {
        self.leaf.look(words, key)
    }

    fn read_pairs(
        &self,
        words: &[AtomicU64],
        direction: Direction,
        scan: ScanRequest,
        into: &mut Pairs,
    ) -> Option<LeafSpan> {
        self.leaf.read_pairs(words, direction, scan, into)
    }

    fn operand_bytes(&self, operation: WriteOperation) -> Option<usize> {
        // A reference, and behind it what the write expects or adds: of any length.
        (!operation.has_value()).then(|| operation.operand_bytes(self.value_bytes()))
    }

    fn pairs_seen(&self, words: &[AtomicU64]) -> usize {
        self.leaf.pairs_seen(words)
    }

    fn prefetch_keys(&self, words: &[AtomicU64]) {
        self.leaf.prefetch_keys(words);
    }

    fn may_hold(&self, words: &[AtomicU64], key: u64) -> bool {
        self.leaf.may_hold(words, key)
    }

    fn prefetch_value(&self, words: &[AtomicU64], key: u64) -> bool {
        self.leaf.prefetch_value(words, key)
    }

    fn prefetch_insert(&self, words: &[AtomicU64]) -> Room {
        self.leaf.prefetch_insert(words)
    }

    fn prefetch_leaf(&self, words: &[AtomicU64]) {
        self.leaf.prefetch_leaf(words);
    }

    /// Gives the blocks of its pairs back, too.
    fn clear_unnamed(&self, words: &[AtomicU64]) {
        let mut pairs = Pairs::default();
        pairs.reset(SHORT_VALUE_BYTES);
        let all = ScanRequest { from: 0, limit: LEAF_SLOTS };
        // One that was not filled yet is no leaf, and has no pairs.
        let is_leaf = self.leaf.read_pairs(words, Direction::Ascending, all, &mut pairs).is_some();
        self.leaf.clear_unnamed(words);
        #[cfg(injected)]
        let is_leaf = is_leaf && !crate::injected::LOADED_BLOCKS_KEPT.is_injected();
        if is_leaf {
            for index in 0..pairs.len() {
                let Pair { version, value, .. } = pairs.pair(index);
                if let Some(place) = self.place_of(reference_in(value), version) {
                    self.space.give_back(place);
                }
            }
        }
    }

    fn let_go(&self, values: &[u8]) {
        for place in values.chunks_exact(SHORT_VALUE_BYTES).map(reference_in) {
            self.space.give_back(self.space.place(place).expect("a place that the writer took"));
        }
    }

    fn latch<'a>(&'a self, words: &'a [AtomicU64], attempts: usize) -> Option<LatchedBlockLeaf<'a>> {
        let leaf = self.leaf.latch(words, attempts)?;
        Some(LatchedBlockLeaf { leaf, format: self, blocks: Retiring { space: &self.space, place: None } })
    }
}

/// One of these leaves under its latch. Its fields go in their order: the latch before the retired block.
pub struct LatchedBlockLeaf<'a> {
    leaf: LatchedXStoreLeaf<'a>,
    format: &'a BlockLeaf,
    blocks: Retiring<'a>,
}

/// The block whose word was replaced last. It is retired when the next one is, or without the latch.
struct Retiring<'a> {
    space: &'a BlockSpace,
    place: Option<BlockPlace>,
}

impl Retiring<'_> {
    fn push(&mut self, place: Option<BlockPlace>) {
        if let Some(before) = std::mem::replace(&mut self.place, place) {
            self.space.retire(before);
        }
    }
}

impl Drop for Retiring<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.space.retire(place);
        }
    }
}

impl LatchedBlockLeaf<'_> {
    /// Gives the draft that the value's word names its version.
    fn seal(&self, value: &[u8], version: u64) {
        let space = self.blocks.space;
        let place = space.place(reference_in(value)).expect("a place that the writer took");
        seal(space.words(place).expect("words of the place"), version, self.format.table);
    }

    /// The version of the pair in `slot`. If the operation needs its value, that is copied into `room`; then
    /// its deadline is returned, too, if pairs have any.
    fn look(
        &self,
        operation: WriteOperation,
        (key, slot): (u64, usize),
        argument: &[u8],
        room: &mut Vec<u8>,
    ) -> Result<(u64, Option<Deadline>), Undecided> {
        let mut value = [0; SHORT_VALUE_BYTES];
        let version = self.leaf.pair(slot, &mut value);
        if !operation.needs_old_value() {
            return Ok((version, None));
        }
        let (mut lines, named) = (Vec::<Line>::new(), Named { reference: reference_in(&value), version });
        if operation == WriteOperation::Swap {
            // What is certainly too long is not copied under the latch.
            let value_bytes = usize::try_from(room_bytes(argument)).unwrap_or(BLOCK_VALUE_BYTES_MAX);
            let deadline_bytes = if self.format.unix_time.is_some() { DEADLINE_BYTES } else { 0 };
            let stored_bytes = value_bytes.min(BLOCK_VALUE_BYTES_MAX) + deadline_bytes;
            if is_longer((self.blocks.space, self.format.table), named, stored_bytes) {
                return Err(Undecided::NoRoom { value_bytes: stored_bytes + 1 });
            }
        }
        let copied = copy((self.blocks.space, self.format.table), key, named, &mut lines);
        let stored = copied.map_err(|_| Undecided::Damaged)?.value(&lines);
        let (deadline, value) = self.split_deadline(stored).ok_or(Undecided::Damaged)?;
        let value_bytes = value.len();
        match operation {
            WriteOperation::FetchAdd if value_bytes != INTEGER_BYTES => {
                return Err(Undecided::NotInteger { value_bytes });
            }
            WriteOperation::Swap if value_bytes as u64 > room_bytes(argument) => {
                return Err(Undecided::NoRoom { value_bytes });
            }
            _ => {}
        }
        room.clear();
        room.extend_from_slice(value);
        Ok((version, deadline))
    }

    /// What is stored of a value, in its parts; `None` if it lacks a deadline that it must have.
    fn split_deadline<'s>(&self, stored: &'s [u8]) -> Option<(Option<Deadline>, &'s [u8])> {
        if self.format.unix_time.is_none() {
            return Some((None, stored));
        }
        Deadline::split(stored).map(|(deadline, value)| (Some(deadline), value))
    }

    /// Writes a sum into the draft that `reference` names, in place of zeros. A pair that was there keeps its
    /// deadline.
    fn redraft(&self, reference: &[u8], key: u64, sum: [u8; INTEGER_BYTES], kept: Option<Deadline>) {
        let space = self.blocks.space;
        let place = space.place(reference_in(reference)).expect("a place that the writer took");
        let words = space.words(place).expect("words of the place");
        let write = |stored: &[u8]| {
            write_draft(words, &key.to_le_bytes(), stored).expect("a value as long as the one before");
        };
        if self.format.unix_time.is_none() {
            return write(&sum);
        }
        let deadline = kept.unwrap_or_else(|| drafted_deadline(words));
        write(&[deadline.to_bytes(), sum].concat());
    }

    /// The place of the block that the pair in `slot` names, as [`BlockLeaf::place_of`] finds it. `None` also
    /// if that is `kept`: its block was written over, and the pair goes on to name it.
    fn place(&self, slot: usize, kept: Option<&[u8]>) -> Option<BlockPlace> {
        let mut value = [0; SHORT_VALUE_BYTES];
        let version = self.leaf.pair(slot, &mut value);
        let is_kept = kept.is_some_and(|kept| *kept == value);
        #[cfg(injected)]
        let is_kept = is_kept && !crate::injected::OWN_BLOCK_RETIRED.is_injected();
        if is_kept { None } else { self.format.place_of(reference_in(&value), version) }
    }
}

impl LatchedLeaf for LatchedBlockLeaf<'_> {
    fn find(&self, key: u64) -> Place {
        self.leaf.find(key)
    }

    #[inline]
    fn is_at(&self, key: u64, slot: usize) -> bool {
        self.leaf.is_at(key, slot)
    }

    fn is_past_deadline(&self, key: u64, slot: usize) -> bool {
        let Some(now_ms) = self.format.now_ms() else { return false };
        let mut value = [0; SHORT_VALUE_BYTES];
        let version = self.leaf.pair(slot, &mut value);
        let named = Named { reference: reference_in(&value), version };
        let deadline = deadline_of((self.blocks.space, self.format.table), key, named, now_ms);
        deadline.is_some_and(|deadline| deadline.is_past(now_ms))
    }

    fn span(&self) -> Option<LeafSpan> {
        self.leaf.span()
    }

    fn pair_count(&self) -> usize {
        self.leaf.pair_count()
    }

    fn version(&self, slot: usize) -> u64 {
        self.leaf.version(slot)
    }

    fn pair(&self, slot: usize, into: &mut [u8]) -> u64 {
        self.leaf.pair(slot, into)
    }

    fn decide<'v>(
        &self,
        operation: WriteOperation,
        (key, slot): (u64, Option<usize>),
        operand: &'v [u8],
        room: &mut Vec<u8>,
    ) -> Result<Decision<'v>, Undecided> {
        let has_reference = operation.has_value();
        let (reference, argument) = operand.split_at(if has_reference { SHORT_VALUE_BYTES } else { 0 });
        let looked = slot.map(|slot| self.look(operation, (key, slot), argument, room)).transpose()?;
        let held = looked.map(|(version, _)| HeldPair { version, value: room });
        let argument = if operation == WriteOperation::Swap { &[] } else { argument };
        Ok(match decide_parts(operation, Operand { argument, value: reference }, held) {
            Decision::Store(NewValue::Sum(sum)) => {
                self.redraft(reference, key, sum, looked.and_then(|(_, deadline)| deadline));
                Decision::Store(NewValue::Given(reference))
            }
            decided => decided,
        })
    }

    fn insert(&mut self, key: u64, version: u64, value: &[u8]) -> bool {
        // The block of a pair for which there is no room stays a draft.
        if !self.leaf.has_unused_slot() {
            return false;
        }
        self.seal(value, version);
        self.leaf.insert(key, version, value)
    }

    fn update(&mut self, slot: usize, version: u64, value: &[u8]) {
        let replaced = self.place(slot, Some(value));
        self.seal(value, version);
        self.leaf.update(slot, version, value);
        self.blocks.push(replaced);
    }

    fn remove(&mut self, slot: usize) {
        let removed = self.place(slot, None);
        self.leaf.remove(slot);
        self.blocks.push(removed);
    }

    fn removed_slots(&self) -> usize {
        self.leaf.removed_slots()
    }

    fn compact(&mut self) {
        self.leaf.compact();
    }

    fn split(&mut self, right: &mut Self, right_number: LeafNumber, incoming: u64) -> u64 {
        self.leaf.split(&mut right.leaf, right_number, incoming)
    }

    fn absorb(&mut self, number: LeafNumber, right: &mut Self) {
        self.leaf.absorb(number, &mut right.leaf);
    }

    fn fill(&mut self, span: LeafSpan, keys: &[u64], values: &[u8], versions: &[u64]) {
        for (value, version) in values.chunks_exact(SHORT_VALUE_BYTES).zip(versions) {
            self.seal(value, *version);
        }
        self.leaf.fill(span, keys, values, versions);
    }

    fn scrub(&mut self) -> bool {
        self.leaf.scrub()
    }
}
