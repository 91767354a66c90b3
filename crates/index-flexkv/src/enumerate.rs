//! An enumeration: all pairs of a table, in no order, a page of slots at a time.
//!
//! Invariants:
//! - a key that is in the table from begin to end has one slot all that time. A replacement keeps the slot,
//!   and a split leaves each slot at its place. So who has looked once at each place of each subtable has
//!   found it once;
//! - a pair that comes was named by a live slot, and its object was that slot's: it was in the table when the
//!   slot was READ;
//! - no key comes from two subtables unless one of them was split from the other while it was enumerated.
//!   Who takes the pages drops such doubles ([`farsight_index::Enumeration`]).
//!
//! The place of an enumeration is a partition, and subtables of it from a line on each: what is left there.
//! Subtables have their numbers in the directory. So a place means the same after the connection was lost,
//! and to another session.
//!
//! Protocol of a page, of the last of these subtables:
//! 1. The directory is known to name its halves: go on with both in its place, each from this line on. Its
//!    unit may be another subtable's, if it was split before this compute node came. Otherwise READ its next
//!    lines. A slot there is sealed: READ the directory. The subtable has halves: go on with both. It has
//!    none: a sealed slot says what it said ([`crate::look`]).
//! 2. READ the objects of live slots. One whose checksum and generation fit, and whose key belongs to the
//!    slot, is a pair.
//! 3. An object does not fit: its memory was used anew since the slot was READ. Begin again at step 1, for
//!    those slots alone. If the same slot says the same twice, memory has lost a bit.
//!
//! Why nothing is missing: take a key that is there all the time, at a place in its subtable. Step 1 READs
//! its slot once: in the subtable, or in the half to which the split has copied it. Take a slot that was READ
//! before the directory had halves. It is not READ in the halves again, for they go on at the lines behind.

use farsight_base::Line;
use farsight_base::words::bytes_of;
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::{EnumeratedPage, FoundPair};
use farsight_layout::hash_index::{
    BucketHeader, DIRECTORY_LINES, GROUP_BUCKETS, HASH_PARTITION_BITS, HASH_PARTITIONS, Halves, HashSlot,
    KeyHash, ObjectRef, SlotPlace, SlotState, Subtable,
};
use farsight_layout::value_block::{BlockFault, ValueBlock};

#[cfg(injected)]
use crate::injected;
use crate::look::ATTEMPTS_MAX;
use crate::split::slots_of;
use crate::{FlexError, FlexSession};

/// Lines of a subtable that a page looks at: at most 336 slots, each with an object of 16 KiB at most.
const PAGE_LINES: u32 = 16 * GROUP_BUCKETS as u32;
/// Objects that are READ side by side.
const OBJECTS_AT_ONCE: usize = 64;
/// Bits of a word of a place that hold a line; above them is the subtable's number.
const LINE_BITS: u32 = 32;

/// Why an enumeration cannot go on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EnumerationFault {
    /// A slot names an object that is damaged.
    #[error("the object at line {line} of the pool's memory node {} is damaged: {source}", node + 1)]
    Damaged {
        /// The node's index.
        node: usize,
        /// The object's first line.
        line: u32,
        /// What is wrong with it.
        source: BlockFault,
    },
    /// Slots named other objects at each look, none of which was there any more.
    #[error(
        "{slots} slots of partition {partition} on the pool's memory node {} changed under each of \
         {attempts} attempts. Try again",
        node + 1
    )]
    Contended {
        /// The node's index.
        node: usize,
        /// The partition.
        partition: usize,
        /// How many.
        slots: usize,
        /// Attempts.
        attempts: u32,
    },
    /// A directory has a word that nobody writes.
    #[error(
        "the directory of partition {partition} of the pool's memory node {}: expected two units below {units}, \
         got {got:#018x}",
        node + 1
    )]
    Directory {
        /// The node's index.
        node: usize,
        /// The partition.
        partition: usize,
        /// Units of the node.
        units: u32,
        /// The word.
        got: u64,
    },
    /// A directory has lost what it had.
    #[error(
        "the directory of partition {partition} of the pool's memory node {} names no subtable {number}, \
         which it has named",
        node + 1
    )]
    Lost {
        /// The node's index.
        node: usize,
        /// The partition.
        partition: usize,
        /// The subtable's number.
        number: u32,
    },
    /// A bucket's header is of other keys than its subtable.
    #[error(
        "line {line} of the index of the pool's memory node {}: expected a bucket of subtable {number} of \
         partition {partition}, got a header {got:#018x}",
        node + 1
    )]
    Header {
        /// The node's index.
        node: usize,
        /// The line in the node's part of the shard.
        line: u32,
        /// The partition.
        partition: usize,
        /// The subtable's number.
        number: u32,
        /// The word.
        got: u64,
    },
}

