//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// An insert does not look for another one of its key.
    BUCKETS_NOT_READ_AGAIN = "BucketsNotReadAgain";
    /// An object counts in whatever life its memory is.
    GENERATION_NOT_COMPARED = "GenerationNotCompared";
    /// A remove does not say which version it removed.
    REMOVED_VERSION_FORGOTTEN = "RemovedVersionForgotten";
    /// An object is freed before its slot is another's.
    FREED_BEFORE_REPLACED = "FreedBeforeReplaced";
}
