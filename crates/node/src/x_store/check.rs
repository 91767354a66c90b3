//! Looking at an XStore table's pairs as a call does that scans.

use std::ops::ControlFlow;

use farsight_index::{LeafFormat, Pairs};
use farsight_index_xstore::server::{BlockReadError, BlockRoom};
use farsight_protocol::Direction;

use super::Part;
use super::block_part::BlockPart;
use crate::scrub::Checked;

impl<F: LeafFormat> Part<F> {
    /// A scan repairs the stamps of leaves that it waits for in vain. A leaf whose latch nobody frees ends
    /// the table's turn in this pass.
    pub(super) fn check_leaves(&self, from: u64, limit: usize) -> Checked {
        let mut pairs = Pairs::default();
        pairs.reset(self.value_bytes);
        match self.tree.scan(Direction::Ascending, from, limit, &mut pairs) {
            Ok(next) => Checked { next, damage: None },
            Err(error) => Checked { next: None, damage: Some(self.contended(&error)) },
        }
    }
}

impl BlockPart {
    /// The same, and blocks are compared with their checksums.
    pub(super) fn check_blocks(&self, from: u64, limit: usize) -> Checked {
        let mut room = BlockRoom::default();
        let (way, goes_on) = (Direction::Ascending, |_, _, _: &[u8]| ControlFlow::Continue(()));
        match self.tree.scan(way, from, limit, &mut room, goes_on) {
            Ok(next) => Checked { next, damage: None },
            Err(error) => {
                let next = match error {
                    BlockReadError::Damaged { key, .. } => key.checked_add(1),
                    BlockReadError::Contended(_) => None,
                };
                Checked { next, damage: Some(self.refused_read(&error)) }
            }
        }
    }
}
