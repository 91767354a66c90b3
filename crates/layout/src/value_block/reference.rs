//! The word that names a block.

use super::{
    REFERENCE_FINGERPRINT_BITS, REFERENCE_LINES_BITS, REFERENCE_LINES_LONG, REFERENCE_LIVE_BIT,
    REFERENCE_OFFSET_BITS, REFERENCE_SPACE_BITS,
};

const LINES_SHIFT: u32 = REFERENCE_FINGERPRINT_BITS;
const OFFSET_SHIFT: u32 = LINES_SHIFT + REFERENCE_LINES_BITS;
const SPACE_SHIFT: u32 = OFFSET_SHIFT + REFERENCE_OFFSET_BITS;

/// Where a block stands, and how long it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BlockPlace {
    /// The space.
    pub space: u8,
    /// Its first line in the space.
    pub offset_lines: u64,
    /// Its lines.
    pub lines: u32,
}

/// `{fingerprint 8, lines 8, offset in lines 40, space 7, live 1}`, lowest bits first.
///
/// A reader that gets it from a peer believes nothing of it. The block that it leads to says what it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct BlockRef(pub u64);

impl BlockRef {
    /// The reference to the block of this key, which stands there.
    ///
    /// # Panics
    /// If the place has more bits than a reference.
    #[must_use]
    pub fn new(key: &[u8], place: BlockPlace) -> Self {
        let BlockPlace { space, offset_lines, lines } = place;
        assert!(offset_lines >> REFERENCE_OFFSET_BITS == 0, "a block at line {offset_lines}");
        assert!(space >> REFERENCE_SPACE_BITS == 0, "a block in space {space}");
        Self(
            u64::from(Self::fingerprint_of(key))
                | u64::from(lines.min(REFERENCE_LINES_LONG)) << LINES_SHIFT
                | offset_lines << OFFSET_SHIFT
                | u64::from(space) << SPACE_SHIFT
                | 1 << REFERENCE_LIVE_BIT,
        )
    }

    /// The fingerprint of a key: most other keys have another one.
    #[must_use]
    pub fn fingerprint_of(key: &[u8]) -> u8 {
        (crc32c::crc32c(key) >> 24) as u8
    }

    /// The fingerprint of the block's key.
    #[inline]
    #[must_use]
    pub fn fingerprint(self) -> u8 {
        self.0 as u8
    }

    /// The block's lines; `None` if its header says them.
    #[inline]
    #[must_use]
    pub fn lines(self) -> Option<u32> {
        let lines = u32::from((self.0 >> LINES_SHIFT) as u8);
        (lines != REFERENCE_LINES_LONG).then_some(lines)
    }

    /// The block's first line in its space.
    #[inline]
    #[must_use]
    pub fn offset_lines(self) -> u64 {
        self.0 >> OFFSET_SHIFT & ((1 << REFERENCE_OFFSET_BITS) - 1)
    }

    /// The space in which the block stands.
    #[inline]
    #[must_use]
    pub fn space(self) -> u8 {
        (self.0 >> SPACE_SHIFT) as u8 & ((1 << REFERENCE_SPACE_BITS) - 1)
    }

    /// True if it names a block.
    #[inline]
    #[must_use]
    pub fn is_live(self) -> bool {
        self.0 >> REFERENCE_LIVE_BIT == 1
    }
}
