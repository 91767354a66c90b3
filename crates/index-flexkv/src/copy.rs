//! What a new node is to have that takes the place of a lost one: read where the others have it.
//!
//! Objects are brought in two passes. The first goes *ahead*, while others write. The second brings what is
//! missing. Nobody else is in the pool then, and all former compute nodes have ended at all of its nodes. So
//! what is read stands, and slots may be changed in any order.
//!
//! Invariant of what was brought ahead: the new node has the object as it was when a live slot named it, in
//! one use of its memory. It does not change while a slot names it. Its memory is never again in the same use
//! while the compute node lives that has read it. So a slot that names the same use later names that object.
//!
//! Protocol ahead, of each partition of a shard of which the new node is to have a replica:
//! 1. READ the directory at the tail, and the subtables without halves.
//! 2. READ the objects that their slots name. The new node gets those whose checksum and generation fit. The
//!    others are left for later.
//!
//! Protocol of the rest, of each such partition:
//! 1. Have all replicas have the directory that the head has.
//! 2. READ each subtable at all of them, and have all have what the head has. A slot that is reserved at the
//!    head becomes what it was, as the tail has it: a head that is one no more must have none.
//! 3. The new node gets directory and subtables. Of subtables without halves it gets the objects, too, but
//!    for those that it has.
//!
//! A unit that was given again is part of several trees, and of one subtable without halves. It is copied as
//! it stands.

use std::cell::RefCell;
use std::collections::BTreeMap;

use farsight_base::words::bytes_of;
use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_layout::hash_index::{
    DIRECTORY_LINES, HASH_PARTITIONS, Halves, HashSlot, OBJECT_LINES_MAX, ObjectPlace, SlotPlace, SlotState,
};
use farsight_layout::value_block::ValueBlock;
use farsight_protocol::Space;

#[cfg(injected)]
use crate::injected;
use crate::settle::read_directory;
use crate::split::{is_reserved, slots_of};
use crate::table::Replica;
use crate::{CallResult, FlexError, FlexSession};

/// Objects that are READ side by side.
const OBJECTS: usize = 32;

/// Objects of a table that the new node has. Of two whose memory overlaps it has the one that came last.
#[derive(Debug, Default)]
pub struct BroughtAhead {
    /// By section: lines and generation, by first line.
    sections: Vec<BTreeMap<u32, (u8, u16)>>,
}

impl BroughtAhead {
    /// Notes that an object was brought.
    fn note(&mut self, section: usize, ObjectPlace { offset_lines, lines, generation }: ObjectPlace) {
        if self.sections.len() <= section {
            self.sections.resize_with(section + 1, BTreeMap::new);
        }
        let objects = &mut self.sections[section];
        let end = offset_lines + u32::from(lines);
        let first = offset_lines.saturating_sub(OBJECT_LINES_MAX.into());
        let overlap =
            |(at, (lines, _)): (&u32, &(u8, u16))| (at + u32::from(*lines) > offset_lines).then_some(*at);
        let spoiled: Vec<u32> = objects.range(first..end).filter_map(overlap).collect();
        for at in spoiled {
            objects.remove(&at);
        }
        objects.insert(offset_lines, (lines, generation));
    }

    /// True if the new node has this object.
    fn has(&self, section: usize, ObjectPlace { offset_lines, lines, generation }: ObjectPlace) -> bool {
        let known = self.sections.get(section).and_then(|objects| objects.get(&offset_lines));
        #[cfg(injected)]
        if injected::BROUGHT_IN_ANY_USE.is_injected() {
            return known.is_some();
        }
        known == Some(&(lines, generation))
    }
}

/// Where copied lines go.
pub trait CopySink {
    /// Takes lines of one of the new node's regions. They are zero but for what was brought before.
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

/// A section of the new node's regions, and the shard that it has.
#[derive(Clone, Copy)]
struct Section {
    number: usize,
    shard: usize,
    /// Its first lines.
    index: u32,
    objects: u32,
}

impl CopyFor {
    /// All partitions that the node is to have, in a pool of so many shards.
    fn partitions(self, shards: usize) -> Vec<(Section, usize)> {
        let section = |number: usize| {
            let first = |lines: u32| number as u32 * (lines / self.replicas as u32);
            let (index, objects) = (first(self.index_lines), first(self.object_lines));
            Section { number, shard: (self.place + shards - number) % shards, index, objects }
        };
        let partitions = |section: Section| (section.shard..HASH_PARTITIONS).step_by(shards);
        let sections = (0..self.replicas).map(section);
        sections.flat_map(|section| partitions(section).map(move |partition| (section, partition))).collect()
    }
}

impl FlexSession {
    /// Brings a node objects that it is to have, while others write.
    ///
    /// # Errors
    /// What the fabric or `sink` fail in.
    pub fn copy_ahead<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        to: CopyFor,
        sink: &mut dyn CopySink,
    ) -> Result<BroughtAhead, FlexError> {
        let mut brought = BroughtAhead::default();
        let partitions = to.partitions(self.table.shards());
        for (done, (section, partition)) in (1..).zip(&partitions) {
            let units = RefCell::new(Vec::new());
            self.run(queues, 1, std::iter::once(()), &async |slot, ()| {
                *units.borrow_mut() = self.units_at_tail(&slot, section.shard, *partition).await?;
                Ok(())
            })?;
            for lines in units.into_inner() {
                self.copy_objects(queues, *section, &lines, (&mut brought, true), sink)?;
            }
            sink.copied(done, partitions.len()).map_err(FlexError::of_call)?;
        }
        Ok(brought)
    }

