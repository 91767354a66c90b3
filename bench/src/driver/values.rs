//! What the values of a measured table are.

use farsight::ValueKind;
use farsight_base::prng::mix;
use farsight_oracles::Identity;

/// The kind of a table's values, and how long each is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values {
    are_blocks: bool,
    /// Their pairs end a day after they are written.
    have_deadlines: bool,
    least_bytes: usize,
    most_bytes: usize,
}

/// How long pairs stay that have deadlines: longer than any measurement.
const STAYING_MS: u64 = 24 * 3600 * 1000;

impl Values {
    /// Values of one size, which leaves hold.
    #[must_use]
    pub const fn fixed(bytes: usize) -> Self {
        Self { are_blocks: false, have_deadlines: false, least_bytes: bytes, most_bytes: bytes }
    }

    /// Values in blocks of their own. Lengths from `least_bytes` to `most_bytes` are equally frequent.
    #[must_use]
    pub const fn blocks(least_bytes: usize, most_bytes: usize) -> Self {
        Self { are_blocks: true, have_deadlines: false, least_bytes, most_bytes }
    }

    /// The same, of pairs that have deadlines.
    #[must_use]
    pub const fn with_deadlines(self) -> Self {
        Self { have_deadlines: self.are_blocks, ..self }
    }

    /// What they are called in results.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match (self.are_blocks, self.have_deadlines) {
            (false, _) => "fixed",
            (true, false) => "blocks",
            (true, true) => "expiring",
        }
    }

    /// True if they lie in blocks.
    #[must_use]
    pub const fn are_blocks(&self) -> bool {
        self.are_blocks
    }

    /// Bytes of the shortest.
    #[must_use]
    pub const fn least_bytes(&self) -> usize {
        self.least_bytes
    }

    /// Bytes of the longest.
    #[must_use]
    pub const fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// What a table of them is made with.
    #[must_use]
    pub fn kind(&self) -> ValueKind {
        if self.are_blocks {
            let kind = ValueKind::blocks(self.most_bytes as u32);
            if self.have_deadlines { kind.expiring(STAYING_MS) } else { kind }
        } else {
            ValueKind::Fixed(self.most_bytes as u16)
        }
    }

    /// Bytes of the value of `key` with this counter.
    #[inline]
    #[must_use]
    pub(crate) fn length(&self, key: Identity, counter: u32) -> usize {
        if self.least_bytes == self.most_bytes {
            return self.most_bytes;
        }
        let lengths = (self.most_bytes - self.least_bytes + 1) as u64;
        self.least_bytes + (mix(key.0 ^ u64::from(counter) << 32) % lengths) as usize
    }
}
