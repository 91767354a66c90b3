//! One generation of a table's model, as far as a process fetched it.
//!
//! Invariant: each number has one place at a time. A session that follows a place meets what was put there,
//! or whatever was put there since, and makes a leaf of the region of it.
//!
//! With a *budget* the arena has so many lines and no more. What is put in when all are taken drives others
//! out, by second chance: a hand goes round all places. What it finds in use it marks *idle*; what is still
//! idle when the hand comes again goes. An idle place is no sub-model's to who looks no closer, so the next
//! use of it goes by [`Generation::locate`], which takes the mark away. So a use of what is not idle costs
//! nothing, and each sub-model one write a round. Own lines, which are not driven out, are there only if they
//! take half of the budget at most.

use farsight_base::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use farsight_base::words::{SharedLine, Widest, prefetch_lines};
use farsight_base::{LINE_BYTES, LeafNumber, WORDS_PER_LINE};
use farsight_layout::SubModelRecord;
use farsight_model::TopModel;
use farsight_protocol::{BRANCH_LEVELS_MAX, SentBranch};
use std::sync::{OnceLock, PoisonError};

use super::super::BATCH;
use super::super::arena::{Arena, BlockKind, CHUNK_LINES_MIN, VIEW_WORDS};
use super::super::block::{
    Block, CachedSubModel, RegionLeaves, block_of, hinted_leaf, hinted_leaf_in_line, hinted_leaf_of_short,
};
use super::super::branch::{self, BranchLines};
use super::super::own_lines::OwnLines;
#[cfg(injected)]
use crate::injected;

use super::{ASKED_LINES, BatchKeys, LINES_PER_LEAF_MAX, LONG_ASKED_LINES, Located, PageNumber, Place};

/// What an arena takes beside each of its lines at most, about: its index, and places below branches.
const INDEX_BYTES_PER_LINE: usize = 4;
/// Sub-models before an unfetched one among which one is looked for that was fetched.
const NEIGHBOURS_MAX: usize = 16;
/// Rounds that the search for the idle takes at most.
const ROUNDS_MAX: u32 = 3;
/// Numbers behind the top model's whose places come together.
const CHUNK_NUMBERS: u32 = if cfg!(any(loom, shuttle)) { 4 } else { 1 << 12 };

/// One generation of a table's model.
pub(in super::super) struct Generation {
    pub(super) number: u64,
    pub(in super::super) top: TopModel,
    /// The top model's numbers that have keys.
    pub(super) numbers_with_keys: u64,
    region_leaves: RegionLeaves,
    pub(super) own_lines: OwnLines,
    /// The place of each of the top model's numbers that is not in its own line.
    pub(super) places: Box<[AtomicU32]>,
    /// The places of the numbers behind those.
    places_below: Box<[OnceLock<Box<[AtomicU32]>>]>,
    pub(super) arena: Arena,
    /// What comes in drives something out.
    is_full: AtomicBool,
    /// Serializes installers; readers never take it.
    filled: Mutex<Filled>,
}

/// The keys of a batch that are in a set, the least first.
fn bits_of(mut set: BatchKeys) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = (set != 0).then(|| set.trailing_zeros() as usize % BATCH)?;
        set &= set - 1;
        Some(index)
    })
}

/// What a generation takes before anything was fetched, by its top model.
#[derive(Clone, Copy)]
struct Floor {
    bytes: u64,
    own_lines_bytes: u64,
}

impl Floor {
    fn of(top: &TopModel, numbers_max: u64) -> Self {
        let numbers = u64::from(top.sub_model_count());
        let chunks = numbers_max.saturating_sub(numbers).div_ceil(u64::from(CHUNK_NUMBERS));
        let index_bytes = numbers * size_of::<AtomicU32>() as u64 + numbers.div_ceil(8);
        let below_bytes = chunks * size_of::<OnceLock<Box<[AtomicU32]>>>() as u64;
        // The first chunk of places below branches, too: most tables have some.
        let chunk_bytes = u64::from(CHUNK_NUMBERS) * size_of::<AtomicU32>() as u64;
        let bytes = top.heap_bytes() as u64 + index_bytes + below_bytes + chunk_bytes;
        Self { bytes, own_lines_bytes: numbers * LINE_BYTES as u64 }
    }