/// What is left of a partition: subtables by their numbers, each from a line on. The last one is next.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    partition: usize,
    rest: Vec<(u32, u32)>,
}

/// One page's way: a subtable, and the lines of it that are looked at.
struct Lines {
    shard: usize,
    partition: usize,
    subtable: Subtable,
    /// The first of them, in the node's part of the shard.
    first: u32,
    found: Vec<Line>,
}

/// A slot whose object was not there at the last look.
#[derive(Clone, Copy)]
struct Stale {
    place: SlotPlace,
    word: HashSlot,
    fault: BlockFault,
}

impl Place {
    /// The place that these words are; without any, the begin.
    fn of(words: &[u64]) -> Self {
        let Some((partition, rest)) = words.split_first() else { return Self::at(0) };
        let of_word = |word: &u64| ((word >> LINE_BITS) as u32, *word as u32);
        Self { partition: *partition as usize, rest: rest.iter().map(of_word).collect() }
    }

    /// All of a partition.
    fn at(partition: usize) -> Self {
        Self { partition, rest: vec![(1, 0)] }
    }

    /// Its words; `None` at the end.
    fn words(&self) -> Option<Vec<u64>> {
        let place = if self.rest.is_empty() { Self::at(self.partition + 1) } else { self.clone() };
        let word = |(number, line): &(u32, u32)| u64::from(*number) << LINE_BITS | u64::from(*line);
        let words = || [place.partition as u64].into_iter().chain(place.rest.iter().map(word)).collect();
        (place.partition < HASH_PARTITIONS).then(words)
    }

    /// Goes on with both halves in place of the last subtable, which was split.
    fn split(&mut self) {
        let Some((number, line)) = self.rest.pop() else { return };
        self.rest.push((2 * number + 1, line));
        #[cfg(injected)]
        if injected::HALF_SKIPPED.is_injected() {
            return;
        }
        self.rest.push((2 * number, line));
    }
}

