//! A queue's own registered memory, in parts: words that atomics found, lines that READs fetched, words that
//! WRITEs carry, frames of calls. READs of one line land side by side, so that a batch of them touches few
//! pages.
//!
//! Invariant: a slot's places are its own until its batch is complete. What does not fit gets memory of its
//! own, which is kept until the batch that used it is complete.

use std::sync::Arc;

use farsight_base::LINE_BYTES;
use farsight_fabric::FabricError;

use crate::call_frame::{FRAME_BYTES, FRAME_WORDS};
use crate::ibv::ffi::Piece;
use crate::ibv::memory::{ProtectionDomain, Registered};
use crate::{CALLS_MAX, SLOTS};

/// Lines of a READ that land in the slot's own place.
const LANDING_LINES: usize = 12;
const WORD_BYTES: usize = SLOTS * 8;
/// Bytes of one copy of all slots' READs of a single line.
const SINGLES_BYTES: usize = SLOTS * LINE_BYTES;
/// Bytes of WRITEs under way.
const STAGING_BYTES: usize = 64 << 10;

/// The queue's memory.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) memory: Registered,
    domain: Arc<ProtectionDomain>,
    /// Times that a stamped READ is done.
    copies: usize,
    /// Bytes ever taken from the staging part, and ever given back.
    staged: u64,
    released: u64,
    /// By slot: memory for long READs.
    long: Vec<Option<Registered>>,
    /// Memory that the work of a batch may still use.
    retired: Vec<(u64, Registered)>,
}

/// Where a READ lands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landing {
    pub(super) piece: Piece,
    /// Bytes to the place of the READ's next copy.
    pub(super) stride_bytes: u64,
    pub(super) is_long: bool,
}

impl Arena {
    /// With room for `copies` of each READ.
    pub(super) fn new(domain: &Arc<ProtectionDomain>, copies: usize) -> Result<Self, FabricError> {
        let bytes = staging_start(copies) + STAGING_BYTES + 2 * CALLS_MAX * FRAME_BYTES;
        Ok(Self {
            memory: Registered::private(domain, bytes)?,
            domain: Arc::clone(domain),
            copies,
            staged: 0,
            released: 0,
            long: (0..SLOTS).map(|_| None).collect(),
            retired: Vec::new(),
        })
    }

    /// Where an atomic leaves the word that it found.
    pub(super) fn word(&self, slot: usize) -> Piece {
        self.memory.piece(slot * 8, 8)
    }

    /// The first word of a place for a request (`0..CALLS_MAX`) or a reply (from there on).
    pub(super) fn frame(&self, index: usize) -> usize {
        (staging_start(self.copies) + STAGING_BYTES) / 8 + index * FRAME_WORDS
    }

    /// Where a READ that is not long begins to land, and the bytes to its next copy.
    fn place(&self, slot: usize, line_count: usize) -> (usize, usize) {
        if line_count <= 1 {
            return (WORD_BYTES + slot * LINE_BYTES, SINGLES_BYTES);
        }
        let stride = LANDING_LINES * LINE_BYTES;
        (WORD_BYTES + self.copies * (SINGLES_BYTES + slot * stride), stride)
    }

    /// Where a READ of `line_count` lines into `slot` lands, in a batch of this number.
    pub(super) fn landing(
        &mut self,
        slot: usize,
        line_count: usize,
        batch: u64,
    ) -> Result<Landing, FabricError> {
        let bytes = line_count * LINE_BYTES;
        if line_count <= LANDING_LINES {
            let (start, stride) = self.place(slot, line_count);
            let piece = self.memory.piece(start, bytes);
            return Ok(Landing { piece, stride_bytes: stride as u64, is_long: false });
        }
        let wanted = bytes * self.copies;
        let fits = self.long[slot].as_ref().is_some_and(|memory| memory.words().len() * 8 >= wanted);
        if !fits {
            let memory = Registered::private(&self.domain, wanted.next_power_of_two())?;
            let before = self.long[slot].replace(memory);
            self.retired.extend(before.map(|memory| (batch, memory)));
        }
        let memory = self.long[slot].as_ref().expect("made above");
        Ok(Landing { piece: memory.piece(0, bytes), stride_bytes: bytes as u64, is_long: true })
    }

    /// The words of copy number `copy` of the READ that landed in `slot`.
    pub(super) fn landed(
        &self,
        slot: usize,
        is_long: bool,
        line_count: usize,
        copy: usize,
    ) -> &[farsight_base::sync::AtomicU64] {
        let words = line_count * LINE_BYTES / 8;
        let (memory, first, stride) = if is_long {
            (self.long[slot].as_ref().expect("a long READ was posted"), 0, words)
        } else {
            let (start, stride) = self.place(slot, line_count);
            (&self.memory, start / 8, stride / 8)
        };
        &memory.words()[first + copy * stride..][..words]
    }

    /// A place that holds `words` until the batch of this number is complete.
    pub(super) fn stage(&mut self, words: &[u64], batch: u64) -> Result<Piece, FabricError> {
        let bytes = size_of_val(words);
        let capacity = STAGING_BYTES as u64;
        let mut at = self.staged % capacity;
        let mut end = self.staged + bytes as u64;
        if at + bytes as u64 > capacity {
            (at, end) = (0, self.staged.next_multiple_of(capacity) + bytes as u64);
        }
        if end - self.released > capacity {
            let own = Registered::private(&self.domain, bytes)?;
            store(&own, 0, words);
            let piece = own.piece(0, bytes);
            self.retired.push((batch, own));
            return Ok(piece);
        }
        self.staged = end;
        let start = staging_start(self.copies) + at as usize;
        store(&self.memory, start / 8, words);
        Ok(self.memory.piece(start, bytes))
    }

    /// Bytes staged so far: given to [`Arena::release`] once they are sent.
    pub(super) fn staged(&self) -> u64 {
        self.staged
    }

    /// Every batch before `batch` is complete, and so is what was staged up to `staged`.
    pub(super) fn release(&mut self, batch: u64, staged: u64) {
        self.released = self.released.max(staged);
        if !self.retired.is_empty() {
            self.retired.retain(|(user, _)| *user >= batch);
        }
    }
}

/// Where the words of WRITEs begin, behind the places where READs land.
fn staging_start(copies: usize) -> usize {
    WORD_BYTES + copies * (SINGLES_BYTES + SLOTS * LANDING_LINES * LINE_BYTES)
}

fn store(memory: &Registered, first: usize, words: &[u64]) {
    for (to, word) in memory.words()[first..].iter().zip(words) {
        // Relaxed: as in `Registered::store_bytes`.
        to.store(*word, farsight_base::sync::Ordering::Relaxed);
    }
}