    /// True if own lines are worth their part of the budget.
    fn has_own_lines(self, budget_bytes: u64) -> bool {
        self.own_lines_bytes <= budget_bytes.saturating_sub(self.bytes) / 2
    }

    /// Lines that the budget leaves to the arena, beside own lines or without.
    fn arena_lines_max(self, budget_bytes: u64, has_own_lines: bool) -> usize {
        if budget_bytes == u64::MAX {
            return usize::MAX;
        }
        let own_bytes = if has_own_lines { self.own_lines_bytes } else { 0 };
        let lines_bytes = budget_bytes.saturating_sub(self.bytes + own_bytes);
        (lines_bytes / (LINE_BYTES + INDEX_BYTES_PER_LINE) as u64) as usize
    }
}

/// How far a generation was fetched.
#[derive(Clone, Copy, Default)]
pub(super) struct Filled {
    /// The top model's numbers.
    pub(super) of_top: u64,
    pub(super) sub_models: u64,
    /// How many of them are in lines.
    pub(super) in_lines: u64,
    pub(super) branches: u64,
    /// How many sub-models are in their own lines.
    pub(super) in_own_lines: u64,
    /// The number at which the search for the idle goes on: the first of a chunk, or one of a chunk that is
    /// there.
    hand: u32,
}

impl Filled {
    /// Blocks in the arena.
    fn blocks(&self) -> u64 {
        self.sub_models - self.in_own_lines + self.branches
    }
}

impl Generation {
    /// A generation of a region with so many `leaves`, of at most `numbers_max` sub-models and branches, that
    /// takes `budget_bytes`, or what its top model needs. `None` if there is no memory for the top model's
    /// sub-models.
    pub(super) fn new(
        number: u64,
        top: TopModel,
        leaves: u64,
        numbers_max: u64,
        budget_bytes: u64,
    ) -> Option<Self> {
        let floor = Floor::of(&top, numbers_max);
        let has_own_lines = floor.has_own_lines(budget_bytes);
        let new_own_lines = if has_own_lines { OwnLines::new } else { OwnLines::none };
        let below = numbers_max.saturating_sub(u64::from(top.sub_model_count()));
        let chunks = below.div_ceil(u64::from(CHUNK_NUMBERS)) as usize;
        let lines_max = floor.arena_lines_max(budget_bytes, has_own_lines);
        Some(Self {
            number,
            numbers_with_keys: u64::from(top.numbers_with_keys()),
            region_leaves: RegionLeaves(leaves as u32),
            own_lines: new_own_lines(top.sub_model_count())?,
            places: (0..top.sub_model_count()).map(|_| AtomicU32::new(0)).collect(),
            places_below: (0..chunks).map(|_| OnceLock::new()).collect(),
            top,
            arena: Arena::new((LINES_PER_LEAF_MAX * leaves) as usize, lines_max),
            is_full: AtomicBool::new(lines_max < CHUNK_LINES_MIN),
            filled: Mutex::default(),
        })
    }

    /// Makes `budget_bytes` the budget, unless the generation takes more by now; then false.
    pub(super) fn set_budget(&self, budget_bytes: u64) -> bool {
        let floor = Floor::of(&self.top, self.numbers_max());
        let lines_max = floor.arena_lines_max(budget_bytes, self.own_lines.are_there());
        // Relaxed: as in `is_full`. What does not fit says so again.
        self.is_full.store(lines_max < CHUNK_LINES_MIN, Ordering::Relaxed);
        self.arena.set_lines_max(lines_max)
    }

    /// The leaves of its region.
    pub(in super::super) fn region_leaves(&self) -> RegionLeaves {
        self.region_leaves
    }

    /// True if a generation of this budget would have own lines exactly if this one has.
    pub(super) fn is_laid_out_for(&self, budget_bytes: u64) -> bool {
        let floor = Floor::of(&self.top, self.numbers_max());
        self.own_lines.are_there() == floor.has_own_lines(budget_bytes)
    }

    /// True if sub-models were driven out for want of room, or none has any.
    pub(super) fn is_full(&self) -> bool {
        // Relaxed: whatever follows from it is a matter of cost.
        self.is_full.load(Ordering::Relaxed)
    }

