//! The space of a table's blocks: memory for values of any length, in one region that grows.
//!
//! Invariants:
//! - no two blocks that are live, in quarantine or ready for a writer overlap;
//! - every byte from the region's start to the end of what was ever used is live, free, in quarantine or lost
//!   ([`BlockStats`]);
//! - a block that readers may know is used anew only after it was in quarantine. Readers do not rely on that:
//!   a block says its version ([`farsight_layout::value_block`]). Quarantine makes it rare that they have to
//!   read again.
//!
//! How memory is divided: the region consists of pages of 8 KiB. A block of more than 64 KiB is a run of
//! whole pages. Others come from *slabs* of one size class each, eight to sixteen pages long. There are eight
//! classes from one power of two to the next. A block loses at most a ninth of its place by that, and a slab
//! at most a sixteenth of itself behind its last place. A slab without blocks becomes pages again, and pages
//! become one run with their neighbours.
//!
//! Protocol of a block's memory:
//! 1. A [`BlockWriter`] takes a place: one that it has ready, or a batch of its class's slabs.
//! 2. The writer fills the place, and publishes a reference to it; or it gives the place back, which nobody
//!    knows.
//! 3. When the reference is gone, [`BlockSpace::retire`] puts the place into quarantine, first in, first out.
//! 4. What leaves the quarantine is free in its slab.
//!
//! Locks are taken in the order quarantine, class, pages; the others are held alone.

#![forbid(unsafe_code)]

mod class;
#[cfg(any(shuttle, injected))]
pub mod injected;
mod pages;
mod quarantine;
mod sizes;
mod space;
mod stats;
mod writer;

pub use pages::Pages;
pub use space::{BlockSpace, NoRoom};
pub use stats::BlockStats;
pub use writer::BlockWriter;

/// Lines of a page.
const PAGE_LINES: u64 = 128;
