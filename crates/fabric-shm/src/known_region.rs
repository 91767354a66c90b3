//! A region as one queue pair has it.
//!
//! Invariant: its words lie in a mapping that it keeps. A reader of them borrows it, and with it the queue
//! pair that has it; to let it go takes the queue pair exclusively. So no view outlives its mapping.
//!
//! Protocol: a READ of what the queue pair does not know to lie on files asks the server first. What lies on
//! none even then reads as zeros. A region that is withdrawn stays known, without words, until it is
//! detached: a verb that names it is told so.

use std::cell::Cell;
use std::sync::Arc;

use farsight_base::sync::AtomicU64;
use farsight_fabric::RegionRights;

use crate::attachments::Hold;
use crate::mapping::SharedWords;

/// What a queue pair knows of a region; by default one that is withdrawn.
#[derive(Debug)]
pub(crate) struct KnownRegion {
    words: SharedWords,
    /// Words that lie on files, as far as this queue pair knows.
    grown: Cell<usize>,
    /// `None` once it is withdrawn.
    hold: Option<Arc<Hold>>,
    rights: RegionRights,
}

impl Default for KnownRegion {
    fn default() -> Self {
        Self { words: SharedWords::none(), grown: Cell::new(0), hold: None, rights: RegionRights::ReadOnly }
    }
}

impl KnownRegion {
    pub(crate) fn new(words: SharedWords, rights: RegionRights, hold: Arc<Hold>) -> Self {
        Self { words, grown: Cell::new(0), hold: Some(hold), rights }
    }

    /// Its words that lie on files; none once it is withdrawn.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        let words = self.words.words();
        // At most all: so no slice can fail.
        &words[..self.grown.get().min(words.len())]
    }

    /// All words that it may come to have; none once it is withdrawn. Those that lie on no file yet read as
    /// zeros, and cannot be written.
    #[inline(always)]
    pub(crate) fn all_words(&self) -> &[AtomicU64] {
        self.words.words()
    }

    /// Bytes that it may come to have.
    pub(crate) fn length_bytes(&self) -> u64 {
        self.all_words().len() as u64 * 8
    }

    /// So many bytes lie on files now.
    pub(crate) fn grow_to(&self, bytes: u64) {
        self.grown.set((bytes / 8) as usize);
    }

    /// True if all of it does.
    pub(crate) fn is_whole(&self) -> bool {
        self.grown.get() >= self.all_words().len()
    }

    pub(crate) fn rights(&self) -> RegionRights {
        self.rights
    }

    /// True once the queue pair has let it go because it is withdrawn.
    pub(crate) fn is_withdrawn(&self) -> bool {
        self.hold.is_none()
    }

    /// Lets it go if it is withdrawn by now.
    pub(crate) fn let_go_if_withdrawn(&mut self) {
        if self.hold.as_ref().is_some_and(|hold| hold.is_withdrawn()) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_withdrawn_is_let_go_once_it_is_marked() {
        let hold = Arc::<Hold>::default();
        let mut known = KnownRegion::new(SharedWords::none(), RegionRights::ReadWrite, Arc::clone(&hold));
        known.let_go_if_withdrawn();
        assert!(!known.is_withdrawn());
        hold.withdraw();
        assert!(!known.is_withdrawn(), "not before the queue pair looks");
        known.let_go_if_withdrawn();
        assert!(known.is_withdrawn() && Arc::strong_count(&hold) == 1);
    }
}
