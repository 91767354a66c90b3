//! The region in which a table's sub-models and branches stand for clients to READ.
//!
//! Invariant: a record is a copy of what its number stands for, or of what it stood for a moment ago. Nobody
//! relies on it: its checksum tells whole records from others, and leaves' fences tell where a key is.
//!
//! Protocol: one thread writes, the trainer. It writes all records of a new generation, then the root line,
//! and only then gives the memory of the generation before to others. So a client that follows an old root
//! finds the old records until a later one takes their lines. Nobody waits for readers, which need no more
//! than that: what they meet in lines of others does not fit their generation or its own checksum.
//!
//! Where the region has no room, or its node no memory, a number has no record. Its keys are the server's to
//! look up.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use farsight_base::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};
use farsight_fabric::Region;
use farsight_layout::published::{
    PUBLISHED_EXTENTS_MAX, PUBLISHED_SLOT_LINES, PublishedRoot, elsewhere_record, fits_slot, part_record,
};

use super::model_tree::{Branch, ModelSlot, SubModelImage};
use crate::free_runs::FreeRuns;

/// Numbers of a further extent at least.
const FURTHER_NUMBERS_MIN: u32 = 64;
/// The region's first line that is not the root's.
const FIRST_LINE: u32 = 1;

/// The region, and what the server keeps of it.
pub(super) struct ModelRegion {
    region: Arc<dyn Region>,
    capacity_lines: u32,
    /// Lines in use, for statistics.
    used_lines: AtomicU64,
    state: Mutex<State>,
}

struct State {
    /// What the root line says.
    current: Edition,
    /// What is written for the next root.
    next: Edition,
    free: FreeRuns,
    /// The first line that was never used.
    end: u32,
}

/// A generation's records.
#[derive(Default)]
struct Edition {
    root: PublishedRoot,
    /// First line and lines of each record that does not fit its slot.
    long: BTreeMap<u32, (u32, u32)>,
}

impl ModelRegion {
    /// Over an unused region, of which it uses `lines_max` at most.
    pub(super) fn new(region: Arc<dyn Region>, lines_max: u32) -> Self {
        let lines = region.words().len() / WORDS_PER_LINE;
        let state = State {
            current: Edition::default(),
            next: Edition::default(),
            free: FreeRuns::default(),
            end: FIRST_LINE,
        };
        Self {
            capacity_lines: u32::try_from(lines).unwrap_or(u32::MAX).min(lines_max),
            region,
            used_lines: AtomicU64::new(u64::from(FIRST_LINE.min(lines_max))),
            state: Mutex::new(state),
        }
    }

    /// The region.
    pub(super) fn region(&self) -> &Arc<dyn Region> {
        &self.region
    }

    /// Lines that it has.
    pub(super) fn capacity_lines(&self) -> u32 {
        self.capacity_lines
    }

    /// Lines that root, slots and records take.
    pub(super) fn used_lines(&self) -> u64 {
        // Relaxed: statistics.
        self.used_lines.load(Ordering::Relaxed)
    }

    /// Begins a generation with so many numbers of the top model.
    pub(super) fn begin(&self, generation: u64, top_numbers: u32) {
        let mut state = self.lock();
        self.give_up(&mut state, |state| &mut state.next);
        let further_numbers = top_numbers.div_ceil(2).max(FURTHER_NUMBERS_MIN);
        state.next.root = PublishedRoot {
            generation,
            first_numbers: top_numbers,
            further_numbers,
            ..PublishedRoot::default()
        };
    }

    /// Writes what `number` stands for in the generation that was begun last, published or not.
    pub(super) fn write(&self, generation: u64, number: u32, slot: &ModelSlot) {
        let mut state = self.lock();
        if state.next.root.generation == generation {
            self.write_in(&mut state, |state| &mut state.next, number, slot);
        } else if state.current.root.generation == generation {
            let before = state.current.root;
            self.write_in(&mut state, |state| &mut state.current, number, slot);
            if state.current.root != before {
                self.store(0, &state.current.root.to_line().0);
            }
        }
    }

    /// Makes the generation that was begun last the one that clients find.
    pub(super) fn publish(&self) {
        let mut state = self.lock();
        if state.next.root.generation == 0 || !self.has_room_until(FIRST_LINE) {
            return;
        }
        self.store(0, &state.next.root.to_line().0);
        let State { current, next, .. } = &mut *state;
        std::mem::swap(current, next);
        self.give_up(&mut state, |state| &mut state.next);
    }

