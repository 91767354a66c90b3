//! Who has which memory for objects in hand, and in which of its uses it is.
//!
//! Invariant: memory that is out is in a compute node's hand, or was published and not freed since. It is
//! freed once in each of its uses: who names another use, or names it again, frees
//! nothing.
//!
//! A slot's word has the generation of the memory, and must not recur while a compute node that has seen it
//! lives. So memory whose generations are used up rests until all compute nodes have ended that were there by
//! then. Their numbers ascend: it waits for the least number to pass the greatest one of that time.

use std::collections::{HashMap, VecDeque};

use farsight_blocks::{BlockStats, NoRoom};
use farsight_layout::hash_index::{OBJECT_GENERATION_BITS, OBJECT_LINES_MAX};
use farsight_protocol::{ComputeNode, ObjectMemory};

use super::places::Places;
use crate::compute_nodes::Connected;
#[cfg(injected)]
use crate::injected;

/// The last generation of memory.
const GENERATION_MAX: u16 = (1 << OBJECT_GENERATION_BITS) - 1;
/// Lines of a piece of the table of uses.
const PIECE_LINES: usize = 1 << 10;
/// Resting memory, and orphans, that one call looks at.
const LOOKED_AT: usize = 8;

/// What is known of memory by its first line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Use {
    generation: u16,
    /// Its lines while it is out; else 0.
    out_lines: u8,
}

/// Memory whose generations are used up.
#[derive(Debug)]
struct Resting {
    offset_lines: u32,
    lines: u8,
    /// The greatest number of a compute node that may have seen them.
    newest: u32,
}

/// The objects of one node of a table.
pub(super) struct Objects {
    places: Places,
    /// By first line, in pieces that are made when they are used.
    uses: Vec<Option<Box<[Use; PIECE_LINES]>>>,
    /// By first line: memory that nobody has said to be published, and whose hand it is in.
    held: HashMap<u32, (ComputeNode, ObjectMemory)>,
    resting: VecDeque<Resting>,
    resting_lines: u64,
    /// Memory of ended compute nodes that slots are reserved for.
    orphans: VecDeque<(ComputeNode, ObjectMemory)>,
    /// Pieces of memory that are out.
    out: u64,
    /// Pieces of uses that are to be looked at, the first ones.
    pieces_left: usize,
}

impl Objects {
    pub(super) fn new(places: Places) -> Self {
        Self {
            places,
            uses: Vec::new(),
            held: HashMap::new(),
            resting: VecDeque::new(),
            resting_lines: 0,
            orphans: VecDeque::new(),
            out: 0,
            pieces_left: 0,
        }
    }

    /// The same, of which this memory is out: slots name it. No compute node has any in hand.
    pub(super) fn with_named(places: Places, named: &[ObjectMemory]) -> Self {
        let mut objects = Self::new(places);
        for memory in named {
            let ObjectMemory { offset_lines, lines, generation } = *memory;
            *objects.use_of(offset_lines) = Use { generation, out_lines: lines };
        }
        objects.out = named.len() as u64;
        objects
    }

    /// Where its bytes are.
    pub(super) fn stats(&self) -> BlockStats {
        self.places.stats()
    }

    /// Lines of resting memory.
    pub(super) fn resting_lines(&self) -> u64 {
        self.resting_lines
    }

    /// Gives `owner` memory of so many lines, as often as `count` if there is as much, else less often.
    pub(super) fn give(
        &mut self,
        owner: ComputeNode,
        connected: Connected,
        lines: u8,
        count: u16,
    ) -> Result<Vec<ObjectMemory>, NoRoom> {
        self.wake(connected);
        let lines = lines.clamp(1, OBJECT_LINES_MAX);
        let mut given = Vec::with_capacity(count.into());
        while given.len() < usize::from(count) {
            let offset_lines = match self.places.allocate(lines) {
                Ok(first) => u32::try_from(first).expect("a space of 2^32 lines at most"),
                Err(_) if !given.is_empty() => break,
                Err(error) => return Err(error),
            };
            let of_memory = self.use_of(offset_lines);
            if of_memory.generation == GENERATION_MAX {
                self.resting_lines += u64::from(lines);
                self.resting.push_back(Resting { offset_lines, lines, newest: connected.newest });
                continue;
            }
            let generation = of_memory.generation + 1;
            #[cfg(injected)]
            let generation = if injected::GENERATION_KEPT.is_injected() {
                of_memory.generation.max(1)
            } else {
                generation
            };
            *of_memory = Use { generation, out_lines: lines };
            let memory = ObjectMemory { offset_lines, lines, generation: of_memory.generation };
            self.held.insert(offset_lines, (owner, memory));
            given.push(memory);
            self.out += 1;
        }
        Ok(given)
    }

