//! What a new node is to have that takes the place of a lost one: read where the others have it.
//!
//! Nobody else is in the pool meanwhile, and all former compute nodes have ended at all of its nodes. So what
//! is read stands, and slots may be changed in any order.
//!
//! Protocol, of each partition of a shard of which the new node is to have a replica:
//! 1. Have all replicas have the directory that the head has.
//! 2. READ each subtable at all of them, and have all have what the head has. A slot that is reserved at the
//!    head becomes what it was, as the tail has it: a head that is one no more must have none.
//! 3. The new node gets directory and subtables. Of subtables without halves it gets the objects, too.
//!
//! A unit that was given again is part of several trees, and of one subtable without halves. It is copied as
//! it stands.

use std::cell::RefCell;

use farsight_base::words::bytes_of;
use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_layout::hash_index::{
    DIRECTORY_LINES, HASH_PARTITIONS, Halves, HashSlot, ObjectPlace, SlotPlace, SlotState,
};
use farsight_layout::value_block::ValueBlock;
use farsight_protocol::Space;

use crate::split::{is_reserved, slots_of};
use crate::table::Replica;
use crate::{CallResult, FlexError, FlexSession};

/// Objects that are READ side by side.
const OBJECTS: usize = 32;

/// Where copied lines go.
pub trait CopySink {
    /// Takes lines of one of the new node's regions.
    ///
    /// # Errors
    /// Whatever it fails in: the copy ends so.
    fn take(&mut self, space: Space, first_line: u32, lines: &[Line]) -> CallResult<()>;

    /// A partition was copied: so many are, of so many.
    ///
    /// # Errors
    /// As [`CopySink::take`].
    fn copied(&mut self, done: usize, of: usize) -> CallResult<()>;
}

/// The node whose sections are copied, and how they lie in its regions.
#[derive(Clone, Copy, Debug)]
pub struct CopyFor {
    /// Its place in the pool.
    pub place: usize,
    /// Sections of each of its regions.
    pub replicas: usize,
    /// Lines of its index.
    pub index_lines: u32,
    /// Lines of its objects.
    pub object_lines: u32,
}

/// A subtable, or a unit that was one.
struct Unit {
    first_line: u32,
    lines: Vec<Line>,
    has_objects: bool,
}

/// What a partition has.
#[derive(Default)]
struct Partition {
    directory: Vec<Line>,
    units: Vec<Unit>,
}

