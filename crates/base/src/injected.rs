//! Deliberate bugs of this crate: orderings that loom takes away, and a look at a stamp that is left out.

crate::bugs! {
    /// Every Acquire load and exchange is Relaxed.
    ACQUIRE_LOADS = "AcquireLoads";
    /// Every Release store and exchange is Relaxed.
    RELEASE_STORES = "ReleaseStores";
    /// No Acquire fence.
    ACQUIRE_FENCES = "AcquireFences";
    /// No Release fence.
    RELEASE_FENCES = "ReleaseFences";
    /// No SeqCst fence.
    SEQ_CST_FENCES = "SeqCstFences";
    /// A line is copied without a second look at its stamp.
    NO_SECOND_LOOK = "NoSecondLook";
}