impl FlexSession {
    /// Puts the pairs at this place of an enumeration into `page`, and where it goes on.
    ///
    /// # Errors
    /// [`FlexError`]; then `page` is undefined.
    pub fn enumerate<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        at: &[u64],
        page: &mut EnumeratedPage,
    ) -> Result<(), FlexError> {
        page.clear();
        let until = self.believed_until(queues[0].now())?;
        let mut place = Place::of(at);
        let once = std::iter::once((&mut place, &mut *page));
        self.run(queues, 1, once, &async |slot, (place, page)| {
            self.enumerate_lines(&slot, place, page).await
        })?;
        page.next = place.words();
        self.check_believed(until, queues[0].now())
    }

    /// The next lines of a place.
    async fn enumerate_lines<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        place: &mut Place,
        page: &mut EnumeratedPage,
    ) -> Result<(), FlexError> {
        let (partition, shard) = (place.partition, place.partition % self.table.shards());
        let Some(&(number, line)) = place.rest.last() else { return Ok(()) };
        // Those before, if any, were of other prefixes.
        page.is_apart = line == 0;
        let subtable = self.subtable_of(slot, shard, (partition, number)).await?;
        if self.is_known_split(partition, subtable) {
            place.split();
            return Ok(());
        }
        let shape = self.table.shape(shard);
        let (first, lines) = (shape.unit_line(subtable.unit()) + line, shape.buckets().lines());
        let count = PAGE_LINES.min(lines.saturating_sub(line));
        let found = vec![Line::ZERO; count as usize];
        let mut looked = Lines { shard, partition, subtable, first, found };
        if self.look_at_lines(slot, &mut looked, page).await? {
            page.pairs.clear();
            place.split();
            return Ok(());
        }
        match place.rest.last_mut() {
            Some((_, next)) if line + count < lines => *next = line + count,
            _ => _ = place.rest.pop(),
        }
        Ok(())
    }

    /// Looks at lines until all of their objects were found. True if their subtable was split.
    async fn look_at_lines<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        looked: &mut Lines,
        page: &mut EnumeratedPage,
    ) -> Result<bool, FlexError> {
        let tail = self.table.tail(looked.shard);
        let mut stale: Option<Vec<Stale>> = None;
        for attempt in 0..ATTEMPTS_MAX {
            self.read_unit(slot, tail, looked.first, &mut looked.found).await?;
            looked.check_headers(tail.node)?;
            let is_sealed = |(_, word): (SlotPlace, HashSlot)| matches!(word.state(), SlotState::Sealed(_));
            if looked.slots().any(is_sealed) && self.has_halves(slot, looked).await? {
                return Ok(true);
            }
            let before = stale.take();
            let is_open = |place: SlotPlace| {
                before.as_ref().is_none_or(|before| before.iter().any(|stale| stale.place == place))
            };
            let open: Vec<_> = looked.slots().filter(|(place, _)| is_open(*place)).collect();
            let now = self.read_objects(slot, looked, &open, page).await?;
            if now.is_empty() {
                return Ok(false);
            }
            let said_before = |stale: &&Stale| {
                let before = before.iter().flatten();
                before.clone().any(|before| (before.place, before.word) == (stale.place, stale.word))
            };
            if let Some(Stale { word, fault, .. }) = now.iter().find(said_before) {
                let line = object_of(*word).map_or(0, |object| object.place.offset_lines);
                return Err(EnumerationFault::Damaged { node: tail.node, line, source: *fault }.into());
            }
            self.count(|counters| counters.retries += 1);
            stale = Some(now);
            self.pause(slot, attempt).await;
        }
        let (node, partition, attempts) = (tail.node, looked.partition, ATTEMPTS_MAX);
        let slots = stale.map_or(0, |stale| stale.len());
        Err(EnumerationFault::Contended { node, partition, slots, attempts }.into())
    }

    /// READs the objects that these slots name, and keeps the pairs. Returns slots whose objects do not fit.
    async fn read_objects<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        looked: &Lines,
        open: &[(SlotPlace, HashSlot)],
        page: &mut EnumeratedPage,
    ) -> Result<Vec<Stale>, FlexError> {
        let tail = self.table.tail(looked.shard);
        let named: Vec<_> =
            open.iter().filter_map(|(place, word)| Some((*place, *word, object_of(*word)?))).collect();
        let (mut stale, mut object) = (Vec::new(), self.object_buffer());
        for some in named.chunks(OBJECTS_AT_ONCE.min(slot.verbs())) {
            for (verb, (_, _, named)) in some.iter().enumerate() {
                if self.table.has_object(looked.shard, named.place) {
                    let at = tail.object_address(named.place);
                    slot.post_read(tail.node, verb, at, named.place.lines.into(), ReadMode::Plain);
                }
            }
            slot.completed().await;
            for (verb, (place, word, named)) in some.iter().enumerate() {
                object.clear();
                if self.table.has_object(looked.shard, named.place) {
                    object.resize(named.place.lines.into(), Line::ZERO);
                    slot.take_read(tail.node, verb, &mut object)?;
                }
                match block_of(*named, &object) {
                    Ok(block) if self.is_of_slot(looked, *place, block.key()) => {
                        let (key, version, value) = (block.key(), block.version(), block.value());
                        page.pairs.push(FoundPair { key, version, value });
                    }
                    // Nobody finds a key by a slot that is none of its own.
                    Ok(_) => {}
                    Err(fault) => stale.push(Stale { place: *place, word: *word, fault }),
                }
            }
        }
        Ok(stale)
    }

    /// True if a key of this subtable has the slot.
    fn is_of_slot(&self, looked: &Lines, place: SlotPlace, key: &[u8]) -> bool {
        let (hash, depth) = (KeyHash::of(key), looked.subtable.depth());
        let mut first_lines = self.table.shape(looked.shard).first_lines(hash, looked.subtable).into_iter();
        hash.prefix(depth) == looked.prefix()
            && first_lines.any(|first| (first..=first + 1).contains(&place.line))
    }

    /// The subtable of this number, where its partition's directory has it.
    async fn subtable_of<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        shard: usize,
        (partition, number): (usize, u32),
    ) -> Result<Subtable, FlexError> {
        if let Some(known) = self.known_subtable(shard, (partition, number)) {
            return Ok(known);
        }
        self.read_directory(slot, shard, partition).await?;
        let node = self.table.tail(shard).node;
        let lost = || EnumerationFault::Lost { node, partition, number }.into();
        self.known_subtable(shard, (partition, number)).ok_or_else(lost)
    }

    /// The same, as far as it is known.
    fn known_subtable(&self, shard: usize, (partition, number): (usize, u32)) -> Option<Subtable> {
        let shape = self.table.shape(shard);
        let mut at = shape.root(partition);
        for bit in (0..number.checked_ilog2()?).rev() {
            let word = self.table.directories().word(partition, at.directory_word()?);
            at = at.half((number >> bit & 1) as usize, Halves::parse(word, shape.units())?);
        }
        Some(at)
    }

    /// True if the directory is known to name the halves of a subtable. Its unit may be another one's by now,
    /// if it was split before this compute node came.
    fn is_known_split(&self, partition: usize, subtable: Subtable) -> bool {
        let word = subtable.directory_word();
        word.is_some_and(|word| self.table.directories().word(partition, word) != 0)
    }

    /// READs the directory. True if the subtable has halves.
    async fn has_halves<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        looked: &Lines,
    ) -> Result<bool, FlexError> {
        self.read_directory(slot, looked.shard, looked.partition).await?;
        Ok(self.is_known_split(looked.partition, looked.subtable))
    }

    /// READs the directory of a partition, and notes what it says.
    async fn read_directory<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        shard: usize,
        partition: usize,
    ) -> Result<(), FlexError> {
        let (shape, tail) = (self.table.shape(shard), self.table.tail(shard));
        let mut lines = [Line::ZERO; DIRECTORY_LINES];
        let from = tail.index_address(shape.directory_line(partition));
        slot.read(tail.node, from, &mut lines, ReadMode::Plain).await?;
        for (index, got) in lines.iter().flat_map(|line| line.0).enumerate() {
            if got != 0 && Halves::parse(got, shape.units()).is_none() {
                let (node, units) = (tail.node, shape.units());
                return Err(EnumerationFault::Directory { node, partition, units, got }.into());
            }
            self.table.directories().note(partition, index, got);
        }
        Ok(())
    }
}