    /// The same generation with nothing fetched, under another budget.
    pub(super) fn begun_anew(&self, budget_bytes: u64) -> Option<Self> {
        let leaves = u64::from(self.region_leaves.0);
        Self::new(self.number, self.top.clone(), leaves, self.numbers_max(), budget_bytes)
    }

    /// Numbers that there may be.
    pub(super) fn numbers_max(&self) -> u64 {
        self.places.len() as u64 + self.places_below.len() as u64 * u64::from(CHUNK_NUMBERS)
    }

    /// The place of one of the top model's numbers; by default nowhere, if it was not fetched.
    #[inline(always)]
    pub(in super::super) fn place(&self, number: u32) -> Place {
        if self.own_lines.is_taken(number) { Place::own_line_of(number) } else { self.place_in_lines(number) }
    }

    /// [`Generation::place`] of what is not in its own line.
    #[inline(always)]
    pub(super) fn place_in_lines(&self, number: u32) -> Place {
        // Acquire: a block is read after it was written. Partner: the Release store in `name`.
        Place(self.places[number as usize].load(Ordering::Acquire))
    }

    /// The place of any number, which may be anything.
    fn place_of_any(&self, number: u32) -> Place {
        if (number as usize) < self.places.len() { self.place(number) } else { self.place_below(number) }
    }

    /// The place of a number behind the top model's; of one of those nowhere.
    #[inline(always)]
    fn place_below(&self, number: u32) -> Place {
        let below = (number as usize).wrapping_sub(self.places.len());
        let (chunk, index) = (below / CHUNK_NUMBERS as usize, below % CHUNK_NUMBERS as usize);
        let chunk = self.places_below.get(chunk).and_then(OnceLock::get);
        // Acquire: as in `place_in_lines`.
        chunk.map_or(Place::default(), |places| Place(places[index].load(Ordering::Acquire)))
    }

    /// Where the sub-model of `key` is, by the branches below the top model's number; nowhere if it, or a
    /// branch on the way, was not fetched.
    #[inline(never)]
    pub(in super::super) fn locate(&self, key: u64) -> Located {
        let mut number = self.top.dispatch(key);
        let mut page = PageNumber::of_top(number);
        let mut place = self.place(number);
        for _ in 0..BRANCH_LEVELS_MAX {
            place = self.note_use(number, place);
            if !place.is_branch() {
                return Located { number, place, page };
            }
            page = PageNumber::of_branch(number);
            number = branch::child(self.arena.words_from(place.number()), key);
            place = self.place_of_any(number);
        }
        Located { number, place: Place::default(), page }
    }

    /// Where the sub-models of keys of a batch are whose places so far are branches. Level by level for all,
    /// so that the lines of one key's branch are on their way while others are looked at. Asks for the
    /// sub-models, too. A place that takes a closer look stays as it is.
    pub(super) fn descend_all(&self, keys: &[u64], places: &mut [Place; BATCH], mut below: BatchKeys) {
        let widest = Widest::if_known();
        let mut branches: [Option<&BranchLines>; BATCH] = [None; BATCH];
        let mut groups = [0_u8; BATCH];
        for index in bits_of(below) {
            below &= !(u64::from(!places[index].is_branch_in_use()) << index);
        }
        for _ in 0..BRANCH_LEVELS_MAX {
            if below == 0 {
                return;
            }
            for index in bits_of(below) {
                let lines = self.arena.branch(places[index].number());
                let group = branch::group_at_once(lines, keys[index], widest);
                branch::prefetch_group(lines, group);
                (branches[index], groups[index]) = (Some(lines), group as u8);
            }
            let mut still_below = 0;
            for index in bits_of(below) {
                let Some(lines) = branches[index] else { continue };
                let child = branch::child_at_once(lines, groups[index].into(), keys[index], widest);
                let place = self.place_below(child);
                places[index] = place;
                if place.is_sub_model() {
                    self.prefetch(place);
                } else if place.is_branch_in_use() {
                    prefetch_lines::<1>(&self.arena.line(place.number())[0]);
                    still_below |= 1 << index;
                }
            }
            below = still_below;
        }
    }

