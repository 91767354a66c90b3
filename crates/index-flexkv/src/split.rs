//! Splits: how a subtable without room becomes two, while others read and write it.
//!
//! Invariants:
//! - a sealed slot does not change any more. So what writers did to a subtable they did before its slots were
//!   sealed, each before its own;
//! - a directory names halves that are complete, behind a subtable all of whose slots are sealed. So until
//!   then the subtable says what its keys are, and from then on the halves do;
//! - units are one compute node's until the directory names them. Two that split one subtable write different
//!   units, and one of them publishes.
//!
//! Protocol, of a writer that finds no room, or finds a slot sealed:
//! 1. READ the partition's directory. It has the halves: begin the write anew, there.
//! 2. Ask the node for two units. It gives them to one compute node at a time, for a lease; that saves work,
//!    and nothing depends on it. Somebody else has some: wait, look at the directory, ask again.
//! 3. READ the subtable. Compare each slot with its word, and swap it for the same, *sealed*. A slot that was
//!    reserved is dropped: its writer begins anew. Another word came first: seal that one.
//!    Somebody may keep the value of one of them: wait until he does not give it out ([`crate::closing`]).
//! 4. READ the subtable again: slots, and the versions that were removed. READ the objects, whose keys tell
//!    the halves apart.
//! 5. WRITE the halves into the units: live slots at their places, removed versions in both.
//! 6. Compare the directory's word with zero, and swap it for the units. That is the split's effect. Somebody
//!    else's units stand there: these are of no use.
//! 7. Tell the node that the units are not written any more.
//!
//! Readers wait for nobody: a sealed slot says what it said, if the directory, READ behind it, has no halves
//! yet. Writers wait, or split themselves.
//!
//! A compute node that ends before step 6 leaves sealed slots, and units that its node takes back. The next
//! writer that meets a sealed slot goes through all steps again.

use std::time::Duration;

use farsight_base::{Line, WORDS_PER_LINE};
use farsight_fabric::lane::PoolSlot;
use farsight_fabric::{QueuePair, ReadMode};
use farsight_index::Key;
use farsight_layout::hash_index::{
    BUCKET_SLOTS, BucketHeader, DIRECTORY_LINES, GROUP_BUCKETS, HASH_PARTITION_BITS, Halves, HashSlot,
    KeyHash, ObjectRef, SlotPlace, SlotState,
};
use farsight_layout::value_block::ValueBlock;
use farsight_protocol::SplitGrant;

use crate::chain::Change;
#[cfg(injected)]
use crate::injected;
use crate::look::ATTEMPTS_MAX;
use crate::table::{KeyLines, Replica};
use crate::{FlexError, FlexSession};

/// Lines of one READ or WRITE of a subtable.
const LINES_AT_ONCE: usize = 16 * GROUP_BUCKETS;
/// Lines of objects that are READ side by side, or one object more.
const OBJECT_LINES_AT_ONCE: usize = 256;
/// Between two looks whether somebody else's split is done.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);
/// The longest wait for somebody else's split before the node is asked again.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// The keys of which a slot may be in the half of next bit 0, and of 1.
type InHalves = [bool; 2];

