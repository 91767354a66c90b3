//! Deliberate bugs of this crate. Those that believe lines too easily wrap the checks of
//! [`proof`](crate::proof).

use farsight_base::Line;

use crate::{KeyLines, KeySearch, ValueFault, proof};

farsight_base::bugs! {
    /// The later pieces of a value are written where its first one is.
    PIECE_MISPLACED = "PieceMisplaced";
    /// A split writes left, which names right, before right is filled; readers take a block that is no leaf
    /// for one without the key.
    LINKED_BEFORE_FILLED = "LinkedBeforeFilled";
    /// A value is accepted whatever its incarnation.
    ANY_INCARNATION = "AnyIncarnation";
    /// A value's line is accepted while it is being written.
    ODD_ACCEPTED = "OddAccepted";
    /// A value is accepted although its slot was not written in this incarnation.
    UNWRITTEN_ACCEPTED = "UnwrittenAccepted";
    /// A key that is not in the lines is absent, whatever their fences.
    MISS_WITHOUT_FENCES = "MissWithoutFences";
    /// An insert takes the slot of a removed pair, in the same incarnation.
    SLOT_REUSED = "SlotReused";
    /// A rewrite leaves the lines of the values even while it writes them.
    OPENED_IN_PART = "OpenedInPart";
    /// A rewrite keeps the incarnation.
    INCARNATION_KEPT = "IncarnationKept";
    /// Who repairs a pool's leaf frees the slot of an insert that died behind a compaction.
    UNSHOWN_CLEARED = "UnshownCleared";
    /// An update makes its value's lines odd, and writes no journal.
    JOURNAL_MISSING = "JournalMissing";
    /// A rewrite's journal is cleared before the rewrite is done.
    JOURNAL_CLEARED_EARLY = "JournalClearedEarly";
    /// A leaf that a split makes is opened before the leaf that it splits off names it.
    BORN_OPENED_EARLY = "BornOpenedEarly";
    /// A key is shown before its value is written, and readers take what they find there.
    KEY_SHOWN_FIRST = "KeyShownFirst";
    /// A copy of a block counts whatever its checksum.
    CHECKSUM_SKIPPED = "ChecksumSkipped";
    /// A block counts whatever pair it holds.
    BLOCK_IDENTITY_NOT_COMPARED = "BlockIdentityNotCompared";
    /// A published record counts whatever its checksum and its generation.
    RECORD_UNCHECKED = "RecordUnchecked";
}

pub(crate) fn prove_miss(view: KeyLines<'_>, key: u64) -> KeySearch {
    if MISS_WITHOUT_FENCES.is_injected() {
        return KeySearch::Absent;
    }
    match proof::prove_miss(view, key) {
        KeySearch::Foreign if LINKED_BEFORE_FILLED.is_injected() => KeySearch::Absent,
        found => found,
    }
}

pub(crate) fn check_lines(lines: &[Line], incarnation: u32) -> Result<(), ValueFault> {
    if ODD_ACCEPTED.is_injected() && lines.iter().all(|line| line.stamp().incarnation() == incarnation) {
        return Ok(());
    }
    let is_any = ANY_INCARNATION.is_injected();
    proof::check_lines(lines, if is_any { lines[0].stamp().incarnation() } else { incarnation })
}

pub(crate) fn written(version: u64) -> Result<u64, ValueFault> {
    if UNWRITTEN_ACCEPTED.is_injected() || KEY_SHOWN_FIRST.is_injected() {
        return Ok(version);
    }
    proof::written(version)
}
