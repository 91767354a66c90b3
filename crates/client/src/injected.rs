//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A memory node that was started again is taken for the one before.
    EPOCHS_NOT_COMPARED = "EpochsNotCompared";
    /// A memory node with an old copy of its directory of data is taken for the newest.
    LIVES_NOT_COMPARED = "LivesNotCompared";
    /// A client takes a connection that is lost for its current one, for ever.
    LOST_BACKEND_KEPT = "LostBackendKept";
    /// A compute node that serves writes for a caller of another epoch.
    OTHER_EPOCH_SERVED = "OtherEpochServed";
    /// A session sends writes again whose answers are lost.
    WRITE_REPEATED = "WriteRepeated";
    /// Who keeps values says that it has let go of some before it has.
    LET_GO_LATER = "LetGoLater";
    /// A new node is taken in before it has the last piece of a table.
    TAKEN_IN_UNWHOLE = "TakenInUnwhole";
}
