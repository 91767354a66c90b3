//! Where a client keeps its sub-models of more than a line: blocks of lines in chunks that never move.
//!
//! Invariant: as long as the arena lives a block holds some sub-model of the same number of leaves. Each word
//! of it was checked when it was put there. So a session that still reads a block after it was given to
//! another sub-model sees words of two that are laid out alike. They lead to wrong leaves, which their own
//! fences expose, and never to anything worse. Readers need no epochs, and a paused one holds nothing back.

use std::collections::HashMap;
use std::sync::{OnceLock, PoisonError};

use farsight_base::WORDS_PER_LINE;
use farsight_base::sync::{AtomicU64, Mutex, Ordering};
use farsight_base::words::SharedLine;
#[cfg(not(any(loom, shuttle)))]
use farsight_base::{
    LINE_BYTES,
    heap::{HUGE_PAGE_BYTES, HeapWords},
};

use super::block::block_lines;

/// Lines in a chunk but the first, a huge page; no block crosses a chunk's end. A model has no room for as
/// many.
#[cfg(not(any(loom, shuttle)))]
pub(super) const CHUNK_LINES: usize = HUGE_PAGE_BYTES / LINE_BYTES;
#[cfg(any(loom, shuttle))]
pub(super) const CHUNK_LINES: usize = 10;
/// Lines in the first chunk: small tables have no other, and should not cost a huge page.
const FIRST_CHUNK_LINES: usize = if cfg!(any(loom, shuttle)) { CHUNK_LINES } else { 512 };
/// Lines at most: as many as a place can name.
pub(super) const LINES_MAX: usize = 1 << 29;
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

    pub(super) fn lines(&self) -> &[SharedLine] {
        &self.0
    }
}

/// Words from a block's start on that are there to be looked at, whatever the block's length: those of most
/// blocks.
pub(super) const VIEW_WORDS: usize = 8 * WORDS_PER_LINE;
/// Lines at a chunk's end in which no block begins.
const SPARE_LINES: usize = VIEW_WORDS / WORDS_PER_LINE - 1;

/// Blocks of lines. Line 0 is in none of them.
pub(super) struct Arena {
    chunks: Box<[OnceLock<ZeroedLines>]>,
    state: Mutex<ArenaState>,
}

struct ArenaState {
    next: usize,
    /// Blocks that were given back, by the leaves of their sub-models.
    free: HashMap<u32, Vec<u32>>,
    live_lines: usize,
}

impl Arena {
    /// An arena with places for `lines` at least, each block once or many times.
    pub(super) fn new(lines: usize) -> Self {
        // One more for the first, which is short, and one for what the ends of chunks leave unused.
        let count = (lines / CHUNK_LINES).saturating_add(2).min(CHUNKS_MAX);
        let chunks = (0..count).map(|_| OnceLock::new()).collect();
        let state = ArenaState { next: 1, free: HashMap::new(), live_lines: 0 };
        Self { chunks, state: Mutex::new(state) }
    }

    /// Puts `words` in a block for a sub-model of so many leaves, which has room for them, and returns its
    /// first line. Returns `None` if it has more lines than a chunk holds, the arena is full, or there is no
    /// memory left.
    pub(super) fn put(&self, leaves: u32, words: &[u64]) -> Option<u32> {
        debug_assert!(words.len() <= block_lines(leaves) * WORDS_PER_LINE, "{} words", words.len());
        let line = self.allocate(leaves)?;
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

    /// Gives a block for sub-models of so many leaves back.
    pub(super) fn free(&self, first: u32, leaves: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.live_lines -= block_lines(leaves);
        state.free.entry(leaves).or_default().push(first);
    }

    /// Lines in use.
    pub(super) fn live_lines(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).live_lines
    }

    fn allocate(&self, leaves: u32) -> Option<u32> {
        let lines = block_lines(leaves);
        if lines > CHUNK_LINES - SPARE_LINES {
            return None;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(first) = state.free.get_mut(&leaves).and_then(Vec::pop) {
            state.live_lines += lines;
            return Some(first);
        }
        let length = |chunk: usize| if chunk == 0 { FIRST_CHUNK_LINES } else { CHUNK_LINES };
        let usable = |chunk| length(chunk) - SPARE_LINES;
        let (mut chunk, mut at) = (state.next / CHUNK_LINES, state.next);
        while at % CHUNK_LINES + lines > usable(chunk) {
            // A chunk takes any block but the first, so this ends at the second.
            chunk += 1;
            at = chunk * CHUNK_LINES;
        }
        let own = self.chunks.get(chunk)?;
        if own.get().is_none() {
            // Nobody else sets it: the state is locked.
            let _ = own.set(ZeroedLines::new(length(chunk))?);
        }
        state.next = at + lines;
        state.live_lines += lines;
        Some(at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_come_back() {
        let arena = Arena::new(8 * CHUNK_LINES);
        let words_of = |leaves: u32| (0..block_lines(leaves) * WORDS_PER_LINE).map(|word| word as u64 + 7);
        let blocks = [3, 9, 100, 101, 30_000, 300_000].map(|leaves| {
            let words: Vec<u64> = words_of(leaves).collect();
            (leaves, arena.put(leaves, &words).unwrap())
        });
        for (leaves, first) in blocks {
            assert_ne!(first, 0);
            let _ = arena.view(first);
            let stored = arena.words_from(first).iter().map(|word| word.load(Ordering::Relaxed));
            assert!(stored.take(block_lines(leaves) * WORDS_PER_LINE).eq(words_of(leaves)));
        }
        let (leaves, first) = blocks[2];
        arena.free(first, leaves);
        let other = arena.put(99, &[0; 3]).unwrap();
        assert_ne!(other, first, "a block for other numbers of leaves stays one");
        assert_eq!(arena.put(leaves, &[0; 3]), Some(first), "it is used again");
        assert!(arena.put(400_000, &[0; 3]).is_none());
    }
}
