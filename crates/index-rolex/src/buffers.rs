//! What a session's operations work in, kept from one to the next.
//!
//! Invariant: an operation that splits no leaf and fetches no part of the learned index allocates nothing
//! once as many have run side by side before.

use std::cell::RefCell;

use farsight_base::Line;
use farsight_base::pinned::PinnedMemory;
use farsight_index::{Buffer, Kept, Lent, Pairs};
use farsight_layout::pool::Writes;

use crate::gate::Asked;
use crate::get::Looked;
use crate::session::Written;
use crate::together::Part;
use crate::{LeafPlace, RolexSession};

/// The buffers of one session.
#[derive(Default)]
pub(crate) struct Buffers {
    /// The lane's operations.
    pub(crate) lane: RefCell<PinnedMemory>,
    blocks: Kept<Vec<Line>>,
    /// WRITEs of a change.
    pub(crate) plans: Kept<Writes>,
    /// Writes of other sessions that are done along, and what is planned of each.
    pub(crate) taken: Kept<(Vec<Asked>, Vec<Part>)>,
    /// Keys of a batch that go by the lane.
    pub(crate) slow_path: Kept<Vec<(usize, Option<Looked>)>>,
    /// Keys of a batch of writes, each with its number.
    pub(crate) keys: Kept<Vec<(u64, usize)>>,
    pub(crate) written: Kept<Vec<Option<Written>>>,
    pub(crate) scans: Kept<ScanBuffers>,
    /// What scans found, and those of them that wait for one that comes before.
    pub(crate) found: Kept<Pairs>,
    pub(crate) waiting: Kept<Vec<(usize, Pairs)>>,
}

/// What one scan works in.
#[derive(Default)]
pub(crate) struct ScanBuffers {
    pub(crate) predicted: Vec<LeafPlace>,
    /// Leaves that are READ, and their verbs.
    pub(crate) posted: Vec<(LeafPlace, usize)>,
    pub(crate) leaves: Vec<Line>,
}

impl Buffer for ScanBuffers {
    fn room_bytes(&self) -> usize {
        self.predicted.room_bytes() + self.posted.room_bytes() + self.leaves.room_bytes()
    }
}

impl RolexSession {
    /// Lines for a block, with whatever is in them.
    #[inline]
    pub(crate) fn block(&self) -> Lent<'_, Vec<Line>> {
        let mut block = self.buffers.blocks.lend();
        block.resize(self.table().geometry().lines(), Line::ZERO);
        block
    }
}
