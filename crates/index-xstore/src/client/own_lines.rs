//! Each sub-model's own line, for those that fit one. Where it stands follows from its number alone, so that
//! a GET prefetches it as soon as the top model has named it.
//!
//! Invariant: a line that is *taken* holds words that were checked when they were put there. They may be
//! those of two sub-models, if a session reads while the line is written anew. Whatever they are, the leaf
//! number is that of one of them: see [`block`](super::block).

use farsight_base::sync::{AtomicU64, Ordering};
use farsight_base::words::SharedLine;

use super::arena::ZeroedLines;
use super::block::LineWords;

/// A line for each sub-model, and which of them are taken.
pub(super) struct OwnLines {
    lines: ZeroedLines,
    /// A bit for each line. Few enough words to stay in a processor's first cache, so that a sub-model that
    /// has its words elsewhere does not cost a look at its own line.
    taken: Box<[AtomicU64]>,
    are_there: bool,
}

impl OwnLines {
    /// Lines for so many sub-models, none of them taken; `None` if there is no memory for them.
    pub(super) fn new(sub_models: u32) -> Option<Self> {
        Self::with_lines(sub_models, sub_models as usize)
    }

    /// No lines for so many sub-models, where a budget has no room for all of them.
    pub(super) fn none(sub_models: u32) -> Option<Self> {
        // One that is never taken, so that no look at a line has to ask whether there are any.
        Self::with_lines(sub_models, 1).map(|lines| Self { are_there: false, ..lines })
    }

    fn with_lines(sub_models: u32, lines: usize) -> Option<Self> {
        let lines = ZeroedLines::new(lines)?;
        let taken = (0..sub_models.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect();
        Some(Self { lines, taken, are_there: true })
    }

    /// True if each sub-model has a line.
    pub(super) fn are_there(&self) -> bool {
        self.are_there
    }

    /// True if the sub-model of this number is in its own line.
    #[inline(always)]
    pub(super) fn is_taken(&self, sub_model: u32) -> bool {
        // Acquire: a line is read after it was written. Partner: the Release store in `set_taken`.
        let taken = self.taken[(sub_model / u64::BITS) as usize].load(Ordering::Acquire);
        taken >> (sub_model % u64::BITS) & 1 != 0
    }

    /// The line of the sub-model of this number.
    #[inline(always)]
    pub(super) fn line(&self, sub_model: u32) -> &SharedLine {
        &self.lines.lines()[sub_model as usize]
    }

    /// Puts a sub-model into its line. Nobody else may do so at the same time.
    pub(super) fn put(&self, sub_model: u32, words: &LineWords) {
        for (place, word) in self.line(sub_model).iter().zip(words) {
            // Relaxed: the Release store below tells of the first sub-model; sessions may read words of one
            // that was there and of the next.
            place.store(*word, Ordering::Relaxed);
        }
        self.set_taken(sub_model, true);
    }

    /// Sends sessions that look for the sub-model elsewhere, where it must be already. As [`OwnLines::put`].
    pub(super) fn leave(&self, sub_model: u32) {
        self.set_taken(sub_model, false);
    }

    fn set_taken(&self, sub_model: u32, is_taken: bool) {
        let word = &self.taken[(sub_model / u64::BITS) as usize];
        let bit = 1 << (sub_model % u64::BITS);
        // Relaxed: there is one writer at a time.
        let others = word.load(Ordering::Relaxed) & !bit;
        // Release: what the bit sends a session to was written before. Partner: the Acquire load in
        // `is_taken`.
        word.store(if is_taken { others | bit } else { others }, Ordering::Release);
    }

    /// Bytes beside the lines.
    pub(super) fn index_bytes(&self) -> usize {
        size_of_val(&*self.taken)
    }

    /// Bytes of memory that lines and index take.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.lines.touched_bytes() + self.index_bytes() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_one_by_one() {
        let own = OwnLines::new(130).expect("memory");
        for sub_model in [0, 63, 64, 129] {
            assert!(!own.is_taken(sub_model));
            own.put(sub_model, &[u64::from(sub_model) + 1; 8]);
        }
        let taken: Vec<u32> = (0..130).filter(|sub_model| own.is_taken(*sub_model)).collect();
        assert_eq!(taken, [0, 63, 64, 129]);
        own.leave(63);
        assert!(!own.is_taken(63) && own.is_taken(64));
        assert!(own.line(129).iter().all(|word| word.load(Ordering::Relaxed) == 130));
    }
}