    /// Gives back what an edition has.
    fn give_up(&self, state: &mut State, of: fn(&mut State) -> &mut Edition) {
        let Edition { root, long } = std::mem::take(of(state));
        for (extent, first) in root.extents.iter().enumerate().filter(|(_, first)| **first != 0) {
            self.give(state, *first, extent_lines(&root, extent).unwrap_or(0));
        }
        for (first, lines) in long.into_values() {
            self.give(state, first, lines);
        }
    }

    fn write_in(&self, state: &mut State, of: fn(&mut State) -> &mut Edition, number: u32, slot: &ModelSlot) {
        let Some(first) = self.slot_of(state, of, number) else { return };
        let generation = of(state).root.generation;
        let before = of(state).long.remove(&number);
        match part_record(generation, &part_words(number, slot)) {
            Some(words) if fits_slot(words.len()) => self.store(first, &words),
            Some(words) => {
                let lines = words.len().div_ceil(WORDS_PER_LINE) as u32;
                if let Some(place) = self.take(state, lines) {
                    self.store(place, &words);
                    self.store(first, &elsewhere_record(generation, number, place, lines));
                    of(state).long.insert(number, (place, lines));
                } else {
                    self.store(first, &[0]);
                }
            }
            None => self.store(first, &[0]),
        }
        if let Some((place, lines)) = before {
            self.give(state, place, lines);
        }
    }

    /// The first line of the slot of `number`, which may want a new extent; `None` if there is no room.
    fn slot_of(&self, state: &mut State, of: fn(&mut State) -> &mut Edition, number: u32) -> Option<u32> {
        let root = of(state).root;
        let (extent, _) = root.place(number)?;
        if root.extents[extent] == 0 {
            let lines = extent_lines(&root, extent)?;
            let first = self.take(state, lines)?;
            // What stands there is older: of another generation, or of a part that was longer.
            of(state).root.extents[extent] = first;
        }
        u32::try_from(of(state).root.slot(number)?).ok()
    }

    /// The first of so many neighbouring lines; `None` if there is no room.
    fn take(&self, state: &mut State, lines: u32) -> Option<u32> {
        let first = if let Some(first) = state.free.take(lines) {
            first
        } else {
            let end = state.end.checked_add(lines).filter(|end| self.has_room_until(*end))?;
            std::mem::replace(&mut state.end, end)
        };
        self.used_lines.fetch_add(lines.into(), Ordering::Relaxed);
        Some(first)
    }

    fn give(&self, state: &mut State, first: u32, lines: u32) {
        state.free.give(first, lines);
        self.used_lines.fetch_sub(lines.into(), Ordering::Relaxed);
    }

    fn has_room_until(&self, end: u32) -> bool {
        end <= self.capacity_lines && self.region.grow_to(u64::from(end) * LINE_BYTES as u64).is_ok()
    }

    /// Writes words from the start of a line on.
    fn store(&self, first: u32, words: &[u64]) {
        let begin = first as usize * WORDS_PER_LINE;
        for (place, word) in self.region.words()[begin..][..words.len()].iter().zip(words) {
            // Relaxed: readers believe words that their checksum covers, and no order between them.
            place.store(*word, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lines of an extent; `None` if there are more than any region has.
fn extent_lines(root: &PublishedRoot, extent: usize) -> Option<u32> {
    let numbers = if extent == 0 { root.first_numbers } else { root.further_numbers };
    debug_assert!(extent < PUBLISHED_EXTENTS_MAX, "extent {extent}");
    numbers.checked_mul(PUBLISHED_SLOT_LINES as u32)
}

/// What is sent of a part of the model, in words.
fn part_words(number: u32, slot: &ModelSlot) -> Vec<u64> {
    match slot {
        ModelSlot::SubModel(image) => {
            let SubModelImage { record, entries, .. } = &**image;
            let head = std::iter::once(u64::from(number)).chain(record.to_words());
            head.chain(entries.iter().copied()).collect()
        }
        ModelSlot::Branch(branch) => {
            let Branch { boundaries, children } = &**branch;
            let head = u64::from(number) | (children.len() as u64) << u32::BITS;
            let pair = |pair: &[u32]| u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << u32::BITS;
            let children = children.chunks(2).map(pair);
            std::iter::once(head).chain(boundaries.iter().copied()).chain(children).collect()
        }
    }
}