    /// The leaf in which the sub-model ends that comes before that of `key` below the same branch, if that of
    /// `key` was not fetched.
    #[cold]
    pub(super) fn leaf_left_of(&self, key: u64) -> Option<LeafNumber> {
        let mut place = self.place(self.top.dispatch(key)).in_use();
        for _ in 0..BRANCH_LEVELS_MAX {
            if !place.is_branch() {
                return None;
            }
            let words = self.arena.words_from(place.number());
            let index = branch::child_index(words, key);
            let place_at =
                |index| branch::child_at(words, index).map(|child| self.place_of_any(child).in_use());
            place = place_at(index)?;
            if place.is_nowhere() {
                let mut before = (0..index).rev().take(NEIGHBOURS_MAX);
                let sub_model = before.find_map(|index| self.at(place_at(index)?))?;
                return Some(sub_model.leaf(sub_model.leaf_count() - 1));
            }
        }
        None
    }

    /// The place of `number`, which was this; it is idle no more.
    fn note_use(&self, number: u32, place: Place) -> Place {
        let in_use = place.in_use();
        if place.is_idle()
            && let Some(name) = self.name_of(number)
        {
            // Relaxed: what the place names was published by the store that named it, whose release sequence
            // this goes on. If it names something else by now, that is in use.
            let _ = name.compare_exchange(place.0, in_use.0, Ordering::Relaxed, Ordering::Relaxed);
        }
        in_use
    }

