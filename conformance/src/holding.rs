//! What a process holds: descriptors, mappings, memory.

/// What may differ between two counts, for what is under way: a region of the other queue pair, and this
/// test's own look.
const UNDER_WAY: usize = 4;
/// Mappings that the allocator may make and give back meanwhile. A leak of one a round would be hundreds.
const MAPPINGS_UNDER_WAY: usize = 32;
/// Growth of memory that is no leak: threads that meet make arenas. 4 KiB leaked a round, in 10,000 rounds,
/// would be three times that.
const MEMORY_BYTES: usize = 12 << 20;

/// What a process holds.
#[derive(Clone, Copy, Debug)]
pub struct Holding {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mappings of memory.
    pub mappings: usize,
    /// Bytes of memory that it has touched.
    pub memory_bytes: usize,
}

impl Holding {
    /// What this process holds now.
    ///
    /// # Panics
    /// Without `/proc`.
    #[must_use]
    pub fn now() -> Self {
        let text = |path| std::fs::read_to_string(path).expect("/proc");
        let resident =
            text("/proc/self/statm").split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok());
        Self {
            descriptors: std::fs::read_dir("/proc/self/fd").expect("/proc").count(),
            mappings: text("/proc/self/maps").lines().count(),
            memory_bytes: resident.expect("a number of pages") * 4096,
        }
    }

    /// True if that is more than `before`, and not only what is under way.
    #[must_use]
    pub fn is_above(self, before: Self) -> bool {
        self.descriptors > before.descriptors + UNDER_WAY
            || self.mappings > before.mappings + MAPPINGS_UNDER_WAY
            || self.memory_bytes > before.memory_bytes + MEMORY_BYTES
    }

    /// Fails if that is more than `before`; `what` says where.
    ///
    /// # Panics
    /// Then.
    pub fn assert_not_above(self, before: Self, what: &str) {
        assert!(!self.is_above(before), "{what}: {self:?} after {before:?}");
    }
}
