//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A block's memory is given to others while the block is in use.
    LIVE_BLOCK_REUSED = "LiveBlockReused";
}
