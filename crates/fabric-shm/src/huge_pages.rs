//! Huge pages under a mapping: collapsing populated pieces, and counting what the kernel says is mapped so.
//!
//! Invariant: a piece is requested again only until it succeeded. What counts as mapped is the kernel's word
//! ([`MemoryMap`]), read anew after any change. That takes milliseconds. So a mapping has it read once in a
//! second, and adds what was collapsed since.
//!
//! `MADV_HUGEPAGE` does nothing for memory files where `shmem_enabled` is `never`, the kernel's default;
//! `MADV_COLLAPSE` works regardless, on read-only maps too, but on populated pieces only.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use farsight_base::sync::Ordering;

use crate::extents::Extents;
use crate::mapping::{HUGE_PAGE_BYTES, Mapping};
use crate::memory_map::{MemoryMap, READ_INTERVAL};

/// Tries for one piece: a page that is locked or isolated at the moment gives EAGAIN.
const TRIES: usize = 3;

/// What was collapsed so far.
#[derive(Debug, Default)]
pub(crate) struct HugePages {
    pieces: Mutex<Pieces>,
}

#[derive(Debug)]
struct Pieces {
    done: Vec<bool>,
    /// When the mapping was made, or a piece was collapsed last.
    changed_at: Instant,
    counted: Option<Counted>,
}

/// What is on huge pages.
#[derive(Debug)]
struct Counted {
    at: Instant,
    /// By the kernel's word.
    mapped_bytes: u64,
    /// Collapsed since.
    collapsed_bytes: u64,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { done: Vec::new(), changed_at: Instant::now(), counted: None }
    }
}

impl Pieces {
    fn count(&mut self, mapping: &Mapping) -> u64 {
        if let Some(counted) = &self.counted
            && (counted.collapsed_bytes == 0 || counted.at.elapsed() < READ_INTERVAL)
        {
            return counted.mapped_bytes + counted.collapsed_bytes;
        }
        let map = MemoryMap::behind(self.changed_at);
        let mapped_bytes = map.huge_page_bytes(mapping.address_range());
        self.counted = Some(Counted { at: map.at, mapped_bytes, collapsed_bytes: 0 });
        mapped_bytes
    }
}

impl HugePages {
    /// Collapses nothing any more, while and after `vacate` takes the pages away.
    pub(crate) fn end(&self, mapping: &Mapping, vacate: impl FnOnce()) {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.done = vec![true; mapping.words().len() * 8 / HUGE_PAGE_BYTES];
        vacate();
    }

    /// Collapses every populated piece that begins below `used_bytes`. Returns the bytes collapsed so far.
    pub(crate) fn collapse(&self, mapping: &Mapping, files: &Extents, used_bytes: u64) -> u64 {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let words = mapping.words();
        pieces.done.resize(words.len() * 8 / HUGE_PAGE_BYTES, false);
        let used_pieces = used_bytes.div_ceil(HUGE_PAGE_BYTES as u64);
        for piece in 0..pieces.done.len() {
            if piece as u64 >= used_pieces {
                break;
            }
            if pieces.done[piece] {
                continue;
            }
            let Some(populated_byte) = files.first_data(piece) else { continue };
            // The page table must know the piece: touch it. Relaxed: the value is of no interest, but a load
            // without any use may be left out.
            std::hint::black_box(words[populated_byte / 8].load(Ordering::Relaxed));
            if collapse_piece(mapping, piece) {
                pieces.done[piece] = true;
                pieces.changed_at = Instant::now();
                if let Some(counted) = &mut pieces.counted {
                    counted.collapsed_bytes += HUGE_PAGE_BYTES as u64;
                }
            }
        }
        (pieces.done.iter().filter(|done| **done).count() * HUGE_PAGE_BYTES) as u64
    }

    /// Bytes on huge pages.
    pub(crate) fn mapped_bytes(&self, mapping: &Mapping) -> u64 {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).count(mapping)
    }
}

fn collapse_piece(mapping: &Mapping, piece: usize) -> bool {
    (0..TRIES).any(|_| mapping.collapse(piece).is_ok())
}
