//! A writer's own supply of places, so that most of them cost no lock.

use std::sync::Arc;

use farsight_base::LINE_BYTES;
use farsight_layout::value_block::BlockPlace;

use crate::sizes::{CLASSES, Size, lines_of};
use crate::space::{BlockSpace, NoRoom};

/// Places that a writer takes of a class at once, at most.
const BATCH_PLACES_MAX: usize = 32;
/// Bytes of such a batch, unless one place has more.
const BATCH_BYTES: usize = 32 << 10;

/// One thread's way to places of a space. What it has ready goes back when it is dropped.
pub struct BlockWriter {
    space: Arc<BlockSpace>,
    /// First lines of the places ready, by class.
    ready: [Vec<u64>; CLASSES],
}

impl BlockWriter {
    /// A writer without supplies.
    #[must_use]
    pub fn new(space: Arc<BlockSpace>) -> Self {
        Self { space, ready: std::array::from_fn(|_| Vec::new()) }
    }

    /// The space.
    #[must_use]
    pub fn space(&self) -> &Arc<BlockSpace> {
        &self.space
    }

    /// Takes a place for a block of so many lines. It can be written.
    ///
    /// # Errors
    /// [`NoRoom`].
    ///
    /// # Panics
    /// For a block without lines.
    pub fn allocate(&mut self, lines: u32) -> Result<BlockPlace, NoRoom> {
        assert!(lines > 0, "a block without lines");
        let offset_lines = match Size::of(lines) {
            Size::Class(class) => self.take_ready(class)?,
            Size::Pages(pages) => self.space.take_long(pages)?,
        };
        let place = BlockPlace { space: self.space.number(), offset_lines, lines };
        #[cfg(injected)]
        if crate::injected::LIVE_BLOCK_REUSED.is_injected()
            && let Size::Class(class) = Size::of(lines)
        {
            self.ready[class].insert(0, offset_lines);
        }
        self.space.count_in(place);
        Ok(place)
    }

    /// Gives a place back of which no reader can know: nothing was published.
    pub fn give_back(&mut self, place: BlockPlace) {
        self.space.give_back(place);
    }

    fn take_ready(&mut self, class: usize) -> Result<u64, NoRoom> {
        let ready = &mut self.ready[class];
        if ready.is_empty() {
            let fitting = BATCH_BYTES / (lines_of(class) as usize * LINE_BYTES);
            self.space.take_places(class, fitting.clamp(1, BATCH_PLACES_MAX), ready)?;
            // The lowest is taken first.
            ready.reverse();
        }
        Ok(ready.pop().expect("a place was taken"))
    }
}

impl Drop for BlockWriter {
    fn drop(&mut self) {
        for (class, ready) in self.ready.iter_mut().enumerate() {
            self.space.free_ready(class, ready);
        }
    }
}