impl Lines {
    fn slots(&self) -> impl Iterator<Item = (SlotPlace, HashSlot)> {
        slots_of(self.first, &self.found)
    }

    /// The highest bits of the hashes of the subtable's keys.
    fn prefix(&self) -> u32 {
        let below_root = self.subtable.depth() - HASH_PARTITION_BITS;
        ((self.partition as u32) << below_root) | (self.subtable.number() - (1 << below_root))
    }

    /// Refuses lines that are none of the subtable.
    fn check_headers(&self, node: usize) -> Result<(), FlexError> {
        let expected = (self.subtable.depth(), self.prefix());
        // The first word of an overflow, between two buckets, is a version.
        let is_overflow = |line: u32| (line - self.first) as usize % GROUP_BUCKETS == 1;
        for (line, bucket) in (self.first..).zip(&self.found).filter(|(line, _)| !is_overflow(*line)) {
            let got = bucket.0[0];
            let says = BucketHeader::parse(got).map(|header| (header.depth(), header.prefix()));
            // A partition's first subtable says nothing.
            let is_first = got == 0 && self.subtable.number() == 1;
            if !is_first && says != Some(expected) {
                let (partition, number) = (self.partition, self.subtable.number());
                return Err(EnumerationFault::Header { node, line, partition, number, got }.into());
            }
        }
        Ok(())
    }
}

/// The object that a slot names as live, or did when it was sealed.
fn object_of(word: HashSlot) -> Option<ObjectRef> {
    match word.state() {
        SlotState::Live(object) | SlotState::Sealed(Some(object)) => Some(object),
        _ => None,
    }
}

/// The pair that was READ as the object of a slot.
fn block_of(named: ObjectRef, object: &[Line]) -> Result<ValueBlock<'_>, BlockFault> {
    let block = ValueBlock::parse(bytes_of(object))?;
    if block.table() != named.place.generation {
        return Err(BlockFault::OtherTable { expected: named.place.generation, got: block.table() });
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_its_words() {
        assert_eq!(Place::of(&[]), Place::at(0));
        let mut place = Place { partition: 7, rest: vec![(3, 0), (2, u32::MAX)] };
        let words = place.words().expect("more to come");
        assert_eq!(Place::of(&words), place);
        place.split();
        assert_eq!(place.rest, [(3, 0), (5, u32::MAX), (4, u32::MAX)]);
        place.rest.clear();
        assert_eq!(Place::of(&place.words().expect("more to come")), Place::at(8));
        place.partition = HASH_PARTITIONS - 1;
        assert_eq!(place.words(), None);
    }
}
