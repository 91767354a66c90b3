//! Places that readers may still know: first in, first out.

use std::collections::VecDeque;

use farsight_layout::value_block::BlockPlace;

use crate::sizes::Size;

/// Lines that may wait, however little is live.
const LINES_MIN: u64 = 4096;
/// What may wait above that: one part in so many of what is live.
const SHARE: u64 = 32;

/// Places in the order in which they came.
#[derive(Default)]
pub(crate) struct Quarantine {
    places: VecDeque<BlockPlace>,
    lines: u64,
}

impl Quarantine {
    /// Lines of all places in it.
    pub(crate) fn lines(&self) -> u64 {
        self.lines
    }

    /// Puts a place in.
    pub(crate) fn push(&mut self, place: BlockPlace) {
        self.lines += Size::of(place.lines).lines();
        self.places.push_back(place);
    }

    /// Takes the oldest place out, if more wait than `live_lines` allow. The newest always stays.
    pub(crate) fn pop_overdue(&mut self, live_lines: u64) -> Option<BlockPlace> {
        if self.places.len() <= 1 || self.lines <= LINES_MIN.max(live_lines / SHARE) {
            return None;
        }
        let place = self.places.pop_front()?;
        self.lines -= Size::of(place.lines).lines();
        Some(place)
    }

    /// Takes all places out, the oldest first.
    pub(crate) fn take_all(&mut self) -> VecDeque<BlockPlace> {
        self.lines = 0;
        std::mem::take(&mut self.places)
    }
}