    /// The sub-model in a place of this generation, or another one that was put there since; `None` if that
    /// is nowhere, or a branch's.
    #[inline(always)]
    pub(in super::super) fn at(&self, place: Place) -> Option<CachedSubModel<'_>> {
        if !place.is_sub_model() {
            None
        } else if place.is_line() {
            Some(CachedSubModel::in_line(self.line(place), self.region_leaves))
        } else {
            CachedSubModel::in_lines(self.arena.words_from(place.number()), self.region_leaves)
        }
    }

    /// The line of a sub-model in a line.
    #[inline(always)]
    fn line(&self, place: Place) -> &SharedLine {
        if place.is_own_line() {
            self.own_lines.line(place.number())
        } else {
            self.arena.line(place.number())
        }
    }

    /// Asks for the block in a place of this generation, which is a sub-model's.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: Place) {
        if place.is_line() {
            return prefetch_lines::<1>(&self.line(place)[0]);
        }
        let view: &[AtomicU64; VIEW_WORDS] = self.arena.view(place.number());
        prefetch_lines::<ASKED_LINES>(&view[0]);
        if place.is_long() {
            prefetch_lines::<{ LONG_ASKED_LINES - ASKED_LINES }>(&view[ASKED_LINES * WORDS_PER_LINE]);
        }
    }

    /// The likeliest leaf of `key`, by the sub-model in a place of this generation, which is its own.
    #[inline(always)]
    pub(super) fn likeliest(&self, place: Place, key: u64) -> LeafNumber {
        let Some(widest) = Widest::if_known() else { return self.searched_leaf(place, key) };
        if place.is_line() {
            return self.region_leaves.bound(hinted_leaf_in_line(self.line(place), key, widest));
        }
        let at_once = hinted_leaf(self.arena.view(place.number()), key, widest);
        let Some(leaf) = at_once else { return self.searched_leaf(place, key) };
        self.region_leaves.bound(leaf)
    }

    /// [`Generation::likeliest`] of a sub-model in any place if that takes a glance.
    #[inline(always)]
    pub(super) fn hinted_leaf_of_short(&self, place: Place, key: u64, widest: Widest) -> LeafNumber {
        self.prefetch(place);
        let leaf = hinted_leaf_of_short(self.arena.view(place.number()), key, widest);
        if let Some(leaf) = leaf { self.region_leaves.bound(leaf) } else { LeafNumber::NONE }
    }

    #[inline(never)]
    fn searched_leaf(&self, place: Place, key: u64) -> LeafNumber {
        self.at(place).map_or(LeafNumber::NONE, |sub_model| sub_model.likeliest(key))
    }

    /// The sub-models behind that of `key`, in the order of their keys, as far as they were fetched.
    pub(in super::super) fn sub_models_behind(&self, key: u64) -> impl Iterator<Item = CachedSubModel<'_>> {
        // The branches on the way, and which child of each is next.
        let mut path: Vec<(&[AtomicU64], usize)> = Vec::new();
        let mut top_number = self.top.dispatch(key);
        let mut place = self.place(top_number).in_use();
        while place.is_branch() && path.len() < BRANCH_LEVELS_MAX {
            let words = self.arena.words_from(place.number());
            let index = branch::child_index(words, key);
            path.push((words, index + 1));
            let child = branch::child_at(words, index);
            place = child.map_or(Place::default(), |child| self.place_of_any(child).in_use());
        }
        std::iter::from_fn(move || {
            loop {
                let mut place = match path.last_mut() {
                    None => {
                        top_number =
                            top_number.checked_add(1).filter(|next| (*next as usize) < self.places.len())?;
                        self.place(top_number).in_use()
                    }
                    Some((words, index)) => {
                        let Some(child) = branch::child_at(words, *index) else {
                            path.pop();
                            continue;
                        };
                        *index += 1;
                        self.place_of_any(child).in_use()
                    }
                };
                while place.is_branch() && path.len() < BRANCH_LEVELS_MAX {
                    let words = self.arena.words_from(place.number());
                    path.push((words, 1));
                    place = self.place_of_any(branch::child_at(words, 0)?).in_use();
                }
                return self.at(place);
            }
        })
    }

    /// True if there is something for `number`.
    #[cfg(injected)]
    pub(super) fn has(&self, number: u32) -> bool {
        !self.place_of_any(number).is_nowhere()
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory_bytes(&self) -> u64 {
        let below = self.places_below.iter().filter_map(OnceLock::get);
        let below_bytes: usize = below.map(|places| size_of_val(&**places)).sum();
        let index_bytes = size_of_val(&*self.places) + size_of_val(&*self.places_below) + below_bytes;
        let index_bytes = index_bytes + self.top.heap_bytes() + size_of::<Self>();
        index_bytes as u64 + self.own_lines.memory_bytes() + self.arena.memory_bytes()
    }

    /// What was fetched.
    pub(super) fn filled(&self) -> Filled {
        *self.filled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a sub-model into its place. True if that completes the top model's numbers.
    pub(super) fn put(&self, number: u32, record: &SubModelRecord, entries: &[u64]) -> bool {
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_top = self.is_of_top(number);
        let old = self.place_of_any(number).in_use();
        let old_kind = self.kind_at(old);
        match block_of(record, entries) {
            Block::Line(words) if is_of_top && self.own_lines.are_there() => {
                self.own_lines.put(number, &words);
                filled.in_own_lines += u64::from(!old.is_own_line());
                filled.in_lines += 1;
            }
            block => {
                let (kind, words) = match &block {
                    Block::Line(words) => (BlockKind::Line, words.as_slice()),
                    Block::Lines(words) => (BlockKind::Lines(record.leaf_count), words.as_slice()),
                };
                // Too large for the arena: the sub-model stays as it was; unfetched, its keys are the
                // server's to look up.
                if !self.put_block(number, kind, words, &mut filled) {
                    return false;
                }
                filled.in_own_lines -= u64::from(old.is_own_line());
                filled.in_lines += u64::from(kind == BlockKind::Line);
            }
        }
        filled.sub_models += 1;
        self.leave(&mut filled, old, old_kind);
        self.is_complete(&mut filled, is_of_top && old.is_nowhere())
    }

    /// Puts a branch into its place. True if that completes the top model's numbers.
    pub(super) fn put_branch(&self, sent: &SentBranch<'_>) -> bool {
        let mut filled = self.filled.lock().unwrap_or_else(PoisonError::into_inner);
        let number = sent.number;
        let is_of_top = self.is_of_top(number);
        let old = self.place_of_any(number).in_use();
        let old_kind = self.kind_at(old);
        if !self.put_block(number, BlockKind::Branch, &branch::words_of(sent), &mut filled) {
            return false;
        }
        filled.in_own_lines -= u64::from(old.is_own_line());
        filled.branches += 1;
        self.leave(&mut filled, old, old_kind);
        self.is_complete(&mut filled, is_of_top && old.is_nowhere())
    }

    /// Counts one more of the top model's numbers, if it `is_new`; true if that was the last.
    fn is_complete(&self, filled: &mut Filled, is_new: bool) -> bool {
        filled.of_top += u64::from(is_new);
        is_new && filled.of_top == self.numbers_with_keys
    }

    /// Puts words into a block and makes it the place of `number`; false if there is no room.
    fn put_block(&self, number: u32, kind: BlockKind, words: &[u64], filled: &mut Filled) -> bool {
        let Some(name) = self.name_to_fill(number) else { return false };
        let Some(line) = self.find_room(number, kind, words, filled) else { return false };
        // Release: the block was written before it is named. Partner: the Acquire load in `place_in_lines`.
        let place = Place::of_block(line, kind);
        // Where something was driven out for it, it stays only if it is used.
        let place = if self.is_full() { place.idle() } else { place };
        name.store(place.0, Ordering::Release);
        if (number as usize) < self.places.len() {
            self.own_lines.leave(number);
        }
        true
    }

    /// A block with these words, for `kept`, the number of which stays where it is. Drives out what is idle
    /// until there is room; `None` if there is none even then.
    fn find_room(&self, kept: u32, kind: BlockKind, words: &[u64], filled: &mut Filled) -> Option<u32> {
        let mut line = self.arena.put(kind, words);
        // The end of this round, one that marks what is in use, and one that drives out what nobody has used
        // since.
        let mut rounds = 0;
        while line.is_none() && rounds < ROUNDS_MAX && filled.blocks() > 0 {
            self.is_full.store(true, Ordering::Relaxed);
            if self.step_hand(kept, filled) {
                line = self.arena.put(kind, words);
            }
            rounds += u32::from(filled.hand == 0);
        }
        line
    }

    /// Looks at one number: drives out what is idle there, or marks it. True if that gave lines back.
    fn step_hand(&self, kept: u32, filled: &mut Filled) -> bool {
        let number = filled.hand;
        let name = self.name_of(number);
        // Where nothing came, nothing did to a whole chunk of numbers.
        let step = if name.is_some() { 1 } else { CHUNK_NUMBERS };
        let next = u64::from(number) + u64::from(step);
        filled.hand = if next < self.numbers_max() { next as u32 } else { 0 };
        let Some(name) = name.filter(|_| number != kept) else { return false };
        // Relaxed, as all here: under the lock nobody else puts anything in or drives it out. Sessions only
        // take marks away.
        let place = Place(name.load(Ordering::Relaxed));
        if place.is_nowhere() || self.place_of_any(number).is_own_line() {
            return false;
        }
        if !place.is_idle() {
            // It goes on the release sequence of the store that named the block.
            let _ = name.compare_exchange(place.0, place.idle().0, Ordering::Relaxed, Ordering::Relaxed);
            return false;
        }
        let (old, kind) = (place.in_use(), self.kind_at(place.in_use()));
        #[cfg(injected)]
        if injected::DRIVEN_OUT_IN_PLACE.is_injected() {
            self.arena.free(old.number(), kind.expect("a block"));
            return true;
        }
        name.store(Place::default().0, Ordering::Relaxed);
        filled.of_top -= u64::from(self.is_of_top(number));
        self.leave(filled, old, kind);
        true
    }

    fn is_of_top(&self, number: u32) -> bool {
        (number as usize) < self.places.len()
    }

    /// The word that names the place of `number`; `None` for a number beyond all, or below which nothing
    /// came.
    fn name_of(&self, number: u32) -> Option<&AtomicU32> {
        let Some(below) = (number as usize).checked_sub(self.places.len()) else {
            return self.places.get(number as usize);
        };
        let places = self.places_below.get(below / CHUNK_NUMBERS as usize)?;
        places.get()?.get(below % CHUNK_NUMBERS as usize)
    }

    /// [`Generation::name_of`], made if need be.
    fn name_to_fill(&self, number: u32) -> Option<&AtomicU32> {
        if let Some(below) = (number as usize).checked_sub(self.places.len()) {
            let places = self.places_below.get(below / CHUNK_NUMBERS as usize)?;
            places.get_or_init(|| (0..CHUNK_NUMBERS).map(|_| AtomicU32::new(0)).collect());
        }
        self.name_of(number)
    }

    /// The kind of block in a place; `None` if it is nowhere or an own line.
    fn kind_at(&self, place: Place) -> Option<BlockKind> {
        if place.is_nowhere() || place.is_own_line() {
            None
        } else if place.is_branch() {
            Some(BlockKind::Branch)
        } else if place.is_line() {
            Some(BlockKind::Line)
        } else {
            self.at(place).map(|sub_model| BlockKind::Lines(sub_model.leaf_count()))
        }
    }

    /// Gives the block of what stood in `old` back, and counts it no more.
    fn leave(&self, filled: &mut Filled, old: Place, kind: Option<BlockKind>) {
        filled.branches -= u64::from(old.is_branch());
        filled.sub_models -= u64::from(old.is_sub_model());
        filled.in_lines -= u64::from(old.is_sub_model() && old.is_line());
        if let Some(kind) = kind {
            self.arena.free(old.number(), kind);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use farsight_base::prng::SplitMix64;
    use farsight_layout::TableEntry;
    use farsight_model::{TrainOptions, train};

    /// A key of each of the top model's numbers of a table of so many leaves.
    fn top_of(leaves: u64) -> (TopModel, Vec<u64>) {
        let fences: Vec<u64> = (0..leaves).map(|leaf| leaf << 20).collect();
        let top = train(&fences, TrainOptions::default()).expect("ascending fences").top;
        let keys = (0..top.sub_model_count()).filter_map(|number| top.boundary(number)).collect();
        (top, keys)
    }

    /// Puts a sub-model of so many leaves, which lie apart, into the place of `number`.
    fn put(generation: &Generation, number: u32, leaves: u32) {
        let record = SubModelRecord { leaf_count: leaves, ..SubModelRecord::default() };
        let entry = |index: u32| TableEntry::new(LeafNumber(2 * index), index as u16).0;
        let entries: Vec<u64> = (0..leaves).map(entry).collect();
        generation.put(number, &record, &entries);
    }

    /// Whatever comes in, the budget holds. What is used all the time stays; what is not there can be put in
    /// again.
    #[test]
    fn a_budget_holds_and_what_is_used_stays() {
        const BUDGET_BYTES: u64 = 200 << 10;
        let (top, keys) = top_of(100_000);
        let generation = Generation::new(1, top, 100_000, 200_000, BUDGET_BYTES).expect("memory");
        assert!(!generation.own_lines.are_there() && keys.len() > 3_000, "{} sub-models", keys.len());
        let mut random = SplitMix64::new(12);
        let used = 100..120;
        let is_there = |number: u32| !generation.locate(keys[number as usize]).place.is_nowhere();
        used.clone().for_each(|number| put(&generation, number, 20));
        for turn in 0..50_000_u32 {
            put(&generation, random.below(keys.len() as u64) as u32, 1 + random.below(40) as u32);
            if turn % 4 == 0 {
                used.clone().for_each(|number| assert!(is_there(number), "{number} was used, turn {turn}"));
            }
        }
        assert!(generation.is_full());
        let bytes = generation.memory_bytes();
        assert!((BUDGET_BYTES * 4 / 5..=BUDGET_BYTES).contains(&bytes), "{bytes} B");
        let filled = generation.filled();
        assert_eq!(filled.of_top, filled.sub_models);
        assert_eq!((0..keys.len() as u32).filter(|number| is_there(*number)).count() as u64, filled.of_top);
        let absent = (0..keys.len() as u32).find(|number| !is_there(*number)).expect("not all have room");
        put(&generation, absent, 20);
        assert!(is_there(absent));
    }

    /// Branches, and what is below them, are driven out like the others.
    #[test]
    fn what_is_below_branches_obeys_too() {
        let (top, _) = top_of(20_000);
        let count = top.sub_model_count();
        let generation = Generation::new(1, top, 20_000, 40_000, 64 << 10).expect("memory");
        for number in (count..count + 9_000).step_by(3).cycle().take(20_000) {
            put(&generation, number, 1 + number % 50);
        }
        let filled = generation.filled();
        assert!(filled.sub_models > 50 && filled.of_top == 0, "{} sub-models", filled.sub_models);
        let live_lines = generation.arena.live_lines() as u64;
        assert!(live_lines * (LINE_BYTES as u64) < 64 << 10, "{live_lines} lines");
    }

    #[test]
    fn the_top_model_alone_needs_no_budget() {
        let (top, keys) = top_of(20_000);
        let generation = Generation::new(1, top, 20_000, 40_000, 0).expect("memory");
        put(&generation, 3, 20);
        assert!(generation.locate(keys[3]).place.is_nowhere());
        assert!(!generation.is_laid_out_for(u64::MAX) && generation.set_budget(1 << 20));
        put(&generation, 3, 20);
        assert!(!generation.locate(keys[3]).place.is_nowhere());
    }
}
