//! What a link says of itself on one page. Who looks before and behind each READ has one pointer to it.
//!
//! Invariant: see [`link`](crate::link), which alone writes here.

use std::io;
use std::sync::Arc;

use farsight_base::sync::{AtomicU64, Ordering, fence};

use crate::mapping::{FirstLine, Mapping};

pub(crate) const FORKED: u64 = 0;
/// The least word of a link that lives.
pub(crate) const ALIVE: u64 = 1;
pub(crate) const ENDED: u64 = u64::MAX;
/// What the word never is: a queue pair that has this to compare with looks closely each time.
pub(crate) const NEVER: u64 = u64::MAX - 1;

/// Where words lie on the page.
const LIFE: usize = 0;
const NOTICE: usize = 1;

/// A link's page, which the kernel wipes in a forked child. Copies are of the same page.
#[derive(Clone, Debug)]
pub(crate) struct LinkState(FirstLine);

impl LinkState {
    /// That of a link that lives, with its newest notice.
    pub(crate) fn new(notice: u64) -> io::Result<Self> {
        let line = FirstLine::of(Arc::new(Mapping::wiped_on_fork()?));
        // Relaxed: nobody else knows the page yet.
        line.words()[LIFE].store(ALIVE, Ordering::Relaxed);
        line.words()[NOTICE].store(notice, Ordering::Relaxed);
        Ok(Self(line))
    }

    /// The word that says whether the link lives.
    #[inline(always)]
    pub(crate) fn word(&self) -> &AtomicU64 {
        &self.0.words()[LIFE]
    }

    /// The newest notice of the server.
    #[inline(always)]
    pub(crate) fn notice(&self) -> &AtomicU64 {
        &self.0.words()[NOTICE]
    }

    /// True while the link lives and has lost no region since it had this word: one load of one word.
    #[inline(always)]
    pub(crate) fn is_unchanged(&self, seen: u64) -> bool {
        // Relaxed: a caller that finds it changed looks again by `Link::check_closely`.
        self.word().load(Ordering::Relaxed) == seen
    }

    /// [`LinkState::is_unchanged`] behind the loads of a READ: they came from the region if it is.
    #[inline(always)]
    pub(crate) fn is_unchanged_after_loads(&self, seen: u64) -> bool {
        // Acquire: the loads before it stay before the look at the word. Partner: the store of ENDED in
        // `Link::end_with`, which the system call in `Mapping::vacate` follows.
        fence(Ordering::Acquire);
        self.is_unchanged(seen)
    }
}