    /// Copies what a node is to have, but for objects that it has.
    ///
    /// # Errors
    /// What the fabric or `sink` fail in; [`FlexError::Call`] if somebody else changes slots.
    pub fn copy_for<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        to: CopyFor,
        brought: &mut BroughtAhead,
        sink: &mut dyn CopySink,
    ) -> Result<(), FlexError> {
        let partitions = to.partitions(self.table.shards());
        for (done, (section, partition)) in (1..).zip(&partitions) {
            self.copy_partition(queues, (*section, *partition), brought, sink)?;
            sink.copied(done, partitions.len()).map_err(FlexError::of_call)?;
        }
        Ok(())
    }

    /// The subtables of a partition that have no halves, as the tail has them while others write.
    async fn units_at_tail<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        shard: usize,
        partition: usize,
    ) -> Result<Vec<Vec<Line>>, FlexError> {
        let (shape, tail) = (self.table.shape(shard), self.table.tail(shard));
        let directory = read_directory(slot, tail, shape.directory_line(partition)).await?;
        let (mut units, mut left) = (Vec::new(), vec![shape.root(partition)]);
        while let Some(subtable) = left.pop() {
            let word = subtable.directory_word().map(|word| directory[word / 8].0[word % 8]);
            if let Some(halves) = word.and_then(|word| Halves::parse(word, shape.units())) {
                left.extend([0, 1].map(|half| subtable.half(half, halves)));
                continue;
            }
            let mut lines = vec![Line::ZERO; shape.buckets().lines() as usize];
            self.read_unit(slot, tail, shape.unit_line(subtable.unit()), &mut lines).await?;
            units.push(lines);
        }
        Ok(units)
    }

    fn copy_partition<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        (section, partition): (Section, usize),
        brought: &mut BroughtAhead,
        sink: &mut dyn CopySink,
    ) -> Result<(), FlexError> {
        let Section { shard, index, .. } = section;
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
                self.copy_objects(queues, section, &unit.lines, (brought, false), sink)?;
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

    /// The objects that a subtable's slots name, but for those that were brought. What is read ahead may be
    /// another one by now, and is left then.
    fn copy_objects<Q: QueuePair>(
        &self,
        queues: &mut [Q],
        section: Section,
        lines: &[Line],
        (brought, is_ahead): (&mut BroughtAhead, bool),
        sink: &mut dyn CopySink,
    ) -> Result<(), FlexError> {
        let shard = section.shard;
        let object_of = |(_, word): (SlotPlace, HashSlot)| match word.state() {
            SlotState::Live(object) | SlotState::Sealed(Some(object)) => Some(object.place),
            _ => None,
        };
        let places: Vec<ObjectPlace> = slots_of(0, lines)
            .filter_map(object_of)
            .filter(|place| self.table.has_object(shard, *place) && !brought.has(section.number, *place))
            .collect();
        for some in places.chunks(OBJECTS) {
            let read = RefCell::new(vec![(false, Vec::new()); some.len()]);
            self.run(queues, OBJECTS, some.iter().enumerate(), &async |slot, (at, place)| {
                let lines = self.read_copy(&slot, shard, *place).await?;
                read.borrow_mut()[at] = lines;
                Ok(())
            })?;
            for (place, (is_whole, lines)) in some.iter().zip(read.into_inner()) {
                if !is_whole && is_ahead {
                    continue;
                }
                let first_line = section.objects + place.offset_lines;
                sink.take(Space::Blocks, first_line, &lines).map_err(FlexError::of_call)?;
                brought.note(section.number, *place);
            }
        }
        Ok(())
    }

    /// An object as a replica has it that has it whole, or as the last one has it; and whether that is whole.
    async fn read_copy<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        shard: usize,
        place: ObjectPlace,
    ) -> Result<(bool, Vec<Line>), FlexError> {
        let mut lines = vec![Line::ZERO; place.lines.into()];
        for at in self.table.chain(shard) {
            slot.read(at.node, at.object_address(place), &mut lines, ReadMode::Plain).await?;
            let block = ValueBlock::parse(bytes_of(&lines));
            if block.is_ok_and(|block| block.table() == place.generation) {
                return Ok((true, lines));
            }
        }
        Ok((false, lines))
    }
}

fn set_word(lines: &mut [Line], first_line: u32, place: SlotPlace, word: HashSlot) {
    debug_assert!(usize::from(place.slot) + 1 < WORDS_PER_LINE, "{place:?}");
    lines[(place.line - first_line) as usize].0[1 + usize::from(place.slot)] = word.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(offset_lines: u32, lines: u8, generation: u16) -> ObjectPlace {
        ObjectPlace { offset_lines, lines, generation }
    }

    /// Memory of one length may become part of another one's, and what is sent last stands there.
    #[test]
    fn what_was_brought_over_another_object_is_all_that_is_there() {
        let mut brought = BroughtAhead::default();
        let first = [place(10, 3, 1), place(13, 1, 1), place(20, 254, 1), place(300, 1, 4)];
        for place in first {
            brought.note(1, place);
        }
        assert!(first.into_iter().all(|place| brought.has(1, place)));
        assert!(!brought.has(0, first[0]) && !brought.has(2, first[0]), "of another section");
        assert!(!brought.has(1, place(10, 3, 2)) && !brought.has(1, place(10, 2, 1)), "of another use");
        brought.note(1, place(12, 2, 1));
        assert_eq!(first.map(|place| brought.has(1, place)), [false, false, true, true]);
        brought.note(1, place(273, 1, 9));
        assert_eq!(first.map(|place| brought.has(1, place)), [false, false, false, true]);
        brought.note(1, place(300, 1, 5));
        assert!(brought.has(1, place(300, 1, 5)) && !brought.has(1, first[3]));
        brought.note(1, place(0, 200, 1));
        assert!(!brought.has(1, place(12, 2, 1)) && brought.has(1, place(273, 1, 9)));
    }
}