    /// Notes that slots name memory which `owner` had in hand, or named it.
    pub(super) fn note_published(&mut self, owner: ComputeNode, published: &[ObjectMemory]) {
        for memory in published {
            if self.held.get(&memory.offset_lines) == Some(&(owner, *memory)) {
                self.held.remove(&memory.offset_lines);
            }
        }
    }

    /// Takes memory back, if it is out in this of_memory.
    pub(super) fn free(&mut self, freed: &[ObjectMemory]) {
        for &ObjectMemory { offset_lines, lines, generation } in freed {
            let Some(of_memory) = self.known_use(offset_lines) else { continue };
            if *of_memory != (Use { generation, out_lines: lines }) || lines == 0 {
                continue;
            }
            of_memory.out_lines = 0;
            self.out -= 1;
            self.held.remove(&offset_lines);
            self.places.give_back(offset_lines.into(), lines);
        }
    }

    /// True if this memory is out, in this of its uses.
    pub(super) fn is_out(&mut self, ObjectMemory { offset_lines, lines, generation }: ObjectMemory) -> bool {
        self.known_use(offset_lines).is_some_and(|of| *of == Use { generation, out_lines: lines })
            && lines > 0
    }

    /// What `owner` has in hand.
    pub(super) fn held_by(&self, owner: ComputeNode) -> Vec<(ComputeNode, ObjectMemory)> {
        self.held.values().filter(|(of, _)| *of == owner).copied().collect()
    }

    /// Takes memory back that `owner` had in hand, if it has it still.
    pub(super) fn free_held(&mut self, owner: ComputeNode, memory: ObjectMemory) {
        if self.held.get(&memory.offset_lines) == Some(&(owner, memory)) {
            self.free(&[memory]);
        }
    }

    /// Keeps memory in mind that is an ended compute node's, and that a slot is reserved for.
    pub(super) fn orphan(&mut self, owner: ComputeNode, memory: ObjectMemory) {
        self.orphans.push_back((owner, memory));
    }

    /// The first of those, to be looked at again.
    pub(super) fn take_orphans(&mut self) -> Vec<(ComputeNode, ObjectMemory)> {
        let count = self.orphans.len().min(LOOKED_AT);
        self.orphans.drain(..count).collect()
    }

    /// Has all memory looked at, piece by piece.
    pub(super) fn begin_sweep(&mut self) {
        self.pieces_left = self.uses.len();
    }

    /// Pieces that are to be looked at.
    pub(super) fn pieces_left(&self) -> usize {
        self.pieces_left
    }

    /// Memory of the next piece that is out and in nobody's hand. `None` if no piece is left.
    pub(super) fn next_piece(&mut self) -> Option<Vec<ObjectMemory>> {
        self.pieces_left = self.pieces_left.checked_sub(1)?;
        self.piece(self.pieces_left)
    }

    /// Memory of the piece of this number that is out and in nobody's hand. `None` if there is no such piece.
    pub(super) fn piece(&self, number: usize) -> Option<Vec<ObjectMemory>> {
        let first = number * PIECE_LINES;
        let uses = self.uses.get(number)?.as_ref();
        let out = uses.into_iter().flat_map(|uses| uses.iter().enumerate());
        let memory =
            out.filter(|(_, of_memory)| of_memory.out_lines > 0).map(|(line, of_memory)| ObjectMemory {
                offset_lines: (first + line) as u32,
                lines: of_memory.out_lines,
                generation: of_memory.generation,
            });
        let is_in_hand = |memory: &ObjectMemory| self.held.contains_key(&memory.offset_lines);
        #[cfg(injected)]
        let is_in_hand =
            |memory: &ObjectMemory| is_in_hand(memory) && !injected::HELD_OBJECT_FREED.is_injected();
        Some(memory.filter(|memory| !is_in_hand(memory)).collect())
    }

    /// Pieces that were ever used.
    pub(super) fn pieces(&self) -> usize {
        self.uses.len()
    }

    /// Pieces of memory that are out and in nobody's hand.
    pub(super) fn published(&self) -> u64 {
        self.out.saturating_sub(self.held.len() as u64)
    }

    /// Lets memory begin anew whose uses nobody can have seen any more. A few of those that rest are looked
    /// at, in turn.
    fn wake(&mut self, connected: Connected) {
        for _ in 0..LOOKED_AT.min(self.resting.len()) {
            let Some(resting) = self.resting.pop_front() else { return };
            if connected.oldest <= resting.newest {
                self.resting.push_back(resting);
                continue;
            }
            let Resting { offset_lines, lines, .. } = resting;
            self.resting_lines -= u64::from(lines);
            *self.use_of(offset_lines) = Use::default();
            self.places.give_back(offset_lines.into(), lines);
        }
    }

