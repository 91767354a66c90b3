//! Where things stand in a block of a pool: a leaf's lines, then its control lines.

use farsight_base::{LINE_BYTES, LeafNumber, Line, RegionId, RemoteAddress, WORDS_PER_LINE};

use super::journal::{FIRST_PAYLOAD_WORD, REWRITE_WORDS};
use super::{LockWord, LockedLeaf, Writes};
use crate::{Geometry, GeometryError, LeafSlot};

/// A block's sizes and places, all derived from the size of its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockGeometry {
    leaf: Geometry,
    control_lines: usize,
    change_writes_max: usize,
}

impl BlockGeometry {
    /// The block of a table with values of `value_bytes`.
    ///
    /// # Errors
    /// As [`Geometry::new`].
    pub fn new(value_bytes: usize) -> Result<Self, GeometryError> {
        let leaf = Geometry::new(value_bytes)?;
        let journal_words = FIRST_PAYLOAD_WORD + REWRITE_WORDS.max(1 + leaf.value_words());
        let control_lines = journal_words.div_ceil(WORDS_PER_LINE);
        let unmeasured = Self { leaf, control_lines, change_writes_max: 0 };
        Ok(Self { change_writes_max: most_writes(&unmeasured), ..unmeasured })
    }

    /// WRITEs at most of an update, a removal, or an insert into a free slot.
    #[inline]
    #[must_use]
    pub fn change_writes_max(&self) -> usize {
        self.change_writes_max
    }

    /// The leaf in the block: what readers READ.
    #[inline]
    #[must_use]
    pub fn leaf(&self) -> &Geometry {
        &self.leaf
    }

    /// Lines of a whole block.
    #[inline]
    #[must_use]
    pub fn lines(&self) -> usize {
        self.leaf.leaf_lines() + self.control_lines
    }

    /// Bytes of a whole block.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.lines() * LINE_BYTES
    }

    /// The word of the block at which its control lines begin.
    #[inline]
    #[must_use]
    pub fn first_control_word(&self) -> usize {
        self.leaf.leaf_words()
    }

    /// The address of `word` of block `number` in `region`.
    #[inline]
    #[must_use]
    pub fn address(&self, region: RegionId, number: u32, word: usize) -> RemoteAddress {
        let offset_bytes = u64::from(number) * self.bytes() as u64 + word as u64 * 8;
        RemoteAddress { region, offset_bytes }
    }
}

/// The WRITEs of the insert or update that takes most of them: each slot's is planned.
fn most_writes(geometry: &BlockGeometry) -> usize {
    let mut lines = vec![Line::ZERO; geometry.lines()];
    let value = vec![0; geometry.leaf().value_bytes()];
    let mut writes = Writes::default();
    let mut leaf = LockedLeaf::new(geometry, LeafNumber(0), &mut lines);
    leaf.unlock(LockWord::CLOSED, &mut writes);
    let mut planned = |plan: &mut dyn FnMut(&mut Writes)| {
        writes.clear();
        plan(&mut writes);
        writes.len()
    };
    let of_slot = |slot| {
        let inserted = planned(&mut |writes| leaf.insert(slot, 0, 1, &value, writes));
        inserted.max(planned(&mut |writes| leaf.update(slot, 2, &value, writes)))
    };
    LeafSlot::all().map(of_slot).fold(0, usize::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_of_short_values_is_eight_lines() {
        let geometry = BlockGeometry::new(8).unwrap();
        assert_eq!((geometry.lines(), geometry.bytes()), (8, 512));
        assert_eq!(geometry.address(RegionId(3), 2, 57).offset_bytes, 2 * 512 + 57 * 8);
    }

    #[test]
    fn short_values_change_in_three_writes_and_others_in_five() {
        let writes = [8, 16, 24, 56, 256].map(|bytes| BlockGeometry::new(bytes).unwrap().change_writes_max());
        assert_eq!(writes, [3, 5, 5, 5, 5]);
    }

    #[test]
    fn the_longest_value_fits_the_journal() {
        for value_bytes in 8..=256 {
            let geometry = BlockGeometry::new(value_bytes).unwrap();
            let room = (geometry.lines() - geometry.leaf().leaf_lines()) * WORDS_PER_LINE;
            assert!(room >= FIRST_PAYLOAD_WORD + 1 + geometry.leaf().value_words(), "{value_bytes} B");
        }
    }
}
