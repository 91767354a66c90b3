//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A memory node at which a compute node has ended takes every newcomer for that one.
    NEWCOMERS_FENCED = "NewcomersFenced";
}
