//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// An insert does not look for another one of its key.
    BUCKETS_NOT_READ_AGAIN = "BucketsNotReadAgain";
    /// An object counts in whatever generation its memory is.
    GENERATION_NOT_COMPARED = "GenerationNotCompared";
    /// A remove does not say which version it removed.
    REMOVED_VERSION_FORGOTTEN = "RemovedVersionForgotten";
    /// A remove leaves the slots that inserts of the key have reserved.
    RESERVATIONS_LEFT = "ReservationsLeft";
    /// A look believes an address without its slot.
    SLOT_NOT_COMPARED = "SlotNotCompared";
    /// A slot is swapped beside the WRITE of its object where no order is promised.
    SWAPPED_BESIDE_WRITE = "SwappedBesideWrite";
    /// An insert READs the buckets beside its reservation where no order is promised.
    READ_BESIDE_RESERVATION = "ReadBesideReservation";
    /// A split copies slots without sealing them.
    SLOTS_NOT_SEALED = "SlotsNotSealed";
    /// A directory names halves before they are written.
    PUBLISHED_BEFORE_HALVES = "PublishedBeforeHalves";
    /// A look believes sealed slots without looking at the directory.
    OLD_DIRECTORY_TRUSTED = "OldDirectoryTrusted";
    /// An object is freed before its slot is another's.
    FREED_BEFORE_REPLACED = "FreedBeforeReplaced";
    /// A write whose call to another compute node was lost is done again, one-sided.
    LOST_CALL_REPEATED = "LostCallRepeated";
    /// A removal whose call to another compute node was lost is done again, one-sided.
    LOST_REMOVAL_REPEATED = "LostRemovalRepeated";
    /// In a row of writes, those behind a removal find the pair that it removed.
    REMOVED_IN_ROW_HELD = "RemovedInRowHeld";
    /// A compute node says of a key whose address it does not know that it is absent.
    ABSENT_UNREAD = "AbsentUnread";
    /// Of the writes of one key in a batch, the first one is stored.
    FIRST_WRITE_STORED = "FirstWriteStored";
    /// An update counts as overtaken by a write that looked at the value.
    OVERTAKEN_BY_LOOKER = "OvertakenByLooker";
    /// A replacement whose swap found another word is answered as done.
    UNSWAPPED_ANSWERED = "UnswappedAnswered";
    /// The tail of a chain does not follow.
    TAIL_LEFT_BEHIND = "TailLeftBehind";
    /// A pair that the head has removed stays at the tail beside one that was inserted.
    REMOVAL_LEFT_BEHIND = "RemovalLeftBehind";
    /// What was read is believed for ever.
    READS_BELIEVED = "ReadsBelieved";
    /// A writer replaces a shared value without closing it.
    SHARED_NOT_CLOSED = "SharedNotClosed";
    /// A writer that has closed a slot does not count that.
    CLOSING_NOT_COUNTED = "ClosingNotCounted";
    /// A writer that has closed a slot counts that at the head of the slot's chain.
    COUNTED_AT_HEAD = "CountedAtHead";
    /// A reader shares a slot at the tail of its chain alone.
    SHARED_AT_TAIL = "SharedAtTail";
    /// A value whose slot is closing begins to be kept.
    CLOSING_KEPT = "ClosingKept";
    /// Kept values are given out when the lease is over.
    LEASE_OUTLIVED = "LeaseOutlived";
    /// A split does not wait for leases on what it has sealed.
    SEALED_UNAWAITED = "SealedUnawaited";
    /// An enumeration goes on with one half of a subtable that was split.
    HALF_SKIPPED = "HalfSkipped";
    /// The head names an object beside the WRITEs that bring it to the replicas.
    NAMED_BEFORE_REPLICAS = "NamedBeforeReplicas";
    /// A new node counts as having an object if it was brought one at its place, in whatever use.
    BROUGHT_IN_ANY_USE = "BroughtInAnyUse";
    /// A write finds a pair that has ended.
    ENDED_PAIR_HELD = "EndedPairHeld";
}