    fn known_use(&mut self, offset_lines: u32) -> Option<&mut Use> {
        let line = offset_lines as usize;
        let piece = self.uses.get_mut(line / PIECE_LINES)?.as_mut()?;
        Some(&mut piece[line % PIECE_LINES])
    }

    fn use_of(&mut self, offset_lines: u32) -> &mut Use {
        let line = offset_lines as usize;
        let piece = line / PIECE_LINES;
        if self.uses.len() <= piece {
            self.uses.resize_with(piece + 1, || None);
        }
        let piece = self.uses[piece].get_or_insert_with(|| Box::new([Use::default(); PIECE_LINES]));
        &mut piece[line % PIECE_LINES]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use farsight_base::LINE_BYTES;
    use farsight_blocks::BlockSpace;

    use super::*;
    use crate::flexkv::zeroed_region::ZeroedRegion;

    const A: ComputeNode = ComputeNode(1);
    const B: ComputeNode = ComputeNode(2);
    const BOTH: Connected = Connected { oldest: 1, newest: 2 };

    fn objects(bytes: usize) -> Objects {
        let memory = ZeroedRegion::of_lines(bytes / LINE_BYTES);
        Objects::new(Places::new(Arc::new(BlockSpace::new(Arc::new(memory), 0, u64::MAX))))
    }

    #[test]
    fn memory_is_freed_once_in_each_of_its_uses() {
        let mut objects = objects(1 << 20);
        let given = objects.give(A, BOTH, 3, 2).expect("memory");
        assert_eq!(given.iter().map(|memory| memory.generation).collect::<Vec<_>>(), [1, 1]);
        let first = given[0];
        for wrong in [
            ObjectMemory { generation: 2, ..first },
            ObjectMemory { lines: 2, ..first },
            ObjectMemory { offset_lines: first.offset_lines + 1, ..first },
            ObjectMemory { offset_lines: u32::MAX, ..first },
        ] {
            objects.free(&[wrong]);
        }
        objects.free(&[first, first]);
        // As many as the writer of places has ready, and more.
        let given = objects.give(B, BOTH, 3, 100).expect("memory");
        let again: Vec<_> = given.iter().filter(|memory| memory.offset_lines == first.offset_lines).collect();
        assert_eq!(again, [&ObjectMemory { generation: 2, ..first }]);
        objects.free(&[first]);
        let given = objects.give(B, BOTH, 3, 100).expect("memory");
        assert!(given.iter().all(|memory| memory.offset_lines != first.offset_lines), "it is out");
    }

    #[test]
    fn what_is_in_a_hand_is_known_until_it_is_published() {
        let mut objects = objects(1 << 20);
        let given = objects.give(A, BOTH, 1, 3).expect("memory");
        objects.note_published(B, &given);
        assert_eq!(objects.held_by(A).len(), 3, "they are another's");
        objects.note_published(A, &given[..1]);
        objects.begin_sweep();
        assert_eq!(objects.next_piece(), Some(vec![given[0]]));
        assert_eq!(objects.next_piece(), None);
        objects.free_held(A, given[0]);
        objects.free_held(A, given[1]);
        assert_eq!(objects.held_by(A), [(A, given[2])]);
    }

    /// A slot's word must not recur while a compute node that has seen it lives.
    #[test]
    fn memory_rests_when_its_generations_are_used_up() {
        // One slab, of 64 KiB.
        let mut objects = objects(64 << 10);
        let all = objects.give(A, BOTH, 254, 8).expect("memory");
        let (one, rest) = all.split_first().expect("a piece at least");
        objects.free(&[*one]);
        for generation in 2..=GENERATION_MAX {
            let again = objects.give(A, BOTH, 254, 1).expect("memory")[0];
            assert_eq!(again, ObjectMemory { generation, ..*one });
            objects.free(&[again]);
        }
        objects.give(A, BOTH, 254, 1).expect_err("it rests");
        assert_eq!(objects.resting_lines(), 254);
        objects.give(B, Connected { oldest: 2, newest: 5 }, 254, 1).expect_err("one that was there lives");
        let anew = objects.give(B, Connected { oldest: 3, newest: 5 }, 254, 1).expect("all of them ended");
        assert_eq!((anew, objects.resting_lines()), (vec![*one], 0));
        assert!(rest.iter().all(|memory| memory.generation == 1));
    }
}
