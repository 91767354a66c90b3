//! Whether this process is still the one that made something, or a forked child of it.

use std::io;

use farsight_base::sync::Ordering;

use crate::mapping::Mapping;

/// What the page says in the process that made it.
const OWN: u64 = 1;

/// A page that the kernel wipes in forked children: one load tells what `getpid` would, for a tenth of the
/// price.
#[derive(Debug)]
pub struct OwnProcess(Mapping);

impl OwnProcess {
    /// Marks the calling process.
    ///
    /// # Errors
    /// The system's, without memory or address space for a page.
    pub fn mark() -> io::Result<Self> {
        let page = Mapping::wiped_on_fork()?;
        // Relaxed: nobody else knows the page yet.
        page.words()[0].store(OWN, Ordering::Relaxed);
        Ok(Self(page))
    }

    /// True in the process that made the mark, false in its forked children.
    #[inline]
    #[must_use]
    pub fn is_this(&self) -> bool {
        // Relaxed: only the kernel changes the word, before a child's first instruction.
        self.0.words()[0].load(Ordering::Relaxed) == OWN
    }
}
