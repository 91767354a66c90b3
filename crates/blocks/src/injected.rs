//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A block's memory is given to others while the block is in use.
    LIVE_BLOCK_REUSED = "LiveBlockReused";
    /// Other threads may take all of what a thread let out of the quarantine for itself.
    EMPTIED_FOR_OTHERS = "EmptiedForOthers";
}
