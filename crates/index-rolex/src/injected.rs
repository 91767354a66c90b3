//! Deliberate bugs of this crate.

farsight_base::bugs! {
    /// A pool's lock is taken over without a fence for its holder.
    STOLEN_UNFENCED = "StolenUnfenced";
    /// A compute node one of whose operations broke off goes on under its number.
    NOT_POISONED = "NotPoisoned";
    /// A pool's lock is released before the WRITEs that were made under it.
    UNLOCKED_FIRST = "UnlockedFirst";
    /// A pool's leaf is not READ again behind the lock: what was READ before counts.
    NO_REREAD_UNDER_LOCK = "NoRereadUnderLock";
    /// A new image names the leaves of the old one and no other.
    LEAVES_NOT_CARRIED_OVER = "LeavesNotCarriedOver";
    /// A trainer takes the lines of the old image before the new one is published.
    LINES_REUSED_EARLY = "LinesReusedEarly";
    /// A compute node never fetches another image of a group that it has: that is no bug, but slow.
    IMAGE_KEPT = "ImageKept";
    /// A merge leaves the right leaf open.
    MERGED_UNCLOSED = "MergedUnclosed";
    /// A leaf that is to be merged is adopted as of now, and not as of the look at it.
    ADOPTED_BLIND = "AdoptedBlind";
    /// An operation asks a processor while others of its session hold locks.
    ASKED_BESIDE_LOCKS = "AskedBesideLocks";
    /// A leaf at which a group begins is merged without a look whether it still does.
    ANCHOR_TAKEN_BLIND = "AnchorTakenBlind";
    /// What a compute node that has ended left is given back without a look whether anything leads to it.
    LINKED_FREED = "LinkedFreed";
    /// An update that is alone in its call leaves the old value under a new version.
    LONE_UPDATE_LOST = "LoneUpdateLost";
    /// What is known of a group is taken, changed, and put back, without the lock in between.
    CHANGED_UNLOCKED = "ChangedUnlocked";
    /// A group's version is taken behind its content.
    VERSION_TAKEN_LATE = "VersionTakenLate";
    /// A write that a session takes along stays in the queue, for another to take it, too.
    TAKEN_UNMARKED = "TakenUnmarked";
    /// A session that takes a write along keeps the value before to itself.
    OLD_VALUE_KEPT = "OldValueKept";
    /// A write whose leaf was locked twice counts as overtaken, whether its key's version changed or not.
    OVERTAKEN_BY_NONE = "OvertakenByNone";
    /// A write that looked at the value before gets a version as if it had not.
    OVERTAKEN_BY_ANY = "OvertakenByAny";
    /// What a READ shows counts for a write that queued behind it at its gate.
    OVERTAKEN_BEFORE_ASKED = "OvertakenBeforeAsked";
    /// Splits that were counted in the old directory while a new one was made are not counted in that.
    RECOUNT_SKIPPED = "RecountSkipped";
    /// A session takes all of its locks with one lock word.
    LOCK_WORD_REUSED = "LockWordReused";
    /// A number has few lock values: that is no bug, but changes numbers often.
    NUMBERS_SHORT = "NumbersShort";
    /// A compute node takes locks of its former numbers for another's.
    FORMER_NUMBER_FORGOTTEN = "FormerNumberForgotten";
    /// A group for which there are no lines ends the step of training.
    FULL_ENDS_STEP = "FullEndsStep";
    /// Images of a directory that got no lines keep theirs.
    UNUSED_IMAGES_KEPT = "UnusedImagesKept";
    /// An ended compute node's blocks are looked at once it is fenced at their memory node, not at all.
    ORPHAN_FENCED_AT_HOME = "OrphanFencedAtHome";
    /// A load counts itself before it is attached, and not with the attachment.
    LOAD_COUNTED_AHEAD = "LoadCountedAhead";
}
