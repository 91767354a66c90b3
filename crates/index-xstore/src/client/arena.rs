//! Where a client keeps its sub-models of more than a line: blocks of lines in chunks that never move.
//!
//! Invariant: lines that were part of a block stay readable as long as the arena lives, with as many behind
//! them as any view takes. Blocks that come back are free lines, which later blocks of any length and kind
//! are made of. So a session that still reads a block meanwhile sees words of others, laid out in any other
//! way. Who reads must bear *any* words ([`block`](super::block), [`branch`](super::branch)): then they lead
//! to wrong leaves, which their own fences expose, and never to anything worse. Readers need no epochs, and a
//! paused one holds nothing back.

use std::sync::{OnceLock, PoisonError};

use farsight_base::WORDS_PER_LINE;
use farsight_base::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use farsight_base::words::SharedLine;
#[cfg(not(any(loom, shuttle)))]
use farsight_base::{
    LINE_BYTES,
    heap::{HUGE_PAGE_BYTES, HeapWords},
};

use super::block::block_lines;
use super::branch::{BRANCH_LINES, BranchLines};
use crate::free_runs::FreeRuns;

/// Lines in a chunk but the first, a huge page; no block crosses a chunk's end. A model has no room for as
/// many.
#[cfg(not(any(loom, shuttle)))]
pub(super) const CHUNK_LINES: usize = HUGE_PAGE_BYTES / LINE_BYTES;
#[cfg(any(loom, shuttle))]
pub(super) const CHUNK_LINES: usize = 10;
/// Lines in the first chunk: small tables have no other, and should not cost a huge page.
const FIRST_CHUNK_LINES: usize = if cfg!(any(loom, shuttle)) { CHUNK_LINES } else { 512 };
/// Lines at most: as many as a place can name.
pub(super) const LINES_MAX: usize = 1 << 26;
/// Chunks that ask for no huge page: until there are as many, a page that is used for its first lines only
/// would be a large part of the cache.
#[cfg(not(any(loom, shuttle)))]
const SMALL_PAGE_CHUNKS: usize = 4;
/// Chunks at most.
const CHUNKS_MAX: usize = if cfg!(any(loom, shuttle)) { 4 } else { LINES_MAX / CHUNK_LINES };

/// Lines of zeros at first, which never move.
#[cfg(not(any(loom, shuttle)))]
pub(super) struct ZeroedLines(HeapWords);

#[cfg(not(any(loom, shuttle)))]
impl ZeroedLines {
    /// So many lines; `None` if there is no memory for them.
    pub(super) fn new(lines: usize) -> Option<Self> {
        HeapWords::zeroed(lines).map(Self)
    }

    /// The lines of a chunk.
    fn of_chunk(chunk: usize, lines: usize) -> Option<Self> {
        let is_small = chunk <= SMALL_PAGE_CHUNKS;
        if is_small { HeapWords::zeroed_for_growth(lines) } else { HeapWords::zeroed(lines) }.map(Self)
    }

    /// Bytes of memory that they take.
    pub(super) fn touched_bytes(&self) -> u64 {
        self.0.touched_bytes()
    }

    #[inline(always)]
    pub(super) fn lines(&self) -> &[SharedLine] {
        self.0.words().as_chunks().0
    }
}

/// Those of a model, whose atomics are not of a word's size.
#[cfg(any(loom, shuttle))]
pub(super) struct ZeroedLines(Box<[SharedLine]>);

#[cfg(any(loom, shuttle))]
impl ZeroedLines {
    pub(super) fn new(lines: usize) -> Option<Self> {
        Some(Self((0..lines).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect()))
    }

    fn of_chunk(_chunk: usize, lines: usize) -> Option<Self> {
        Self::new(lines)
    }

    pub(super) fn touched_bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    pub(super) fn lines(&self) -> &[SharedLine] {
        &self.0
    }
}

/// Words from a block's start on that are there to be looked at, whatever the block's length: those of most
/// blocks.
pub(super) const VIEW_WORDS: usize = 8 * WORDS_PER_LINE;
/// Lines at a chunk's end in which no block begins.
const SPARE_LINES: usize = VIEW_WORDS / WORDS_PER_LINE - 1;

/// How a block is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockKind {
    /// A sub-model in a line.
    Line,
    /// A sub-model of so many leaves in lines.
    Lines(u32),
    /// A branch.
    Branch,
}

impl BlockKind {
    /// Lines of such a block.
    pub(super) const fn lines(self) -> usize {
        match self {
            Self::Line => 1,
            Self::Lines(leaves) => block_lines(leaves),
            Self::Branch => BRANCH_LINES,
        }
    }
}

