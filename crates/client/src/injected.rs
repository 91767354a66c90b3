//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A memory node that was started again is taken for the one before.
    LIVES_NOT_COMPARED = "LivesNotCompared";
    /// A client takes a connection that is lost for its current one, for ever.
    LOST_LIFE_KEPT = "LostLifeKept";
}
