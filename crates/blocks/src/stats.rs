//! What a space counts of itself.

/// Where the bytes of a space are. Live, free, quarantined and lost bytes add up to those used; while writers
/// work they are of about one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockStats {
    /// Bytes of whole lines of blocks that are in use.
    pub live_bytes: u64,
    /// Bytes that the next blocks can have without growth; those ready for writers are among them.
    pub free_bytes: u64,
    /// Bytes of blocks that were in use a short while ago.
    pub quarantined_bytes: u64,
    /// Bytes between a block's end and its place's, and behind the last place of a slab.
    pub lost_bytes: u64,
    /// Bytes from the region's start to the end of what was ever used.
    pub used_bytes: u64,
    /// Bytes that the space may use.
    pub limit_bytes: u64,
}