impl FlexSession {
    /// Copies what a node is to have.
    ///
    /// # Errors
    /// What the fabric or `sink` fail in; [`FlexError::Call`] if somebody else changes slots.
    pub fn copy_for<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        to: CopyFor,
        sink: &mut dyn CopySink,
    ) -> Result<(), FlexError> {
        let shards = self.table.shards();
        let shard_of = |section: usize| (to.place + shards - section) % shards;
        let partitions = |section: usize| (shard_of(section)..HASH_PARTITIONS).step_by(shards);
        let all: usize = (0..to.replicas).map(|section| partitions(section).len()).sum();
        let mut done = 0;
        for section in 0..to.replicas {
            let (shard, section_number) = (shard_of(section), section as u32);
            let index = section_number * (to.index_lines / to.replicas as u32);
            let objects = section_number * (to.object_lines / to.replicas as u32);
            for partition in partitions(section) {
                self.copy_partition(queues, (shard, partition), (index, objects), sink)?;
                done += 1;
                sink.copied(done, all).map_err(FlexError::of_call)?;
            }
        }
        Ok(())
    }

    fn copy_partition<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (shard, partition): (usize, usize),
        (index, objects): (u32, u32),
        sink: &mut dyn CopySink,
    ) -> Result<(), FlexError> {
        let read = RefCell::new(Partition::default());
        self.run(queues, 1, std::iter::once(()), &async |slot, ()| {
            let whole = self.equal_partition(&slot, (shard, partition)).await?;
            *read.borrow_mut() = whole;
            Ok(())
        })?;
        let Partition { directory, units } = read.into_inner();
        let directory_line = index + self.table.shape(shard).directory_line(partition);
        for unit in &units {
            if unit.has_objects {
                self.copy_objects(queues, shard, &unit.lines, objects, sink)?;
            }
            sink.take(Space::Index, index + unit.first_line, &unit.lines).map_err(FlexError::of_call)?;
        }
        sink.take(Space::Index, directory_line, &directory).map_err(FlexError::of_call)
    }

    /// Steps 1 and 2.
    async fn equal_partition<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (shard, partition): (usize, usize),
    ) -> Result<Partition, FlexError> {
        let shape = self.table.shape(shard);
        let words = self.level_directory(slot, shard, partition).await?;
        let mut directory = vec![Line::ZERO; DIRECTORY_LINES];
        for (at, word) in directory.iter_mut().flat_map(|line| &mut line.0).enumerate() {
            *word = words(at);
        }
        let (mut units, mut left) = (Vec::new(), vec![shape.root(partition)]);
        while let Some(subtable) = left.pop() {
            let halves = subtable.directory_word().and_then(|word| Halves::parse(words(word), shape.units()));
            let first_line = shape.unit_line(subtable.unit());
            let lines = self.equal_unit(slot, shard, first_line, shape.buckets().lines() as usize).await?;
            units.push(Unit { first_line, lines, has_objects: halves.is_none() });
            if let Some(halves) = halves {
                left.extend([0, 1].map(|half| subtable.half(half, halves)));
            }
        }
        Ok(Partition { directory, units })
    }

    /// Has all replicas have the slots of a unit that the head has, but for what is reserved there: the
    /// head's lines then.
    async fn equal_unit<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        shard: usize,
        first_line: u32,
        count: usize,
    ) -> Result<Vec<Line>, FlexError> {
        let chain = self.table.chain(shard);
        let mut all = Vec::with_capacity(chain.len());
        for at in chain {
            let mut lines = vec![Line::ZERO; count];
            self.read_unit(slot, at, first_line, &mut lines).await?;
            all.push(lines);
        }
        let mut wanted = all[0].clone();
        let at_tail: Vec<_> = slots_of(first_line, &all[all.len() - 1]).collect();
        for (place, word) in slots_of(first_line, &all[0]).filter(|(_, word)| is_reserved(*word)) {
            let before = at_tail.iter().find(|(at, _)| *at == place).map(|(_, before)| *before);
            // All that have seen a free slot's word have ended.
            let before = before.filter(|before| !is_reserved(*before) && *before != word);
            set_word(&mut wanted, first_line, place, before.unwrap_or_default());
        }
        for (at, lines) in chain.iter().zip(&all) {
            let pairs = slots_of(first_line, lines).zip(slots_of(first_line, &wanted));
            let changes: Vec<_> = pairs
                .filter(|((_, own), (_, wanted))| own != wanted)
                .map(|((place, own), (_, to))| (place, own, to))
                .collect();
            self.swap_all(slot, at, &changes).await?;
        }
        Ok(wanted)
    }

    async fn swap_all<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        at: &Replica,
        changes: &[(SlotPlace, HashSlot, HashSlot)],
    ) -> Result<(), FlexError> {
        for some in changes.chunks(slot.verbs()) {
            for (verb, (place, own, wanted)) in some.iter().enumerate() {
                slot.post_compare_swap(at.node, verb, at.slot_address(*place), own.0, wanted.0);
            }
            slot.completed().await;
            for (verb, (place, own, _)) in some.iter().enumerate() {
                let found = slot.take_word(at.node, verb)?;
                if found != own.0 {
                    let text = format!(
                        "{place:?} had {own:x?} and has {found:#x}: somebody writes while a node is taken in"
                    );
                    return Err(FlexError::Call { source: text.into() });
                }
            }
        }
        Ok(())
    }

    /// Step 3, of the objects that a subtable's slots name.
    fn copy_objects<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        shard: usize,
        lines: &[Line],
        first_line: u32,
        sink: &mut dyn CopySink,
    ) -> Result<(), FlexError> {
        let object_of = |(_, word): (SlotPlace, HashSlot)| match word.state() {
            SlotState::Live(object) | SlotState::Sealed(Some(object)) => Some(object.place),
            _ => None,
        };
        let places: Vec<ObjectPlace> = slots_of(0, lines)
            .filter_map(object_of)
            .filter(|place| self.table.has_object(shard, *place))
            .collect();
        for some in places.chunks(OBJECTS) {
            let read = RefCell::new(vec![Vec::new(); some.len()]);
            self.run(queues, OBJECTS, some.iter().enumerate(), &async |slot, (at, place)| {
                let lines = self.read_copy(&slot, shard, *place).await?;
                read.borrow_mut()[at] = lines;
                Ok(())
            })?;
            for (place, lines) in some.iter().zip(read.into_inner()) {
                let first_line = first_line + place.offset_lines;
                sink.take(Space::Blocks, first_line, &lines).map_err(FlexError::of_call)?;
            }
        }
        Ok(())
    }

    /// An object as a replica has it that has it whole, or as the last one has it.
    async fn read_copy<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        shard: usize,
        place: ObjectPlace,
    ) -> Result<Vec<Line>, FlexError> {
        let mut lines = vec![Line::ZERO; place.lines.into()];
        for at in self.table.chain(shard) {
            slot.read(at.node, at.object_address(place), &mut lines, ReadMode::Plain).await?;
            let block = ValueBlock::parse(bytes_of(&lines));
            if block.is_ok_and(|block| block.table() == place.generation) {
                break;
            }
        }
        Ok(lines)
    }
}

fn set_word(lines: &mut [Line], first_line: u32, place: SlotPlace, word: HashSlot) {
    debug_assert!(usize::from(place.slot) + 1 < WORDS_PER_LINE, "{place:?}");
    lines[(place.line - first_line) as usize].0[1 + usize::from(place.slot)] = word.0;
}
