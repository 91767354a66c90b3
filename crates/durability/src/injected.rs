//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A log goes on after a sync that failed, once a second one has said that all is well.
    FAILED_SYNC_RETRIED = "FailedSyncRetried";
    /// A start takes for durable what a failed sync of the life before has left.
    UNSYNCED_TRUSTED = "UnsyncedTrusted";
    /// Recovery takes a frame at the log's end whatever its checksum.
    TAIL_TRUSTED = "TailTrusted";
    /// Segments are removed before a snapshot covers them.
    SEGMENT_REMOVED_EARLY = "SegmentRemovedEarly";
    /// Segments are removed that one of a table's pieces needs, once its newest does not.
    OLD_PIECE_FORGOTTEN = "OldPieceForgotten";
    /// Recovery takes frames of a piece in whatever order they stand there.
    FRAMES_NOT_CHAINED = "FramesNotChained";
    /// Recovery forgets the versions of the log.
    VERSION_REUSED = "VersionReused";
    /// A backup does not look whether its catalogue still counts.
    CATALOGUE_READ_ONCE = "CatalogueReadOnce";
    /// Of the records of a key in a batch of the log, recovery keeps the oldest.
    OLDEST_KEPT = "OldestKept";
    /// Recovery looks for nothing valid behind a damaged frame.
    MIDDLE_CUT = "MiddleCut";
}
