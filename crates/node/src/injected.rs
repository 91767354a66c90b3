//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A memory node at which a compute node has ended takes every newcomer for that one.
    NEWCOMERS_FENCED = "NewcomersFenced";
    /// Writes are applied and answered before the log that has them is durable.
    ANSWERED_BEFORE_SYNC = "AnsweredBeforeSync";
}
