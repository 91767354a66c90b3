//! Huge pages under a mapping: collapsing populated pieces, and counting what the kernel says is mapped so.
//!
//! Invariant: a piece is requested again only until it succeeded. What counts as mapped is the kernel's word
//! (`/proc/self/smaps`), read anew after any change. The kernel takes milliseconds to say it. So within a
//! second it is read once, and what was collapsed since is added to it.
//!
//! `MADV_HUGEPAGE` does nothing for memory files where `shmem_enabled` is `never`, the kernel's default;
//! `MADV_COLLAPSE` works regardless, on read-only maps too, but on populated pieces only.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farsight_base::sync::Ordering;

use crate::extents::Extents;
use crate::mapping::{HUGE_PAGE_BYTES, Mapping};

/// Tries for one piece: a page that is locked or isolated at the moment gives EAGAIN.
const TRIES: usize = 3;
/// Least time between two counts: one walks the page table of the whole process.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// What was collapsed so far.
#[derive(Debug, Default)]
pub(crate) struct HugePages {
    pieces: Mutex<Pieces>,
}

#[derive(Debug, Default)]
struct Pieces {
    done: Vec<bool>,
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

impl Pieces {
    fn count(&mut self, mapping: &Mapping) -> u64 {
        if let Some(counted) = &self.counted
            && (counted.collapsed_bytes == 0 || counted.at.elapsed() < COUNT_INTERVAL)
        {
            return counted.mapped_bytes + counted.collapsed_bytes;
        }
        let mapped_bytes = mapped_bytes(mapping);
        self.counted = Some(Counted { at: Instant::now(), mapped_bytes, collapsed_bytes: 0 });
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

/// Bytes of the mapping that the kernel maps by huge pages now.
pub(crate) fn mapped_bytes(mapping: &Mapping) -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/smaps") else { return 0 };
    let wanted = mapping.address_range();
    let mut inside = false;
    let mut total_bytes = 0;
    for line in text.lines() {
        if let Some(range) = address_range(line) {
            inside = wanted.start <= range.start && range.end <= wanted.end;
        } else if inside && (line.starts_with("ShmemPmdMapped:") || line.starts_with("FilePmdMapped:")) {
            let kibibytes = line.split_ascii_whitespace().nth(1).and_then(|text| text.parse::<u64>().ok());
            total_bytes += kibibytes.unwrap_or(0) * 1024;
        }
    }
    total_bytes
}

/// The range of a mapping's first line (`start-end perms …`), `None` for the lines about it.
fn address_range(line: &str) -> Option<std::ops::Range<usize>> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}