/// Lines of a chunk at least, where no more may be had: a block of any usual length, and the spare ones.
pub(super) const CHUNK_LINES_MIN: usize =
    if cfg!(any(loom, shuttle)) { SPARE_LINES + 1 } else { 4 * SPARE_LINES };

/// Blocks of lines. Line 0 is in none of them.
pub(super) struct Arena {
    chunks: Box<[OnceLock<ZeroedLines>]>,
    state: Mutex<ArenaState>,
}

struct ArenaState {
    /// Chunks that there are, their lines, and how many of these there may be.
    chunks: usize,
    lines: usize,
    lines_max: usize,
    free: FreeRuns,
    live_lines: usize,
}

impl Arena {
    /// An arena with places for `lines` at least, if it may have as many; it never has more than `lines_max`.
    pub(super) fn new(lines: usize, lines_max: usize) -> Self {
        // One more for the first, which is short, and one for what the ends of chunks leave unused.
        let count = (lines / CHUNK_LINES).saturating_add(2).min(CHUNKS_MAX);
        let chunks = (0..count).map(|_| OnceLock::new()).collect();
        let state = ArenaState { chunks: 0, lines: 0, lines_max, free: FreeRuns::default(), live_lines: 0 };
        Self { chunks, state: Mutex::new(state) }
    }

    /// Lets it have more lines. False if it has more already than it may.
    pub(super) fn set_lines_max(&self, lines_max: usize) -> bool {
        let mut state = self.lock();
        state.lines_max = lines_max;
        state.lines <= lines_max
    }

    /// Puts `words` in a block of this kind, which has room for them, and returns its first line. Returns
    /// `None` if it has more lines than a chunk holds, the arena is full, or there is no memory left.
    pub(super) fn put(&self, kind: BlockKind, words: &[u64]) -> Option<u32> {
        debug_assert!(words.len() <= kind.lines() * WORDS_PER_LINE, "{} words", words.len());
        let line = self.allocate(kind)?;
        for (place, word) in self.words_from(line).iter().zip(words) {
            // Relaxed: the block is named by a Release store, or is read by sessions that take it for
            // another.
            place.store(*word, Ordering::Relaxed);
        }
        Some(line)
    }

    /// The words from line `first` of a block on, those behind its end included.
    ///
    /// # Panics
    /// If no block ever reached there.
    #[inline(always)]
    pub(super) fn words_from(&self, first: u32) -> &[AtomicU64] {
        self.lines_from(first).as_flattened()
    }

    #[inline(always)]
    fn lines_from(&self, first: u32) -> &[SharedLine] {
        let chunk = self.chunks[first as usize / CHUNK_LINES].get();
        let chunk = chunk.expect("sub-models lie in existing chunks");
        &chunk.lines()[first as usize % CHUNK_LINES..]
    }

    /// The first words from line `first` of a block on, which may be more than it has.
    ///
    /// # Panics
    /// If no block ever began there.
    #[inline(always)]
    pub(super) fn view(&self, first: u32) -> &[AtomicU64; VIEW_WORDS] {
        self.words_from(first).first_chunk().expect("a block does not begin in a chunk's spare lines")
    }

    /// The line `number`, which is a block.
    ///
    /// # Panics
    /// As [`Arena::words_from`].
    #[inline(always)]
    pub(super) fn line(&self, number: u32) -> &SharedLine {
        &self.lines_from(number)[0]
    }

    /// The lines of a branch's block.
    ///
    /// # Panics
    /// If no branch ever began there.
    #[inline(always)]
    pub(super) fn branch(&self, first: u32) -> &BranchLines {
        self.lines_from(first).first_chunk().expect("a block does not cross a chunk's end")
    }

    /// Gives a block of this kind back.
    pub(super) fn free(&self, first: u32, kind: BlockKind) {
        let mut state = self.lock();
        state.live_lines -= kind.lines();
        state.free.give(first, kind.lines() as u32);
    }

    /// Lines in use.
    pub(super) fn live_lines(&self) -> usize {
        self.lock().live_lines
    }

    /// Bytes of memory that the arena takes, for lines in use and for free ones.
    pub(super) fn memory_bytes(&self) -> u64 {
        let chunks = self.chunks.iter().filter_map(OnceLock::get);
        let lines_bytes: u64 = chunks.map(ZeroedLines::touched_bytes).sum();
        lines_bytes + (size_of_val(&*self.chunks) + self.lock().free.memory_bytes()) as u64
    }

