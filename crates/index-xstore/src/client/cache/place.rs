//! Where a client keeps what one number of the model stands for.

use super::super::arena::{BlockKind, LINES_MAX};
use super::ASKED_LINES;

/// Where a sub-model or a branch is, and in which generation; by default nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in super::super) struct Place(pub(super) u32);

impl Place {
    /// A place in the generation before.
    const BEFORE: u32 = 1 << 31;
    /// Nobody has used it since the search for the idle came by. No sub-model's place to who looks no closer,
    /// so that the next use is noticed, and none after it costs anything.
    const IDLE: u32 = 1 << 30;
    /// A branch's block.
    const BRANCH: u32 = 1 << 29;
    /// A block of more lines than [`ASKED_LINES`].
    const LONG: u32 = 1 << 28;
    /// A sub-model's own line.
    const OWN_LINE: u32 = 1 << 27;
    /// A block of one line.
    const LINE: u32 = 1 << 26;
    /// Sub-models and branches that places can name.
    pub(super) const NUMBERS_MAX: u32 = Self::LINE;

    pub(super) fn of_block(line: u32, kind: BlockKind) -> Self {
        const { assert!(LINES_MAX <= Self::LINE as usize, "a place names any line") };
        Self(
            line | match kind {
                BlockKind::Line => Self::LINE,
                BlockKind::Branch => Self::BRANCH,
                BlockKind::Lines(_) if kind.lines() > ASKED_LINES => Self::LONG,
                BlockKind::Lines(_) => 0,
            },
        )
    }

    #[inline(always)]
    pub(super) fn own_line_of(sub_model: u32) -> Self {
        Self(sub_model | Self::OWN_LINE)
    }

    /// The same place, of the generation before; by default nowhere.
    pub(super) fn before(self) -> Self {
        if self == Self::default() { self } else { Self(self.0 | Self::BEFORE) }
    }

    /// The block's first line, or the number of the sub-model whose own line it is.
    #[inline(always)]
    pub(super) fn number(self) -> u32 {
        self.0 & (Self::LINE - 1)
    }

    #[inline(always)]
    pub(super) fn is_own_line(self) -> bool {
        self.0 & Self::OWN_LINE != 0
    }

    /// True if a sub-model is in one line, its own or any.
    #[inline(always)]
    pub(super) fn is_line(self) -> bool {
        self.0 & (Self::OWN_LINE | Self::LINE) != 0
    }

    #[inline(always)]
    pub(super) fn is_branch(self) -> bool {
        self.0 & Self::BRANCH != 0
    }

    /// True of a branch of the newest generation that is not idle.
    #[inline(always)]
    pub(super) fn is_branch_in_use(self) -> bool {
        self.0 & (Self::BEFORE | Self::IDLE | Self::BRANCH) == Self::BRANCH
    }

    #[inline(always)]
    pub(super) fn is_long(self) -> bool {
        self.0 & Self::LONG != 0
    }

    /// True of a sub-model whose block is neither one line nor long.
    #[inline(always)]
    pub(super) fn is_of_few_lines(self) -> bool {
        self.0 & (Self::LONG | Self::LINE) == 0
    }

    #[inline(always)]
    pub(super) fn is_idle(self) -> bool {
        self.0 & Self::IDLE != 0
    }

    /// The same place, idle.
    pub(super) fn idle(self) -> Self {
        Self(self.0 | Self::IDLE)
    }

    /// The same place, in use.
    #[inline(always)]
    pub(super) fn in_use(self) -> Self {
        Self(self.0 & !Self::IDLE)
    }

    /// True if it is somewhere, and in the newest generation.
    #[inline(always)]
    pub(super) fn is_newest(self) -> bool {
        self.0.wrapping_sub(1) < Self::BEFORE - 1
    }

    /// True if a sub-model of the newest generation is there.
    #[inline(always)]
    pub(in super::super) fn is_sub_model(self) -> bool {
        self.0.wrapping_sub(1) < Self::BRANCH - 1
    }

    /// True if nothing was fetched there.
    #[inline(always)]
    pub(in super::super) fn is_nowhere(self) -> bool {
        self == Self::default()
    }
}
