//! Where a client keeps its copy of the translation table: blocks of entries in chunks that never move.
//!
//! Invariant: the arena is type-stable. A block that is given back only ever holds table entries again, each
//! of them checked when it was put there. So a session that still reads a block after it was given to another
//! sub-model sees wrong leaves, which their own fences expose, and never anything worse: readers need no
//! epochs, and a paused one holds nothing back.

use std::collections::HashMap;
use std::sync::{OnceLock, PoisonError};

#[cfg(not(any(loom, shuttle)))]
use farsight_base::heap::{HUGE_PAGE_BYTES, HeapWords};
use farsight_base::sync::{AtomicU64, Mutex, Ordering};
#[cfg(not(any(loom, shuttle)))]
use farsight_base::{LINE_BYTES, WORDS_PER_LINE};

/// Entries in a chunk but the first, a huge page; no block crosses a chunk's end. A model has no room for as
/// many.
#[cfg(not(any(loom, shuttle)))]
pub(super) const CHUNK_ENTRIES: usize = HUGE_PAGE_BYTES / LINE_BYTES * WORDS_PER_LINE;
#[cfg(any(loom, shuttle))]
pub(super) const CHUNK_ENTRIES: usize = 4;
/// Entries in the first chunk: small tables have no other, and should not cost a huge page.
const FIRST_CHUNK_ENTRIES: usize = if cfg!(any(loom, shuttle)) { CHUNK_ENTRIES } else { 1 << 12 };
/// Chunks at most: as many entries as an offset of 32 bits can name.
const CHUNKS_MAX: usize = if cfg!(any(loom, shuttle)) { 4 } else { (1 << 32) / CHUNK_ENTRIES };

/// Entries that never move.
#[cfg(not(any(loom, shuttle)))]
struct Chunk(HeapWords);

#[cfg(not(any(loom, shuttle)))]
impl Chunk {
    fn new(entries: usize) -> Option<Self> {
        HeapWords::zeroed(entries / WORDS_PER_LINE).map(Self)
    }

    #[inline(always)]
    fn entries(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// Those of a model, whose atomics are not of a word's size.
#[cfg(any(loom, shuttle))]
struct Chunk(Box<[AtomicU64]>);

#[cfg(any(loom, shuttle))]
impl Chunk {
    fn new(entries: usize) -> Option<Self> {
        Some(Self((0..entries).map(|_| AtomicU64::new(0)).collect()))
    }

    fn entries(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Blocks of table entries.
pub(super) struct Arena {
    chunks: Box<[OnceLock<Chunk>]>,
    state: Mutex<ArenaState>,
}

#[derive(Default)]
struct ArenaState {
    next: usize,
    free: HashMap<usize, Vec<u32>>,
    live_entries: usize,
}

impl Arena {
    /// An arena with places for `entries` at least, each block once or many times.
    pub(super) fn new(entries: usize) -> Self {
        // One more for the first, which is short, and one for what the ends of chunks leave unused.
        let count = (entries / CHUNK_ENTRIES).saturating_add(2).min(CHUNKS_MAX);
        let chunks = (0..count).map(|_| OnceLock::new()).collect();
        Self { chunks, state: Mutex::default() }
    }

    /// Puts `entries` in a block and returns its offset; `None` if they are more than a chunk holds, the
    /// arena is full, or there is no memory left.
    pub(super) fn put(&self, entries: &[u64]) -> Option<u32> {
        let offset = self.allocate(entries.len())?;
        for (place, entry) in self.entries(offset as usize, entries.len()).iter().zip(entries) {
            // Relaxed: the record that names the block is published with Release (`end_write` of its line).
            place.store(*entry, Ordering::Relaxed);
        }
        Some(offset)
    }

    /// `count` entries from `first` on, which lie in one block.
    ///
    /// # Panics
    /// If no block ever reached there.
    #[inline(always)]
    pub(super) fn entries(&self, first: usize, count: usize) -> &[AtomicU64] {
        let chunk = self.chunks[first / CHUNK_ENTRIES].get().expect("records name blocks of existing chunks");
        &chunk.entries()[first % CHUNK_ENTRIES..][..count]
    }

    /// Gives a block back.
    pub(super) fn free(&self, offset: u32, entries: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.live_entries -= entries;
        state.free.entry(entries).or_default().push(offset);
    }

    /// Bytes of the entries in use.
    pub(super) fn live_bytes(&self) -> usize {
        8 * self.state.lock().unwrap_or_else(PoisonError::into_inner).live_entries
    }

    fn allocate(&self, entries: usize) -> Option<u32> {
        if entries > CHUNK_ENTRIES {
            return None;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(offset) = state.free.get_mut(&entries).and_then(Vec::pop) {
            state.live_entries += entries;
            return Some(offset);
        }
        let length = |chunk: usize| if chunk == 0 { FIRST_CHUNK_ENTRIES } else { CHUNK_ENTRIES };
        let (mut chunk, mut at) = (state.next / CHUNK_ENTRIES, state.next);
        while at % CHUNK_ENTRIES + entries > length(chunk) {
            // A chunk takes any block but the first, so this ends at the second.
            chunk += 1;
            at = chunk * CHUNK_ENTRIES;
        }
        let own = self.chunks.get(chunk)?;
        if own.get().is_none() {
            // Nobody else sets it: the state is locked.
            let _ = own.set(Chunk::new(length(chunk))?);
        }
        state.next = at + entries;
        state.live_entries += entries;
        Some(at as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_come_back() {
        let arena = Arena::new(16 * CHUNK_ENTRIES);
        let lengths = [3, 120_000, 120_000, 120_000, 5, CHUNK_ENTRIES];
        let blocks: Vec<_> = lengths
            .map(|length| (length, arena.put(&(7..length as u64 + 7).collect::<Vec<_>>()).unwrap()))
            .into();
        for (length, offset) in &blocks {
            let stored = arena.entries(*offset as usize, *length).iter();
            assert!(stored.map(|entry| entry.load(Ordering::Relaxed)).eq(7..*length as u64 + 7));
        }
        let (length, offset) = blocks[1];
        arena.free(offset, length);
        assert_eq!(arena.put(&vec![0; length]), Some(offset), "a free block of the size is reused");
        assert!(arena.put(&vec![0; CHUNK_ENTRIES + 1]).is_none());
    }
}