    fn allocate(&self, kind: BlockKind) -> Option<u32> {
        let lines = kind.lines();
        if lines > CHUNK_LINES - SPARE_LINES {
            return None;
        }
        let mut state = self.lock();
        let first = loop {
            if let Some(first) = state.free.take(lines as u32) {
                break first;
            }
            // The second chunk has room for any block, if the first has not.
            self.add_chunk(&mut state)?;
        };
        state.live_lines += lines;
        Some(first)
    }

    /// Adds a chunk to the free lines; `None` if there are as many as there may be, or no memory is left.
    fn add_chunk(&self, state: &mut ArenaState) -> Option<()> {
        let number = state.chunks;
        let chunk = self.chunks.get(number)?;
        let lines = if number == 0 { FIRST_CHUNK_LINES } else { CHUNK_LINES };
        let lines = lines.min(state.lines_max.saturating_sub(state.lines));
        if lines < CHUNK_LINES_MIN {
            return None;
        }
        // Nobody else sets it: the state is locked.
        let _ = chunk.set(ZeroedLines::of_chunk(number, lines)?);
        // Line 0 is nowhere.
        let unused = usize::from(number == 0);
        let usable = lines - SPARE_LINES - unused;
        state.free.give((number * CHUNK_LINES + unused) as u32, usable as u32);
        state.chunks += 1;
        state.lines += lines;
        Some(())
    }

    fn lock(&self) -> MutexGuard<'_, ArenaState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use farsight_base::prng::SplitMix64;

    #[test]
    fn blocks_do_not_overlap_and_come_back() {
        let arena = Arena::new(8 * CHUNK_LINES, usize::MAX);
        let words_of =
            |leaves: u32| (0..BlockKind::Lines(leaves).lines() * WORDS_PER_LINE).map(|word| word as u64 + 7);
        let blocks = [3, 9, 100, 101, 30_000, 300_000].map(|leaves| {
            let words: Vec<u64> = words_of(leaves).collect();
            (leaves, arena.put(BlockKind::Lines(leaves), &words).unwrap())
        });
        for (leaves, first) in blocks {
            assert_ne!(first, 0);
            let _ = arena.view(first);
            let stored = arena.words_from(first).iter().map(|word| word.load(Ordering::Relaxed));
            assert!(stored.take(BlockKind::Lines(leaves).lines() * WORDS_PER_LINE).eq(words_of(leaves)));
        }
        let (leaves, first) = blocks[2];
        arena.free(first, BlockKind::Lines(leaves));
        let shorter = arena.put(BlockKind::Lines(leaves / 2), &[0; 3]);
        assert_eq!(shorter, Some(first), "lines are used again, whatever the block's length");
        assert!(arena.put(BlockKind::Lines(400_000), &[0; 3]).is_none());
    }

    #[test]
    fn an_arena_has_no_more_lines_than_it_may() {
        let arena = Arena::new(8 * CHUNK_LINES, FIRST_CHUNK_LINES + 100);
        let blocks = || std::iter::from_fn(|| arena.put(BlockKind::Line, &[0])).count();
        let all = blocks();
        assert!((FIRST_CHUNK_LINES + 80..FIRST_CHUNK_LINES + 100).contains(&all), "{all} lines");
        assert!(arena.set_lines_max(FIRST_CHUNK_LINES + 200) && blocks() > 80);
        assert!(!arena.set_lines_max(FIRST_CHUNK_LINES) && blocks() == 0);
    }

    /// Blocks of random lengths come and go. The arena takes no more than its busiest moment, and a little
    /// for what lies between blocks.
    #[test]
    fn blocks_that_come_and_go_take_no_more_lines() {
        let mut random = SplitMix64::new(31);
        let arena = Arena::new(64 * CHUNK_LINES, usize::MAX);
        let mut blocks: Vec<(u32, BlockKind)> = Vec::new();
        for turn in 0..400_000_u32 {
            // What is usual becomes longer and shorter.
            let usual = 4 + 60 * u64::from(turn / 50_000 % 4);
            let kind = match random.below(8) {
                0 => BlockKind::Line,
                1 => BlockKind::Branch,
                _ => BlockKind::Lines(1 + random.below(usual) as u32),
            };
            blocks.push((arena.put(kind, &[0; 3]).expect("room"), kind));
            while arena.live_lines() > CHUNK_LINES {
                let (first, kind) = blocks.swap_remove(random.below(blocks.len() as u64) as usize);
                arena.free(first, kind);
            }
        }
        let chunks = arena.lock().chunks;
        assert!(chunks <= 3, "{chunks} chunks for a chunk's lines");
    }
}