impl FlexSession {
    /// READs the directory of a key's partition. True if the key's subtable was split.
    pub(crate) async fn is_split<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
    ) -> Result<bool, FlexError> {
        let (shape, partition) = (self.table.shape(of.shard), of.hash.partition());
        let tail = self.table.tail(of.shard);
        let mut lines = [Line::ZERO; DIRECTORY_LINES];
        let from = tail.index_address(shape.directory_line(partition));
        slot.read(tail.node, from, &mut lines, ReadMode::Plain).await?;
        let words = || lines.iter().flat_map(|line| line.0);
        for (index, got) in words().enumerate() {
            let units = shape.units();
            if got != 0 && Halves::parse(got, units).is_none() {
                let node = tail.node;
                return Err(FlexError::Directory { key: key.into(), node, partition, units, got });
            }
            self.table.directories().note(partition, index, got);
        }
        let word = of.subtable.directory_word().and_then(|index| words().nth(index));
        Ok(word.is_some_and(|word| word != 0))
    }

    /// Splits the key's subtable, or waits until others have. The write begins anew.
    pub(crate) async fn split<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
    ) -> Result<(), FlexError> {
        if self.is_split(slot, (key, of)).await? {
            return Ok(());
        }
        let (partition, number) = (of.hash.partition() as u16, of.subtable.number() as u16);
        if of.subtable.directory_word().is_none() {
            return Err(FlexError::Deepest {
                key: key.into(),
                splits: of.subtable.depth() - HASH_PARTITION_BITS,
            });
        }
        let head = self.table.head(of.shard).node;
        match self.calls.begin_split(head, partition, number).map_err(FlexError::of_call)? {
            // The head's directory says so. Who split it may have ended before the others' do.
            SplitGrant::Done if self.table.is_replicated(of.shard) => {
                self.level_directory(slot, of.shard, of.hash.partition()).await.map(drop)
            }
            SplitGrant::Done => Ok(()),
            SplitGrant::Wait { pause_us } => {
                self.await_split(slot, (key, of), Duration::from_micros(pause_us.into())).await
            }
            SplitGrant::Full { units, resting } => {
                Err(FlexError::Full { key: key.into(), node: head, units, resting })
            }
            SplitGrant::Units(units) => {
                let halves = Halves::parse(Halves(units).word(), self.table.shape(of.shard).units());
                let Some(halves) = halves else {
                    let source = format!("the node gave units {units:?}, which it has not").into();
                    return Err(FlexError::Call { source });
                };
                let done = self.split_into(slot, (key, of), halves).await;
                if !matches!(done, Err(FlexError::Fabric(_))) {
                    // A node that cannot be reached finds out when this compute node has ended.
                    let _ = self.calls.end_split((head, of.shard), units);
                }
                done
            }
        }
    }

    /// Waits until somebody else has split the key's subtable, or may have ended.
    async fn await_split<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: (Key<'_>, KeyLines),
        pause: Duration,
    ) -> Result<(), FlexError> {
        let until = slot.now().plus(pause.min(WAIT_MAX));
        while slot.now() < until {
            slot.pause(BETWEEN_LOOKS.min(until.since(slot.now())).mul_f64(0.5 + 0.5 * self.random_part()))
                .await;
            if self.is_split(slot, of).await? {
                break;
            }
        }
        Ok(())
    }

    /// Splits the key's subtable into these units.
    async fn split_into<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        halves: Halves,
    ) -> Result<(), FlexError> {
        let shape = self.table.shape(of.shard);
        let mut lines = vec![Line::ZERO; shape.buckets().lines() as usize];
        let first_line = shape.unit_line(of.subtable.unit());
        self.seal(slot, (key, of), first_line, &mut lines).await?;
        let was_shared = slots_of(first_line, &lines).any(|(_, word)| word.was_shared());
        #[cfg(injected)]
        let was_shared = was_shared && !injected::SEALED_UNAWAITED.is_injected();
        if was_shared {
            self.await_leases(slot, of).await?;
        }
        let in_halves = self.halves_of(slot, of, first_line, &lines).await?;
        #[cfg(injected)]
        if injected::PUBLISHED_BEFORE_HALVES.is_injected() {
            self.publish_halves(slot, of, halves).await?;
        }
        for (half, unit) in halves.0.into_iter().enumerate() {
            let words = half_words(&lines, &in_halves, of, half);
            self.write_unit(slot, of, shape.unit_line(unit), &words).await?;
        }
        self.publish_halves(slot, of, halves).await
    }

    /// Makes the directory name the halves, unless it names others.
    async fn publish_halves<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: KeyLines,
        halves: Halves,
    ) -> Result<(), FlexError> {
        let (shape, partition) = (self.table.shape(of.shard), of.hash.partition());
        let index = of.subtable.directory_word().expect("only such ones are split");
        let mut word = halves.word();
        for (position, replica) in self.table.chain(of.shard).iter().enumerate() {
            let mut at = replica.index_address(shape.directory_line(partition));
            at.offset_bytes += index as u64 * 8;
            slot.post_compare_swap(replica.node, 0, at, 0, word);
            slot.completed().await;
            let found = slot.take_word(replica.node, 0)?;
            if position == 0 && found != 0 {
                // What others have published the other replicas have, too, from now on.
                word = found;
            }
        }
        // What others have published is checked by the next look.
        if word == halves.word() {
            self.table.directories().note(partition, index, word);
        }
        Ok(())
    }

    /// Seals all slots, and READs what stands there then.
    async fn seal<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        (key, of): (Key<'_>, KeyLines),
        first_line: u32,
        lines: &mut [Line],
    ) -> Result<(), FlexError> {
        let (head, tail) = (self.table.head(of.shard), self.table.tail(of.shard));
        let mut at_head = vec![Line::ZERO; lines.len()];
        for _ in 0..ATTEMPTS_MAX {
            // Behind the last seal: the versions that were removed have come before it.
            self.read_unit(slot, tail, first_line, lines).await?;
            if self.table.is_replicated(of.shard) {
                self.read_unit(slot, head, first_line, &mut at_head).await?;
                self.level(slot, (key, of.shard), first_line, (lines, &at_head)).await?;
            } else {
                at_head.copy_from_slice(lines);
            }
            let is_open = |(_, word): &(SlotPlace, HashSlot)| word.sealed() != *word;
            let open: Vec<_> = slots_of(first_line, &at_head).filter(is_open).collect();
            #[cfg(injected)]
            let open = if injected::SLOTS_NOT_SEALED.is_injected() { Vec::new() } else { open };
            if open.is_empty() {
                return Ok(());
            }
            let mut sealed: Vec<(SlotPlace, Change)> = Vec::new();
            for some in open.chunks(slot.verbs()) {
                for (verb, (place, word)) in some.iter().enumerate() {
                    let at = head.slot_address(*place);
                    slot.post_compare_swap(head.node, verb, at, word.0, word.sealed().0);
                }
                slot.completed().await;
                for (verb, (place, word)) in some.iter().enumerate() {
                    if slot.take_word(head.node, verb)? == word.0 {
                        // Behind the head nothing is reserved.
                        let before =
                            if is_reserved(*word) { word_at(lines, first_line, *place) } else { *word };
                        sealed.push((*place, (before, word.sealed())));
                    }
                }
            }
            self.carry_all(slot, of.shard, &sealed).await?;
        }
        Err(FlexError::Contended { key: key.into(), attempts: ATTEMPTS_MAX })
    }

    /// To which halves each slot goes, in the order of places. A slot whose object is damaged goes to both:
    /// so a reader of its key finds the damage.
    async fn halves_of<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: KeyLines,
        first_line: u32,
        lines: &[Line],
    ) -> Result<Vec<InHalves>, FlexError> {
        let tail = self.table.tail(of.shard);
        let mut in_halves = Vec::with_capacity(lines.len() * BUCKET_SLOTS);
        let mut under_way: Vec<(usize, SlotPlace, ObjectRef)> = Vec::new();
        let (mut lines_under_way, mut object) = (0, self.object_buffer());
        let slots = slots_of(first_line, lines).map(Some).chain([None]);
        for (number, next) in slots.enumerate() {
            if next.is_none() || under_way.len() == slot.verbs() || lines_under_way >= OBJECT_LINES_AT_ONCE {
                slot.completed().await;
                for (verb, (number, place, named)) in under_way.drain(..).enumerate() {
                    object.resize(named.place.lines.into(), Line::ZERO);
                    slot.take_read(tail.node, verb, &mut object)?;
                    in_halves[number] = self.halves_by_key(of, (place, named), &object);
                }
                lines_under_way = 0;
            }
            let Some((place, word)) = next else { break };
            in_halves.push([true; 2]);
            let (SlotState::Sealed(Some(named)) | SlotState::Live(named)) = word.state() else { continue };
            if !self.table.has_object(of.shard, named.place) {
                continue;
            }
            let at = tail.object_address(named.place);
            slot.post_read(tail.node, under_way.len(), at, named.place.lines.into(), ReadMode::Plain);
            lines_under_way += usize::from(named.place.lines);
            under_way.push((number, place, named));
        }
        Ok(in_halves)
    }

    /// The half of the key of an object that a slot names, or both.
    fn halves_by_key(
        &self,
        of: KeyLines,
        (place, named): (SlotPlace, ObjectRef),
        object: &[Line],
    ) -> InHalves {
        let bytes = farsight_base::words::bytes_of(object);
        let Ok(block) = ValueBlock::parse(bytes) else { return [true; 2] };
        let (hash, depth) = (KeyHash::of(block.key()), of.subtable.depth());
        let mut first_lines = self.table.shape(of.shard).first_lines(hash, of.subtable).into_iter();
        let is_of_slot = block.table() == named.place.generation
            && hash.prefix(depth) == of.hash.prefix(depth)
            && first_lines.any(|first| (first..=first + 1).contains(&place.line));
        if is_of_slot { [hash.half(depth) == 0, hash.half(depth) == 1] } else { [true; 2] }
    }

    pub(crate) async fn read_unit<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        at: &Replica,
        first_line: u32,
        lines: &mut [Line],
    ) -> Result<(), FlexError> {
        let verbs = slot.verbs();
        for (round, some) in lines.chunks_mut(verbs * LINES_AT_ONCE).enumerate() {
            let first_line = first_line + (round * verbs * LINES_AT_ONCE) as u32;
            for (verb, lines) in some.chunks(LINES_AT_ONCE).enumerate() {
                let from = at.index_address(first_line + (verb * LINES_AT_ONCE) as u32);
                slot.post_read(at.node, verb, from, lines.len(), ReadMode::Plain);
            }
            slot.completed().await;
            for (verb, lines) in some.chunks_mut(LINES_AT_ONCE).enumerate() {
                slot.take_read(at.node, verb, lines)?;
            }
        }
        Ok(())
    }

    async fn write_unit<Q: QueuePair>(
        &self,
        slot: &PoolSlot<'_, '_, Q>,
        of: KeyLines,
        first_line: u32,
        words: &[u64],
    ) -> Result<(), FlexError> {
        let (verbs, chain) = (slot.verbs(), self.table.chain(of.shard));
        for (number, some) in words.chunks(LINES_AT_ONCE * WORDS_PER_LINE).enumerate() {
            for at in chain {
                let to = at.index_address(first_line + (number * LINES_AT_ONCE) as u32);
                slot.post_write(at.node, number % verbs, to, some);
            }
            if number % verbs == verbs - 1 || (number + 1) * LINES_AT_ONCE * WORDS_PER_LINE >= words.len() {
                slot.completed().await;
                for at in chain {
                    for verb in 0..=number % verbs {
                        slot.take_word(at.node, verb)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The slots of a subtable, in the order of their places.
pub(crate) fn slots_of(first_line: u32, lines: &[Line]) -> impl Iterator<Item = (SlotPlace, HashSlot)> {
    (first_line..).zip(lines).flat_map(|(line, bucket)| {
        let slots = (0..BUCKET_SLOTS as u8).zip(&bucket.0[1..]);
        slots.map(move |(slot, word)| (SlotPlace { line, slot }, HashSlot(*word)))
    })
}

/// The word of a slot of a subtable.
fn word_at(lines: &[Line], first_line: u32, place: SlotPlace) -> HashSlot {
    HashSlot(lines[(place.line - first_line) as usize].0[1 + usize::from(place.slot)])
}

pub(crate) fn is_reserved(word: HashSlot) -> bool {
    matches!(word.state(), SlotState::Reserved(_))
}

/// The words of one half of a sealed subtable.
fn half_words(lines: &[Line], in_halves: &[InHalves], of: KeyLines, half: usize) -> Vec<u64> {
    let header = BucketHeader::of_half(of.hash, of.subtable.depth(), half).word();
    let mut words = Vec::with_capacity(lines.len() * WORDS_PER_LINE);
    for ((number, line), in_halves) in lines.iter().enumerate().zip(in_halves.chunks(BUCKET_SLOTS)) {
        // The first word of an overflow, between two buckets, is the greatest version that was removed.
        words.push(if number % GROUP_BUCKETS == 1 { line.0[0] } else { header });
        words.extend(line.0[1..].iter().zip(in_halves).map(
            |(word, in_halves)| match HashSlot(*word).state() {
                SlotState::Sealed(Some(object)) | SlotState::Live(object) if in_halves[half] => {
                    HashSlot::live(object).0
                }
                // Nobody's, but what stands there is not hidden.
                SlotState::Corrupt => *word,
                _ => 0,
            },
        ));
    }
    words
}
